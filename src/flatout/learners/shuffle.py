"""Permutations by arithmetic: every engine shuffles minibatches alike, from given noise and without
sorting.

Rows are laid out as an a x b table. A round shifts every column by a random amount, then every row
by another: a Feistel network over mixed radices, which is a bijection for any a and b. Its round
functions are small tables of random numbers, so a few rounds give a permutation that is as good as
random where a and b are of similar size. A number of rows without such factors (a prime) is hardly
shuffled; rollouts of n_envs x n_steps have them.
"""

import math

from flatout.arrays import Array, Namespace

ROUNDS = 3


def factors(rows: int) -> tuple[int, int]:
    """The two factors of the number of rows that lie nearest to each other, the smaller first."""
    small = next(k for k in range(math.isqrt(rows), 0, -1) if rows % k == 0)
    return small, rows // small


def noise_shape(rows: int) -> tuple[int, int]:
    """Shape of the uniform noise in [0, 1) that one permutation needs."""
    return ROUNDS, sum(factors(rows))


def permutation(noise: Array, rows: int, integer: object, xp: Namespace) -> Array:
    """A permutation of 0 .. rows - 1, as an array of the given integer type."""
    a, b = factors(rows)
    row, column = (xp.arange(rows, dtype=integer) // b, xp.arange(rows, dtype=integer) % b)
    for k in range(ROUNDS):
        by_column = xp.astype(xp.floor(noise[k, :b] * a), integer)
        by_row = xp.astype(xp.floor(noise[k, b:] * b), integer)
        row = wrap(row + xp.take(by_column, column, axis=0), a, xp)
        column = wrap(column + xp.take(by_row, row, axis=0), b, xp)
    return row * b + column


def wrap(x: Array, n: int, xp: Namespace) -> Array:
    """x modulo n, for x below 2 n: cheaper than a division."""
    return xp.where(x >= n, x - n, x)
