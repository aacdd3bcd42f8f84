"""Markets for the tests of this folder: one bar with round numbers, and a built market in which
every rule bites.
"""

from typing import Any, NamedTuple

import numpy as np

from flatout.market import episode
from flatout.market.account import Account, open_account
from flatout.market.episode import Episode
from flatout.market.execute import Bar, Executed, Fill, execute
from flatout.market.market import Market, build_market
from flatout.market.rewards import LEAST_VARIANCE
from flatout.market.rules import Costs, Limits, Rules
from flatout.settings.tables import Settings
from rounding import tolerance
from scenarios import BAR_ROUNDINGS, cast, free_market, random_panel

ENDLESS = 1e9  # volume that no order notices
INDICATORS = ("return_1", "roc")  # short warm-ups: 10 bars
WARMUP = 10


def column(values: Any) -> np.ndarray:
    """One number per asset, for one account: (asset, 1)."""
    return np.asarray(values, float).reshape(-1, 1)


def bar(
    open_: Any, high: Any, low: Any, close: Any, volume: Any = ENDLESS, impact_rate: Any = 0.0
) -> Bar:
    """A bar of one account; every field is a number or one per asset."""
    size = np.size(open_)
    return Bar(
        *(column(np.broadcast_to(x, size)) for x in (open_, high, low, close, volume, impact_rate))
    )


def flat(price: Any, volume: Any = ENDLESS, impact_rate: Any = 0.0) -> Bar:
    """A bar that does not move."""
    return bar(price, price, price, price, volume, impact_rate)


def owner(units: Any, cash: float, best: Any = 100.0, **changes: Any) -> Account:
    """An account that owns these units."""
    units = column(units)
    account = open_account(units, np)._replace(
        cash=np.array([cash]), units=units, best=units * 0 + column(best)
    )
    return account._replace(
        **{name: getattr(account, name) * 0 + value for name, value in changes.items()}
    )


def beginner(assets: int = 1) -> Account:
    """An account in cash."""
    return open_account(np.ones((assets, 1)), np)


def rules(assets: int = 1, **changes: Any) -> tuple[Costs, Limits]:
    """A free market with some rules switched on, each given as a number, one per asset, or one per
    tier.
    """
    costs, limits = free_market(assets)
    for name, value in changes.items():
        group = costs if name in Costs._fields else limits
        per_asset = getattr(group, name).ndim == 2
        given = column(np.broadcast_to(value, assets)) if per_asset else np.asarray(value, float)
        costs, limits = (x._replace(**{name: given}) if x is group else x for x in (costs, limits))
    return costs, limits


class Played(NamedTuple):
    """An account after one bar, for one account: numbers, or one per asset."""

    account: Account
    executed: Executed
    cash: float
    units: Any


def play(
    account: Account,
    order: Any,
    met: Bar,
    mark: Any = 100.0,
    fill: Fill = "next_open",
    **changes: Any,
) -> Played:
    """One bar of a free market with some rules switched on; the order is in money."""
    assets = account.units.shape[0]
    wanted, known = (column(np.broadcast_to(x, assets)) for x in (order, mark))
    after, executed = execute(account, wanted, known, met, *rules(assets, **changes), fill, np)
    units = after.units[:, 0]
    return Played(after, executed, float(after.cash[0]), float(units[0]) if assets == 1 else units)


WHOLE = 10_000  # bars of an episode: more than any market here has
LIMITS = {
    "min_notional": 2_000.0,
    "lot_step": 0.1,
    "max_weight": 0.5,
    "max_short_weight": 0.3,
    "gross_limit": 1.1,
    "reserve": 0.05,
    "participation": 0.1,
    "trailing_stop": 0.03,
    "cooldown_bars": 3,
    "max_held_bars": 8,
    "forced_share": 0.2,
    "trade_size": 0.5,
    "ruin": 0.7,
}
COSTS = {
    "tiers": [
        {"volume": 0, "maker_bps": 10, "taker_bps": 20},
        {"volume": 5_000_000, "maker_bps": 4, "taker_bps": 8},
    ],
    "maker_share": 0.2,
    "half_spread_bps": 2.0,
    "impact": 0.5,
    "borrow_bps_per_year": 800.0,
}
REWARD = {
    "log_return": 1.0,
    "excess": 0.5,
    "differential_sharpe": 0.1,
    "drawdown": 0.2,
    "turnover": 0.05,
    "concentration": 0.2,
    "scale": 2.0,
    "sharpe_bars": 50.0,
    "concentration_above": 0.1,
}


def settings(**market: Any) -> Settings:
    """Every rule on; keywords change the market's own keys."""
    values = {
        "capital": 1e6,
        "action": "trade",
        "costs": COSTS,
        "limits": LIMITS,
        "reward": REWARD,
    } | market
    features = {"indicators": INDICATORS, "lookback": 2, "scaler": "zscore"}
    return Settings.model_validate({"market": values, "features": features})


def biting_market(n_bars: int = 120, assets: int = 3, seed: int = 0, **market: Any) -> Market:
    """A built market with every rule on; without `episode_bars` an episode lasts a quarter of its
    bars, with `WHOLE` all of them, and all start at the same bar.
    """
    return build_market(random_panel(seed, n_bars, assets), settings(**market))


