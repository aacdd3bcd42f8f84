"""Learning from what an older policy did, written once for NumPy, PyTorch and JAX.

Two policies stand behind every step: the one that acted (*behaviour*) and the one that learns.
V-trace (Espeholt et al., 2018) corrects values for the difference; decoupled PPO (Hilton et al.,
2021) keeps the step small against the policy at the start of the update (*proximal*) and weighs
each transition by how likely that one was to act so. Trajectories are (time, env) of rows as
`slow_envs/tape.py` has them: a row that does not act ends what is before it.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace
from flatout.learners.hyperparameters import DEFAULTS
from flatout.learners.ppo_math import PolicyLoss, decayed_sums


class Corrected(NamedTuple):
    """(time, env) each; zero, and the value itself, in rows that do not act."""

    advantage: Array
    target: Array  # what the critic shall say


class Trust(NamedTuple):
    """How much of another policy's data is used."""

    rho: float = 1.0  # largest weight of a step's own surprise
    trace: float = 1.0  # largest weight of the surprises after it
    decay: float = DEFAULTS.gae_lambda


def vtrace(
    reward: Array,
    value: Array,
    terminated: Array,
    acting: Array,
    ratio: Array,
    gamma: float,
    trust: Trust,
    xp: Namespace,
) -> Corrected:
    """V-trace targets, and advantages that use them one step ahead.

    `value` is (time + 1, env): the last row is of what came after. `ratio` is how much likelier the
    learning policy is to act so than the one that did. With a ratio of 1 everywhere and `decay`
    lambda, targets are those of GAE.
    """
    acts = xp.astype(acting, reward.dtype)
    going = gamma * acts * (1 - xp.astype(terminated, reward.dtype))
    rho = xp.clip(ratio, None, trust.rho)
    kept = trust.decay * xp.clip(ratio, None, trust.trace)
    here, then = value[:-1, ...], value[1:, ...]
    surprise = acts * rho * (reward + going * then - here)
    excess = decayed_sums(surprise, going * kept, xp)  # of the target over the value
    after = xp.concat([excess[1:, ...], xp.zeros_like(excess[:1, ...])], axis=0)
    advantage = acts * (reward + going * (then + trust.decay * after) - here)
    return Corrected(advantage, here + excess)


def vtrace_loss(
    log_prob: Array, proximal: Array, behaviour: Array, advantage: Array, rho: float, xp: Namespace
) -> PolicyLoss:
    """V-trace's policy gradient at the proximal policy: each transition weighs by its ratio, at
    most `rho`.
    """
    log_ratio = log_prob - proximal
    weight = xp.exp(proximal - behaviour)
    loss = -xp.mean(xp.clip(weight, None, rho) * log_prob * advantage)
    clipped = xp.astype(weight > rho, weight.dtype)
    return PolicyLoss(loss, xp.mean(xp.exp(log_ratio) - 1 - log_ratio), xp.mean(clipped))


def decoupled_loss(
    log_prob: Array,
    proximal: Array,
    behaviour: Array,
    advantage: Array,
    clip: float,
    cap: float,
    xp: Namespace,
) -> PolicyLoss:
    """PPO's clipped surrogate against the proximal policy, weighted by how likely that was to act
    so (at most `cap`).

    Where the proximal policy is the behaviour it is PPO's own.
    """
    log_ratio = log_prob - proximal
    ratio = xp.exp(log_ratio)
    held = xp.clip(ratio, 1 - clip, 1 + clip)
    weight = xp.clip(xp.exp(proximal - behaviour), None, cap)
    loss = -xp.mean(weight * xp.minimum(advantage * ratio, advantage * held))
    clipped = xp.astype(xp.abs(ratio - 1) > clip, ratio.dtype)
    return PolicyLoss(loss, xp.mean(ratio - 1 - log_ratio), xp.mean(clipped))


def effective_share(ratio: Array, xp: Namespace) -> Array:
    """The effective sample size over the size: 1 where all weigh alike, 1/n where one outweighs the
    rest.
    """
    total = xp.sum(ratio)
    return total * total / (ratio.shape[0] * xp.sum(ratio * ratio))
