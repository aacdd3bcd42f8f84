"""Episodes, values, noise and their metrics, in an environment where all of them are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.learners.hyperparameters import ADAM_EPSILON
from flatout.learners.jax_engine.evaluate import make_evaluator
from flatout.learners.metrics import metric_names
from flatout.policies.network import critic
from rounding import assert_close, tolerance
from small_learners import DATA, Population, biting_settings, clock, difference, population, train

pytestmark = pytest.mark.long

GAMMA = 0.8
PLAIN = {
    "value_clip": None,
    "target_kl": None,
    "normalise_reward": False,
    "gamma": GAMMA,
    "max_grad_norm": 0.5,
}


@pytest.fixture(scope="module")
def lanes() -> Population:
    """Rewards of 1 per step: truncated, terminated, and longer than a rollout of 16 steps."""
    rules = [clock(4, False, 0.0), clock(4, True, 0.0), clock(20, True, 0.0)]
    settings = biting_settings(**PLAIN, learning_rate=2e-2, final_rate_share=0.0, epochs=4)
    return population([settings] * 3, rules, updates=250)


def test_the_critic_continues_truncated_episodes_and_ends_terminated_ones(
    lanes: Population,
) -> None:
    """1 / (1 - gamma) at any time, or the finite sum of what is left; the target that is seen means
    nothing here.
    """
    network = train(lanes).state.network
    targets = np.linspace(-0.9, 0.9, 5)
    for k, length in enumerate((4, 4, 20)):
        t = np.arange(length)
        seen = np.stack(np.broadcast_arrays(t[:, None] / length, targets), axis=-1) * np.asarray(
            DATA
        )
        found = critic(jax.tree.map(lambda x, k=k: x[k], network), jnp.asarray(seen), "tanh", jnp)
        left = np.inf if k == 0 else length - t
        expected = (1 - GAMMA**left) / (1 - GAMMA) * np.ones(length)
        error = np.abs(np.asarray(found) - expected[:, None]).max()
        assert error < (0.25 if k == 0 else 0.05)  # what is bootstrapped is learned more slowly


def test_episodes_are_counted_exactly(lanes: Population) -> None:
    """Also those that began in a rollout before."""
    whole, first = (
        train(lanes, until=5).metrics,
        train(lanes, until=1).metrics,
    )  # 80 and 16 steps of 8 environments
    assert whole["episodes"].tolist() == [160, 160, 32] and first["episodes"].tolist() == [
        32,
        32,
        0,
    ]
    assert whole["episode_length"].tolist() == whole["episode_return"].tolist() == [4, 4, 20]
    assert first["episode_length"].tolist() == first["episode_return"].tolist() == [4, 4, 0]
    assert whole["reward"].tolist() == whole["terms/steady"].tolist() == [1, 1, 1]
    assert not whole["terms/miss"].any()


def test_epochs_stop_when_the_policy_has_moved_too_far(lanes: Population) -> None:
    assert train(lanes, until=3, epochs=8).metrics["epochs"].tolist() == [8, 8, 8]
    stopped = train(lanes, until=3, epochs=8, target_kl=1e-4)
    assert (stopped.metrics["epochs"] < 4).all() and (stopped.metrics["epochs"] >= 1).all()
    assert (np.asarray(stopped.state.optimiser.count) < 3 * 8 * 4).all()


def test_the_norm_of_gradients_is_measured_before_they_are_clipped(lanes: Population) -> None:
    """Adam undoes any scale but one so small that its epsilon counts: then there is hardly a
    step.
    """
    free, tight = (train(lanes, until=1, epochs=1, max_grad_norm=norm) for norm in (1e9, 1e-9))
    assert (tight.metrics["grad_norm"] > 0.5).all()
    np.testing.assert_allclose(tight.metrics["grad_norm"], free.metrics["grad_norm"], rtol=0.5)
    # a gradient of 1e-9 divided by Adam's epsilon, four times; and four sums of weights of size 2
    most = 2e-2 * 4 * 1e-9 / ADAM_EPSILON
    assert difference(tight.state.network, lanes.state.network) < 1.01 * most + tolerance(
        4, 2.0, np.float32
    )
    assert difference(free.state.network, lanes.state.network) > 2e-2


def test_the_environment_gets_actions_within_its_bounds() -> None:
    """Nearly all draws of so wide a policy lie beyond; the targets lie in [-1, 1], the bounds in
    [-1, 2].
    """
    wide = train(
        population([biting_settings(log_std=4.0)] * 3, [clock(cost=1.0)] * 3), until=1
    ).metrics
    assert (wide["terms/miss"] > -(2**2 + 3**2)).all() and (wide["terms/miss"] < -1).all()
    np.testing.assert_allclose(wide["std"], np.exp(4.0), rtol=0.05)
    assert (wide["entropy"] > 2 * 4).all()


def test_metrics_have_a_name_each(lanes: Population) -> None:
    names = metric_names(lanes.program)
    assert train(lanes, until=1).metrics.keys() == set(names) and len(set(names)) == len(names)
    assert names[-2:] == ("terms/steady", "terms/miss")


def test_a_critic_that_has_learned_explains_the_returns(lanes: Population) -> None:
    learned = train(lanes, until=200).state
    after = train(lanes._replace(state=learned), until=201).metrics
    assert (
        after["explained_variance"][1:].min()
        > 0.9
        > train(lanes, until=1).metrics["explained_variance"].max()
    )


def test_an_evaluation_is_the_first_episode_without_noise() -> None:
    """However wide the policy: here its mean is 0. Episodes that do not end are as long as the
    evaluation.
    """
    program, data, rates, state = population(
        [biting_settings(log_std=3.0)] * 3, [clock(5), clock(5, True), clock(30)]
    )
    still = jax.tree.map(jnp.zeros_like, state.network)._replace(log_std=state.network.log_std)
    found = make_evaluator(program, 64, 12)(data, rates, still, 7)
    assert np.unique(found.length, axis=1).tolist() == [[5], [5], [12]]
    np.testing.assert_array_equal(found.terms[..., 0], found.length)  # ones, counted
    assert_close(
        found.terms.sum(axis=-1), found.reward, roundings=64, size=12.0
    )  # of up to 12 steps
    miss = np.asarray(found.terms[..., 1] / found.length)
    np.testing.assert_allclose(
        miss.mean(axis=1), -0.3 * 2 / 3, rtol=0.15
    )  # of squares of uniform targets, twice
