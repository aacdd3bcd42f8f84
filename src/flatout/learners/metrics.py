"""The figures that a training reports, and the names of their columns: what each update measured,
and what an evaluation found.

On the device an update's metrics are one row of numbers, as rows are cheap to add; the NamedTuples
here say which number is which, and their order is the order of the columns.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace
from flatout.learners.rates import Program


class LossMetrics(NamedTuple):
    """What the loss of a minibatch is made of, and how far the policy has moved; scalars."""

    policy_loss: Array
    value_loss: Array
    entropy: Array
    approx_kl: Array
    clip_fraction: Array


class RolloutMetrics(NamedTuple):
    """What an update knows beside its minibatches; scalars."""

    explained_variance: Array
    learning_rate: Array
    std: Array
    epochs: Array
    reward: Array
    episodes: Array  # a total; the two that follow are sums over those episodes
    episode_return: Array
    episode_length: Array


# means over the minibatches of an update
MINIBATCH_METRICS = (*LossMetrics._fields, "loss", "grad_norm")
METRICS = MINIBATCH_METRICS + RolloutMetrics._fields
EPISODES = METRICS.index("episodes")
AFTER_EPISODES = METRICS.index("episode_length") + 1

SCORES = ("reward", "length")  # of an evaluation, before the reward's terms
SCORE = SCORES.index("reward")  # the figure by which networks are compared


def metric_names(program: Program) -> tuple[str, ...]:
    """Names of the columns of a chunk's metrics."""
    return METRICS + tuple(f"terms/{name}" for name in program.environment.terms)


def score_names(program: Program) -> tuple[str, ...]:
    """Names of the columns of a chunk's scores."""
    return SCORES + program.environment.terms


def mean_metrics(total: Array, updates: Array, xp: Namespace) -> Array:
    """A chunk's metrics from their sums over so many updates: means, 0 where none was made;
    episodes are counted, and their returns and lengths are means over those that ended.
    """
    means, episodes = total / xp.clip(updates, 1, None), total[EPISODES]
    per_episode = total[EPISODES + 1 : AFTER_EPISODES] / xp.clip(episodes, 1, None)
    return xp.concat([means[:EPISODES], episodes[None], per_episode, means[AFTER_EPISODES:]])
