"""PPO over environments that wait: their waits overlap, and a process of its own learns meanwhile.

Given `Overlap(serial=True)` the same environments are stepped together instead, and learned from as
any others are.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from flatout.errors import SettingsError
from flatout.learners.environment import actions_of
from flatout.sb3 import flat_spaces
from flatout.sb3.arguments import scheduled_now
from flatout.sb3.callbacks import Calls
from flatout.sb3.environments import ClosedFace, VectorFace
from flatout.sb3.knowledge import Knowledge
from flatout.slow_envs.async_env import waits
from flatout.slow_envs.clock import VirtualLoop
from flatout.slow_envs.learner_state import LearnerState
from flatout.slow_envs.model import PerceptronModel, flatten_weights, unflatten_weights
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.plain import adapt_env
from flatout.slow_envs.session import Session
from flatout.slow_envs.vector_env import AsyncioVectorEnv

WHY_CLOSED = (
    "these environments live in an event loop and cannot be stepped from outside: make one more, "
    "and use `predict` on "
    "what it shows"
)


class WaitingEnvs(NamedTuple):
    """Environments that wait, or functions that make them, and how waiting and learning overlap."""

    envs: tuple[Any, ...]
    overlap: Overlap
    observation_space: Any
    action_space: Any

    @property
    def num_envs(self) -> int:
        return len(self.envs)


def waiting_envs(env: Any, overlap: Overlap | None) -> Any:
    """What a list of environments that wait becomes; None if it is something else."""
    if not isinstance(env, Sequence) or isinstance(env, str) or not env:
        return None
    if not all(waits(one) or callable(one) for one in env):
        return None
    overlap = overlap or Overlap()
    if overlap.serial:
        makers = [(lambda one=one: one) if waits(one) else one for one in env]
        care = overlap.care
        return VectorFace(
            AsyncioVectorEnv(
                makers,
                kind=overlap.plain,
                step_deadline_s=care.step_deadline_s,
                reset_deadline_s=care.reset_deadline_s,
            )
        )
    if waits(env[0]):
        return WaitingEnvs(tuple(env), overlap, env[0].observation_space, env[0].action_space)
    first: Any = adapt_env(env[0], overlap.plain)
    asyncio.run(first.close())
    choice = getattr(first, "choice", None)
    overlap = overlap if choice is None else replace(overlap, plain=choice.kind)
    return WaitingEnvs(tuple(env), overlap, first.observation_space, first.action_space)


class AsyncEngine:
    """Environments that live on their own and the learner behind them, driven one update at a
    time.
    """

    fused = False

    def __init__(self, source: WaitingEnvs, model: Any, known: Knowledge) -> None:
        self.source, self.n_envs, self.overlap = source, source.num_envs, source.overlap
        self.observation_space, self.action_space = source.observation_space, source.action_space
        flat_spaces.check_spaces(self.observation_space, self.action_space)
        policy = model.architecture
        self.model = PerceptronModel(
            flat_spaces.observation_size(self.observation_space), actions_of(self.action_space),
            policy.hidden,
            policy.activation, policy.log_std,
        )  # fmt: skip
        if model.asked_device not in ("auto", "cpu"):
            raise SettingsError(
                f"device is {model.asked_device!r}; environments that wait are learned from on "
                f"the CPU: leave it 'auto'"
            )
        self.device = "cpu"
        self.session: Session | None = None
        self.runner: asyncio.Runner | None = None
        self.know(known)
        self.venv = ClosedFace(self.observation_space, self.action_space, self.n_envs, WHY_CLOSED)

    # --- what was learned
    # --------------------------------------------------------------------------------

    def know(self, known: Knowledge) -> None:
        """Go on from there, in fresh environments."""
        self.end()
        self.network, self.seed = known.network, known.seed
        self.learned = LearnerState(
            flatten_weights(known.network), known.first, known.second, known.descents, known.updates
        )

    @property
    def known(self) -> Knowledge:
        """What it has learned so far."""
        if self.session is not None and self.runner is not None:
            self.keep(self.runner.run(self.session.state()))
        learned = self.learned
        return Knowledge(
            self.network, learned.first, learned.second, learned.steps, learned.version, self.seed
        )

    def keep(self, learned: LearnerState) -> None:
        """This is what is known now."""
        self.learned, self.network = learned, unflatten_weights(learned.vector, self.network)

    def reseed(self, seed: int) -> None:
        """Other noise and other episodes from the next beginning on."""
        self.seed = seed

    # --- a training
    # --------------------------------------------------------------------------------------

    def begin(self, anew: bool) -> None:
        """Nothing yet: the environments begin with the first update."""

    def start(self, model: Any) -> tuple[asyncio.Runner, Session]:
        """Let the environments live, if they do not."""
        if self.session is None or self.runner is None:
            simulated = self.overlap.learner == "inline"
            self.runner = asyncio.Runner(loop_factory=VirtualLoop if simulated else None)
            session = Session(
                self.source.envs,
                self.model,
                self.rule(model),
                self.overlap,
                self.learned,
                self.seed,
            )
            self.steps = self.episodes = 0
            self.runner.run(session.start())
            self.session = session
        return self.runner, self.session

    def rule(self, model: Any) -> Rule:
        """How the model says to learn, now."""
        now = scheduled_now(model)
        return Rule(
            batch_segments=max(1, round(model.n_steps * self.n_envs / self.overlap.segment)),
            minibatch=model.batch_size,
            epochs=model.n_epochs,
            learning_rate=now.learning_rate,
            gamma=model.gamma,
            gae_lambda=model.gae_lambda,
            clip=now.clip,
            value_clip=now.value_clip,
            entropy=model.ent_coef,
            value=model.vf_coef,
            max_grad_norm=model.max_grad_norm,
            target_kl=model.target_kl,
            normalise_advantage=bool(model.normalize_advantage),
        )

    def update(self, model: Any, calls: Calls) -> tuple[dict[str, float] | None, bool]:
        """Wait for the next update; the environments never wait for it."""
        calls.rollout_start()
        runner, session = self.start(model)
        session.change_rule(self.rule(model))
        while not (update := runner.run(session.next_update())).figures:
            pass  # all of a batch was too old: there is nothing to tell
        self.network = session.weights
        model.num_timesteps += session.pool.events["steps"] - self.steps
        self.steps = session.pool.events["steps"]
        model.note_progress()
        infos = self.ended(session)
        shown = {
            "env": self.venv,
            "n_rollout_steps": model.n_steps,
            "n_steps": model.n_steps,
            "rollout_buffer": None,
        }
        going = calls.step({**shown, "dones": [True] * len(infos), "infos": infos})
        model.note_episodes(infos, [True] * len(infos))
        calls.rollout_end()
        spent = session.figures()
        told = {
            name: float(spent[name]) for name in ("lag_mean", "lag_max", "learner_idle", "too_old")
        }
        return {
            **update.figures,
            **told,
            **self.spread(),
            "learning_rate": self.rule(model).learning_rate,
        }, going

    def spread(self) -> dict[str, float]:
        """The mean deviation of a Gaussian policy."""
        deviations = self.network.log_std
        return {"std": float(np.exp(deviations).mean())} if deviations.size else {}

    def ended(self, session: Session) -> list[dict[str, Any]]:
        """The infos of episodes that ended since it was last asked."""
        new = session.pool.events["episodes"] - self.episodes
        self.episodes += new
        recent = list(session.pool.episodes)[-new:] if new else []
        return [
            {**one.info, "episode": {"r": one.earned, "l": one.length, "t": 0.0}} for one in recent
        ]

    def end(self) -> None:
        """End the environments' lives and the learner's process; keep what was learned."""
        if self.session is not None and self.runner is not None:
            try:
                self.keep(self.runner.run(self.session.stop()) or self.learned)
            finally:
                self.runner.close()
                self.session = self.runner = None
