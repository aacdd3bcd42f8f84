"""report.json: all that a study's page shows, as plain numbers and words."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import optuna

from flatout.bars.bar_size import bar_name
from flatout.bars.panel import FloatArray, Panel
from flatout.evaluation import metrics
from flatout.evaluation.paths import finite, path_figures, path_returns
from flatout.folds.gaps import gap_lines
from flatout.folds.seal import openings
from flatout.folds.stitch import judged_bars
from flatout.market.rewards import RewardTerms
from flatout.runs import installed
from flatout.search.controls import NOISE, ORACLE
from flatout.search.judgement import TRADED, Judgement
from flatout.search.market_study import LOG_RETURN
from flatout.search.sealed import CURVE_POINTS
from flatout.search.stored_studies import as_trial

SEARCHED = {"sampler", "pruner", "objective"}


def as_report(found: Judgement) -> dict[str, Any]:
    """report.json."""
    study, market = found.study, found.market
    figures = path_figures(found.winner_returns, found.per_year)
    by_seed = [path_figures(r[None], found.per_year).median_sharpe for r in found.winner_returns]
    returns = found.winner_returns.reshape(-1, found.winner_returns.shape[-1])
    bars = judged_bars(market.folds)
    keep = np.unique(np.linspace(0, len(bars) - 1, min(len(bars), CURVE_POINTS)).astype(int))
    winner = next(t for t in found.trials if t.number == found.closing.finalists[0])
    board = study.board
    return {
        "flatout": installed("flatout"),
        "study": study.study.study_name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": found.verdict.facts(),
        "assumptions": assumptions(found),
        "winner": {
            "trial": winner.number,
            "params": winner.params,
            "paths": figures.rows(),
            "median_sharpe": finite(figures.median_sharpe),
            "seeds_sd": finite(float(np.std(by_seed, ddof=1))) if len(by_seed) > 1 else None,
        },
        "curves": {
            "time": times(market.panel, bars[keep]),
            "paths": [equity(path)[keep].tolist() for path in returns],
            "baselines": {
                name: equity(path)[keep].tolist() for name, path in found.beside().items()
            },
            "hold_out": found.sealed.curves() if found.sealed else None,
        },
        "baselines": {
            name: short_figures(path, found.per_year) for name, path in found.beside().items()
        },
        "null": {
            "p_value": found.null_p,
            "traders": found.reference.traders.shape[1],
            "turnover": float(found.turnover.mean()),
            "sharpes": [
                finite(float(x)) for x in metrics.sharpe(found.reference.traders.T, found.per_year)
            ],
        },
        "overfitting": found.overfitting,
        "deflated": found.deflated,
        "importance": importance(study.study),
        "trials": [
            {"number": t.number, "state": t.state, "value": t.value, "params": t.params}
            for t in map(as_trial, found.trials)
        ],
        "costs": [
            {"factor": c.cost_factor, **figures_under(found, k)}
            for k, c in sorted(
                enumerate(found.closing.conditions), key=lambda item: item[1].cost_factor
            )
            if c.delay == 0
        ],
        "delays": [
            {"bars": c.delay, **figures_under(found, k)}
            for k, c in enumerate(found.closing.conditions)
            if c.cost_factor == 1.0
        ],
        "finalists": [finalist_row(found, k) for k in range(len(found.closing.finalists))],
        "reward_terms": {
            name: float(found.along_chosen_path(k).mean())
            for k, name in enumerate(RewardTerms._fields)
        },
        "trades": {
            "count": int(np.sum(found.turnover > TRADED)),
            "turnover_per_bar": float(found.turnover.mean()),
            "costs_per_year": costs_per_year(found),
            "exposure": found.sealed.exposure if found.sealed else None,
            "days": days(found),
        },
        "controls": {
            "noise": found.control(NOISE),
            "oracle": found.control(ORACLE),
            "constant": {
                "passed": not found.constant,
                "sentence": ("orders the same whatever it sees")
                if found.constant
                else "orders depend on the market",
            },
        },
        "throughput": {
            "steps": board.steps,
            "seconds": board.seconds,
            "steps_per_s": board.steps / board.seconds if board.seconds else None,
            "trials_per_hour": 3600 * len(board.finished) / board.seconds
            if board.seconds
            else None,
            "occupancy": board.busy_seconds / board.worker_seconds
            if board.worker_seconds
            else None,
        },
        "files": {"ledger": "ledger.csv", "days": "days.csv", "report": "report.json"},
    }


def assumptions(found: Judgement) -> dict[str, Any]:
    """What the figures rest on."""
    folds, settings = found.market.folds, found.market.settings
    panel, states = found.panel, [t.state.name for t in found.trials]
    sealed = folds.hold_out
    notes = []
    if settings.market.fill == "same_close":
        notes.append("orders fill at the close that they were decided on: nobody can trade so")
    if folds.kind == "cpcv":
        notes.append(
            "combinatorial splits also train on bars after those that they judge: good for "
            "finding luck, no "
            "history that anybody could have traded"
        )
    return {
        "bars": {
            "fingerprint": panel.fingerprint, "symbols": list(panel.symbols),
            "bar": bar_name(panel.bar_seconds),
            "from": str(panel.time[0]), "to": str(panel.time[-1]), "n_bars": panel.n_bars,
            "source": found.source,
        },
        "market": {
            "fill": settings.market.fill, "action": settings.market.action,
            "capital": settings.market.capital,
            "costs": settings.market.costs.model_dump(mode="json"),
            "limits": settings.market.limits.model_dump(mode="json"),
        },
        "folds": {
            "kind": folds.kind, "groups": len(folds.groups), "splits": len(folds.splits),
            "paths": len(folds.paths),
            "purge_bars": folds.purge, "embargo_bars": folds.embargo, "gaps": gap_lines(folds),
        },
        "hold_out": {
            "bars": sealed.length,
            "from": str(panel.time[sealed.first]) if sealed.length else None,
            "to": str(panel.time[sealed.stop - 1]) if sealed.length else None,
            "state": "opened" if found.sealed else "none",
            "openings": [{"time": o.time, "what": o.what} for o in openings(found.study.folder)],
        },
        "trials": {
            "this_study": len(found.trials), "ever": found.trials_ever,
            "effective": found.deflated["effective"],
            "pruned": states.count("PRUNED"), "failed": states.count("FAIL"),
        },
        "search": {
            "timesteps": settings.train.timesteps, "seeds": settings.train.seeds,
            **settings.search.model_dump(mode="json", include=SEARCHED),
        },
        "universe": "hindsight",
        "notes": notes,
    }  # fmt: skip


def times(panel: Panel, bars: Any) -> list[str]:
    """Of some bars, as text."""
    return [str(t) for t in np.datetime_as_string(panel.time[bars], unit="s")]


def equity(returns: FloatArray) -> FloatArray:
    """After each bar, from 1."""
    grown = np.cumprod(1 + returns)
    return grown.astype(np.float64)


def short_figures(returns: FloatArray, per_year: float) -> dict[str, float | None]:
    """Three figures of one path."""
    return {
        "sharpe": finite(float(metrics.sharpe(returns, per_year))),
        "total_return": finite(float(metrics.total_return(returns))),
        "max_drawdown": finite(float(metrics.max_drawdown(returns))),
    }


def figures_under(found: Judgement, condition: int) -> dict[str, float | None]:
    """Medians over the winner's paths."""
    figures = path_figures(found.returns_under(condition), found.per_year)
    return {
        "sharpe": finite(figures.median_sharpe),
        "total_return": finite(float(np.median(figures.total_return))),
    }


