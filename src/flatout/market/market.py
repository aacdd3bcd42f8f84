"""`Market`: a tape, its rules and its shape in one immutable value, from which every driver is
made.

This is where settings (basis points, quote currency, `not given`) become the kernel's numbers
(fractions, shares of the capital, `OFF`). It computes nothing about trading.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flatout.arrays import T, map_leaves
from flatout.bars.panel import Panel
from flatout.bars.trading_year import YEAR_SECONDS
from flatout.errors import RulesError
from flatout.features.indicators import DEFAULT_INDICATORS
from flatout.features.recipe import FittedRecipe, Recipe, fit
from flatout.foreign import shorten_repr
from flatout.market.episode import Shape
from flatout.market.orders import action_size, order_levels
from flatout.market.rules import MONTH_SECONDS, OFF, Costs, Limits, RewardWeights, Rules, Segments
from flatout.market.starts import choose_episode_bars
from flatout.market.tape import Tape, make_tape
from flatout.settings.loading import GivenSettings, resolve_settings
from flatout.settings.tables import (
    CostSettings,
    FeatureSettings,
    LimitSettings,
    MarketSettings,
    RewardSettings,
    Settings,
)

BPS = 1e-4
MOST_BARS = 2**30  # an episode length that no tape reaches, and int32 holds


@dataclass(frozen=True)
class Market:
    """Everything that a driver needs; arrays are NumPy, in double precision until a driver casts
    them. `flatout.build_market` makes it.

    panel   the bars
    fitted  the recipe of the features, with its scaling
    tape    bars and features as the kernel reads them
    rules   costs, limits, rewards and episodes, as numbers
    shape   what fixes the program: assets, features, actions, fills

    >>> from flatout import Market, build_market
    >>> from flatout.bars.synthetic import built_in_market
    >>> market: Market = build_market(built_in_market(n_bars=300))
    >>> market.action_size, market.fitted.symbols[0]
    (6, 'ALFA')
    """

    panel: Panel
    fitted: FittedRecipe
    tape: Tape
    rules: Rules
    shape: Shape

    @property
    def observation_size(self) -> int:
        """Width of an observation."""
        return self.shape.observation_size

    @property
    def action_size(self) -> int:
        """Width of an action; every component lies in [-1, 1], or is a choice if `discrete`."""
        return action_size(self.shape.action, self.shape.n_assets)

    def arrays(self, dtype: DTypeLike = np.float32) -> tuple[Tape, Rules]:
        """Tape and rules in the precision in which a driver will run them."""
        return cast(self.tape, dtype), cast(self.rules, dtype)

    def between(self, first: int, stop: int, episode_bars: int | None = None) -> "Market":
        """The same market with episodes inside bars first..stop-1 only; features stay warm from the
        bars before. Without `episode_bars` an episode lasts a quarter of them, at most 1,024.
        """
        length = choose_episode_bars(episode_bars, stop - first)
        bounds = segments([(first, stop)], length, self.panel.n_bars)
        return replace(self, rules=self.rules._replace(segments=bounds))


def build_market(
    panel: Panel,
    settings: GivenSettings = None,
    fitted: FittedRecipe | None = None,
    features: NDArray[np.float32] | None = None,
) -> Market:
    """The market of a panel.

    panel     the bars, as `flatout.read_bars` gives them
    settings  `Settings`, tables, what `load_settings` gives, or a path; by default all defaults
    fitted    the features' recipe with its scaling; by default the settings' own, fitted on all
              bars given, which must then be training bars
    features  what the recipe makes of the panel, where that is known already

    >>> from flatout import Settings, build_market
    >>> from flatout.bars.synthetic import built_in_market
    >>> settings = Settings.model_validate({"market": {"capital": 5000}})
    >>> build_market(built_in_market(n_bars=300), settings).observation_size
    97
    """
    if not isinstance(panel, Panel):
        raise RulesError(
            f"the bars are of type {type(panel).__name__}: give a Panel, as flatout.read_bars "
            "makes of a path or a frame"
        )
    check_fitted(fitted)
    settings = Settings() if settings is None else resolve_settings(settings).settings
    if fitted is None:
        fitted = fit(recipe_of(settings.features), panel, np.arange(panel.n_bars))
    recipe = fitted.recipe
    first = recipe.count_warmup(panel)
    if panel.n_bars < first + 2:
        raise RulesError(
            f"{panel.n_bars} bars are too few: the features need {first} bars to warm up and an "
            "episode at least 2 more; give more bars or a recipe with shorter indicators"
        )
    features = fitted.transform(panel) if features is None else features
    shape = make_shape(settings.market, panel.n_assets, features.shape[-1], recipe.lookback)
    tape = make_tape(panel, features, settings.market.capital)
    return Market(
        panel=panel,
        fitted=fitted,
        tape=tape,
        rules=make_rules(settings.market, panel, first),
        shape=shape,
    )


def check_fitted(given: object) -> None:
    """Refuse what is no fitted recipe, None aside."""
    if given is not None and not isinstance(given, FittedRecipe):
        raise RulesError(
            f"fitted is {shorten_repr(given)}: give a FittedRecipe, as `market.fitted` has it, or "
            "None"
        )


def make_shape(settings: MarketSettings, n_assets: int, n_features: int, lookback: int) -> Shape:
    """What fixes the market's program; `n_features` are those of one asset in one bar."""
    return Shape(
        n_assets=n_assets,
        n_features=n_features,
        lookback=lookback,
        action=settings.action,
        fill=settings.fill,
        levels=order_levels(settings.action, settings.order_sizes),
    )


