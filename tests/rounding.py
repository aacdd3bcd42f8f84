"""How far two right computations of the same number may lie apart; every tolerance of the suite
follows from here.

Each operation rounds its result by at most half a unit in the last place: eps / 2 of its size.
Another CPU, another library or another shape of array adds the same terms in another order (vectors
of 4, 8 or 16, fused multiply-add, the blocks of a BLAS, threads) and rounds elsewhere. The results
differ by some roundings of the size of *what was summed*, however small the sum is: 0.0036 that was
summed from terms near 1 is known to 1e-7, not to 1e-7 of 0.0036. Hence

    tolerance = roundings x eps of the type x size of what was summed

and never a relative part alone. How many roundings:

- a formula: its operations, counted along the longest chain;
- a sum or a product of matrices: its terms;
- exp, log, tanh, erf of a compiler's or a vector library's own: up to 8 each;
- a chain (bars, layers, minibatches): those of one link times its links, as long as no link
  enlarges what came in.

Doubling the count costs a test nothing: the faults it was made for lie orders of magnitude above
(the table in `planted_faults/` shows it). Counting too few costs somebody else a red suite. What no
count can cover:

- a comparison in the market (a lot step, a stop) that falls the other way in float32: compare whole
  trajectories in
  float64, or allow for a share of flips;
- Adam divides a gradient by its own size: one that is nearly zero moves a weight by a whole
  learning rate in either
  direction. Compare in float64, or allow for steps of the learning rate;
- samples: their tolerance is a number of standard errors, not of roundings.

To the bit equal are only results of one program on one machine.
"""

from typing import Any

import numpy as np
import pytest


def eps_of(*values: Any) -> float:
    """The unit of rounding of the coarsest type among these; Python's numbers are float64."""
    types = [np.asarray(value).dtype for value in values]
    return max(
        float(np.finfo(t).eps) if t.kind in "fc" else float(np.finfo(np.float64).eps) for t in types
    )


def tolerance(roundings: float, size: Any = 1.0, dtype: Any = np.float64) -> Any:
    """So many roundings in this type of numbers of this size."""
    return roundings * float(np.finfo(dtype).eps) * np.abs(size)


def assert_close(
    found: Any,
    expected: Any,
    *,
    roundings: float,
    size: Any = None,
    dtype: Any = None,
    name: str = "",
) -> None:
    """Equal but for so many roundings, relative to the size of what was summed.

    `size` is a number or an array that broadcasts against `expected`; without it, the largest
    finite number there. `dtype` is what was computed in, without it the coarser type of both sides:
    name it where a float64 array holds what was computed in float32. Infinite numbers and NaN must
    stand in the same places.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (
        f"{name}: shapes {found.shape} and {expected.shape} differ"
    )
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite], err_msg=name)
    if size is None:
        size = np.max(np.abs(expected), initial=0.0, where=finite)
    eps = eps_of(found, expected) if dtype is None else float(np.finfo(dtype).eps)
    allowed = np.broadcast_to(roundings * eps * np.abs(size), expected.shape)[finite]
    assert np.all((allowed >= 0) & np.isfinite(allowed)), (
        f"{name}: nothing follows from {roundings=} and {size=}"
    )
    found, expected = found[finite], expected[finite]
    gap = np.abs(found.astype(np.float64) - expected)
    is_close = gap <= allowed  # what is not a number is not
    if not np.all(is_close):
        worst = int(
            np.argmax(np.where(is_close, -np.inf, np.nan_to_num(gap, nan=np.inf) - allowed))
        )
        raise AssertionError(
            f"{name}{': ' if name else ''}{found[worst]!r} and {expected[worst]!r} lie "
            f"{gap[worst]:.3g} apart, {allowed[worst]:.3g} is allowed ({np.sum(~is_close)} of "
            f"{gap.size} numbers are too far off)"
        )


def close_to(
    expected: Any, *, roundings: float, size: float | None = None, dtype: Any = np.float64
) -> Any:
    """The same for a number or a list inside a larger comparison: `assert (a, b) == (1, close_to(x,
    roundings=8))`.
    """
    size = (
        float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
        if size is None
        else size
    )
    return pytest.approx(expected, rel=0.0, abs=float(tolerance(roundings, size, dtype)))
