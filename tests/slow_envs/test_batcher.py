"""Whoever is ready is answered together, nobody waits past the deadline, and everyone gets their
own answer.
"""

import asyncio
from typing import Any

import numpy as np
import pytest

from flatout.errors import SettingsError
from flatout.slow_envs.batcher import MOST_IN_A_ROW, Batcher, Batching, SampledActions
from flatout.slow_envs.clock import run_virtually


class Echo:
    """Decides what it sees, and remembers how much it saw."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, observations: Any) -> SampledActions:
        self.sizes.append(len(observations))
        return SampledActions(observations[:, 0].copy(), -observations[:, 0], len(self.sizes))


async def asked(batcher: Batcher, number: int, at: float) -> tuple[float, Any]:
    await asyncio.sleep(at)
    action = await batcher.ask(np.array([number], np.float32))
    return asyncio.get_running_loop().time(), action


def serve(batching: Batching, times: list[float]) -> tuple[list[tuple[float, Any]], Echo]:
    echo = Echo()

    async def main() -> list[tuple[float, Any]]:
        batcher = Batcher(echo, 1, batching)
        try:
            return await asyncio.gather(*(asked(batcher, k, at) for k, at in enumerate(times)))
        finally:
            batcher.close()

    return run_virtually(main()), echo


def test_all_who_are_ready_go_together_and_get_their_own() -> None:
    answers, echo = serve(Batching(), [0.0, 0.0, 0.0, 1.0])
    assert echo.sizes == [3, 1]
    assert [(action.raw, action.log_prob) for _, action in answers] == [(k, -k) for k in range(4)]
    assert [action.version for _, action in answers] == [1, 1, 1, 2]
    assert [when for when, _ in answers] == [0.0, 0.0, 0.0, 1.0]


def test_a_pass_waits_for_company_but_not_past_its_patience() -> None:
    answers, echo = serve(Batching(least=3, patience_s=0.5), [0.0, 0.2, 0.4, 1.0, 1.1])
    assert echo.sizes == [3, 2]
    assert [when for when, _ in answers] == [0.4, 0.4, 0.4, 1.5, 1.5]


def test_large_crowds_are_split_and_small_ones_padded() -> None:
    answers, echo = serve(Batching(largest=4, buckets=(2, 4)), [0.0] * 7)
    assert echo.sizes == [4, 4]
    assert [action.raw for _, action in answers] == list(range(7))


def test_passes_of_one_answer_before_anything_else_happens() -> None:
    echo, happened = Echo(), []

    async def one(batcher: Batcher, k: int) -> None:
        happened.append(f"asks {k}")
        action = await batcher.ask(np.array([k], np.float32))
        happened.append(f"does {action.raw:.0f}")

    async def main() -> None:
        batcher = Batcher(echo, 1, Batching(largest=1))
        await asyncio.gather(*(one(batcher, k) for k in range(3)))
        batcher.close()

    run_virtually(main())
    assert echo.sizes == [1, 1, 1]
    assert happened == ["asks 0", "does 0", "asks 1", "does 1", "asks 2", "does 2"]


def test_one_who_never_waits_does_not_keep_the_loop_to_itself() -> None:
    echo = Echo()

    async def main() -> int:
        batcher = Batcher(echo, 1, Batching(largest=1))

        async def greedy() -> None:
            while True:
                await batcher.ask(np.zeros(1, np.float32))

        task = asyncio.create_task(greedy())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        return len(echo.sizes)

    assert 20 <= run_virtually(main()) <= 20 * (MOST_IN_A_ROW + 1)


def test_whoever_was_cancelled_is_left_out() -> None:
    echo = Echo()

    async def main() -> Any:
        batcher = Batcher(echo, 1, Batching(least=2, patience_s=1.0))
        leaving = asyncio.create_task(asked(batcher, 0, 0.0))
        await asyncio.sleep(0.1)
        leaving.cancel()
        return await asked(batcher, 1, 0.0)

    when, action = run_virtually(main())
    assert echo.sizes == [1] and action.raw == 1 and when == pytest.approx(0.1)


def test_a_thread_computes_while_others_gather_and_its_errors_arrive() -> None:
    echo = Echo()

    def slow(observations: Any) -> SampledActions:
        if observations[0, 0] == 9:
            raise ZeroDivisionError("no answer")
        return echo(observations)

    async def main() -> list[Any]:
        batcher = Batcher(slow, 1, Batching(threaded=True))
        first = await asyncio.gather(*(batcher.ask(np.array([k], np.float32)) for k in range(3)))
        failed = await asyncio.gather(
            batcher.ask(np.array([9], np.float32)), return_exceptions=True
        )
        after = await batcher.ask(np.array([4], np.float32))
        batcher.close()
        return [*first, *failed, after]

    *answers, failure, after = asyncio.run(main())
    assert [action.raw for action in answers] == [0, 1, 2] and after.raw == 4
    assert isinstance(failure, ZeroDivisionError)


@pytest.mark.parametrize(
    "given", [{"least": 0}, {"least": 9, "largest": 8}, {"patience_s": -1}, {"buckets": (8, 4)}]
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Batching(**given)
