"""Exported policies in Stable-Baselines3 itself: same actions, same values, same noise, and
training that goes on.
"""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from policies_to_export import (
    PANEL,
    SIZE,
    assert_same_actions,
    follow,
    gated,
    policy_of,
    random_observations,
)
from stable_baselines3 import PPO

from flatout.errors import BundleError
from flatout.export.sb3_zip import zip_of
from flatout.market.gymnasium_env import MarketEnv
from flatout.policies.actions import MultiCategorical
from flatout.policies.bundle import Bundle
from flatout.policies.network import Sizes, actor, critic, new_network
from rounding import assert_close
from small_bundles import bundle_of

POLICIES = {
    "tanh": policy_of(),
    "relu": policy_of(activation="relu", action="trade"),
    "silu": policy_of(activation="silu", action="direction_amount"),
    "choices": policy_of(action="discrete", order_sizes=[0.1, 0.4]),
    "last layers skipped": gated((1, 1, 0)),
    "a middle layer skipped": gated((1, 0, 1), activation="silu"),
    "the first gate means nothing": gated((0, 1, 0)),
    "narrower": policy_of(network=new_network(Sizes(SIZE, (24, 16), 4, 4), 0, hidden=(6, 5))),
}


def load(bundle: Bundle) -> PPO:
    return PPO.load(io.BytesIO(zip_of(bundle)), device="cpu")


@pytest.mark.parametrize("name", POLICIES)
def test_ppo_acts_as_the_policy_does(name: str) -> None:
    bundle = POLICIES[name]
    seen = random_observations(bundle, 2000)
    actions, _ = load(bundle).predict(seen, deterministic=True)
    expected = bundle.act(seen)
    assert np.ptp(expected) > 0.01
    assert_same_actions(actions, expected)


def test_ppo_acts_as_the_policy_does_in_its_market() -> None:
    bundle = POLICIES["tanh"]
    seen = follow(bundle, bars=50)
    actions, _ = load(bundle).predict(seen.observation, deterministic=True)
    assert_same_actions(actions, seen.action)


@pytest.mark.parametrize("name", POLICIES)
def test_critic_and_noise_are_the_same(name: str) -> None:
    bundle = POLICIES[name]
    seen = random_observations(bundle, 500)
    policy = load(bundle).policy
    with torch.no_grad():
        values = policy.predict_values(torch.tensor(seen))[:, 0].numpy()
        noise = policy.get_distribution(torch.tensor(seen)).distribution
    expected = critic(bundle.network, seen, bundle.activation, np, bundle.gates)
    assert_same_actions(values, expected)  # the same layers, of the same size
    if bundle.choices:
        head = actor(bundle.network, seen, bundle.activation, np, bundle.gates)
        chances = np.exp(MultiCategorical(head, bundle.choices).each(np).log_probs(np))
        assert_same_actions(np.stack([one.probs.numpy() for one in noise], axis=1), chances)
    else:
        deviation = np.tile(np.exp(bundle.network.log_std), (500, 1))
        assert_close(noise.stddev.numpy(), deviation, roundings=16)


def test_skipped_layers_are_gone() -> None:
    """Not kept with zeros: three layers of which one is skipped are two."""
    assert load(gated((1, 1, 0))).policy_kwargs["net_arch"] == {"pi": [16, 16], "vf": [16, 16]}


@pytest.mark.long
def test_it_opens_where_there_is_no_flatout(tmp_path: Path) -> None:
    bundle = POLICIES["tanh"]
    (tmp_path / "policy.zip").write_bytes(zip_of(bundle))
    seen = random_observations(bundle, 5)
    np.save(tmp_path / "seen.npy", seen)
    code = (
        "import sys; sys.modules['flatout'] = None\n"
        "import numpy as np; from stable_baselines3 import PPO\n"
        "model = PPO.load('policy.zip', device='cpu')\n"
        "np.save('actions.npy', model.predict(np.load('seen.npy'), deterministic=True)[0])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert_same_actions(np.load(tmp_path / "actions.npy"), bundle.act(seen))


def test_training_goes_on_in_the_same_market() -> None:
    bundle = POLICIES["relu"]
    env = MarketEnv(bundle.market(PANEL))
    model = PPO.load(
        io.BytesIO(zip_of(bundle)), env=env, device="cpu", n_steps=64, batch_size=32, n_epochs=2
    )
    seen = random_observations(bundle, 20)
    before, _ = model.predict(seen, deterministic=True)
    assert_same_actions(before, bundle.act(seen))
    model.learn(128)
    after, _ = model.predict(seen, deterministic=True)
    assert model.num_timesteps == 128
    assert np.abs(after - before).max() > 1e-3
    assert np.isfinite(after).all()


def test_padded_units_stay_zero_when_training_goes_on() -> None:
    bundle = POLICIES["narrower"]
    model = PPO.load(
        io.BytesIO(zip_of(bundle)),
        env=MarketEnv(bundle.market(PANEL)),
        device="cpu",
        n_steps=64,
        batch_size=32,
    )
    model.learn(64)
    first = model.policy.state_dict()["mlp_extractor.policy_net.0.weight"]
    assert first[:6].abs().sum() > 0
    assert not first[6:].any()


@pytest.mark.parametrize("name", ["squashed_gaussian", "softmax"])
def test_other_distributions_are_refused_by_name(name: str) -> None:
    with pytest.raises(
        BundleError, match=rf"'{name}' has no equal .* train\.distribution = \"gaussian\""
    ) as e:
        zip_of(policy_of(distribution=name))
    assert "or export to onnx" in str(e.value)


def test_a_network_of_assets_is_refused_by_name() -> None:
    with pytest.raises(BundleError, match=r'train\.algorithm = "ppo", .* or export to onnx'):
        zip_of(bundle_of(kind="per_asset"))


def test_stable_baselines_has_no_squashed_policy_of_this_kind() -> None:
    """What the refusal rests on."""
    env = MarketEnv(POLICIES["tanh"].market(PANEL))
    with pytest.raises(AssertionError, match="only available when using gSDE"):
        PPO("MlpPolicy", env, policy_kwargs={"squash_output": True}, device="cpu")


def test_gates_that_mix_are_refused() -> None:
    with pytest.raises(BundleError, match=r"the gates 0\.25 mix layers .* onnx takes any"):
        zip_of(gated((1, 0.25, 0)))
