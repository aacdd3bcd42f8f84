"""A policy as Stable-Baselines3 saves its PPO: `PPO.load(path)` opens it without flatout.

Weights, critic and standard deviations are all there, so training can go on. What PPO's MlpPolicy
cannot express is refused, not approximated. The file holds pickles, as that format does; flatout
writes them and reads none.
"""

import io
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO

from flatout.errors import BundleError
from flatout.export.layers import shares_of
from flatout.market.episode import OBSERVATION_LIMIT
from flatout.policies.bundle import Bundle
from flatout.policies.network import Layer, Perceptron

ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "silu": torch.nn.SiLU}


class SpacesOnly(gym.Env[Any, Any]):
    """An environment for its spaces, which are those of `MarketEnv`; the file does not keep it."""

    def __init__(self, bundle: Bundle) -> None:
        size = bundle.observation_size
        self.observation_space = gym.spaces.Box(
            -OBSERVATION_LIMIT, OBSERVATION_LIMIT, (size,), np.float32
        )
        self.action_space = (
            gym.spaces.MultiDiscrete([bundle.choices] * bundle.action_size)
            if bundle.choices
            else gym.spaces.Box(-1.0, 1.0, (bundle.action_size,), np.float32)
        )


def zip_of(bundle: Bundle) -> bytes:
    """The content of the .zip file."""
    check_expressible(bundle)
    actor, critic = (
        plain_layers(part, bundle) for part in (bundle.network.actor, bundle.network.critic)
    )
    widths = {
        "pi": [layer.weight.shape[1] for layer in actor],
        "vf": [layer.weight.shape[1] for layer in critic],
    }
    model = PPO(
        "MlpPolicy",
        SpacesOnly(bundle),
        policy_kwargs={"net_arch": widths, "activation_fn": ACTIVATIONS[bundle.activation]},
        device="cpu",
    )
    named = tensors("mlp_extractor.policy_net", "action_net", actor, bundle.network.actor.head)
    named |= tensors("mlp_extractor.value_net", "value_net", critic, bundle.network.critic.head)
    if not bundle.choices:
        named["log_std"] = torch.tensor(bundle.network.log_std)
    model.policy.load_state_dict(named, strict=True)
    file = io.BytesIO()
    model.save(file)
    return file.getvalue()


def check_expressible(bundle: Bundle) -> None:
    """Refuse policies that PPO's MlpPolicy cannot be."""
    if bundle.kind != "flat":
        raise BundleError(
            "a network that looks at each asset has no equal in Stable-Baselines3's MlpPolicy: "
            'train with train.algorithm = "ppo", whose network is flat unless asked, or export to '
            "onnx"
        )
    if bundle.distribution != "gaussian" and not bundle.choices:
        raise BundleError(
            f"the distribution {bundle.distribution!r} has no equal in Stable-Baselines3: its PPO "
            "has no shares, and squashes actions with state-dependent exploration only, whose "
            'noise is another one; train with train.distribution = "gaussian", or export to onnx'
        )
    mixed = [
        f"{share:g}" for _, share in shares_of(bundle.network.actor, bundle.gates) if share != 1
    ]
    if mixed:
        raise BundleError(
            f"the gates {', '.join(mixed)} mix layers with what goes into them, which "
            "Stable-Baselines3's MlpPolicy cannot; gates of 0 and 1 can be exported, and onnx "
            "takes any"
        )


def plain_layers(perceptron: Perceptron, bundle: Bundle) -> list[Layer]:
    """The hidden layers that are not skipped."""
    return [layer for layer, _ in shares_of(perceptron, bundle.gates)]


def tensors(
    hidden: str, head_name: str, layers: list[Layer], head: Layer
) -> dict[str, torch.Tensor]:
    """Weights and biases under their names there. Every second module of a sequence is an
    activation; a linear module lies (output, input), as flatout's heads do and its hidden layers do
    not.
    """
    named = {f"{head_name}.weight": head.weight, f"{head_name}.bias": head.bias}
    for k, layer in enumerate(layers):
        named |= {f"{hidden}.{2 * k}.weight": layer.weight.T, f"{hidden}.{2 * k}.bias": layer.bias}
    return {name: torch.tensor(np.ascontiguousarray(array)) for name, array in named.items()}
