"""Which way to step a plain environment, by what a few of its steps cost: computing, or waiting."""

import time
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
from gymnasium.core import ActType, ObsType

INLINE_S = 0.0002  # steps shorter than this are done at once: handing them over would cost more
BUSY_SHARE = 0.5  # from this share of computing on, a step needs a core of its own
# A measurement ends after so many steps or so long, but not before one step.
STEPS, LONGEST_S = 64, 0.5
# Linux: the second number is how long this thread waited for a core.
QUEUE = Path("/proc/thread-self/schedstat")


class SteppingChoice(NamedTuple):
    """How an environment is stepped, and the figures that speak for it."""

    kind: str  # "inline", "thread" or "process"
    step_s: float  # seconds per step, on average
    cpu_share: float  # of that time, how much was computing
    steps: int  # that were measured

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.step_s * 1e3:.3f} ms per step, {self.cpu_share:.0%} computing "
            f"({self.steps} steps)"
        )


def measure_steps(env: gym.Env[ObsType, ActType]) -> SteppingChoice:
    """Step the environment at random and choose. It is left in the middle of an episode."""
    actions = deepcopy(env.action_space)
    actions.seed(0)
    env.reset(seed=0)
    count, elapsed, computed, queued = 0, 0.0, 0.0, 0.0
    # Not counted: the first step often loads or compiles something.
    ended = step_env(env, actions.sample())
    began = time.perf_counter()
    while count == 0 or (count < STEPS and time.perf_counter() - began < LONGEST_S):
        if ended:
            env.reset()
        action, waited = actions.sample(), seconds_queued()
        cpu, wall = time.thread_time(), time.perf_counter()
        ended = step_env(env, action)
        elapsed, computed = (
            elapsed + time.perf_counter() - wall,
            computed + time.thread_time() - cpu,
        )
        queued, count = queued + seconds_queued() - waited, count + 1
    # On a busy machine, waiting for a core is not the environment's.
    own = max(elapsed - queued, computed, 1e-9)
    return choose_stepping(own / count, computed / own, count)


def step_env(env: gym.Env[ObsType, ActType], action: ActType) -> bool:
    """Make one step; returns whether the episode ended with it."""
    _, _, terminated, truncated, _ = env.step(action)
    return bool(terminated or truncated)


def seconds_queued() -> float:
    """How long this thread has been ready but without a core, since it began; 0 where the system
    does not say.
    """
    return int(QUEUE.read_text().split()[1]) / 1e9 if QUEUE.exists() else 0.0


def choose_stepping(step_s: float, cpu_share: float, steps: int) -> SteppingChoice:
    """The way of stepping that fits these figures: inline, thread or process."""
    if step_s < INLINE_S:
        return SteppingChoice("inline", step_s, cpu_share, steps)
    return SteppingChoice(
        "thread" if cpu_share < BUSY_SHARE else "process", step_s, cpu_share, steps
    )
