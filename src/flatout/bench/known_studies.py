"""Whole studies without training: trials are rules whose skill is known, judged by the chain that
judges trained agents. A thousand of them take minutes, so its rates of error are known.

A rule learns nothing, so that all splits of a study give it the same path: the finalists are the
best trials, and their paths under plain conditions are those that were searched.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray, Panel
from flatout.bench.known_paths import AccountPlan, Paths, lay_tapes, run_plan
from flatout.bench.known_rules import (
    LONGEST,
    WITHOUT_SKILL,
    KnownRule,
    RuleKind,
    decide,
    draw_rule,
    hold_equally,
)
from flatout.bench.known_truths import SKILL, SYMBOLS, KnownMarket, Truth
from flatout.evaluation import metrics
from flatout.evaluation.decisions import (
    Decisions,
    count_decisions,
    find_decisions,
    measure_activity,
)
from flatout.evaluation.deflation import NORMAL
from flatout.evaluation.evidence import deflation_facts, overfitting_facts, weigh_lead
from flatout.evaluation.shifted import changes_weights, draw_moves, rank_path, t_value
from flatout.evaluation.skill import Timeline, held_returns, make_timeline, sum_by_part
from flatout.evaluation.verdict import Evidence, Verdict, give_verdict
from flatout.folds.blocks import Block
from flatout.market.market import cast, make_rules
from flatout.market.rules import Rules
from flatout.market.tape import Tape
from flatout.search.market_study import scale_costs
from flatout.settings.study import GateSettings
from flatout.settings.tables import MarketSettings

GROUPS, GROUP_BARS, HOLD_OUT_BARS = 4, 360, 260
BARS = LONGEST + 1 + GROUPS * GROUP_BARS + HOLD_OUT_BARS
TRIALS, COPIES = 32, 99
BASELINES = ("cash", "buy_and_hold", "equal_weight")
DAY_BARS = 24


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


class KnownVerdict(NamedTuple):
    """What the chain said, and what a single test would have said."""

    verdict: Verdict
    winner: KnownRule
    best_test_p: float  # of the winner's skill returns, for as many trials as there are in effect


def make_known_study(truth: Truth, seed: int, strength_bps: float, trials: int) -> KnownStudy:
    """A study of a truth; half of its rules read the signal where there is one."""
    panel = KnownMarket(
        n_bars=BARS, seed=seed, symbols=SYMBOLS, truth=truth, strength_bps=strength_bps
    ).panel()
    rng = np.random.default_rng([seed, 17])
    kinds: list[RuleKind] = [WITHOUT_SKILL[k % len(WITHOUT_SKILL)] for k in range(trials)]
    if truth in SKILL:
        kinds[: trials // 2] = ["signal"] * (trials // 2)
    rules = tuple(draw_rule(kind, rng) for kind in kinds)
    beside = (hold_equally(panel, None), hold_equally(panel, DAY_BARS))
    return KnownStudy(panel, rules, (*(decide(rule, panel) for rule in rules), *beside))


def judge_studies(studies: Sequence[KnownStudy], seed: int = 0) -> list[KnownVerdict]:
    """The verdicts on some studies of equal size, all accounts side by side."""
    market = MarketSettings()
    tape, offsets = lay_tapes([study.panel for study in studies], market.capital)
    rules = cast(make_rules(market, studies[0].panel), np.float64)
    trials = run_trials(studies, tape, offsets, rules)
    skills = [measure_skill(study, found) for study, found in zip(studies, trials, strict=True)]
    winners = [choose_winner(skill[: len(study.rules)]) for study, skill in
               zip(studies, (one.judged for one in skills), strict=True)]  # fmt: skip
    conditions = run_conditions(studies, winners, tape, offsets, rules)
    nulls = run_copies(studies, trials, skills, winners, tape, offsets, rules, seed)
    return [
        judge_one(study, found, skill, winner, harder, null)
        for study, found, skill, winner, harder, null in zip(
            studies, trials, skills, winners, conditions, nulls, strict=True
        )
    ]


class Skills(NamedTuple):
    """Skill returns of the accounts of a study: of its rules, then of the baselines."""

    judged: FloatArray  # (account, bar)
    held: FloatArray  # (account, bar) what their average weights earned
    sealed: FloatArray  # (account, bar) on the hold-out


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


def timeline_of(study: KnownStudy) -> Timeline:
    """The judged bars of a study."""
    return make_timeline(study.panel.close, study.groups)


def measure_skill(study: KnownStudy, found: Paths) -> Skills:
    """What its accounts earned beyond their average weights, held."""
    assert found.weights is not None
    bars = GROUPS * GROUP_BARS
    parts = np.split(np.swapaxes(found.weights[:, :bars], 1, 2), GROUPS, axis=-1)
    sums = np.concatenate([sum_by_part(part, GROUP_BARS) for part in parts], axis=-2)
    held = held_returns(sums, timeline_of(study))
    sealed = sum_by_part(np.swapaxes(found.weights[:, bars:], 1, 2), HOLD_OUT_BARS)
    beside = held_returns(sealed, make_timeline(study.panel.close, [study.hold_out]))
    return Skills(found.returns[:, :bars] - held, held, found.returns[:, bars:] - beside)


def choose_winner(skill: FloatArray) -> int:
    """The trial of the largest objective: the mean over splits of its Sharpe ratio."""
    groups = np.split(skill, GROUPS, axis=1)
    splits = [
        np.concatenate([groups[a], groups[b]], axis=1) for a, b in combinations(range(GROUPS), 2)
    ]
    return int(np.argmax(np.mean([metrics.bar_sharpe(split) for split in splits], axis=0)))


class Conditions(NamedTuple):
    """Sharpe ratios of the winner's skill, per bar, under harder conditions."""

    dearer: float
    later: float


