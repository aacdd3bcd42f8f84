"""Blocks against sets of bars."""

from itertools import pairwise

from fold_cases import bars_of
from hypothesis import given
from hypothesis import strategies as st

from flatout.folds.blocks import Block, merge, subtract

edges = st.tuples(st.integers(-5, 40), st.integers(-5, 40))
blocks = st.lists(edges.map(lambda pair: Block(*pair)), max_size=6)


def are_maximal_runs(found: tuple[Block, ...]) -> bool:
    return all(block.length > 0 for block in found) and all(
        left.stop < right.first for left, right in pairwise(found)
    )


@given(blocks)
def test_merged_blocks_are_the_same_bars_in_maximal_runs(some: list[Block]) -> None:
    merged = merge(some)
    assert are_maximal_runs(merged)
    assert bars_of(merged) == sorted(set(bars_of(some)))


@given(edges, blocks)
def test_what_remains_is_the_whole_without_what_is_taken_away(
    whole: tuple[int, int], away: list[Block]
) -> None:
    left = subtract(Block(*whole), away)
    assert are_maximal_runs(left)
    assert bars_of(left) == sorted(set(range(*whole)) - set(bars_of(away)))


def test_by_hand() -> None:
    assert merge([Block(7, 9), Block(0, 3), Block(3, 5), Block(6, 6)]) == (Block(0, 5), Block(7, 9))
    assert subtract(Block(0, 10), [Block(2, 4), Block(9, 12)]) == (Block(0, 2), Block(4, 9))
    assert str(Block(3, 5)) == "3..5"
