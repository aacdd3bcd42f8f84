"""How far the training blocks of splits really stay away from the bars that judge, measured on the
blocks.
"""

from collections.abc import Iterator
from typing import NamedTuple

from flatout.folds.blocks import Block, merge
from flatout.folds.splits import Folds, Split


class Gap(NamedTuple):
    """How far training stays away from one run of judged bars. None: no training block is the next
    one there.
    """

    split: str
    test: Block  # neighbouring test groups as one block; or the hold-out
    before: int | None  # bars dropped
    after: int | None


def measure_gaps(folds: Folds) -> list[Gap]:
    """How many bars were really dropped at each boundary, measured on the blocks."""
    return [
        Gap(
            split=found.split.name,
            test=found.test,
            before=count_dropped(found.before, found.test),
            after=count_dropped(found.test, found.after),
        )
        for found in find_boundaries(folds)
    ]


def gap_lines(folds: Folds) -> list[str]:
    """The gaps for people: a line per run of judged bars, in columns; `a..b` are the bars from a up
    to but without b.
    """
    rows = [
        (
            found.split.name,
            f"train {found.before}" if found.before else "",
            f"{count_dropped(found.before, found.test)} purged" if found.before else "",
            f"{'hold-out' if found.test == folds.hold_out else 'test'} {found.test}",
            f"{count_dropped(found.test, found.after)} embargoed" if found.after else "",
            f"train {found.after}" if found.after else "",
        )
        for found in find_boundaries(folds)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return [f"{name}   {' | '.join(cells)}".rstrip(" |") for name, *cells in padded]


def count_dropped(left: Block | None, right: Block | None) -> int | None:
    """How many bars lie between two blocks; None if one of them is missing."""
    return None if left is None or right is None else right.first - left.stop


class Boundary(NamedTuple):
    """A run of judged bars and the training blocks next to it, None where there is none."""

    split: Split
    before: Block | None
    test: Block
    after: Block | None


def find_boundaries(folds: Folds) -> Iterator[Boundary]:
    """Each run of judged bars between the training blocks next to it; the hold-out where one lies
    before it.
    """
    for split in folds.splits:
        tests = merge(split.test)
        order = sorted((*split.train, *tests, folds.hold_out))
        for before, block, after in zip([None, *order], order, [*order[1:], None], strict=False):
            teacher = before if before in split.train else None
            if block in tests or (block == folds.hold_out and block.length and teacher):
                yield Boundary(split, teacher, block, after if after in split.train else None)
