"""What speaks for the winner of a study and against it: what all trials together say, and the
figures that gates look at. Real studies and those of known truth make their evidence here, in one
way.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.evaluation import metrics
from flatout.evaluation.decisions import Activity, Decisions, count_decisions, measure_activity
from flatout.evaluation.deflation import (
    NORMAL,
    deflated_sharpe,
    effective_trials,
    expected_best_sharpe,
    minimum_backtest_length,
    minimum_track_length,
    probabilistic_sharpe,
)
from flatout.evaluation.overfitting import overfitting
from flatout.evaluation.paths import finite, path_figures
from flatout.evaluation.verdict import Evidence

BLOCKS = 16


class Harder(NamedTuple):
    """What is left of the winner's skill under some conditions, the plain ones among them."""

    cost_factor: float
    delay: int  # bars that its orders come later
    skill_sharpe: float  # median over its paths, per year


class Winner(NamedTuple):
    """All that evidence about a study's winner is made of. Its paths are those of all its seeds,
    one after another, under plain conditions.
    """

    skill: FloatArray  # (path, bar) in excess of each path's average weights, held
    returns: FloatArray  # (path, bar) simple, as they were earned
    chosen: int  # the path that stands for all
    decisions: Decisions  # of the chosen path
    columns: FloatArray  # (bar, trial): skill of the study's complete trials
    trials: int  # that were ever run on these bars, those of other studies too
    bars_per_year: float
    baselines: Mapping[str, FloatArray]  # (bar,) of skill
    harder: Sequence[Harder]
    null_p: float  # of the chosen path among its copies at other times
    hold_out_sharpe: float | None  # median over seeds of the skill there; None without a hold-out


class Weighed(NamedTuple):
    """The evidence, and the parts of it that reports show as well."""

    evidence: Evidence
    overfitting: dict[str, Any] | None
    deflation: dict[str, Any]
    activity: Activity


def weigh_winner(winner: Winner) -> Weighed:
    """The figures that gates look at. Nobody else makes `Evidence`: what is measured of verdicts on
    studies of known truth then holds for real ones too.
    """
    overfitting = overfitting_facts(winner.columns, winner.bars_per_year)
    deflation = deflation_facts(
        paths=winner.skill,
        sharpes=metrics.bar_sharpe(winner.columns.T),
        columns=winner.columns,
        trials=winner.trials,
        bars_per_year=winner.bars_per_year,
    )
    activity = measure_activity(winner.decisions)
    earned = path_figures(winner.returns, winner.bars_per_year)
    evidence = Evidence(
        deflated_sharpe=deflation["dsr_effective"],
        pbo=overfitting["pbo"] if overfitting else None,
        probability_of_loss=overfitting["probability_of_loss"] if overfitting else None,
        null_p=winner.null_p,
        leads={
            name: weigh_lead(winner.skill[winner.chosen], other)
            for name, other in winner.baselines.items()
        },
        cost_sharpes={one.cost_factor: one.skill_sharpe for one in winner.harder if not one.delay},
        delay_sharpes={
            one.delay: one.skill_sharpe for one in winner.harder if one.cost_factor == 1.0
        },
        trades=count_decisions(winner.decisions),
        worst_path=float(np.min(earned.total_return)),
        hold_out_sharpe=winner.hold_out_sharpe,
        activity_p=activity.p_value,
    )
    return Weighed(evidence, overfitting, deflation, activity)


def overfitting_facts(columns: FloatArray, bars_per_year: float) -> dict[str, Any] | None:
    """PBO of (bar, trial) returns with all that its picture needs, Sharpe ratios per year; None for
    fewer than two trials.
    """
    if columns.shape[1] < 2 or columns.shape[0] < 2 * BLOCKS:
        return None
    found, annual = overfitting(columns, BLOCKS), math.sqrt(bars_per_year)
    return {
        "pbo": found.pbo,
        "probability_of_loss": found.probability_of_loss,
        "slope": finite(found.slope),
        "intercept": finite(found.intercept * annual),
        "r2": finite(found.r2),
        "blocks": found.blocks,
        "logits": found.logits.tolist(),
        "in_sample": (found.in_sample * annual).tolist(),
        "out_of_sample": (found.out_of_sample * annual).tolist(),
    }


def weigh_lead(skill: FloatArray, other: FloatArray) -> float:
    """How probable such a lead is where there is none: of the mean difference of two paths' (bar,)
    skill returns, each in units of its own deviation. Returns that never vary count as 0. One that
    departs less from its average weights than the path itself is not enlarged: equal weights,
    rebalanced once a day, follow the trend a little between two days, and in a market with trends
    that has a large Sharpe ratio and earns nothing.
    """
    own, others = float(np.std(skill)), float(np.std(other))

    def in_units(returns: FloatArray, unit: float) -> FloatArray:
        return returns / unit if unit > metrics.ROUNDING else np.zeros_like(returns)

    lead = in_units(skill, own) - in_units(other, max(own, others))
    deviation = float(np.std(lead))
    if deviation <= metrics.ROUNDING:
        return 1.0
    return 1 - NORMAL.cdf(float(np.mean(lead)) / deviation * math.sqrt(len(lead)))


def deflation_facts(
    paths: FloatArray, sharpes: FloatArray, columns: FloatArray, trials: int, bars_per_year: float
) -> dict[str, Any]:
    """How much of the winner's Sharpe ratio the number of trials explains.

    `paths` (path, bar) are the winner's, `sharpes` the bar Sharpes of all trials of this study,
    `columns` their (bar, trial) returns, `trials` the number ever run on these bars. Probabilities
    are medians over the paths.

    The question is what the best of so many trials *without skill* would show. Their Sharpe ratios
    differ by 1 / sqrt(bars), and that is what `dsr` uses. The ratios of a study's trials differ by
    more wherever some learned something and others lost money trading: as a measure of luck that is
    too much, yet it is what the paper's estimate takes, so it stands beside as `dsr_dispersion`.
    """
    luck = 1 / math.sqrt(paths.shape[1])
    dispersion = float(np.std(sharpes, ddof=1)) if len(sharpes) > 1 else luck
    effective = effective_trials(columns) + max(
        0, trials - columns.shape[1]
    )  # of others only the number is known
    effective = min(max(effective, 1.0), float(max(trials, 1)))
    annual = math.sqrt(bars_per_year)

    def median(figure: Any) -> float | None:
        return finite(float(np.median([figure(path) for path in paths])))

    sharpe = float(np.median(metrics.bar_sharpe(paths)))
    return {
        "sharpe": finite(sharpe * annual),
        "psr": median(probabilistic_sharpe),
        "dsr": median(lambda path: deflated_sharpe(path, trials, luck)),
        "dsr_effective": median(lambda path: deflated_sharpe(path, effective, luck)),
        "dsr_dispersion": median(lambda path: deflated_sharpe(path, trials, dispersion)),
        "trials": trials,
        "effective": effective,
        "expected_best": finite(expected_best_sharpe(trials, luck) * annual),
        "min_track_years": median(lambda path: minimum_track_length(path) / bars_per_year),
        "min_backtest_years": finite(minimum_backtest_length(trials, sharpe * annual)),
        "years": paths.shape[1] / bars_per_year,
    }
