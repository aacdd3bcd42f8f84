"""The few things the array API standard lacks, on NumPy, PyTorch and JAX."""

from typing import Any, NamedTuple

import array_api_compat.torch as torch_namespace
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from flatout.arrays import (
    contiguous,
    first_axis_last,
    last_axis_first,
    map_leaves,
    select,
    take_rows,
    to_numpy,
)


class Library(NamedTuple):
    """One array library: how to make an array, its namespace and its array type."""

    make: Any
    xp: Any
    kind: type


LIBRARIES = {
    "numpy": Library(np.asarray, np, np.ndarray),
    "torch": Library(torch.asarray, torch_namespace, torch.Tensor),
    "jax": Library(jnp.asarray, jnp, type(jnp.zeros(()))),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


class Inner(NamedTuple):
    price: Any
    age: Any


class Outer(NamedTuple):
    cash: Any
    inner: Inner


def tree(library: Library, start: float) -> Outer:
    """Leaves of shapes (3,), (2, 3) and (3,), numbered from `start`."""
    price = np.arange(6, dtype=np.float32).reshape(2, 3) + start
    cash = np.arange(3, dtype=np.float32) - start
    return Outer(
        library.make(cash), Inner(library.make(price), library.make(np.arange(3) + int(start)))
    )


def test_to_numpy_gives_the_same_values_and_type(library: Library) -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    back = to_numpy(library.make(given))
    assert type(back) is np.ndarray
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, given)


def test_to_numpy_takes_tensors_that_carry_gradients() -> None:
    np.testing.assert_array_equal(to_numpy(torch.ones(2, requires_grad=True) * 3), [3, 3])


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_take_rows_gives_a_row_for_every_index(library: Library, shape: tuple[int, ...]) -> None:
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    index = np.random.default_rng(0).integers(0, 5, shape)
    rows = take_rows(library.make(table), library.make(index), library.xp)
    assert tuple(rows.shape) == (*shape, 4)
    np.testing.assert_array_equal(to_numpy(rows), table[index])


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 2)])
def test_the_first_axis_becomes_the_last_and_back(library: Library, shape: tuple[int, ...]) -> None:
    """Bit for bit, with numbers that a rounded product would change."""
    given = np.random.default_rng(1).normal(0, 1e6, shape).astype(np.float32)
    array = library.make(given)
    moved = first_axis_last(array, library.xp)
    np.testing.assert_array_equal(to_numpy(moved), np.moveaxis(given, 0, -1))
    np.testing.assert_array_equal(to_numpy(last_axis_first(moved, library.xp)), given)
    np.testing.assert_array_equal(
        to_numpy(last_axis_first(array, library.xp)), np.moveaxis(given, -1, 0)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moving_axes_keeps_the_precision(dtype: Any) -> None:
    given = np.full((3, 4), 1 / 3, dtype)
    assert first_axis_last(given, np).dtype == dtype
    assert last_axis_first(given, np).dtype == dtype


def test_moved_axes_lie_in_memory_order() -> None:
    array = np.ones((3, 4, 2), np.float32)
    assert first_axis_last(array, np).flags.c_contiguous
    assert last_axis_first(array, np).flags.c_contiguous
    assert contiguous(array.T).flags.c_contiguous
    assert contiguous(torch.ones(3, 4).T).is_contiguous()


def test_map_leaves_reaches_every_leaf_and_keeps_the_structure(library: Library) -> None:
    given = tree(library, 1.0)
    doubled = map_leaves(lambda leaf: leaf * 2, given)
    assert type(doubled) is Outer
    assert type(doubled.inner) is Inner
    for after, before in zip(
        (doubled.cash, *doubled.inner), (given.cash, *given.inner), strict=True
    ):
        assert isinstance(after, library.kind)
        np.testing.assert_array_equal(to_numpy(after), 2 * to_numpy(before))


def test_select_chooses_account_by_account_in_every_leaf(library: Library) -> None:
    mask = np.array([True, False, True])
    chosen, other = tree(library, 10.0), tree(library, 20.0)
    mixed = select(library.make(mask), chosen, other, library.xp)
    assert type(mixed) is Outer
    assert type(mixed.inner) is Inner
    for got, a, b in zip(
        (mixed.cash, *mixed.inner),
        (chosen.cash, *chosen.inner),
        (other.cash, *other.inner),
        strict=True,
    ):
        np.testing.assert_array_equal(to_numpy(got), np.where(mask, to_numpy(a), to_numpy(b)))


def test_select_aligns_the_mask_with_the_last_axes() -> None:
    """A square leaf would also broadcast the wrong way round."""
    a, b = Inner(np.zeros((2, 2)), np.zeros(2)), Inner(np.ones((2, 2)), np.ones(2))
    mixed = select(np.array([True, False]), a, b, np)
    np.testing.assert_array_equal(mixed.price, [[0, 1], [0, 1]])
