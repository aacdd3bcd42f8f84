"""`Accounts`: the accounts of a backtest at the close of a bar, as the market keeps them.

A learned policy is shown them through `observe`, exactly as in training, and its actions become
orders through `order`, exactly as in training. The tape is cut at the present: what is not known
yet is not in it.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, map_leaves
from flatout.features.recipe import FittedRecipe
from flatout.market import episode
from flatout.market.episode import Episode, Shape
from flatout.market.orders import order_from
from flatout.market.rules import Rules
from flatout.market.tape import Tape
from flatout.settings.tables import ActionKind

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Accounts:
    """Some accounts, and what is known when they decide."""

    state: Episode  # leaves end in (account,)
    mark: Floats  # (asset, account) closes of now
    tape: Tape  # up to now
    rules: Rules
    shape: Shape
    fitted: FittedRecipe  # what the tape's features were made with

    @property
    def equity(self) -> Floats:
        """Worth of each account: (account,)."""
        return np.asarray(self.state.marks.equity)

    def observe(self) -> Floats:
        """What the agent sees of the market and of each account: (account, observation)."""
        return np.asarray(
            episode.observe(self.state, self.tape, shape=self.shape, rules=self.rules, xp=np)
        )

    def order(self, action: Array) -> Floats:
        """The (account, asset) order in money that (account, action) actions of the market's own
        kind ask for.
        """
        return self._order(self.shape.action, action, self.rules)

    def order_shares(self, shares: Array) -> Floats:
        """The (account, asset) order in money for signed shares of the equity, at most all of
        it.
        """
        limits = self.rules.limits._replace(trade_size=np.asarray(1.0))
        return self._order("trade", shares, self.rules._replace(limits=limits))

    def _order(self, kind: ActionKind, action: Array, rules: Rules) -> Floats:
        wanted = np.asarray(action, np.float64).T
        return np.asarray(
            order_from(
                kind,
                wanted,
                account=self.state.account,
                worth=self.equity,
                mark=self.mark,
                limits=rules.limits,
                xp=np,
                levels=self.shape.levels,
            )
        ).T

    def part(self, chosen: slice) -> "Accounts":
        """Some of the accounts, with what is known to them."""
        return replace(
            self,
            state=map_leaves(lambda leaf: leaf[..., chosen], self.state),
            mark=self.mark[:, chosen],
        )


def known_tape(tape: Tape, t: int) -> Tape:
    """The tape as far as it is known at the close of bar t; its entry t would hold the bar that
    comes next.
    """
    return Tape(tape.columns[:, :t], tape.features[: t + 1])
