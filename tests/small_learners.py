"""Learners for the tests of this folder: an environment of a few lines, settings in which every
knob bites, programs that are compiled once.

Two programs that learn the same are compared in float64 (within `jax.enable_x64`, populations are
made so): Adam divides what a gradient has lost to rounding by as little as its epsilon, and the
next rollout goes on from there.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flatout.learners.environment import Box, Step
from flatout.learners.hyperparameters import ADAM_EPSILON
from flatout.learners.jax_engine import population as jax_population
from flatout.learners.metrics import metric_names
from flatout.learners.rates import Program, Rates, program_of, rates_of
from flatout.learners.trajectory import Lanes
from flatout.policies.network import gates_of, new_network
from flatout.settings.train import TrainSettings
from rounding import assert_close

N_ENVS = 8
QUICK = {
    "xla_backend_optimization_level": "0"
}  # compiled in half the time: the same program in plainer machine code


class Clock(NamedTuple):
    """Rules of a lane."""

    length: Any  # steps of an episode
    terminates: Any  # else it is truncated
    cost: Any  # of missing the target


class Ticking(NamedTuple):
    """A state, and a view of it too: (env,) each."""

    t: Any
    target: Any


class ClockEnvironment(NamedTuple):
    """A reward of 1 per step less the cost of the squared distance to a random target; `data`
    scales what is seen.
    """

    low: tuple[float, ...] = (-1.0, -0.5)
    high: tuple[float, ...] = (1.0, 2.0)

    @property
    def observation_size(self) -> int:
        return 2

    @property
    def view_size(self) -> int:
        return 2

    @property
    def actions(self) -> Box:
        return Box(self.low, self.high)

    @property
    def terms(self) -> tuple[str, ...]:
        return ("steady", "miss")

    @property
    def traced(self) -> tuple[str, ...]:
        return ()

    def trace(self, state: Ticking) -> tuple[Any, ...]:
        return ()

    def draw(self, key: Any, n_steps: int, n_envs: int) -> Any:
        return jax.random.uniform(key, (n_steps, n_envs), minval=-1.0)

    def reset(self, noise: Any, data: Any, rates: Clock) -> Ticking:
        return Ticking(jnp.zeros_like(noise), noise)

    def view(self, state: Ticking, data: Any, rates: Clock) -> Ticking:
        return Ticking(state.t / rates.length, state.target)

    def observe(self, view: Ticking, data: Any) -> Any:
        return jnp.stack(view, axis=-1) * data

    def step(
        self, state: Ticking, action: Any, noise: Any, data: Any, rates: Clock
    ) -> tuple[Ticking, Step]:
        miss = -rates.cost * jnp.sum((action - state.target[:, None]) ** 2, axis=-1)
        arrived = Ticking(state.t + 1, noise)
        ended = arrived.t >= rates.length
        after = arrived._replace(t=jnp.where(ended, 0.0, arrived.t))
        steady = jnp.ones_like(miss)
        return after, Step(
            steady + miss,
            ended & rates.terminates,
            ended & ~rates.terminates,
            (steady, miss),
            arrived,
        )


CLOCK, DATA = ClockEnvironment(), jnp.asarray([1.0, 2.0])


def clock(length: float = 5, terminates: bool = False, cost: float = 0.3) -> Clock:
    """Rules of one lane, as NumPy scalars."""
    return Clock(np.float32(length), np.asarray(terminates), np.float32(cost))


def biting_settings(**changes: Any) -> TrainSettings:
    """Small, with every knob of the learner in effect."""
    return TrainSettings(**{
        "n_steps": 16, "minibatches": 4, "epochs": 3, "hidden": (16, 16), "learning_rate": 3e-3,
        "final_rate_share": 0.5, "clip": 0.05, "value_clip": 0.05, "entropy": 0.01,
        "max_grad_norm": 0.3,
        "target_kl": 1e-3, "normalise_reward": True,
    } | changes)  # fmt: skip


LANES = (
    biting_settings(),
    biting_settings(learning_rate=1e-3, epochs=2, clip=0.1, entropy=0.0),
    biting_settings(gamma=0.9, normalise_advantage=False, max_grad_norm=None),
)
RULES = (clock(), clock(7, True), clock(4, False, 0.5))


def exact(leaf: Any) -> Any:
    """As JAX is set to count now: in float64 within `jax.enable_x64`, else in float32."""
    return leaf.astype(jnp.result_type(float)) if np.issubdtype(leaf.dtype, np.floating) else leaf


def stacked(trees: Sequence[Any]) -> Any:
    """Lanes of one tree, as JAX arrays."""
    return jax.tree.map(lambda *leaves: jnp.asarray(exact(np.stack(leaves))), *trees)


class Population(NamedTuple):
    """Lanes and what they need to advance."""

    program: Program
    data: Any
    rates: Rates
    state: Lanes


def population(
    lanes: Sequence[TrainSettings], rules: Sequence[Any], seeds: Sequence[int] = (0, 1, 2),
    updates: int = 3,
    environment: Any = CLOCK, data: Any = DATA, **program: bool,
) -> Population:  # fmt: skip
    """Fresh lanes; the first one's settings fix the program, others may have smaller networks."""
    shape = program_of(lanes[0], environment, lanes[0].n_envs or N_ENVS, **program)
    gates = [gates_of(shape.sizes, one.hidden) if shape.gated else None for one in lanes]
    rates = stacked(
        [rates_of(one, updates, *rest) for one, *rest in zip(lanes, rules, gates, strict=True)]
    )
    networks = [
        new_network(shape.sizes, seed, one.log_std, one.hidden)
        for one, seed in zip(lanes, seeds, strict=True)
    ]
    networks, data = jax.tree.map(exact, (networks, data))
    return Population(
        shape, data, rates, jax_population.init_lanes(shape, data, rates, networks, seeds)
    )


