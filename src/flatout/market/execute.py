"""What happens to an account when an order meets a bar: the one market of flatout.

Pure functions of (account, order, bar, costs, limits, xp), written against the array API standard: NumPy, PyTorch and JAX run this
text. It knows nothing of agents, features, rewards or episodes.

Within a bar (DESIGN: market semantics): at the fill price, forced reductions and closing orders, then opening orders under one
joint budget, scaled pro rata; during the bar, trailing stops against the worst case; at the close, borrow costs and the mark.

Invariants, each a property test: cash never falls below zero without shorts; the change of equity is the profit of the positions
minus the costs; a zero order changes nothing; permuting assets permutes the result; a round trip at a constant price loses exactly
the costs; costs are never negative.
"""

from typing import Literal, NamedTuple

from flatout.arrays import Array, Namespace
from flatout.market.account import Account, equity
from flatout.market.rules import Costs, Limits

Fill = Literal["next_open", "next_close", "same_close"]

LOT_SLACK = 1e-3  # lots that may be missing: a tenth of ten lots is one lot, although floats may say 0.99999
DUST = 1e-6  # of the capital: what rounding leaves of an exhausted budget is no order
MOST_SLIPPAGE = 0.5  # keeps prices positive whatever the impact coefficient


class Bar(NamedTuple):
    """The bar that an order meets; every field is (asset, ...)."""

    open: Array
    high: Array
    low: Array
    close: Array
    volume: Array  # units per unit of starting capital; 0 = not tradable
    impact_rate: Array  # volatility / sqrt(volume): price impact of one unit to the power of 1/2


class Trade(NamedTuple):
    """What was filled; every field is (asset, ...)."""

    units: Array  # signed
    price: Array  # before costs
    cash: Array  # signed cash flow, costs included


def gate(values: Array, allowed: Array, xp: Namespace) -> Array:
    """The values where allowed, else zero. A product: several times faster in NumPy than `where`, the same elsewhere."""
    return values * xp.astype(allowed, values.dtype)


def sides(units: Array, xp: Namespace) -> Array:
    """1 for long and flat, -1 for short positions."""
    return 1 - 2 * xp.astype(units < 0, units.dtype)


def above_zero(values: Array, xp: Namespace) -> Array:
    return xp.clip(values, 0.0, None)


def trade_cost(trade: Trade) -> Array:
    """Fee, spread and impact paid on each asset, never negative: (asset, ...)."""
    return -(trade.cash + trade.units * trade.price)


def fee_rate(account: Account, costs: Costs, xp: Namespace) -> Array:
    """The fee of the last tier whose 30-day volume is reached: (...)."""
    fees = costs.taker_fee + costs.maker_share * (costs.maker_fee - costs.taker_fee)
    rate = fees[0] + xp.zeros_like(account.volume)
    for tier in range(1, fees.shape[0]):
        rate = xp.where(account.volume >= costs.tier_volume[tier], fees[tier], rate)
    return rate


def slippage(size: Array, bar: Bar, costs: Costs, xp: Namespace) -> Array:
    """Half spread plus impact for an order of this size (units), as a fraction of the price."""
    rate = costs.half_spread + costs.impact * bar.impact_rate * xp.sqrt(size)
    return xp.clip(rate, None, MOST_SLIPPAGE)


def cash_flow(notional: Array, heading: Array, slip: Array, fee: Array) -> Array:
    """Cash that comes in (or, negative, goes out) when `notional` is traded: -notional * (1 + heading slip) * (heading + fee).

    Multiplied out, so that single precision keeps small rates: 1 + 1e-6 would lose a tenth of them, always to the same side.
    """
    return -heading * notional - notional * (slip + fee[None] + heading * slip * fee[None])


def feasible(size: Array, price: Array, limits: Limits, xp: Namespace) -> Array:
    """Sizes (units, not negative) rounded toward zero to whole lots, and dropped below the minimum notional."""
    stepped = limits.lot_step > 0
    step = xp.where(stepped, limits.lot_step, 1.0)
    lots = xp.floor(size / step + LOT_SLACK)
    rounded = xp.where(stepped, xp.minimum(lots * step, size), size)
    return gate(rounded, rounded * price >= xp.clip(limits.min_notional, DUST, None), xp)


