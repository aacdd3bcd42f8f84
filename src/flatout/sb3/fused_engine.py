"""PPO over environments that are arrays (see array_envs.py): all of an update is one JAX program.

Nothing leaves the device within an update, so callbacks are called once after each.
"""

from collections.abc import Callable
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, map_leaves
from flatout.errors import SettingsError
from flatout.learners.forecast import choose_program
from flatout.learners.metrics import metric_names
from flatout.learners.rates import Program, Rates
from flatout.learners.trajectory import Lanes
from flatout.market.gymnasium_env import MarketVectorEnv
from flatout.market.tape import Tape
from flatout.policies.network import Network
from flatout.sb3.arguments import (
    ScheduledValues,
    count_minibatches,
    evaluate_schedules,
    rates_of_model,
)
from flatout.sb3.array_envs import ArrayEnvs
from flatout.sb3.callbacks import Callbacks
from flatout.sb3.engine import EngineSource, EngineUpdate
from flatout.sb3.environments import Infos, UnreachableEnvs
from flatout.sb3.model import AskedDevice, LearningModel, keep_episodes, update_progress
from flatout.sb3.trained_state import TrainedState
from flatout.sb3.vector_adapter import VectorEnvAdapter

UpdateProgram = Callable[[Tape | None, Rates, Lanes], tuple[Lanes, Array]]


def fused_source(envs: ArrayEnvs) -> EngineSource:
    """Environments that are arrays, for this engine."""
    return EngineSource(
        observation_space=envs.observation_space,
        action_space=envs.action_space,
        n_envs=envs.n_envs,
        equal_minibatches=True,
        build_engine=partial(FusedEngine, envs),
    )


@cache
def compiled_update(program: Program) -> UpdateProgram:
    """The compiled update of (data, rates, state), shared by models of one program."""
    from flatout.learners.jax_engine.population import make_chunk_runner

    return make_chunk_runner(program)


WHY_UNREACHABLE = (
    "these environments live inside the compiled program and cannot be stepped from outside: "
    "make one with gymnax, and use `predict` on what it shows"
)


