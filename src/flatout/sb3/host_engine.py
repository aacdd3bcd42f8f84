"""PPO over environments on the host: steps them, calls back after each step, and lets PyTorch
learn.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import map_leaves, to_numpy
from flatout.errors import SettingsError
from flatout.learners.environment import actions_of
from flatout.learners.rates import Program
from flatout.policies.network import Network
from flatout.sb3 import flat_spaces
from flatout.sb3.arguments import ScheduledValues, evaluate_schedules, rates_of_model
from flatout.sb3.callbacks import Callbacks, Names
from flatout.sb3.engine import EngineSource, EngineUpdate
from flatout.sb3.environments import Infos, SpaceArray, SteppedEnvs
from flatout.sb3.model import AskedDevice, LearningModel, keep_episodes, update_progress
from flatout.sb3.trained_state import TrainedState
from flatout.sb3.vector_adapter import VectorEnvAdapter

if TYPE_CHECKING:
    from flatout.learners.torch_engine.host_ppo import Arrival


def host_source(venv: SteppedEnvs) -> EngineSource:
    """Environments with the methods of a VecEnv, for this engine."""
    return EngineSource(
        observation_space=venv.observation_space,
        action_space=venv.action_space,
        n_envs=int(venv.num_envs),
        equal_minibatches=False,
        build_engine=partial(HostEngine, venv),
    )


class Truncations(NamedTuple):
    """Which episodes were cut off rather than over in a step, and what they saw last."""

    truncated: NDArray[np.bool_]  # (env,)
    last: NDArray[np.float32] | None  # (env, feature), None where none was


class HostEngine:
    """Environments with the methods of a VecEnv and the learner behind them; it is a
    `LearningEngine`.
    """

    fused = False
    market = None

    def __init__(self, venv: SteppedEnvs, model: LearningModel, state: TrainedState) -> None:
        import torch

        from flatout.learners.torch_engine.host_ppo import (  # late: PyTorch takes seconds to load
            HostEnvironment,
            HostLearner,
        )

        self.venv, self.n_envs = venv, int(venv.num_envs)
        self.observation_space, self.action_space = venv.observation_space, venv.action_space
        size = flat_spaces.observation_size(self.observation_space)
        policy = model.architecture
        program = Program(
            environment=HostEnvironment(size, actions_of(self.action_space)),
            n_envs=self.n_envs,
            n_steps=model.n_steps,
            minibatches=1,
            hidden=policy.hidden,
            activation=policy.activation,
            distribution="gaussian",
        )
        check_length(venv, model.n_steps)
        device = torch_device(model.asked_device)
        self.device = torch.device(device)
        self.learner = HostLearner(
            program=program,
            batch_size=model.batch_size,
            rates=rates_of_model(model, (), ScheduledValues()),
            network=state.network,
            seed=state.seed,
            device=device,
        )
        self.restore(state)
        self.running = False

    @property
    def learner_state(self) -> TrainedState:
        """Copies of what it has learned so far."""
        core = self.learner.core
        adam = core.state.optimiser
        return TrainedState(
            network=map_leaves(np.array, self.learner.network),
            first=np.array(to_numpy(adam.mu)),
            second=np.array(to_numpy(adam.nu)),
            descents=int(adam.count),
            updates=core.updates,
            seed=core.seed,
        )

    def restore(self, state: TrainedState) -> None:
        """Go on from this state, in the episodes as they stand."""
        adam = self.learner.core.state.optimiser._replace(
            count=state.descents, mu=state.first, nu=state.second
        )
        self.learner.recall(state.network, adam, state.seed, state.updates)

    @property
    def network(self) -> Network:
        """The weights as NumPy has them: views of them on a CPU."""
        return self.learner.network

    def begin_training(self, reset: bool) -> None:
        """Begin fresh episodes, if asked for or if there are none."""
        if reset or not self.running:
            self.learner.seen = flat_spaces.flatten_observations(
                self.observation_space, self.venv.reset()
            )
            self.running = True

    def set_seed(self, seed: int) -> None:
        """Draw other noise from now on, and other episodes from the next reset on."""
        self.learner.core.seed = seed
        self.venv.seed(seed)

    def run_update(self, model: LearningModel, callbacks: Callbacks) -> EngineUpdate:
        """One rollout and what is learned from it; nothing is learned from a rollout that a
        callback cut short.
        """
        learner = self.learner
        learner.core.set_rates(rates_of_model(model, (), ScheduledValues()))
        noise = learner.draw()
        callbacks.rollout_start()
        shown: Names = {
            "env": self.venv,
            "n_rollout_steps": model.n_steps,
            "rollout_buffer": None,
            "n_steps": 0,
        }

        def step(raw: SpaceArray) -> "Arrival":
            return self.step(model, callbacks, raw, shown)

        if not learner.gather(step, noise.action):
            return EngineUpdate(None, go_on=False)
        callbacks.rollout_end()
        update_progress(model)
        rates = rates_of_model(model, (), evaluate_schedules(model))
        learner.core.set_rates(rates)
        return EngineUpdate(learner.learn(noise.order, float(rates.learning_rate)), go_on=True)

    def step(
        self, model: LearningModel, callbacks: Callbacks, raw: SpaceArray, shown: Names
    ) -> "Arrival":
        """One step of all environments with the policy's raw actions, then all callbacks; what the
        learner needs of it.
        """
        from flatout.learners.torch_engine.host_ppo import Arrival

        actions = flat_spaces.clip_actions(self.action_space, raw)
        observation, rewards, dones, infos = self.venv.step(actions)
        model.num_timesteps += self.n_envs
        shown["n_steps"] += 1
        going = not callbacks.each or callbacks.step({
            **shown, "actions": raw, "clipped_actions": actions, "new_obs": observation,
            "rewards": rewards,
            "dones": dones, "infos": infos,
        })  # fmt: skip
        if going:
            keep_episodes(model, infos, dones)
        seen = flat_spaces.flatten_observations(self.observation_space, observation)
        cut = self.find_truncations(dones, infos, seen)
        return Arrival(
            seen=seen,
            reward=np.asarray(rewards, np.float32),
            terminated=np.asarray(dones) & ~cut.truncated,
            truncated=cut.truncated,
            last=cut.last,
            void=self.venv.void if isinstance(self.venv, VectorEnvAdapter) else None,
            going=going,
        )

    def find_truncations(
        self, dones: NDArray[np.bool_], infos: Infos, seen: NDArray[np.float32]
    ) -> Truncations:
        """Which of the episodes that ended were cut off, as their infos say."""
        truncated, last = np.zeros(self.n_envs, np.bool_), None
        for k in np.flatnonzero(dones):
            final = infos[k].get("terminal_observation")
            if final is not None and infos[k].get("TimeLimit.truncated", False):
                last = np.zeros_like(seen) if last is None else last
                truncated[k] = True
                last[k] = flat_spaces.flatten_observations(
                    self.observation_space, np.asarray(final)[None]
                )[0]
        return Truncations(truncated, last)

    def stop(self) -> None:
        """Do nothing: nothing runs between updates."""


def check_length(venv: SteppedEnvs, n_steps: int) -> None:
    """Refuse rollouts of one step of a vector that restarts one step late: some would hold no step
    at all.
    """
    if n_steps == 1 and isinstance(venv, VectorEnvAdapter) and venv.mode.name == "NEXT_STEP":
        raise SettingsError(
            "n_steps is 1, and these environments restart one step late (NEXT_STEP), in a step "
            "that takes no action: give n_steps of 2 or more"
        )


def torch_device(asked: AskedDevice) -> str:
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