class Walk(NamedTuple):
    """A trajectory in NumPy, (step, ...) each; ended accounts restart."""

    states: list[Episode]  # as they arrive, before restarts
    observations: np.ndarray  # before restarts
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def random_actions(market: Market, steps: int, accounts: int, seed: int = 0) -> np.ndarray:
    """(step, account, action), a little beyond [-1, 1]; whole numbers where actions are choices."""
    size, rng = (steps, accounts, market.action_size), np.random.default_rng(seed)
    if market.shape.levels:
        return rng.integers(len(market.shape.levels), size=size).astype(np.float32)
    return rng.uniform(-1.2, 1.2, size).astype(np.float32)


def walk(market: Market, actions: np.ndarray, noise: np.ndarray, dtype: Any = np.float64) -> Walk:
    """What happens to accounts that take (step, account, action) actions; (step + 1, account) noise
    starts them.
    """
    tape, given = market.arrays(dtype)
    state, seen = episode.reset(noise[0].astype(dtype), market.shape, given, np), []
    for action, draw in zip(actions.astype(dtype), noise[1:].astype(dtype), strict=True):
        arrived, outcome = episode.step(state, action.T, tape, market.shape, given, np)
        observation = episode.observe(arrived, tape, market.shape, given, np)
        seen.append((arrived, observation, outcome.reward, outcome.terminated, outcome.truncated))
        state = episode.restart(arrived, outcome.terminated | outcome.truncated, draw, given, np)
    states, *rest = zip(*seen, strict=True)
    return Walk(list(states), *(np.stack(values) for values in rest))


# --- how far two computations of a bar may lie apart ----------------------------------------------

# share of accounts in which a comparison may fall the other way in float32: a lot more, a stop
# missed
FLIPS = 0.05


def reward_size(state: Episode, rules: Rules) -> np.ndarray:
    """(account,): what a rounding of the equity, which is near 1, becomes in the reward of the bar
    that follows.

    The differential Sharpe ratio multiplies it by the mean square over the variance of the returns.
    """
    marks, weights = state.marks, rules.reward
    variance = np.clip(marks.mean_square - marks.mean**2, LEAST_VARIANCE, None)
    sharpe = weights.differential_sharpe * marks.mean_square / variance
    return weights.scale * (weights.log_return + weights.excess + 1 + sharpe)


class Bars(NamedTuple):
    """One bar of many accounts, in float32: what goes in, and what comes out in float64 for the
    same numbers.
    """

    state: Episode
    action: np.ndarray  # (account, action)
    observation: np.ndarray  # (account, feature) at the end of the bar, before restarts
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    reward_size: np.ndarray

    def check(self, observation: Any, reward: Any, terminated: Any, truncated: Any) -> None:
        """All accounts but those in which a comparison fell the other way are where float64
        says.
        """
        found = [np.asarray(x) for x in (observation, reward, terminated, truncated)]
        assert found[0].dtype == found[1].dtype == np.float32
        far = np.abs(found[0] - self.observation) > tolerance(
            BAR_ROUNDINGS, np.abs(self.observation) + 1, np.float32
        )
        flipped = np.abs(found[1] - self.reward) > tolerance(
            BAR_ROUNDINGS, self.reward_size, np.float32
        )
        flipped |= far.any(axis=1) | (found[2] != self.terminated) | (found[3] != self.truncated)
        assert flipped.mean() < FLIPS, f"{flipped.sum()} of {len(flipped)} accounts are elsewhere"


def float32_bars(market: Market, steps: int = 60, accounts: int = 12) -> Bars:
    """Every bar of a walk, side by side: float32 is compared bar by bar, for a comparison that fell
    the other way would send the rest of a trajectory elsewhere.
    """
    noise = np.random.default_rng(0).random((steps + 1, accounts))
    states = walk(market, random_actions(market, steps, accounts), noise).states
    state = cast(side_by_side(states, np.concatenate([s.t < s.last for s in states])), np.float32)
    return bars_of(market, state, random_actions(market, 1, len(state.t), seed=1)[0])


def bars_of(market: Market, state: Episode, action: np.ndarray) -> Bars:
    """The bar that these accounts and actions meet in this market."""
    tape, given = cast(market.arrays(np.float32), np.float64)
    before = cast(state, np.float64)
    arrived, outcome = episode.step(before, action.astype(float).T, tape, market.shape, given, np)
    observation = episode.observe(arrived, tape, market.shape, given, np)
    ends = outcome.terminated, outcome.truncated
    return Bars(state, action, observation, outcome.reward, *ends, reward_size(before, given))


def side_by_side(states: Any, kept: np.ndarray) -> Any:
    """Episodes of some accounts each as one of all of them, as far as they are kept."""
    if isinstance(states[0], tuple):
        return type(states[0])(
            *(side_by_side(leaves, kept) for leaves in zip(*states, strict=True))
        )
    return np.concatenate(states, axis=-1)[..., kept]
