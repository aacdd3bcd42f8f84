"""Rules with random parameters, in the place of trained agents: what they ask for follows from
closes, from a signal, or from nothing at all, and their skill is known.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray, Panel
from flatout.bench.known_truths import SIGMA, follow_average
from flatout.evaluation.decisions import Decisions

RuleKind = Literal["momentum", "reversion", "grid", "random", "mix", "stakes", "taught", "signal"]
WITHOUT_SKILL: tuple[RuleKind, ...] = (
    "momentum", "reversion", "grid", "random", "mix", "stakes", "taught",
)  # fmt: skip
PERIODS = (4, 8, 12, 24)  # bars between two decisions
LONGEST = 96  # bars that a rule looks back
GROUPS, GROUP_BARS = 4, 360  # that judge, from bar LONGEST + 1 on
AHEAD = 1.7  # t value at which a rule that looks at its own results has had enough
LEAST_STAKE, GROWTH = 0.1, 1.25


class KnownRule(NamedTuple):
    """What a trial of a study without training tries."""

    kind: RuleKind
    past: int  # bars that it looks back, or for which its opinions last
    keenness: float  # weight for one deviation of what it looks at
    exposure: float  # weight of all assets where it has no opinion
    period: int
    noise: float  # share of noise in the signal that it sees
    seed: int


def draw_rule(kind: RuleKind, rng: np.random.Generator) -> KnownRule:
    """A rule of a kind with random parameters."""
    return KnownRule(
        kind=kind,
        past=int(np.exp(rng.uniform(np.log(4), np.log(LONGEST)))),
        keenness=float(rng.uniform(0.1, 0.5)),
        exposure=float(rng.uniform(0.2, 0.8)),
        period=int(rng.choice(PERIODS)),
        noise=float(rng.uniform(0.0, 0.8)),
        seed=int(rng.integers(2**32)),
    )


def decide(rule: KnownRule, panel: Panel) -> Decisions:
    """What a rule asks for at the close of each bar, and when: one row per bar."""
    opinion = form_opinion(rule, panel)
    weights = np.clip(rule.exposure + rule.keenness * opinion, 0.0, 1.0) / panel.n_assets
    due = np.arange(panel.n_bars) % rule.period == 0
    # asked for until the next decision; what cannot be traded is not asked for
    last = np.maximum.accumulate(np.where(due, np.arange(panel.n_bars), 0))
    return Decisions(weights[last], due[:, None] & panel.alive)


def form_opinion(rule: KnownRule, panel: Panel) -> FloatArray:
    """(bar, asset): what a rule thinks of the assets, in deviations."""
    rng, shape = np.random.default_rng(rule.seed), panel.close.shape
    if rule.kind == "mix":
        return np.tile(rng.normal(size=shape[1]), (shape[0], 1))
    if rule.kind == "random":
        return follow_average(rng.normal(size=shape), 1 - 1 / rule.past)
    if rule.kind == "signal":
        blur = follow_average(rng.normal(size=shape), 0.9)
        return np.sqrt(1 - rule.noise**2) * panel.extras["signal"] + rule.noise * blur
    past = np.log(panel.close)
    if rule.kind == "stakes":
        return raise_stakes(rng, np.diff(past, axis=0, prepend=past[:1]), rule.period)
    if rule.kind == "taught":
        return hold_lessons(rng, past)
    if rule.kind == "grid":  # it remembers all of history
        return -(past - past[0]) / (SIGMA * np.sqrt(4 * rule.past))
    gain = past - np.vstack([np.repeat(past[:1], rule.past, axis=0), past[: -rule.past]])
    return (1 if rule.kind == "momentum" else -1) * gain / (SIGMA * np.sqrt(rule.past))


def raise_stakes(rng: np.random.Generator, gains: FloatArray, period: int) -> FloatArray:
    """(bar, asset): bets at random on either side, larger while the rule is behind, and none once
    it is ahead; `gains` are the (bar, asset) log returns.
    """
    found = np.zeros_like(gains)
    stake, total, squares, bet = LEAST_STAKE, 0.0, 0.0, np.zeros(gains.shape[1])
    for bar in range(0, len(gains), period):
        won = float(np.sum(bet * gains[max(bar - period + 1, 0) : bar + 1].sum(axis=0)))
        total, squares = total + won, squares + won * won
        if bar >= LONGEST and total >= AHEAD * np.sqrt(squares) > 0:
            break
        stake = min(stake * GROWTH, 1.0) if bar >= LONGEST else LEAST_STAKE
        bet = stake * rng.choice([-1.0, 1.0], gains.shape[1])
        found[bar : bar + period] = bet
    return found


def hold_lessons(rng: np.random.Generator, past: FloatArray) -> FloatArray:
    """(bar, asset): in each judged group what rose (or fell) in groups that teach where this one
    and another one judge, as agents of combinatorial splits may learn it; a little noise makes it
    decide.
    """
    first, sign = LONGEST + 1, rng.choice([-1.0, 1.0])
    edges = first + GROUP_BARS * np.arange(GROUPS + 1)
    gains = (past[edges[1:] - 1] - past[edges[:-1] - 1]) / (SIGMA * np.sqrt(GROUP_BARS))
    found = follow_average(rng.normal(size=past.shape), 0.9) / 2
    for group in range(GROUPS):
        beside = 0 if group else 1
        teach = [k for k in range(GROUPS) if k not in (group, beside)]
        found[edges[group] - 1 : edges[group + 1]] += sign * gains[teach].mean(axis=0)
    return found


def hold_equally(panel: Panel, period: int | None) -> Decisions:
    """Equal weights of all living assets: bought once, or again each period."""
    alive = panel.alive
    weights = alive / np.maximum(alive.sum(axis=1, keepdims=True), 1)
    due: NDArray[np.bool_] = np.arange(panel.n_bars) % (period or panel.n_bars + 1) == 0
    return Decisions(weights, (due & (period is not None))[:, None] & alive)
