"""What a learner carries from update to update, what a rollout leaves behind, and what is made of
it to learn from.
"""

from typing import NamedTuple

from flatout.arrays import Array, ArrayTree, Namespace
from flatout.learners import ppo_math
from flatout.learners.metrics import RolloutMetrics
from flatout.learners.ppo_math import Moments
from flatout.learners.rates import Rates
from flatout.policies.network import Network


class Episodes(NamedTuple):
    """What the running episodes have earned so far, and those that ended in this rollout: (env,)
    each.
    """

    earned: Array
    length: Array
    ended: Array
    ended_earned: Array
    ended_length: Array


class Transition(NamedTuple):
    """One step of the rollout; stacked (step, env, ...)."""

    seen: ArrayTree  # observation, or the view it can be made from
    raw: Array
    head: Array  # the actor's output
    reward: Array
    terminated: Array
    truncated: Array
    final: Array  # value of the last observation where truncated


class Batch(NamedTuple):
    """What the loss needs of each transition: (transition, ...)."""

    seen: ArrayTree
    raw: Array
    log_prob: Array
    value: Array
    advantage: Array
    returns: Array


class Lanes(NamedTuple):
    """All that changes during training; outside the learner every leaf has the lane axis first."""

    network: Network
    optimiser: ArrayTree
    environment: ArrayTree
    view: ArrayTree
    episodes: Episodes
    discounted: Array  # (env,) running discounted returns, for the scale of rewards
    moments: Moments  # of those
    seed: Array
    updates: Array  # done; with the seed it fixes all noise to come


def count_episodes(episodes: Episodes, reward: Array, ended: Array, xp: Namespace) -> Episodes:
    """The episodes after one more step."""
    ended = xp.astype(ended, reward.dtype)
    earned, length = episodes.earned + reward, episodes.length + 1
    return Episodes(
        earned=earned * (1 - ended),
        length=length * (1 - ended),
        ended=episodes.ended + ended,
        ended_earned=episodes.ended_earned + ended * earned,
        ended_length=episodes.ended_length + ended * length,
    )


def scale_step(
    rates: Rates, carry: tuple[Array, Moments], reward: Array, ended: Array, xp: Namespace
) -> tuple[tuple[Array, Moments], Array]:
    """One step's rewards in units of the running deviation of discounted returns.

    `carry` are those returns (env,) and their moments; it comes back as it is after the step.
    """
    discounted, moments = carry
    discounted = discounted * rates.gamma + reward
    moments = ppo_math.merge_moments(moments, discounted, xp)
    going = xp.where(ended, xp.zeros_like(discounted), discounted)
    return (going, moments), ppo_math.scale_reward(reward, moments, xp)


def compute_advantages(
    rates: Rates, steps: Transition, value: Array, last: Array, reward: Array, xp: Namespace
) -> tuple[Array, Array]:
    """Advantages and returns of a rollout: (step, env) each; `last` is the value of what comes
    after it.
    """
    after = ppo_math.following_values(
        value, last, steps.final, terminated=steps.terminated, truncated=steps.truncated, xp=xp
    )
    ended = steps.terminated | steps.truncated
    return ppo_math.gae(
        reward, value, after, ended=ended, gamma=rates.gamma, lam=rates.gae_lambda, xp=xp
    )


def scheduled_rate(rates: Rates, updates: Array, xp: Namespace) -> Array:
    """The learning rate of the update that follows so many others: on a straight line."""
    length = xp.astype(xp.clip(rates.updates - 1, 1, None), rates.learning_rate.dtype)
    progress = xp.clip(xp.astype(updates, length.dtype) / length, None, 1.0)
    return rates.learning_rate * (1 + progress * (rates.final_rate_share - 1))


def update_metrics(
    learned: Array,
    rate: Array,
    epochs: Array,
    network: Network,
    episodes: Episodes,
    batch: Batch,
    reward: Array,
    terms: Array,
    xp: Namespace,
) -> Array:
    """The row of an update's metrics, in the columns of `metrics.metric_names`.

    `learned` are the means over its minibatches, `terms` those of the reward's terms.
    """
    deviation = (
        xp.mean(xp.exp(network.log_std)) if network.log_std.shape[0] else xp.zeros_like(rate)
    )
    rest = rollout_metrics(
        rate,
        xp.astype(epochs, learned.dtype),
        explained=ppo_math.explained_variance(batch.value, batch.returns, xp),
        deviation=deviation,
        episodes=episodes,
        reward=reward,
        xp=xp,
    )
    return xp.concat([learned, xp.stack(list(rest)), terms])


def rollout_metrics(
    rate: Array,
    epochs: Array,
    explained: Array,
    deviation: Array,
    episodes: Episodes,
    reward: Array,
    xp: Namespace,
) -> RolloutMetrics:
    """What every algorithm's update reports beside how it learned."""
    return RolloutMetrics(
        explained_variance=explained,
        learning_rate=rate,
        std=deviation,
        epochs=epochs,
        reward=xp.mean(reward),
        episodes=xp.sum(episodes.ended),
        episode_return=xp.sum(episodes.ended_earned),
        episode_length=xp.sum(episodes.ended_length),
    )
