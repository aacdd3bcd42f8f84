"""From an action to one order vector in money, for the four kinds of action.

`kind` is shape: it fixes the action's width. Every component of the first three lies in [-1, 1], as
learners with Gaussian policies want it; those of `discrete` are choices, for categorical ones.

trade             one number per asset: a signed share of the equity to buy or sell (times
                  `trade_size`)
weights           one number per asset, then one for cash: target weights. An asset's share is
                  (a + 1) / 2, or a itself where it may be sold short; the share of cash is
                  (a + 1) / 2. Divided by the sum of absolute shares, they are the weights. With
                  shorts and a gross limit above 1 they are multiplied by it, as far as it can be
                  reached: then an action without cash asks for the whole gross limit
direction_amount  two numbers per asset: direction (buy from 0.3, sell from -0.3, else hold) and
                  amount, (a + 1) / 2
                  of the cash or of the position (with shorts, of position plus largest short).
                  The direction has no gradient, the amount has one where something is asked for
discrete          one choice per asset, a whole number from 0: sell, hold or buy. With one size 0
                  sells that share of the equity (times `trade_size`), 1 holds, 2 buys; with more,
                  the largest sale comes first and the largest purchase last. Holding is an answer
                  of its own: nothing is traded, so it costs nothing. Gymnasium's environments
                  refuse numbers that are no choice; elsewhere they hold. No gradient goes through
"""

from collections.abc import Sequence

from flatout.arrays import Array, Namespace, freeze_where
from flatout.market.account import Account
from flatout.market.rules import Limits
from flatout.settings.tables import ActionKind

DIRECTION_THRESHOLD = 0.3
LEAST_ASKED = 1e-6  # sum of the shares of a `weights` action from which on it has a gradient


def action_size(kind: ActionKind, n_assets: int) -> int:
    """How many numbers an action has."""
    return {
        "trade": n_assets,
        "weights": n_assets + 1,
        "direction_amount": 2 * n_assets,
        "discrete": n_assets,
    }[kind]


def order_levels(kind: ActionKind, sizes: Sequence[float]) -> tuple[float, ...]:
    """The shares of the equity among which a `discrete` action chooses, from the largest sale to
    the largest purchase; none for other kinds.

    >>> order_levels("discrete", (0.1, 0.5))
    (-0.5, -0.1, 0.0, 0.1, 0.5)
    """
    if kind != "discrete":
        return ()
    bought = sorted(sizes)
    return (*(-size for size in reversed(bought)), 0.0, *bought)


def order_from(
    kind: ActionKind,
    action: Array,
    account: Account,
    worth: Array,
    mark: Array,
    limits: Limits,
    xp: Namespace,
    levels: tuple[float, ...] = (),
) -> Array:
    """The (asset, ...) order in money at the `mark` prices that an (action, ...) action asks of an
    account; `levels` are those of `order_levels`.
    """
    if kind == "discrete":
        return chosen_levels(action, levels, worth, xp) * (limits.trade_size * worth)[None]
    action = xp.clip(action, -1.0, 1.0)
    if kind == "trade":
        return action * (limits.trade_size * worth)[None]
    if kind == "weights":
        return target_weights(action, limits, xp) * worth[None] - account.units * mark
    return direction_amount(action, account, worth=worth, mark=mark, limits=limits, xp=xp)


def chosen_levels(action: Array, levels: tuple[float, ...], like: Array, xp: Namespace) -> Array:
    """The levels that (asset, ...) whole numbers choose, in the precision of `like`.

    Compared with each in turn: nothing is uploaded, and no index can leave its bounds.
    """
    found = xp.zeros_like(action, dtype=like.dtype)
    for k, level in enumerate(levels):
        found = found + level * xp.astype(action == k, like.dtype)
    return found


def target_weights(action: Array, limits: Limits, xp: Namespace) -> Array:
    """Target weights of the assets: (asset, ...), their absolute values at most `largest_gross`
    together; what is missing to a sum of 1 is cash.

    An action that asks for next to nothing, cash included, has no gradient: it would be as large as
    the action is small.
    """
    asset, cash = action[:-1, ...], (action[-1, ...] + 1) / 2
    share = xp.where(limits.max_short_weight > 0, asset, (asset + 1) / 2)
    total = xp.sum(xp.abs(share), axis=0) + cash
    total = total + xp.astype(total <= 0, total.dtype)
    little = total < LEAST_ASKED
    weights = freeze_where(little[None], share, xp) / freeze_where(little, total, xp)[None]
    return weights * largest_gross(xp.zeros_like(share) + limits.max_short_weight, limits, xp)[None]


def largest_gross(shorts: Array, limits: Limits, xp: Namespace) -> Array:
    """The largest sum of absolute weights that an action can ask for where each asset may be sold
    short up to `shorts` (asset, ...): (...).

    It is the gross limit, but at least 1, which needs no leverage, and not more than can be
    reached: purchases are paid with one's own money, so that is one asset long with all of it and
    the others short, or all of them short. Without shorts it is 1.
    """
    total = xp.sum(shorts, axis=0)
    reached = xp.maximum(1 + total - xp.min(shorts, axis=0), total)
    return xp.clip(xp.minimum(reached, limits.gross_limit + xp.zeros_like(reached)), 1.0, None)


def weights_action(weights: Array, xp: Namespace) -> Array:
    """The `weights` action, long-only, that asks for these weights of the assets (not negative, sum
    at most 1).
    """
    cash = 1 - xp.sum(weights, axis=0, keepdims=True)
    return 2 * xp.concat([weights, cash], axis=0) - 1


def direction_amount(
    action: Array, account: Account, worth: Array, mark: Array, limits: Limits, xp: Namespace
) -> Array:
    direction, amount = action[0::2, ...], (action[1::2, ...] + 1) / 2
    zero = xp.zeros_like(mark)
    buy = amount * xp.clip(account.cash, 0.0, None)[None]
    sell = amount * xp.clip(account.units * mark + limits.max_short_weight * worth[None], 0.0, None)
    return xp.where(direction >= DIRECTION_THRESHOLD, buy, zero) - xp.where(
        direction <= -DIRECTION_THRESHOLD, sell, zero
    )
