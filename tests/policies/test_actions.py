"""Distributions over actions against torch.distributions, at extremes, masked, and what the
environment gets.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import chisquare, norm
from torch import distributions as oracle

from array_libraries import DIFFERENTIABLE, LIBRARIES, gradient, run
from flatout.policies.actions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SoftmaxGaussian,
    SquashedGaussian,
    mask_choices,
)
from rounding import assert_close

RNG = np.random.default_rng(0)
MEAN, LOG_STD, RAW = RNG.normal(size=(6, 3)), np.array([-1.0, 0.2, 0.7]), RNG.uniform(-3, 3, (6, 3))
LOGITS, CHOICES = 2 * RNG.normal(size=(6, 5)), np.array([0, 4, 1, 2, 3, 3])
ALLOWED = (
    np.array([list(row) for row in ("11111", "10101", "01000", "00110", "10011", "11110")]) == "1"
)


def normal(mean: Any, log_std: Any) -> Any:
    return oracle.Independent(oracle.Normal(mean, torch.exp(log_std)), 1)


def squashed(mean: Any, log_std: Any) -> Any:
    return oracle.TransformedDistribution(normal(mean, log_std), oracle.TanhTransform())


def categorical(logits: Any) -> Any:
    return oracle.Categorical(logits=logits)


def multi_categorical(logits: Any) -> Any:
    return oracle.Independent(oracle.Categorical(logits=logits.reshape(6, -1, 3)), 1)


class FourOfThree(NamedTuple):
    """Four choices among three each, in logits alone: what is differentiated is made of arrays."""

    logits: Any

    def log_prob(self, raw: Any, xp: Any) -> Any:
        return MultiCategorical(self.logits, 3).log_prob(raw, xp)

    def entropy(self, raw: Any, xp: Any) -> Any:
        return MultiCategorical(self.logits, 3).entropy(raw, xp)


CASES = {
    "gaussian": (Gaussian(MEAN, LOG_STD), RAW, lambda given, raw: normal(*given).log_prob(raw)),
    "squashed": (
        SquashedGaussian(MEAN, LOG_STD),
        RAW,
        lambda given, raw: squashed(*given).log_prob(torch.tanh(raw)),
    ),
    "categorical": (
        Categorical(LOGITS),
        CHOICES,
        lambda given, raw: categorical(*given).log_prob(raw),
    ),
}
CASES["multi categorical"] = (
    FourOfThree(2 * RNG.normal(size=(6, 12))),
    RNG.integers(3, size=(6, 4)),
    lambda given, raw: multi_categorical(*given).log_prob(raw),
)
ENTROPIES = {
    "gaussian": lambda given, raw: normal(*given).entropy(),
    "categorical": lambda given, raw: categorical(*given).entropy(),
    "multi categorical": lambda given, raw: multi_categorical(*given).entropy(),
}  # the squashed one has no closed form, nor has torch.distributions any


def log_prob(policy: Distribution, raw: Any, xp: Any) -> Any:
    return policy.log_prob(raw, xp)


def entropy(policy: Distribution, raw: Any, xp: Any) -> Any:
    return policy.entropy(raw, xp)


def reference(
    function: Any, policy: Distribution, raw: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Values by torch.distributions, and the gradient of their weighted sum by the policy's
    parameters.
    """
    leaves = [torch.asarray(x).clone().requires_grad_() for x in policy]
    values = function(leaves, torch.asarray(raw))
    total = values @ torch.arange(1, 7, dtype=values.dtype)
    found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return values.detach().numpy(), [
        x.detach().numpy() for x in found
    ]  # PyTorch 2.7 lets zeros require one


def weighted(function: Any) -> Any:
    return lambda policy, raw, xp: xp.sum(
        function(policy, raw, xp) * xp.arange(1, 7, dtype=policy[0].dtype)
    )


