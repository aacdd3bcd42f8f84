"""Folds for the tests: by purge and embargo alone, and drawn at random; and the rule of training
bars, bar by bar.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout.folds.blocks import Block
from flatout.folds.splits import Folds, Split, make_folds
from flatout.settings.study import FoldSettings

KINDS = ["cpcv", "kfold", "walk_forward", "anchored"]


def bars_of(blocks: Iterable[Block]) -> list[int]:
    return [bar for block in blocks for bar in range(block.first, block.stop)]


def plain_folds(
    kind: str, n_bars: int, purge: int, embargo: int, warm: int = 0, **settings: Any
) -> Folds:
    """Folds whose purge and embargo are the defaults, without a hold-out unless it is asked for."""
    return make_folds(
        FoldSettings(kind=kind, **{"hold_out": 0.0, **settings}),
        n_bars,
        warm,
        purge - 1,
        1,
        embargo,
    )


class Request(NamedTuple):
    """The arguments of make_folds."""

    settings: FoldSettings
    n_bars: int
    warm: int
    fill_delay: int
    reward_horizon: int
    lookback: int


@st.composite
def requests(draw: st.DrawFn, kinds: list[str] = KINDS) -> Request:
    """Requests that are in order but for the bars, of which there may be too few to train."""
    groups = draw(st.integers(2, 7))
    fill_delay, horizon, lookback = (
        draw(st.integers(0, 2)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 8)),
    )
    more_purge = draw(st.none() | st.integers(0, 3))
    more_embargo = draw(st.none() | st.integers(0, 5))
    warm = draw(st.integers(0, 20))
    judged = draw(st.integers(2 * groups, 30 * groups))
    sealed = draw(st.just(0) | st.integers(2, 40))
    n_bars = warm + judged + sealed
    settings = FoldSettings(
        kind=draw(st.sampled_from(kinds)),
        groups=groups,
        test_groups=draw(st.integers(1, groups - 1)),
        train_groups=draw(st.integers(1, groups - 1)),
        purge_bars=None if more_purge is None else fill_delay + horizon + more_purge,
        embargo_bars=None if more_embargo is None else lookback + more_embargo,
        hold_out=sealed / n_bars,
    )
    return Request(settings, n_bars, warm, fill_delay, horizon, lookback)


@st.composite
def any_folds(draw: st.DrawFn, kinds: list[str] = KINDS) -> Folds:
    """Folds of requests with enough bars."""
    try:
        return make_folds(*draw(requests(kinds)))
    except SettingsError:
        reject()


def training_bars(
    window: range, tests: set[int], sealed: range, purge: int, embargo: int
) -> list[int]:
    """The rule, bar by bar: no judged bar within `purge` bars ahead or `embargo` behind, and never
    a bar alone.
    """
    judged = tests | set(sealed)
    free = {
        bar
        for bar in window
        if judged.isdisjoint(range(bar, bar + purge + 1))
        and tests.isdisjoint(range(bar - embargo, bar))
    }
    return sorted(bar for bar in free if bar - 1 in free or bar + 1 in free)


def window_of(settings: FoldSettings, groups: list[np.ndarray], tests: tuple[int, ...]) -> range:
    """The bars a split may learn from, were there no gaps."""
    if settings.kind in ("cpcv", "kfold"):
        return range(groups[0][0], groups[-1][-1] + 1)
    oldest = 0 if settings.kind == "anchored" else tests[0] - settings.train_groups
    return range(groups[oldest][0], groups[tests[0]][0])


def split_bars(split: Split) -> tuple[list[int], list[int]]:
    return bars_of(split.train), bars_of(split.test)