def finalist_row(found: Judgement, k: int) -> dict[str, Any]:
    """A finalist's median path Sharpe by seed."""
    returns = path_returns(found.market.folds, found.closing.finalist_terms[k, 0, :, :, LOG_RETURN])
    seeds = [path_figures(r[None], found.per_year).median_sharpe for r in returns]
    spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None
    return {
        "trial": found.closing.finalists[k], "mean": finite(float(np.mean(seeds))),
        "sd": finite(spread),
        "seeds": [finite(s) for s in seeds],
    }  # fmt: skip


def costs_per_year(found: Judgement) -> float | None:
    """What trading costs the chosen kind of path in a year: growth without costs minus growth with
    them.
    """
    free = next(
        (k for k, c in enumerate(found.closing.conditions) if c.cost_factor == 0 and c.delay == 0),
        None,
    )
    if free is None:
        return None
    with_costs, without = (np.log1p(found.returns_under(k)).mean() for k in (0, free))
    return finite(float((without - with_costs) * found.per_year))


def days(found: Judgement) -> list[dict[str, Any]]:
    """The chosen path day by day, then the sealed bars."""
    returns = found.winner_returns.reshape(-1, found.winner_returns.shape[-1])[found.chosen_path]
    rows = by_day(
        "cross-validation",
        found.market.panel.time[judged_bars(found.market.folds)],
        returns,
        found.turnover,
    )
    if found.sealed:
        rows += by_day(
            "hold-out", found.sealed.time, found.sealed.returns[:, 0], found.sealed.turnover
        )
    return rows


def by_day(part: str, time: Any, returns: FloatArray, turnover: FloatArray) -> list[dict[str, Any]]:
    """One row per UTC day that has bars."""
    day = time.astype("datetime64[D]")
    starts = np.flatnonzero(np.concatenate([[True], day[1:] != day[:-1]]))
    grown = np.concatenate([[0.0], np.cumsum(np.log1p(returns))])
    ends = np.append(starts[1:], len(day))
    return [
        {
            "part": part, "date": str(day[first]),
            "return": float(np.expm1(grown[stop] - grown[first])),
            "equity": float(np.exp(grown[stop])), "turnover": float(turnover[first:stop].sum()),
            "trades": int(np.sum(turnover[first:stop] > TRADED)),
        }
        for first, stop in zip(starts, ends, strict=True)
    ]  # fmt: skip


def importance(study: optuna.Study) -> dict[str, float] | None:
    """Which knobs mattered, by Optuna's measure; None where it cannot say."""
    try:
        return {
            name: float(share)
            for name, share in optuna.importance.get_param_importances(study).items()
        }
    except (ValueError, RuntimeError, ImportError):
        return None
