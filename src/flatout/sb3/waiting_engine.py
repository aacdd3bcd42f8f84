"""PPO over environments that wait: their waits overlap, and a process of its own learns meanwhile.

Given `Overlap(serial=True)` the same environments are stepped together instead, and learned from as
any others are: by `host_engine.py`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeGuard

import numpy as np

from flatout.errors import SettingsError
from flatout.learners.environment import actions_of
from flatout.policies.network import Network
from flatout.sb3 import flat_spaces
from flatout.sb3.arguments import evaluate_schedules, hyperparameters_of_model
from flatout.sb3.callbacks import Callbacks
from flatout.sb3.engine import EngineSource, EngineUpdate
from flatout.sb3.environments import AnySpace, Infos, UnreachableEnvs
from flatout.sb3.logger import OVERLAP_METRICS
from flatout.sb3.model import LearningModel, keep_episodes, update_progress
from flatout.sb3.trained_state import TrainedState
from flatout.sb3.vector_adapter import VectorEnvAdapter
from flatout.slow_envs.async_env import AsyncEnv, waits
from flatout.slow_envs.clock import VirtualLoop
from flatout.slow_envs.gymnasium_types import Maker
from flatout.slow_envs.learner_state import LearnerState
from flatout.slow_envs.model import PerceptronModel, flatten_weights, unflatten_weights
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.plain import adapt_env
from flatout.slow_envs.session import Session
from flatout.slow_envs.vector_env import AsyncioVectorEnv

WHY_UNREACHABLE = (
    "these environments live in an event loop and cannot be stepped from outside: make one more, "
    "and use `predict` on what it shows"
)


class WaitingEnvs(NamedTuple):
    """Environments that wait, or functions that make them, and how waiting and learning overlap."""

    envs: tuple[object, ...]
    overlap: Overlap
    observation_space: AnySpace
    action_space: AnySpace


def are_waiting(env: object) -> TypeGuard[Sequence[object]]:
    """Whether it is a list of environments that wait, or of functions that make environments."""
    if not isinstance(env, Sequence) or isinstance(env, str) or not env:
        return False
    return all(waits(one) or callable(one) for one in env)


def step_together(envs: Sequence[object], overlap: Overlap) -> VectorEnvAdapter:
    """The environments as one VecEnv, each of whose steps waits for the slowest."""
    return VectorEnvAdapter(
        AsyncioVectorEnv(
            map(as_maker, envs),
            kind=overlap.plain,
            step_deadline_s=overlap.care.step_deadline_s,
            reset_deadline_s=overlap.care.reset_deadline_s,
        )
    )


def as_maker(given: object) -> Maker:
    """A function that makes the environment: the one that was given, or one that returns the
    environment that was given.
    """
    if waits(given):
        return lambda: given
    assert callable(given)  # by `are_waiting`
    return given


def waiting_source(envs: Sequence[object], overlap: Overlap) -> EngineSource:
    """Environments that wait, for this engine. Of functions that make environments the first is
    called once: for the spaces, and to measure how such environments are best stepped.
    """
    given = envs[0]
    if waits(given):
        first: AsyncEnv = given
    else:
        first = adapt_env(as_maker(given), overlap.plain)
        asyncio.run(first.close())
        choice = getattr(first, "choice", None)
        overlap = overlap if choice is None else replace(overlap, plain=choice.kind)
    source = WaitingEnvs(tuple(envs), overlap, first.observation_space, first.action_space)
    return EngineSource(
        observation_space=source.observation_space,
        action_space=source.action_space,
        n_envs=len(source.envs),
        equal_minibatches=False,
        build_engine=partial(WaitingEngine, source),
    )


class WaitingEngine:
    """Environments that live on their own and the learner behind them, driven one update at a
    time; it is a `LearningEngine`.
    """

    fused = False
    market = None
    device = "cpu"

    def __init__(self, source: WaitingEnvs, model: LearningModel, state: TrainedState) -> None:
        self.source, self.n_envs, self.overlap = source, len(source.envs), source.overlap
        self.observation_space, self.action_space = source.observation_space, source.action_space
        flat_spaces.check_spaces(self.observation_space, self.action_space)
        policy = model.architecture
        self.model = PerceptronModel(
            observation_size=flat_spaces.observation_size(self.observation_space),
            actions=actions_of(self.action_space),
            hidden=policy.hidden,
            activation=policy.activation,
            log_std=policy.log_std,
        )
        if model.asked_device not in ("auto", "cpu"):
            raise SettingsError(
                f"device is {model.asked_device!r}; environments that wait are learned from on "
                f"the CPU: leave it 'auto'"
            )
        self.session: Session | None = None
        self.runner: asyncio.Runner | None = None
        self.restore(state)
        self.venv = UnreachableEnvs(
            self.observation_space, self.action_space, self.n_envs, WHY_UNREACHABLE
        )

    # --- what was learned

    def restore(self, state: TrainedState) -> None:
        """Go on from this state, in fresh environments."""
        self.stop()
        self.network, self.seed = state.network, state.seed
        self.known = LearnerState(
            vector=flatten_weights(state.network),
            first=state.first,
            second=state.second,
            steps=state.descents,
            version=state.updates,
        )

    @property
    def learner_state(self) -> TrainedState:
        """What it has learned so far; while a session runs, its learner is asked."""
        if self.session is not None and self.runner is not None:
            self.keep(self.runner.run(self.session.state()))
        return TrainedState(
            network=self.network,
            first=self.known.first,
            second=self.known.second,
            descents=self.known.steps,
            updates=self.known.version,
            seed=self.seed,
        )

    def keep(self, knowledge: LearnerState) -> None:
        """Take over what the learner's process knows now."""
        self.known, self.network = knowledge, unflatten_weights(knowledge.vector, self.network)

    def set_seed(self, seed: int) -> None:
        """Draw other noise and other episodes when the environments next begin."""
        self.seed = seed

    # --- a training

    def begin_training(self, reset: bool) -> None:
        """Do nothing yet: the environments begin with the first update."""

    def start_session(self, model: LearningModel) -> tuple[asyncio.Runner, Session]:
        """The event loop and the session of environments in it, begun if they do not run."""
        if self.session is None or self.runner is None:
            simulated = self.overlap.learner == "inline"
            self.runner = asyncio.Runner(loop_factory=VirtualLoop if simulated else None)
            session = Session(
                envs=self.source.envs,
                model=self.model,
                rule=self.rule_of(model),
                overlap=self.overlap,
                state=self.known,
                seed=self.seed,
            )
            self.steps = self.episodes = 0
            self.runner.run(session.start())
            self.session = session
        return self.runner, self.session

    def rule_of(self, model: LearningModel) -> Rule:
        """How to learn, from the model's attributes as they are now."""
        numbers = hyperparameters_of_model(model, evaluate_schedules(model))
        return Rule(
            batch_segments=max(1, round(model.n_steps * self.n_envs / self.overlap.segment)),
            minibatch=model.batch_size,
            **vars(numbers),
        )

    def run_update(self, model: LearningModel, callbacks: Callbacks) -> EngineUpdate:
        """Wait for the next update; the environments never wait for it."""
        callbacks.rollout_start()
        runner, session = self.start_session(model)
        session.change_rule(self.rule_of(model))
        while not (update := runner.run(session.next_update())).figures:
            pass  # all of a batch was too old: nothing was learned from it
        self.network = session.weights
        model.num_timesteps += session.pool.events["steps"] - self.steps
        self.steps = session.pool.events["steps"]
        update_progress(model)
        infos = self.new_episode_infos(session)
        shown = {
            "env": self.venv,
            "n_rollout_steps": model.n_steps,
            "n_steps": model.n_steps,
            "rollout_buffer": None,
        }
        going = callbacks.step({**shown, "dones": [True] * len(infos), "infos": infos})
        keep_episodes(model, infos, [True] * len(infos))
        callbacks.rollout_end()
        spent = session.figures()
        metrics = {
            **update.figures,
            **{name: float(spent[name]) for name in OVERLAP_METRICS},
            **mean_deviation(self.network),
            "learning_rate": self.rule_of(model).learning_rate,
        }
        return EngineUpdate(metrics, going)

    def new_episode_infos(self, session: Session) -> Infos:
        """The infos of episodes that ended since the last call."""
        new = session.pool.events["episodes"] - self.episodes
        self.episodes += new
        recent = list(session.pool.episodes)[-new:] if new else []
        return [
            {**one.info, "episode": {"r": one.earned, "l": one.length, "t": 0.0}} for one in recent
        ]

    def stop(self) -> None:
        """End the environments' lives and the learner's process; keep what was learned."""
        if self.session is not None and self.runner is not None:
            try:
                self.keep(self.runner.run(self.session.stop()) or self.known)
            finally:
                self.runner.close()
                self.session = self.runner = None


def mean_deviation(network: Network) -> dict[str, float]:
    """The metric `std`: the mean standard deviation of a Gaussian policy; nothing of choices."""
    deviations = network.log_std
    return {"std": float(np.exp(deviations).mean())} if deviations.size else {}
