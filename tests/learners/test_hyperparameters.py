"""PPO's hyperparameters: names and defaults are written once, in the `[train]` table."""

from dataclasses import fields

import numpy as np
import pytest

from flatout.learners.hyperparameters import Hyperparameters, hyperparameters_of
from flatout.learners.rates import Rates, rates_of
from flatout.market.rules import OFF
from flatout.sb3.arguments import OUR_NAMES
from flatout.settings.train import TrainSettings
from flatout.slow_envs.overlap import Rule

NAMES = [field.name for field in fields(Hyperparameters)]


def test_defaults_are_those_of_the_settings() -> None:
    assert hyperparameters_of(TrainSettings()) == Hyperparameters()
    rule = Rule(batch_segments=3)
    assert {name: getattr(rule, name) for name in NAMES} == vars(Hyperparameters())


def test_every_hyperparameter_is_a_setting_and_a_rate() -> None:
    assert set(NAMES) <= set(TrainSettings.model_fields) & set(Rates._fields)
    assert sorted(OUR_NAMES.values()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_the_settings_as_arrays(name: str) -> None:
    given = TrainSettings(
        epochs=7, learning_rate=1e-3, gamma=0.5, gae_lambda=0.25, clip=0.125, value_clip=2.0,
        entropy=0.5, value=0.75, max_grad_norm=None, target_kl=None, normalise_advantage=False,
    )  # fmt: skip
    found, value = getattr(rates_of(given, 3, ()), name), getattr(given, name)
    kind = {int: np.int32, bool: np.bool_}.get(type(value), np.float32)
    assert found.dtype == kind and found.shape == ()
    assert found == np.asarray(OFF if value is None else value, kind)
