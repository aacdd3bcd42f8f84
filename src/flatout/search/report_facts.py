"""From the judgement of a study to its report."""

import math
import warnings
from datetime import UTC, datetime

import numpy as np
import optuna
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray, Panel, TimeArray
from flatout.evaluation import metrics
from flatout.evaluation.decisions import count_decisions
from flatout.evaluation.paths import finite, path_figures
from flatout.evaluation.reference import Reference
from flatout.evaluation.verdict import CONSTANT_P
from flatout.folds.stitch import judged_bars
from flatout.market.rewards import RewardTerms
from flatout.runs import installed_version
from flatout.search.control_results import judge_control, split_controls
from flatout.search.controls import NOISE, ORACLE
from flatout.search.judgement import TRADED, Judgement
from flatout.search.report_assumed import list_assumptions
from flatout.search.report_model import (
    AccountFigures,
    ConstantFacts,
    CostRow,
    CurveFacts,
    DayRow,
    DelayRow,
    FinalistRow,
    NullFacts,
    StudyReport,
    ThroughputFacts,
    TradeFacts,
    TrialRow,
    VerdictFacts,
    WinnerFacts,
)
from flatout.search.sealed import CURVE_POINTS
from flatout.search.stored_studies import to_stored_trial
from flatout.search.study_state import StudyState

FEW_TRIALS = "The number of trials is too small to compute importances"
FILES = {"ledger": "ledger.csv", "days": "days.csv", "report": "report.json"}


def make_report(found: Judgement) -> StudyReport:
    """The report of a study that was judged, every part of it."""
    conditions = found.finals.conditions
    controls = split_controls(found.study, found.finals.controls)
    return StudyReport(
        flatout=installed_version("flatout"),
        study=found.study.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=VerdictFacts.model_validate(found.verdict.facts()),
        assumptions=list_assumptions(found),
        winner=describe_winner(found),
        curves=make_curves(found),
        baselines={
            name: short_figures(one, found.per_year) for name, one in found.references.items()
        },
        null=describe_copies(found),
        overfitting=found.overfitting,
        deflated=found.deflation,
        importance=measure_importance(found.study.optuna_study),
        trials=[
            TrialRow(number=t.number, state=t.state, value=t.value, params=t.params)
            for t in map(to_stored_trial, found.trials)
        ],
        costs=sorted(
            (make_cost_row(found, k) for k, c in enumerate(conditions) if c.delay == 0),
            key=lambda row: row.factor or 0.0,
        ),
        delays=[make_delay_row(found, k) for k, c in enumerate(conditions) if c.cost_factor == 1.0],
        finalists=[make_finalist_row(found, k) for k in range(len(found.finals.finalists))],
        reward_terms={
            name: float(found.along_chosen_path(k).mean())
            for k, name in enumerate(RewardTerms._fields)
        },
        trades=TradeFacts(
            count=count_decisions(found.decisions),
            turnover_per_bar=float(found.turnover.mean()),
            costs_per_year=measure_costs_per_year(found),
            exposure=found.sealed.exposure if found.sealed else None,
            days=list_days(found),
        ),
        controls={
            "noise": judge_control(found.market, NOISE, controls[NOISE]),
            "oracle": judge_control(found.market, ORACLE, controls[ORACLE]),
            "constant": ConstantFacts(
                passed=found.activity.p_value <= CONSTANT_P,
                active_share=found.activity.share,
                probability=found.activity.p_value,
                sentence="what it asks for depends on the market"
                if found.activity.p_value <= CONSTANT_P
                else "asks for the same weights whatever it sees",
            ),
        },
        throughput=describe_throughput(found.study.state),
        files=dict(FILES),
    )


def describe_winner(found: Judgement) -> WinnerFacts:
    """The winner's paths and parameters."""
    figures = path_figures(found.winner_returns, found.per_year)
    skills = metrics.sharpe(found.flat_skill, found.per_year)
    by_seed = [path_figures(r[None], found.per_year).median_sharpe for r in found.skill_under(0)]
    trial = next(t for t in found.trials if t.number == found.finals.winner)
    return WinnerFacts(
        trial=trial.number,
        params=trial.params,
        paths=[
            AccountFigures.model_validate(row | {"skill_sharpe": finite(float(skill))})
            for row, skill in zip(figures.rows(), skills, strict=True)
        ],
        median_sharpe=finite(figures.median_sharpe),
        median_skill=finite(float(np.median(skills))),
        seeds_sd=measure_spread(by_seed),
        known_rule=found.known_rule,
        share_of_rule=measure_share_of_rule(found),
    )


def measure_share_of_rule(found: Judgement) -> float | None:
    """The growth of the winner's median path as a share of that of the rule that knows the edge,
    per bar; None where there is no such rule, or it earns nothing.
    """
    if found.known_rule is None:
        return None
    earned = float(np.log1p(found.references[found.known_rule].returns).mean())
    growths = np.log1p(found.flat_returns).mean(axis=-1)
    return finite(float(np.median(growths)) / earned) if earned > 0 else None


def make_curves(found: Judgement) -> CurveFacts:
    """Equity of the paths and the baselines, at as many bars as a page can show."""
    bars = judged_bars(found.market.folds)
    keep = np.unique(np.linspace(0, len(bars) - 1, min(len(bars), CURVE_POINTS)).astype(int))
    return CurveFacts(
        time=format_times(found.market.panel, bars[keep]),
        paths=[grow_equity(path)[keep].tolist() for path in found.flat_returns],
        baselines={
            name: grow_equity(path)[keep].tolist() for name, path in found.baselines.items()
        },
        hold_out=found.sealed.curves() if found.sealed else None,
    )


