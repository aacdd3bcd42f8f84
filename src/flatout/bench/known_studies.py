"""Whole studies without training: trials are rules whose skill is known, judged by the chain that
judges trained agents. A thousand of them take minutes, so its rates of error are known.

Trials are scored and evidence is made by the functions of real studies; the kernel, the skill
returns and the ranking of copies are theirs too. What this chain leaves out, because nobody learns:
finalists are not trained again with fresh seeds (a rule does the same again, so all splits of a
study give it the same path and the best trial is the winner), no trial is pruned or chosen by what
others earned, no controls are run, no registry tells of other studies on the same bars, and a
winner has one path, one of several that would be alike. Its copies are 99, for speed; those of a
real study are 199.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.bench.known_accounts import (
    BARS,
    JUDGED_BARS,
    KnownStudy,
    Skills,
    delay_decisions,
    measure_skill,
    run_trials,
    timeline_of,
)
from flatout.bench.known_paths import AccountPlan, Paths, lay_tapes, run_plan
from flatout.bench.known_rules import (
    GROUP_BARS,
    GROUPS,
    WITHOUT_SKILL,
    KnownRule,
    RuleKind,
    decide,
    draw_rule,
    hold_equally,
)
from flatout.bench.known_truths import SKILL, SYMBOLS, KnownMarket, Truth
from flatout.evaluation import metrics
from flatout.evaluation.decisions import Decisions, find_decisions
from flatout.evaluation.deflation import NORMAL
from flatout.evaluation.evidence import Harder, Winner, weigh_winner
from flatout.evaluation.paths import path_figures
from flatout.evaluation.shifted import changes_weights, draw_moves, rank_path
from flatout.evaluation.skill import make_timeline
from flatout.evaluation.verdict import Evidence, Verdict, give_verdict
from flatout.folds.splits import Split
from flatout.market.market import cast, make_rules
from flatout.market.rules import Rules
from flatout.market.tape import Tape
from flatout.search.market_study import LOG_RETURN, TERMS, scale_costs
from flatout.search.scores import Scoring, score_traces
from flatout.settings.study import GateSettings, SearchSettings
from flatout.settings.tables import MarketSettings

TRIALS, COPIES = 32, 99
BASELINES = ("cash", "buy_and_hold", "equal_weight")
DAY_BARS = 24


class KnownVerdict(NamedTuple):
    """What the chain said, and what a single test would have said."""

    verdict: Verdict
    evidence: Evidence
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
    winners = [choose_winner(study, found) for study, found in zip(studies, trials, strict=True)]
    conditions = run_conditions(studies, winners, tape, offsets, rules)
    nulls = run_copies(
        studies, trials, skills=skills, winners=winners, tape=tape, offsets=offsets, rules=rules,
        seed=seed,
    )  # fmt: skip
    return [
        judge_one(study, found, skill=skill, winner=winner, harder=harder, null=null)
        for study, found, skill, winner, harder, null in zip(
            studies, trials, skills, winners, conditions, nulls, strict=True
        )
    ]


def choose_winner(study: KnownStudy, found: Paths) -> int:
    """The trial of the largest objective."""
    return int(np.nanargmax(score_trials(study, found)))


def score_trials(study: KnownStudy, found: Paths) -> FloatArray:
    """(trial,): the usual objective, as real trials are scored: by its mean over the splits, each
    of which two groups judge.
    """
    splits = [
        Split(f"known {a}+{b}", (a, b), (), (study.groups[a], study.groups[b]))
        for a, b in combinations(range(GROUPS), 2)
    ]
    scoring = Scoring(
        objective=SearchSettings().objective,
        splits=splits,
        timelines=[make_timeline(study.panel.close, split.test) for split in splits],
        bars_per_year=study.panel.bars_per_year,
    )
    assert found.weights is not None
    scores = []
    for trial in range(len(study.rules)):
        weights = found.weights[trial, :JUDGED_BARS].T
        trace = np.zeros((TERMS + len(weights), JUDGED_BARS))
        trace[LOG_RETURN], trace[TERMS:] = np.log1p(found.returns[trial, :JUDGED_BARS]), weights
        groups = trace.reshape(len(trace), GROUPS, GROUP_BARS)
        lanes = np.stack([groups[:, list(split.test_groups)] for split in splits])
        scores.append(float(np.mean(score_traces(scoring, lanes[:, None]))))
    return np.array(scores)


def run_conditions(
    studies: Sequence[KnownStudy],
    winners: Sequence[int],
    tape: Tape,
    offsets: Sequence[int],
    rules: Rules,
) -> list[list[Harder]]:
    """Of each winner what is left with dearer trades, and with later orders, as the gates ask."""
    gates = GateSettings()
    factor, delay = gates.cost_factor or 1.0, gates.delay_bars or 0
    dear = rules._replace(costs=scale_costs(rules.costs, factor))
    found: list[list[Harder]] = [[] for _ in studies]
    for changed, harder in ((dear, Harder(factor, 0, 0.0)), (rules, Harder(1.0, delay, 0.0))):
        chosen = [
            study._replace(decisions=(delay_decisions(study.decisions[winner], harder.delay),))
            for study, winner in zip(studies, winners, strict=True)
        ]
        for k, paths in enumerate(run_trials(chosen, tape, offsets, changed)):
            skill = measure_skill(chosen[k], paths).judged
            sharpe = path_figures(skill, chosen[k].panel.bars_per_year).median_sharpe
            found[k].append(harder._replace(skill_sharpe=sharpe))
    return found


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
    bars = JUDGED_BARS
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
        ranked = rank_path(
            one - skill.held[winner],
            changes_weights(decisions, study.groups),
            [GROUP_BARS] * GROUPS,
        )
        found.append(Null(ranked.p_value, decisions))
    return found


def find_winner_decisions(study: KnownStudy, found: Paths, winner: int) -> Decisions:
    """What the winner decided on the judged bars."""
    assert found.weights is not None
    bars = JUDGED_BARS
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
    harder: Sequence[Harder],
    null: Null,
) -> KnownVerdict:
    """The verdict on one study. Its winner's paths are all the same: one stands for them."""
    count, per_year = len(study.rules), study.panel.bars_per_year
    track = skill.judged[winner]
    cash = {BASELINES[0]: np.zeros(JUDGED_BARS)}
    weighed = weigh_winner(
        Winner(
            skill=track[None],
            returns=found.returns[winner, :JUDGED_BARS][None],
            chosen=0,
            decisions=null.decisions,
            columns=skill.judged[:count].T,
            trials=count,
            bars_per_year=per_year,
            baselines=cash | dict(zip(BASELINES[1:], skill.judged[count:], strict=True)),
            harder=harder,
            null_p=null.p_value,
            hold_out_sharpe=float(metrics.sharpe(skill.sealed[winner], per_year)),
        )
    )
    deviation = float(np.std(track))
    t = float(np.mean(track)) / deviation * math.sqrt(len(track)) if deviation else 0.0
    single = 1 - NORMAL.cdf(t)
    return KnownVerdict(
        verdict=give_verdict(GateSettings(), weighed.evidence),
        evidence=weighed.evidence,
        winner=study.rules[winner],
        best_test_p=1 - (1 - single) ** weighed.deflation["effective"],
    )