@cache
def _runner(program: Program, one_by_one: bool, quick: bool) -> Callable[..., Any]:
    run = jax_population.make_chunk_runner(program, one_by_one)
    return jax.jit(run, compiler_options=QUICK) if quick else run


def runner(program: Program, one_by_one: bool = True, quick: bool = False) -> Any:
    """The compiled program, made once for all tests; `quick` where it makes few updates."""
    return _runner(program, one_by_one, quick)


class Trained(NamedTuple):
    """What a chunk leaves."""

    state: Lanes
    metrics: dict[str, np.ndarray]  # (lane,) each


def train(lanes: Population, one_by_one: bool = True, quick: bool = False, **rates: Any) -> Trained:
    """All lanes to their `until`; keywords change rates of all lanes. The state stays usable."""
    changed = {
        name: jnp.full_like(getattr(lanes.rates, name), value) for name, value in rates.items()
    }
    state = jax.tree.map(jnp.copy, lanes.state)
    state, metrics = runner(lanes.program, one_by_one, quick)(
        lanes.data, lanes.rates._replace(**changed), state
    )
    names = metric_names(lanes.program)
    return Trained(state, dict(zip(names, np.asarray(metrics).T, strict=True)))


def difference(a: Any, b: Any) -> float:
    """The largest between two trees; NaN if there is any."""

    def gap(x: Any, y: Any) -> float:
        return float(
            np.max(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)), initial=0.0)
        )

    return float(np.max(jax.tree.leaves(jax.tree.map(gap, a, b))))


def assert_learned_alike(found: Any, expected: Any, minibatches: int, rate: float) -> None:
    """All leaves of two float64 trees, after so many minibatches at this learning rate in two
    programs.

    A gradient is a sum of some hundred terms; what it has lost, Adam divides by no less than its
    epsilon; and what the weights have lost by then changes the minibatches that follow: ten times
    as much is granted for that.
    """
    roundings = 10 * 500 * minibatches * max(1.0, rate / ADAM_EPSILON)
    paths = jax.tree_util.tree_leaves_with_path(expected)
    for (path, leaf), other in zip(paths, jax.tree.leaves(found), strict=True):
        assert np.asarray(leaf).dtype != np.float32, "compare programs that learn in float64"
        size = 1.0 + np.abs(leaf) if np.issubdtype(leaf.dtype, np.floating) else 0.0
        assert_close(other, leaf, roundings=roundings, size=size, name=jax.tree_util.keystr(path))


def lane(tree: Any, k: int) -> Any:
    """A population of one: its k-th lane."""
    return jax.tree.map(lambda leaf: leaf[k : k + 1], tree)
