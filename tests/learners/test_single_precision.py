"""What users train in: one update in float32 is that of float64, weight by weight, but for the
roundings of float32.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from flatout.learners.agent import actor_of, critic_of, loss_of
from flatout.learners.environment import Box, Discrete
from flatout.learners.hyperparameters import ADAM_EPSILON
from flatout.learners.jax_engine.population import _learn, new_optimiser
from flatout.learners.metrics import MINIBATCH_METRICS
from flatout.learners.ppo_math import normalise
from flatout.learners.rates import Program, program_of, rates_of
from flatout.learners.trajectory import Batch
from flatout.policies.network import new_network
from flatout.settings.train import TrainSettings
from rounding import assert_close, tolerance
from small_learners import QUICK, exact

pytestmark = pytest.mark.long

OBSERVATION, ROWS, COUNT, RATE, LENGTH = 5, 32, 1000, 0.1, 0.3
FIRST, SECOND = 0.9, 0.999  # Adam's
ONE_ROW = 40  # roundings: two layers there and back, a distribution, an error
SUMMED = 2 * (ROWS + ONE_ROW)  # of a mean over rows
SETTINGS = TrainSettings(
    n_steps=ROWS,
    minibatches=1,
    epochs=1,
    hidden=(16, 12),
    clip=0.1,
    value_clip=0.2,
    entropy=0.01,
    max_grad_norm=LENGTH,
)


class Given(NamedTuple):
    """What an update starts from."""

    rates: Any
    network: Any
    optimiser: Any  # in the midst of a training: of a first step Adam leaves little but the sign
    batch: Batch


def program_for(actions: Box | Discrete) -> Program:
    return program_of(
        SETTINGS, SimpleNamespace(observation_size=OBSERVATION, actions=actions, terms=()), 1
    )


def given(program: Program) -> Given:
    """Numbers of float32, in the precision that JAX is set to: a policy that has moved, a critic
    that errs.
    """
    rng = np.random.default_rng(4)
    network = new_network(program.sizes, 1)
    network.actor.head.weight[:] *= 50  # a policy with opinions
    rates, seen = rates_of(SETTINGS, 1, ()), rng.normal(size=(ROWS, OBSERVATION)).astype(np.float32)
    policy = actor_of(program, rates, network, seen, np)
    box = isinstance(program.environment.actions, Box)
    noise = (rng.standard_normal if box else rng.random)(
        (ROWS, program.environment.actions.size), np.float32
    )
    raw = policy.sample(noise, np)
    log_prob = policy.log_prob(raw, np) + rng.normal(0, 0.15, ROWS)
    value = critic_of(program, rates, network, seen, np) + rng.normal(0, 0.2, ROWS)
    batch = Batch(seen, raw, log_prob, value, rng.normal(1, 2, ROWS), rng.normal(0, 1, ROWS))
    optimiser = new_optimiser(network)
    mean, size = rng.normal(0, 0.01, (2, optimiser.mu.size))
    optimiser = optimiser._replace(
        count=np.asarray(COUNT, np.int32), mu=mean, nu=mean**2 + size**2 + 1e-5
    )

    def single(leaf: Any) -> Any:
        leaf = np.asarray(leaf)
        return jnp.asarray(exact(leaf.astype(np.float32) if leaf.dtype.kind == "f" else leaf))

    return jax.tree.map(single, Given(rates, network, optimiser, batch))


def updated(program: Program, start: Given) -> tuple[Any, Any, Any]:
    """Weights, optimiser and figures after one minibatch of all rows."""
    rate = jnp.asarray(RATE, start.rates.learning_rate.dtype)
    options = QUICK if rate.dtype == jnp.float64 else {}  # in float32 just as users compile it
    learn = jax.jit(partial(_learn, program, None), compiler_options=options)
    network, optimiser, figures, _ = learn(start.rates, rate, jax.random.key(0), *start[1:])
    return (
        np.asarray(ravel_pytree(network)[0]),
        jax.tree.map(np.asarray, optimiser),
        np.asarray(figures),
    )


def summed_sizes(program: Program, start: Given) -> np.ndarray:
    """Of what a weight's gradient is a mean of: the rows' own, which cancel each other; the largest
    of its layer, as they are sums over its neighbours in turn.
    """
    rows = start.batch._replace(advantage=normalise(start.batch.advantage, jnp))
    rows = jax.tree.map(lambda x: x[:, None], rows)
    slope = jax.grad(lambda network, row: loss_of(program, None, start.rates, network, row, jnp)[0])
    each = jax.jit(jax.vmap(slope, (None, 0)), compiler_options=QUICK)(start.network, rows)
    return np.concatenate(
        [np.full(x[0].size, np.abs(x).mean(0).max(initial=0.0)) for x in jax.tree.leaves(each)]
    )


@pytest.mark.parametrize(
    "actions", [Box((-1.0, -1.0), (1.0, 1.0)), Discrete(3)], ids=["box", "discrete"]
)
def test_an_update_in_float32_is_that_of_float64(actions: Box | Discrete) -> None:
    """The gradient g, which Adam's mean tells, is a mean over rows, cut to a length that is a sum
    over all weights. Adam moves a weight by mean / (root + epsilon): the mean follows g by 1 -
    FIRST, the root by at most the root of 1 - SECOND, both enlarged by what corrects their start.
    """
    program = program_for(actions)
    found, state, figures = updated(program, given(program))
    assert found.dtype == state.mu.dtype == np.float32
    with jax.enable_x64(True):
        start = given(program)
        expected, exactly, expected_figures = updated(program, start)
        size, before = summed_sizes(program, start), np.asarray(ravel_pytree(start.network)[0])
        old = np.asarray(start.optimiser.mu)
    assert expected.dtype == exactly.mu.dtype == size.dtype == np.float64
    named, expected_named = (
        dict(zip(MINIBATCH_METRICS, x, strict=True)) for x in (figures, expected_figures)
    )
    assert named["clip_fraction"] == expected_named["clip_fraction"] > 0.2  # no row lies on a bound
    assert expected_named["grad_norm"] > 2 * LENGTH
    assert_close(
        figures,
        expected_figures,
        roundings=SUMMED,
        size=1 + np.abs(expected_figures),
        dtype=np.float32,
    )

    gradient = (exactly.mu - FIRST * old) / (1 - FIRST)
    lost = tolerance(SUMMED, size, np.float32) * LENGTH / expected_named["grad_norm"]
    lost += np.abs(gradient) * np.linalg.norm(lost) / LENGTH + tolerance(
        gradient.size, gradient, np.float32
    )
    steps = tolerance(8, np.abs(old) + np.abs(exactly.mu), np.float32)
    mean = (1 - FIRST) * lost + steps
    close(state.mu, exactly.mu, mean, "mean")
    close(
        state.nu,
        exactly.nu,
        (1 - SECOND) * 2 * np.abs(gradient) * lost + tolerance(8, exactly.nu, np.float32),
        "nu",
    )

    first, second = 1 - FIRST ** (COUNT + 1), 1 - SECOND ** (COUNT + 1)
    root = np.sqrt(exactly.nu / second) + ADAM_EPSILON
    moved = np.abs(exactly.mu) / first / root
    change = mean / first / root + moved * np.sqrt((1 - SECOND) / second) * lost / root
    change += tolerance(16, moved, np.float32)  # a root and two divisions
    for left in (
        first,
        second,
    ):  # of 1, less a power: as many times as it is multiplied, its base is rounded
        change += moved * tolerance(COUNT / 2 + 8, (1 - left) / left, np.float32)
    close(
        found,
        expected,
        RATE * change + tolerance(2, np.abs(before) + np.abs(expected), np.float32),
        "weights",
    )
    assert np.median(np.abs(expected - before)) > 1e4 * np.median(RATE * change)


def close(found: Any, expected: Any, allowed: Any, name: str) -> None:
    assert_close(
        found,
        expected,
        roundings=1,
        size=allowed / np.finfo(np.float32).eps,
        dtype=np.float32,
        name=name,
    )
