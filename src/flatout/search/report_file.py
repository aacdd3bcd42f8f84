"""`report.json` of a study, as far as it is shown on a terminal; the page takes whatever it
finds.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from flatout.errors import RunError
from flatout.foreign import read_json_if_there

FILE = "report.json"
CURE = "remove it, and the same search writes it again"
Figure = Annotated[float, Field(ge=-1e300, le=1e300)]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
MORE = ConfigDict(extra="allow", allow_inf_nan=False)  # what only the page shows stays as it is


class Gate(TypedDict):
    """One gate of the verdict."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    name: str
    wanted: str
    found: str
    passed: bool
    sentence: str


class VerdictFacts(TypedDict):
    """The verdict."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    promotable: bool
    sentence: str
    gates: list[Gate]


class WithSharpe(TypedDict):
    """A path, a baseline, or a row of a table."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    sharpe: Figure | None


class CostRow(WithSharpe):
    """The winner under other costs."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    factor: Figure


class DelayRow(WithSharpe):
    """The winner with later orders."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    bars: Whole


class WinnerFacts(TypedDict):
    """The winner's paths."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    trial: Whole
    paths: list[WithSharpe]
    median_sharpe: Figure | None
    seeds_sd: Figure | None


class DeflatedFacts(TypedDict):
    """What is left after luck."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    dsr: Figure | None
    trials: Whole
    effective: Figure | None
    expected_best: Figure | None


class OverfittingFacts(TypedDict):
    """Probability of overfitting."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    pbo: Figure | None


class NullFacts(TypedDict):
    """Random traders."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    p_value: Figure | None


class ControlFacts(TypedDict):
    """A market in which the answer is known."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    passed: bool
    sentence: str


class TrialCounts(TypedDict):
    """How many trials the verdict rests on."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    this_study: Whole


class AssumedFacts(TypedDict):
    """What the figures rest on."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    trials: TrialCounts


class ReportFacts(TypedDict):
    """The report."""

    __pydantic_config__ = MORE  # type: ignore[misc]
    study: str
    verdict: VerdictFacts
    assumptions: AssumedFacts
    winner: WinnerFacts
    baselines: dict[str, WithSharpe]
    overfitting: OverfittingFacts | None
    deflated: DeflatedFacts
    null: NullFacts
    costs: list[CostRow]
    delays: list[DelayRow]
    controls: dict[str, ControlFacts]


def read_report(folder: Path) -> dict[str, Any] | None:
    """The report of a study, if it has one."""
    report = read_json_if_there(folder / FILE, ReportFacts, RunError, CURE)
    return None if report is None else dict[str, Any](report)
