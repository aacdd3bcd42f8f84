"""The tables of a study: `[data]`, `[folds]`, `[search]` with its space, and `[gates]`."""

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from flatout.settings.fields import (
    AtLeastOne,
    Count,
    Model,
    NotNegative,
    Number,
    Share,
    Switchable,
    Timesteps,
)

FoldKind = Literal["cpcv", "kfold", "walk_forward", "anchored"]
SamplerName = Literal["tpe", "random", "cmaes"]
PrunerName = Literal["none", "curve", "wilcoxon", "halving"]
# they are told one value per rung, the mean over splits and seeds; others one for each split
PRUNES_BY_MEAN: frozenset[PrunerName] = frozenset(("curve", "halving"))
STUDY_TIMESTEPS, STUDY_HOLD_OUT = 100_000, 0.15
Objective = Literal["skill_sharpe", "sharpe", "excess_sharpe", "log_return"]


class DataSettings(Model):
    """Which bars; options of the command win."""

    bars: str | None = Field(
        None, description="CSV, Parquet, Feather or a folder; not given = the built-in market"
    )
    symbols: tuple[str, ...] | None = Field(None, description="not given = all that the bars hold")
    bar: str | None = Field(None, description='resampled to this size, as in "4h"')
    calendar: str | None = Field(
        None,
        description='an exchange calendar, as in "XNYS", or "always_open" or "exchange"; '
        "not given = from the bars",
    )


class FoldSettings(Model):
    """Which bars teach and which judge."""

    kind: FoldKind = "cpcv"
    groups: Annotated[int, Field(strict=True, ge=2)] = Field(
        4, description="equal stretches of time"
    )
    test_groups: AtLeastOne = Field(2, description="of them judge in each cpcv split")
    train_groups: AtLeastOne = Field(
        2, description="teach in each walk_forward split; anchored begins with as many"
    )
    purge_bars: Count | None = Field(
        None, description="dropped before a test block; not given = fill delay + reward horizon"
    )
    embargo_bars: Count | None = Field(
        None, description="dropped after a test block; not given = as far as features look back"
    )
    hold_out: Annotated[Number, Field(ge=0, lt=1)] | None = Field(
        None,
        description="share of the bars at the end: sealed in a study, judges in a training; "
        "not given = 0.15 in a study, 0.2 in a training",
    )


SettingValue = Any  # of whatever kind the setting takes, which its own field checks


class Knob(Model):
    """The values that a setting may take: a range or choices."""

    low: Number | None = None
    high: Number | None = None
    log: bool = Field(False, description="equally likely orders of magnitude")
    whole: bool = Field(False, description="whole numbers only")
    choices: tuple[SettingValue, ...] | None = None

    @model_validator(mode="after")
    def range_or_choices(self) -> "Knob":
        if self.choices is not None:
            if self.low is not None or self.high is not None or len(self.choices) < 2:
                raise ValueError("give two or more choices and neither low nor high")
        elif self.low is None or self.high is None or not self.low < self.high:
            raise ValueError(
                f"give choices, or low below high; given low {self.low} and high {self.high}"
            )
        elif self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range starts above 0; given low {self.low}")
        elif self.whole and (self.low % 1 or self.high % 1):
            raise ValueError(
                f"a range of whole numbers has whole ends; given {self.low} and {self.high}"
            )
        return self


def usual_space(algorithm: str = "ppo") -> dict[str, Knob]:
    """The ranges that crypto-trading studies of this kind have searched, where the knob exists
    here.

    Those of the penalties are our own. Unweighted each takes 0.4 to 0.5 of the mean size of the
    moves of what is held, and skill is worth little of it: a Sharpe ratio of 2 a year on hourly
    bars earns 0.027. In the middle of the ranges both penalties together take 0.023; with much
    larger weights it would be best to own nothing.
    """
    market = {
        "market.limits.reserve": Knob(low=0.05, high=0.30),
        "market.reward.drawdown": Knob(low=0.0, high=0.05),
    }
    if algorithm == "pathwise":
        return {
            "train.learning_rate": Knob(low=2e-3, high=2e-2, log=True),
            "train.final_rate_share": Knob(low=0.0, high=1.0),
            "train.action_noise": Knob(low=0.01, high=0.5, log=True),
            "train.feature_noise": Knob(low=0.05, high=1.0, log=True),
            "train.weight_decay": Knob(low=0.01, high=1.0, log=True),
            **market,
        }
    return {
        "train.learning_rate": Knob(low=1e-6, high=1e-3, log=True),
        "train.gamma": Knob(low=0.88, high=0.99),
        "train.gae_lambda": Knob(low=0.90, high=0.99),
        "train.clip": Knob(low=0.1, high=0.4),
        "train.entropy": Knob(low=1e-5, high=1e-2, log=True),
        "train.value": Knob(low=0.25, high=1.0),
        "train.max_grad_norm": Knob(low=0.3, high=2.0),
        "train.target_kl": Knob(low=0.005, high=0.03),
        "train.final_rate_share": Knob(low=0.0, high=1.0),
        **market,
        "market.reward.concentration": Knob(low=0.0, high=0.05),
    }