def recipe_of(settings: FeatureSettings) -> Recipe:
    """The recipe that the settings ask for."""
    return Recipe(settings.indicators or DEFAULT_INDICATORS, settings.lookback, settings.scaler)


def make_rules(settings: MarketSettings, panel: Panel, first: int = 0) -> Rules:
    """The rules as the kernel wants them, with one segment from bar `first` to the end."""
    length = choose_episode_bars(settings.episode_bars, panel.n_bars - first)
    return Rules(
        make_costs(settings.costs, settings.capital, panel),
        make_limits(settings.limits, settings.capital, panel.symbols),
        make_reward(settings.reward),
        segments([(first, panel.n_bars)], length, panel.n_bars),
    )


def make_costs(settings: CostSettings, capital: float, panel: Panel) -> Costs:
    """Fractions from basis points; per bar from per year (of 365 days) and per 30 days.

    Time goes on while an exchange is closed. Each bar therefore stands for the same share of a year
    (`TradingYear.seconds_per_bar`): a year of bars costs the annual rate and 30 days are 30 days,
    whatever the sessions are.
    """
    elapsed = panel.trading_year.seconds_per_bar
    each = np.ones((panel.n_assets, 1))
    return Costs(
        tier_volume=np.array([tier.volume for tier in settings.tiers]) / capital,
        maker_fee=np.array([tier.maker_bps for tier in settings.tiers]) * BPS,
        taker_fee=np.array([tier.taker_bps for tier in settings.tiers]) * BPS,
        maker_share=np.asarray(settings.maker_share),
        volume_memory=np.asarray(max(0.0, 1 - elapsed / MONTH_SECONDS)),
        half_spread=settings.half_spread_bps * BPS * each,
        impact=settings.impact * each,
        borrow=np.asarray(settings.borrow_bps_per_year * BPS * elapsed / YEAR_SECONDS),
    )


def make_limits(settings: LimitSettings, capital: float, symbols: tuple[str, ...]) -> Limits:
    """Shares of the capital from quote currency; `OFF` for what is not given."""
    each = np.ones((len(symbols), 1))
    return Limits(
        min_notional=settings.min_notional / capital * each,
        lot_step=lot_steps(settings.lot_step, symbols) / capital,
        max_weight=settings.max_weight * each,
        max_short_weight=settings.max_short_weight * each,
        gross_limit=np.asarray(settings.gross_limit),
        reserve=np.asarray(settings.reserve),
        participation=settings.participation * each,
        trailing_stop=(settings.trailing_stop or OFF) * each,
        cooldown_bars=float(settings.cooldown_bars) * each,
        max_held_bars=float(settings.max_held_bars or OFF) * each,
        forced_share=settings.forced_share * each,
        trade_size=np.asarray(settings.trade_size),
        ruin=np.asarray(settings.ruin),
    )


def lot_steps(given: float | dict[str, float], symbols: tuple[str, ...]) -> NDArray[np.float64]:
    """One step per symbol; a name that is not in the market is an error, a symbol without a step
    may trade any amount.
    """
    if not isinstance(given, dict):
        return np.full((len(symbols), 1), float(given))
    unknown = sorted(set(given) - set(symbols))
    if unknown:
        raise RulesError(
            f"market.limits.lot_step names {', '.join(unknown)}; the bars hold {', '.join(symbols)}"
        )
    return np.array([[given.get(symbol, 0.0)] for symbol in symbols])


def make_reward(settings: RewardSettings) -> RewardWeights:
    """The weights, with the memory as a factor per bar."""
    values = settings.model_dump()
    memory = 1 - 1 / values.pop("sharpe_bars")
    return RewardWeights(
        **{name: np.asarray(float(value)) for name, value in values.items()},
        sharpe_memory=np.asarray(memory),
    )


def segments(bounds: list[tuple[int, int]], episode_bars: int | None, n_bars: int) -> Segments:
    """Checked segments from (first, stop) pairs; without `episode_bars` an episode is a whole
    one.
    """
    for first, stop in bounds:
        if not 0 <= first < stop - 1 < n_bars:
            raise RulesError(f"segment {first}..{stop} must hold at least two bars of 0..{n_bars}")
    first, stop = np.array(bounds, np.int32).T
    return Segments(first, stop, np.asarray(episode_bars or MOST_BARS, np.int32))


def cast(tree: T, dtype: DTypeLike) -> T:
    """Floating leaves in another precision."""
    return map_leaves(lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x, tree)
