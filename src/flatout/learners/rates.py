"""`Program`: what fixes a learner's compiled program. `Rates`: every number of it that is data, one
row per lane.

Lanes with equal `Program` share one executable, whatever their rates; other shapes go into other
buckets.
"""

from typing import NamedTuple

import numpy as np

from flatout.arrays import Array, ArrayTree
from flatout.errors import SettingsError
from flatout.learners.environment import Box, Environment
from flatout.learners.hyperparameters import Hyperparameters, hyperparameters_of
from flatout.market.episode import Shape
from flatout.market.rules import OFF
from flatout.policies.network import Sizes
from flatout.policies.per_asset import AssetLayout, layout_of
from flatout.settings.fields import MOST_COUNTED
from flatout.settings.train import (
    Activation,
    Algorithm,
    DistributionName,
    NetworkKind,
    TrainSettings,
)

# kinds of the rates that are no numbers with a fraction
KINDS = {"epochs": np.int32, "normalise_advantage": np.bool_, "normalise_reward": np.bool_}


class Program(NamedTuple):
    """The shape of a learner: all that another compiled program is needed for; hashable."""

    environment: Environment
    n_envs: int
    n_steps: int
    minibatches: int
    hidden: tuple[int, ...]
    activation: Activation
    distribution: DistributionName  # of continuous actions; discrete ones are categorical
    gated: bool = False  # lanes differ in depth
    # trajectories keep views and observe again, which saves memory and costs time
    index_only: bool = False
    algorithm: Algorithm = "ppo"
    network: NetworkKind = "flat"

    @property
    def rollout(self) -> int:
        """Transitions of one update."""
        return self.n_envs * self.n_steps

    @property
    def minibatch(self) -> int:
        """Transitions of one gradient."""
        return self.rollout // self.minibatches

    @property
    def layout(self) -> AssetLayout | None:
        """Where each asset is in an observation; None for networks that see all of it at once."""
        if self.network == "flat":
            return None
        shape = getattr(self.environment, "shape", None)
        if not isinstance(shape, Shape):
            raise SettingsError(
                'train.network "per_asset" is for markets; this environment knows no assets: '
                'choose "flat"'
            )
        return layout_of(shape)

    @property
    def sizes(self) -> Sizes:
        """Widths of the networks: what they see, their layers, what the actor gives."""
        layout = self.layout
        if layout:
            return Sizes(layout.inputs, self.hidden, layout.head, layout.deviations)
        actions = self.environment.actions
        deviations = actions.size if isinstance(actions, Box) else 0
        return Sizes(self.environment.observation_size, self.hidden, actions.size, deviations)


class Rates(NamedTuple):
    """What differs from lane to lane; outside the learner every leaf has the lane axis first.

    The hyperparameters among them are those of `TrainSettings`, under the same names.
    """

    learning_rate: Array
    final_rate_share: Array
    gamma: Array
    gae_lambda: Array
    clip: Array
    value_clip: Array
    entropy: Array
    value: Array
    max_grad_norm: Array
    target_kl: Array
    epochs: Array
    normalise_advantage: Array
    normalise_reward: Array
    action_noise: Array
    feature_noise: Array
    weight_decay: Array
    gates: Array  # (hidden layer,) see policies/network.py
    updates: Array  # of the whole training; the schedule's length
    until: Array  # a chunk advances the lane to this many updates
    environment: ArrayTree  # the environment's own


def check_pathwise(environment: Environment) -> None:
    """Refuse environments through which no gradient goes."""
    if not isinstance(environment.actions, Box):
        raise SettingsError(
            'train.algorithm "pathwise" follows gradients, and choices have none: choose "ppo", or '
            'market.action "weights", "trade" or "direction_amount"'
        )


def program_of(
    settings: TrainSettings, environment: Environment, n_envs: int, **others: bool
) -> Program:
    """The program that settings ask for."""
    kind = settings.kind
    if kind.algorithm == "pathwise":
        check_pathwise(environment)
    rollout = n_envs * settings.n_steps
    if rollout > MOST_COUNTED:
        raise SettingsError(
            f"a rollout of n_envs {n_envs:,} x n_steps {settings.n_steps:,} = {rollout:,} "
            f"transitions is more than a program can count ({MOST_COUNTED:,}): lower train.n_envs "
            "or train.n_steps"
        )
    if rollout % settings.minibatches:
        raise SettingsError(
            f"a rollout of n_envs {n_envs} x n_steps {settings.n_steps} = {rollout} transitions "
            f"cannot be split into {settings.minibatches} equal minibatches: let "
            "train.minibatches divide it"
        )
    return Program(
        environment=environment,
        n_envs=n_envs,
        n_steps=settings.n_steps,
        minibatches=settings.minibatches,
        hidden=settings.hidden,
        activation=settings.activation,
        algorithm=kind.algorithm,
        network=kind.network,
        distribution=kind.distribution,
        **others,
    )


def rates_of(
    settings: TrainSettings, updates: int, environment: ArrayTree, gates: Array | None = None
) -> Rates:
    """One lane's rates, as NumPy scalars."""
    descents = updates * settings.epochs * settings.minibatches
    if descents > MOST_COUNTED:
        raise SettingsError(
            f"{updates:,} updates of {settings.epochs:,} epochs x {settings.minibatches:,} "
            "minibatches are more steps of the optimiser than a program can count "
            f"({MOST_COUNTED:,}): lower the timesteps or train.epochs"
        )

    return make_rates(
        hyperparameters_of(settings),
        environment,
        gates=np.ones(len(settings.hidden), np.float32) if gates is None else gates,
        updates=updates,
        until=updates,
        final_rate_share=settings.final_rate_share,
        normalise_reward=settings.normalise_reward,
        action_noise=settings.action_noise,
        feature_noise=settings.feature_noise,
        weight_decay=settings.weight_decay,
    )


def make_rates(
    numbers: Hyperparameters,
    environment: ArrayTree,
    gates: Array,
    *,
    updates: int,
    until: int,
    final_rate_share: float,
    normalise_reward: bool,
    action_noise: float = 0.0,
    feature_noise: float = 0.0,
    weight_decay: float = 0.0,
) -> Rates:
    """One lane's rates from plain numbers, as NumPy scalars; a limit that is None is `OFF`."""
    given = {
        **vars(numbers),
        "final_rate_share": final_rate_share,
        "normalise_reward": normalise_reward,
        "action_noise": action_noise,
        "feature_noise": feature_noise,
        "weight_decay": weight_decay,
    }
    arrays: dict[str, Array] = {
        name: np.asarray(OFF if value is None else value, KINDS.get(name, np.float32))
        for name, value in given.items()
    }
    return Rates(
        **arrays,
        gates=gates,
        updates=np.asarray(updates, np.int32),
        until=np.asarray(until, np.int32),
        environment=environment,
    )
