"""Updates from segments: PPO's own where nothing is old, and nothing learned from what is too
old.
"""

from typing import Any

import numpy as np
import pytest

from flatout.learners.environment import Box, Discrete
from flatout.learners.hyperparameters import ADAM_EPSILON
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import Transition
from flatout.market.rules import OFF
from flatout.slow_envs.learning import Learning
from flatout.slow_envs.model import PerceptronModel, flatten_weights, unflatten_weights
from flatout.slow_envs.overlap import Overlap, Reuse, Rule
from flatout.slow_envs.session import new_state
from flatout.slow_envs.tape import Format, Segment
from rounding import assert_close, close_to, tolerance

torch = pytest.importorskip("torch")

from flatout.learners.torch_engine.host_ppo import HostEnvironment, HostLearner  # noqa: E402
from flatout.slow_envs.torch_learner import TorchSegmentLearner  # noqa: E402

ROWS, SEGMENTS, FEATURES = 12, 10, 5
MODELS = {
    "choices": PerceptronModel(FEATURES, Discrete(3), (16, 16)),
    "boxes": PerceptronModel(FEATURES, Box((-1.0, -1.0), (1.0, 1.0)), (16,), "relu"),
}


def batch_of(model: PerceptronModel, weights: Any, seed: int = 0) -> Segment:
    """Segments by the policy of these weights, with ends and rows that do not act."""
    rng = np.random.default_rng(seed)
    size = (ROWS, SEGMENTS)
    seen = rng.normal(size=(ROWS + 1, SEGMENTS, FEATURES)).astype(np.float32)
    policy = model.policy(weights, seen[:-1], np)
    box = isinstance(model.actions, Box)
    noise = (rng.standard_normal if box else rng.random)((*size, model.actions.size), np.float32)
    raw = policy.sample(noise, np)
    return Segment(
        seen, raw, policy.log_prob(raw, np).astype(np.float32), np.zeros(size, np.int64),
        rng.normal(size=size).astype(np.float32), rng.random(size) < 0.1, np.ones(size, np.bool_),
        np.arange(SEGMENTS),
    )  # fmt: skip


def segment_of(batch: Segment, k: int) -> Segment:
    """One of them alone."""
    return Segment(*(array[:, k] for array in batch[:-1]), env=np.asarray(k))


def rule_of(**changes: Any) -> Rule:
    return Rule(
        **{
            "batch_segments": SEGMENTS,
            "minibatch": 10**6,
            "epochs": 1,
            "learning_rate": 1e-2,
            **changes,
        }
    )


@pytest.mark.parametrize("kind", list(MODELS))
def test_an_update_from_fresh_segments_is_ppos(kind: str) -> None:
    """The same transitions through the synchronous learner give the same weights."""
    model, rule = MODELS[kind], rule_of(entropy=0.01, max_grad_norm=0.7, gamma=0.95, gae_lambda=0.9)
    weights = model.new_weights(3)
    batch = batch_of(model, weights)
    learner = TorchSegmentLearner(model, rule, Overlap(), weights)
    learned = learner.update(batch)
    env = HostEnvironment(FEATURES, model.actions)
    program = Program(env, SEGMENTS, ROWS, 1, model.hidden, model.activation, "gaussian")
    host = HostLearner(program, rule.minibatch, rates_of(rule, model), model.new_weights(3), 0)
    head = model.policy(weights, batch.observation[:-1], np)[0]
    never, nothing = np.zeros_like(batch.terminated), np.zeros_like(batch.reward)
    host.steps = Transition(
        batch.observation[:-1].copy(),
        batch.raw,
        head,
        batch.reward,
        batch.terminated,
        never,
        nothing,
    )
    host.seen = batch.observation[-1]
    figures = host.learn(np.arange(ROWS * SEGMENTS)[None], rule.learning_rate)
    same_after_one_step(learner, flatten_weights(host.network))
    assert np.abs(learner.vector - flatten_weights(weights)).max() > 1e-3
    for name in ("value_loss", "entropy", "loss"):
        size = max(1.0, abs(figures["value_loss"]))  # the largest part of the loss
        assert learned.figures[name] == close_to(
            figures[name], roundings=SUMMED, size=size, dtype=np.float32
        )