def exact_functions(kind: str) -> list[tuple[Any, Any]]:
    """What torch.distributions knows in closed form, beside ours."""
    found = [(log_prob, CASES[kind][2])]
    return found + ([(entropy, ENTROPIES[kind])] if kind in ENTROPIES else [])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_log_probabilities_and_entropies_equal_those_of_torch(library: str, kind: str) -> None:
    policy, raw, _ = CASES[kind]
    for function, exact in exact_functions(kind):
        theirs = reference(exact, policy, raw)[0]
        assert_close(
            run(library, function, policy, raw), theirs, roundings=1000, size=10 + np.abs(theirs)
        )


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradients_by_the_parameters_equal_those_of_torch(library: str, kind: str) -> None:
    policy, raw, _ = CASES[kind]
    for function, exact in exact_functions(kind):
        found = gradient(library, weighted(function), policy, raw)
        for ours, theirs in zip(found, reference(exact, policy, raw)[1], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


# --- the squashed entropy -------------------------------------------------------------------------

DEVIATIONS = [-1.0, 0.0, 1.0]  # where the slope by log_std is positive, near 0 and negative


def squashed_entropy(mean: float, log_std: float) -> float:
    """The mean of minus log p(action), by SciPy's adaptive integral over what was drawn."""
    drawn = norm(mean, np.exp(log_std))

    def summand(raw: float) -> float:
        log_density = drawn.logpdf(raw) + 2 * np.log(np.cosh(raw))
        return float(-drawn.pdf(raw) * log_density)

    ends = drawn.mean() + drawn.std() * np.array([-10, 0, 10])
    return sum(quad(summand, low, high, epsabs=1e-9, limit=200)[0] for low, high in pairwise(ends))


def slope(function: Any, at: float) -> float:
    """By finite differences of the fourth order, as exact as the integral is."""
    step = 1e-2
    near, far = (function(at + k * step) - function(at - k * step) for k in (1, 2))
    return float((8 * near - far) / (12 * step))


@pytest.mark.parametrize("log_std", DEVIATIONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_squashed_entropy_is_the_integral(library: str, log_std: float) -> None:
    policy = SquashedGaussian(np.array([[0.5], [-1.3]]), np.array([log_std]))
    found = run(library, entropy, policy, np.zeros((2, 1)))
    exact = [squashed_entropy(mean, log_std) for mean in (0.5, -1.3)]
    np.testing.assert_allclose(found, exact, atol=1e-3)


@pytest.mark.parametrize("log_std", DEVIATIONS)
@pytest.mark.parametrize("library", DIFFERENTIABLE)
@pytest.mark.parametrize("mean", [0.5, -1.3])
def test_squashed_entropy_has_the_gradient_of_the_integral(
    library: str, mean: float, log_std: float
) -> None:
    """Minus the log-probability of what was drawn has another: 0 by the mean and about 0 by log_std
    on average, whatever the deviation.
    """
    policy = SquashedGaussian(np.array([[mean]]), np.array([log_std]))
    drawn = policy.sample(np.array([[0.7]]), np)
    by_mean, by_log_std = gradient(
        library, lambda p, raw, xp: xp.sum(p.entropy(raw, xp)), policy, drawn
    )
    np.testing.assert_allclose(
        by_log_std, slope(lambda x: squashed_entropy(mean, x), log_std), atol=2e-3
    )
    np.testing.assert_allclose(
        by_mean[0], slope(lambda x: squashed_entropy(x, log_std), mean), atol=2e-3
    )


@pytest.mark.parametrize("library", DIFFERENTIABLE)
@pytest.mark.parametrize("log_std", [-20.0, 3.0, 10.0])
@pytest.mark.parametrize("mean", [0.0, 500.0])
def test_squashed_entropy_and_its_gradient_stay_finite(
    library: str, mean: float, log_std: float
) -> None:
    policy = SquashedGaussian(np.float32([[mean]]), np.float32([log_std]))
    assert np.isfinite(run(library, entropy, policy, policy.mean)).all()
    found = gradient(library, lambda p, raw, xp: xp.sum(p.entropy(raw, xp)), policy, policy.mean)
    assert all(np.isfinite(x).all() for x in found)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_float32_stays_float32_and_close(library: str, kind: str) -> None:
    policy, raw, _ = CASES[kind]
    single = jax.tree.map(np.float32, policy)
    action = raw if kind == "categorical" else raw.astype(np.float32)
    for function in (log_prob, entropy):
        found = run(library, function, single, action)
        assert (found.dtype, found.shape) == (np.float32, (6,))
        expected = function(
            policy, raw, np
        )  # of inputs that were not rounded: squares of distances in deviations
        assert_close(found, expected, roundings=256, size=1 + np.abs(expected))


# --- extremes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("size", [9.0, 50.0, 1000.0])
def test_squashed_stays_finite_where_tanh_is_one(library: str, size: float) -> None:
    """There 1 - tanh^2 is 0 in float32; its logarithm is 2 log 2 - 2 |raw|, and the slope of that
    is -2 or 2.
    """
    raw = np.array([[-size, size]], np.float32)
    policy = SquashedGaussian(np.float32([[0.5, -0.5]]), np.float32([0.0, 1.0]))
    slope = run(
        library,
        lambda p, raw, xp: Gaussian(*p).log_prob(raw, xp) - p.log_prob(raw, xp),
        policy,
        raw,
    )
    # the difference of two numbers that hold the square of the distance
    assert_close(
        slope, [4 * np.log(2) - 4 * size], roundings=16, size=(1 + size) ** 2, dtype=np.float32
    )
    if library not in DIFFERENTIABLE:
        return
    by_raw = gradient(library, lambda raw, p, xp: xp.sum(p.log_prob(raw, xp)), raw, policy)
    by_policy = gradient(library, lambda p, raw, xp: xp.sum(p.log_prob(raw, xp)), policy, raw)
    assert all(np.isfinite(x).all() for x in by_policy)
    pull = -(raw - policy.mean) * np.exp(-2 * policy.log_std)  # of the normal distribution
    assert_close(by_raw, pull + np.float32([-2, 2]), roundings=64, size=2 + np.abs(pull))


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_categorical_stays_finite_with_far_apart_logits(library: str) -> None:
    policy, worst = Categorical(np.float32([[1e4, 0, -1e4]])), np.array([2])
    assert run(library, entropy, policy, worst) == 0
    assert run(library, log_prob, policy, worst) == -2e4
    (by_logits,) = gradient(library, lambda *given: given[-1].sum(log_prob(*given)), policy, worst)
    np.testing.assert_array_equal(by_logits, [[-1, 0, 1]])
    (by_logits,) = gradient(library, lambda *given: given[-1].sum(entropy(*given)), policy, worst)
    np.testing.assert_array_equal(by_logits, [[0, 0, 0]])


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Gaussian, SquashedGaussian])
@pytest.mark.parametrize("library", LIBRARIES)
def test_samples_have_the_mean_and_the_deviations_asked_for(library: str, kind: type) -> None:
    noise = np.random.default_rng(1).normal(size=(100_000, 3))
    raw = run(
        library, lambda policy, noise, xp: policy.sample(noise, xp), kind(MEAN[0], LOG_STD), noise
    )
    std = np.exp(LOG_STD)
    assert np.all(np.abs(raw.mean(axis=0) - MEAN[0]) < 4 * std / np.sqrt(len(noise)))
    np.testing.assert_allclose(raw.std(axis=0), std, rtol=4 / np.sqrt(2 * len(noise)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_choices_are_drawn_as_often_as_their_probabilities_say(library: str) -> None:
    noise = np.random.default_rng(3).random((100_000, 5), dtype=np.float32)
    logits = np.float32([1.0, -1.5, 0.0, 2.0, -0.3])
    drawn = run(
        library, lambda policy, noise, xp: policy.sample(noise, xp), Categorical(logits), noise
    )
    share = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum()
    assert chisquare(np.bincount(drawn, minlength=5), share * len(noise)).pvalue > 0.01


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_noise_at_the_edges_draws_as_any_other(library: str, edge: float) -> None:
    """Equal noise leaves the choice to the logits; a clear favourite wins even against the best
    noise.
    """

    def sample(policy: Categorical, noise: Any, xp: Any) -> Any:
        return policy.sample(noise, xp)

    assert (
        run(library, sample, Categorical(np.float32([0, 2, 1])), np.full(3, edge, np.float32)) == 1
    )
    assert (
        run(library, sample, Categorical(np.float32([0, 40, 1])), np.float32([1.0, edge, 1.0])) == 1
    )


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_masked_choices_have_probability_zero_and_the_others_share_the_rest(library: str) -> None:
    logits = LOGITS.astype(np.float32)
    found = run(library, lambda *given: mask_choices(*given).log_probs(given[-1]), logits, ALLOWED)
    expected = oracle.Categorical(logits=torch.asarray(np.where(ALLOWED, LOGITS, -np.inf)))
    assert found.dtype == np.float32
    assert not np.exp(found[~ALLOWED]).any()
    # a logarithm of size 10 has ten times the error of its exponential
    share = expected.probs.numpy()
    assert_close(np.exp(found), share, roundings=128, size=share)


@pytest.mark.parametrize("library", LIBRARIES)
def test_masked_choices_are_never_drawn(library: str) -> None:
    """Not even the favourites, and not with the best noise against the worst."""
    noise = np.random.default_rng(4).random((2000, 6, 5), dtype=np.float32)
    noise[:100] = np.where(ALLOWED, 0.0, 1.0)
    logits = (LOGITS + np.where(ALLOWED, 0.0, 1e6)).astype(np.float32)
    drawn = run(
        library,
        lambda *x: mask_choices(x[0], x[1], x[3]).sample(x[2], x[3]),
        logits,
        ALLOWED,
        noise,
    )
    assert ALLOWED[np.arange(6), drawn].all()
    assert all(set(drawn[:, k]) == set(np.flatnonzero(ALLOWED[k])) for k in range(6))


@pytest.mark.parametrize("library", DIFFERENTIABLE)
def test_gradients_with_masks_are_finite_and_zero_for_masked_choices(library: str) -> None:
    """Those of each row are as if there were only its allowed choices, of which the first was
    drawn.
    """
    first = ALLOWED.argmax(axis=1)
    for function in (log_prob, entropy):

        def total(logits: Any, allowed: Any, raw: Any, xp: Any, function: Any = function) -> Any:
            return xp.sum(function(mask_choices(logits, allowed, xp), raw, xp))

        found = gradient(library, total, LOGITS, ALLOWED, first)
        assert not found[~ALLOWED].any()
        for row, logits, allowed in zip(found, LOGITS, ALLOWED, strict=True):
            alone = torch.asarray(logits[allowed]).requires_grad_()
            policy = categorical(alone)
            (
                policy.entropy() if function is entropy else policy.log_prob(torch.tensor(0))
            ).backward()
            np.testing.assert_allclose(row[allowed], alone.grad, atol=1e-12)


# --- what the environment gets --------------------------------------------------------------------

LOW, HIGH = np.array([-1.0, 0.0, -3.0], np.float32), np.array([1.0, 0.5, 5.0], np.float32)


def bounded(kind: Any, library: str, raw: np.ndarray) -> np.ndarray:
    return run(library, kind.bounded, raw, LOW, HIGH)


@pytest.mark.parametrize("library", LIBRARIES)
def test_gaussian_actions_are_clipped(library: str) -> None:
    raw = np.float32([[-0.3, 0.3, 4.9], [2, 2, 9], [-2, -1, -4], [np.inf, -np.inf, 0]])
    np.testing.assert_array_equal(bounded(Gaussian, library, raw), np.clip(raw, LOW, HIGH))


@pytest.mark.parametrize("library", LIBRARIES)
def test_squashed_actions_fill_the_bounds_and_zero_is_their_middle(library: str) -> None:
    raw = np.tile(np.float32([-np.inf, -50, -1, 0, 1, 50, np.inf])[:, None], (1, 3))
    found = bounded(SquashedGaussian, library, raw)
    np.testing.assert_array_equal(found[[0, 1, 3, 5, 6]], [LOW, LOW, (LOW + HIGH) / 2, HIGH, HIGH])
    assert_close(
        found[4],
        LOW + (HIGH - LOW) * (1 + np.tanh(1)) / 2,
        roundings=32,
        size=HIGH - LOW,
        dtype=np.float32,
    )
    assert_close(found[2] + found[4], LOW + HIGH, roundings=32, size=HIGH - LOW)


@pytest.mark.parametrize("library", LIBRARIES)
def test_shares_are_those_of_a_softmax_and_fill_the_bounds(library: str) -> None:
    raw = np.random.default_rng(0).normal(0, 5, (50, 4)).astype(np.float32)
    raw[:4] = [[0, 0, 0, 0], [500, 0, 0, 0], [-500, -500, -500, 0], [90, 90, -90, -90]]
    low, high = -np.ones(4, np.float32), np.ones(4, np.float32)
    found = run(library, SoftmaxGaussian.bounded, raw, low, high)
    expected = torch.softmax(torch.tensor(raw, dtype=torch.float64), -1).numpy()
    assert_close(found, 2 * expected - 1, roundings=64, size=1.0, dtype=np.float32)
    assert found.min() == -1 and found.max() == 1
    gained = gradient(library, total_share, raw, low, high) if library != "numpy" else raw
    assert np.isfinite(gained).all()


def total_share(raw: Any, low: Any, high: Any, xp: Any) -> Any:
    return xp.sum(SoftmaxGaussian.bounded(raw, low, high, xp)[..., 0])


@pytest.mark.parametrize("library", LIBRARIES)
def test_choices_go_to_the_environment_as_they_are(library: str) -> None:
    np.testing.assert_array_equal(bounded(Categorical, library, CHOICES), CHOICES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_mode_is_where_the_density_of_the_drawn_is_highest(library: str) -> None:
    for kind in (Gaussian, SquashedGaussian):
        np.testing.assert_array_equal(
            run(library, lambda policy, xp: policy.mode(xp), kind(MEAN, LOG_STD)), MEAN
        )
    best = run(library, lambda policy, xp: policy.mode(xp), Categorical(LOGITS))
    np.testing.assert_array_equal(best, categorical(torch.asarray(LOGITS)).mode)
