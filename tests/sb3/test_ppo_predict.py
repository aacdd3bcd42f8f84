"""`predict` answers in Stable-Baselines3's shapes and types, with the same actions for the same
weights.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3

from flatout import PPO
from flatout.errors import SettingsError
from rounding import assert_close

ROUNDINGS = 256  # of an action or a value: the terms of three products with 64 units each
spaces = gymnasium.spaces
OBSERVATIONS = {
    "box": spaces.Box(-2, 2, (3,), np.float32),
    "matrix": spaces.Box(-2, 2, (2, 3), np.float64),
    "discrete": spaces.Discrete(5),
    "multidiscrete": spaces.MultiDiscrete([2, 4]),
    "multibinary": spaces.MultiBinary(4),
}
ACTIONS = {
    "box": spaces.Box(np.float32([-1, -0.1]), np.float32([1, 0.1])),
    "matrix": spaces.Box(-0.2, 0.3, (2, 2), np.float32),
    "double": spaces.Box(-0.2, 0.3, (2,), np.float64),
    "discrete": spaces.Discrete(4),
    "multidiscrete": spaces.MultiDiscrete([3, 3]),
}


class Spaces(gymnasium.Env):
    """Spaces only."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action


def pair(observation: Any, action: Any) -> tuple[Any, Any]:
    """Both with the same weights, which have opinions."""
    ours = PPO("MlpPolicy", Spaces(observation, action), seed=0)
    weights = ours.policy.state_dict()
    weights["action_net.weight"] *= 100
    ours.policy.load_state_dict(weights)
    theirs = stable_baselines3.PPO("MlpPolicy", Spaces(observation, action), device="cpu")
    theirs.policy.load_state_dict(weights)
    return ours, theirs


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_one_and_several(observation: str, action: str) -> None:
    space = OBSERVATIONS[observation]
    ours, theirs = pair(space, ACTIONS[action])
    space.seed(3)
    one, several = space.sample(), np.stack([space.sample() for _ in range(6)])
    for seen in (one, several, several[:1]):
        for deterministic in (True, False):
            own, state = ours.predict(seen, state=("kept",), deterministic=deterministic)
            their, _ = theirs.predict(seen, deterministic=deterministic)
            assert (
                type(own) is type(their) and own.shape == their.shape and own.dtype == their.dtype
            )
            assert state == ("kept",)
        own, their = (model.predict(seen, deterministic=True)[0] for model in (ours, theirs))
        assert_close(own, their, roundings=ROUNDINGS, size=2.0, dtype=np.float32)
    values = ours.policy.predict_values(several)
    with stable_baselines3.common.policies.th.no_grad():
        expected = theirs.policy.predict_values(theirs.policy.obs_to_tensor(several)[0]).numpy()
    assert_close(values, expected, roundings=ROUNDINGS, size=2.0, dtype=np.float32)


def test_drawn_actions_follow_the_seed_and_the_distribution() -> None:
    space = OBSERVATIONS["box"]
    one, other = (PPO("MlpPolicy", Spaces(space, spaces.Discrete(2)), seed=4) for _ in range(2))
    seen = np.zeros((4000, 3), np.float32)
    drawn = one.predict(seen)[0]
    assert (drawn == other.predict(seen)[0]).all()
    assert 0.45 < drawn.mean() < 0.55  # six standard errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.zeros(3), {}), "give the observation alone"),
        ({"a": np.zeros(3)}, "was given a dict"),
        (np.zeros(4), r"the observation has shape \(4,\), this policy reads \(3,\)"),
    ],
)
def test_other_things_are_refused(given: Any, message: str) -> None:
    model = PPO("MlpPolicy", Spaces(OBSERVATIONS["box"], spaces.Discrete(2)))
    with pytest.raises(SettingsError, match=message):
        model.predict(given)