SUMMED = 2 * (
    ROWS * SEGMENTS + 40
)  # roundings of a mean over all rows, each after two layers and a softmax


def same_after_one_step(learner: TorchSegmentLearner, other: Any) -> None:
    """Adam's first step is the rate times g / (|g| + its epsilon): what rounding does to the
    gradient g is the larger in the weight, the nearer g is to zero.
    """
    beta, rate = learner.optimiser.param_groups[0]["betas"][0], learner.rule.learning_rate
    slopes = [
        learner.optimiser.state[leaf]["exp_avg"].numpy().ravel() / (1 - beta)
        for leaf in learner.leaves
    ]
    size = np.concatenate(
        [np.full(one.size, 16 * np.abs(one).max()) for one in slopes]
    )  # rows cancel each other
    slope = np.abs(np.concatenate(slopes))
    moved = tolerance(SUMMED, size, np.float32) * rate * ADAM_EPSILON / (slope + ADAM_EPSILON) ** 2
    assert np.quantile(moved, 0.9) < rate / 50
    moved = np.minimum(moved, 2 * rate) + tolerance(16, 1.0, np.float32)
    assert_close(learner.vector, other, roundings=1, size=moved / np.finfo(np.float32).eps)


def rates_of(rule: Rule, model: PerceptronModel) -> Rates:
    def real(x: float) -> Any:
        return np.asarray(x, np.float32)

    return Rates(
        learning_rate=real(rule.learning_rate), final_rate_share=real(1.0), gamma=real(rule.gamma),
        gae_lambda=real(rule.gae_lambda), clip=real(rule.clip), value_clip=real(OFF),
        entropy=real(rule.entropy),
        value=real(rule.value), max_grad_norm=real(rule.max_grad_norm), target_kl=real(OFF),
        epochs=np.asarray(1, np.int32), normalise_advantage=np.asarray(True),
        normalise_reward=np.asarray(False),
        action_noise=real(0.0), feature_noise=real(0.0), weight_decay=real(0.0),
        gates=np.ones(len(model.hidden), np.float32), updates=np.asarray(1, np.int32),
        until=np.asarray(0, np.int32),
        environment=(),
    )  # fmt: skip


def test_rows_that_are_too_old_or_do_not_act_teach_nothing() -> None:
    model, overlap = MODELS["choices"], Overlap(max_lag=2)
    weights = model.new_weights(0)
    batch = batch_of(model, weights)
    batch.version[:] = np.arange(SEGMENTS) - 4  # the learner is at version 5: lags of 9 down to 0
    batch.acting[0] = False
    learner = TorchSegmentLearner(model, rule_of(), overlap, weights)
    learner.version = 5
    learned = learner.update(batch)
    rows = ROWS - 1
    assert learned.lags == {0: rows, 1: rows, 2: rows} and learned.too_old == 7 * rows
    assert learned.figures["rows"] == 3 * rows
    spoiled = Segment(*(array.copy() for array in batch))
    spoiled.raw[:, :7] = 0  # what the old ones did must not matter
    other = TorchSegmentLearner(model, rule_of(), overlap, weights)
    other.version = 5
    other.update(spoiled)
    np.testing.assert_array_equal(
        other.vector, learner.vector
    )  # one program: only what it leaves out differs
    all_old = TorchSegmentLearner(model, rule_of(), overlap, weights)
    all_old.version = 50
    assert all_old.update(batch).figures == {}
    np.testing.assert_array_equal(all_old.vector, flatten_weights(weights))