def describe_copies(found: Judgement) -> NullFacts:
    """How the winner's own decisions do at other times."""
    null = found.null
    annual = math.sqrt(found.per_year / found.flat_skill.shape[-1])
    return NullFacts(
        p_value=null.p_value,
        copies=len(null.copies),
        turnover=float(found.turnover.mean()),
        sharpe=finite(null.statistic * annual),
        sharpes=[finite(float(one)) for one in null.copies * annual],
    )


def describe_throughput(state: StudyState) -> ThroughputFacts:
    """How fast the study was."""
    seconds = state.seconds
    return ThroughputFacts(
        steps=state.steps,
        seconds=seconds,
        steps_per_s=state.steps / seconds if seconds else None,
        trials_per_hour=3600 * len(state.finished) / seconds if seconds else None,
        occupancy=state.busy_seconds / state.worker_seconds if state.worker_seconds else None,
    )


def format_times(panel: Panel, bars: NDArray[np.int64]) -> list[str | None]:
    """The times of some bars, as text."""
    return [str(t) for t in np.datetime_as_string(panel.time[bars], unit="s")]


def grow_equity(returns: FloatArray) -> FloatArray:
    """Equity after each bar, from 1."""
    grown = np.cumprod(1 + returns)
    return grown.astype(np.float64)


def short_figures(one: Reference, per_year: float) -> AccountFigures:
    """The figures of a baseline."""
    return AccountFigures(
        sharpe=finite(float(metrics.sharpe(one.returns, per_year))),
        total_return=finite(float(metrics.total_return(one.returns))),
        max_drawdown=finite(float(metrics.max_drawdown(one.returns))),
        skill_sharpe=finite(float(metrics.sharpe(one.skill, per_year))),
    )


def make_cost_row(found: Judgement, condition: int) -> CostRow:
    """Medians over the winner's paths under other costs."""
    figures = path_figures(found.returns_under(condition), found.per_year)
    return CostRow(
        factor=found.finals.conditions[condition].cost_factor,
        sharpe=finite(figures.median_sharpe),
        total_return=finite(float(np.median(figures.total_return))),
        skill_sharpe=finite(found.median_skill(condition)),
    )


def make_delay_row(found: Judgement, condition: int) -> DelayRow:
    """Medians over the winner's paths with later orders."""
    figures = path_figures(found.returns_under(condition), found.per_year)
    return DelayRow(
        bars=found.finals.conditions[condition].delay,
        sharpe=finite(figures.median_sharpe),
        total_return=finite(float(np.median(figures.total_return))),
        skill_sharpe=finite(found.median_skill(condition)),
    )


def make_finalist_row(found: Judgement, k: int) -> FinalistRow:
    """A finalist's median path Sharpe by seed, of skill returns."""
    skill = found.skill_under(0, k)
    seeds = [path_figures(r[None], found.per_year).median_sharpe for r in skill]
    return FinalistRow(
        trial=found.finals.finalists[k],
        mean=finite(float(np.mean(seeds))),
        sd=measure_spread(seeds),
        seeds=[finite(sharpe) for sharpe in seeds],
    )


def measure_spread(values: list[float]) -> float | None:
    """The standard deviation of some figures; one alone has none."""
    return finite(float(np.std(values, ddof=1))) if len(values) > 1 else None


def measure_costs_per_year(found: Judgement) -> float | None:
    """What trading costs the chosen kind of path in a year: growth without costs minus growth with
    them.
    """
    free = next(
        (k for k, c in enumerate(found.finals.conditions) if c.cost_factor == 0 and c.delay == 0),
        None,
    )
    if free is None:
        return None
    with_costs, without = (np.log1p(found.returns_under(k)).mean() for k in (0, free))
    return finite(float((without - with_costs) * found.per_year))


def list_days(found: Judgement) -> list[DayRow]:
    """The chosen path day by day, then the sealed bars."""
    times = found.market.panel.time[judged_bars(found.market.folds)]
    rows = split_into_days("cross-validation", times, found.chosen_returns, found.turnover)
    if found.sealed:
        sealed = found.sealed
        rows += split_into_days("hold-out", sealed.time, sealed.returns[:, 0], sealed.turnover)
    return rows


def split_into_days(
    part: str, time: TimeArray, returns: FloatArray, turnover: FloatArray
) -> list[DayRow]:
    """One row per UTC day that has bars."""
    day = time.astype("datetime64[D]")
    starts = np.flatnonzero(np.concatenate([[True], day[1:] != day[:-1]]))
    grown = np.concatenate([[0.0], np.cumsum(np.log1p(returns))])
    ends = np.append(starts[1:], len(day))
    return [
        DayRow(
            part=part,
            date=str(day[first]),
            gain=float(np.expm1(grown[stop] - grown[first])),
            equity=float(np.exp(grown[stop])),
            turnover=float(turnover[first:stop].sum()),
            trades=int(np.sum(turnover[first:stop] > TRADED)),
        )
        for first, stop in zip(starts, ends, strict=True)
    ]


def measure_importance(study: optuna.Study) -> dict[str, float | None] | None:
    """Which knobs mattered, by Optuna's measure; None where it cannot say."""
    try:
        with warnings.catch_warnings():
            # it warns, and calls all knobs equal, where too few trials were completed
            warnings.filterwarnings("error", FEW_TRIALS, UserWarning)
            shares = optuna.importance.get_param_importances(study)
        return {name: float(share) for name, share in shares.items()}
    except (ValueError, RuntimeError, ImportError, UserWarning):
        return None
