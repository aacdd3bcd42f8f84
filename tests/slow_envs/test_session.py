"""Environments and learner together: deterministic on simulated time; with real processes, nothing
outlives its end.
"""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flatout.errors import RunError, SettingsError
from flatout.learners.environment import Discrete
from flatout.slow_envs.clock import run_virtually
from flatout.slow_envs.model import PerceptronModel
from flatout.slow_envs.overlap import Care, Overlap, Rule
from flatout.slow_envs.session import Session
from slow_envs.waiting_envs import CRASH, HANG, Counting, envs_of, forever
from worker_processes import lives

pytest.importorskip("torch")
MODEL = PerceptronModel(3, Discrete(2), (8,))
RULE = Rule(batch_segments=6, minibatch=32, epochs=2)


async def trained(session: Session, updates: int) -> Any:
    await session.start()
    try:
        made = [await session.next_update() for _ in range(updates)]
    finally:
        known = await session.stop()
    return made, known


def inline(**changes: Any) -> Overlap:
    return Overlap(**{"learner": "inline", "segment": 4, **changes})


# --- simulated time -------------------------------------------------------------------------------


def test_equal_seeds_give_equal_runs_byte_for_byte() -> None:
    def run(seed: int) -> Any:
        session = Session(envs_of(7), MODEL, RULE, inline(), seed=seed)
        made, known = run_virtually(trained(session, 12))
        return [
            (update.version, update.figures, update.lags) for update in made
        ], known.vector.tobytes()

    first = run(3)
    assert first == run(3) and first[1] != run(4)[1]


@pytest.mark.parametrize("max_lag", [0, 1, 3])
def test_nothing_older_than_max_lag_teaches(max_lag: int) -> None:
    """A batch of two short segments from forty environments: most of what arrives is old."""
    rule = Rule(batch_segments=2, minibatch=8, epochs=1)
    session = Session(envs_of(40), MODEL, rule, inline(max_lag=max_lag, segment=6))
    run_virtually(trained(session, 60))
    assert session.lags and max(session.lags) <= max_lag
    assert session.totals["too_old"] > 0
    figures = session.figures()
    assert figures["lag_max"] <= max_lag and figures["updates"] >= 60


def test_hangs_and_crashes_are_counted_and_learning_goes_on() -> None:
    envs = envs_of(6)
    envs[0].waits = itertools.chain([0.1, CRASH, 0.1, HANG], envs[0].waits)
    session = Session(envs, MODEL, RULE, inline(care=Care(step_deadline_s=3.0)))
    run_virtually(trained(session, 30))
    figures = session.figures()
    assert (
        figures["crashes"],
        figures["timeouts"],
        figures["restarts"],
        figures["quarantined"],
    ) == (1, 1, 2, 0)
    answered = sum(len(env.answered) for env in envs)
    assert figures["steps"] == answered


def test_a_session_goes_on_from_what_another_knew() -> None:
    _, known = run_virtually(trained(Session(envs_of(5), MODEL, RULE, inline()), 3))
    again = Session(envs_of(5), MODEL, RULE, inline(), known)
    made, later = run_virtually(trained(again, 2))
    assert made[0].version == known.version + 1
    assert later.steps > known.steps


def test_environments_of_other_spaces_and_other_batches_are_refused() -> None:
    class Other(Counting):
        action_space = Counting.action_space.__class__(5)

    session = Session([*envs_of(2), Other(2, forever(lambda: 0.1))], MODEL, RULE, inline())
    with pytest.raises(SettingsError, match="environment 2 has the action space"):
        run_virtually(trained(session, 1))
    with pytest.raises(SettingsError, match="fixed when a session begins"):
        Session(envs_of(2), MODEL, RULE, inline()).change_rule(Rule(batch_segments=99))


# --- real processes -------------------------------------------------------------------------------


@pytest.mark.long
def test_the_learner_is_a_process_and_ends_with_the_session() -> None:
    """As long as it is stopped, steps end where ring and segments in hand are full; then all goes
    on.
    """
    most = (2 * RULE.batch_segments + 8) * 4

    async def main() -> Any:
        session = Session(envs_of(8, 0.001), MODEL, RULE, Overlap(segment=4))
        await session.start()
        link, waiting = session.link, 0
        put = link.put
        os.kill(link.process.pid, signal.SIGSTOP)

        async def watched(segment: Any) -> None:
            nonlocal waiting
            waiting += 1
            await put(segment)
            waiting -= 1

        link.put = watched
        while waiting < 8:  # until all of them hold a segment that finds no room
            await asyncio.sleep(0.001)
            assert session.pool.events["steps"] <= most
        os.kill(link.process.pid, signal.SIGCONT)
        made = [await session.next_update() for _ in range(5)]
        while session.pool.events["steps"] <= most:
            made.append(await session.next_update())
        return made, await session.stop(), session

    made, known, session = asyncio.run(main())
    assert [update.version for update in made] == list(range(1, len(made) + 1))
    assert known.version >= len(made) >= 5 and known.steps > 0
    assert sum(session.lags.values()) > 0 and 0 <= session.figures()["learner_idle"] <= 1
    assert not lives(session.link.process.pid)


@pytest.mark.long
def test_killing_the_learner_ends_the_run_with_a_sentence() -> None:
    async def main() -> None:
        session = Session(envs_of(8, 0.002), MODEL, RULE, Overlap(segment=4))
        await session.start()
        try:
            await session.next_update()
            os.kill(session.link.process.pid, signal.SIGKILL)
            while True:
                await session.next_update()
        finally:
            await session.stop()

    with pytest.raises(RunError, match="the learner's process failed: it ended with -9"):
        asyncio.run(main())


class Faulty(PerceptronModel):
    """Acts, but cannot be learned from."""

    def value(self, weights: Any, observation: Any, xp: Any) -> Any:
        raise ZeroDivisionError("no value")


@pytest.mark.long
def test_a_learner_that_fails_tells_its_traceback() -> None:
    session = Session(envs_of(8, 0.002), Faulty(3, Discrete(2), (8,)), RULE, Overlap(segment=4))
    with pytest.raises(
        RunError, match=r"(?s)the learner's process failed.*in value.*ZeroDivisionError: no value"
    ):
        asyncio.run(trained(session, 1))


DRIVER = """
import asyncio
from flatout.learners.environment import Discrete
from flatout.slow_envs.model import PerceptronModel
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.session import Session
from slow_envs.waiting_envs import envs_of

async def main():
    model = PerceptronModel(3, Discrete(2), (8,))
    rule = Rule(batch_segments=6, minibatch=32, epochs=2)
    session = Session(envs_of(8, 0.002), model, rule, Overlap(segment=4))
    await session.start()
    await session.next_update()
    print(session.link.process.pid, flush=True)
    while True:
        await session.next_update()

asyncio.run(main())
"""


@pytest.mark.long
def test_no_learner_outlives_a_driver_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, env=environment
    ) as driver:
        assert driver.stdout is not None
        learner = int(driver.stdout.readline())
        assert lives(learner)
        driver.kill()
    deadline = time.monotonic() + 600
    while lives(learner) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lives(learner)
