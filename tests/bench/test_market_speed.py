"""The speed measurement: what it reports, and that its yardstick does the same work. No timing is
judged here.
"""

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from flatout.bench import market_speed
from flatout.bench.market_speed import bench_market
from flatout.bench.scalar_account import ScalarAccount
from flatout.market.market import Market

ENGINES = ("numpy", "torch", "jax")


@cache
def market() -> Market:
    return bench_market()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks of a millisecond, short scans, small copies."""
    rate, bandwidth = market_speed.measure_rate, market_speed.measure_bandwidth
    monkeypatch.setattr(market_speed, "measure_rate", lambda run, *_: rate(run, 0.001))
    monkeypatch.setattr(market_speed, "measure_bandwidth", lambda: bandwidth(1))
    monkeypatch.setattr(market_speed, "JAX_STEPS", 2)
    monkeypatch.setattr(market_speed, "bench_market", market)


@pytest.mark.usefixtures("quick")
def test_every_engine_is_measured_at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        market_speed, "jax_steps", lambda _, n_envs: lambda: n_envs
    )  # nothing is compiled here
    shown: list[str] = []
    result = market_speed.measure_market(rounds=1, sizes=(1, 2), progress=shown.append)
    assert set(result) == {
        "scalar", *ENGINES, "bound_steps_per_s", "times_scalar", "memory_bytes_per_s",
        "bytes_per_step", "workload",
    }  # fmt: skip
    assert set(result["times_scalar"]) == set(ENGINES)
    for engine in ENGINES:
        assert list(result[engine]) == list(result["times_scalar"][engine]) == ["1", "2"]
        assert all(value > 0 for value in result[engine].values())
        for size, value in result[
            engine
        ].items():  # a rate is rounded to the step, so half a step of it is not known
            ratio = value / result["scalar"]
            unknown = 0.06 + ratio * 0.5 / (result["scalar"] - 0.5)
            assert result["times_scalar"][engine][size] == pytest.approx(ratio, rel=0, abs=unknown)
    assert result["scalar"] > 0
    assert result["bound_steps_per_s"] == pytest.approx(
        result["memory_bytes_per_s"] / result["bytes_per_step"], abs=1
    )
    assert {f"preparing {engine} {size}" for engine in ENGINES for size in (1, 2)} <= set(shown)


@pytest.mark.usefixtures("quick")
def test_the_best_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy_steps", "torch_steps", "jax_steps", "scalar_steps"):
        monkeypatch.setattr(market_speed, name, lambda *_: lambda: 1)
    rates = iter([5.0, 10.0, 20.0, 30.0, 50.0, 7.0, 10.0, 40.0])
    monkeypatch.setattr(market_speed, "measure_rate", lambda *_: next(rates))
    monkeypatch.setattr(market_speed, "measure_bandwidth", lambda: 1e9)
    result = market_speed.measure_market(rounds=2, sizes=(1,))
    assert (result["scalar"], *(result[engine]["1"] for engine in ENGINES)) == (50, 10, 20, 40)
    assert result["times_scalar"]["jax"]["1"] == 0.8


@pytest.mark.usefixtures("quick")
def test_without_pytorch_the_other_engines_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch is an extra."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "flatout.market.torch_market", raising=False)
    monkeypatch.setattr(market_speed, "jax_steps", lambda *_: lambda: 1)
    result = market_speed.measure_market(rounds=1, sizes=(1,))
    assert not result.get("torch")
    assert result["numpy"]["1"] > 0


def test_the_bench_market_has_every_rule_switched_on() -> None:
    limits, costs, shape = market().rules.limits, market().rules.costs, market().shape
    assert (shape.n_assets, shape.n_features, shape.action) == (7, 14, "trade")
    assert len(costs.tier_volume) == 4
    assert (
        min(limits.trailing_stop.max(), limits.cooldown_bars.min(), limits.max_short_weight.min())
        > 0
    )
    assert limits.trailing_stop.max() < 1
    assert limits.max_held_bars.max() < 100
    assert all(
        getattr(market().rules.reward, name) != 0
        for name in ("excess", "differential_sharpe", "drawdown")
    )


def test_the_scalar_yardstick_runs_the_account_through_as_many_bars_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    observation = ScalarAccount.observation
    monkeypatch.setattr(
        ScalarAccount, "observation", lambda self: (calls.append(self.t), observation(self))[1]
    )
    assert market_speed.scalar_steps(market())() == len(calls) == len(set(calls)) == 1000


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        ("numpy_steps", market_speed.ACTION_SETS),
        ("torch_steps", market_speed.ACTION_SETS),
        pytest.param("jax_steps", 2, marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("quick")
def test_engines_count_a_step_per_account(make: str, steps: int) -> None:
    """Twice: each run goes on where the last one ended."""
    run: Any = getattr(market_speed, make)(market(), 3)
    assert [run(), run()] == [3 * steps] * 2


def test_a_rate_is_steps_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 10.0, 11.0, 12.5])
    monkeypatch.setattr(market_speed.time, "perf_counter", lambda: next(now))
    assert market_speed.measure_rate(lambda: 50, 2.0) == 100 / 2.5


def test_a_rate_needs_one_run_however_long_it_takes() -> None:
    assert market_speed.measure_rate(lambda: 7, 0.0) > 0


def test_drawn_actions_are_within_bounds_and_repeat() -> None:
    actions = market_speed.draw_actions(market(), 5, 3)
    assert actions.shape == (3, 5, market().action_size)
    assert actions.dtype == np.float32
    assert (np.abs(actions) <= 1).all()
    np.testing.assert_array_equal(actions, market_speed.draw_actions(market(), 5, 3))
