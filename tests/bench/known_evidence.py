"""The evidence about a known study, computed again with backtests of one account at a time and with
the formulas of `flatout.evaluation`, in the place of the kernel and of the function that makes it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from flatout.bench.known_accounts import KnownStudy
from flatout.bench.known_studies import COPIES
from flatout.evaluation.backtest import SideBySide, backtest
from flatout.evaluation.baselines import BASELINES, Moment
from flatout.evaluation.decisions import (
    Decisions,
    count_decisions,
    find_decisions,
    measure_activity,
)
from flatout.evaluation.deflation import deflated_sharpe, effective_trials
from flatout.evaluation.evidence import weigh_lead
from flatout.evaluation.metrics import sharpe
from flatout.evaluation.overfitting import overfitting
from flatout.evaluation.reference import run_baselines
from flatout.evaluation.shifted import compare_with_moves
from flatout.evaluation.skill import held_returns, make_timeline, sum_by_part
from flatout.evaluation.verdict import Evidence
from flatout.folds.blocks import Block
from flatout.market.market import Market, build_market
from flatout.search.market_study import scale_costs
from flatout.settings.tables import Settings

SETTINGS = Settings.model_validate({"features": {"indicators": ["return_1"]}})


class FollowsDecisions(NamedTuple):
    """A policy that asks for what was decided so many bars ago, from the first bar on."""

    decisions: Decisions
    late: int

    def __call__(self, moment: Moment) -> np.ndarray:
        row = max(len(moment.closes) - 1 - self.late, 0)
        wanted = self.decisions.targets[row] - moment.weights
        traded = self.decisions.traded[row] | (moment.age == 0)
        return np.where(traded, wanted, 0.0)


class Track(NamedTuple):
    """One account on some blocks, flat before each; one array per block."""

    blocks: list[Block]
    returns: list[np.ndarray]  # (bar,)
    weights: list[np.ndarray]  # (bar, asset)

    def on(self, *which: int) -> "Track":
        """Some of its blocks."""
        return Track(*([of[k] for k in which] for of in self))

    @property
    def earned(self) -> np.ndarray:
        """(bar,) of all blocks."""
        return np.concatenate(self.returns)

    def held(self, study: KnownStudy) -> np.ndarray:
        """(bar,): what its average weights earned."""
        sums = [sum_by_part(one.T, len(one)) for one in self.weights]
        timeline = make_timeline(study.panel.close, self.blocks)
        return held_returns(self.earned, np.concatenate(sums), timeline)

    def skill(self, study: KnownStudy) -> np.ndarray:
        """(bar,): what it earned beyond its average weights."""
        return self.earned - self.held(study)

    def skill_sharpe(self, study: KnownStudy) -> float:
        """Per year."""
        return float(sharpe(self.skill(study), study.panel.bars_per_year))


def run_accounts(
    market: Market, policies: Sequence[FollowsDecisions], blocks: list[Block]
) -> list[Track]:
    """Follow decisions through blocks, each account its own."""
    crowd = SideBySide(tuple(policies), (1,) * len(policies))
    tracks = [Track(blocks, [], []) for _ in policies]
    for block in blocks:
        history = backtest(
            market, crowd, len(policies), block.first - 1, block.stop, record_weights=True
        )
        assert history.weights is not None
        for k, track in enumerate(tracks):
            track.returns.append(history.returns[:, k])
            track.weights.append(history.weights[:, k])
    return tracks


def score(study: KnownStudy, track: Track) -> float:
    """The mean over splits of the Sharpe ratio of skill, each against the split's own averages."""
    pairs = combinations(range(len(track.blocks)), 2)
    return float(np.mean([track.on(*pair).skill_sharpe(study) for pair in pairs]))


class WeighedAnew(NamedTuple):
    """What was found once more."""

    scores: list[float]  # of the trials
    evidence: Evidence
    best_test_p: float


def weigh_anew(study: KnownStudy, seed: int) -> WeighedAnew:
    """The evidence, formula by formula."""
    market, groups = build_market(study.panel, SETTINGS), study.groups
    policies = [FollowsDecisions(one, 0) for one in study.decisions]
    # the equal weights of known studies are rebalanced once a day: their last decisions
    *tracks, _, equal = run_accounts(market, policies, groups)
    columns = np.stack([one.skill(study) for one in tracks], axis=1)
    scores = [score(study, one) for one in tracks]
    winner = int(np.argmax(scores))
    track, skill = tracks[winner], columns[:, winner]
    starts = np.zeros(len(skill), bool)
    starts[np.cumsum([0, *(block.length for block in groups[:-1])])] = True
    assets = make_timeline(study.panel.close, groups).asset_returns
    decisions = find_decisions(np.concatenate(track.weights), track.earned, assets, starts)
    null = compare_with_moves(market, groups, decisions, track.held(study), COPIES, seed)
    effective, halves = effective_trials(columns), overfitting(columns)
    names = ("cash", "buy_and_hold")
    beside = run_baselines(market, groups, {name: BASELINES[name] for name in names})
    others = {name: one.skill for name, one in beside.items()}
    costs = scale_costs(market.rules.costs, 2.0)
    dear = replace(market, rules=market.rules._replace(costs=costs))
    [dearer] = run_accounts(dear, [policies[winner]], groups)
    [later] = run_accounts(market, [FollowsDecisions(study.decisions[winner], 1)], groups)
    [sealed] = run_accounts(market, [policies[winner]], [study.hold_out])
    evidence = Evidence(
        deflated_sharpe=deflated_sharpe(skill, effective, 1 / math.sqrt(len(skill))),
        pbo=halves.pbo,
        probability_of_loss=halves.probability_of_loss,
        null_p=null.p_value,
        leads={
            name: weigh_lead(skill, other)
            for name, other in {**others, "equal_weight": equal.skill(study)}.items()
        },
        cost_sharpes={2.0: dearer.skill_sharpe(study)},
        delay_sharpes={1: later.skill_sharpe(study)},
        trades=count_decisions(decisions),
        worst_path=float(np.prod(1 + track.earned) - 1),
        hold_out_sharpe=sealed.skill_sharpe(study),
        activity_p=measure_activity(decisions).p_value,
    )
    t = float(np.mean(skill) / np.std(skill) * math.sqrt(len(skill)))
    single = math.erfc(t / math.sqrt(2)) / 2
    return WeighedAnew(scores, evidence, 1 - (1 - single) ** effective)
