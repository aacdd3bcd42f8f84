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
from flatout.evaluation.skill import make_timeline, skill_returns, sum_by_part
from flatout.evaluation.trades import write_ledger
from flatout.evaluation.trial_registry import StudyEntry
from flatout.folds.blocks import Block
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
    skill: FloatArray  # (bar, seed): in excess of each seed's average weights, held
    turnover: FloatArray  # (bar,) of the first seed
    baselines: dict[str, FloatArray]
    bars_per_year: float
    exposure: float

    @property
    def median_sharpe(self) -> float:
        """The median Sharpe ratio of the seeds."""
        return float(np.median(metrics.sharpe(self.returns.T, self.bars_per_year)))

    @property
    def median_skill(self) -> float:
        """The median Sharpe ratio of the seeds' skill returns."""
        return float(np.median(metrics.sharpe(self.skill.T, self.bars_per_year)))

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
    entry: StudyEntry,
    progress: OnBar,
) -> SealedResult:
    """Open the hold-out for the winner; the ledger of its first seed goes to ledger.csv."""
    what = f"winner, trial {finals.winner}"
    entry.note_opening(what)
    open_hold_out(folder, what, panel.fingerprint)
    bundles = [Bundle.load(path) for path in finals.policies]
    market = bundles[0].market(panel)
    crowd = (*(SavedPolicy(bundle) for bundle in bundles), *(BASELINES[name] for name in BESIDE))
    side_by_side = SideBySide(crowd, (1,) * len(crowd))
    first = study.folds.cut - 1
    history = backtest(
        market,
        side_by_side,
        len(crowd),
        first,
        record_fills=True,
        record_weights=True,
        progress=progress,
    )
    assert history.weights is not None
    write_ledger(folder / "ledger.csv", panel, history.fills, bundles[0].settings.capital)
    seeds, block = len(bundles), Block(first + 1, panel.n_bars)
    skill = skill_returns(
        history.returns[:, :seeds].T,
        sum_by_part(np.moveaxis(history.weights[:, :seeds], 0, -1), block.length),
        make_timeline(panel.close, [block]),
    )
    return SealedResult(
        time=panel.time[history.bars],
        returns=history.returns[:, :seeds],
        skill=skill.T,
        turnover=history.turnover[:, 0],
        baselines={name: history.returns[:, seeds + k] for k, name in enumerate(BESIDE)},
        bars_per_year=panel.bars_per_year,
        exposure=float(history.exposure[:, 0].mean()),
    )
