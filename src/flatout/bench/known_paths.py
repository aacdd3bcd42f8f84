"""Decisions that are known beforehand, run through the market's kernel: many accounts of many
studies at once.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array
from flatout.bars.panel import FloatArray, Panel
from flatout.evaluation.decisions import Decisions
from flatout.market import episode
from flatout.market.episode import Episode, Shape
from flatout.market.execute import trade_cost
from flatout.market.jax_market import xp
from flatout.market.rewards import LEAST_EQUITY
from flatout.market.rules import Rules
from flatout.market.tape import Tape, join_tapes, make_tape, meet


class AccountPlan(NamedTuple):
    """Which decisions some accounts follow: each begins flat with a decision at the close of its
    first bar.
    """

    first: NDArray[np.int64]  # (account,) bar of the joined tape
    rows: NDArray[np.int64]  # (account, step) of the decisions


# (step, account) returns and costs, and (step, asset, account) weights, where asked for
PlanSteps = tuple[Array, Array, Array | None]


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
    """Carry out a plan, bar by bar, in double precision."""
    with jax.enable_x64(True):
        found = scan_plan(tape, rules, plan, decisions, keep_weights)
        returns, costs = (np.asarray(x).T for x in found[:2])
        weights = np.moveaxis(np.asarray(found[2]), -1, 0) if keep_weights else None
    return Paths(returns, costs, weights)


@partial(jax.jit, static_argnames="keep_weights")
def scan_plan(
    tape: Tape, rules: Rules, plan: AccountPlan, decisions: Decisions, keep_weights: bool
) -> PlanSteps:
    """All steps of a plan in one program."""
    accounts, assets = plan.first.shape[0], decisions.targets.shape[1]
    shape = Shape(assets, 0, 1, action="trade", fill="next_open")
    start = episode.reset(jnp.zeros(accounts), shape, rules, xp)._replace(t=plan.first)

    def body(state: Episode, step: tuple[Array, Array]) -> tuple[Episode, PlanSteps]:
        row, begins = step
        held, traded = episode.weights_of(state, xp), decisions.traded[row].T | begins
        shares = jnp.where(traded, decisions.targets[row].T - held, 0.0)
        before = state.marks.equity
        state, outcome = episode.trade(
            state,
            shares * before[None],
            met=meet(tape, state.t, xp),
            fill="next_open",
            rules=rules,
            xp=xp,
        )
        worth = jnp.maximum(before, LEAST_EQUITY)
        paid = trade_cost(outcome.executed.traded) + trade_cost(outcome.executed.stopped)
        weights = episode.weights_of(state, xp) if keep_weights else None
        return state, (state.marks.equity / worth - 1, xp.sum(paid, axis=0) / worth, weights)

    begins = jnp.arange(plan.rows.shape[1]) == 0
    found: PlanSteps = jax.lax.scan(body, start, (plan.rows.T, begins))[1]
    return found
