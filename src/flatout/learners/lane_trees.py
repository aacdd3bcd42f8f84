"""Trees of arrays whose first axis is the lane: put together, and taken apart."""

from collections.abc import Sequence

import numpy as np

from flatout.arrays import ArrayTree, map_leaves


def stack_trees(trees: Sequence[ArrayTree]) -> ArrayTree:
    """Equal trees of arrays as one, with a new first axis."""
    first = trees[0]
    if not isinstance(first, tuple):
        return np.stack(trees)
    leaves = [stack_trees([tree[k] for tree in trees]) for k in range(len(first))]
    return type(first)(*leaves) if hasattr(first, "_fields") else tuple(leaves)


def take_lane(tree: ArrayTree, lane: int) -> ArrayTree:
    """One lane of a network, of rates or of a state."""
    return map_leaves(lambda leaf: np.array(leaf[lane]), tree)
