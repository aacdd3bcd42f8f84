"""A policy beside the baselines and beside luck, on the same bars."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.evaluation.backtest import History, Progress, SideBySide, backtest, decision_range
from flatout.evaluation.baselines import Policy
from flatout.evaluation.decisions import Decisions, find_decisions
from flatout.evaluation.shifted import COPIES, ShiftedNull, compare_with_moves
from flatout.evaluation.skill import Timeline, held_returns, make_timeline, sum_by_part
from flatout.folds.blocks import Block
from flatout.market.market import Market


class Comparison(NamedTuple):
    """A policy beside the baselines and beside copies of itself that decide at other times."""

    chosen: History
    baselines: dict[str, History]
    null: ShiftedNull
    skill: FloatArray  # (bar,) the policy's returns in excess of its average weights, held

    @property
    def luck(self) -> History:
        """What became of the copies."""
        [history] = self.null.histories
        return history.accounts(slice(1, None))

    def p_value(self) -> float:
        """Share of the copies, 0 to 1, that do at least as well (add-one estimate)."""
        return self.null.p_value


def compare(
    market: Market,
    policy: Policy,
    baselines: Mapping[str, Policy],
    first: int | None = None,
    stop: int | None = None,
    lucky: int = COPIES,
    seed: int = 0,
    progress: Progress = lambda bar: None,
) -> Comparison:
    """Backtest a policy and the baselines on the bars from `first` to `stop - 1`, then `lucky`
    copies of the policy whose decisions are moved in time.
    """
    first, stop = decision_range(market, first, stop)
    crowd = SideBySide((policy, *baselines.values()), (1,) * (1 + len(baselines)))
    together = backtest(
        market,
        crowd,
        accounts=sum(crowd.sizes),
        first=first,
        stop=stop,
        record_fills=True,
        record_weights=True,
        progress=progress,
    )
    one = {name: together.accounts(slice(k, k + 1)) for k, name in enumerate(baselines, start=1)}
    chosen = together.accounts(slice(0, 1))
    block = Block(first + 1, stop)
    timeline = make_timeline(market.panel.close, [block])
    held, decisions = describe_account(chosen, timeline)
    null = compare_with_moves(
        market,
        [block],
        decisions,
        held=held,
        copies=lucky,
        seed=seed,
        progress=progress,
    )
    return Comparison(chosen, one, null, chosen.returns[:, 0] - held)


def describe_account(history: History, timeline: Timeline) -> tuple[FloatArray, Decisions]:
    """What the average weights of a backtest's first account earned, (bar,), and its decisions."""
    assert history.weights is not None
    weights, returns = history.weights[:, 0], history.returns[:, 0]
    held = held_returns(returns, sum_by_part(weights.T, len(weights)), timeline)
    starts = np.zeros(len(weights), bool)
    starts[0] = True
    return held, find_decisions(weights, returns, timeline.asset_returns, starts)
