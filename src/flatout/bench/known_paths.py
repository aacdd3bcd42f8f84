"""Decisions that are known beforehand, run through the market's kernel: many accounts of many
studies at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray, Panel
from flatout.evaluation.decisions import Decisions
from flatout.market import episode
from flatout.market.episode import Shape
from flatout.market.execute import trade_cost
from flatout.market.rewards import LEAST_EQUITY
from flatout.market.rules import Rules
from flatout.market.tape import Tape, join_tapes, make_tape, meet


class AccountPlan(NamedTuple):
    """Which decisions some accounts follow: each begins flat with a decision at the close of its
    first bar.
    """

    first: NDArray[np.int64]  # (account,) bar of the joined tape
    rows: NDArray[np.int64]  # (account, step) of the decisions


class Paths(NamedTuple):
    """What became of the accounts."""

    returns: FloatArray  # (account, step) simple, net of costs
    costs: FloatArray  # (account, step) per equity
    weights: FloatArray | None  # (account, step, asset) at the closes, where asked for


def lay_tapes(panels: Sequence[Panel], capital: float) -> tuple[Tape, list[int]]:
    """The panels as one tape without features, and where each begins."""
    return join_tapes(
        [make_tape(one, np.zeros((*one.close.shape, 0), np.float32), capital) for one in panels]
    )


def run_plan(
    tape: Tape, rules: Rules, plan: AccountPlan, decisions: Decisions, keep_weights: bool = False
) -> Paths:
    """Carry out a plan, bar by bar."""
    accounts, steps = plan.rows.shape
    assets = decisions.targets.shape[1]
    shape = Shape(assets, 0, 1, action="trade", fill="next_open")
    state = episode.reset(np.zeros(accounts), shape, rules, np)._replace(t=plan.first)
    returns, costs, weights = [], [], []
    for step in range(steps):
        row = plan.rows[:, step]
        traded = decisions.traded[row] if step else np.ones((accounts, assets), bool)
        held = episode.weights_of(state, np).T
        shares = np.where(traded, decisions.targets[row] - held, 0.0)
        before = state.marks.equity
        state, outcome = episode.trade(
            state, (shares * before[:, None]).T, met=meet(tape, state.t, np), fill="next_open",
            rules=rules, xp=np,
        )  # fmt: skip
        worth = np.maximum(before, LEAST_EQUITY)
        returns.append(state.marks.equity / worth - 1)
        paid = trade_cost(outcome.executed.traded) + trade_cost(outcome.executed.stopped)
        costs.append(np.sum(paid, axis=0) / worth)
        if keep_weights:
            weights.append(episode.weights_of(state, np).T)
    return Paths(
        returns=np.stack(returns, axis=1),
        costs=np.stack(costs, axis=1),
        weights=np.stack(weights, axis=1) if keep_weights else None,
    )
