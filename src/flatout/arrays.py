"""Which array namespace is this, and the few things the array API standard lacks.

The kernel is written against the standard and takes its namespace as `xp`; this file is the only
one that asks which library the arrays belong to. It knows nothing about markets.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "ArrayTree", "Namespace", "NumpyArray"]

Array = Any  # an array of NumPy, PyTorch or JAX; the standard has no common type to name
Namespace = Any  # the module of such a library; modules have no type to name
# An array, or tuples of trees, named or not; only who made one knows which. A union would have to
# be told apart again wherever a tree is read, and JAX's own pytrees are of no type either.
ArrayTree = Any
NumpyArray = NDArray[Any]  # of numbers of any kind; where the kind is known, say it instead
NUMPY = (np.ndarray, np.generic)  # a tuple, as torch.compile knows no unions of types
T = TypeVar("T", bound=tuple[ArrayTree, ...])


def to_numpy(array: Array) -> NumpyArray:
    """A NumPy view or copy of any array; waits for the device."""
    if array_api_compat.is_torch_array(array):
        array = array.detach().cpu()
    return np.asarray(array)


def take_rows(table: Array, index: Array, xp: Namespace) -> Array:
    """Rows of a (row, column) table at an index of any shape: (*index, column)."""
    return xp.reshape(
        xp.take(table, xp.reshape(index, (-1,)), axis=0), (*index.shape, table.shape[-1])
    )


def first_axis_last(array: Array, xp: Namespace) -> Array:
    """An array of finite values with its first axis at the end: (a, ...) to (..., a)."""
    if array.ndim == 2 and isinstance(array, np.ndarray):
        return array.T @ np.eye(
            array.shape[0], dtype=array.dtype
        )  # exact, and twice as fast as NumPy's strided copy
    return contiguous(xp.moveaxis(array, 0, -1))


def last_axis_first(array: Array, xp: Namespace) -> Array:
    """An array with its last axis in front: (..., a) to (a, ...)."""
    return contiguous(xp.moveaxis(array, -1, 0))


def contiguous(array: Array) -> Array:
    """The same values in memory order, where the library lets one choose: what follows reads them
    faster.
    """
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array)
    # PyTorch has it, JAX does not
    return array.contiguous() if hasattr(array, "contiguous") else array


def freeze(array: Array) -> Array:
    """The same values as constants: no gradient goes through."""
    if isinstance(array, NUMPY):
        return array
    if hasattr(array, "detach"):  # PyTorch's
        return array.detach()
    return sys.modules["jax"].lax.stop_gradient(array)  # loaded by whoever made the array


def freeze_where(mask: Array, values: Array, xp: Namespace) -> Array:
    """The same values, constants where the mask holds."""
    return values if isinstance(values, np.ndarray) else xp.where(mask, freeze(values), values)


def straight_through(values: Array, like: Array) -> Array:
    """The values, to the bit, with the gradient of others: as if nothing stood between the two."""
    if isinstance(values, NUMPY):
        return values
    return freeze(values) + (like - freeze(like))


def square_root(values: Array, xp: Namespace) -> Array:
    """Square roots, 0 of what is negative. The gradient at 0 is 0: there it has none, and infinity
    times the zero that a root of 0 is often multiplied by would be NaN.
    """
    if isinstance(values, NUMPY):
        return np.sqrt(np.maximum(values, 0.0))
    positive = values > 0
    roots = xp.sqrt(xp.where(positive, values, xp.ones_like(values)))
    return xp.where(positive, roots, xp.zeros_like(values))


def map_leaves(function: Callable[..., Array], tree: T) -> T:
    """Apply a function to every leaf of nested tuples, named or not, returning the same
    structure.
    """
    leaves = [
        map_leaves(function, leaf) if isinstance(leaf, tuple) else function(leaf) for leaf in tree
    ]
    return type(tree)(*leaves) if hasattr(tree, "_fields") else type(tree)(leaves)


def leaves_of(tree: ArrayTree) -> list[Array]:
    """The leaves of nested tuples, in order."""
    return (
        [leaf for part in tree for leaf in leaves_of(part)] if isinstance(tree, tuple) else [tree]
    )


def select(mask: Array, chosen: T, other: T, xp: Namespace) -> T:
    """Leaf by leaf `chosen` where the mask holds, else `other`, for nested NamedTuples; leaves may
    have axes before the mask's.
    """

    def pick(a: Array, b: Array) -> Array:
        return xp.where(xp.reshape(mask, (1,) * (a.ndim - mask.ndim) + tuple(mask.shape)), a, b)

    return type(chosen)(
        *(
            select(mask, a, b, xp) if isinstance(a, tuple) else pick(a, b)
            for a, b in zip(chosen, other, strict=True)
        )
    )
