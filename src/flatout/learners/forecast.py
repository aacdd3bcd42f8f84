"""How much memory a training will take, before it starts; and what to choose when the settings do not say.

The formula counts the arrays that live at the same time in the compiled program: a rollout, one minibatch with its
activations and their gradients, the state twice (as input and as output), the shared data, and the process itself.
"""

import os
from pathlib import Path
from typing import NamedTuple

from flatout.learners.rates import Program

FLOAT = 4
PROCESS = 800 * 2**20  # Python, JAX and the compiler at work; measured: 680 to 930, 400 when the program was kept
BESIDE_SEEN = 14  # numbers per transition beside what is seen and three times the action
PER_UNIT = 1.6  # arrays per hidden unit of a minibatch: activations and gradients that live together; measured
BUDGET = 0.6  # share of the free memory that a training may take
USUAL_ENVS = 64
LEAST_ENVS = 4


class Forecast(NamedTuple):
    """Bytes of one worker."""

    rollout: int
    minibatch: int
    state: int
    data: int
    process: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def forecast(program: Program, lanes: int, data_bytes: int, one_by_one: bool = True) -> Forecast:
    """Peak memory of a worker with these lanes; lanes that run one after another share the working memory."""
    sizes, env = program.sizes, program.environment
    at_once = 1 if one_by_one else lanes
    seen = env.view_size if program.index_only else env.observation_size
    units = 2 * sum(sizes.hidden)
    weights = sum(a * b + b for a, b in sizes.layers) * 2 + (sizes.hidden[-1] + 1) * (sizes.head + 1) + sizes.deviations
    return Forecast(
        rollout=int(at_once * program.rollout * FLOAT * (seen + 3 * env.actions.size + BESIDE_SEEN)),
        minibatch=int(at_once * program.minibatch * FLOAT * (env.observation_size + PER_UNIT * units)),
        state=2 * lanes * FLOAT * (4 * weights + program.n_envs * 2 * env.view_size),
        data=data_bytes,
        process=PROCESS,
    )


def free_bytes() -> int:
    """Memory that the machine can still give."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def choose(
    program: Program, n_envs: int | None, lanes: int, workers: int, data_bytes: int, free: int | None = None
) -> Program:
    """The program with what was not given: as many environments as is usual and fits; views instead of observations
    when whole trajectories would not fit. `free` is the memory of a GPU that one worker has; else the workers share
    the machine's.
    """
    budget = BUDGET * (free_bytes() / workers if free is None else free)
    per_worker = -(-lanes // workers)

    def fits(candidate: Program) -> bool:
        return forecast(candidate, per_worker, data_bytes).total <= budget

    envs = USUAL_ENVS if n_envs is None else n_envs
    while True:
        whole = program._replace(n_envs=envs, index_only=False)
        for candidate in (whole, whole._replace(index_only=True)):
            if fits(candidate):
                return candidate
        divisible = envs // 2 * program.n_steps % program.minibatches == 0
        if n_envs is not None or envs <= LEAST_ENVS or not divisible:
            return whole._replace(index_only=True)
        envs //= 2
