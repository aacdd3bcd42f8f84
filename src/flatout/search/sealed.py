"""The winner on the sealed bars: logged, judged once, written down."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flatout.bars.panel import FloatArray, Panel, TimeArray
from flatout.evaluation import metrics
from flatout.evaluation.backtest import SideBySide, backtest
from flatout.evaluation.baselines import BASELINES
from flatout.evaluation.held_out import BESIDE
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.evaluation.trades import write_ledger
from flatout.folds.seal import open_hold_out
from flatout.policies.bundle import Bundle
from flatout.search.callbacks import OnBar
from flatout.search.finalist_results import FinalistResults
from flatout.search.market_study import MarketStudy
from flatout.search.report_model import HoldOutCurves

CURVE_POINTS = 1500


@dataclass(frozen=True)
class SealedResult:
    """What the winner's policies and the baselines earned there."""

    time: TimeArray  # (bar,)
    returns: FloatArray  # (bar, seed)
    turnover: FloatArray  # (bar,) of the first seed
    baselines: dict[str, FloatArray]
    bars_per_year: float
    exposure: float

    @property
    def median_sharpe(self) -> float:
        """The median Sharpe ratio of the seeds."""
        return float(np.median(metrics.sharpe(self.returns.T, self.bars_per_year)))

    def curves(self) -> HoldOutCurves:
        """Equity of the seeds and the baselines, at as many bars as a page can show."""
        keep = np.unique(
            np.linspace(0, len(self.time) - 1, min(len(self.time), CURVE_POINTS)).astype(int)
        )
        grown = np.cumprod(1 + self.returns, axis=0)[keep]
        return HoldOutCurves(
            time=[str(t) for t in np.datetime_as_string(self.time[keep], unit="s")],
            seeds=grown.T.tolist(),
            baselines={
                name: np.cumprod(1 + r)[keep].tolist() for name, r in self.baselines.items()
            },
        )


def judge_sealed(
    folder: Path,
    study: MarketStudy,
    panel: Panel,
    finals: FinalistResults,
    progress: OnBar,
) -> SealedResult:
    """Open the hold-out for the winner; the ledger of its first seed goes to ledger.csv."""
    open_hold_out(folder, f"winner, trial {finals.winner}", panel.fingerprint)
    bundles = [Bundle.load(path) for path in finals.policies]
    market = bundles[0].market(panel)
    crowd = (*(SavedPolicy(bundle) for bundle in bundles), *(BASELINES[name] for name in BESIDE))
    side_by_side = SideBySide(crowd, (1,) * len(crowd))
    first = study.folds.cut - 1
    history = backtest(
        market, side_by_side, len(crowd), first, record_fills=True, progress=progress
    )
    write_ledger(folder / "ledger.csv", panel, history.fills, bundles[0].settings.capital)
    seeds = len(bundles)
    return SealedResult(
        time=panel.time[history.bars],
        returns=history.returns[:, :seeds],
        turnover=history.turnover[:, 0],
        baselines={name: history.returns[:, seeds + k] for k, name in enumerate(BESIDE)},
        bars_per_year=panel.bars_per_year,
        exposure=float(history.exposure[:, 0].mean()),
    )
