"""Train a link scorer: many crawls wait at once, a process of its own learns meanwhile, and a kill
loses little.

The run directory holds `checkpoint.safetensors` (all that was learned), `policy.safetensors` (what
acts), `metrics.jsonl` and TensorBoard files. Started again on the same directory, training goes on
from the checkpoint.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import Field

from flatout.errors import RunError, SettingsError
from flatout.foreign import parse_json, read_json_if_there, read_tensors, shorten_repr
from flatout.runs import hold_folder, write_bytes, write_json
from flatout.sb3.logger import Logger
from flatout.slow_envs.batcher import Batching
from flatout.slow_envs.learner_state import LearnerState
from flatout.slow_envs.learning import Update
from flatout.slow_envs.model import unflatten_weights
from flatout.slow_envs.overlap import Overlap, Rule
from flatout.slow_envs.pool import FinishedEpisode
from flatout.slow_envs.session import Session
from flatout_crawl.choosers.environment import FocusedCrawl
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.scorer import LinkScorer
from flatout_crawl.choosers.session import CrawlTask

VECTORS = ("weights", "first", "second")  # of a checkpoint
ELSEWHERE = "begin in another folder"
Digits = Annotated[str, Field(pattern=r"^[0-9]{1,15}$")]
CHECKPOINT, POLICY, METRICS, SETTINGS = (
    "checkpoint.safetensors",
    "policy.safetensors",
    "metrics.jsonl",
    "training.json",
)
RECENT = 100  # episodes that means are taken over


@dataclass(frozen=True)
class CrawlTraining:
    """The settings of a training of crawls."""

    steps: int = 200_000
    envs: int = 32  # crawls at a time
    budget: tuple[int, int] = (
        60,
        1200,
    )  # requests of a crawl: drawn between, small ones more often
    stop_action: bool = False  # a policy that may stop learns to stop before it learns to find
    candidates: int = 64
    width: int = 64
    batch: int = 2048  # steps of an update
    minibatch: int = 256
    epochs: int = 4
    learning_rate: float = 1e-3  # falls to a tenth
    gamma: float = 0.97
    gae_lambda: float = 0.95
    entropy: float = 0.01
    request_cost: float = 0.03
    error_cost: float = 0.03
    seed: int = 0
    checkpoint_steps: int = 10_000
    overlap: Overlap = field(
        default_factory=lambda: Overlap(batching=Batching(least=8, patience_s=0.002))
    )

    def __post_init__(self) -> None:
        if min(self.steps, self.envs, self.batch, self.checkpoint_steps) < 1:
            raise SettingsError(
                f"steps={self.steps}, envs={self.envs}, batch={self.batch}, "
                f"checkpoint_steps={self.checkpoint_steps}: give 1 or more"
            )

    def rule(self, progress: float = 0.0) -> Rule:
        """The update, when this share of the steps is done."""
        return Rule(
            batch_segments=max(1, round(self.batch / self.overlap.segment)),
            minibatch=self.minibatch,
            epochs=self.epochs,
            learning_rate=self.learning_rate * (1 - 0.9 * min(progress, 1.0)),
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            entropy=self.entropy,
        )


@dataclass(frozen=True)
class CheckpointCounts:
    """How far a checkpoint is, as its file says it: in digits."""

    steps: Digits
    descents: Digits
    version: Digits


class CrawlTrainingProgress(NamedTuple):
    """How far a training is, after an update."""

    steps: int
    total: int
    steps_per_s: float  # since this start
    mean_return: float  # of the last episodes
    recall: float  # of those
    requests: float  # of those
    lag: float  # mean age of what taught, in updates
    learner_idle: float  # share of the learner's time without anything new


def train(
    tasks: Sequence[CrawlTask],
    settings: CrawlTraining,
    folder: Path,
    on_progress: Callable[[CrawlTrainingProgress], None] = lambda _: None,
) -> CrawlPolicy:
    """Train until the steps are done, going on where the folder's checkpoint ends."""
    with hold_folder(folder):
        return asyncio.run(CrawlTrainer(tasks, settings, folder, on_progress).run())


