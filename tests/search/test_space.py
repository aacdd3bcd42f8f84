"""The search space: what may be searched, and how values travel between settings and Optuna."""

from typing import Any

import numpy as np
import optuna
import pytest

from flatout.errors import SettingsError
from flatout.search.space import (
    FIXED,
    SHAPE,
    apply_values,
    check_space,
    choice_text,
    extreme_values,
    list_searchable,
    make_distributions,
    middle_value,
    values_of,
)
from flatout.settings.study import Knob, usual_space
from flatout.settings.tables import Settings

SETTINGS = Settings()
HIDDEN = Knob(choices=[[64, 64], [32], [16, 16, 16]])


def value_at(settings: Settings, name: str) -> Any:
    found: Any = settings
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("algorithm", ["pathwise", "ppo"])
def test_the_usual_space_may_be_searched(algorithm: str) -> None:
    settings = Settings.model_validate({"train": {"algorithm": algorithm}})
    assert settings.search.space == usual_space(algorithm)
    check_space(usual_space(algorithm), settings)


@pytest.mark.parametrize("name", list_searchable())
def test_all_that_may_be_searched_can_be_set(name: str) -> None:
    """To the value that it has; nothing else changes."""
    assert apply_values(SETTINGS, {name: value_at(SETTINGS, name)}) == SETTINGS


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("train.gamma", 0.9, 0.99),
        ("market.limits.reserve", 0.0, 0.5),
        ("market.costs.half_spread_bps", 0.0, 9.0),
    ],
)
def test_setting_a_value_changes_that_setting_alone(name: str, low: float, high: float) -> None:
    for value in (low, high):
        changed = apply_values(SETTINGS, {name: value})
        assert value_at(changed, name) == value
        assert apply_values(changed, {name: value_at(SETTINGS, name)}) == SETTINGS


@pytest.mark.parametrize("name", [*sorted(SHAPE | FIXED), "market.costs.tiers.taker_bps"])
def test_what_is_not_data_is_refused_by_name(name: str) -> None:
    knob = Knob(low=1.0, high=2.0)
    with pytest.raises(
        SettingsError, match=rf"search\.space names {name}, which is not data .* one study for each"
    ):
        check_space({name: knob}, SETTINGS)
    assert name not in list_searchable()


@pytest.mark.parametrize(
    "name", ["train.learning_rat", "search.trials", "market", "market.limits", "folds.groups"]
)
def test_unknown_names_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"names {name}; what can be searched is: .*train\.learning_rate"
    ):
        check_space({name: Knob(low=0.1, high=0.2)}, SETTINGS)


@pytest.mark.parametrize(
    ("name", "knob"),
    [
        ("train.gamma", Knob(low=0.9, high=1.1)),  # beyond what the setting allows, above
        ("train.learning_rate", Knob(low=-1.0, high=1e-3)),  # and below
        (
            "train.epochs",
            Knob(low=1, high=10),
        ),  # whole numbers are wanted, the range would give 2.7
        ("train.hidden", Knob(choices=[[64], [0]])),
        ("train.normalise_reward", Knob(choices=["perhaps", "no"])),
        ("market.limits.trailing_stop", Knob(choices=["off", 2.0])),
        ("train.gamma", Knob(choices=[0.9, [0.9, 0.99]])),
    ],
)
def test_values_that_the_settings_refuse_are_refused_before_the_first_trial(
    name: str, knob: Knob
) -> None:
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")):
        check_space({name: knob}, SETTINGS)


@pytest.mark.parametrize(
    ("name", "knob"),
    [
        ("train.epochs", Knob(low=1, high=10, whole=True)),
        ("train.hidden", HIDDEN),
        ("market.limits.trailing_stop", Knob(choices=["off", 0.1])),
        ("market.limits.max_held_bars", Knob(low=5, high=500, whole=True, log=True)),
        ("train.normalise_reward", Knob(choices=[True, False])),
    ],
)
def test_what_settings_allow_is_drawn_and_set(name: str, knob: Knob) -> None:
    """Everything that Optuna may draw becomes settings."""
    space = {name: knob}
    settings = Settings.model_validate({"search": {"space": space}})
    check_space(space, settings)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(20):
        trial = study.ask(make_distributions(space))
        values = values_of(space, trial.params)
        seen.add(str(value_at(apply_values(settings, values), name)))
    assert len(seen) > 1


def test_ranges_are_optunas() -> None:
    found = make_distributions(
        {
            "a": Knob(low=1e-4, high=1e-2, log=True),
            "b": Knob(low=1, high=8, whole=True),
            "c": HIDDEN,
            "d": Knob(low=0.0, high=1.0),
        }
    )
    assert found == {
        "a": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True),
        "b": optuna.distributions.IntDistribution(1, 8),
        "c": optuna.distributions.CategoricalDistribution(["[64, 64]", "[32]", "[16, 16, 16]"]),
        "d": optuna.distributions.FloatDistribution(0.0, 1.0),
    }


@pytest.mark.parametrize("choice", [[64, 64], [32], [16, 16, 16]])
def test_lists_travel_as_text_and_come_back(choice: list[int]) -> None:
    assert isinstance(choice_text(choice), str)
    assert values_of({"train.hidden": HIDDEN}, {"train.hidden": choice_text(choice)}) == {
        "train.hidden": choice
    }


@pytest.mark.parametrize("value", [True, 3, 0.5, "tanh"])
def test_single_values_travel_as_they_are(value: Any) -> None:
    assert choice_text(value) is value


def test_the_middle_of_a_range() -> None:
    assert middle_value(Knob(low=0.0, high=1.0)) == 0.5
    np.testing.assert_allclose(middle_value(Knob(low=1e-6, high=1e-2, log=True)), 1e-4)
    whole = middle_value(Knob(low=1, high=8, whole=True))
    assert isinstance(whole, int)
    assert 1 <= whole <= 8
    assert middle_value(Knob(low=-3.0, high=1.0)) == -1.0
    assert middle_value(HIDDEN) == [64, 64]


def test_the_ends_of_a_range() -> None:
    assert extreme_values(Knob(low=0.1, high=0.4)) == (0.1, 0.4)
    ends = extreme_values(Knob(low=1, high=8, whole=True))
    assert ends == (1, 8)
    assert all(isinstance(end, int) for end in ends)
    assert extreme_values(HIDDEN) == ([64, 64], [16, 16, 16])
