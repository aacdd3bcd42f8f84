"""One market under two names is found by what its prices did, whatever the bars look like."""

from dataclasses import replace

import numpy as np
import pytest

from flatout.bars.panel import Panel
from flatout.bars.resample import resample
from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.daily_moves import NONE, DailyMoves, list_daily_moves, move_alike

WALK = RandomWalk(n_bars=24 * 60, seed=1, symbols=("AAA", "BBB")).panel()


def scaled(panel: Panel, factor: np.ndarray) -> Panel:
    prices = {name: getattr(panel, name) * factor for name in ("open", "high", "low", "close")}
    return replace(panel, **prices)


def moves_of(panel: Panel, symbol: str = "AAA", stop: int | None = None) -> DailyMoves:
    return list_daily_moves(panel, panel.n_bars if stop is None else stop)[symbol]


def test_moves_are_those_from_midnight_to_midnight() -> None:
    found = moves_of(WALK)
    opens = WALK.time.astype("datetime64[s]").astype(np.int64)
    ends = np.flatnonzero((opens + WALK.bar_seconds) % 86_400 == 0)
    assert found.first == (opens[ends[0]] + WALK.bar_seconds) // 86_400
    expected = np.rint(np.diff(np.log(WALK.close[ends, 0])) * 1e4)
    np.testing.assert_array_equal(found.decode(), expected)


@pytest.mark.parametrize(
    "other",
    [
        replace(WALK, symbols=("AAA_CLEAN", "BBB")),
        resample(WALK, "4h"),
        resample(WALK, "1d"),
        scaled(WALK, np.full(WALK.close.shape, 1000.0)),
        scaled(WALK, 1 + 1e-5 * np.random.default_rng(0).normal(size=WALK.close.shape)),
        WALK.rows(24 * 20, 24 * 50),
    ],
)
def test_the_same_market_is_recognised(other: Panel) -> None:
    assert move_alike(moves_of(WALK), moves_of(other, other.symbols[0]))


def test_others_are_not() -> None:
    assert not move_alike(moves_of(WALK), moves_of(WALK, "BBB"))
    shaken = scaled(WALK, np.exp(0.01 * np.random.default_rng(0).normal(size=WALK.close.shape)))
    assert not move_alike(moves_of(WALK), moves_of(shaken))  # moves together, and is another
    still = scaled(WALK, 1 / WALK.close)
    assert not move_alike(moves_of(still), moves_of(still))  # what never moves says nothing
    assert not move_alike(moves_of(WALK), moves_of(WALK, stop=24 * 8))  # too few days
    assert list_daily_moves(WALK, 20) == {}


def test_days_without_prices_are_left_out() -> None:
    close = WALK.close.copy()
    close[: 24 * 30, 0] = np.nan
    late = replace(WALK, close=close)
    assert (moves_of(late).decode() == NONE).sum() >= 29
    assert move_alike(moves_of(WALK), moves_of(late))


def test_damaged_moves_are_none() -> None:
    assert len(DailyMoves(0, "not base64!").decode()) == 0
    assert not move_alike(DailyMoves(19_000, "####"), moves_of(WALK))
