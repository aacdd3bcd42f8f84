"""What the training bench counts; no timing is judged here."""

from collections.abc import Callable

import numpy as np
import pytest

from flatout.bench import training_speed
from flatout.bench.training_speed import MATRICES, flop_per_step, measure_peak_gflops, summarise
from flatout.policies.network import Sizes


def test_operations_are_counted_by_hand() -> None:
    """Two networks 5-3-3, heads of 2 and 1: 2 x (15 + 9) + 3 x 3 weights, 4 epochs."""
    weights = 2 * (5 * 3 + 3 * 3) + 3 * (2 + 1)
    flop = flop_per_step(Sizes(5, (3, 3), 2, 2))
    assert flop.usual == 2 * weights * (1 + 4 * 3)
    # no gradient of the observations, in either network
    assert flop.executed == flop.usual - 2 * 4 * 2 * 5 * 3


def test_ratios_and_shares_follow_from_the_speeds() -> None:
    speeds = {
        "flatout_single": {"64": 100.0},
        "flatout_population": {"64": 300.0},
        "flatout_one_worker": {"64": 200.0},
        "sb3_loop12": {"64": 4.0},
    }
    flop = flop_per_step(Sizes(5, (3, 3), 2, 2))
    found = summarise(speeds, {}, {"64": flop}, peak=1e-3)
    assert found["flatout_single_over_sb3_loop12"] == {"64": 25.0}
    assert found["workers_speedup"] == {"64": 1.5}
    assert found["mfu"] == {"64": round(300 * flop.usual / 1e6, 3)}
    assert found["mfu_executed"] == {"64": round(300 * flop.executed / 1e6, 3)}
    assert "flatout_single_over_sbx_fast64" not in found


def test_the_peak_is_asked_of_every_library_that_multiplies_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A share of a peak that leaves out the library which does the work can be more than one."""
    asked: list[str] = []

    def rate(multiply: Callable[[], object], flop: int, seconds: float) -> float:
        made = multiply()
        asked.append(type(made).__module__.partition(".")[0])
        found = np.asarray(made)
        assert found.flat[0] * 2 * found.size == flop  # ones times ones: each sum is its length
        return float(len(asked))

    monkeypatch.setattr(training_speed, "measure_product", rate)
    assert measure_peak_gflops() == len(asked) == 3 * len(MATRICES)
    assert {"numpy", "torch"} < set(asked)
    assert any(name.startswith("jax") for name in asked)
