"""The learner over environments on the host: its noise, its rollouts, its minibatches."""

from typing import Any

import numpy as np
import pytest
import torch

from flatout.learners.environment import Box, Discrete
from flatout.learners.rates import Program, rates_of
from flatout.learners.torch_engine.host_ppo import Arrival, HostEnvironment, HostLearner
from flatout.policies.network import critic, new_network
from flatout.settings.train import TrainSettings
from rounding import assert_close

N_STEPS, N_ENVS, OBSERVATION = 6, 3, 4
SETTINGS = TrainSettings(epochs=2, gamma=0.9, gae_lambda=0.0)
BOX, CHOICE = Box((-1.0,), (1.0,)), Discrete(2)


def learner_of(actions: Any = BOX, batch_size: int = 9, **changes: Any) -> HostLearner:
    program = Program(
        HostEnvironment(OBSERVATION, actions), N_ENVS, N_STEPS, 1, (8, 8), "tanh", "gaussian"
    )
    settings = SETTINGS.model_copy(update=changes)
    return HostLearner(
        program, batch_size, rates_of(settings, 1, ()), new_network(program.sizes, 0), seed=5
    )


class Story:
    """Random observations and rewards; one environment is cut off, one ends."""

    def __init__(self, void: Any = None, stop: int = -1) -> None:
        self.rng, self.k, self.void, self.stop = np.random.default_rng(0), 0, void, stop
        self.raw: list[Any] = []
        self.last = self.rng.normal(size=(N_ENVS, OBSERVATION)).astype(np.float32)

    def __call__(self, raw: Any) -> Arrival:
        self.raw.append(raw)
        seen = self.rng.normal(size=(N_ENVS, OBSERVATION)).astype(np.float32)
        reward = self.rng.normal(size=N_ENVS).astype(np.float32)
        cut, over = (np.array([env == k and self.k == 2 for env in range(N_ENVS)]) for k in (0, 1))
        void = None if self.void is None else self.void[self.k]
        self.k += 1
        return Arrival(seen, reward, over, cut, self.last, void, self.k != self.stop)


@torch.no_grad()
def batch_of(learner: HostLearner) -> Any:
    return learner.without_void(learner.core.batch_of(tuple_to_tensors(learner)))


def tuple_to_tensors(learner: HostLearner) -> Any:
    return type(learner.steps)(*(learner.core.upload(x) for x in learner.steps))


@pytest.mark.parametrize("actions", [BOX, CHOICE])
def test_noise_follows_from_the_seed_and_the_update(actions: Any) -> None:
    one, other = learner_of(actions), learner_of(actions)
    assert (one.draw().action == other.draw().action).all() and (
        one.draw().order == other.draw().order
    ).all()
    other.core.updates = 1
    assert not (one.draw().action == other.draw().action).all()
    assert one.draw().action.shape == (N_STEPS, N_ENVS, actions.size)
    assert (np.sort(one.draw().order, axis=1) == np.arange(N_STEPS * N_ENVS)).all()


def test_values_after_ends() -> None:
    """With a lambda of 0 a return is the reward and the discounted value of what follows."""
    learner, story = learner_of(), Story()
    assert learner.gather(story, learner.draw().action)
    learner.core.view = learner.core.view._replace(observation=torch.as_tensor(learner.seen))
    returns = batch_of(learner).returns.numpy().reshape(N_STEPS, N_ENVS)
    steps, network = learner.steps, learner.network
    for k in range(N_STEPS):
        after = learner.seen if k == N_STEPS - 1 else steps.seen[k + 1]
        follows = critic(network, after, "tanh", np)
        if k == 2:
            follows[0], follows[1] = critic(network, story.last, "tanh", np)[0], 0
        expected = steps.reward[k] + 0.9 * follows
        assert_close(
            returns[k], expected, roundings=128, size=1 + np.abs(expected).max()
        )  # three layers of 8


def test_steps_that_were_none_are_replaced_by_others() -> None:
    void = np.zeros((N_STEPS, N_ENVS), np.bool_)
    void[3, 0] = void[4, 1] = True
    learner = learner_of()
    learner.seen = np.random.default_rng(1).normal(size=(N_ENVS, OBSERVATION)).astype(np.float32)
    learner.gather(Story(void), learner.draw().action)
    batch = batch_of(learner)
    seen = {row.tobytes() for row in batch.seen.numpy()}
    assert len(batch.seen) == N_STEPS * N_ENVS
    assert (
        learner.steps.seen[3, 0].tobytes() not in seen
        and learner.steps.seen[4, 1].tobytes() not in seen
    )
    assert len(seen) == N_STEPS * N_ENVS - 2


def test_stopping_amid_a_rollout() -> None:
    learner, story = learner_of(), Story(stop=4)
    assert not learner.gather(story, learner.draw().action)
    assert story.k == 4


@pytest.mark.parametrize("actions", [BOX, CHOICE])
@pytest.mark.parametrize(("batch_size", "minibatches"), [(9, 2), (18, 1), (7, 3), (100, 1)])
def test_minibatches(actions: Any, batch_size: int, minibatches: int) -> None:
    learner = learner_of(actions, batch_size)
    draw = learner.draw()
    learner.gather(Story(), draw.action)
    before = [weight.detach().clone() for weight in learner.core.weights]
    figures = learner.learn(draw.order, 1e-2)
    assert int(learner.core.state.optimiser.count) == 2 * minibatches
    assert figures["epochs"] == 2 and figures["learning_rate"] == 1e-2
    assert ("std" in figures) == (actions is BOX)
    assert all((a != b).any() for a, b in zip(before, learner.core.weights, strict=True))
    assert learner.core.updates == 1 and np.isfinite(list(figures.values())).all()


def test_the_threads_are_as_they_were() -> None:
    before = torch.get_num_threads()
    learner = learner_of()
    draw = learner.draw()
    learner.gather(Story(), draw.action)
    learner.learn(draw.order, 1e-3)
    assert torch.get_num_threads() == before


def test_weights_for_numpy_are_those_that_learn() -> None:
    learner = learner_of()
    first = learner.network.actor.hidden[0].weight.copy()
    draw = learner.draw()
    learner.gather(Story(), draw.action)
    learner.learn(draw.order, 1e-2)
    assert not (learner.network.actor.hidden[0].weight == first).all()
    np.testing.assert_array_equal(
        learner.network.actor.hidden[0].weight,
        learner.core.network.actor.hidden[0].weight.detach().numpy(),
    )


def test_nobody_steps_them_here() -> None:
    with pytest.raises(NotImplementedError, match="stepped on the host"):
        HostEnvironment(2, BOX).step(None, None, None, None, None)
