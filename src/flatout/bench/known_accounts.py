"""The accounts of known studies: rules that are carried out side by side in the market's kernel,
and the skill in what they earned.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray, Panel
from flatout.bench.known_paths import AccountPlan, Paths, run_plan
from flatout.bench.known_rules import GROUP_BARS, GROUPS, LONGEST, KnownRule
from flatout.evaluation.decisions import Decisions
from flatout.evaluation.skill import (
    Timeline,
    held_returns,
    make_timeline,
    skill_returns,
    sum_by_part,
)
from flatout.folds.blocks import Block
from flatout.market.rules import Rules
from flatout.market.tape import Tape

HOLD_OUT_BARS = 260
JUDGED_BARS = GROUPS * GROUP_BARS
BARS = LONGEST + 1 + JUDGED_BARS + HOLD_OUT_BARS


class KnownStudy(NamedTuple):
    """One study: its market, the rules that it tries, and the baselines beside them."""

    panel: Panel
    rules: tuple[KnownRule, ...]
    decisions: tuple[Decisions, ...]  # of each rule, then of the baselines that hold something

    @property
    def groups(self) -> list[Block]:
        """The blocks that judge, one after another."""
        first = LONGEST + 1
        return [Block(first + k * GROUP_BARS, first + (k + 1) * GROUP_BARS) for k in range(GROUPS)]

    @property
    def hold_out(self) -> Block:
        """The sealed bars, after all others."""
        return Block(BARS - HOLD_OUT_BARS, BARS)


def run_trials(
    studies: Sequence[KnownStudy], tape: Tape, offsets: Sequence[int], rules: Rules
) -> list[Paths]:
    """(account, bar) of each study: the judged groups one after another, then the hold-out."""
    found: list[list[Paths]] = [[] for _ in studies]
    blocks = [*studies[0].groups, studies[0].hold_out]
    for block in blocks:
        joined, plan = stack_decisions(studies, block, offsets)
        paths = run_plan(tape, rules, plan, joined, keep_weights=True)
        for k, part in enumerate(split_accounts(paths, len(studies))):
            found[k].append(part)
    return [join_paths(parts) for parts in found]


def stack_decisions(
    studies: Sequence[KnownStudy], block: Block, offsets: Sequence[int]
) -> tuple[Decisions, AccountPlan]:
    """All decisions of all studies one below the other, and how each account follows its own
    through a block.
    """
    everyone = [one for study in studies for one in study.decisions]
    joined = Decisions(
        np.concatenate([one.targets for one in everyone]),
        np.concatenate([one.traded for one in everyone]),
    )
    steps = np.arange(block.first - 1, block.stop - 1)
    rows = BARS * np.arange(len(everyone))[:, None] + steps[None, :]
    each = len(studies[0].decisions)
    first = np.repeat(np.asarray(offsets), each) + block.first - 1
    return joined, AccountPlan(first, rows)


def split_accounts(paths: Paths, studies: int) -> list[Paths]:
    """The paths of each study, with their weights."""
    assert paths.weights is not None
    returns, costs, weights = (np.split(array, studies) for array in paths if array is not None)
    return [Paths(*parts) for parts in zip(returns, costs, weights, strict=True)]


def join_paths(parts: Sequence[Paths]) -> Paths:
    """Blocks one after another."""
    weights = [part.weights for part in parts if part.weights is not None]
    return Paths(
        np.concatenate([part.returns for part in parts], axis=1),
        np.concatenate([part.costs for part in parts], axis=1),
        np.concatenate(weights, axis=1) if weights else None,
    )


def delay_decisions(decisions: Decisions, bars: int) -> Decisions:
    """Decisions that are carried out so many bars later."""
    if bars == 0:
        return decisions
    first = np.zeros(bars, np.int64)
    rows = np.concatenate([first, np.arange(len(decisions.targets) - bars)])
    return Decisions(decisions.targets[rows], decisions.traded[rows])


class Skills(NamedTuple):
    """Skill returns of the accounts of a study: of its rules, then of the baselines."""

    judged: FloatArray  # (account, bar)
    held: FloatArray  # (account, bar) what their average weights earned
    sealed: FloatArray  # (account, bar) on the hold-out


def timeline_of(study: KnownStudy) -> Timeline:
    """The judged bars of a study."""
    return make_timeline(study.panel.close, study.groups)


def measure_skill(study: KnownStudy, found: Paths) -> Skills:
    """What its accounts earned beyond their average weights, held."""
    assert found.weights is not None
    bars = JUDGED_BARS
    parts = np.split(np.swapaxes(found.weights[:, :bars], 1, 2), GROUPS, axis=-1)
    sums = np.concatenate([sum_by_part(part, GROUP_BARS) for part in parts], axis=-2)
    earned, later = found.returns[:, :bars], found.returns[:, bars:]
    held = held_returns(earned, sums, timeline_of(study))
    sealed = sum_by_part(np.swapaxes(found.weights[:, bars:], 1, 2), HOLD_OUT_BARS)
    timeline = make_timeline(study.panel.close, [study.hold_out])
    return Skills(earned - held, held, skill_returns(later, sealed, timeline))
