"""The tables of `flatout.toml`, as typed models. Units stand in the names; defaults and meanings
stand beside them.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from flatout.errors import SettingsError
from flatout.settings.fields import (
    AtLeastOne,
    Count,
    Model,
    Money,
    NotNegative,
    Number,
    Positive,
    Share,
    Switchable,
)
from flatout.settings.problems import LOT_STEP_KINDS, describe_problems
from flatout.settings.study import (
    STUDY_HOLD_OUT,
    STUDY_TIMESTEPS,
    DataSettings,
    FoldSettings,
    GateSettings,
    SearchSettings,
    usual_space,
)
from flatout.settings.train import (
    AUTO,
    PATHWISE_ONLY,
    PLAIN,
    PPO_ONLY,
    LearnerKind,
    TrainSettings,
)

ActionKind = Literal["trade", "weights", "direction_amount", "discrete"]
Fill = Literal["next_open", "next_close", "same_close"]
ScalerName = Literal["zscore", "robust", "quantile", "quantile_uniform"]
MOST_SIZES = 10  # choices grow with them, and with choices what must be explored
OrderSize = Annotated[Number, Field(gt=0, le=1)]
TRAINING_TIMESTEPS, TRAINING_HOLD_OUT = 500_000, 0.2
# kinds of actions whose gradient says how to trade; directions and choices have none
SMOOTH_ACTIONS = ("weights", "trade")
SHORTS = "market.limits.max_short_weight"
OLD_SEARCH = ("timesteps", "seeds")  # once in [search], now in [train]


class FeeTier(Model):
    """Fees that apply from a 30-day volume on."""

    volume: NotNegative = Field(0.0, description="traded in 30 days, quote currency")
    maker_bps: NotNegative = 15.0
    taker_bps: NotNegative = 25.0


class CostSettings(Model):
    """What trading costs. The defaults are pessimistic for a retail crypto account."""

    tiers: tuple[FeeTier, ...] = Field(
        (FeeTier(),), description="fee tiers, by ascending 30-day volume, the first from 0"
    )
    maker_share: Share = Field(0.0, description="share of the notional that fills as maker")
    half_spread_bps: NotNegative = 2.0
    impact: NotNegative = Field(
        0.5, description="price impact = this x volatility x sqrt(share of the bar's volume)"
    )
    borrow_bps_per_year: NotNegative = Field(
        500.0, description="on short positions and negative cash"
    )

    @model_validator(mode="after")
    def tiers_ascend(self) -> "CostSettings":
        volumes = [tier.volume for tier in self.tiers]
        if not volumes or volumes[0] != 0 or any(b <= a for a, b in pairwise(volumes)):
            raise ValueError(f"tier volumes must start at 0 and ascend, given {volumes}")
        return self


class LimitSettings(Model):
    """What orders must respect. Rules that are off when not given may be switched off again with
    \"off\".
    """

    min_notional: NotNegative = Field(1.0, description="smallest order, quote currency")
    lot_step: Annotated[
        Annotated[NotNegative, Tag(LOT_STEP_KINDS[0])]
        | Annotated[dict[str, NotNegative], Tag(LOT_STEP_KINDS[1])],
        Discriminator(lambda given: LOT_STEP_KINDS[isinstance(given, dict)]),
    ] = Field(0.0, description="order step in units, for all or by symbol; 0 = any")
    max_weight: Positive = Field(1.0, description="largest long weight of one asset")
    max_short_weight: NotNegative = Field(
        0.0, description="largest short weight of one asset; 0 = no shorts"
    )
    gross_limit: Positive = Field(1.0, description="largest sum of absolute weights")
    reserve: Share = Field(0.0, description="share of equity that buying leaves in cash")
    participation: Positive = Field(0.05, description="largest share of a bar's volume")
    trailing_stop: Annotated[Annotated[Number, Field(gt=0, lt=1)] | None, Switchable] = Field(
        None, description="distance from the best price; off"
    )
    cooldown_bars: Count = Field(
        0, description="bars after a stop in which a position may not grow"
    )
    max_held_bars: Annotated[AtLeastOne | None, Switchable] = Field(
        None, description="bars until a forced reduction; off"
    )
    forced_share: Share = Field(
        0.05, description="share of the position sold by a forced reduction"
    )
    trade_size: Positive = Field(
        1.0,
        description="share of the equity that a `trade` action of 1 asks for; times order_sizes",
    )
    ruin: Share = Field(
        0.1, description="equity, as a share of the capital, at which an episode terminates"
    )


class RewardSettings(Model):
    """Weights of the reward terms, which are returns per bar; see market/rewards.py."""

    log_return: Number = 1.0
    excess: Number = 0.0
    differential_sharpe: Number = 0.0
    drawdown: Number = 0.0
    turnover: Number = 0.0
    concentration: Number = 0.0
    scale: Positive = 100.0
    sharpe_bars: Annotated[Number, Field(gt=1)] = Field(
        100.0, description="memory of the differential Sharpe ratio"
    )
    # half of the account: no two assets can pass it without leverage, so holding two evenly is free
    # however many there are
    concentration_above: NotNegative = Field(
        0.5, description="weight of one asset from which on `concentration` counts"
    )


class MarketSettings(Model):
    """The market an agent trades in."""

    capital: Money = Field(10_000.0, description="starting capital, quote currency")
    action: ActionKind = "weights"
    order_sizes: tuple[OrderSize, ...] = Field(
        (0.25,), description="shares of the equity that `discrete` actions buy or sell [shape]"
    )
    fill: Fill = "next_open"
    episode_bars: Annotated[AtLeastOne | None, Switchable] = Field(
        None, description="longest episode; not given = a quarter of the bars, at most 1,024"
    )
    costs: CostSettings = CostSettings()
    limits: LimitSettings = LimitSettings()
    reward: RewardSettings = RewardSettings()

    @field_validator("order_sizes")
    @classmethod
    def _differ(cls, sizes: tuple[float, ...]) -> tuple[float, ...]:
        if not 1 <= len(set(sizes)) == len(sizes) <= MOST_SIZES:
            raise ValueError(
                f"give 1 to {MOST_SIZES} sizes that differ from each other; given {list(sizes)}"
            )
        return sizes


class FeatureSettings(Model):
    """What the agent sees of the market."""

    indicators: tuple[str, ...] | None = Field(
        None,
        description='names, in order; "1d:volatility" = of larger bars, as known when they are '
        "over; not given = the default fourteen",
    )
    lookback: AtLeastOne = Field(1, description="bars in the observation")
    scaler: ScalerName = "quantile"


def choose_learner(
    train: TrainSettings, market: MarketSettings, space: Iterable[str]
) -> LearnerKind:
    """What learns in this market where the settings leave it open. Who gives or searches a number
    that only PPO has means PPO. `flatout bench learn` shows what the choice rests on.
    """
    names = {*space, *(f"train.{name}" for name in train.model_fields_set)}
    smooth = market.action in SMOOTH_ACTIONS and names.isdisjoint(
        f"train.{name}" for name in PPO_ONLY
    )
    algorithm = AUTO if train.is_open("algorithm") else train.algorithm
    if algorithm == "ppo" or (algorithm == AUTO and not smooth):
        return PLAIN
    if is_long_only(market) and SHORTS not in names:
        return LearnerKind("pathwise", "per_asset", "softmax")
    return LearnerKind("pathwise", "per_asset", "gaussian")


def is_long_only(market: MarketSettings) -> bool:
    """Whether actions are target weights none of which may be short."""
    return market.action == "weights" and market.limits.max_short_weight <= 0


def check_long_weights(market: MarketSettings) -> None:
    """Refuse a market in which shares that sum to 1 would not be target weights."""
    if not is_long_only(market):
        short = market.limits.max_short_weight
        raise ValueError(
            'train.distribution "softmax" is for market.action "weights" without shorts; given '
            f"{market.action!r} and market.limits.max_short_weight {short:g}: change these, or "
            'choose "gaussian", or "auto"'
        )


class InSentences(type(BaseModel)):  # type: ignore[misc]
    """Makes `Settings(...)` say what is wrong with its tables as other doors say it."""

    def __call__(cls, **tables: Any) -> Any:
        """The settings, or a SettingsError in place of pydantic's own error."""
        try:
            return super().__call__(**tables)
        except ValidationError as error:
            raise SettingsError(describe_problems(error, {}, cls)) from None


