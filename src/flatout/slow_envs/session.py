"""Environments, policy and learner at work together, until they are stopped.

One event loop holds the environments and answers them with the newest weights that have arrived;
the learner is behind a link. Between two calls of `next_update` all of them go on.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from flatout.errors import RunError, SettingsError
from flatout.learners.environment import Box
from flatout.slow_envs.batcher import Batcher, Floats, SampledActions
from flatout.slow_envs.learner_state import Assignment, LearnerState, Vector
from flatout.slow_envs.learning import Update
from flatout.slow_envs.link import InlineLink, LearnerLink, ProcessLink
from flatout.slow_envs.model import PolicyModel, Weights, flatten_weights, unflatten_weights
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.pool import FinishedEpisode, Pool
from flatout.slow_envs.tape import Format, Segment

__all__ = ["Session", "SessionCounts"]


class SessionCounts(NamedTuple):
    """What a session has counted since `start`; the difference of two tells what came between.

    >>> before = SessionCounts(640, 3, 2, 10, 4.0, 1.0, lags=Counter(), envs_at_work=1)
    >>> after = before._replace(steps=900)
    >>> after.steps - before.steps
    260
    """

    steps: int
    resets: int
    episodes: int
    updates: int
    learning_s: float  # that the learner has worked
    idle_s: float  # that it had nothing to learn from
    lags: Counter[int]  # rows that taught, by how many updates older their policy was
    envs_at_work: int  # environments that have made a step


class Session:
    """A run: `start`, `next_update` as often as wanted, `stop`; all in one event loop.

    >>> import gymnasium
    >>> from flatout.learners.environment import Discrete
    >>> from flatout.slow_envs.clock import run_virtually
    >>> from flatout.slow_envs.model import PerceptronModel
    >>> async def main() -> int:
    ...     model, rule = PerceptronModel(4, Discrete(2)), Rule(batch_segments=8, epochs=1)
    ...     envs = [lambda: gymnasium.make("CartPole-v1")] * 4
    ...     session = Session(envs, model, rule, Overlap(learner="inline", plain="inline"))
    ...     await session.start()
    ...     update = await session.next_update()
    ...     await session.stop()
    ...     return update.version
    >>> run_virtually(main())
    1
    """

    def __init__(
        self,
        envs: Sequence[object],
        model: PolicyModel,
        rule: Rule,
        overlap: Overlap | None = None,
        state: LearnerState | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.rule, self.overlap, self.seed = model, rule, overlap or Overlap(), seed
        self.weights = model.new_weights(seed)
        self.start_from = state or new_state(self.weights)
        self.version = self.start_from.version
        self.weights = unflatten_weights(self.start_from.vector, self.weights)
        self.form = Format(self.overlap.segment, model.observation_size, model.actions)
        self.rng = np.random.default_rng([seed, 0xAC7])
        self.batcher = Batcher(self.act, model.observation_size, self.overlap.batching)
        self.pool = Pool(
            envs,
            self.form,
            ask=self.batcher.ask,
            ship=self.send_segment,
            care=self.overlap.care,
            seed=seed,
            plain=self.overlap.plain,
        )
        self.link: LearnerLink | None = None
        self.updates: deque[Update] = deque()
        self.lags: Counter[int] = Counter()
        self.totals: Counter[str] = Counter()
        self.learning_s = self.idle_s = 0.0
        self.error: RunError | None = None

    async def start(self) -> None:
        """Start the learner and the environments; both go on until `stop`."""
        self.check_spaces()
        # Small products on several threads are slower than on one, and much slower where other
        # processes want a core.
        self.limits = threadpool_limits(1)
        self.changed = asyncio.Event()
        assignment = Assignment(
            model=self.model,
            rule=self.rule,
            overlap=self.overlap,
            form=self.form,
            state=self.start_from,
            seed=self.seed,
        )
        if self.overlap.learner == "inline":
            self.link = InlineLink(assignment, self.on_update, self.on_failure)
        else:
            self.link = ProcessLink(assignment, self.on_update, self.on_failure)
        self.running = asyncio.create_task(self.pool.run())
        self.running.add_done_callback(lambda _: self.changed.set())

    async def next_update(self) -> Update:
        """The next update; raises what ended the run."""
        while not self.updates:
            if self.error is not None:
                raise self.error
            if self.running.done():
                self.running.result()
                raise RunError("the environments ended by themselves")
            self.changed.clear()
            await self.changed.wait()
        return self.updates.popleft()

    async def stop(self) -> LearnerState | None:
        """End everything; returns what was learned, or None if the learner is gone."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.batcher.close()
        await self.pool.close()
        assert self.link is not None
        state = None if self.error is not None else await self.link.state()
        await self.link.close()
        self.limits.restore_original_limits()
        return state

    async def state(self) -> LearnerState:
        """What was learned so far: to be kept in a checkpoint."""
        assert self.link is not None
        return await self.link.state()

    def change_rule(self, rule: Rule) -> None:
        """Learn by this rule from now on; the size of batches is fixed."""
        if rule.batch_segments != self.rule.batch_segments:
            raise SettingsError("the number of segments in a batch is fixed when a session begins")
        if rule != self.rule and self.link is not None:
            self.rule = rule
            self.link.change_rule(rule)

    # --- what the parts call

    def act(self, observations: Floats) -> SampledActions:
        """Draw an action of the newest policy for each of these observations."""
        policy = self.model.policy(self.weights, observations, np)
        raw = policy.sample(self.draw_noise(len(observations)), np)
        return SampledActions(raw, policy.log_prob(raw, np), self.version)

    def draw_noise(self, count: int) -> NDArray[np.float32]:
        """(observation, action): normal, or uniform for choices."""
        actions = self.model.actions
        draw = self.rng.standard_normal if isinstance(actions, Box) else self.rng.random
        return draw((count, actions.size), np.float32)

    async def send_segment(self, segment: Segment) -> None:
        """Send a full segment to the learner."""
        assert self.link is not None
        self.totals["segments"] += 1
        await self.link.put(segment)

    def on_update(self, update: Update, vector: Vector, idle: float) -> None:
        """An update is done: act by its weights from now on."""
        self.weights, self.version = unflatten_weights(vector, self.weights), update.version
        self.lags += update.lags
        self.totals["updates"] += 1
        self.totals["again"] += update.again
        self.totals["too_old"] += update.too_old
        self.learning_s += update.seconds
        self.idle_s += idle
        self.updates.append(update)
        self.changed.set()

    def on_failure(self, error: RunError) -> None:
        """The learner is gone: `next_update` raises this error."""
        self.error = error
        self.changed.set()

    # --- checks and figures

    def check_spaces(self) -> None:
        """Refuse environments whose spaces differ from those of the first."""
        for slot in self.pool.slots:
            for name in ("observation_space", "action_space"):
                given, first = getattr(slot.env, name), getattr(self.pool, name)
                if given != first:
                    raise SettingsError(
                        f"environment {slot.index} has the {name.replace('_', ' ')} {given}, the "
                        f"first one {first}: all must be equal"
                    )

    @property
    def n_envs(self) -> int:
        """How many environments there are, those that were left out included."""
        return len(self.pool.slots)

    @property
    def steps(self) -> int:
        """Steps that the environments have made since `start`."""
        return self.pool.events["steps"]

    @property
    def episodes(self) -> list[FinishedEpisode]:
        """The last episodes that have ended, the newest last; at most 10,000 are kept."""
        return list(self.pool.episodes)

    def counts(self) -> SessionCounts:
        """What was counted so far, as a copy that stays as it is."""
        events = self.pool.events
        return SessionCounts(
            steps=events["steps"],
            resets=events["resets"],
            episodes=events["episodes"],
            updates=self.totals["updates"],
            learning_s=self.learning_s,
            idle_s=self.idle_s,
            lags=self.lags.copy(),
            envs_at_work=sum(slot.steps > 0 for slot in self.pool.slots),
        )

    def figures(self) -> dict[str, float]:
        """What happened so far: counts, ages, waits."""
        waits, times = (
            np.array(self.batcher.waits or [0.0]),
            np.array(self.pool.step_times or [0.0]),
        )
        ages = np.array(sorted(self.lags.elements()) or [0])
        sizes = np.array(sorted(self.batcher.sizes.elements()) or [0])
        busy = self.learning_s + self.idle_s
        return {
            **{name: self.pool.events[name] for name in EVENTS},
            **{name: self.totals[name] for name in ("segments", "updates", "again", "too_old")},
            "lag_mean": float(ages.mean()),
            "lag_p95": float(np.percentile(ages, 95)),
            "lag_max": int(ages.max()),
            "learner_idle": self.idle_s / busy if busy else 0.0,
            "batch_mean": float(sizes.mean()),
            "queue_p50_s": float(np.percentile(waits, 50)),
            "queue_p99_s": float(np.percentile(waits, 99)),
            "step_mean_s": float(times.mean()),
            "step_p99_s": float(np.percentile(times, 99)),
            "waiting": self.pool.waiting,
        }


EVENTS = ("steps", "episodes", "resets", "timeouts", "crashes", "restarts", "quarantined")


def new_state(weights: Weights) -> LearnerState:
    """The state of a learner that has learned nothing yet."""
    vector = flatten_weights(weights)
    return LearnerState(
        vector=vector, first=np.zeros_like(vector), second=np.zeros_like(vector), steps=0, version=0
    )