def reduction(size: Array, wanted: Array, price: Array, limits: Limits, xp: Namespace) -> Array:
    """How much of a position of this size is closed; all of it may always be closed, whatever lots and minimum say."""
    closing = xp.minimum(wanted, size)
    return xp.where(closing >= size, closing, feasible(closing, price, limits, xp))


def reduce(
    account: Account, closing: Array, price: Array, bar: Bar, fee: Array, costs: Costs, xp: Namespace
) -> tuple[Account, Trade]:
    """Close `closing` units of each position at `price`."""
    side = sides(account.units, xp)
    slip = slippage(closing, bar, costs, xp)
    notional = closing * price
    cash = cash_flow(notional, -side, slip, fee)
    units = -side * closing
    after = account._replace(
        cash=account.cash + xp.sum(cash, axis=0),
        units=account.units + units,
        volume=account.volume + xp.sum(notional, axis=0),
    )
    return after, Trade(units, price, cash)


def affordable(
    account: Account, opening: Array, heading: Array, closed: Array, price: Array,
    bar: Bar, fee: Array, costs: Costs, limits: Limits, xp: Namespace,
) -> Array:  # fmt: skip
    """Cut opening sizes to the weight limits and, all by one factor, to the free cash and the gross limit.

    Judged at the fill price, after the reductions and before the costs of the openings.
    """
    held = xp.abs(account.units)
    worth = equity(account, price, xp)
    short = xp.astype(heading < 0, price.dtype)
    cap = xp.where(heading > 0, limits.max_weight, limits.max_short_weight)
    opening = xp.minimum(opening, cap * worth[None] / price - held)
    opening = gate(above_zero(opening, xp), account.cooldown <= 0, xp)

    notional = opening * price
    slip = slippage(closed + opening, bar, costs, xp)
    # A buy needs its whole cost; a short sale brings cash, which stays locked, and needs its costs only.
    needed = short * notional - cash_flow(notional, heading, slip, fee)
    locked = xp.sum(above_zero(-account.units * price, xp), axis=0)
    cash_share = share_of(account.cash - locked - limits.reserve * worth, xp.sum(needed, axis=0), xp)
    gross_room = limits.gross_limit * worth - xp.sum(held * price, axis=0)
    gross_share = share_of(gross_room, xp.sum(notional, axis=0), xp)
    # Impact falls with size, so the cut order never costs more than its share of `needed`.
    return feasible(opening * xp.minimum(cash_share, gross_share)[None], price, limits, xp)


def share_of(available: Array, needed: Array, xp: Namespace) -> Array:
    """Which share of `needed` is `available`, between 0 and 1, a few roundings on the safe side."""
    number = xp.finfo(needed.dtype)
    available = xp.clip(available * (1 - 4 * float(number.eps)), float(number.smallest_normal), None)
    return available / xp.maximum(available, needed)


def grow(
    account: Account, opening: Array, heading: Array, closed: Array, price: Array,
    bar: Bar, fee: Array, costs: Costs, limits: Limits, xp: Namespace,
) -> tuple[Account, Trade]:  # fmt: skip
    """Open or enlarge positions by `opening` units in the direction `heading`, as far as the limits allow.

    `closed` units of the same order were filled before and have moved the price already.
    """
    opening = affordable(account, opening, heading, closed, price, bar, fee, costs, limits, xp)
    slip = slippage(closed + opening, bar, costs, xp)
    notional = opening * price
    cash = cash_flow(notional, heading, slip, fee)
    units = heading * opening
    after = account._replace(
        cash=account.cash + xp.sum(cash, axis=0),
        units=account.units + units,
        best=xp.where(account.units == 0, price, account.best),
        volume=account.volume + xp.sum(notional, axis=0),
    )
    return after, Trade(units, price, cash)


