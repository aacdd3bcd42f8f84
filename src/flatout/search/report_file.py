"""`report.json` of a study, written and read. It may be another version's, or somebody else's.

What a terminal shows must be of the right kind, or the file is refused. In what only the page
shows, a value that does not fit counts as missing: the page never fails.
"""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from flatout.errors import RunError
from flatout.foreign import JsonValue, read_json_if_there, validate_shape
from flatout.runs import write_json
from flatout.search.report_model import StudyReport

FILE = "report.json"
CURE = "remove it, and the same search writes it again"
ON_TERMINALS = {
    "study", "verdict", "winner", "baselines", "overfitting", "deflated", "null", "costs",
    "delays", "controls",
}  # fmt: skip
COUNTS = ("assumptions", "trials")  # on terminals, too
Place = tuple[str | int, ...]  # keys and positions that lead to a value


class FittedReport(NamedTuple):
    """A report made of whatever was given, and the places of what did not fit."""

    report: StudyReport
    unfit: list[Place]


def write_report(folder: Path, report: StudyReport) -> None:
    """Write the report into a study's folder, atomically."""
    write_json(folder / FILE, report.facts())


def read_report(folder: Path) -> StudyReport | None:
    """The report of a study, if it has one."""
    path = folder / FILE
    tree = read_json_if_there(path, dict[str, object], RunError, CURE)
    if tree is None:
        return None
    fitted = fit_report(tree)
    if any(place[0] in ON_TERMINALS or place[:2] == COUNTS for place in fitted.unfit):
        # refuses, and says why
        return validate_shape(tree, StudyReport, where=str(path), refuse=RunError, cure=CURE)
    return fitted.report


def fit_report(tree: Mapping[str, object]) -> FittedReport:
    """A report made of what fits; what does not is None, or left out of its list."""
    fitting: JsonValue = tree
    unfit: list[Place] = []
    while True:
        try:
            return FittedReport(StudyReport.model_validate(fitting, strict=True), unfit)
        except ValidationError as error:
            fitting = deepcopy(fitting) if fitting is tree else fitting
            problems = error.errors(include_url=False, include_input=False)
            places = dict.fromkeys(find_place(fitting, problem["loc"]) for problem in problems)
            unfit += places
            # from behind: whatever is left out of a list does not move those before it
            for place in reversed(places):
                remove_value(fitting, place)


def find_place(tree: JsonValue, wanted: Place) -> Place:
    """How far a place leads into a tree: where several types would do, pydantic names them
    behind it.
    """
    for depth, part in enumerate(wanted):
        there = isinstance(tree, dict) and part in tree
        if not there and not (isinstance(tree, list) and isinstance(part, int)):
            return wanted[:depth]
        tree = tree[part]
    return wanted


def remove_value(tree: JsonValue, place: Place) -> None:
    """Make the value at a place None, or leave it out where None did not fit either."""
    *above, last = place
    for part in above:
        tree = tree[part]
    if tree[last] is None:
        del tree[last]
    else:
        tree[last] = None
