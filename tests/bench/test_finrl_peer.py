"""FinRL's process: what it learns from, and that its policy is judged as any other.

FinRL itself is not a test's dependency: a stand-in with its class names trades by the signal.
"""

import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.bench import finrl_peer
from flatout.bench.finrl_peer import price_features, price_relatives, write_prices
from flatout.bench.finrl_program import PriceWindows, rest_after_costs
from flatout.bench.learning_quality import TAUGHT, Ground, describe, make_ground, trade_judged
from flatout.errors import RunError
from flatout.market.orders import weights_action
from rounding import close_to

STAND_IN = """
import numpy as np, torch

class PolicyGradient:
    def __init__(self, env, policy_kwargs, batch_size):
        self.env, self.features = env, policy_kwargs["initial_features"]
        assert policy_kwargs["time_window"] == 50 and batch_size == 100 and torch.seeds == [7]

    def train(self, episodes):
        print("what a library prints is no answer")
        for _ in range(episodes):
            seen, done = self.env.reset(), False
            while not done:
                action = self.train_policy(seen[None], np.eye(1, 8, dtype=np.float32))
                seen, reward, done, about = self.env.step(action)

    def train_policy(self, seen, last):
        assert seen.shape[1:] == (self.features, 7, 50) and abs(last.sum(axis=1) - 1).max() < 1e-5
        scores = np.concatenate([0 * last[:, :1], 4 * seen[:, 3, :, -1] - 4], axis=1)
        shares = np.exp(scores) + 0.1 * last
        return (shares / shares.sum(axis=1, keepdims=True)).squeeze()
"""
STAND_IN_TORCH = """
import contextlib
seeds = []
manual_seed = seeds.append
no_grad = contextlib.nullcontext
"""
LAUNCH = (
    "import runpy, sys; sys.path.insert(0, {folder!r}); sys.argv = sys.argv[2:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


@cache
def ground() -> Ground:
    return make_ground(20.0, every_rule=False)


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """A Python that has the stand-in, whose top module must not be run."""
    package = tmp_path / "finrl" / "agents" / "portfolio_optimization"
    package.mkdir(parents=True)
    (tmp_path / "finrl" / "__init__.py").write_text("raise ImportError('loads brokers')")
    (package / "algorithms.py").write_text(STAND_IN)
    (tmp_path / "torch.py").write_text(STAND_IN_TORCH)
    launch = shlex.quote(LAUNCH.format(folder=str(tmp_path)))
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {launch} "$@"\n')
    path.chmod(0o700)
    return path


@pytest.mark.long
def test_its_policy_earns_what_the_same_policy_earns_here(interpreter: Path) -> None:
    """The last weights that it is told are those that it decided on, not what became of them."""
    [first, second] = finrl_peer.follow_finrl(ground(), interpreter, 2000, 60.0, seed=7)
    signal = jnp.asarray(ground().market.panel.extras["signal"], jnp.float32)

    def decide(t: Any, last: Any) -> Any:
        scores = jnp.concatenate([0 * last[:, :1], 4 * signal[t] - 4], axis=1)
        shares = jnp.exp(scores) + 0.1 * last
        return shares / shares.sum(axis=1, keepdims=True)

    def weights_until(state: Any) -> Any:
        """The weights of a bar, from those of all bars since the account began at `last` - 256."""
        start = state.last - 256
        cash = jnp.zeros((len(state.t), 8)).at[:, 0].set(1.0)
        return jax.lax.fori_loop(
            0,
            256,
            lambda k, last: jnp.where(
                (start + k <= state.t)[:, None], decide(start + k, last), last
            ),
            cash,
        )

    ours = trade_judged(
        ground(), lambda state: weights_action(weights_until(state)[:, 1:].T, jnp).T
    )
    growth = describe(ground(), *ours).growth_bps
    # the logarithm of an equity near 1 after 256 bars, in bps per bar
    expected = close_to(growth, roundings=20, size=1e4, dtype=np.float32)
    assert first["growth_bps"] == second["growth_bps"] == expected
    assert growth > 1
    assert (first["samples"], second["samples"]) == (1000, 2000)
    assert 0 < first["seconds"] < second["seconds"]


def test_its_limits_end_it_and_faults_are_told_in_its_words(interpreter: Path) -> None:
    points = finrl_peer.follow_finrl(ground(), interpreter, 1000, 1.0, seed=8)
    with pytest.raises(RunError, match="FinRL's process ended: AssertionError"):
        next(points)


def test_it_sees_the_prices_of_all_bars_and_the_signal() -> None:
    panel = ground().market.panel
    seen, moves = price_features(ground().market), price_relatives(ground().market)
    assert seen.shape == (4, panel.n_assets, panel.n_bars)
    assert moves.shape == (panel.n_bars, 1 + panel.n_assets)
    assert (moves[:, 0] == 1).all()
    assert moves[9, 3] == np.float32(panel.close[9, 2] / panel.close[8, 2]) == seen[0, 2, 9]
    assert (panel.extras["signal"] == seen[3].T).all()


def test_an_episode_is_the_bars_that_teach_and_an_action_earns_the_next_bar(
    tmp_path: Path,
) -> None:
    write_prices(ground().market, tmp_path, seed=1)
    first = int(ground().market.rules.segments.first[0])
    job = {"first": first, "stop": TAUGHT, "window": 50, "batch": 100, "cost": 0.0027}
    env = PriceWindows(tmp_path, job, wait=lambda: 10**6)
    panel, held = ground().market.panel, np.eye(1, 8, 3)[0]
    seen = env.reset()
    assert (panel.extras["signal"][first : first + 50] == seen[3].T).all()
    seen, reward, done, about = env.step(held)
    moved = panel.close[first + 50, 2] / panel.close[first + 49, 2]
    rest = 1 / 1.0027  # of what was cash
    assert reward == close_to(np.log(rest * moved), roundings=9, size=1.0, dtype=np.float32)
    assert about["price_variation"][3] == np.float32(moved) and not done
    assert (panel.extras["signal"][first + 1 : first + 51] == seen[3].T).all()
    bars = 1
    while not done:
        *_, done, _ = env.step(held)
        bars += 1
    assert bars == env.episode_length == env.t - first - 49 and env.t < TAUGHT


def test_an_episode_leaves_something_for_the_last_batch(tmp_path: Path) -> None:
    """FinRL updates once more at its end, and fails where nothing is left."""
    write_prices(ground().market, tmp_path, seed=1)
    for stop in range(400, 410):
        job = {"first": 151, "stop": stop, "window": 50, "batch": 3, "cost": 0.0}
        assert PriceWindows(tmp_path, job, wait=lambda: 0).episode_length % 3


def test_costs_are_paid_of_what_is_moved() -> None:
    """All from cash into one asset: what is left, and its cost, are the whole."""
    cash, asset = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert rest_after_costs(cash, cash, 0.01) == 1
    assert rest_after_costs(cash, asset, 0.01) == close_to(1 / 1.01, roundings=9)
    assert rest_after_costs(asset, cash, 0.01) == close_to(0.99, roundings=9)


def test_without_an_interpreter_it_is_refused_with_a_sentence(tmp_path: Path) -> None:
    points = finrl_peer.follow_finrl(ground(), tmp_path / "python", 1000, 1.0, 1)
    with pytest.raises(RunError, match="does not start: No such file or directory; give the Py"):
        next(points)


@pytest.mark.long
def test_an_interpreter_without_finrl_is_refused_with_its_own_words() -> None:
    points = finrl_peer.follow_finrl(ground(), Path(sys.executable), 1000, 1.0, 1)
    with pytest.raises(RunError, match="process ended: finrl is not installed in this interpreter"):
        next(points)