class CrawlTrainer:
    """One start of a training."""

    def __init__(
        self,
        tasks: Sequence[CrawlTask],
        settings: CrawlTraining,
        folder: Path,
        on_progress: Callable[[CrawlTrainingProgress], None],
    ) -> None:
        self.settings, self.folder, self.on_progress = settings, folder, on_progress
        self.model = LinkScorer(candidates=settings.candidates, width=settings.width)
        check_same(folder, settings)
        self.before, self.steps_before = read_checkpoint(folder / CHECKPOINT)
        if self.before is not None and self.before.vector.size != self.model.weights_count:
            raise RunError(
                f"{folder / CHECKPOINT} is damaged: it has {self.before.vector.size} weights, and "
                f"the network {self.model.weights_count}; {ELSEWHERE}"
            )
        self.started = self.before.version if self.before else 0
        envs = [
            FocusedCrawl(
                tasks,
                candidates=settings.candidates,
                budget=settings.budget,
                stop_action=settings.stop_action,
                request_cost=settings.request_cost,
                error_cost=settings.error_cost,
            )
            for _ in range(settings.envs)
        ]
        # Another seed after each start: the crawls that were under way begin anew, and not as the
        # first ones did.
        self.session = Session(
            envs=envs,
            model=self.model,
            rule=settings.rule(self.steps_before / settings.steps),
            overlap=settings.overlap,
            state=self.before,
            seed=int(np.random.SeedSequence([settings.seed, self.started]).generate_state(1)[0]),
        )

    @property
    def steps(self) -> int:
        """Steps done, earlier starts included."""
        return self.steps_before + self.session.steps

    async def run(self) -> CrawlPolicy:
        """Updates until the steps are done; what was learned is kept whatever ends it."""
        self.begun, saved = time.monotonic(), self.steps
        if self.steps >= self.settings.steps and self.before is not None:
            return self.policy(self.before)
        await self.session.start()
        journal = Logger(self.folder / "tensorboard")
        try:
            while self.steps < self.settings.steps:
                update = await self.session.next_update()
                self.session.change_rule(self.settings.rule(self.steps / self.settings.steps))
                self.note(update, journal)
                if self.steps - saved >= self.settings.checkpoint_steps:
                    saved = self.steps
                    self.save(await self.session.state())
        finally:
            journal.close()
            state = await self.session.stop()
            if state is not None:
                self.save(state)
        assert state is not None
        return self.policy(state)

    def note(self, update: Update, journal: Logger) -> None:
        """Tell of an update, on the screen and in files."""
        progress, figures = self.progress(), self.session.figures()
        self.on_progress(progress)
        row = {
            **progress._asdict(),
            "version": update.version,
            **update.figures,
            **{
                name: figures[name]
                for name in ("episodes", "crashes", "timeouts", "too_old", "lag_p95", "lag_max")
            },
        }
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        journal.record("rollout/ep_rew_mean", progress.mean_return)
        journal.record("rollout/recall", progress.recall)
        journal.record("time/fps", progress.steps_per_s)
        for name in update.figures:
            journal.record(f"train/{name}", update.figures[name])
        journal.dump(self.steps)

    def progress(self) -> CrawlTrainingProgress:
        """How far the training is, by its last episodes."""
        recent = self.session.episodes[-RECENT:]
        figures = self.session.figures()

        def mean(value: Callable[[FinishedEpisode], float]) -> float:
            return float(np.mean([value(one) for one in recent])) if recent else 0.0

        return CrawlTrainingProgress(
            steps=self.steps,
            total=self.settings.steps,
            steps_per_s=(self.steps - self.steps_before) / max(time.monotonic() - self.begun, 1e-9),
            mean_return=mean(lambda one: one.earned),
            recall=mean(lambda one: one.info["recall"]),
            requests=mean(lambda one: one.info["requests"]),
            lag=figures["lag_mean"],
            learner_idle=figures["learner_idle"],
        )

    def save(self, state: LearnerState) -> None:
        """Write the checkpoint, and the policy that acts by what was learned so far."""
        tensors = dict(zip(VECTORS, (state.vector, state.first, state.second), strict=True))
        facts = {"steps": self.steps, "descents": state.steps, "version": state.version}
        write_bytes(
            self.folder / CHECKPOINT,
            safetensors.numpy.save(tensors, {name: str(k) for name, k in facts.items()}),
        )
        self.policy(state).save(self.folder / POLICY)

    def policy(self, state: LearnerState) -> CrawlPolicy:
        """The policy that acts by this state's weights."""
        weights = unflatten_weights(state.vector, self.model.new_weights(0))
        return CrawlPolicy(
            self.model,
            weights,
            {"steps": self.steps, "updates": state.version, **plain(self.settings)},
        )


def plain(settings: CrawlTraining) -> dict[str, Any]:
    """The settings as JSON has them."""
    return json.loads(json.dumps(asdict(settings)))


def check_same(folder: Path, settings: CrawlTraining) -> None:
    """A directory is trained on by the settings that it was begun with; only `steps` may grow."""
    given = plain(settings)
    begun = read_json_if_there(folder / SETTINGS, dict[str, Any], cure=ELSEWHERE)
    if begun is None:
        write_json(folder / SETTINGS, given)
        return
    other = [
        name
        for name in given
        if name not in ("steps", "checkpoint_steps") and begun.get(name) != given[name]
    ]
    if other:
        raise RunError(
            f"{folder} was begun with {other[0]}={shorten_repr(begun.get(other[0]))}, and "
            f"{given[other[0]]!r} is given now: give the same, or another folder"
        )


def read_checkpoint(path: Path) -> tuple[LearnerState | None, int]:
    """What an earlier start knew, and its steps; None and 0 if there was none."""
    if not path.exists():
        return None, 0
    arrays, notes = read_tensors(path, cure=ELSEWHERE)
    counts = parse_json(
        json.dumps(notes), CheckpointCounts, f"{path}: __metadata__", cure=ELSEWHERE
    )
    vectors = [check_vector(path, name, arrays.get(name)) for name in VECTORS]
    if len({vector.size for vector in vectors}) > 1:
        raise RunError(
            f"{path} is damaged: {', '.join(VECTORS)} are not of one length; {ELSEWHERE}"
        )
    weights, first, second = vectors
    return LearnerState(
        vector=weights,
        first=first,
        second=second,
        steps=int(counts.descents),
        version=int(counts.version),
    ), int(counts.steps)


def check_vector(path: Path, name: str, vector: NDArray[Any] | None) -> NDArray[np.float32]:
    """One of the vectors in a checkpoint."""
    if (
        vector is None
        or vector.dtype != np.float32
        or vector.ndim != 1
        or not np.isfinite(vector).all()
    ):
        raise RunError(
            f"{path} is damaged: {name} is not there, or is no vector of float32 numbers; "
            f"{ELSEWHERE}"
        )
    return vector
