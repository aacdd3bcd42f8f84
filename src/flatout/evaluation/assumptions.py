"""What the figures of a backtest rest on, in one line for people."""

from flatout.settings.tables import MarketSettings

FILLS = {
    "next_open": "the next open",
    "next_close": "the next close",
    "same_close": "THE SAME CLOSE (the decision's own bar!)",
}


def describe_market(settings: MarketSettings) -> str:
    """How orders fill and what they cost, in one line."""
    costs = settings.costs
    tier, maker = costs.tiers[0], costs.maker_share
    fee = maker * tier.maker_bps + (1 - maker) * tier.taker_bps
    return (
        f"fills at {FILLS[settings.fill]}; fee {fee:g} bps + half spread "
        f"{costs.half_spread_bps:g} bps + impact {costs.impact:g} x volatility x "
        f"sqrt(participation); at most {settings.limits.participation:.0%} of a bar's volume; "
        f"capital {settings.capital:g}"
    )
