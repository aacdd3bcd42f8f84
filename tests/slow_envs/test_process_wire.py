"""Values of spaces in shared memory: what is written is read, and nothing else is touched."""

from mmap import mmap
from socket import socketpair
from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_and_async_envs import same

from flatout.slow_envs.process_wire import (
    bytes_of_slots,
    has_fixed_size,
    map_slots,
    read_value,
    receive,
    send,
    write_value,
)

DTYPES = [np.float32, np.float64, np.uint8, np.int16, np.int64]
SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)
LEAVES = st.one_of(
    st.builds(
        lambda shape, dtype: spaces.Box(0, 100, shape, dtype), SHAPES, st.sampled_from(DTYPES)
    ),
    st.integers(1, 9).map(spaces.Discrete),
    st.integers(1, 9).map(spaces.MultiBinary),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(spaces.MultiDiscrete),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
    ),
    max_leaves=6,
)


@given(SPACES, SPACES, st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(seen: Space[Any], act: Space[Any], seed: int) -> None:
    seen.seed(seed), act.seed(seed)
    slots = map_slots(mmap(-1, bytes_of_slots(seen, act)), seen, act)
    observation, action = seen.sample(), act.sample()
    slots.reward[...], slots.ended[:] = 1.5, (True, False)
    write_value(slots.observation, observation)
    write_value(slots.action, action)
    assert same(plain(read_value(slots.observation)), plain(observation)) and same(
        plain(read_value(slots.action)), plain(action)
    )
    assert slots.reward == 1.5 and slots.ended.tolist() == [True, False]
    kept = read_value(slots.observation)
    write_value(slots.observation, seen.sample())
    assert same(plain(kept), plain(observation))  # what was read is a copy


def plain(value: Any) -> Any:
    """Their samples come in dicts of another kind."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return tuple(plain(one) for one in value) if isinstance(value, tuple) else np.asarray(value)


def test_what_does_not_fit() -> None:
    box = spaces.Box(0, 1, (3,))
    assert (
        has_fixed_size(box)
        and not has_fixed_size(spaces.Text(5))
        and not has_fixed_size(spaces.Dict(a=box, b=spaces.Sequence(box)))
    )
    slots = map_slots(mmap(-1, bytes_of_slots(spaces.Text(5), box)), spaces.Text(5), box)
    assert slots.observation is None
    for wrong in (0.5, np.zeros((1, 3)), np.zeros(4)):
        with pytest.raises(ValueError, match=r"where the space has \(3,\)"):
            write_value(slots.action, wrong)
    write_value(slots.action, [1, 2, 3])
    assert same(read_value(slots.action), np.array([1, 2, 3], np.float32))


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = socketpair()
    with ours, theirs:
        for payload in (b"", b"x", b"y" * 10_000):
            send(ours, b"k", payload)
        assert [receive(theirs) for _ in range(3)] == [
            (b"k", b""),
            (b"k", b"x"),
            (b"k", b"y" * 10_000),
        ]
        ours.sendall(b"k\x05")
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)