@pytest.mark.parametrize("objective", ["decoupled", "vtrace"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_going_on_from_what_was_known_changes_nothing(kind: str, objective: Any) -> None:
    model, overlap = MODELS[kind], Overlap(objective=objective)
    weights = model.new_weights(1)
    rule = rule_of(minibatch=17, epochs=2)
    one = TorchSegmentLearner(model, rule, overlap, weights)
    one.update(batch_of(model, weights, 1))
    other = TorchSegmentLearner(model, rule, overlap, model.new_weights(9))
    other.load_state(one.state)
    batch = batch_of(model, unflatten_weights(one.vector, weights), 2)
    assert one.update(batch).figures == other.update(batch).figures
    assert one.vector.tobytes() == other.vector.tobytes()
    assert one.state.first.tobytes() == other.state.first.tobytes()


KNOBS: dict[str, Any] = {
    "minibatch": 40, "epochs": 3, "learning_rate": 1e-3, "gamma": 0.5, "gae_lambda": 0.1,
    "clip": 0.001,
    "value_clip": 0.001, "entropy": 0.5, "value": 0.01, "max_grad_norm": 1e-3, "target_kl": 1e-7,
    "normalise_advantage": False,
}  # fmt: skip


@pytest.mark.parametrize("name", list(KNOBS))
def test_every_knob_of_the_rule_is_live(name: str) -> None:
    model = MODELS["choices"]
    weights = model.new_weights(0)
    batch = batch_of(model, weights)
    base = {"epochs": 2, "minibatch": 60}

    def learned(**changes: Any) -> Any:
        learner = TorchSegmentLearner(model, rule_of(**{**base, **changes}), Overlap(), weights)
        learner.update(batch)
        return learner.vector

    assert (learned() != learned(**{name: KNOBS[name]})).any()


@pytest.mark.parametrize("name", ["rho", "trace", "objective"])
def test_every_knob_of_the_correction_is_live(name: str) -> None:
    model = MODELS["choices"]
    acted, weights = model.new_weights(7), model.new_weights(0)
    acted.actor.head.weight[:] *= 99  # a policy with strong opinions
    batch = batch_of(model, acted)

    def learned(**changes: Any) -> Any:
        learner = TorchSegmentLearner(model, rule_of(), Overlap(**changes), weights)
        learner.update(batch)
        return learner.vector

    assert (learned() != learned(**{name: "vtrace" if name == "objective" else 0.3})).any()


@pytest.mark.parametrize(
    ("reuse", "updates"),
    [
        (Reuse(), 2),
        (Reuse(most=0), 1),
        (Reuse(most=3), 4),
        (Reuse(most=3, largest_kl=0.0), 1),
        (Reuse(most=3, least_effective=1.0), 1),
    ],
)
def test_a_batch_teaches_again_only_while_that_is_allowed(reuse: Reuse, updates: int) -> None:
    model, overlap = MODELS["choices"], Overlap(reuse=reuse, max_lag=99)
    weights = model.new_weights(0)
    batch = batch_of(model, weights)
    learning = Learning(
        TorchSegmentLearner(model, rule_of(learning_rate=1e-3), overlap, weights), overlap
    )
    for k in range(SEGMENTS):
        assert not learning.gather_batch() and learning.make_update() is None
        learning.add_segment(segment_of(batch, k))
    assert learning.gather_batch() == SEGMENTS
    made = []
    while (update := learning.make_update()) is not None:
        made.append(update)
    assert [update.again for update in made] == [False] + [True] * (updates - 1)


def test_reuse_stops_when_the_batch_has_become_too_old() -> None:
    model, overlap = (
        MODELS["choices"],
        Overlap(reuse=Reuse(most=99, largest_kl=9.0, least_effective=0.0), max_lag=2),
    )
    weights = model.new_weights(0)
    batch = batch_of(model, weights)
    learning = Learning(
        TorchSegmentLearner(model, rule_of(learning_rate=1e-3), overlap, weights), overlap
    )
    for k in range(SEGMENTS):
        learning.add_segment(segment_of(batch, k))
    learning.gather_batch()
    lags = []
    while (update := learning.make_update()) is not None:
        lags.append(dict(update.lags))
    assert lags == [{k: ROWS * SEGMENTS} for k in range(3)]


def test_weights_of_another_size_are_refused() -> None:
    weights = MODELS["boxes"].new_weights(0)
    with pytest.raises(ValueError, match="weights were given"):
        unflatten_weights(np.zeros(7, np.float32), weights)
    assert new_state(weights).steps == 0 and Format(3, 2, Discrete(4)).new().raw.dtype == np.int64