class SearchSettings(Model):
    """Which settings are tried, how often and for how long."""

    trials: AtLeastOne = 100
    seed: Count = Field(0, description="of everything random in the study")
    sampler: SamplerName = "tpe"
    pruner: PrunerName = Field(
        "curve", description="curve: by what the rungs of this study say about the end"
    )
    rungs: tuple[Annotated[Number, Field(gt=0, le=1)], ...] = Field(
        (0.34, 0.67, 1.0),
        description="shares of the budget after which trials are judged and may be pruned",
    )
    objective: Objective = Field(
        "skill_sharpe",
        description="mean over splits and seeds; skill: beyond its average weights",
    )
    batch: Annotated[AtLeastOne | None, Switchable] = Field(
        None, description="trials side by side, twice; not given = chosen from the machine"
    )
    finalists: AtLeastOne = Field(
        3, description="trained again with more seeds before one of them wins"
    )
    final_seeds: AtLeastOne = Field(3, description="of each finalist and split")
    registry: str | None = Field(
        None,
        description="folder that counts the trials of all studies; $FLATOUT_REGISTRY wins",
    )
    timesteps: Timesteps | None = Field(None, exclude=True)  # now train.timesteps
    seeds: AtLeastOne | None = Field(None, exclude=True)  # now train.seeds
    space: dict[str, Knob] = Field(default_factory=usual_space, description="by dotted setting")

    @model_validator(mode="after")
    def rungs_ascend(self) -> "SearchSettings":
        ends = [0.0, *self.rungs]
        if self.rungs[-1:] != (1.0,) or any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"rungs must ascend and end with 1.0, given {list(self.rungs)}")
        return self

    @model_validator(mode="after")
    def registry_is_one_place(self) -> "SearchSettings":
        if self.registry is not None and not self.registry.startswith(("/", "~")):
            raise ValueError(
                f"registry is one folder wherever a study is started: give a path from / or ~, "
                f"given {self.registry!r}"
            )
        return self


class GateSettings(Model):
    """What a winner must show. Fixed when the study starts; "off" switches a gate off."""

    deflated_sharpe: Annotated[Share | None, Switchable] = Field(
        0.95, description="of skill returns, at least, after all trials ever that differ"
    )
    pbo: Annotated[Share | None, Switchable] = Field(
        0.2, description="probability of backtest overfitting, at most"
    )
    null_p: Annotated[Share | None, Switchable] = Field(
        0.05,
        description="share of its own copies at other times that do as well, at most; above 0.05 "
        "it promises nothing for rules that look at their own results",
    )
    beats: tuple[str, ...] = Field(
        ("cash", "buy_and_hold", "equal_weight"),
        description="baselines than which it has more skill, as sure as beats_p says",
    )
    beats_p: Share = Field(
        0.05, description="probability, at most, of such a lead over a baseline by luck"
    )
    cost_factor: Annotated[NotNegative | None, Switchable] = Field(
        2.0, description="the median path still shows skill with costs times this"
    )
    delay_bars: Annotated[Count | None, Switchable] = Field(
        1, description="the median path still shows skill when orders come so many bars later"
    )
    trades: Annotated[Count | None, Switchable] = Field(
        100, description="decisions that change the weights, in all test blocks, at least"
    )
    worst_path: Annotated[Number | None, Switchable] = Field(
        -0.5, description="no path's total return lies below this"
    )
    hold_out_sharpe: Annotated[Number | None, Switchable] = Field(
        0.0, description="the Sharpe ratio of its skill returns on the sealed bars exceeds this"
    )
