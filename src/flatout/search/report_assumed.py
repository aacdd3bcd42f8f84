"""What the figures of a study rest on, for its report."""

from flatout.bars.bar_size import bar_name
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
    TrialCounts,
)
from flatout.search.judgement import Judgement
from flatout.settings.tables import MarketSettings, Settings

SEARCHED = {"sampler", "pruner", "objective"}


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
        ),
        search={
            "timesteps": settings.train.timesteps,
            "seeds": settings.train.seeds,
            **settings.search.model_dump(mode="json", include=SEARCHED),
        },
        universe="hindsight",
        notes=list_notes(settings, folds),
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
    return HoldOutFacts(
        bars=sealed.length,
        first=str(time[sealed.first]) if sealed.length else None,
        last=str(time[sealed.stop - 1]) if sealed.length else None,
        state="opened" if found.sealed else "none",
        openings=[OpeningFacts(time=o.time, what=o.what) for o in openings(found.study.folder)],
    )


def list_notes(settings: Settings, folds: Folds) -> list[str | None]:
    """What a reader should know of these settings."""
    notes: list[str | None] = []
    if settings.market.fill == "same_close":
        notes.append("orders fill at the close that they were decided on: nobody can trade so")
    if folds.kind == "cpcv":
        notes.append(
            "combinatorial splits also train on bars after those that they judge: good for "
            "finding luck, no history that anybody could have traded"
        )
    return notes
