"""Environments, policy and learner at work together, until they are told to stop.

One event loop holds the environments and answers them with the newest weights that have arrived;
the learner sits behind a link. Between two calls of `next_update` all of them go on.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from flatout.errors import RunError, SettingsError
from flatout.learners.environment import Box
from flatout.slow_envs.batcher import Batcher, Decisions, Floats
from flatout.slow_envs.knowledge import Assignment, Knowledge, Vector
from flatout.slow_envs.learning import Update
from flatout.slow_envs.link import InlineLink, Link, ProcessLink
from flatout.slow_envs.model import Model, flat, unflat
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.pool import Pool
from flatout.slow_envs.tape import Format


class Session:
    """A run: `start`, `next_update` as often as wanted, `stop`; all in one event loop."""

    def __init__(
        self,
        envs: Sequence[Any],
        model: Model,
        rule: Rule,
        overlap: Overlap | None = None,
        knowledge: Knowledge | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.rule, self.overlap, self.seed = model, rule, overlap or Overlap(), seed
        self.weights = model.new_weights(seed)
        self.start_from = knowledge or beginning(self.weights)
        self.version = self.start_from.version
        self.weights = unflat(self.start_from.vector, self.weights)
        self.form = Format(self.overlap.segment, model.observation_size, model.actions)
        self.rng = np.random.default_rng([seed, 0xAC7])
        self.batcher = Batcher(self.act, model.observation_size, self.overlap.batching)
        self.pool = Pool(
            envs,
            self.form,
            self.batcher.ask,
            self.ship,
            self.overlap.care,
            seed,
            self.overlap.plain,
        )
        self.link: Link | None = None
        self.updates: deque[Update] = deque()
        self.lags: Counter[int] = Counter()
        self.totals: Counter[str] = Counter()
        self.learning_s = self.idle_s = 0.0
        self.error: RunError | None = None

    async def start(self) -> None:
        """Hire the learner and let the environments live."""
        self.check_spaces()
        # Small products on several threads are slower than on one, and much slower where other
        # processes want a core.
        self.limits = threadpool_limits(1)
        self.news = asyncio.Event()
        assignment = Assignment(
            self.model, self.rule, self.overlap, self.form, self.start_from, self.seed
        )
        if self.overlap.learner == "inline":
            self.link = InlineLink(assignment, self.heard, self.failed)
        else:
            self.link = ProcessLink(assignment, self.heard, self.failed)
        self.life = asyncio.create_task(self.pool.run())
        self.life.add_done_callback(lambda _: self.news.set())

    async def next_update(self) -> Update:
        """The next update; raises what ended the run."""
        while not self.updates:
            if self.error is not None:
                raise self.error
            if self.life.done():
                self.life.result()
                raise RunError("the environments ended by themselves")
            self.news.clear()
            await self.news.wait()
        return self.updates.popleft()

    async def stop(self) -> Knowledge | None:
        """End everything; what was learned, unless the learner is gone."""
        self.life.cancel()
        await asyncio.gather(self.life, return_exceptions=True)
        self.batcher.close()
        await self.pool.close()
        assert self.link is not None
        known = None if self.error is not None else await self.link.knowledge()
        await self.link.close()
        self.limits.restore_original_limits()
        return known

    async def knowledge(self) -> Knowledge:
        """What was learned so far."""
        assert self.link is not None
        return await self.link.knowledge()

    def change(self, rule: Rule) -> None:
        """Learn by this rule from now on; the size of batches is fixed."""
        if rule.batch_segments != self.rule.batch_segments:
            raise SettingsError("the number of segments in a batch is fixed when a session begins")
        if rule != self.rule and self.link is not None:
            self.rule = rule
            self.link.change(rule)

    # --- what the parts call
    # -----------------------------------------------------------------------------

    def act(self, observations: Floats) -> Decisions:
        """What the newest policy does about these."""
        policy = self.model.policy(self.weights, observations, np)
        raw = policy.sample(self.noise(len(observations)), np)
        return Decisions(raw, policy.log_prob(raw, np), self.version)

    def noise(self, count: int) -> NDArray[np.float32]:
        """(observation, action): normal, or uniform for choices."""
        actions = self.model.actions
        draw = self.rng.standard_normal if isinstance(actions, Box) else self.rng.random
        return draw((count, actions.size), np.float32)

    async def ship(self, segment: Any) -> None:
        """Send a full segment to the learner."""
        assert self.link is not None
        self.totals["segments"] += 1
        await self.link.put(segment)

    def heard(self, update: Update, vector: Vector, idle: float) -> None:
        """An update is done: act by its weights from now on."""
        self.weights, self.version = unflat(vector, self.weights), update.version
        self.lags += update.lags
        self.totals["updates"] += 1
        self.totals["again"] += update.again
        self.totals["too_old"] += update.too_old
        self.learning_s += update.seconds
        self.idle_s += idle
        self.updates.append(update)
        self.news.set()

    def failed(self, error: RunError) -> None:
        """The learner is gone."""
        self.error = error
        self.news.set()

    # --- checks and figures
    # ------------------------------------------------------------------------------

    def check_spaces(self) -> None:
        """All environments must speak of the same things."""
        for slot in self.pool.slots:
            for name in ("observation_space", "action_space"):
                given, first = getattr(slot.env, name), getattr(self.pool, name)
                if given != first:
                    raise SettingsError(
                        f"environment {slot.index} has the {name.replace('_', ' ')} {given}, the "
                        f"first one {first}: "
                        "all must be equal"
                    )

    def figures(self) -> dict[str, Any]:
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


def beginning(weights: Any) -> Knowledge:
    """Nothing learned yet."""
    vector = flat(weights)
    return Knowledge(vector, np.zeros_like(vector), np.zeros_like(vector), 0, 0)
