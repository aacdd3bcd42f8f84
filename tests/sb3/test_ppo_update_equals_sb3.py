"""One whole update of flatout.PPO, rollout included, is Stable-Baselines3's, parameter by
parameter.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import stable_baselines3
import torch
from scripted_envs import Scripted
from stable_baselines3.common.vec_env import DummyVecEnv

from flatout import PPO
from flatout.learners.torch_engine.host_ppo import HostNoise
from flatout.policies.network import actor
from flatout.sb3.policy import name_weights
from rounding import tolerance

N_STEPS, N_ENVS, EPOCHS = 24, 2, 3
ROLLOUT = N_STEPS * N_ENVS
BASE = {
    "n_steps": N_STEPS,
    "batch_size": 16,
    "n_epochs": EPOCHS,
    "learning_rate": 3e-3,
    "device": "cpu",
    "seed": 0,
}
KNOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "discount": {"gamma": 0.8, "gae_lambda": 0.5},
    "value clipping": {"clip_range_vf": 0.05},
    "entropy bonus": {"ent_coef": 0.3},
    "no normalisation": {"normalize_advantage": False, "vf_coef": 0.9},
    "gradient clipping": {"max_grad_norm": 0.02},
    "schedules": {
        "learning_rate": lambda left: 1e-3 + 5e-3 * left,
        "clip_range": lambda left: 0.02 + 0.1 * left,
    },
    "other network": {
        "policy_kwargs": {
            "net_arch": [16, 8],
            "log_std_init": -0.5,
            "activation_fn": torch.nn.ReLU,
        },
    },
    "early stop": {"target_kl": 0.002, "learning_rate": 2e-2},
    "a smaller last minibatch": {"batch_size": 20},
}


Choices = tuple[int, int]  # how many, and of how many components; (0, 0) for a box


def envs(choices: Choices) -> Any:
    return DummyVecEnv([lambda k=k: Scripted(k, *choices) for k in range(N_ENVS)])


class OneRollout(stable_baselines3.common.callbacks.BaseCallback):
    """Stops at the first step of the second rollout; keeps what their buffer held of the first."""

    def _on_step(self) -> bool:
        return self.num_timesteps <= ROLLOUT

    def _on_rollout_end(self) -> None:
        buffer = getattr(self.model, "rollout_buffer", None)
        if buffer is not None:
            self.seen, self.taken = buffer.observations.copy(), buffer.actions.copy()


def noise_of(rollout: OneRollout, network: Any, activation: Any, choices: Choices) -> np.ndarray:
    """(step, env, action) the noise with which our policy does what theirs did."""
    many, components = choices
    if many:
        taken = rollout.taken.reshape(N_STEPS, N_ENVS, components)
        noise = np.where(taken[..., None] == np.arange(many), 1 - 1e-6, 1e-6)
        return noise.reshape(N_STEPS, N_ENVS, -1).astype(np.float32)
    return (rollout.taken - actor(network, rollout.seen, activation, np)) / np.exp(network.log_std)


@cache
def updates(knob: str, choices: Choices) -> tuple[Any, Any, Any]:
    """(before, ours, theirs): all weights, by name."""
    arguments = BASE | KNOBS[knob]
    ours = PPO("MlpPolicy", envs(choices), **arguments)
    theirs = stable_baselines3.PPO("MlpPolicy", envs(choices), **arguments)
    theirs.policy.load_state_dict(ours.policy.state_dict())
    before, network = (
        {k: v.copy() for k, v in name_weights(ours.network).items()},
        ours.learner_state.network,
    )
    rng = np.random.default_rng(5)
    orders = [rng.permutation(ROLLOUT) for _ in range(EPOCHS)]
    waiting, rollout = iter(orders), OneRollout()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.random, "permutation", lambda rows: next(waiting))
        theirs.learn(2 * ROLLOUT, callback=rollout)
    own_orders = np.stack([order % N_STEPS * N_ENVS + order // N_STEPS for order in orders])
    draw = HostNoise(noise_of(rollout, network, ours.architecture.activation, choices), own_orders)
    ours.engine.learner.draw = lambda: draw
    ours.learn(2 * ROLLOUT, callback=OneRollout())
    return (
        before,
        name_weights(ours.network),
        {k: v.numpy() for k, v in theirs.policy.state_dict().items()},
    )


def rate_of(knob: str) -> float:
    rate = (BASE | KNOBS[knob])["learning_rate"]
    return float(rate(1.0) if callable(rate) else rate)


@pytest.mark.long
@pytest.mark.parametrize(
    "choices", [(0, 0), (3, 1), (3, 2)], ids=["box", "discrete", "multidiscrete"]
)
@pytest.mark.parametrize("knob", KNOBS)
@pytest.mark.filterwarnings(
    "ignore:You have specified a mini-batch size", "ignore:batch_size is 20"
)
def test_all_weights_are_theirs(knob: str, choices: Choices) -> None:
    """To single precision. Adam divides a gradient by its own size: where that is hardly more than
    its rounding, as it may be for all that leads into one hidden unit, weights go astray by some
    part of the learning rate. A few units may, by a fiftieth of it; of no array, however small, may
    all weights.
    """
    before, ours, theirs = updates(knob, choices)
    assert set(ours) == set(theirs)
    astray = []
    for name, array in ours.items():
        gaps = np.abs(array - theirs[name]).reshape(len(array), -1)  # (unit, what leads into it)
        far = gaps > tolerance(128, 1.0, np.float32)
        assert gaps.max() < 0.02 * rate_of(knob), name
        assert not far.all(), f"{name}: all {far.size} weights are off, by up to {gaps.max():.3g}"
        astray += [(name, unit) for unit in np.flatnonzero(far.any(axis=1))]
    assert len(astray) <= 3, astray
    assert max(float(np.abs(ours[name] - before[name]).max()) for name in ours) > 1e-3


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:You have specified a mini-batch size", "ignore:batch_size is 20"
)
def test_each_of_these_knobs_matters() -> None:
    """So that their equality says something."""
    _, plain, _ = updates("plain", (0, 0))
    for knob in [name for name in KNOBS if name not in ("plain", "other network")]:
        _, other, _ = updates(knob, (0, 0))
        assert max(float(np.abs(plain[name] - other[name]).max()) for name in plain) > 1e-3, knob
