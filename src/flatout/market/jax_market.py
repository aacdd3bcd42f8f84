"""The market for JAX: pure `reset`, `step` and `observe` over a batch of accounts; tape and rules
are arguments.

Never close over the tape: it would be baked into the program. `shape` is static. State arrays are
(asset, account); actions and observations have the account axis first, as policies want it. No
market logic stands here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, first_axis_last, map_leaves
from flatout.market import episode
from flatout.market.episode import Episode, Outcome, Shape
from flatout.market.market import Market
from flatout.market.rules import Rules
from flatout.market.starts import check_starts
from flatout.market.tape import Tape

ScanCarry = tuple[Episode, Array, Array]  # states, their private features, an observation
StepEnds = tuple[Array, Array, Array]  # reward, terminated, truncated


class KernelNamespace:
    """`jax.numpy`, but on a CPU sums over the assets of few accounts are products with ones.

    XLA for CPUs fuses a small sum into all that reads it and computes it again for each: the step
    takes twice as long. It does not fuse a product.
    """

    FEW = 1024

    def __getattr__(self, name: str) -> Callable[..., Array]:
        return getattr(jnp, name)

    def sum(self, x: Array, axis: int | None = None, **options: Any) -> Array:
        """The sum over an axis, as `jax.numpy.sum` has it."""
        if (
            axis != 0
            or x.ndim != 2
            or x.shape[1] >= self.FEW
            or options
            or jax.default_backend() != "cpu"
        ):
            return jnp.sum(x, axis=axis, **options)
        return jnp.dot(jnp.ones((1, x.shape[0]), x.dtype), x, precision="highest")[0]


xp = KernelNamespace()


class JaxStep(NamedTuple):
    """What a step returns beside the next state."""

    outcome: Outcome
    arrived: Episode  # the state before a restart: `observe(arrived, ...)` is the final observation


def upload(market: Market) -> tuple[Tape, Rules]:
    """Tape and rules as JAX arrays on the default device, in JAX's default precision."""
    tape, rules = market.arrays(jnp.zeros(()).dtype)
    return map_leaves(jnp.asarray, tape), map_leaves(jnp.asarray, rules)


def reset(noise: Array, rules: Rules, shape: Shape, start: Array | None = None) -> Episode:
    """Fresh episodes, one for each element of the (account,) uniform noise, at random bars or at
    those of `start`: one for all or one for each account. Inside a compiled function it is an
    (account,) array, and nobody checks it.
    """
    if start is not None and not isinstance(start, jax.core.Tracer):
        start = jnp.asarray(check_starts(start, noise.shape[0], rules.segments))
    noise = jnp.asarray(
        noise, dtype=noise.dtype
    )  # a weakly typed state would be compiled a second time
    return episode.reset(noise, shape, rules, xp, start)


def step(
    state: Episode, action: Array, noise: Array, tape: Tape, rules: Rules, shape: Shape
) -> tuple[Episode, JaxStep]:
    """One bar for all accounts; those that end restart at once at a bar drawn from the (account,)
    noise.
    """
    arrived, outcome = episode.step(state, action.T, tape=tape, shape=shape, rules=rules, xp=xp)
    ended = outcome.terminated | outcome.truncated
    return episode.restart(arrived, ended, noise=noise, rules=rules, xp=xp), JaxStep(
        outcome, arrived
    )


def observe(state: Episode, tape: Tape, rules: Rules, shape: Shape) -> Array:
    """(account, feature) observations."""
    return episode.observe(state, tape, shape=shape, rules=rules, xp=xp)


def timed_scan(market: Market, actions: Array) -> Callable[[], int]:
    """A function that runs (step, account, action) actions in one scan, waits, and says how many
    steps that was.

    Every observation is written, as for a policy that reads it. Its private part is computed at the
    end of the step before: XLA for CPUs would otherwise fuse its transposition with all that leads
    to it, and compute that element by element, down the columns.
    """
    tape, rules = upload(market)
    shape, (n_steps, n_envs) = market.shape, actions.shape[:2]
    noise = jax.random.uniform(jax.random.key(0), (n_steps, n_envs))

    def start(noise: Array, tape: Tape, rules: Rules) -> ScanCarry:
        state = reset(noise, rules, shape)
        return state, episode.private_features(state, rules, xp), observe(state, tape, rules, shape)

    @partial(jax.jit, donate_argnums=0)
    def run(
        carry: ScanCarry, inputs: tuple[Array, Array], tape: Tape, rules: Rules
    ) -> tuple[ScanCarry, StepEnds]:
        def body(carry: ScanCarry, inputs: tuple[Array, Array]) -> tuple[ScanCarry, StepEnds]:
            (state, private, _), (action, noise) = carry, inputs
            observation = episode.join(
                state.t, first_axis_last(private, xp), tape=tape, shape=shape, xp=xp
            )
            state, result = step(state, action, noise=noise, tape=tape, rules=rules, shape=shape)
            outcome = result.outcome
            ends = outcome.reward, outcome.terminated, outcome.truncated
            return (state, episode.private_features(state, rules, xp), observation), ends

        return jax.lax.scan(body, carry, inputs)

    carry = [
        jax.jit(start)(noise[0], tape, rules)
    ]  # compiled: eager arrays may share a buffer, which cannot be donated
    inputs = (jnp.asarray(actions), noise)

    def once() -> int:
        carry[0], _ = jax.block_until_ready(run(carry[0], inputs, tape, rules))
        return n_steps * n_envs

    return once


def product(a: NDArray[np.float32], b: NDArray[np.float32]) -> Callable[[], jax.Array]:
    """A function that multiplies two NumPy matrices with XLA on the CPU: what the machine's peak is
    asked of.
    """
    left, right = (jax.device_put(x, jax.devices("cpu")[0]) for x in (a, b))
    multiply = jax.jit(jnp.matmul)
    multiply(left, right).block_until_ready()  # compiled apart
    return lambda: multiply(left, right).block_until_ready()
