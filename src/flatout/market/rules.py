"""The rules of a market as data: `Costs`, `Limits`, `RewardWeights`, `Segments`.

Every field is an array, so lanes may live under different rules without another program. Fields
marked "asset" meet (asset, ...) arrays and have as many axes, of size 1 where nothing varies;
fields marked "account" meet (...) arrays and may be scalars; tiers are the first axis of what is
marked "tier". Money and units are relative to the starting capital (equity starts at 1). `OFF`
switches a rule off. How users spell rules (basis points, quote currency) is `settings/tables.py`'s
business.
"""

from typing import NamedTuple

from flatout.arrays import Array

# larger than any bar count, weight or participation, yet finite: inf would make 0 * inf = NaN
OFF = 1e9
MONTH_SECONDS = 30 * 86_400


class Costs(NamedTuple):
    """What trading costs; always adverse. Rates are fractions of the notional at the price before
    costs, and add up.
    """

    tier_volume: Array  # tier; 30-day volume from which the tier applies, ascending, first 0
    maker_fee: Array  # tier
    taker_fee: Array  # tier
    maker_share: Array  # account; share of the notional that fills as maker
    volume_memory: Array  # account; factor per bar by which the 30-day volume forgets
    half_spread: Array  # asset
    impact: Array  # asset; coefficient of volatility * sqrt(participation)
    borrow: Array  # account; per bar, on short positions and negative cash


class Limits(NamedTuple):
    """What orders must respect."""

    min_notional: Array  # asset; smaller orders are dropped, except a close of the whole position
    lot_step: Array  # asset; units are rounded toward zero to a multiple, 0 = any amount
    max_weight: Array  # asset; largest long weight that an order may reach
    max_short_weight: Array  # asset; largest short weight, 0 = no shorts
    gross_limit: Array  # account; largest sum of absolute weights that an order may reach
    reserve: Array  # account; share of equity that buying must leave in cash
    participation: (
        Array  # asset; largest share of a bar's volume, the rest of the order is cancelled
    )
    trailing_stop: Array  # asset; distance from the best price since entry, as a fraction
    cooldown_bars: Array  # asset; bars after a stop in which the position may not grow
    max_held_bars: Array  # asset; bars after which a position is reduced by force
    forced_share: Array  # asset; share of the position that is then sold
    trade_size: (
        Array  # account; a `trade` action (or `discrete` level) of 1 is this share of equity
    )
    ruin: Array  # account; equity at or below which the episode terminates


class RewardWeights(NamedTuple):
    """Weights of the named reward terms; see rewards.py."""

    log_return: Array
    excess: Array
    differential_sharpe: Array
    drawdown: Array
    turnover: Array
    concentration: Array
    scale: Array  # multiplies the weighted sum
    sharpe_memory: Array  # factor per bar by which the differential Sharpe ratio's averages forget
    concentration_above: Array  # weight of one asset from which on `concentration` counts


class Segments(NamedTuple):
    """Which bars an episode may use: it starts at a random bar of one segment and never leaves
    it.
    """

    first: Array  # (segment,) first bar at whose close the agent may decide
    stop: Array  # (segment,) one past the last bar that may be reached
    length: (
        Array  # () longest episode in bars; OFF or more than the segment = from first to stop - 1
    )


class Rules(NamedTuple):
    """Everything about a market that is data."""

    costs: Costs
    limits: Limits
    reward: RewardWeights
    segments: Segments
