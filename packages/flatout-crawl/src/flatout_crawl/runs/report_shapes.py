"""The shapes of the files that a crawl's report is made from. What does not have them is refused,
with the place.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

Whole = Annotated[int, Field(ge=0, le=10**15)]
Measure = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Code = Annotated[int, Field(ge=0, le=999)]


@dataclass(frozen=True)
class AuditRow:
    """A request that was sent."""

    time: AwareDatetime
    url: str
    status: Code
    bytes: Whole
    seconds: Measure
    failure: str


@dataclass(frozen=True)
class ShownTarget:
    """A page that was found, as its file has it."""

    url: str
    score: Measure
    title: str
    path: list[str]
    request: Whole


@dataclass(frozen=True)
class ShownRobots:
    """A robots.txt that was asked for."""

    asked: str
    status: Code
    body: str = ""


@dataclass(frozen=True)
class ShownCurve:
    """A line in a chart, and the edges of its band."""

    mean: list[Real] = field(default_factory=list)
    low: list[Real] = field(default_factory=list)
    high: list[Real] = field(default_factory=list)


@dataclass(frozen=True)
class ShownOutcome:
    """What came of a crawl, as its file has it."""

    ended: str
    is_live: bool
    requests: Whole
    sent: Whole
    total: Whole
    found: Whole
    pages: Whole
    open_links: Whole
    wasted_mb: Measure
    seconds: Measure
    failures: dict[str, Whole] = field(default_factory=dict)
    hosts: dict[str, Whole] = field(default_factory=dict)
    curve: list[Whole] = field(default_factory=list)
    beside: dict[str, ShownCurve] = field(default_factory=dict)
    not_searched: Whole = 0  # pages in which the search for a pattern took too long


@dataclass(frozen=True)
class ShownVerdict:
    """Whether a policy beats its rivals."""

    beats: bool = False
    sentence: str = ""
    duels: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class ShownCurves:
    """The recall of all choosers."""

    requests: list[Whole] = field(default_factory=list)
    choosers: dict[str, ShownCurve] = field(default_factory=dict)


@dataclass(frozen=True)
class ShownEvaluation:
    """What came of trying a policy."""

    verdict: ShownVerdict = field(default_factory=ShownVerdict)
    choosers: list[dict[str, Any]] = field(default_factory=list)
    curves: ShownCurves = field(default_factory=ShownCurves)
    sites: list[dict[str, Any]] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    flatout: str | None = None
    created: str = ""