def run_conditions(
    studies: Sequence[KnownStudy],
    winners: Sequence[int],
    tape: Tape,
    offsets: Sequence[int],
    rules: Rules,
) -> list[Conditions]:
    """The winners with twice the costs, and with orders that come one bar later."""
    gates = GateSettings()
    dear = rules._replace(costs=scale_costs(rules.costs, gates.cost_factor or 1.0))
    found = []
    for changed, delay in ((dear, 0), (rules, gates.delay_bars or 0)):
        chosen = [
            study._replace(decisions=(delay_decisions(study.decisions[winner], delay),))
            for study, winner in zip(studies, winners, strict=True)
        ]
        paths = run_trials(chosen, tape, offsets, changed)
        found.append(
            [
                float(metrics.bar_sharpe(measure_skill(study, path).judged[0]))
                for study, path in zip(chosen, paths, strict=True)
            ]
        )
    return [Conditions(*one) for one in zip(*found, strict=True)]


def delay_decisions(decisions: Decisions, bars: int) -> Decisions:
    """Decisions that are carried out so many bars later."""
    if bars == 0:
        return decisions
    first = np.zeros(bars, np.int64)
    rows = np.concatenate([first, np.arange(len(decisions.targets) - bars)])
    return Decisions(decisions.targets[rows], decisions.traded[rows])


class Null(NamedTuple):
    """The winner's path beside its copies."""

    p_value: float
    decisions: Decisions


def run_copies(
    studies: Sequence[KnownStudy],
    trials: Sequence[Paths],
    skills: Sequence[Skills],
    winners: Sequence[int],
    tape: Tape,
    offsets: Sequence[int],
    rules: Rules,
    seed: int,
) -> list[Null]:
    """How the winners' own decisions do at other times."""
    bars = GROUPS * GROUP_BARS
    decided = [
        find_winner_decisions(study, found, winner)
        for study, found, winner in zip(studies, trials, winners, strict=True)
    ]
    joined = Decisions(
        np.concatenate([one.targets for one in decided]),
        np.concatenate([one.traded for one in decided]),
    )
    moves = np.append(0, draw_moves(bars, COPIES, seed))
    gross = []
    for k, block in enumerate(studies[0].groups):
        steps = (k * GROUP_BARS + np.arange(GROUP_BARS) + moves[:, None]) % bars
        rows = np.concatenate([s * bars + steps for s in range(len(studies))])
        first = np.repeat(np.asarray(offsets), len(moves)) + block.first - 1
        paths = run_plan(tape, rules, AccountPlan(first, rows), joined)
        gross.append(paths.returns + paths.costs)
    earned = np.split(np.concatenate(gross, axis=1), len(studies))
    found = []
    for study, skill, winner, one, decisions in zip(
        studies, skills, winners, earned, decided, strict=True
    ):
        ranked = rank_path(one - skill.held[winner], changes_weights(decisions, study.groups))
        found.append(Null(ranked.p_value, decisions))
    return found


def find_winner_decisions(study: KnownStudy, found: Paths, winner: int) -> Decisions:
    """What the winner decided on the judged bars."""
    assert found.weights is not None
    bars = GROUPS * GROUP_BARS
    starts = np.arange(bars) % GROUP_BARS == 0
    return find_decisions(
        found.weights[winner, :bars],
        found.returns[winner, :bars],
        timeline_of(study).asset_returns,
        starts,
    )


def judge_one(
    study: KnownStudy,
    found: Paths,
    skill: Skills,
    winner: int,
    harder: Conditions,
    null: Null,
) -> KnownVerdict:
    """The verdict on one study."""
    count, per_year = len(study.rules), study.panel.bars_per_year
    columns, gates = skill.judged[:count].T, GateSettings()
    overfitting = overfitting_facts(columns, per_year) or {}
    luck = deflation_facts(
        paths=skill.judged[winner][None],
        sharpes=metrics.bar_sharpe(columns.T),
        columns=columns,
        trials=count,
        bars_per_year=per_year,
    )
    baselines = dict(zip(BASELINES[1:], skill.judged[count:], strict=True))
    baselines["cash"] = np.zeros(columns.shape[0])
    earned = found.returns[winner, : columns.shape[0]]
    evidence = Evidence(
        deflated_sharpe=luck["dsr_effective"],
        pbo=overfitting.get("pbo"),
        probability_of_loss=overfitting.get("probability_of_loss"),
        null_p=null.p_value,
        leads={name: weigh_lead(skill.judged[winner], other) for name, other in baselines.items()},
        cost_sharpes={gates.cost_factor or 1.0: harder.dearer},
        delay_sharpes={gates.delay_bars or 0: harder.later},
        trades=count_decisions(null.decisions),
        worst_path=float(np.prod(1 + earned) - 1),
        hold_out_sharpe=float(metrics.bar_sharpe(skill.sealed[winner])),
        activity_p=measure_activity(null.decisions).p_value,
    )
    single = 1 - NORMAL.cdf(float(t_value(skill.judged[winner])))
    return KnownVerdict(
        verdict=give_verdict(gates, evidence),
        winner=study.rules[winner],
        best_test_p=1 - (1 - single) ** luck["effective"],
    )
