"""What the figures of a study rest on, as types: the part `assumptions` of `report.json`, in the
order in which it stands there.
"""

from pydantic import Field

from flatout.search.report_part import Count, Figure, ReportPart


class BarsFacts(ReportPart):
    """Which bars the study is about."""

    fingerprint: str | None = None
    symbols: list[str | None] | None = None
    bar: str | None = None
    first: str | None = Field(None, validation_alias="from", serialization_alias="from")
    last: str | None = Field(None, validation_alias="to", serialization_alias="to")
    n_bars: Count | None = None
    bars_per_year: Figure | None = None
    trading_year: str | None = None  # the same with where it comes from
    source: str | None = None


class TierFacts(ReportPart):
    """What trades cost from a monthly volume on."""

    volume: Figure | None = None
    maker_bps: Figure | None = None
    taker_bps: Figure | None = None


class CostFacts(ReportPart):
    """What trading costs in the market."""

    tiers: list[TierFacts] | None = None
    maker_share: Figure | None = None
    half_spread_bps: Figure | None = None
    impact: Figure | None = None
    borrow_bps_per_year: Figure | None = None


class MarketFacts(ReportPart):
    """The rules of the market that the agents traded in."""

    fill: str | None = None
    action: str | None = None
    capital: Figure | None = None
    costs: CostFacts | None = None
    limits: dict[str, object] | None = None  # settings, by name


class FoldFacts(ReportPart):
    """How history was divided into bars that teach and bars that judge."""

    kind: str | None = None
    groups: Count | None = None
    splits: Count | None = None
    paths: Count | None = None
    purge_bars: Count | None = None
    embargo_bars: Count | None = None
    gaps: list[str | None] | None = None  # a line of text for each split


class OpeningFacts(ReportPart):
    """One time when the hold-out was opened."""

    time: str | None = None
    what: str | None = None


class HoldOutFacts(ReportPart):
    """The bars that were kept from the search."""

    bars: Count | None = None
    first: str | None = Field(None, validation_alias="from", serialization_alias="from")
    last: str | None = Field(None, validation_alias="to", serialization_alias="to")
    state: str | None = None
    openings: list[OpeningFacts] | None = None
    # share of these bars that was in a hold-out which was opened before, by how many studies
    opened_before: Figure | None = None
    opened_by: Count | None = None
    last_opened: str | None = None
    # share of these bars that judged trials of other studies, and how many those are
    judged_before: Figure | None = None
    judged_by: Count | None = None
    wear: str | None = None  # all of that in a sentence; None if these bars are fresh


class TrialCounts(ReportPart):
    """How many trials the verdict rests on."""

    this_study: Count | None = None
    ever: Count | None = None
    effective: Figure | None = None
    pruned: Count | None = None
    failed: Count | None = None
    of_others: Count | None = None  # those of `ever` that other studies started
    other_studies: Count | None = None  # that count
    overlap: Figure | None = None  # share of the judged bars that these studies saw


class OtherStudyRow(ReportPart):
    """Another study that saw some of the judged bars."""

    folder: str | None = None  # where it was; it may be gone
    begun: str | None = None
    bar: str | None = None
    trials: Count | None = None
    overlap: Figure | None = None  # share of this study's judged bars
    counts: bool | None = None


class AssumptionFacts(ReportPart):
    """What the figures rest on."""

    bars: BarsFacts | None = None
    market: MarketFacts | None = None
    folds: FoldFacts | None = None
    hold_out: HoldOutFacts | None = None
    trials: TrialCounts | None = None
    other_studies: list[OtherStudyRow] | None = None  # that who saw most comes first
    search: dict[str, object] | None = None  # settings, by name
    universe: str | None = None
    notes: list[str | None] | None = None
