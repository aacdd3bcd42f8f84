"""What happens to an account when an order meets a bar: the one market of flatout.

Pure functions of (account, order, bar, costs, limits, xp), written against the array API standard:
NumPy, PyTorch and JAX run this text. It knows nothing of agents, features, rewards or episodes.

Within a bar: at the fill price, forced reductions and closing orders, then opening orders under one
joint budget, scaled pro rata; during the bar, trailing stops, which follow the open, then meet the
adverse extreme before the favourable one, and let nothing last that no path through the bar keeps;
at the close, borrow costs and the mark.

Invariants, each a property test: cash never falls below zero without shorts; the change of equity
is the profit of the positions minus the costs; a zero order changes nothing; permuting assets
permutes the result; a round trip at a constant price loses exactly the costs; costs are never
negative.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace, square_root, straight_through
from flatout.market.account import Account
from flatout.market.rules import Costs, Limits
from flatout.settings.tables import Fill

# lots that may be missing: a tenth of ten lots is one lot, although floats may say 0.99999
LOT_SLACK = 1e-3
DUST = 1e-6  # of the capital: what rounding leaves of an exhausted budget is no order
LEAST_AVAILABLE = 1e-18  # of the capital; buys nothing: 1e-12 of the smallest order
MOST_SLIPPAGE = 0.5  # keeps prices positive whatever the impact coefficient


class Bar(NamedTuple):
    """The bar that an order meets; every field is (asset, ...)."""

    open: Array
    high: Array
    low: Array
    close: Array
    volume: Array  # units per unit of starting capital; 0 = not tradable
    impact_rate: Array  # volatility / sqrt(volume): price impact of one unit to the power of 1/2


class TradingRates(NamedTuple):
    """What trading costs one account in one bar; every field meets (asset, ...) arrays."""

    fee: Array
    half_spread: Array
    impact: Array  # of one unit to the power of 1/2


class Trade(NamedTuple):
    """What was filled; every field is (asset, ...)."""

    units: Array  # signed
    price: Array  # before costs
    notional: Array  # |units| * price
    cash: Array  # signed cash flow, costs included


class Executed(NamedTuple):
    """What happened in one bar."""

    traded: Trade  # by the order and by forced reductions
    stopped: Trade  # by trailing stops
    notional: Array  # (...) of both together


def gate(values: Array, allowed: Array, xp: Namespace) -> Array:
    """The values where allowed, else zero; a product, because NumPy's `where` is several times
    slower.
    """
    return values * xp.astype(allowed, values.dtype)


def sides(units: Array, xp: Namespace) -> Array:
    """1 for long, -1 for short positions; either where there is none."""
    return xp.copysign(xp.ones_like(units), units)


def above_zero(values: Array, xp: Namespace) -> Array:
    """The values, zero where they are negative."""
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


def trading_rates(account: Account, bar: Bar, costs: Costs, xp: Namespace) -> TradingRates:
    """What trading costs this account in this bar."""
    return TradingRates(
        fee_rate(account, costs, xp)[None], costs.half_spread, costs.impact * bar.impact_rate
    )


def cost_rate(size: Array, rates: TradingRates, xp: Namespace) -> Array:
    """Fee, half spread and impact for an order of this size (units), as a fraction of its
    notional.
    """
    impact = rates.impact * square_root(size, xp)
    return xp.clip(rates.half_spread + impact, None, MOST_SLIPPAGE) + rates.fee


def whole_lots(size: Array, limits: Limits, xp: Namespace) -> Array:
    """Sizes (units, not negative) rounded toward zero to whole lots; any size where there are no
    lots. The gradient goes straight through, as if there were none: that of a staircase is 0.
    """
    stepped = limits.lot_step > 0
    step = limits.lot_step + xp.astype(~stepped, size.dtype)
    lots = xp.floor(size / step + LOT_SLACK)
    return straight_through(xp.where(stepped, xp.minimum(lots * step, size), size), size)


def least_notional(limits: Limits, xp: Namespace) -> Array:
    """The smallest order that is one."""
    return xp.clip(limits.min_notional, DUST, None)


def feasible(size: Array, price: Array, limits: Limits, xp: Namespace) -> Array:
    """Sizes (units, not negative) rounded toward zero to whole lots, and dropped below the minimum
    notional, where the gradient is 0.
    """
    rounded = whole_lots(size, limits, xp)
    return gate(rounded, rounded * price >= least_notional(limits, xp), xp)


def forced_reduction(size: Array, price: Array, limits: Limits, xp: Namespace) -> Array:
    """How much of a position of this size, held too long, is sold by force.

    It is `forced_share` of the position in whole lots, rounded toward zero, but at least one lot;
    and all of the position if that part, or the rest that it leaves, is worth less than the minimum
    notional (or if there is less than one lot). So each forced reduction sells something that can
    be sold, and ten whole shares at 5 % lose one share each time. A share of 0 sells nothing.

    The gradient in the size is that of the branch taken: the share, 0 where it is one lot, or 1.
    """
    part = xp.maximum(whole_lots(limits.forced_share * size, limits, xp), limits.lot_step)
    small = xp.minimum(part, size - part) * price < least_notional(limits, xp)
    return gate(xp.where(small, size, part), limits.forced_share > 0, xp)


def reduction(size: Array, wanted: Array, price: Array, limits: Limits, xp: Namespace) -> Array:
    """How much of a position of this size is closed; all of it may always be closed, whatever lots
    and minimum say.
    """
    closing = xp.minimum(wanted, size)
    return xp.where(closing >= size, closing, feasible(closing, price, limits, xp))


def reduce(
    account: Account, side: Array, closing: Array, price: Array, rates: TradingRates, xp: Namespace
) -> tuple[Account, Trade]:
    """Close `closing` units of positions on this side at `price`."""
    notional = closing * price
    cash = side * notional - notional * cost_rate(closing, rates, xp)
    units = -side * closing
    after = account._replace(cash=account.cash + xp.sum(cash, axis=0), units=account.units + units)
    return after, Trade(units, price, notional, cash)


def affordable(
    account: Account,
    opening: Array,
    heading: Array,
    closed: Array,
    price: Array,
    rates: TradingRates,
    limits: Limits,
    xp: Namespace,
) -> Array:
    """Cut opening sizes to the weight limits and, all by one factor, to the free cash and the gross
    limit.

    Judged at the fill price, after the reductions and before the costs of the openings.
    """
    values = account.units * price
    sizes = xp.abs(values)
    worth = account.cash + xp.sum(values, axis=0)
    cap = xp.where(heading > 0, limits.max_weight, limits.max_short_weight)
    notional = xp.minimum(opening * price, cap * worth[None] - sizes)
    notional = gate(above_zero(notional, xp), account.cooldown <= 0, xp)

    opening = notional / price
    # A buy needs its price and its costs; a short sale brings cash, which stays locked, and needs
    # its costs only.
    needed = notional * ((1 + heading) / 2 + cost_rate(closed + opening, rates, xp))
    locked = xp.sum(sizes - values, axis=0) / 2
    cash_share = share_of(
        account.cash - locked - limits.reserve * worth, xp.sum(needed, axis=0), xp
    )
    gross_room = limits.gross_limit * worth - xp.sum(sizes, axis=0)
    gross_share = share_of(gross_room, xp.sum(notional, axis=0), xp)
    # Impact falls with size, so the cut order never costs more than its share of `needed`.
    return feasible(opening * xp.minimum(cash_share, gross_share)[None], price, limits, xp)


def share_of(available: Array, needed: Array, xp: Namespace) -> Array:
    """Which share of `needed` is `available`, between 0 and 1, a few roundings on the safe side.

    The gradient is 0 where there is enough. The square of `needed`, by which gradients divide, must
    not vanish: hence the least that is available.
    """
    safe = 1 - 4 * float(xp.finfo(needed.dtype).eps)
    available = xp.clip(available * safe, LEAST_AVAILABLE, None)
    enough, one = needed <= available, xp.ones_like(needed)
    return xp.where(enough, one, available / xp.where(enough, one, needed))


def grow(
    account: Account,
    opening: Array,
    heading: Array,
    closed: Array,
    price: Array,
    rates: TradingRates,
    limits: Limits,
    xp: Namespace,
) -> tuple[Account, Trade]:
    """Open or enlarge positions by `opening` units in the direction `heading`, as far as the limits
    allow.

    `closed` units of the same order were filled before and have moved the price already.
    """
    opening = affordable(
        account,
        opening,
        heading=heading,
        closed=closed,
        price=price,
        rates=rates,
        limits=limits,
        xp=xp,
    )
    notional = opening * price
    cash = -heading * notional - notional * cost_rate(closed + opening, rates, xp)
    units = heading * opening
    after = account._replace(cash=account.cash + xp.sum(cash, axis=0), units=account.units + units)
    return after, Trade(units, price, notional, cash)


def fill_order(
    account: Account,
    wanted: Array,
    price: Array,
    room: Array,
    rates: TradingRates,
    limits: Limits,
    xp: Namespace,
) -> tuple[Account, Trade]:
    """Fill an order of `wanted` units at `price`, at most `room` units: reductions first, then what
    opens or grows.

    An order larger than the position against it closes it and opens the other side with the rest.
    A position held too long does not grow, and is reduced by force or by the order, whichever is
    more; if `room` does not allow it, the next bar tries again.
    """
    size = xp.abs(account.units)
    side = sides(account.units, xp)
    along = wanted * side  # positive: grow, negative: reduce
    overdue = account.held >= limits.max_held_bars
    forced = forced_reduction(size, price=price, limits=limits, xp=xp)
    along = xp.where(overdue, xp.minimum(along, -forced), along)
    along = xp.minimum(xp.maximum(along, -room), room)

    closing = reduction(size, above_zero(-along, xp), price=price, limits=limits, xp=xp)
    after, closed = reduce(account, side, closing=closing, price=price, rates=rates, xp=xp)
    flat = after.units == 0
    after = after._replace(
        best=xp.where(flat, price, account.best),
        held=gate(account.held, ~(flat | (overdue & (closing > 0))), xp),
    )
    heading = side * sides(along, xp)
    opening = xp.maximum(along, -along - size)  # at most one of the two is positive
    after, opened = grow(
        after,
        opening,
        heading=heading,
        closed=closing,
        price=price,
        rates=rates,
        limits=limits,
        xp=xp,
    )
    both = Trade(
        closed.units + opened.units,
        price,
        closed.notional + opened.notional,
        closed.cash + opened.cash,
    )
    return after, both


def follow_price(best: Array, price: Array, long: Array, xp: Namespace) -> Array:
    """The best price since entry after another one: the higher of a long position, the lower of a
    short one.
    """
    return xp.where(long, xp.maximum(best, price), xp.minimum(best, price))


def stop_out(
    account: Account, room: Array, bar: Bar, rates: TradingRates, limits: Limits, xp: Namespace
) -> tuple[Account, Trade]:
    """Close positions whose trailing stop is touched, at the stop, or at the open if the bar opens
    beyond it, and positions that no path through the bar keeps, at the bar's worst price.

    The open comes first and is known to: the stop follows it. Which of high and low comes next is
    unknown, so the worse is assumed: the adverse extreme is met before the favourable one can move
    the stop.

    The close comes last and is known to, so one at or beyond the stop that hangs on the favourable
    extreme leaves no path on which the position lasts: each has crossed that stop on its way from
    the extreme, if none before. Only the price is unknown, and the worst is the adverse extreme:
    the price may have risen (of a long position) just far enough to pull the stop up to the low,
    and fallen to it. Before any other close the favourable extreme may have come last; then it
    moves the stop for the next bar only.

    A position that was opened in this bar at the open hangs on its fill price, which is the open;
    one that was filled at the last close, as `same_close` does, follows the open like any other.
    """
    size = xp.abs(account.units)
    side = sides(account.units, xp)
    long = side > 0
    best = follow_price(account.best, bar.open, long=long, xp=xp)
    kept = 1 - side * limits.trailing_stop
    # An open beyond the old level lies behind the best price and moves nothing.
    level = best * kept
    adverse = xp.where(long, bar.low, bar.high)
    hit = (adverse - level) * side <= 0
    price = xp.where((bar.open - level) * side <= 0, bar.open, level)
    best = follow_price(best, xp.where(long, bar.high, bar.low), long=long, xp=xp)
    fallen = ((bar.close - best * kept) * side <= 0) & ~hit
    price = xp.where(fallen, adverse, price)
    closing = gate(reduction(size, room, price=price, limits=limits, xp=xp), hit | fallen, xp)
    after, stopped = reduce(account, side, closing=closing, price=price, rates=rates, xp=xp)
    after = after._replace(
        best=best,
        held=gate(account.held + 1, after.units != 0, xp),
        cooldown=xp.where(closing > 0, limits.cooldown_bars, above_zero(account.cooldown - 1, xp)),
    )
    return after, stopped


def pay_borrow(account: Account, prices: Array, costs: Costs, xp: Namespace) -> Account:
    """Charge short positions and negative cash for the bar."""
    shorts = xp.sum(above_zero(-account.units * prices, xp), axis=0)
    return account._replace(
        cash=account.cash - costs.borrow * (shorts + above_zero(-account.cash, xp))
    )


def execute(
    account: Account,
    order: Array,
    mark: Array,
    bar: Bar,
    costs: Costs,
    limits: Limits,
    fill: Fill,
    xp: Namespace,
) -> tuple[Account, Executed]:
    """Carry an order (money per asset, at the `mark` prices known when it was made) through one
    bar.

    Returns the account at the bar's close and what was traded. `fill` is shape, not data.
    """
    rates = trading_rates(account, bar, costs, xp)
    wanted = order / mark
    room = limits.participation * bar.volume
    if fill == "next_close":
        account, stopped = stop_out(account, room, bar=bar, rates=rates, limits=limits, xp=xp)
        room = room - xp.abs(stopped.units)
        account, traded = fill_order(
            account, wanted, price=bar.close, room=room, rates=rates, limits=limits, xp=xp
        )
    else:
        price = bar.open if fill == "next_open" else mark
        account, traded = fill_order(
            account, wanted, price=price, room=room, rates=rates, limits=limits, xp=xp
        )
        room = room - xp.abs(traded.units)
        account, stopped = stop_out(account, room, bar=bar, rates=rates, limits=limits, xp=xp)
    notional = xp.sum(traded.notional + stopped.notional, axis=0)
    account = account._replace(volume=account.volume * costs.volume_memory + notional)
    return pay_borrow(account, bar.close, costs, xp), Executed(traded, stopped, notional)
