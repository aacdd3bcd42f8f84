"""`flatout.PPO` over environments that wait: the same PPO when it is serial, and one that overlaps
when it is not.
"""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from flatout import PPO
from flatout.errors import RunError, SettingsError
from flatout.slow_envs import choice
from flatout.slow_envs import plain as plain_envs
from flatout.slow_envs.overlap import Care, Overlap

SMALL: dict[str, Any] = {"n_steps": 32, "batch_size": 32, "n_epochs": 3, "seed": 4}
INLINE: dict[str, Any] = {
    "learner": "inline",
    "update_s": 0.05,
}  # on simulated time, without a process


class Waiting:
    """A Gymnasium environment whose steps wait a little."""

    def __init__(self, name: str = "CartPole-v1") -> None:
        self.env = gym.make(name)
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.closed = False

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(0.001)
        return self.env.step(action)

    async def close(self) -> None:
        self.closed = True
        self.env.close()


class Broken(Waiting):
    async def reset(self, **_: Any) -> Any:
        raise ConnectionRefusedError("nobody listens")


def weights(model: PPO) -> list[np.ndarray]:
    return [array.numpy() for array in model.get_parameters()["policy"].values()]


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_serial_is_synchronous_ppo_bit_for_bit(name: str) -> None:
    waiting = PPO(
        "MlpPolicy", [Waiting(name) for _ in range(3)], overlap=Overlap(serial=True), **SMALL
    )
    vector = SyncVectorEnv([lambda: gym.make(name)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    plain = PPO("MlpPolicy", vector, **SMALL)
    for model in (waiting, plain):
        model.learn(32 * 3 * 4)
        model.env.close()
    assert waiting.num_timesteps == plain.num_timesteps == 32 * 3 * 4
    for one, other in zip(weights(waiting), weights(plain), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.long
@pytest.mark.parametrize(("objective", "learner"), [("decoupled", {}), ("vtrace", INLINE)])
def test_it_learns_while_environments_wait_and_goes_on_from_a_file(
    objective: Any, learner: Any, tmp_path: Path
) -> None:
    overlap = Overlap(objective=objective, segment=8, **learner)
    model = PPO("MlpPolicy", [Waiting] * 8, overlap=overlap, **SMALL)
    before = weights(model)
    model.learn(500)
    # what waits for the learner is bounded, however slow it is
    assert 500 <= model.num_timesteps < 2500
    assert model.ep_info_buffer and all(info["l"] > 0 for info in model.ep_info_buffer)
    assert any((one != other).any() for one, other in zip(before, weights(model), strict=True))
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", env=[Waiting] * 8, overlap=overlap)
    for one, other in zip(weights(model), weights(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.learner_state.updates == model.learner_state.updates > 0
    again.learn(256, reset_num_timesteps=False)
    assert again.learner_state.updates > model.learner_state.updates
    assert model.predict(np.zeros(4, np.float32), deterministic=True)[0] in (0, 1)


def test_plain_environments_may_be_among_them_and_actions_may_be_boxes() -> None:
    overlap = Overlap(plain="inline", **INLINE)
    model = PPO(
        "MlpPolicy",
        [Waiting("Pendulum-v1"), *[lambda: gym.make("Pendulum-v1")] * 3],
        overlap=overlap,
        **SMALL,
    )
    model.learn(300)
    assert model.num_timesteps >= 300


class Lasting(gym.Wrapper):
    """Each step lasts so many seconds, on a clock of its own."""

    now = 0.0

    def __init__(self, seconds: float) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        Lasting.now += self.seconds
        return super().step(action)


@pytest.mark.parametrize(("kind", "seconds"), [("inline", 0.0001), ("thread", 0.01)])
def test_plain_environments_are_measured_once_and_all_are_stepped_in_the_way_that_suits(
    monkeypatch: pytest.MonkeyPatch, kind: str, seconds: float
) -> None:
    measured: list[choice.SteppingChoice] = []
    monkeypatch.setattr(
        choice, "time", SimpleNamespace(perf_counter=lambda: Lasting.now, thread_time=lambda: 0.0)
    )
    monkeypatch.setattr(choice, "seconds_queued", lambda: 0.0)
    monkeypatch.setattr(
        plain_envs,
        "measure_steps",
        lambda env: measured.append(choice.measure_steps(env)) or measured[-1],
    )
    model = PPO("MlpPolicy", [partial(Lasting, seconds)] * 4, overlap=Overlap(**INLINE), **SMALL)
    assert model.engine.overlap.plain == kind  # type: ignore[union-attr]
    if kind == "inline":  # threads have no place on simulated time
        model.learn(300)
        assert model.num_timesteps >= 300
    assert [one.kind for one in measured] == [kind]


def test_environments_that_cannot_begin_end_the_training_with_their_error() -> None:
    model = PPO(
        "MlpPolicy", [Broken] * 4, overlap=Overlap(care=Care(most_failures=1), **INLINE), **SMALL
    )
    with pytest.raises(RunError, match=r"none of the 4 environments could begin.*nobody listens"):
        model.learn(100)


def test_callbacks_may_end_it() -> None:
    calls: list[int] = []

    def stop(local: dict[str, Any], _: Any) -> bool:
        calls.append(len(local["infos"]))
        return len(calls) < 2

    PPO("MlpPolicy", [Waiting] * 4, overlap=Overlap(segment=8, **INLINE), **SMALL).learn(
        10_000, callback=stop
    )
    assert len(calls) == 2


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="overlap is for a list"):
        PPO("MlpPolicy", "CartPole-v1", overlap=Overlap())
    with pytest.raises(SettingsError, match="list of environments whose steps"):
        PPO("MlpPolicy", [1, 2])
    with pytest.raises(SettingsError, match="learned from on the CPU"):
        PPO("MlpPolicy", [Waiting], device="cuda")
    model = PPO("MlpPolicy", [Waiting] * 2, **SMALL)
    with pytest.raises(SettingsError, match="live in an event loop"):
        model.env.reset()
