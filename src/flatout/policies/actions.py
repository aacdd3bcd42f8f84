"""Distributions over actions: sample from given noise, log-probability, entropy, mode.

An action here is what the distribution drew (`raw`), before it is brought into the environment's
bounds: PPO needs the probability of what was drawn. `bounded` turns it into what the environment
gets. Noise is an argument: standard normal for Gaussians, uniform in (0, 1) for categoricals.
"""

import math
from typing import NamedTuple

from flatout.arrays import Array, Namespace
from flatout.settings.train import DistributionName

__all__ = [
    "Categorical",
    "Gaussian",
    "MultiCategorical",
    "SoftmaxGaussian",
    "SquashedGaussian",
    "mask_choices",
]

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
MASKED = -1e9  # a logit that is never drawn, yet finite: -inf would make NaN gradients
LEAST_NOISE = 1e-7
# Where the squashed entropy is summed: equal steps over 4.8 deviations either way. The integrand is
# smooth and dies out, for which equal steps are the better rule (Gauss and Hermite need twice as
# many nodes where the deviation is large).
NODES = tuple(4.8 * (2 * k - 23) / 23 for k in range(24))


class Gaussian(NamedTuple):
    """Independent normal distributions; the environment clips what leaves its bounds.

    >>> import numpy as np
    >>> policy = Gaussian(mean=np.zeros((1, 2)), log_std=np.zeros(2))
    >>> policy.sample(noise=np.ones((1, 2)), xp=np)
    array([[1., 1.]])
    """

    mean: Array  # (..., action)
    log_std: Array  # (action,)

    def sample(self, noise: Array, xp: Namespace) -> Array:
        return self.mean + xp.exp(self.log_std) * noise

    def log_prob(self, raw: Array, xp: Namespace) -> Array:
        scaled = (raw - self.mean) * xp.exp(-self.log_std)
        return -xp.sum(0.5 * scaled * scaled + self.log_std + HALF_LOG_TWO_PI, axis=-1)

    def entropy(self, raw: Array, xp: Namespace) -> Array:
        one = xp.sum(self.log_std + (0.5 + HALF_LOG_TWO_PI))
        return one + xp.zeros_like(self.mean[..., 0])

    def mode(self, xp: Namespace) -> Array:
        return self.mean

    @staticmethod
    def bounded(raw: Array, low: Array, high: Array, xp: Namespace) -> Array:
        return xp.minimum(xp.maximum(raw, low), high)


class SquashedGaussian(NamedTuple):
    """A normal variable through tanh, stretched over the bounds.

    >>> import numpy as np
    >>> raw = SquashedGaussian(mean=np.array([[0.0]]), log_std=np.zeros(1)).mode(np)
    >>> SquashedGaussian.bounded(raw, low=0.0, high=4.0, xp=np)
    array([[2.]])
    """

    mean: Array
    log_std: Array

    def sample(self, noise: Array, xp: Namespace) -> Array:
        return Gaussian(*self).sample(noise, xp)

    def log_prob(self, raw: Array, xp: Namespace) -> Array:
        """Of tanh(raw), not of raw."""
        return Gaussian(*self).log_prob(raw, xp) - xp.sum(log_slope(raw, xp), axis=-1)

    def entropy(self, raw: Array, xp: Namespace) -> Array:
        """The normal's entropy plus the mean of log(1 - tanh^2), which has no closed form: a sum
        over nodes mean + std * z, so that the gradient knows how both parameters move what is
        drawn. Value and gradient are within 0.001 of the truth up to log_std = 1. What was drawn
        plays no part: minus its log-probability is right on average, but its gradient by log_std
        is that of the wrong thing.
        """
        # filled in where the parameters are: nothing is uploaded
        first = xp.zeros_like(self.log_std[:1])
        nodes = xp.concat([xp.full_like(first, node) for node in NODES], axis=0)
        weights = xp.exp(-0.5 * nodes * nodes)
        spread = xp.exp(self.log_std)[:, None] * nodes  # (action, node)
        slopes = log_slope(self.mean[..., None] + spread, xp)  # (..., action, node)
        stretch = xp.sum(slopes * (weights / xp.sum(weights)), axis=-1)
        return Gaussian(*self).entropy(raw, xp) + xp.sum(stretch, axis=-1)

    def mode(self, xp: Namespace) -> Array:
        return self.mean

    @staticmethod
    def bounded(raw: Array, low: Array, high: Array, xp: Namespace) -> Array:
        stretched = low + (high - low) * (0.5 * xp.tanh(raw) + 0.5)
        return Gaussian.bounded(stretched, low, high, xp)  # rounding may pass the bounds


