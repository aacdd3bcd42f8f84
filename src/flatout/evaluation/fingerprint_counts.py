"""How many trials earlier versions of flatout noted: one JSON file per fingerprint of bars, one
count per folder of a study.

These files are only read. They know neither symbols nor times, so they count for bars of exactly
the same fingerprint, as they did.
"""

import re
from collections.abc import Set
from pathlib import Path
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from flatout.errors import RunError
from flatout.foreign import read_json_if_there, shorten_repr
from flatout.settings.fields import MOST_COUNTED

DAMAGED = (
    "this registry of trials is damaged, so how many were run on these bars is unknown; "
    "restore it, or remove it to forget them"
)


class FingerprintCounts(TypedDict):
    """The content of such a file."""

    fingerprint: str
    studies: dict[str, Annotated[int, Field(ge=0, le=MOST_COUNTED)]]


def count_noted_before(fingerprint: str, registry: Path, known: Set[str] = frozenset()) -> int:
    """The sum over all studies but those whose folders are known to be counted elsewhere; 0 for
    bars that none was noted for.
    """
    counts = read_counts(fingerprint, registry)
    return sum(count for study, count in counts.items() if study not in known)


def read_counts(fingerprint: str, registry: Path) -> dict[str, int]:
    """Trials by study; none if there is no file. A file that cannot be understood is never taken
    for an empty one.
    """
    if not re.fullmatch("[0-9a-fA-F]+", fingerprint):
        raise RunError(
            f"fingerprint {fingerprint!r} is not hexadecimal: give the fingerprint of the bars"
        )
    path = registry / f"{fingerprint.lower()}.json"
    content = read_json_if_there(path, FingerprintCounts, RunError, DAMAGED)
    if content is None:
        return {}
    if content["fingerprint"] != path.stem:
        raise RunError(
            f"{path}: is about other bars, {shorten_repr(content['fingerprint'])}; {DAMAGED}"
        )
    return content["studies"]
