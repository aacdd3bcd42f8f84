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


class PathwiseMetrics(NamedTuple):
    """What a step along a window's gradient was made of; scalars."""

    policy_loss: Array  # minus what accounts earned per bar, in basis points
    value_loss: Array  # of the critic, in per cent squared
    skipped: Array  # 1 if the gradient was not finite
    grad_norm: Array  # of the actor, before it is clipped


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

SCORES = ("reward", "length")  # of an evaluation, before the reward's terms
SCORE = SCORES.index("reward")  # the figure by which networks are compared


def learning_metrics(program: Program) -> tuple[str, ...]:
    """Names of the columns that say how the algorithm learned."""
    return PathwiseMetrics._fields if program.algorithm == "pathwise" else MINIBATCH_METRICS


def metric_names(program: Program) -> tuple[str, ...]:
    """Names of the columns of a chunk's metrics."""
    terms = tuple(f"terms/{name}" for name in program.environment.terms)
    return learning_metrics(program) + RolloutMetrics._fields + terms


def score_names(program: Program) -> tuple[str, ...]:
    """Names of the columns of a chunk's scores."""
    return SCORES + program.environment.terms


def mean_metrics(program: Program, total: Array, updates: Array, xp: Namespace) -> Array:
    """A chunk's metrics from their sums over so many updates: means, 0 where none was made;
    episodes are counted, and their returns and lengths are means over those that ended.
    """
    names = metric_names(program)
    at, after = names.index("episodes"), names.index("episode_length") + 1
    means, episodes = total / xp.clip(updates, 1, None), total[at]
    per_episode = total[at + 1 : after] / xp.clip(episodes, 1, None)
    return xp.concat([means[:at], episodes[None], per_episode, means[after:]])
