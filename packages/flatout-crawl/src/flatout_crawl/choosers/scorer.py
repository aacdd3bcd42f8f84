"""The policy for crawls: every link is scored by the same small network, whatever its place among
the candidates.

Links are encoded one by one together with the global numbers, pooled into a context (mean and
largest of those that are there), and scored against a query made from it; stopping is scored from
the context alone. So permuting links permutes their logits, and weights fit any number of
candidates. Runs on NumPy, PyTorch and JAX alike.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flatout.arrays import Array, Namespace
from flatout.errors import SettingsError
from flatout.learners.environment import Discrete
from flatout.policies.actions import Categorical, mask_choices
from flatout.policies.network import ACTOR_GAIN, CRITIC_GAIN, HIDDEN_GAIN, Layer, orthogonal, relu


class Encoder(NamedTuple):
    """From links and global numbers to codes of links and a context."""

    link: Layer  # (column, width)
    overall: Array  # (global, width) joins the first layer: the same for all links
    second: Layer  # (width, width)
    context: Layer  # (2 * width + global, width)


class Actor(NamedTuple):
    """What scores links and stopping."""

    encoder: Encoder
    own: Array  # (width,) what a link's code is worth in any context
    query: Layer  # (width, width) what the context asks of links
    stop: Layer  # (width, 1)


class Critic(NamedTuple):
    """What values states; half as wide."""

    encoder: Encoder
    head: Layer  # (width, 1)


class ScorerWeights(NamedTuple):
    """All that a link scorer learns."""

    actor: Actor
    critic: Critic


class Parts(NamedTuple):
    """A flat observation, taken apart."""

    overall: Array  # (..., global)
    links: Array  # (..., K, column)
    allowed: Array  # (..., K + 1) 1 or 0


@dataclass(frozen=True)
class LinkScorer:
    """A permutation-equivariant policy and value over flat observations (global, links, mask)."""

    globals: int = 16
    columns: int = 28
    candidates: int = 64
    width: int = 64

    def __post_init__(self) -> None:
        if min(self.globals, self.columns, self.candidates) < 1 or self.width < 2:
            raise SettingsError(
                f"a link scorer needs sizes of 1 or more and a width of 2 or more, not {self}"
            )

    @property
    def observation_size(self) -> int:
        """Numbers in a flat observation."""
        return self.globals + self.candidates * self.columns + self.candidates + 1

    @property
    def weights_count(self) -> int:
        """How many numbers are learned, computed without making them."""
        wide, narrow = self.width, max(1, self.width // 2)
        actor = self._encoder_count(wide) + wide + (wide + 1) * wide + (wide + 1)
        return actor + self._encoder_count(narrow) + narrow + 1

    def _encoder_count(self, width: int) -> int:
        inputs = (self.columns + 1, self.globals, width + 1, 2 * width + self.globals + 1)
        return width * sum(inputs)

    @property
    def actions(self) -> Discrete:
        """One per candidate, and stopping."""
        return Discrete(self.candidates + 1)

    def new_weights(self, seed: int) -> ScorerWeights:
        """Fresh weights: float32 arrays of NumPy, the same for the same seed and any number of
        candidates.
        """
        rng = np.random.default_rng(seed)
        wide, narrow = self.width, max(1, self.width // 2)
        actor = Actor(
            _new_encoder(rng, self.columns, self.globals, wide),
            orthogonal(rng, wide, 1, ACTOR_GAIN)[:, 0],
            _new_layer(rng, wide, wide, ACTOR_GAIN),
            _new_layer(rng, wide, 1, ACTOR_GAIN),
        )
        encoder = _new_encoder(rng, self.columns, self.globals, narrow)
        return ScorerWeights(actor, Critic(encoder, _new_layer(rng, narrow, 1, CRITIC_GAIN)))

    def policy(self, weights: ScorerWeights, observation: Array, xp: Namespace) -> Categorical:
        """The distribution over the allowed actions, from (..., observation_size)."""
        parts, actor = self.parts(observation, xp), weights.actor
        codes, context = _encode_links(actor.encoder, parts, xp)  # (..., K, width), (..., width)
        query = actor.own + context @ actor.query.weight + actor.query.bias
        logits = (codes @ query[..., None])[..., 0]
        stop = context @ actor.stop.weight + actor.stop.bias
        return mask_choices(xp.concat([logits, stop], axis=-1), parts.allowed > 0.5, xp)

    def value(self, weights: ScorerWeights, observation: Array, xp: Namespace) -> Array:
        """What the rewards to come are worth: (...)."""
        _, context = _encode_links(weights.critic.encoder, self.parts(observation, xp), xp)
        return (context @ weights.critic.head.weight + weights.critic.head.bias)[..., 0]

    def parts(self, observation: Array, xp: Namespace) -> Parts:
        """A flat observation taken apart."""
        first, last = self.globals, self.globals + self.candidates * self.columns
        shape = (*observation.shape[:-1], self.candidates, self.columns)
        links = xp.reshape(observation[..., first:last], shape)
        return Parts(observation[..., :first], links, observation[..., last:])


def _encode_links(encoder: Encoder, parts: Parts, xp: Namespace) -> tuple[Array, Array]:
    """Codes of the links, 0 for places without one, and the context."""
    *lead, count, columns = parts.links.shape
    width = encoder.second.weight.shape[-1]
    # one product is faster than one per state
    rows = xp.reshape(parts.links, (-1, columns)) @ encoder.link.weight
    shared = parts.overall @ encoder.overall + encoder.link.bias
    first = relu(xp.reshape(rows, (*lead, count, width)) + shared[..., None, :], xp)
    second = xp.reshape(first, (-1, width)) @ encoder.second.weight + encoder.second.bias
    there = parts.allowed[..., :-1]
    codes = relu(xp.reshape(second, (*lead, count, width)), xp) * there[..., None]
    total = (there[..., None, :] @ codes)[..., 0, :]  # in NumPy a product is faster than a sum
    mean = total / xp.clip(xp.sum(there, axis=-1), 1, count)[..., None]
    largest = xp.max(codes, axis=-2)  # codes are never negative: an empty place does not win
    pooled = xp.concat([mean, largest, parts.overall], axis=-1)
    return codes, relu(pooled @ encoder.context.weight + encoder.context.bias, xp)


def _new_encoder(rng: np.random.Generator, columns: int, overall: int, width: int) -> Encoder:
    return Encoder(
        _new_layer(rng, columns, width, HIDDEN_GAIN),
        orthogonal(rng, overall, width, HIDDEN_GAIN),
        _new_layer(rng, width, width, HIDDEN_GAIN),
        _new_layer(rng, 2 * width + overall, width, HIDDEN_GAIN),
    )


def _new_layer(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> Layer:
    return Layer(orthogonal(rng, inputs, outputs, gain), np.zeros(outputs, np.float32))