def fill_order(
    account: Account, wanted: Array, price: Array, room: Array,
    bar: Bar, fee: Array, costs: Costs, limits: Limits, xp: Namespace,
) -> tuple[Account, Trade]:  # fmt: skip
    """Fill an order of `wanted` units at `price`, at most `room` units: reductions first, then what opens or grows.

    An order larger than the position against it closes it and opens the other side with the rest.
    """
    size = xp.abs(account.units)
    side = sides(account.units, xp)
    along = wanted * side  # positive: grow, negative: reduce
    overdue = account.held >= limits.max_held_bars
    along = xp.where(overdue, xp.minimum(along, -limits.forced_share * size), along)
    along = xp.minimum(xp.maximum(along, -room), room)

    closing = reduction(size, above_zero(-along, xp), price, limits, xp)
    after, closed = reduce(account, closing, price, bar, fee, costs, xp)
    after = after._replace(held=gate(account.held, (after.units != 0) & ~(overdue & (closing > 0)), xp))

    heading = side * (2 * xp.astype(along > 0, side.dtype) - 1)
    opening = xp.maximum(along, -along - size)  # at most one of the two is positive
    after, opened = grow(after, opening, heading, closing, price, bar, fee, costs, limits, xp)
    return after, Trade(closed.units + opened.units, price, closed.cash + opened.cash)


def stop_out(
    account: Account, room: Array, bar: Bar, fee: Array, costs: Costs, limits: Limits, xp: Namespace
) -> tuple[Account, Trade]:
    """Close positions whose trailing stop is touched, at the stop or at the open if the bar opens beyond it.

    Which of high and low came first is unknown, so the worse is assumed: the adverse extreme is met before the favourable one can
    move the stop.
    """
    size = xp.abs(account.units)
    side = sides(account.units, xp)
    long = side > 0
    level = account.best * (1 - side * limits.trailing_stop)
    hit = ((xp.where(long, bar.low, bar.high) - level) * side <= 0) & (size > 0)
    price = xp.where((bar.open - level) * side <= 0, bar.open, level)
    closing = gate(reduction(size, room, price, limits, xp), hit, xp)
    after, stopped = reduce(account, closing, price, bar, fee, costs, xp)
    after = after._replace(
        best=xp.where(long, xp.maximum(account.best, bar.high), xp.minimum(account.best, bar.low)),
        held=gate(account.held + 1, after.units != 0, xp),
        cooldown=xp.where(closing > 0, limits.cooldown_bars, above_zero(account.cooldown - 1, xp)),
    )
    return after, stopped


def pay_borrow(account: Account, prices: Array, costs: Costs, xp: Namespace) -> Account:
    """Charge short positions and negative cash for the bar."""
    shorts = xp.sum(above_zero(-account.units * prices, xp), axis=0)
    return account._replace(cash=account.cash - costs.borrow * (shorts + above_zero(-account.cash, xp)))


def execute(
    account: Account, order: Array, mark: Array, bar: Bar, costs: Costs, limits: Limits, fill: Fill, xp: Namespace
) -> tuple[Account, tuple[Trade, Trade]]:
    """Carry an order (money per asset, at the `mark` prices known when it was made) through one bar.

    Returns the account at the bar's close and what was traded, by order and by stop. `fill` is shape, not data.
    """
    fee = fee_rate(account, costs, xp)
    account = account._replace(volume=account.volume * costs.volume_memory)
    wanted = order / mark
    room = limits.participation * bar.volume
    if fill == "next_close":
        account, stopped = stop_out(account, room, bar, fee, costs, limits, xp)
        room = room - xp.abs(stopped.units)
        account, traded = fill_order(account, wanted, bar.close, room, bar, fee, costs, limits, xp)
    else:
        price = bar.open if fill == "next_open" else mark
        account, traded = fill_order(account, wanted, price, room, bar, fee, costs, limits, xp)
        room = room - xp.abs(traded.units)
        account, stopped = stop_out(account, room, bar, fee, costs, limits, xp)
    return pay_borrow(account, bar.close, costs, xp), (traded, stopped)
