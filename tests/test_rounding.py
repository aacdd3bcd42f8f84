"""The tolerances themselves: what they let pass and what not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rounding import assert_close, close_to, eps_of, tolerance

EPS32 = float(np.finfo(np.float32).eps)


@given(arrays(np.float32, st.integers(1, 60), elements=st.floats(-1, 1, width=32)), st.randoms())
def test_sums_in_another_order_are_close(terms: np.ndarray, random: object) -> None:
    """However small the sum is: the terms' size counts."""
    other = list(terms)
    random.shuffle(other)  # type: ignore[attr-defined]
    one, two = np.float32(0), np.float32(0)
    for a, b in zip(terms, other, strict=True):
        one, two = one + a, two + b
    assert_close(one, two, roundings=terms.size, size=np.abs(terms).sum())


def test_a_small_difference_of_large_numbers_is_compared_by_their_size() -> None:
    found, expected = np.float32(0.0036), np.float32(0.0036) + np.float32(3.7e-8)
    assert_close(found, expected, roundings=4, size=1.0)
    with pytest.raises(AssertionError, match="apart"):
        assert_close(found, expected, roundings=4)


@pytest.mark.parametrize(
    "wrong", [[1.0, 2.0 + 12 * EPS32], [1.0, np.nan], [1.0, np.inf], [1.0, -2.0]]
)
def test_what_is_further_off_is_told(wrong: list[float]) -> None:
    expected = np.array([1.0, 2.0], np.float32)
    assert_close(np.array([1.0, 2.0 + 8 * EPS32], np.float32), expected, roundings=4)
    with pytest.raises(AssertionError):
        assert_close(np.array(wrong, np.float32), expected, roundings=4)


def test_infinite_numbers_must_be_the_same() -> None:
    assert_close([np.inf, np.nan, 1.0], [np.inf, np.nan, 1.0], roundings=1)
    with pytest.raises(AssertionError):
        assert_close([np.inf], [-np.inf], roundings=1)


def test_shapes_must_be_the_same() -> None:
    for other in (np.ones(2), np.ones((3, 1)), 1.0, np.ones(0)):
        with pytest.raises(AssertionError, match="shape"):
            assert_close(np.ones(3), other, roundings=1)
    with pytest.raises(ValueError, match="broadcast"):
        assert_close(1.0, 1.0, roundings=1, size=np.ones(3))


@pytest.mark.parametrize(("roundings", "size"), [(1, np.nan), (1, np.inf), (np.nan, 1), (-1, 1)])
def test_what_allows_anything_allows_nothing(roundings: float, size: float) -> None:
    with pytest.raises(AssertionError, match="nothing follows"):
        assert_close([1.0], [1.0], roundings=roundings, size=size)


def test_what_is_infinite_on_one_side_only_is_told() -> None:
    for found, expected in (
        ([np.nan, 1.0], [2.0, 1.0]),
        ([2.0, 1.0], [np.nan, 1.0]),
        ([np.inf, 1.0], [2.0, 1.0]),
    ):
        with pytest.raises(AssertionError):
            assert_close(found, expected, roundings=10)


def test_the_coarser_type_counts_and_whole_numbers_are_exact() -> None:
    assert eps_of(np.ones(1, np.float32), 1.0) == EPS32
    assert eps_of(1, 2.0) == np.finfo(np.float64).eps
    assert tolerance(2, 3.0, np.float32) == 6 * EPS32


def test_one_number_inside_a_larger_comparison() -> None:
    assert ("a", 1.0 + 3 * np.finfo(float).eps) == ("a", close_to(1.0, roundings=4))
    assert close_to(1.0, roundings=4) != 1.0 + 5 * np.finfo(float).eps
    assert close_to([1.0, np.inf], roundings=1) != [99.0, np.inf]