class FusedEngine:
    """One lane of the population learner; it is a `LearningEngine`."""

    fused = True

    def __init__(self, envs: ArrayEnvs, model: LearningModel, state: TrainedState) -> None:
        self.envs, self.n_envs, self.market = envs, envs.n_envs, envs.market
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        policy = model.architecture
        program = Program(
            environment=envs.environment,
            n_envs=self.n_envs,
            n_steps=model.n_steps,
            minibatches=count_minibatches(model.n_steps * self.n_envs, model.batch_size),
            hidden=policy.hidden,
            activation=policy.activation,
            distribution="gaussian",
        )
        data_bytes = sum(array.nbytes for array in envs.data or ())
        self.program = choose_program(
            program, n_envs=self.n_envs, lanes=1, workers=1, data_bytes=data_bytes
        )
        self.rates = add_lane_axis(rates_of_model(model, envs.rules, ScheduledValues()))
        self.restore(state)
        self.device = self.checked_device(model.asked_device)

    def checked_device(self, asked: AskedDevice) -> str:
        """The device that JAX chose, if it is the one that was asked for."""
        found = next(iter(self.state.discounted.devices())).platform
        wanted = {"auto": found, "cuda": "gpu"}.get(
            str(asked).split(":")[0], str(asked).split(":")[0]
        )
        if wanted != found:
            raise SettingsError(
                f"device is {str(asked)!r}, JAX runs on {found!r} here: leave device at 'auto', "
                "or set JAX_PLATFORMS before Python starts"
            )
        return str(found)

    def begin_lane(self, network: Network, seed: int) -> Lanes:
        """The state of a lane with these weights, whose episodes begin."""
        from flatout.learners.jax_engine.population import init_lanes

        return init_lanes(
            program=self.program,
            data=self.envs.data,
            rates=self.rates,
            networks=[network],
            seeds=[seed],
        )

    def restore(self, state: TrainedState) -> None:
        """Go on from this state, in fresh environments."""
        words = np.random.SeedSequence([state.seed, state.updates]).generate_state(1)
        lane = self.begin_lane(state.network, int(words[0]))
        optimiser = lane.optimiser._replace(
            mu=state.first[None],
            nu=state.second[None],
            count=np.asarray([state.descents], np.int32),
        )
        self.state = lane._replace(
            optimiser=optimiser,
            seed=np.asarray([state.seed], np.uint32),
            updates=np.asarray([state.updates], np.int32),
        )
        self.fetched: Network | None = None

    @property
    def learner_state(self) -> TrainedState:
        """Copies of what it has learned so far."""
        optimiser = self.state.optimiser
        return TrainedState(
            network=self.network,
            first=np.array(optimiser.mu[0]),
            second=np.array(optimiser.nu[0]),
            descents=int(optimiser.count[0]),
            updates=int(self.state.updates[0]),
            seed=int(self.state.seed[0]),
        )

    @property
    def network(self) -> Network:
        """The weights as NumPy has them, fetched once after each update."""
        if self.fetched is None:
            self.fetched = map_leaves(
                lambda leaf: np.array(np.asarray(leaf)[0]), self.state.network
            )
        return self.fetched

    @cached_property
    def venv(self) -> UnreachableEnvs | VectorEnvAdapter:
        """Environments of the same kind on the host, for scripts and callbacks that want to step
        some.
        """
        if self.market is None:
            return UnreachableEnvs(
                self.observation_space, self.action_space, self.n_envs, WHY_UNREACHABLE
            )
        return VectorEnvAdapter(MarketVectorEnv(self.market, self.n_envs))

    def begin_training(self, reset: bool) -> None:
        """Begin fresh episodes, if asked for and if they are not fresh already."""
        if reset and self.is_under_way:
            self.restore(self.learner_state)

    @property
    def is_under_way(self) -> bool:
        """Whether any step was made since the episodes began."""
        episodes = self.state.episodes
        return bool(np.any(np.asarray(episodes.length) + np.asarray(episodes.ended)))

    def set_seed(self, seed: int) -> None:
        """Draw other noise from now on, in fresh environments."""
        self.restore(self.learner_state._replace(seed=seed))

    def run_update(self, model: LearningModel, callbacks: Callbacks) -> EngineUpdate:
        """One rollout and what is learned from it, then the callbacks."""
        callbacks.rollout_start()
        model.num_timesteps += self.program.rollout
        update_progress(model)
        rates = rates_of_model(model, self.envs.rules, evaluate_schedules(model))._replace(
            until=np.asarray(self.state.updates)[0] + np.int32(1)
        )
        self.rates = add_lane_axis(rates)
        self.state, row = compiled_update(self.program)(self.envs.data, self.rates, self.state)
        self.fetched = None
        metrics = dict(zip(metric_names(self.program), np.asarray(row)[0].tolist(), strict=True))
        if not self.program.sizes.deviations:
            metrics.pop("std", None)
        ended, infos = self.count_ended_episodes(), self.describe_ended_episodes()
        shown = {
            "env": self.venv,
            "n_rollout_steps": model.n_steps,
            "n_steps": model.n_steps,
            "rollout_buffer": None,
        }
        going = callbacks.step({**shown, "dones": ended, "infos": infos})
        keep_episodes(model, infos, ended > 0)
        callbacks.rollout_end()
        return EngineUpdate(metrics, going)

    def stop(self) -> None:
        """Do nothing: nothing runs between updates."""

    def count_ended_episodes(self) -> NDArray[np.int64]:
        """(env,) how many episodes ended in the rollout."""
        return np.asarray(self.state.episodes.ended[0]).astype(np.int64)

    def describe_ended_episodes(self) -> Infos:
        """One info per environment, with mean return and length of the episodes that ended."""
        episodes = self.state.episodes
        ended, earned, length = (
            np.asarray(of_lanes[0])
            for of_lanes in (episodes.ended, episodes.ended_earned, episodes.ended_length)
        )
        infos: Infos = [{} for _ in range(self.n_envs)]
        for k in np.flatnonzero(ended):
            infos[k] = {
                "episode": {
                    "r": float(earned[k] / ended[k]),
                    "l": float(length[k] / ended[k]),
                    "t": 0.0,
                }
            }
        return infos


def add_lane_axis(rates: Rates) -> Rates:
    """The rates of one lane with a first axis for the lane."""
    return map_leaves(lambda leaf: np.asarray(leaf)[None], rates)
