"""What a study on these bars would rest on, tried out before it runs: no leaks, a ledger that adds
up, usable bars.

Every finding comes from an experiment that could go wrong: bars are replaced by garbage, accounts
are traded and added up again. Of the hold-out only gaps and jumps are counted. Nothing is trained:
controls that need agents, a market without edge and one with tomorrow among the features, are where
every study begins.
"""

from collections.abc import Iterator

from flatout.bars.check import SymbolReport, check_bars
from flatout.bars.panel import Panel
from flatout.evaluation.audit_accounts import check_ledger
from flatout.evaluation.audit_folds import check_folds
from flatout.evaluation.audit_leaks import (
    check_accounts_see_no_future,
    check_features,
    check_fill,
    check_scalers,
)
from flatout.evaluation.finding import Finding
from flatout.evaluation.study_folds import make_study_folds
from flatout.features.recipe import fit
from flatout.folds.blocks import list_rows
from flatout.market.market import build_market, recipe_of
from flatout.settings.tables import Settings

MOST_MISSING, MOST_EMPTY, MOST_JUMPS = 0.05, 0.5, 1e-3  # shares of a symbol's bars


def audit(panel: Panel, settings: Settings, seed: int = 0) -> Iterator[Finding]:
    """Make all experiments on these bars and yield what each found, one by one."""
    folds = make_study_folds(panel, settings)
    known = panel.rows(0, folds.cut)  # a sealed bar must not even reach an audit
    fitted = fit(recipe_of(settings.features), known, list_rows(folds.splits[0].train))
    market = build_market(known, settings, fitted)
    yield check_features(market, settings, seed)
    yield check_accounts_see_no_future(market, settings, seed)
    yield check_fill(settings)
    yield check_scalers(known, settings, folds, seed)
    yield check_folds(panel, folds, settings)
    yield from check_ledger(market, settings, seed)
    yield check_quality(panel)


def check_quality(panel: Panel) -> Finding:
    """Whether the bars are there, were traded in and do not jump about."""
    reports = check_bars(panel)
    problems = [problem for report in reports for problem in problems_of(report)]
    jumps, missing = (
        sum(getattr(report, key) for report in reports) for key in ("jumps", "missing_bars")
    )
    counts = (
        f"{panel.n_assets} symbols, {panel.n_bars:,} bars; {missing:,} missing, {jumps:,} "
        f"suspicious jumps"
    )
    return Finding("bars are usable", not problems, "; ".join([counts, *problems]))


def problems_of(report: SymbolReport) -> list[str]:
    """What of a symbol's bars is too bad to be ignored, a sentence each."""
    bars = max(report.rows, 1)
    shares = {
        "of its bars are missing": (
            report.missing_bars / (bars + report.missing_bars),
            MOST_MISSING,
        ),
        "of its bars have no volume": (report.zero_volume_bars / bars, MOST_EMPTY),
        "of its bars jump suspiciously": (report.jumps / bars, MOST_JUMPS),
    }
    return [
        f"{report.symbol}: {share:.1%} {what}"
        for what, (share, most) in shares.items()
        if share > most
    ]
