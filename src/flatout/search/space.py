"""The search space: dotted settings with ranges, as Optuna's distributions, and settings with
chosen values.

Only settings that are data in the compiled program can be searched: every trial is a lane of the
same program. Widths and depths of networks are data too: smaller ones are lanes of the largest.
"""

import math
from collections.abc import Mapping

import optuna

from flatout.errors import RunError, SettingsError
from flatout.foreign import shorten_repr
from flatout.settings.problems import known_keys
from flatout.settings.study import Knob, SettingValue
from flatout.settings.tables import MarketSettings, Settings
from flatout.settings.train import TrainSettings

Values = dict[str, SettingValue]  # by dotted setting

SHAPE = {
    "train.algorithm",
    "train.network",
    "train.n_envs",
    "train.n_steps",
    "train.minibatches",
    "train.activation",
    "train.distribution",
    "market.action",
    "market.order_sizes",
    "market.fill",
}
FIXED = {
    "train.timesteps",
    "train.seeds",
    "market.capital",
    "market.costs.tiers",
    "market.limits.lot_step",
}  # the tape, a table or the budget depends on them
HIDDEN = "train.hidden"


def list_searchable() -> list[str]:
    """All settings that may be searched."""
    keys = known_keys(MarketSettings, "market.") + known_keys(TrainSettings, "train.")
    tables = {key.rpartition(".")[0] for key in keys}
    return [
        key
        for key in keys
        if key not in SHAPE | FIXED | tables and key.rpartition(".")[0] not in FIXED
    ]


def check_space(space: Mapping[str, Knob], settings: Settings) -> None:
    """Refuse names that cannot be searched and values that the settings would refuse."""
    allowed = list_searchable()
    for name, knob in space.items():
        if {name, name.rpartition(".")[0]} & (SHAPE | FIXED):
            raise SettingsError(
                f"search.space names {name}, which is not data in the compiled program: all "
                "trials of a study share its value; start one study for each value (`flatout "
                "search a.toml b.toml`)"
            )
        if name not in allowed:
            raise SettingsError(
                f"search.space names {name}; what can be searched is: {', '.join(allowed)}"
            )
        if (
            knob.choices is not None
            and name != HIDDEN
            and any(isinstance(c, list | tuple) for c in knob.choices)
        ):
            raise SettingsError(
                f"search.space: the choices of {name} must be single values, given {knob.choices}"
            )
        for value in knob.choices or list_samples(knob):
            apply_values(settings, {name: int(value) if knob.whole else value})


def list_samples(knob: Knob) -> tuple[float, ...]:
    """Values of a range to try: its ends and, unless it is of whole numbers, one between them that
    is none.
    """
    assert knob.low is not None and knob.high is not None
    between = knob.low + (knob.high - knob.low) / math.pi
    return (knob.low, knob.high) if knob.whole else (knob.low, between, knob.high)


def make_distributions(
    space: Mapping[str, Knob],
) -> dict[str, optuna.distributions.BaseDistribution]:
    """The space as Optuna knows it; choices are stored by their text, which every storage takes."""
    found: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, knob in space.items():
        if knob.choices is not None:
            found[name] = optuna.distributions.CategoricalDistribution(
                [choice_text(choice) for choice in knob.choices]
            )
        elif knob.low is not None and knob.high is not None:
            if knob.whole:
                found[name] = optuna.distributions.IntDistribution(
                    int(knob.low), int(knob.high), log=knob.log
                )
            else:
                found[name] = optuna.distributions.FloatDistribution(
                    knob.low, knob.high, log=knob.log
                )
    return found


def values_of(space: Mapping[str, Knob], params: Mapping[str, SettingValue]) -> Values:
    """A trial's parameters as values of settings."""
    missing = [name for name in space if name not in params]
    if missing:
        raise RunError(
            f"a trial has no {', '.join(missing)}, which the study searches; restore the study "
            f"from a copy"
        )
    return {name: find_choice(name, knob, params[name]) for name, knob in space.items()}


def find_choice(name: str, knob: Knob, param: SettingValue) -> SettingValue:
    """The value behind a stored parameter."""
    if knob.choices is None:
        return param
    for choice in knob.choices:
        if choice_text(choice) == param:
            return choice
    raise RunError(
        f"a trial's {name} is {shorten_repr(param)}, which is none of the study's choices; "
        f"restore it from a copy"
    )


def choice_text(choice: SettingValue) -> bool | int | float | str:
    """A choice as a storage keeps it: numbers and words as they are, lists as their text."""
    return choice if isinstance(choice, bool | int | float | str) else str(choice)


def apply_values(settings: Settings, values: Values) -> Settings:
    """The settings with some of them changed, checked as if they stood in the file."""
    tables = settings.model_dump()
    for name, value in values.items():
        *path, last = name.split(".")
        table = tables
        for part in path:
            table = table[part]
        table[last] = value
    try:
        return Settings.model_validate(tables)
    except ValueError as error:
        # pydantic's
        problem = error.errors()[0] if hasattr(error, "errors") else {"msg": str(error)}
        message = f"{'.'.join(map(str, problem.get('loc', ())))}: {problem['msg']}"
        raise SettingsError(
            f"search.space leads to settings that are refused: {message}; given {values}"
        ) from None


def middle_value(knob: Knob) -> SettingValue:
    """A value in the middle of a range; the first of the choices."""
    if knob.choices is not None:
        return knob.choices[0]
    low, high = knob.low or 0.0, knob.high or 0.0
    value = (low * high) ** 0.5 if knob.log else (low + high) / 2
    return round(value) if knob.whole else value


def extreme_values(knob: Knob) -> tuple[SettingValue, SettingValue]:
    """The two values that differ most."""
    if knob.choices is not None:
        return knob.choices[0], knob.choices[-1]
    low, high = knob.low or 0.0, knob.high or 0.0
    return (int(low), int(high)) if knob.whole else (low, high)
