"""`model.policy`: acts on NumPy alone, and gives its weights under Stable-Baselines3's names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from flatout.arrays import Array, to_numpy
from flatout.errors import SettingsError
from flatout.foreign import finite
from flatout.policies.network import Layer, Network, Perceptron, actor, critic
from flatout.sb3 import flat_spaces
from flatout.sb3.environments import AnySpace, SpaceArray
from flatout.sb3.model import AskedDevice, LearningModel

if TYPE_CHECKING:
    import torch

RecurrentState = tuple[NDArray[np.generic], ...] | None  # this policy has none
Named = dict[str, NDArray[np.float32]]


class MlpPolicy:
    """The policy of a model, with its weights as they are now."""

    def __init__(self, model: LearningModel) -> None:
        self.model = model

    @property
    def observation_space(self) -> AnySpace:
        """The space of observations that it reads."""
        return self.model.observation_space

    @property
    def action_space(self) -> AnySpace:
        """The space of actions that it takes."""
        return self.model.action_space

    @property
    def device(self) -> AskedDevice:
        """Where it learns; it acts on the CPU."""
        return self.model.device

    def set_training_mode(self, mode: bool) -> None:
        """Do nothing: the policy acts alike while it learns and afterwards."""

    def predict(
        self,
        observation: ArrayLike,
        state: RecurrentState = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = False,
    ) -> tuple[SpaceArray, RecurrentState]:
        """Actions for one observation or several, in the environment's bounds; the state goes
        through.
        """
        seen, several = self.read_observation(observation)
        network, activation = self.model.network, self.model.architecture.activation
        with np.errstate(over="ignore", invalid="ignore"):
            kind = flat_spaces.action_distribution(
                self.action_space, network, actor(network, seen, activation, np)
            )
            raw = kind.mode(np) if deterministic else kind.sample(self.noise(kind[0].shape), np)
            actions = flat_spaces.clip_actions(self.action_space, raw)
        check_numbers(kind[0])
        check_numbers(actions)
        return (actions if several else actions.squeeze(axis=0)), state

    def predict_values(self, observation: ArrayLike) -> NDArray[np.float32]:
        """What the critic expects the observations to be worth: (n, 1)."""
        seen, _ = self.read_observation(observation)
        with np.errstate(over="ignore", invalid="ignore"):
            values = critic(self.model.network, seen, self.model.architecture.activation, np)[
                :, None
            ]
        check_numbers(values)
        return values

    def noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Noise to sample actions with: normal for boxes, uniform for choices."""
        rng = self.model.prediction_noise
        draw = rng.standard_normal if isinstance(self.action_space, spaces.Box) else rng.random
        return draw(shape, np.float32)

    def read_observation(self, observation: object) -> tuple[NDArray[np.float32], bool]:
        """One observation or several as (n, feature), and whether several were given."""
        if (
            isinstance(observation, tuple)
            and len(observation) == 2
            and isinstance(observation[1], dict)
        ):
            raise SettingsError(
                "predict was given (observation, info), as Gymnasium's reset returns: give the "
                "observation alone"
            )
        if isinstance(observation, Mapping):
            raise SettingsError("predict was given a dict; this policy reads arrays")
        array = np.asarray(observation)
        several = flat_spaces.is_batch(self.observation_space, array)
        return flat_spaces.flatten_observations(
            self.observation_space, array if several else array[None]
        ), several

    def state_dict(self) -> "dict[str, torch.Tensor]":
        """The weights as PyTorch's tensors, under Stable-Baselines3's names: its policy loads
        them.
        """
        import torch

        return {
            name: torch.tensor(np.ascontiguousarray(array))
            for name, array in name_weights(self.model.network).items()
        }

    def load_state_dict(self, state_dict: Mapping[str, Array], strict: bool = True) -> None:
        """Take over weights under Stable-Baselines3's names; with `strict` all must be given."""
        given = {name: to_numpy(value) for name, value in state_dict.items()}
        self.model.set_network(replace_weights(self.model.network, given, strict))

    def set_parameters(
        self, parameters: Mapping[str, Mapping[str, Array]], exact_match: bool
    ) -> None:
        """Take over weights as `PPO.get_parameters` gives them: {"policy": weights by name}."""
        if set(parameters) != {"policy"}:
            raise SettingsError(
                f"the parameters are {sorted(parameters)}; this model takes 'policy': "
                f"the optimiser begins anew"
            )
        self.load_state_dict(parameters["policy"], exact_match)


def check_numbers(values: SpaceArray) -> None:
    """Refuse what a network made of NaN, or of numbers that are too large for it."""
    if not finite(values):
        raise SettingsError(
            "the answer is not a number: check the observation, and the weights, for NaN and "
            "overflow"
        )


def name_weights(network: Network) -> Named:
    """A network's arrays under Stable-Baselines3's names, whose hidden layers lie the other way
    round.
    """
    arrays = {"log_std": network.log_std} if network.log_std.size else {}
    for part, hidden, head in (
        ("actor", "policy_net", "action_net"),
        ("critic", "value_net", "value_net"),
    ):
        perceptron: Perceptron = getattr(network, part)
        for k, layer in enumerate(perceptron.hidden):
            arrays |= {f"mlp_extractor.{hidden}.{2 * k}.weight": layer.weight.T}
            arrays |= {f"mlp_extractor.{hidden}.{2 * k}.bias": layer.bias}
        arrays |= {f"{head}.weight": perceptron.head.weight, f"{head}.bias": perceptron.head.bias}
    return arrays


def replace_weights(network: Network, given: Mapping[str, SpaceArray], strict: bool) -> Network:
    """The network with the arrays that are given under those names."""
    own = name_weights(network)
    missing, unknown = sorted(set(own) - set(given)), sorted(set(given) - set(own))
    if unknown or (strict and missing):
        raise SettingsError(
            f"the weights do not fit this policy: missing {missing}, unknown {unknown}"
        )
    wrong = [name for name in given if given[name].shape != own[name].shape]
    if wrong:
        raise SettingsError(
            f"{wrong[0]} has shape {given[wrong[0]].shape}, this policy has {own[wrong[0]].shape}"
        )
    new = {name: np.array(given.get(name, own[name]), np.float32) for name in own}

    def perceptron(hidden: str, head: str) -> Perceptron:
        layers = tuple(
            Layer(np.ascontiguousarray(new[f"mlp_extractor.{hidden}.{2 * k}.weight"].T),
                  new[f"mlp_extractor.{hidden}.{2 * k}.bias"])
            for k in range(len(network.actor.hidden))
        )  # fmt: skip
        return Perceptron(layers, Layer(new[f"{head}.weight"], new[f"{head}.bias"]))

    actor_, critic_ = perceptron("policy_net", "action_net"), perceptron("value_net", "value_net")
    return Network(actor_, critic_, new.get("log_std", network.log_std))