class Settings(Model, metaclass=InSentences):
    """Everything in flatout.toml, a table for each argument: `data`, `market`, `features`, `train`,
    `folds`, `search` and `gates`. A table may be a dict; `flatout init` writes all of them with
    what they mean.

    >>> from flatout import Settings
    >>> Settings(market={"capital": 5000}).market.capital
    5000.0
    >>> Settings(trian={"n_envs": 8})
    Traceback (most recent call last):
    flatout.errors.SettingsError: trian: there is no such setting; did you mean train?
    """

    data: DataSettings = DataSettings()
    market: MarketSettings = MarketSettings()
    features: FeatureSettings = FeatureSettings()
    train: TrainSettings = TrainSettings()
    folds: FoldSettings = FoldSettings()
    search: SearchSettings = SearchSettings()
    gates: GateSettings = GateSettings()

    @model_validator(mode="after")
    def settle_learner(self) -> "Settings":
        """What the market decides of how agents learn, where it is left open."""
        kind = choose_learner(
            self.train,
            self.market,
            self.search.space if "space" in self.search.model_fields_set else (),
        )
        object.__setattr__(self, "train", self.train.settle(kind))
        return self

    @model_validator(mode="after")
    def fill_space(self) -> "Settings":
        """Where no space is given, the usual one of the algorithm."""
        if "space" not in self.search.model_fields_set:
            search = self.search.model_copy()
            object.__setattr__(search, "space", usual_space(self.train.algorithm))
            object.__setattr__(self, "search", search)
        return self

    @model_validator(mode="after")
    def nothing_is_idle(self) -> "Settings":
        """Refuse numbers that another algorithm has: they would be ignored."""
        algorithm, (other, others) = self.train.algorithm, ("pathwise", PATHWISE_ONLY)
        if algorithm == "pathwise":
            other, others = "ppo", PPO_ONLY
        cure = f'{algorithm} does not have: leave it out, or choose train.algorithm = "{other}"'
        for name in self.train.list_idle():
            raise ValueError(f"train.{name} is {getattr(self.train, name)}, which {cure}")
        for name in sorted(others):
            if f"train.{name}" in self.search.space:
                raise ValueError(f"search.space names train.{name}, which {cure}")
        return self

    @model_validator(mode="after")
    def shares_are_weights(self) -> "Settings":
        """Shares that sum to 1 are target weights, and cannot be short."""
        if self.train.distribution == "softmax":
            check_long_weights(self.market)
            if SHORTS in self.search.space:
                raise ValueError(
                    'train.distribution "softmax" allows no shorts: '
                    f"take {SHORTS} out of search.space"
                )
        return self

    @model_validator(mode="after")
    def take_old_names(self) -> "Settings":
        """What files of earlier versions call `search.timesteps` and `search.seeds` is
        `train.timesteps` and `train.seeds`.
        """
        for name in OLD_SEARCH:
            value = getattr(self.search, name)
            if value is None:
                continue
            if name in self.train.model_fields_set and getattr(self.train, name) != value:
                raise ValueError(f"search.{name} is train.{name} now: give the latter only")
            object.__setattr__(self, "train", self.train.model_copy(update={name: value}))
            object.__setattr__(self, "search", self.search.model_copy(update={name: None}))
        return self

    def for_training(self) -> "Settings":
        """These settings with the numbers that a training takes where none are given."""
        return self.with_budget(TRAINING_TIMESTEPS, TRAINING_HOLD_OUT)

    def for_study(self) -> "Settings":
        """These settings with the numbers that a study takes where none are given."""
        return self.with_budget(STUDY_TIMESTEPS, STUDY_HOLD_OUT)

    def with_budget(self, timesteps: int, hold_out: float) -> "Settings":
        """These settings with a number of timesteps and a hold-out, unless they are given."""
        train = self.train.model_copy(update={"timesteps": self.train.timesteps or timesteps})
        share = hold_out if self.folds.hold_out is None else self.folds.hold_out
        folds = self.folds.model_copy(update={"hold_out": share})
        return self.model_copy(update={"train": train, "folds": folds})
