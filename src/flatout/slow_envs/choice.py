"""Which way to step a plain environment, by what a few of its steps cost: computing, or waiting."""

import time
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

INLINE_S = 0.0002  # steps shorter than this are done at once: handing them over would cost more
BUSY_SHARE = 0.5  # from this share of computing on, a step needs a core of its own
STEPS, LONGEST_S = (
    64,
    0.5,
)  # a measurement ends after so many steps or so long, but not before one step
QUEUE = Path(
    "/proc/thread-self/schedstat"
)  # Linux: the second number is how long this thread waited for a core


class Choice(NamedTuple):
    """A way, and the figures that speak for it."""

    kind: str  # "inline", "thread" or "process"
    step_s: float  # seconds per step, on average
    cpu_share: float  # of that time, how much was computing
    steps: int  # that were measured

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.step_s * 1e3:.3f} ms per step, {self.cpu_share:.0%} computing "
            f"({self.steps} steps)"
        )


def measured(env: gym.Env[Any, Any]) -> Choice:
    """Step the environment at random and choose. It is left in the middle of an episode."""
    actions = deepcopy(env.action_space)
    actions.seed(0)
    env.reset(seed=0)
    count, elapsed, computed, queued = 0, 0.0, 0.0, 0.0
    ended = stepped(
        env, actions.sample()
    )  # not counted: the first step often loads or compiles something
    began = time.perf_counter()
    while count == 0 or (count < STEPS and time.perf_counter() - began < LONGEST_S):
        if ended:
            env.reset()
        action, waited = actions.sample(), seconds_queued()
        cpu, wall = time.thread_time(), time.perf_counter()
        ended = stepped(env, action)
        elapsed, computed = (
            elapsed + time.perf_counter() - wall,
            computed + time.thread_time() - cpu,
        )
        queued, count = queued + seconds_queued() - waited, count + 1
    own = max(
        elapsed - queued, computed, 1e-9
    )  # on a busy machine, waiting for a core is not the environment's
    return chosen(own / count, computed / own, count)


def stepped(env: gym.Env[Any, Any], action: Any) -> bool:
    """Whether the episode ended with this step."""
    _, _, terminated, truncated, _ = env.step(action)
    return bool(terminated or truncated)


def seconds_queued() -> float:
    """How long this thread has been ready but without a core, since it began; 0 where the system
    does not say.
    """
    return int(QUEUE.read_text().split()[1]) / 1e9 if QUEUE.exists() else 0.0


def chosen(step_s: float, cpu_share: float, steps: int) -> Choice:
    """The way that fits these figures."""
    if step_s < INLINE_S:
        return Choice("inline", step_s, cpu_share, steps)
    return Choice("thread" if cpu_share < BUSY_SHARE else "process", step_s, cpu_share, steps)
