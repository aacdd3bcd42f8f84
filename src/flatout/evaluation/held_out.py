"""How trained policies do on the bars that were held out, beside the baselines, in one backtest."""

from collections.abc import Callable
from typing import NamedTuple

from flatout.evaluation.backtest import SideBySide, backtest
from flatout.evaluation.baselines import BASELINES
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.market.market import Market
from flatout.policies.bundle import Bundle

Figures = dict[str, float | None]  # by name, as `evaluation/metrics.py` has them
BESIDE = ("cash", "buy_and_hold", "equal_weight", "momentum")


class HeldOutFigures(NamedTuple):
    """How policies and baselines did on held-out bars."""

    symbols: tuple[str, ...]
    first: str  # time of the first bar that judged, UTC
    last: str
    bars: int
    policies: tuple[str, ...]  # those of them that are no baselines
    metrics: dict[str, Figures]  # of policies and baselines


def judge_policies(
    market: Market,
    policies: dict[str, Bundle],
    cut: int,
    progress: Callable[[int], None] = lambda bar: None,
) -> HeldOutFigures:
    """The figures of some policies of one market, and of the baselines, from bar `cut` to the
    end.
    """
    crowd = {
        **{name: SavedPolicy(bundle) for name, bundle in policies.items()},
        **{n: BASELINES[n] for n in BESIDE},
    }
    side_by_side = SideBySide(tuple(crowd.values()), (1,) * len(crowd))
    history = backtest(market, side_by_side, len(crowd), cut, progress=progress)
    panel = market.panel
    return HeldOutFigures(
        symbols=panel.symbols,
        first=str(panel.time[cut + 1]),
        last=str(panel.time[-1]),
        bars=panel.n_bars - cut - 1,
        policies=tuple(policies),
        metrics={
            name: history.accounts(slice(k, k + 1)).metrics(panel.bars_per_year)
            for k, name in enumerate(crowd)
        },
    )
