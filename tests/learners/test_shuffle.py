"""Shuffles: permutations whatever the noise, the same in every library, and as good as random for
minibatches.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from array_libraries import LIBRARIES, run
from flatout.learners.shuffle import factors, noise_shape, permutation

LARGEST = np.nextafter(np.float32(1), np.float32(0))
ROWS = 8192  # 64 environments x 128 steps
QUARTER, DRAWS = ROWS // 4, 500
APART = (1, 2, 64, 127, 128, 129, 1000, 4096)


def noise_of(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(noise_shape(rows), dtype=np.float32)


def shuffled(noise: np.ndarray, rows: int) -> np.ndarray:
    return permutation(noise, rows, np.int32, np)


@settings(deadline=None)
@given(st.integers(1, 10_000))
def test_factors_are_the_nearest_pair(rows: int) -> None:
    small, large = factors(rows)
    assert small <= large
    assert small * large == rows
    assert not any(rows % k == 0 for k in range(small + 1, int(rows**0.5) + 1))


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.integers(1, 300), st.sampled_from([1, 2, 3, 4, 97, 997, 1024, 2047, 7919, 8192])),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_every_row_comes_exactly_once(rows: int, seed: int, edges: float) -> None:
    """Also where a share of the noise, or all of it, is 0 or the largest number below 1."""
    rng, noise = np.random.default_rng(seed), noise_of(rows, seed)
    noise = np.where(
        rng.random(noise.shape) < edges, rng.choice([np.float32(0), LARGEST], noise.shape), noise
    )
    found = shuffled(noise, rows)
    assert (found.dtype, noise.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(np.sort(found), np.arange(rows))


@pytest.mark.parametrize("rows", [1, 2, 6, 97, 1000, ROWS])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_shuffles_alike(library: str, rows: int) -> None:
    def by_library(noise: Any, xp: Any) -> Any:
        return permutation(noise, rows, xp.int32, xp)

    for noise in (
        noise_of(rows, 1),
        np.zeros(noise_shape(rows), np.float32),
        np.full(noise_shape(rows), LARGEST),
    ):
        found = run(library, by_library, noise)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, shuffled(noise, rows))


def test_a_small_shuffle_by_hand() -> None:
    """Six rows as 2 x 3; each round moves the columns 0, 1, 2 by 1, 0, 1 places and then the rows
    0, 1 by 2, 1.
    """
    table = np.arange(6).reshape(2, 3)
    noise = np.float32([[0.5, 0.49, 0.99, 0.99, 0.6]] * 3)
    where = {}
    for start in range(6):
        row, column = divmod(start, 3)
        for _ in range(3):
            row = (row + (1, 0, 1)[column]) % 2
            column = (column + (2, 1)[row]) % 3
        where[start] = table[row, column]
    assert shuffled(noise, 6).tolist() == [where[k] for k in range(6)]


def test_without_noise_nothing_moves() -> None:
    np.testing.assert_array_equal(
        shuffled(np.zeros(noise_shape(12), np.float32), 12), np.arange(12)
    )


def test_every_number_of_the_noise_matters() -> None:
    """None could be left out, and the rounds differ."""
    noise = noise_of(ROWS, 2)
    first = shuffled(noise, ROWS)
    for index in np.ndindex(noise.shape):
        other = noise.copy()
        other[index] = (other[index] + 0.5) % 1
        assert np.any(shuffled(other, ROWS) != first), index


def test_other_noise_gives_a_shuffle_that_has_nothing_to_do_with_the_first() -> None:
    """Two random permutations agree in about one place."""
    agreements = [
        np.sum(shuffled(noise_of(ROWS, k), ROWS) == shuffled(noise_of(ROWS, k + 1), ROWS))
        for k in range(50)
    ]
    assert abs(np.mean(agreements) - 1) < 4 / np.sqrt(50)


@pytest.fixture(scope="module")
def quarters() -> np.ndarray:
    """(draw, row): the minibatch that each row lands in."""
    found = np.empty((DRAWS, ROWS), np.int8)
    for k in range(DRAWS):
        found[k, shuffled(noise_of(ROWS, 1000 + k), ROWS)] = np.arange(ROWS) // QUARTER
    return found


def test_every_row_lands_in_every_minibatch_equally_often(quarters: np.ndarray) -> None:
    """Chi-square of each row's four counts; no row of all is an exception."""
    counts = np.stack([np.sum(quarters == k, axis=0) for k in range(4)])
    statistic = np.sum((counts - DRAWS / 4) ** 2 / (DRAWS / 4), axis=0)
    assert statistic.max() < chi2.isf(0.01 / ROWS, df=3)
    assert abs(statistic.mean() - 3) < 0.15


@pytest.mark.parametrize("apart", APART)
def test_neighbours_share_a_minibatch_as_often_as_independent_rows(
    quarters: np.ndarray, apart: int
) -> None:
    """On average over all draws, for each pair of rows, and with the spread from draw to draw that
    chance has.
    """
    together = quarters[:, apart:] == quarters[:, :-apart]
    pairs, chance = together.shape[1], (QUARTER - 1) / (ROWS - 1)
    spread = np.sqrt(chance * (1 - chance))
    assert abs(together.mean() - chance) < 4 * spread / np.sqrt(together.size)
    rare = 0.01 / (2 * pairs * len(APART))  # one of a hundred seeds would fail by chance
    counts = together.sum(axis=0)
    assert binom.ppf(rare, DRAWS, chance) <= counts.min()
    assert counts.max() <= binom.isf(rare, DRAWS, chance)
    assert together.mean(axis=1).std() * np.sqrt(pairs) / spread == pytest.approx(
        1, abs=4 / np.sqrt(2 * DRAWS)
    )
