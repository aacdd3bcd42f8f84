"""The link scorer: equivariance, padding, sizes, and the same answer from three libraries."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import flatdim
from hypothesis import given, settings
from hypothesis import strategies as st

from array_libraries import LIBRARIES, gradient, run
from flatout.arrays import map_leaves
from flatout.errors import SettingsError
from flatout.learners.environment import Discrete
from flatout.policies.actions import MASKED
from flatout.slow_envs.model import flatten_weights
from flatout_crawl.choosers.observation import GLOBAL, LINK, observation_space
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.scorer import LinkScorer, ScorerWeights
from rounding import assert_close

SCORER = LinkScorer(candidates=12, width=16)


def learned(scorer: LinkScorer, seed: int = 1, dtype: Any = np.float64) -> ScorerWeights:
    """Weights as after training: nothing is zero or near its first value."""
    rng = np.random.default_rng(seed)
    return map_leaves(
        lambda x: (x + rng.normal(0, 0.05, x.shape)).astype(dtype), scorer.new_weights(seed)
    )


def observations(
    scorer: LinkScorer, seed: int, batch: tuple[int, ...] = (5,), dtype: Any = np.float64
) -> np.ndarray:
    """Random ones; as the environment does it, links that are there come first and others are
    zeros.
    """
    rng = np.random.default_rng(seed)
    there = np.arange(scorer.candidates) < rng.integers(0, scorer.candidates + 1, (*batch, 1))
    links = rng.normal(0, 1, (*batch, scorer.candidates, scorer.columns)) * there[..., None]
    overall = rng.normal(0, 1, (*batch, scorer.globals))
    flat = links.reshape(*batch, scorer.candidates * scorer.columns)
    return np.concatenate([overall, flat, there, np.ones((*batch, 1))], axis=-1).astype(dtype)


def permuted(scorer: LinkScorer, observation: np.ndarray, order: np.ndarray) -> np.ndarray:
    overall, links, allowed = scorer.parts(observation, np)
    moved = links[..., order, :].reshape(*links.shape[:-2], -1)
    return np.concatenate(
        [overall, moved, allowed[..., np.append(order, scorer.candidates)]], axis=-1
    )


def outputs(weights: ScorerWeights, observation: Any, xp: Any) -> Any:
    return SCORER.policy(weights, observation, xp).logits, SCORER.value(weights, observation, xp)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_permuting_links_permutes_logits_and_leaves_the_value(seed: int) -> None:
    weights, observation = learned(SCORER, seed), observations(SCORER, seed)
    order = np.random.default_rng(seed).permutation(SCORER.candidates)
    logits, value = outputs(weights, observation, np)
    moved, same = outputs(weights, permuted(SCORER, observation, order), np)
    np.testing.assert_allclose(moved, logits[:, np.append(order, SCORER.candidates)], atol=1e-12)
    np.testing.assert_allclose(same, value, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_more_empty_places_change_nothing(seed: int, more: int) -> None:
    wide = LinkScorer(candidates=SCORER.candidates + more, width=16)
    weights, observation = learned(SCORER, seed), observations(SCORER, seed)
    overall, links, allowed = SCORER.parts(observation, np)
    links = np.concatenate([links, np.zeros((5, more, wide.columns))], axis=1).reshape(5, -1)
    allowed = np.concatenate([allowed[:, :-1], np.zeros((5, more)), allowed[:, -1:]], axis=1)
    padded = np.concatenate([overall, links, allowed], axis=1)
    logits, value = outputs(weights, observation, np)
    more_logits = wide.policy(weights, padded, np).logits
    np.testing.assert_allclose(more_logits[:, : SCORER.candidates], logits[:, :-1], atol=1e-12)
    np.testing.assert_allclose(more_logits[:, -1], logits[:, -1], atol=1e-12)
    np.testing.assert_allclose(wide.value(weights, padded, np), value, atol=1e-12)


def test_what_stands_in_a_forbidden_place_is_not_read() -> None:
    weights, observation = learned(SCORER), observations(SCORER, 3)
    overall, links, allowed = SCORER.parts(observation, np)
    junk = np.where(allowed[:, :-1, None] > 0, links, 7.0).reshape(5, -1)
    dirty = np.concatenate([overall, junk, allowed], axis=1)
    assert not np.array_equal(dirty, observation)
    for ours, theirs in zip(
        outputs(weights, observation, np), outputs(weights, dirty, np), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_forbidden_choices_are_never_drawn() -> None:
    observation = observations(SCORER, 5, (200,))
    # stop only where there is no link
    observation[::2, -1] = observation[::2, -2 - SCORER.candidates + 1] == 0
    policy = SCORER.policy(learned(SCORER), observation, np)
    drawn = policy.sample(np.random.default_rng(0).random(policy.logits.shape), np)
    allowed = observation[:, -SCORER.candidates - 1 :]
    assert allowed[np.arange(200), drawn].all()
    np.testing.assert_array_equal(policy.logits[allowed == 0], MASKED)


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_libraries_say_the_same(library: str, dtype: Any) -> None:
    weights, observation = learned(SCORER, 2, dtype), observations(SCORER, 2, (3, 4), dtype)
    expected = outputs(learned(SCORER, 2), observations(SCORER, 2, (3, 4)), np)
    found = run(library, outputs, weights, observation)
    assert (found[0].shape, found[1].shape) == ((3, 4, 13), (3, 4))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        masked = theirs == MASKED
        np.testing.assert_array_equal(ours == MASKED, masked)
        # four products of up to 60 terms after each other; what they sum is of size 1, and their
        # results are smaller
        assert_close(ours[~masked], theirs[~masked], roundings=240, size=1.0)


@pytest.mark.long
def test_gradients_are_the_same_and_reach_every_weight() -> None:
    def loss(weights: ScorerWeights, observation: Any, xp: Any) -> Any:
        policy = SCORER.policy(weights, observation, xp)
        value = SCORER.value(weights, observation, xp)
        return xp.sum(xp.exp(policy.log_probs(xp))[..., 0]) + xp.sum(value * value)

    given_ = (learned(SCORER), observations(SCORER, 4, (40,)))
    first = gradient("torch", loss, *given_)
    with jax.enable_x64(True):
        second = jax.jit(jax.grad(lambda weights: loss(weights, jnp.asarray(given_[1]), jnp)))(
            given_[0]
        )

    def compare(one: Any, other: Any) -> None:
        for a, b in zip(one, other, strict=True):
            if isinstance(a, tuple):
                compare(a, b)
            else:
                np.testing.assert_allclose(a, b, atol=1e-10)
                assert np.abs(a).max() > 0

    compare(first, second)


def test_sizes_fit_the_environment() -> None:
    scorer = LinkScorer()
    assert (scorer.globals, scorer.columns) == (len(GLOBAL), len(LINK))
    assert scorer.observation_size == flatdim(observation_space(64))
    assert scorer.actions == Discrete(65)
    count: list[int] = []
    map_leaves(lambda leaf: count.append(leaf.size), scorer.new_weights(0))
    assert 20_000 < sum(count) < 50_000


def test_weights_depend_on_the_seed_but_not_on_the_candidates() -> None:
    def flat(scorer: LinkScorer, seed: int) -> np.ndarray:
        leaves: list[np.ndarray] = []
        map_leaves(lambda leaf: leaves.append(leaf.ravel()), scorer.new_weights(seed))
        assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
        return np.concatenate(leaves)

    np.testing.assert_array_equal(
        flat(LinkScorer(candidates=8), 1), flat(LinkScorer(candidates=64), 1)
    )
    assert not np.array_equal(flat(LinkScorer(), 1), flat(LinkScorer(), 2))


def test_the_first_policy_is_nearly_uniform_over_what_is_allowed() -> None:
    observation = observations(SCORER, 6, (50,))
    probabilities = np.exp(SCORER.policy(SCORER.new_weights(0), observation, np).log_probs(np))
    allowed = observation[:, -SCORER.candidates - 1 :]
    np.testing.assert_allclose(probabilities * allowed.sum(1, keepdims=True), allowed, atol=0.5)


def test_it_is_hashable_and_refuses_nonsense() -> None:
    assert hash(LinkScorer()) == hash(LinkScorer())
    with pytest.raises(SettingsError, match="sizes of 1 or more"):
        LinkScorer(candidates=0)


def test_a_policy_saved_before_the_crawler_had_a_house_of_its_own_still_opens() -> None:
    saved = Path(__file__).parent / "fixtures" / "crawl_policy_before_rooms.safetensors"
    policy = CrawlPolicy.load(saved)
    fresh = LinkScorer(candidates=12, width=4)
    assert policy.model == fresh and policy.notes == {"steps": 1}
    drawn = flatten_weights(fresh.new_weights(5))  # float32, and QR rounds as each CPU likes
    np.testing.assert_allclose(flatten_weights(policy.weights), drawn, atol=1e-6)
