"""`Account`: what a trader owns, relative to the starting capital, and what the rules need to
remember about it.

The asset axis comes first and the axes behind it are free: one account, a batch, a population. So
accounts lie side by side in memory and sums over the few assets run over long vectors; with the
asset axis last they are several times slower on a CPU, in NumPy as in XLA. Equity starts at 1, so
float32 is enough.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace


class Account(NamedTuple):
    """Money and positions. Counters are floats: whole numbers are exact up to 2**24."""

    cash: Array  # (...)
    units: Array  # (asset, ...) signed; units of the asset per unit of starting capital
    # (asset, ...) best price since entry: the trailing stop hangs on it; no meaning when flat
    best: Array
    held: Array  # (asset, ...) bars since entry or since the last forced reduction
    cooldown: Array  # (asset, ...) bars left in which the position may not grow
    # (...) traded notional of the last 30 days, exponentially forgotten: decides the fee tier
    volume: Array


def open_account(prices: Array, xp: Namespace) -> Account:
    """A fresh account in cash, shaped and typed like the (asset, ...) prices."""
    none = xp.zeros_like(prices)
    zero = xp.sum(none, axis=0)
    return Account(cash=zero + 1, units=none, best=none + 1, held=none, cooldown=none, volume=zero)


def equity(account: Account, prices: Array, xp: Namespace) -> Array:
    """What the account is worth at the given prices: (...)."""
    return account.cash + xp.sum(account.units * prices, axis=0)
