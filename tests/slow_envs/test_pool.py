"""The pool at its bounds, and what it does about environments that hang and break: nothing lost,
nothing doubled.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.errors import RunError, SettingsError
from flatout.learners.environment import Discrete
from flatout.slow_envs.batcher import SampledAction
from flatout.slow_envs.clock import run_virtually
from flatout.slow_envs.overlap import Care
from flatout.slow_envs.pool import Pool, flatten_observation
from flatout.slow_envs.tape import Format, Segment
from slow_envs.waiting_envs import CRASH, HANG, Counting, forever, stratified

FORM = Format(4, 3, Discrete(2))


async def first_choice(observation: Any) -> SampledAction:
    return SampledAction(1, -0.5, 7)


class Run:
    """A pool on simulated time for so many seconds, and all that it shipped."""

    def __init__(self, envs: list[Any], seconds: float, care: Care | None = None) -> None:
        self.shipped: list[Segment] = []
        self.pool = Pool(envs, FORM, first_choice, self.ship, care)
        self.steps = 0
        run_virtually(self.go(seconds))

    async def ship(self, segment: Segment) -> None:
        self.shipped.append(segment)

    async def go(self, seconds: float) -> None:
        life = asyncio.create_task(self.pool.run())
        await asyncio.wait([life], timeout=seconds)
        self.steps = self.pool.events["steps"]
        life.cancel()
        try:
            await life
        except asyncio.CancelledError:
            pass
        finally:
            await self.pool.close()


# --- bounds ---------------------------------------------------------------------------------------

MEAN, SLOW, SLOW_SHARE = 0.05, 2.0, 0.01


class Latency(NamedTuple):
    """A distribution by its quantiles, and that of what is left of a wait seen at a random
    moment.
    """

    mean: float
    wait: Callable[[np.ndarray], np.ndarray]
    residual: Callable[[np.ndarray], np.ndarray]


def exponential(u: np.ndarray) -> np.ndarray:
    return -MEAN * np.log1p(-u)


def straggling_residual(u: np.ndarray) -> np.ndarray:
    """Slow waits are rare, but long: a random moment falls into one with the share of time that
    they take.
    """
    share = SLOW_SHARE * SLOW / STRAGGLERS
    return np.where(u < share, SLOW * u / share, MEAN * (u - share) / (1 - share))


STRAGGLERS = (1 - SLOW_SHARE) * MEAN + SLOW_SHARE * SLOW
CONSTANT = Latency(MEAN, lambda u: MEAN + 0 * u, lambda u: MEAN * u)
LATENCIES = {
    "constant": CONSTANT,
    "exponential": Latency(MEAN, exponential, exponential),
    "stragglers": Latency(
        STRAGGLERS, lambda u: np.where(u < SLOW_SHARE, SLOW, MEAN), straggling_residual
    ),
    "one hangs": CONSTANT,
}


@pytest.mark.long
@pytest.mark.parametrize("n_envs", [16, 1000])
@pytest.mark.parametrize("kind", list(LATENCIES))
def test_throughput_is_what_latency_allows(kind: str, n_envs: int) -> None:
    """Environments over mean latency, whatever the spread; one that hangs costs its own share and
    no more. The run begins in the middle of things, so that what is counted is the long-run rate.
    """
    latency, rng = LATENCIES[kind], np.random.default_rng(n_envs)
    shared = stratified(rng, latency.wait, 100)
    first = latency.residual((rng.permutation(n_envs) + 0.5) / n_envs)
    waits = [itertools.chain([begin], shared) for begin in first.tolist()]
    if kind == "one hangs":
        waits[0] = forever(lambda: HANG)
    envs = [Counting(k, own, length=100) for k, own in enumerate(waits)]
    rate = (n_envs - (kind == "one hangs")) / latency.mean
    seconds = 12_000 / rate
    run = Run(envs, seconds, Care(step_deadline_s=1e6))
    assert run.steps / seconds == pytest.approx(rate, rel=0.02)


# --- what is written down -------------------------------------------------------------------------


def acting_rows(segments: list[Segment]) -> list[tuple[int, ...]]:
    """(environment, life, step) of each step in them."""
    return [
        tuple(row) for s in segments for row in s.observation[:-1][s.acting].astype(int).tolist()
    ]


def check_segment(segment: Segment) -> None:
    """Each row is followed by what it led to: the next step, or the last thing seen, and else its
    episode is over.
    """
    for row in range(FORM.rows):
        if not segment.acting[row]:
            continue
        env, life, step = segment.observation[row]
        assert segment.reward[row] == step + 1
        assert (segment.raw[row], segment.log_prob[row], segment.version[row]) == (1, -0.5, 7)
        if not segment.terminated[row]:
            assert segment.observation[row + 1].tolist() == [env, life, step + 1]


WAITS = st.lists(st.sampled_from([0.0, 0.01, 0.3, 2.0, HANG, CRASH]), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    scripts=st.lists(WAITS, min_size=1, max_size=5),
    truncates=st.booleans(),
    length=st.integers(1, 9),
)
def test_no_step_is_lost_or_doubled(
    scripts: list[list[float]], truncates: bool, length: int
) -> None:
    """Steps that were answered are what is shipped or still open, each once, whatever hung or broke
    meanwhile.
    """
    envs = [
        Counting(k, itertools.chain(script, forever(lambda: 0.25)), length, truncates)
        for k, script in enumerate(scripts)
    ]
    care = Care(step_deadline_s=1.0, first_pause_s=0.1, most_failures=20)
    run = Run(envs, 6.0, care)
    for segment in run.shipped:
        check_segment(segment)
    for slot in run.pool.slots:
        tape, env = slot.tape, slot.env
        left = tape.open._replace(acting=tape.open.acting & (np.arange(FORM.rows) < tape.filled))
        own = [row[1:] for row in acting_rows([*run.shipped, left]) if row[0] == slot.index]
        assert own == env.answered
        assert slot.steps == len(own)


@settings(max_examples=40, deadline=None)
@given(script=WAITS)
def test_failures_are_counted_one_by_one(script: list[float]) -> None:
    """A wait of 2 s and a hang pass the deadline of 1 s; a crash is a crash."""
    env = Counting(0, itertools.chain(script, forever(lambda: 0.9)))
    late, broken = sum(wait in (2.0, HANG) for wait in script), script.count(CRASH)
    run = Run(
        [env], 250.0, Care(step_deadline_s=1.0, most_failures=20)
    )  # twelve in a row take 153 s
    events = run.pool.events
    assert (events["timeouts"], events["crashes"], events["restarts"]) == (
        late,
        broken,
        late + broken,
    )


# --- restarts, quarantine, the end ----------------------------------------------------------------


def test_a_broken_environment_is_made_anew_and_the_old_one_closed() -> None:
    made: list[Counting] = []

    def maker() -> Counting:
        made.append(Counting(len(made), iter([0.1, CRASH]) if not made else forever(lambda: 0.1)))
        return made[-1]

    run = Run([maker, Counting(9, forever(lambda: 0.1))], 5.0)
    assert len(made) == 2 and made[0].closed == 1
    assert run.pool.events["restarts"] == 1 and made[1].answered


def test_pauses_double_and_then_it_is_left_out() -> None:
    """Failures at 0, then after 0.1, 0.2, 0.4, ... seconds; the sixth in a row is one too many."""
    tried: list[float] = []

    class Broken(Counting):
        async def reset(self, **_: Any) -> Any:
            tried.append(asyncio.get_running_loop().time())
            raise OSError("no")

    envs = [Broken(0, iter(())), *(Counting(k, forever(lambda: 0.1)) for k in (1, 2))]
    run = Run(envs, 60.0)
    assert np.diff(tried) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    assert run.pool.events["quarantined"] == 1 and run.pool.events["steps"] > 1000


def test_a_run_stops_with_the_original_error_when_too_few_are_alive() -> None:
    envs = [Counting(k, itertools.chain([0.1], forever(lambda: CRASH))) for k in range(3)]
    envs.append(Counting(3, forever(lambda: 0.1)))
    with pytest.raises(RunError, match="of 4 environments are alive") as caught:
        Run(envs, 1000.0, Care(most_failures=2))
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert "the other side is gone" in str(caught.value)


def test_nothing_is_trained_when_no_environment_can_begin() -> None:
    class Dead(Counting):
        async def reset(self, **_: Any) -> Any:
            raise ConnectionRefusedError("nobody listens")

    with pytest.raises(
        RunError, match=r"none of the 8 environments could begin.*nobody listens"
    ) as caught:
        Run([Dead(k, iter(())) for k in range(8)], 1000.0)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_every_environment_gets_its_own_seed_and_another_after_a_restart() -> None:
    seeds: list[Any] = []

    class Seeded(Counting):
        async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seeds.append(seed)
            return await super().reset()

    def lives(n: int) -> list[Any]:
        seeds.clear()
        made = [
            Seeded(k, itertools.chain([0.1, CRASH], forever(lambda: 0.1)), length=50)
            for k in range(n)
        ]

        async def main() -> None:
            pool = Pool(made, FORM, first_choice, ship_nowhere, None, seed=5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await pool.run()

        run_virtually(main())
        return list(seeds)

    first = lives(3)
    assert len(set(first)) == 6 and None not in first
    assert lives(3) == first


async def ship_nowhere(segment: Segment) -> None:
    pass


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-1, 1, (2, 3)),
        gym.spaces.Dict({"b": gym.spaces.Box(-1, 1, (2, 3)), "a": gym.spaces.MultiBinary(4)}),
        gym.spaces.Dict({"b": gym.spaces.Discrete(3), "a": gym.spaces.MultiBinary(4)}),
        gym.spaces.Discrete(5),
    ],
    ids=str,
)
def test_observations_are_flattened_as_gymnasium_does(space: Any) -> None:
    space.seed(0)
    for _ in range(5):
        seen = space.sample()
        made = flatten_observation(space, seen)
        np.testing.assert_array_equal(made, gym.spaces.flatten(space, seen).astype(np.float32))
        assert made.dtype == np.float32


@pytest.mark.parametrize("envs", [[], [object()], [object]])
def test_what_is_no_environment_is_refused(envs: list[Any]) -> None:
    with pytest.raises(SettingsError):
        Pool(envs, FORM, first_choice, ship_nowhere)