class SoftmaxGaussian(NamedTuple):
    """Normal variables as scores, whose softmax is stretched over the bounds: shares that sum to 1.

    What adds the same number to all scores changes nothing, yet counts in the probability of what
    was drawn: that is the scores'.

    >>> import numpy as np
    >>> raw = SoftmaxGaussian(mean=np.array([[0.0, 0.0]]), log_std=np.zeros(2)).mode(np)
    >>> SoftmaxGaussian.bounded(raw, low=0.0, high=1.0, xp=np)
    array([[0.5, 0.5]])
    """

    mean: Array
    log_std: Array

    def sample(self, noise: Array, xp: Namespace) -> Array:
        return Gaussian(*self).sample(noise, xp)

    def log_prob(self, raw: Array, xp: Namespace) -> Array:
        return Gaussian(*self).log_prob(raw, xp)

    def entropy(self, raw: Array, xp: Namespace) -> Array:
        return Gaussian(*self).entropy(raw, xp)

    def mode(self, xp: Namespace) -> Array:
        return self.mean

    @staticmethod
    def bounded(raw: Array, low: Array, high: Array, xp: Namespace) -> Array:
        shares = xp.exp(raw - xp.max(raw, axis=-1, keepdims=True))
        shares = shares / xp.sum(shares, axis=-1, keepdims=True)
        return Gaussian.bounded(low + (high - low) * shares, low, high, xp)  # rounding, too


class Categorical(NamedTuple):
    """One of several choices; `raw` is its index.

    >>> import numpy as np
    >>> Categorical(logits=np.array([[0.0, 3.0, 1.0]])).mode(np)
    array([1])
    """

    logits: Array  # (..., choice)

    def sample(self, noise: Array, xp: Namespace) -> Array:
        """The largest of the logits plus Gumbel noise."""
        uniform = xp.clip(noise, LEAST_NOISE, 1 - LEAST_NOISE)
        return xp.argmax(self.logits - xp.log(-xp.log(uniform)), axis=-1)

    def log_probs(self, xp: Namespace) -> Array:
        """Of every choice: (..., choice)."""
        shifted = self.logits - xp.max(self.logits, axis=-1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))

    def log_prob(self, raw: Array, xp: Namespace) -> Array:
        choices = xp.arange(self.logits.shape[-1], dtype=raw.dtype)
        chosen = xp.astype(raw[..., None] == choices, self.logits.dtype)
        return xp.sum(self.log_probs(xp) * chosen, axis=-1)

    def entropy(self, raw: Array, xp: Namespace) -> Array:
        log_probs = self.log_probs(xp)
        return -xp.sum(xp.exp(log_probs) * log_probs, axis=-1)

    def mode(self, xp: Namespace) -> Array:
        return xp.argmax(self.logits, axis=-1)

    @staticmethod
    def bounded(raw: Array, low: Array, high: Array, xp: Namespace) -> Array:
        return raw


class MultiCategorical(NamedTuple):
    """Several choices at once, each independent of the others; `raw` holds their indices.

    >>> import numpy as np
    >>> policy = MultiCategorical(logits=np.array([[0.0, 3.0, 1.0, 2.0, 0.0, 1.0]]), choices=3)
    >>> policy.mode(np)
    array([[1, 0]])
    """

    logits: Array  # (..., component * choice), one component after the other
    choices: int  # of each component

    def parts(self, values: Array, xp: Namespace) -> Array:
        """(..., component, choice) of what is given like the logits."""
        return xp.reshape(values, (*values.shape[:-1], -1, self.choices))

    def each(self, xp: Namespace) -> Categorical:
        """The components as a batch of single choices."""
        return Categorical(self.parts(self.logits, xp))

    def sample(self, noise: Array, xp: Namespace) -> Array:
        return self.each(xp).sample(self.parts(noise, xp), xp)

    def log_prob(self, raw: Array, xp: Namespace) -> Array:
        return xp.sum(self.each(xp).log_prob(raw, xp), axis=-1)

    def entropy(self, raw: Array, xp: Namespace) -> Array:
        return xp.sum(self.each(xp).entropy(raw, xp), axis=-1)

    def mode(self, xp: Namespace) -> Array:
        return self.each(xp).mode(xp)

    @staticmethod
    def bounded(raw: Array, low: Array, high: Array, xp: Namespace) -> Array:
        return raw


def log_slope(raw: Array, xp: Namespace) -> Array:
    """The logarithm of tanh's derivative 1 - tanh^2 = 4 / (e^x + e^-x)^2, without overflow."""
    size = xp.abs(raw)
    return 2 * (math.log(2) - size - xp.log1p(xp.exp(-2 * size)))


def mask_choices(logits: Array, allowed: Array, xp: Namespace) -> Categorical:
    """The categorical over the allowed choices, at least one of which there must be.

    >>> import numpy as np
    >>> logits, allowed = np.array([[0.0, 3.0, 1.0]]), np.array([[True, False, True]])
    >>> mask_choices(logits, allowed, np).mode(np)
    array([2])
    """
    return Categorical(xp.where(allowed, logits, xp.full_like(logits, MASKED)))


Distribution = Gaussian | SquashedGaussian | SoftmaxGaussian | Categorical | MultiCategorical
# of continuous actions, by the names that settings have for them
Continuous = type[Gaussian] | type[SquashedGaussian] | type[SoftmaxGaussian]
CONTINUOUS: dict[DistributionName, Continuous] = {
    "gaussian": Gaussian,
    "squashed_gaussian": SquashedGaussian,
    "softmax": SoftmaxGaussian,
}
