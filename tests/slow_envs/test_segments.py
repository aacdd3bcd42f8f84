"""Rows become segments and segments a batch: each step once, in order, followed by what it led
to.
"""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flatout.learners.environment import Box, Discrete
from flatout.slow_envs.batcher import SampledAction
from flatout.slow_envs.tape import Format, Segment, SegmentTape, join_segments

FORM = Format(3, 2, Discrete(4))
ENDS = st.sampled_from(["goes on", "goes on", "goes on", "terminated", "truncated", "breaks"])


def written(
    env: int, ends: list[str], form: Format = FORM
) -> tuple[list[Segment], list[tuple[Any, ...]]]:
    """The segments of such a life, and its steps: (seen, then, ended how)."""
    tape, segments, steps, number = SegmentTape(form, env), [], [], 0
    for end in ends:
        seen, then = np.array([env, number], np.float32), np.array([env, number + 1], np.float32)
        if end == "breaks":
            segments += tape.add_end(seen)
        else:
            action = SampledAction(number % 4, -number, number)
            segments += tape.add_step(
                seen=seen,
                action=action,
                reward=number,
                then=then,
                terminated=end == "terminated",
                truncated=end == "truncated",
            )
            steps.append((number, end))
        number += 1 if end == "goes on" else 100  # another episode begins elsewhere
    return segments, steps


@given(lives=st.lists(st.lists(ENDS, min_size=12, max_size=40), min_size=1, max_size=4))
def test_a_batch_holds_every_step_once_with_what_it_led_to(lives: list[list[str]]) -> None:
    made = [written(env, ends) for env, ends in enumerate(lives)]
    segments = [segment for life, _ in made for segment in life]
    if not segments:
        return
    batch = join_segments(segments)
    for k, env in enumerate(batch.env):
        steps = made[env][1]
        rows = np.flatnonzero(batch.acting[:, k])
        assert [int(batch.reward[row, k]) for row in rows] == [
            number for number, _ in steps[: rows.size]
        ]
        for row, (number, end) in zip(rows, steps[: rows.size], strict=True):
            assert batch.observation[row, k].tolist() == [env, number]
            assert (batch.raw[row, k], batch.log_prob[row, k], batch.version[row, k]) == (
                number % 4,
                -number,
                number,
            )
            assert batch.terminated[row, k] == (end == "terminated")
            if end != "terminated":
                assert batch.observation[row + 1, k].tolist() == [env, number + 1]
    assert batch.acting.sum() == sum(int(segment.acting.sum()) for segment in segments)


def test_a_batch_keeps_the_order_of_each_environment_and_boxes_keep_their_shape() -> None:
    form = Format(2, 2, Box((-1.0,) * 3, (1.0,) * 3))
    first, second = SegmentTape(form, 7), SegmentTape(form, 3)
    made: list[Segment] = []
    for number in range(4):
        for tape in (first, second):
            seen, then = np.full(2, number, np.float32), np.full(2, number + 1, np.float32)
            if tape is second and number > 1:
                continue
            made += tape.add_step(
                seen=seen,
                action=SampledAction(np.full(3, number), 0.0, 0),
                reward=number,
                then=then,
                terminated=False,
                truncated=False,
            )
    batch = join_segments(made)
    assert batch.env.tolist() == [7, 3] and batch.raw.shape == (4, 2, 3)
    assert batch.reward.T.tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
    assert batch.acting.T.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.observation[:, 1, 0].tolist() == [0, 1, 2, 2, 2]
