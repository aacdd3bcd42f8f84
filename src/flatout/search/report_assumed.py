"""What the figures of a study rest on, for its report."""

from collections.abc import Iterator

from flatout.bars.bar_size import bar_name
from flatout.bars.panel import Panel
from flatout.bars.trading_year import estimate_year
from flatout.evaluation.other_studies import OverlappingStudy, SealedBefore
from flatout.folds.gaps import gap_lines
from flatout.folds.seal import openings
from flatout.folds.splits import Folds
from flatout.search.assumption_model import (
    AssumptionFacts,
    BarsFacts,
    CostFacts,
    FoldFacts,
    HoldOutFacts,
    MarketFacts,
    OpeningFacts,
    OtherStudyRow,
    TrialCounts,
)
from flatout.search.judgement import Judgement
from flatout.settings.tables import MarketSettings, Settings

SEARCHED = {"sampler", "pruner", "objective"}
MOST_SHOWN = 100  # other studies
STRANGE_YEAR = 0.05  # how far a calendar's year may be from that of the bars without a word


def list_assumptions(found: Judgement) -> AssumptionFacts:
    """All assumptions of a study."""
    folds, settings = found.market.folds, found.market.settings
    states = [trial.state.name for trial in found.trials]
    return AssumptionFacts(
        bars=describe_bars(found),
        market=describe_market(settings.market),
        folds=describe_folds(folds),
        hold_out=describe_hold_out(found),
        trials=TrialCounts(
            this_study=len(found.trials),
            ever=found.trials_ever,
            effective=found.deflation.effective,
            pruned=states.count("PRUNED"),
            failed=states.count("FAIL"),
            of_others=found.others.trials_of_others,
            other_studies=len(found.others.counted),
            overlap=found.others.judged_share,
        ),
        other_studies=[describe_other(other) for other in found.others.overlapping[:MOST_SHOWN]],
        search={
            "timesteps": settings.train.timesteps,
            "seeds": settings.train.seeds,
            **settings.search.model_dump(mode="json", include=SEARCHED),
        },
        universe="hindsight",
        notes=list_notes(settings, folds, found.panel),
    )


def describe_bars(found: Judgement) -> BarsFacts:
    """Which bars the study is about, the sealed ones included."""
    panel = found.panel
    return BarsFacts(
        fingerprint=panel.fingerprint,
        symbols=list(panel.symbols),
        bar=bar_name(panel.bar_seconds),
        first=str(panel.time[0]),
        last=str(panel.time[-1]),
        n_bars=panel.n_bars,
        bars_per_year=panel.bars_per_year,
        trading_year=panel.trading_year.describe(),
        source=found.source,
    )


def describe_market(settings: MarketSettings) -> MarketFacts:
    """The rules of the market."""
    return MarketFacts(
        fill=settings.fill,
        action=settings.action,
        capital=settings.capital,
        costs=CostFacts.model_validate(settings.costs.model_dump(mode="json")),
        limits=settings.limits.model_dump(mode="json"),
    )


def describe_folds(folds: Folds) -> FoldFacts:
    """How history was divided."""
    return FoldFacts(
        kind=folds.kind,
        groups=len(folds.groups),
        splits=len(folds.splits),
        paths=len(folds.paths),
        purge_bars=folds.purge,
        embargo_bars=folds.embargo,
        gaps=list(gap_lines(folds)),
    )


def describe_hold_out(found: Judgement) -> HoldOutFacts:
    """Which bars were sealed, and when they were opened."""
    sealed, time = found.market.folds.hold_out, found.panel.time
    before = found.others.sealed or SealedBefore(0.0, 0, None, 0.0, 0)
    return HoldOutFacts(
        bars=sealed.length,
        first=str(time[sealed.first]) if sealed.length else None,
        last=str(time[sealed.stop - 1]) if sealed.length else None,
        state="opened" if found.sealed else "none",
        openings=[OpeningFacts(time=o.time, what=o.what) for o in openings(found.study.folder)],
        opened_before=before.opened,
        opened_by=before.openers,
        last_opened=before.last.isoformat(timespec="seconds") if before.last else None,
        judged_before=before.judged,
        judged_by=before.judges,
        wear=found.hold_out_mark,
    )


def describe_other(other: OverlappingStudy) -> OtherStudyRow:
    """Another study of the registry that saw some of the judged bars."""
    record = other.record
    return OtherStudyRow(
        folder=record.folder,
        begun=record.begun.isoformat(timespec="seconds"),
        bar=bar_name(record.bar_seconds),
        trials=record.trials,
        overlap=other.share,
        counts=other.counts,
    )


def list_notes(settings: Settings, folds: Folds, panel: Panel) -> list[str | None]:
    """What a reader should know of these settings and bars."""
    notes: list[str | None] = list(describe_year(panel))
    if settings.market.fill == "same_close":
        notes.append("orders fill at the close that they were decided on: nobody can trade so")
    if folds.kind == "cpcv":
        notes.append(
            "combinatorial splits also train on bars after those that they judge: good for "
            "finding luck, no history that anybody could have traded"
        )
    return notes


def describe_year(panel: Panel) -> Iterator[str]:
    """How many bars a year has, what rests on it, and whether a named calendar fits the bars."""
    year = panel.trading_year
    closed = "" if year.always_open else ", nights, weekends and holidays included"
    yield (
        f"bars per year: {year.describe()}; annual figures, borrow costs and the 30-day fee volume "
        f"are spread over them{closed}"
    )
    counted = estimate_year(panel.time, panel.bar_seconds)
    if abs(counted.bars / year.bars - 1) > STRANGE_YEAR:
        yield (
            f"the bars themselves count {counted.describe()}: they are not those of the calendar's "
            "sessions, and `flatout data check` with the calendar shows where"
        )
