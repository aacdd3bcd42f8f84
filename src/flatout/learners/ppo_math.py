"""What PPO computes, written once for NumPy, PyTorch and JAX; definitions follow Stable-Baselines3.

Trajectories are (time, env). A *terminated* episode is worth nothing more; a *truncated* one is
worth what the critic says of its last observation; neither lets an advantage flow into the episode
that follows.
"""

from typing import NamedTuple

from flatout.arrays import Array, Namespace

ROUNDING = 1e-12  # of a variance, relative to the square: what float32 makes of equal numbers


class PolicyLoss(NamedTuple):
    """The clipped surrogate and how far the policy has moved; scalars."""

    loss: Array
    approx_kl: Array
    clip_fraction: Array


class Moments(NamedTuple):
    """Running mean and variance, with the count of what they have seen; scalars."""

    mean: Array
    variance: Array
    count: Array


def gae(
    reward: Array, value: Array, after: Array, ended: Array, gamma: Array, lam: Array, xp: Namespace
) -> tuple[Array, Array]:
    """Generalised advantage estimates and returns: (time, env) each.

    `after` is the value of the state that each step led to: 0 where it terminated, the critic's
    view of the last observation where it was truncated. `ended` marks both.
    """
    delta = reward + gamma * after - value
    going = 1 - xp.astype(ended, reward.dtype)
    advantage = decayed_sums(delta, gamma * lam * going, xp)
    return advantage, advantage + value


def following_values(
    value: Array, last: Array, final: Array, terminated: Array, truncated: Array, xp: Namespace
) -> Array:
    """`after` of gae: the next step's value, but `final` where truncated and 0 where terminated.

    `last` (env,) is the value of the observation after the last step.
    """
    following = xp.concat([value[1:, ...], last[None]], axis=0)
    following = xp.where(truncated, final, following)
    return xp.where(terminated, xp.zeros_like(following), following)


def decayed_sums(x: Array, decay: Array, xp: Namespace) -> Array:
    """y with y[t] = x[t] + decay[t] * y[t + 1] along the first axis, in log2(time) passes that all
    devices like.
    """
    span, steps = 1, x.shape[0]
    while span < steps:
        rest = xp.zeros_like(x[:span, ...])
        x = x + decay * xp.concat([x[span:, ...], rest], axis=0)
        decay = decay * xp.concat([decay[span:, ...], rest], axis=0)
        span *= 2
    return x


def normalise(advantage: Array, xp: Namespace) -> Array:
    """Mean 0, standard deviation 1 over all elements; a single one stays as it is."""
    count = 1
    for size in advantage.shape:
        count *= size
    if count < 2:
        return advantage
    centred = advantage - xp.mean(advantage)
    deviation = xp.sqrt(xp.sum(centred * centred) / (count - 1))
    return centred / (deviation + 1e-8)


def policy_loss(
    log_prob: Array, old_log_prob: Array, advantage: Array, clip: Array, xp: Namespace
) -> PolicyLoss:
    """Minus the clipped surrogate objective; the KL estimate is mean(ratio - 1 - log ratio)."""
    log_ratio = log_prob - old_log_prob
    ratio = xp.exp(log_ratio)
    held = xp.minimum(xp.maximum(ratio, 1 - clip), 1 + clip)
    loss = -xp.mean(xp.minimum(advantage * ratio, advantage * held))
    clipped = xp.astype(xp.abs(ratio - 1) > clip, ratio.dtype)
    return PolicyLoss(loss, xp.mean(ratio - 1 - log_ratio), xp.mean(clipped))


def value_loss(value: Array, old_value: Array, returns: Array, clip: Array, xp: Namespace) -> Array:
    """Mean squared error; the prediction may move by at most `clip` from the old one."""
    change = value - old_value
    held = old_value + xp.minimum(xp.maximum(change, -clip), clip)
    error = returns - xp.where(xp.abs(change) <= clip, value, held)
    return xp.mean(error * error)


def explained_variance(value: Array, returns: Array, xp: Namespace) -> Array:
    """1 for a perfect critic, 0 for one that knows the mean only; 0 where the returns do not
    vary.
    """
    spread = xp.var(returns)
    varies = spread > ROUNDING * xp.mean(returns * returns)
    known = 1 - xp.var(returns - value) / xp.where(varies, spread, xp.ones_like(spread))
    return xp.where(varies, known, xp.zeros_like(known))


def merge_moments(moments: Moments, batch: Array, xp: Namespace) -> Moments:
    """The moments of what was seen before and of a batch together."""
    size = batch.shape[0]
    gap = xp.mean(batch) - moments.mean
    count = moments.count + size
    squares = (
        moments.variance * moments.count
        + xp.var(batch) * size
        + gap * gap * moments.count * size / count
    )
    return Moments(moments.mean + gap * size / count, squares / count, count)


def scale_reward(reward: Array, moments: Moments, xp: Namespace) -> Array:
    """Rewards in units of the returns' standard deviation, at most 10 of them."""
    return xp.clip(reward / xp.sqrt(moments.variance + 1e-8), -10.0, 10.0)
