"""How much memory a training will take, before it starts; and what to choose when the settings do
not say.

The formula counts the arrays that live at the same time in the compiled program: a rollout, one
minibatch with its activations and their gradients (or, of pathwise, all that is kept of a window to
go back through it), the state twice (as input and as output), the
shared data, and the process itself.
"""

import os
from pathlib import Path
from typing import NamedTuple

from flatout.learners.engines import engine_of
from flatout.learners.rates import Program
from flatout.policies.actions import NODES
from flatout.settings.train import TrainSettings

FLOAT = 4
# Python, the library and its compiler at work; measured: jax 680 to 930 (400 with a kept program),
# torch 340 to 530
PROCESS = {"jax": 800 * 2**20, "torch": 540 * 2**20}
BETWEEN = {
    "jax": 1.0,
    "torch": 1.4,
}  # PyTorch keeps results between operations that XLA never writes; measured
BESIDE_SEEN = 14  # numbers per transition beside what is seen and three times the action
# arrays per hidden unit of a minibatch: activations and gradients that live together; measured
PER_UNIT = 1.6
PER_NODE = 2.3  # the same per action and node of the squashed entropy; measured
BUDGET = 0.6  # share of the free memory that a training may take
USUAL_ENVS = 64
# of pathwise: every account says the same thing almost without noise, so more updates teach more
# than more accounts; `flatout bench learn` measures it
PATHWISE_ENVS = 16
LEAST_ENVS = 4


class BackNumbers(NamedTuple):
    """Numbers per transition that pathwise keeps to go back through a window, with a critic."""

    unit: float  # for each hidden unit of actor and critic
    silu: float  # more for each unit whose activation is not of one operation
    input: float
    action: float
    beside: float


BACK = {  # measured; PyTorch was given a process of its own for each size
    "jax": BackNumbers(unit=2.8, silu=3.0, input=2.0, action=90, beside=120),
    "torch": BackNumbers(unit=2.3, silu=2.8, input=2.0, action=140, beside=60),
}


class Forecast(NamedTuple):
    """The bytes that one worker takes, by what they hold."""

    rollout: int
    minibatch: int
    state: int
    data: int
    process: int

    @property
    def total(self) -> int:
        """The bytes of all of it together."""
        return sum(self)


def forecast(program: Program, lanes: int, data_bytes: int, one_by_one: bool = True) -> Forecast:
    """Peak memory of a worker with these lanes; lanes that run one after another share the working
    memory.
    """
    sizes, env = program.sizes, program.environment
    at_once = 1 if one_by_one else lanes
    seen = env.view_size if program.index_only else env.observation_size
    looks = program.layout.n_assets if program.layout else 1  # of a network per observation
    units, inputs = 2 * looks * sum(sizes.hidden), looks * sizes.observation
    squashed = sizes.deviations if program.distribution == "squashed_gaussian" else 0
    engine = engine_of(env)
    between = BETWEEN[engine]
    weights = (
        sum(a * b + b for a, b in sizes.layers) * 2
        + (sizes.hidden[-1] + 1) * (sizes.head + 1)
        + sizes.deviations
    )
    always = {"data": data_bytes, "process": PROCESS[engine]}
    state = 2 * lanes * FLOAT * (4 * weights + program.n_envs * 2 * env.view_size)
    if program.algorithm == "pathwise":
        back = BACK[engine]
        per_unit = back.unit + back.silu * (program.activation == "silu")
        kept = per_unit * units + back.input * inputs + back.action * env.actions.size
        window = int(at_once * program.rollout * FLOAT * (kept + back.beside))
        return Forecast(rollout=window, minibatch=0, state=state, **always)
    return Forecast(
        rollout=int(
            between
            * at_once
            * program.rollout
            * FLOAT
            * (seen + 3 * env.actions.size + BESIDE_SEEN)
        ),
        minibatch=int(
            between
            * at_once
            * program.minibatch
            * FLOAT
            * (inputs + PER_UNIT * units + PER_NODE * len(NODES) * squashed)
        ),
        state=state,
        **always,
    )


def usual_envs(train: TrainSettings) -> int:
    """How many accounts trade at once where memory allows it and no number is given."""
    return PATHWISE_ENVS if train.kind.algorithm == "pathwise" else USUAL_ENVS


def free_bytes() -> int:
    """Memory that the machine can still give."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def fits_into(
    program: Program, lanes: int, workers: int, data_bytes: int, free: int | None
) -> bool:
    """Whether a worker with these lanes has enough memory. JAX runs the lanes of a GPU at once;
    others run one after another.
    """
    budget = BUDGET * (free_bytes() / workers if free is None else free)
    one_by_one = free is None or engine_of(program.environment) != "jax"
    return forecast(program, lanes, data_bytes, one_by_one).total <= budget


def find_largest_n_envs(
    program: Program, lanes: int, workers: int, data_bytes: int, free: int | None = None
) -> int:
    """The most accounts that fit, as a power of two."""
    envs = LEAST_ENVS
    while fits_into(
        program._replace(n_envs=2 * envs), -(-lanes // workers), workers, data_bytes, free=free
    ):
        envs *= 2
    return envs


def choose_program(
    program: Program,
    n_envs: int | None,
    lanes: int,
    workers: int,
    data_bytes: int,
    free: int | None = None,
) -> Program:
    """The program with what was not given: as many accounts as it has, if they fit; views in place
    of observations when whole trajectories would not fit. `free` is the memory of a GPU that one
    worker has; else the workers share the machine's.
    """
    per_worker = -(-lanes // workers)

    def fits(candidate: Program) -> bool:
        return fits_into(candidate, per_worker, workers, data_bytes, free=free)

    envs = program.n_envs if n_envs is None else n_envs
    while True:
        whole = program._replace(n_envs=envs, index_only=False)
        for candidate in (whole, whole._replace(index_only=True)):
            if fits(candidate):
                return candidate
        divisible = envs // 2 * program.n_steps % program.minibatches == 0
        if n_envs is not None or envs <= LEAST_ENVS or not divisible:
            return whole._replace(index_only=True)
        envs //= 2
