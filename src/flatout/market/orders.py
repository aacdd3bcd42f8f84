"""From an action to one order vector in money, for the three kinds of action.

Every action component lies in [-1, 1], as learners with Gaussian policies want it. `kind` is shape:
it fixes the action's width.

trade             one number per asset: a signed share of the equity to buy or sell (times
                  `trade_size`)
weights           one number per asset, then one for cash: target weights. Long-only, (a + 1) / 2
                  are shares that are
                  divided by their sum; with shorts an asset's share is a itself, and the divisor is
                  the sum of
                  absolute shares
direction_amount  two numbers per asset: direction (buy from 0.3, sell from -0.3, else hold) and
                  amount, (a + 1) / 2
                  of the cash or of the position (with shorts, of position plus largest short)
"""

from flatout.arrays import Array, Namespace
from flatout.market.account import Account
from flatout.market.rules import Limits
from flatout.settings.tables import ActionKind

DIRECTION_THRESHOLD = 0.3


def action_size(kind: ActionKind, n_assets: int) -> int:
    """How many numbers an action has."""
    return {"trade": n_assets, "weights": n_assets + 1, "direction_amount": 2 * n_assets}[kind]


def order_from(
    kind: ActionKind,
    action: Array,
    account: Account,
    worth: Array,
    mark: Array,
    limits: Limits,
    xp: Namespace,
) -> Array:
    """The (asset, ...) order in money at the `mark` prices that an (action, ...) action asks of an
    account.
    """
    action = xp.clip(action, -1.0, 1.0)
    if kind == "trade":
        return action * (limits.trade_size * worth)[None]
    if kind == "weights":
        return target_weights(action, limits, xp) * worth[None] - account.units * mark
    return direction_amount(action, account, worth=worth, mark=mark, limits=limits, xp=xp)


def target_weights(action: Array, limits: Limits, xp: Namespace) -> Array:
    """Target weights of the assets: (asset, ...); what is missing to 1 is cash."""
    asset, cash = action[:-1, ...], (action[-1, ...] + 1) / 2
    share = xp.where(limits.max_short_weight > 0, asset, (asset + 1) / 2)
    total = xp.sum(xp.abs(share), axis=0) + cash
    nothing = total <= 0
    return share / (total + xp.astype(nothing, total.dtype))[None]


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
