"""One update from equal weights and equal minibatches is Stable-Baselines3's, parameter by
parameter.

Both in float64: Adam enlarges what float32 rounds off.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

from flatout.learners import shuffle
from flatout.learners.environment import Actions, Box, Discrete, MultiDiscrete
from flatout.learners.jax_engine.population import _learn, new_optimiser
from flatout.learners.metrics import MINIBATCH_METRICS
from flatout.learners.rates import Program, program_of, rates_of
from flatout.learners.trajectory import Batch
from flatout.policies.network import Layer, Network, Perceptron
from flatout.settings.train import TrainSettings
from rounding import close_to
from small_learners import QUICK, assert_learned_alike, difference, exact

OBSERVATION, ROWS, MINIBATCHES, EPOCHS, HIDDEN = 5, 96, 4, 2, (12, 10)
KEY = jax.random.key(3)
PLAIN = {"learning_rate": 3e-3, "max_grad_norm": 10.0}
KNOBS = {
    "plain": {},
    "unscaled advantages": {"normalise_advantage": False},
    "value clipping": {"value_clip": 0.1},
    "entropy bonus": {"entropy": 0.2},
    "gradient clipping": {"max_grad_norm": 0.05},
    "all": {
        "normalise_advantage": False,
        "value_clip": 0.1,
        "entropy": 0.2,
        "max_grad_norm": 0.05,
        "value": 0.9,
    },
}


pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def doubles() -> Iterator[None]:
    """Theirs asks for single precision in one place, that of the observations. In one thread: there
    is little to do.
    """
    usual, threads = torch.get_default_dtype(), torch.get_num_threads()
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_default_dtype(usual)
            torch.set_num_threads(threads)


class Nothing(gymnasium.Env):
    """An environment for its spaces only."""

    observation_space = gymnasium.spaces.Box(-10, 10, (OBSERVATION,), np.float32)

    def __init__(self, actions: Actions) -> None:
        spaces = gymnasium.spaces
        if isinstance(actions, Box):
            self.action_space = spaces.Box(np.float32(actions.low), np.float32(actions.high))
        elif isinstance(actions, MultiDiscrete):
            self.action_space = spaces.MultiDiscrete([actions.choices] * actions.components)
        else:
            self.action_space = spaces.Discrete(actions.size)


class Ours(NamedTuple):
    """The compiled update of one kind of actions."""

    program: Program
    learn: Any


def ours(actions: Actions) -> Ours:
    environment = SimpleNamespace(observation_size=OBSERVATION, actions=actions, terms=())
    settings = TrainSettings(n_steps=ROWS, minibatches=MINIBATCHES, epochs=EPOCHS, hidden=HIDDEN)
    program = program_of(settings, environment, 1)
    return Ours(program, jax.jit(partial(_learn, program, None), compiler_options=QUICK))


@pytest.fixture(
    scope="module",
    params=[Box((-1.0, -1.0), (1.0, 1.0)), Discrete(3), MultiDiscrete(2, 3)],
    ids=["box", "discrete", "multidiscrete"],
)
def compiled(request: Any) -> Ours:
    return ours(request.param)


def theirs(settings: TrainSettings, actions: Actions, moved: float) -> PPO:
    """Their learner with these settings and a full buffer: a policy that has moved, a critic that
    errs.
    """
    model = PPO(
        "MlpPolicy",
        Nothing(actions),
        settings.learning_rate,
        ROWS,
        ROWS // MINIBATCHES,
        EPOCHS,
        settings.gamma,
        settings.gae_lambda,
        settings.clip,
        settings.value_clip,
        settings.normalise_advantage,
        settings.entropy,
        settings.value,
        settings.max_grad_norm,
        target_kl=settings.target_kl,
        seed=0,
        device="cpu",
        policy_kwargs={
            "net_arch": {"pi": list(HIDDEN), "vf": list(HIDDEN)},
            "activation_fn": torch.nn.Tanh,
        },
    )
    model.set_logger(configure(None, []))
    model.policy.action_net.weight.data *= 50  # a policy with opinions
    rng, buffer = np.random.default_rng(0), model.rollout_buffer
    for name in ("observations", "values", "log_probs", "advantages", "returns"):
        setattr(buffer, name, getattr(buffer, name).astype(np.float64))
    buffer.observations[:] = rng.normal(size=buffer.observations.shape)
    drawn = (
        rng.normal(size=buffer.actions.shape)
        if isinstance(actions, Box)
        else rng.integers(0, 3, buffer.actions.shape)
    )
    buffer.actions[:] = drawn
    with torch.no_grad():
        chosen = torch.as_tensor(
            buffer.actions[:, 0, 0] if isinstance(actions, Discrete) else buffer.actions[:, 0]
        )
        value, log_prob, _ = model.policy.evaluate_actions(
            torch.as_tensor(buffer.observations[:, 0]), chosen
        )
    buffer.values[:] = value.numpy() + rng.normal(0, 0.1, (ROWS, 1))
    buffer.log_probs[:, 0] = log_prob.numpy() + rng.normal(0, 0.15, ROWS) - moved
    buffer.advantages[:] = rng.normal(1, 2, (ROWS, 1))
    buffer.returns[:] = rng.normal(0, 1, (ROWS, 1))
    buffer.full = True
    return model


def network_of(model: PPO) -> Network:
    """Their weights in our layout."""

    def layer(linear: Any, head: bool) -> Layer:
        weight, bias = (x.detach().numpy().copy() for x in (linear.weight, linear.bias))
        return Layer(jnp.asarray(weight if head else weight.T), jnp.asarray(bias))

    def perceptron(hidden: Any, head: Any) -> Perceptron:
        return Perceptron(
            tuple(layer(hidden[2 * k], False) for k in range(len(HIDDEN))), layer(head, True)
        )

    policy = model.policy
    deviations = (
        policy.log_std.detach().numpy().copy() if hasattr(policy, "log_std") else np.zeros(0)
    )
    return Network(
        perceptron(policy.mlp_extractor.policy_net, policy.action_net),
        perceptron(policy.mlp_extractor.value_net, policy.value_net),
        jnp.asarray(deviations),
    )


def batch_of(model: PPO, discrete: bool) -> Batch:
    """Their buffer, copied."""
    buffer = model.rollout_buffer
    action = buffer.actions[:, 0, 0].astype(np.int32) if discrete else buffer.actions[:, 0]
    rest = (x[:, 0] for x in (buffer.log_probs, buffer.values, buffer.advantages, buffer.returns))
    return Batch(
        *(jnp.asarray(exact(x.copy())) for x in (buffer.observations[:, 0], action, *rest))
    )


def as_written(leaf: Any) -> Any:
    """0.2 in float64, not what float32 makes of it."""
    if leaf.dtype != np.float32:
        return leaf
    return np.reshape([float(str(x)) for x in leaf.ravel()], leaf.shape)


class Both(NamedTuple):
    """Two results of one update."""

    before: Network
    after: Network
    expected: Network
    steps: int
    expected_steps: int
    epochs: int
    metrics: dict[str, float]
    log: dict[str, float]


def update(
    compiled: Ours, monkeypatch: pytest.MonkeyPatch, moved: float = 0.0, **changes: Any
) -> Both:
    """The same update by both; `moved` is by how much the log-probabilities have grown."""
    settings = TrainSettings(epochs=EPOCHS, hidden=HIDDEN, **PLAIN | changes)
    actions = compiled.program.environment.actions
    model = theirs(settings, actions, moved)
    before, batch = network_of(model), batch_of(model, isinstance(actions, Discrete))
    noise = [
        jax.random.uniform(jax.random.fold_in(KEY, k), shuffle.noise_shape(ROWS))
        for k in range(EPOCHS)
    ]
    orders = iter([np.asarray(shuffle.permutation(x, ROWS, jnp.int32, jnp)) for x in noise])
    monkeypatch.setattr(
        "stable_baselines3.common.buffers.np.random.permutation", lambda rows: next(orders)
    )
    norms, clip = [], torch.nn.utils.clip_grad_norm_
    with monkeypatch.context() as patch:
        patch.setattr(
            "torch.nn.utils.clip_grad_norm_", lambda *inputs: norms.append(float(clip(*inputs)))
        )
        model.train()
    rates = jax.tree.map(as_written, rates_of(settings, 1, ()))
    network, optimiser, metrics, epochs = compiled.learn(
        rates, rates.learning_rate, KEY, before, new_optimiser(before), batch
    )
    made = [int(x["step"]) for x in model.policy.optimizer.state.values()]
    return Both(
        before, network, network_of(model), int(optimiser.count), max(made, default=0), int(epochs),
        dict(zip(MINIBATCH_METRICS, np.asarray(metrics).tolist(), strict=True)),
        {name.removeprefix("train/"): value for name, value in model.logger.name_to_value.items()}
        | {"grad_norm": np.mean(norms) if norms else 0.0},
    )  # fmt: skip


def as_logged(figure: float) -> Any:
    """A mean over minibatches, by weights that differ by as much as is granted to them."""
    return close_to(figure, roundings=1e7, size=1 + abs(figure))


@pytest.fixture(scope="module")
def updated(compiled: Ours) -> Callable[[str], Both]:
    """`updated(knob)`: the update with this knob turned, made once."""

    @cache
    def made(knob: str) -> Both:
        with pytest.MonkeyPatch.context() as patch:
            return update(compiled, patch, **KNOBS[knob])

    return made


@pytest.mark.parametrize("knob", KNOBS)
def test_parameters_and_metrics_are_theirs(updated: Callable[[str], Both], knob: str) -> None:
    both = updated(knob)
    changes = KNOBS[knob]
    assert_learned_alike(both.after, both.expected, EPOCHS * MINIBATCHES, 3e-3)
    assert difference(both.after, both.before) > 1e-2
    assert both.steps == both.expected_steps == EPOCHS * MINIBATCHES
    expected = both.log | {
        "policy_loss": both.log["policy_gradient_loss"],
        "entropy": -both.log["entropy_loss"],
    }
    for name in ("policy_loss", "value_loss", "entropy", "clip_fraction", "grad_norm"):
        assert both.metrics[name] == as_logged(expected[name]), name
    weights = TrainSettings(**changes)
    loss = (
        expected["policy_loss"]
        + weights.value * expected["value_loss"]
        - weights.entropy * expected["entropy"]
    )
    assert both.metrics["loss"] == as_logged(loss)
    assert 0.1 < both.metrics["clip_fraction"] < 0.9


@pytest.mark.parametrize("knob", [name for name in KNOBS if name != "plain"])
def test_each_of_these_knobs_matters(updated: Callable[[str], Both], knob: str) -> None:
    """So that their equality says something."""
    plain, other = updated("plain"), updated(knob)
    assert difference(plain.expected, other.expected) > 1e-3


def test_both_stop_at_the_same_minibatch(compiled: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of an epoch."""
    both = update(compiled, monkeypatch, target_kl=0.01, learning_rate=1e-2)
    assert both.steps == both.expected_steps < EPOCHS * MINIBATCHES
    assert both.steps % MINIBATCHES
    assert_learned_alike(both.after, both.expected, both.steps, 1e-2)


@pytest.mark.parametrize("moved", [0.0, 1000.0])
def test_a_policy_that_is_already_too_far_stays(
    compiled: Ours, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is so far that the ratio of probabilities overflows."""
    both = update(compiled, monkeypatch, moved, target_kl=1e-4)
    assert both.steps == both.expected_steps == 0 and both.epochs == 1
    assert difference(both.after, both.before) == difference(both.expected, both.before) == 0
