"""A made-up report of a study, with every section, as realistic as random numbers are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
HOURS_PER_YEAR = 8760
WINNER = 287


def equity(
    random: np.random.Generator, n: int, drift: float, volatility: float, market: Floats
) -> list[float]:
    """A curve that follows the market in part; drift and volatility are annual."""
    own = random.normal(0, volatility / HOURS_PER_YEAR**0.5, n - 1) + drift / HOURS_PER_YEAR
    return [
        round(float(value), 6)
        for value in np.exp(np.concatenate([[0.0], np.cumsum(own + market[: n - 1])]))
    ]


def market(random: np.random.Generator, n: int) -> Floats:
    """Returns that all curves share."""
    return np.asarray(
        random.normal(0.1 / HOURS_PER_YEAR, 0.3 / HOURS_PER_YEAR**0.5, n), dtype=np.float64
    )


def hours(start: str, n: int) -> list[str]:
    return [
        f"{time}Z" for time in np.datetime64(start, "s") + np.arange(n) * np.timedelta64(1, "h")
    ]


def curves(random: np.random.Generator, n: int, paths: int) -> dict[str, Any]:
    common, later = market(random, n), market(random, n // 6)

    def baselines(length: int, moves: Floats) -> dict[str, list[float]]:
        return {
            "cash": [1.0] * length,
            "buy_and_hold": equity(random, length, 0.15, 0.25, moves),
            "equal_weight": equity(random, length, 0.1, 0.15, moves),
            "momentum": equity(random, length, 0.02, 0.3, moves),
        }

    return {
        "time": hours("2022-01-03T00:00:00", n),
        "paths": [equity(random, n, 0.12, 0.35, 0.6 * common) for _ in range(paths)],
        "baselines": baselines(n, common),
        "hold_out": {
            "time": hours("2025-05-01T00:00:00", n // 6),
            "seeds": [equity(random, n // 6, -0.05, 0.2, 0.6 * later) for _ in range(3)],
            "baselines": baselines(n // 6, later),
        },
    }


def trials(random: np.random.Generator, n: int) -> list[dict[str, Any]]:
    found = []
    for k in range(n):
        drawn = str(random.choice(["complete", "pruned", "failed"], p=[0.6, 0.38, 0.02]))
        state = "complete" if k < 12 or k == WINNER else drawn
        level = 0.45 * (1 - np.exp(-k / 120)) - (0.5 if state == "pruned" else 0)
        value = (
            None if state == "failed" else 1.12 if k == WINNER else float(random.normal(level, 0.3))
        )
        found.append({"number": k, "state": state, "value": value, "params": {"train.gamma": 0.95}})
    return found


def days(random: np.random.Generator, n: int) -> list[dict[str, Any]]:
    returns = random.normal(0.0003, 0.018, n)
    levels = np.cumprod(1 + returns)
    dates = np.datetime64("2022-01-03") + np.arange(n)
    return [
        {
            "date": str(dates[k]),
            "return": float(returns[k]),
            "equity": float(levels[k]),
            "turnover": float(random.gamma(2, 0.06)),
            "cost": float(random.gamma(2, 0.00016)),
            "trades": int(random.poisson(3)),
        }
        for k in range(n)
    ]


def assumptions() -> dict[str, Any]:
    return {
        "bars": {
            "fingerprint": "9f3c1a77e0b24d58",
            "symbols": ["BTC/USD", "ETH/USD", "SOL/USD", "LTC/USD", "LINK/USD"],
            "bar": "1h",
            "from": "2022-01-03T00:00:00Z",
            "to": "2025-11-10T23:00:00Z",
            "n_bars": 33_768,
            "source": "bars/crypto-1h.parquet",
        },
        "market": {
            "fill": "next_open",
            "action": "weights",
            "capital": 10_000.0,
            "costs": {
                "tiers": [
                    {"volume": 0.0, "maker_bps": 15.0, "taker_bps": 25.0},
                    {"volume": 100_000.0, "maker_bps": 12.0, "taker_bps": 22.0},
                ],
                "maker_share": 0.0,
                "half_spread_bps": 2.0,
                "impact": 0.5,
                "borrow_bps_per_year": 500.0,
            },
            "limits": {
                "min_notional": 1.0,
                "lot_step": 0.0,
                "max_weight": 0.5,
                "max_short_weight": 0.0,
                "gross_limit": 1.0,
                "reserve": 0.05,
                "participation": 0.05,
                "trailing_stop": None,
                "cooldown_bars": 0,
                "max_held_bars": None,
                "ruin": 0.1,
            },
        },
        "folds": {
            "kind": "cpcv",
            "groups": 6,
            "splits": 15,
            "paths": 5,
            "purge_bars": 2,
            "embargo_bars": 64,
            "gaps": [
                (
                    f"split {k:2d}  test {a:>6,}..{a + 4783:>6,}  {b:>6,}..{b + 4783:>6,}   "
                    f"dropped 132 bars"
                )
                for k, (a, b) in enumerate(
                    [(0, 4784), (0, 9568), (0, 14_352), (4784, 9568), (4784, 14_352)]
                )
            ],
        },
        "hold_out": {
            "bars": 5065,
            "from": "2025-04-14T00:00:00Z",
            "to": "2025-11-10T23:00:00Z",
            "state": "opened",
            "openings": [
                {
                    "time": "2026-11-16T03:58:12Z",
                    "what": "study momentum-crypto-1h, trial 287, 3 seeds",
                }
            ],
            "opened_before": 0.62,
            "opened_by": 1,
            "last_opened": "2026-10-02T11:20:45Z",
            "judged_before": 0.0,
            "judged_by": 0,
            "wear": "62 % of these sealed bars were in a hold-out that was opened before, by 1 "
            "study, last on 2026-10-02",
        },
        "trials": {
            "this_study": 500,
            "ever": 812,
            "effective": 61.7,
            "pruned": 176,
            "failed": 9,
            "of_others": 312,
            "other_studies": 1,
            "overlap": 0.87,
        },
        "other_studies": [
            {
                "folder": "/home/somebody/runs/momentum-crypto-4h",
                "begun": "2026-09-30T08:12:31Z",
                "bar": "4h",
                "trials": 312,
                "overlap": 0.87,
                "counts": True,
            },
            {
                "folder": "/home/somebody/runs/before",
                "begun": "2026-09-12T10:00:00Z",
                "bar": "1h",
                "trials": 40,
                "overlap": 0.003,
                "counts": False,
            },
        ],
        "search": {
            "objective": "sharpe",
            "timesteps": 100_000,
            "sampler": "tpe",
            "pruner": "wilcoxon",
            "seeds": 1,
        },
        "universe": "hindsight",
        "notes": ["7 bars of LINK/USD are missing (2023-03-24) and were not tradable."],
    }


def gates() -> list[dict[str, Any]]:
    rows = [
        (
            "deflated_sharpe",
            "at least 0.95",
            "0.18",
            False,
            "Luck alone explains the Sharpe ratio of the winner.",
        ),
        (
            "pbo",
            "at most 0.20",
            "0.44",
            False,
            "The best trial of one half is a coin toss in the other.",
        ),
        (
            "null_p",
            "at most 0.05",
            "0.11",
            False,
            "Random traders of equal turnover did as well too often.",
        ),
        ("beats cash", "above 0.00", "0.41", True, "The median path earns more than cash."),
        (
            "beats equal_weight",
            "above 0.48",
            "0.41",
            False,
            "Holding all symbols equally did better.",
        ),
        (
            "cost_factor",
            "above 0 at 2 ×",
            "0.12",
            True,
            "The median path still earns with doubled costs.",
        ),
        (
            "delay_bars",
            "above 0 at 1 bar",
            "0.22",
            True,
            "The median path still earns one bar late.",
        ),
        ("trades", "at least 100", "4,821", True, "There are enough trades to speak of."),
        ("worst_path", "above −50 %", "−31 %", True, "No path was ruinous."),
        (
            "hold_out_sharpe",
            "above 0.00",
            "−0.24",
            False,
            "The winner lost money on the bars kept apart.",
        ),
    ]
    keys = ("name", "wanted", "found", "passed", "sentence")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def judged(random: np.random.Generator, halves: int) -> dict[str, Any]:
    """Null, overfitting and deflation."""
    inside = random.normal(1.5, 0.3, halves)
    outside = 0.75 - 0.35 * inside + random.normal(0, 0.45, halves)
    return {
        "null": {
            "p_value": 0.11,
            "traders": 1000,
            "turnover": 0.0123,
            "sharpes": [float(value) for value in random.normal(-0.15, 0.45, 1000)],
        },
        "overfitting": {
            "pbo": 0.44,
            "logits": [float(value) for value in random.normal(0.15, 1.1, halves)],
            "slope": -0.35,
            "r2": 0.05,
            "probability_of_loss": float(np.mean(outside < 0)),
            "in_sample": [float(value) for value in inside],
            "out_of_sample": [float(value) for value in outside],
            "blocks": 16,
        },
        "deflated": {
            "sharpe": 0.41,
            "psr": 0.78,
            "dsr": 0.021,
            "dsr_effective": 0.18,
            "dsr_dispersion": 0.004,
            "trials": 812,
            "effective": 61.7,
            "expected_best": 1.64,
            "min_track_years": 16.3,
            "min_backtest_years": 62.0,
            "years": 3.3,
        },
    }


def tested() -> dict[str, Any]:
    """Costs, delays, finalists, controls."""
    costs = [
        (0, 0.71, 0.62),
        (0.5, 0.56, 0.47),
        (1, 0.41, 0.33),
        (1.5, 0.27, 0.2),
        (2, 0.12, 0.08),
        (3, -0.17, -0.12),
    ]
    delays = [(0, 0.41, 0.33), (1, 0.22, 0.16), (2, 0.19, 0.14)]
    return {
        "costs": [{"factor": a, "sharpe": b, "total_return": c} for a, b, c in costs],
        "delays": [{"bars": a, "sharpe": b, "total_return": c} for a, b, c in delays],
        "finalists": [
            {"trial": WINNER, "mean": 0.41, "sd": 0.35, "seeds": [0.05, 0.43, 0.75]},
            {"trial": 441, "mean": 0.38, "sd": 0.12, "seeds": [0.26, 0.38, 0.5]},
            {"trial": 163, "mean": 0.21, "sd": 0.44, "seeds": [-0.28, 0.33, 0.58]},
        ],
        "controls": {
            "noise": {
                "sharpe": -0.08,
                "sentence": "No skill was found where there is none.",
                "passed": True,
            },
            "oracle": {
                "sharpe": 9.1,
                "sentence": "Shown the future, the learner used it.",
                "passed": True,
            },
            "constant": {"sentence": "Constant prices gave no return.", "passed": True},
        },
    }


def sample_report(
    n_bars: int = 28_700,
    paths: int = 5,
    n_trials: int = 500,
    n_days: int = 1196,
    halves: int = 12_870,
) -> dict[str, Any]:
    """The whole report."""
    random = np.random.default_rng(11)
    sharpes = [-0.12, 0.22, 0.41, 0.78, 1.04][:paths]
    return {
        "flatout": "0.1.0",
        "study": "momentum-crypto-1h",
        "created": "2026-11-16T04:00:00Z",
        "verdict": {
            "promotable": False,
            "sentence": (
                "No evidence of skill: 5 of 10 gates failed, first of all the deflated "
                "Sharpe ratio."
            ),
            "gates": gates(),
            "gates_hash": "5b1f0c9e77aa",
        },
        "assumptions": assumptions(),
        "winner": {
            "trial": WINNER,
            "params": {
                "train.learning_rate": 0.000213,
                "train.gamma": 0.957,
                "train.gae_lambda": 0.941,
                "train.clip": 0.18,
                "train.entropy": 0.0042,
                "market.limits.reserve": 0.11,
                "market.reward.drawdown": 0.031,
            },
            "paths": [
                {
                    "sharpe": value,
                    "total_return": 0.8 * value,
                    "annual_return": 0.24 * value,
                    "max_drawdown": -0.44 + 0.1 * value,
                    "sortino": 1.3 * value,
                }
                for value in sharpes
            ],
            "median_sharpe": 0.41,
            "seeds_sd": 0.35,
        },
        "curves": curves(random, n_bars, paths),
        "baselines": {
            "cash": {"sharpe": 0.0, "total_return": 0.0, "max_drawdown": 0.0},
            "buy_and_hold": {"sharpe": 0.55, "total_return": 0.71, "max_drawdown": -0.58},
            "equal_weight": {"sharpe": 0.48, "total_return": 0.55, "max_drawdown": -0.52},
            "momentum": {"sharpe": 0.05, "total_return": -0.08, "max_drawdown": -0.49},
        },
        **judged(random, halves),
        "importance": {
            "train.learning_rate": 0.38,
            "market.reward.drawdown": 0.24,
            "train.gamma": 0.17,
            "train.entropy": 0.1,
            "market.limits.reserve": 0.06,
            "train.clip": 0.03,
            "train.gae_lambda": 0.02,
        },
        "trials": trials(random, n_trials),
        **tested(),
        "reward_terms": {
            "log_return": 0.0031,
            "drawdown": -0.0014,
            "turnover": -0.0004,
            "concentration": 0.0,
        },
        "trades": {
            "count": 4821,
            "turnover_per_bar": 0.0123,
            "costs_per_year": 0.124,
            "exposure": 0.63,
            "days": days(random, n_days),
        },
        "throughput": {
            "steps": 750_000_000,
            "seconds": 1312.0,
            "steps_per_s": 571_600.0,
            "trials_per_hour": 1372.0,
            "occupancy": 0.94,
        },
        "files": {"ledger": "ledger.csv", "days": "days.csv", "report": "report.json"},
    }
