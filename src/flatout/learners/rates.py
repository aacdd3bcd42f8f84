"""`Program`: what fixes a learner's compiled program. `Rates`: every number of it that is data, one
row per lane.

Lanes with equal `Program` share one executable, whatever their rates; other shapes go into other
buckets.
"""

from typing import Any, NamedTuple

import numpy as np

from flatout.arrays import Array, Namespace
from flatout.errors import SettingsError
from flatout.learners.environment import Box, Environment
from flatout.market.rules import OFF
from flatout.policies.network import Sizes
from flatout.settings.fields import MOST_COUNTED
from flatout.settings.tables import Activation, DistributionName, TrainSettings

METRICS = (
    "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "loss", "grad_norm",
    "explained_variance",
    "learning_rate", "std", "epochs", "reward", "episodes", "episode_return", "episode_length",
)  # fmt: skip
UPDATE_METRICS = 7  # the first ones are means over minibatches
# learning from a rollout stops when the policy has moved this many times target_kl
KL_TOLERANCE = 1.5
ADAM_EPSILON = 1e-5
EPISODES = METRICS.index("episodes")  # a total; what follows it are means over those episodes


class Program(NamedTuple):
    """The shape of a learner; hashable."""

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

    @property
    def rollout(self) -> int:
        """Transitions of one update."""
        return self.n_envs * self.n_steps

    @property
    def minibatch(self) -> int:
        """Transitions of one gradient."""
        return self.rollout // self.minibatches

    @property
    def sizes(self) -> Sizes:
        """Of the networks."""
        actions = self.environment.actions
        deviations = actions.size if isinstance(actions, Box) else 0
        return Sizes(self.environment.observation_size, self.hidden, actions.size, deviations)


class Rates(NamedTuple):
    """Hyperparameters that are data; outside the learner every leaf has the lane axis first."""

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
    gates: Array  # (hidden layer,) see policies/network.py
    updates: Array  # of the whole training; the schedule's length
    until: Array  # a chunk advances the lane to this many updates
    environment: Any  # the environment's own


def program_of(
    settings: TrainSettings, environment: Environment, n_envs: int, **others: bool
) -> Program:
    """The program that settings ask for."""
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
        environment, n_envs, settings.n_steps, settings.minibatches, settings.hidden,
        settings.activation,
        settings.distribution, **others,
    )  # fmt: skip


def rates_of(
    settings: TrainSettings, updates: int, environment: Any, gates: Array | None = None
) -> Rates:
    """One lane's rates, as NumPy scalars."""
    descents = updates * settings.epochs * settings.minibatches
    if descents > MOST_COUNTED:
        raise SettingsError(
            f"{updates:,} updates of {settings.epochs:,} epochs x {settings.minibatches:,} "
            "minibatches are more steps of the optimiser than a program can count "
            f"({MOST_COUNTED:,}): lower the timesteps or train.epochs"
        )

    def number(value: float | None) -> Array:
        return np.asarray(OFF if value is None else value, np.float32)

    return Rates(
        learning_rate=number(settings.learning_rate),
        final_rate_share=number(settings.final_rate_share),
        gamma=number(settings.gamma),
        gae_lambda=number(settings.gae_lambda),
        clip=number(settings.clip),
        value_clip=number(settings.value_clip),
        entropy=number(settings.entropy),
        value=number(settings.value),
        max_grad_norm=number(settings.max_grad_norm),
        target_kl=number(settings.target_kl),
        epochs=np.asarray(settings.epochs, np.int32),
        normalise_advantage=np.asarray(settings.normalise_advantage),
        normalise_reward=np.asarray(settings.normalise_reward),
        gates=np.ones(len(settings.hidden), np.float32) if gates is None else gates,
        updates=np.asarray(updates, np.int32),
        until=np.asarray(updates, np.int32),
        environment=environment,
    )


def metric_names(program: Program) -> tuple[str, ...]:
    """Names of the columns of the metrics."""
    return METRICS + tuple(f"terms/{name}" for name in program.environment.terms)


def mean_metrics(total: Array, updates: Array, xp: Namespace) -> Array:
    """A chunk's metrics from their sums over so many updates: means, 0 where none was made;
    episodes are counted, and their returns and lengths are means over those that ended.
    """
    means, episodes = total / xp.clip(updates, 1, None), total[EPISODES]
    per_episode = total[EPISODES + 1 : EPISODES + 3] / xp.clip(episodes, 1, None)
    return xp.concat([means[:EPISODES], episodes[None], per_episode, means[EPISODES + 3 :]])
