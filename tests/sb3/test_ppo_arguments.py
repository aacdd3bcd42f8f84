"""The constructor is Stable-Baselines3's; what cannot be honoured is refused by name."""

import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from scripted_envs import Scripted
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy

from flatout import PPO
from flatout.errors import SettingsError
from rounding import assert_close

CARTPOLE: dict[str, Any] = {"policy": "MlpPolicy", "env": "CartPole-v1"}


class Spaces(gymnasium.Env):
    """Spaces only."""

    def __init__(self, observation: Any = None, action: Any = None) -> None:
        self.observation_space = observation or gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = action or gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    "method", ["__init__", "learn", "predict", "save", "load", "set_env", "set_parameters"]
)
def test_names_order_and_defaults_are_theirs(method: str) -> None:
    ours, theirs = (
        inspect.signature(getattr(one, method)).parameters for one in (PPO, stable_baselines3.PPO)
    )
    # flatout's own
    more = [("overlap", None, inspect.Parameter.KEYWORD_ONLY)] if method == "__init__" else []
    assert [(p.name, p.default, p.kind) for p in ours.values()] == [
        *((p.name, p.default, p.kind) for p in theirs.values()),
        *more,
    ]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"policy": "CnnPolicy"}, "policy is 'CnnPolicy'; flatout.PPO has \"MlpPolicy\""),
    ({"policy": ActorCriticCnnPolicy}, "ActorCriticCnnPolicy"),
    ({"use_sde": True}, "use_sde is True; there is no state-dependent exploration"),
    ({"sde_sample_freq": 4}, "sde_sample_freq is 4"),
    ({"rollout_buffer_class": dict}, "rollout_buffer_class is"),
    ({"rollout_buffer_kwargs": {"a": 1}}, "rollout_buffer_kwargs is"),
    ({"_init_setup_model": False}, "_init_setup_model is False"),
    (
        {"policy_kwargs": {"features_extractor_class": dict}},
        "policy_kwargs has 'features_extractor_class'",
    ),
    ({"policy_kwargs": {"ortho_init": False}}, "ortho_init"),
    (
        {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [16]}}},
        "actor and critic have equal layers",
    ),
    ({"policy_kwargs": {"net_arch": []}}, "list of one or more widths"),
    ({"policy_kwargs": {"net_arch": [64, 0]}}, "list of one or more widths"),
    ({"policy_kwargs": {"activation_fn": torch.nn.GELU}}, "activation_fn'] is GELU"),
    ({"learning_rate": "linear"}, "learning_rate is 'linear'; it must be a number"),
    ({"learning_rate": -1.0}, "learning_rate is -1.0"),
    ({"n_steps": 0}, "n_steps is 0; it must be a whole number"),
    ({"n_epochs": 2.5}, "n_epochs is 2.5"),
    ({"batch_size": 1}, "batch_size is 1; advantages are normalised"),
    ({"n_steps": 1}, "n_steps x n_envs is 1"),
    ({"gamma": 1.5}, "gamma is 1.5; it must be a number from 0 to 1"),
    ({"max_grad_norm": None}, "max_grad_norm is None"),
    ({"target_kl": float("nan")}, "target_kl is nan"),
    ({"device": "abacus"}, "device is 'abacus'"),
    ({"env": 7}, "env is 7; give the name of a Gymnasium environment"),
    ({"env": "NoSuch-v0"}, "env is 'NoSuch-v0', which Gymnasium cannot make"),
    ({"env": Spaces(action=gymnasium.spaces.MultiDiscrete([2, 3]))}, "neither Box nor Discrete"),
    ({"env": Spaces(action=gymnasium.spaces.Discrete(3, start=1))}, "does not start at 0"),
    ({"env": Spaces(action=gymnasium.spaces.Box(-np.inf, np.inf, (1,)))}, "no finite bounds"),
    ({"env": Spaces(action=gymnasium.spaces.Box(0, 9, (1,), np.int64))}, "not floats"),
    ({"env": Spaces(gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2)))}, "FlattenObservation"),
    ({"env": Spaces(gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8))}, "holds images"),
]


@pytest.mark.parametrize(
    ("changes", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED]
)
def test_what_cannot_be_honoured_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        PPO(**CARTPOLE | changes)
    assert message in str(refusal.value)


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(TypeError, match="n_stepps"):
        PPO("MlpPolicy", "CartPole-v1", n_stepps=3)


@pytest.mark.parametrize(
    "kwargs", [{"net_arch": [8]}, {"net_arch": {"pi": [8], "vf": [8]}, "ortho_init": True}]
)
def test_networks_as_asked_for(kwargs: dict[str, Any]) -> None:
    model = PPO(
        ActorCriticPolicy,
        Scripted(),
        policy_kwargs={**kwargs, "activation_fn": torch.nn.SiLU},
        n_steps=8,
    )
    assert (model.architecture.hidden, model.architecture.activation) == ((8,), "silu")
    assert model.network.actor.hidden[0].weight.shape == (3, 8)


def test_weights_begin_as_theirs_do() -> None:
    """Orthogonal, with their gains."""
    ours = PPO("MlpPolicy", Scripted(), seed=0).policy.state_dict()
    theirs = stable_baselines3.PPO(
        "MlpPolicy", Scripted(), seed=0, device="cpu"
    ).policy.state_dict()
    assert {name: x.shape for name, x in ours.items()} == {
        name: x.shape for name, x in theirs.items()
    }
    for name in ours:
        roundings, size = (
            ours[name].numel() + 64,
            float(theirs[name].norm()),
        )  # a sum of so many squares
        assert_close(
            ours[name].norm().numpy(), theirs[name].norm().numpy(), roundings=roundings, size=size
        )


def test_a_smaller_last_minibatch_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="the last minibatch of each epoch has 4 transitions"):
        PPO("MlpPolicy", Scripted(), n_steps=20, batch_size=8)


def test_numbers_may_change_while_learning() -> None:
    """Callbacks anneal them."""
    model = PPO("MlpPolicy", Scripted(), n_steps=8, batch_size=8, n_epochs=1, seed=0)
    model.learn(8)
    model.ent_coef, model.n_epochs = 0.5, 3
    model.learn(8)
    assert float(model.engine.learner.core.host_rates.entropy) == 0.5
    assert model._n_updates == 4
    with pytest.raises(AttributeError):
        model.n_steps = 9
