"""PPO over environments on the host: steps them, calls back after each step, and lets PyTorch
learn.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import map_leaves, to_numpy
from flatout.errors import SettingsError
from flatout.learners.environment import actions_of
from flatout.learners.rates import Program
from flatout.sb3 import flat_spaces
from flatout.sb3.arguments import Scheduled, rates_of_model, scheduled_now
from flatout.sb3.callbacks import Calls
from flatout.sb3.environments import VectorFace
from flatout.sb3.knowledge import Knowledge


class HostEngine:
    """Environments with Stable-Baselines3's face and the learner behind them."""

    fused = False

    def __init__(self, venv: Any, model: Any, known: Knowledge) -> None:
        from flatout.learners.torch_engine.host_ppo import (  # late: PyTorch takes seconds to load
            HostEnvironment,
            HostLearner,
        )

        self.venv, self.n_envs = venv, int(venv.num_envs)
        self.observation_space, self.action_space = venv.observation_space, venv.action_space
        size = flat_spaces.observation_size(self.observation_space)
        environment = HostEnvironment(size, actions_of(self.action_space))
        policy = model.architecture
        program = Program(
            environment, self.n_envs, model.n_steps, 1, policy.hidden, policy.activation, "gaussian"
        )
        check_length(venv, model.n_steps)
        self.device = torch_device(model.asked_device)
        self.learner = HostLearner(
            program,
            model.batch_size,
            rates_of_model(model, (), Scheduled()),
            known.network,
            known.seed,
            self.device,
        )
        self.know(known)
        self.running = False

    @property
    def known(self) -> Knowledge:
        """What it has learned so far: copies."""
        core = self.learner.core
        adam = core.state.optimiser
        network = map_leaves(np.array, self.learner.network)
        first, second = (np.array(to_numpy(x)) for x in (adam.mu, adam.nu))
        return Knowledge(network, first, second, int(adam.count), core.updates, core.seed)

    def know(self, known: Knowledge) -> None:
        """Go on from there."""
        adam = self.learner.core.state.optimiser._replace(
            count=known.descents, mu=known.first, nu=known.second
        )
        self.learner.recall(known.network, adam, known.seed, known.updates)

    @property
    def network(self) -> Any:
        """The weights as NumPy has them."""
        return self.learner.network

    def begin(self, anew: bool) -> None:
        """Fresh episodes, if asked for or if there are none."""
        if anew or not self.running:
            self.learner.seen = flat_spaces.features(self.observation_space, self.venv.reset())
            self.running = True

    def reseed(self, seed: int) -> None:
        """Other noise from now on, and seeds for the next reset."""
        self.learner.core.seed = seed
        self.venv.seed(seed)

    def update(self, model: Any, calls: Calls) -> tuple[dict[str, float] | None, bool]:
        """One rollout and what is learned from it; nothing is learned from a rollout that a
        callback cut short.
        """
        learner = self.learner
        learner.core.set_rates(rates_of_model(model, (), Scheduled()))
        noise = learner.draw()
        calls.rollout_start()
        shown = {
            "env": self.venv,
            "n_rollout_steps": model.n_steps,
            "rollout_buffer": None,
            "n_steps": 0,
        }

        def step(raw: NDArray[Any]) -> Any:
            return self.step(model, calls, raw, shown)

        if not learner.gather(step, noise.action):
            return None, False
        calls.rollout_end()
        model.note_progress()
        rates = rates_of_model(model, (), scheduled_now(model))
        learner.core.set_rates(rates)
        return learner.learn(noise.order, float(rates.learning_rate)), True

    def step(self, model: Any, calls: Calls, raw: NDArray[Any], shown: dict[str, Any]) -> Any:
        """One step of all environments, and of all callbacks."""
        from flatout.learners.torch_engine.host_ppo import Arrival

        actions = flat_spaces.bounded(self.action_space, raw)
        observation, rewards, dones, infos = self.venv.step(actions)
        model.num_timesteps += self.n_envs
        shown["n_steps"] += 1
        going = not calls.each or calls.step({
            **shown, "actions": raw, "clipped_actions": actions, "new_obs": observation,
            "rewards": rewards,
            "dones": dones, "infos": infos,
        })  # fmt: skip
        if going:
            model.note_episodes(infos, dones)
        seen = flat_spaces.features(self.observation_space, observation)
        truncated, last = self.ends(dones, infos, seen)
        void = self.venv.void if isinstance(self.venv, VectorFace) else None
        reward = np.asarray(rewards, np.float32)
        return Arrival(seen, reward, np.asarray(dones) & ~truncated, truncated, last, void, going)

    def end(self) -> None:
        """Nothing runs between updates."""

    def ends(self, dones: Any, infos: Any, seen: Any) -> tuple[NDArray[np.bool_], Any]:
        """Which episodes were cut off rather than over, and what they saw last."""
        truncated, last = np.zeros(self.n_envs, np.bool_), None
        for k in np.flatnonzero(dones):
            final = infos[k].get("terminal_observation")
            if final is not None and infos[k].get("TimeLimit.truncated", False):
                last = np.zeros_like(seen) if last is None else last
                truncated[k] = True
                last[k] = flat_spaces.features(self.observation_space, np.asarray(final)[None])[0]
        return truncated, last


def check_length(venv: Any, n_steps: int) -> None:
    """A vector that restarts one step late has no whole step in rollouts of one."""
    if n_steps == 1 and isinstance(venv, VectorFace) and venv.mode.name == "NEXT_STEP":
        raise SettingsError(
            "n_steps is 1, and these environments restart one step late (NEXT_STEP), in a step "
            "that takes no action: "
            "give n_steps of 2 or more"
        )


def torch_device(asked: Any) -> str:
    """The device to learn on. `auto` is the CPU: networks of this size are faster there than with
    copies to a GPU.
    """
    import torch

    try:
        device = torch.device("cpu" if asked == "auto" else asked)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise SettingsError(
            f"device is {asked!r}, which PyTorch does not have here: {error}"
        ) from None
    return str(device)
