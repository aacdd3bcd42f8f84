"""What trainings and studies report, lane by lane: `metrics.jsonl`, one row per lane and chunk; of
a training also `tensorboard/`.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict

from flatout.errors import RunError
from flatout.file_names import file_name
from flatout.foreign import check_file, parse_json, validate_shape
from flatout.learners.checkpoint import read_checkpoint
from flatout.learners.jobs import Chunk, Job
from flatout.learners.metrics import metric_names
from flatout.learners.rates import Program
from flatout.runs import write_bytes
from flatout.settings.fields import Count, Model

FILE = "metrics.jsonl"
FILE_BYTES = 16 << 30
LINE_BYTES = 16 << 20
CURE = "restore the run from a copy, or start a new one"
LINE_CURE = "remove that line, or restore the file from a copy"
# How Stable-Baselines3 names what we measure; signs as it has them.
TAGS = {
    "policy_loss": "train/policy_gradient_loss",
    "value_loss": "train/value_loss",
    "approx_kl": "train/approx_kl",
    "clip_fraction": "train/clip_fraction",
    "loss": "train/loss",
    "explained_variance": "train/explained_variance",
    "learning_rate": "train/learning_rate",
    "std": "train/std",
    "grad_norm": "train/grad_norm",
    "skipped": "train/skipped",
    "reward": "rollout/reward_mean",
    "episode_return": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
}


class Row(NamedTuple):
    """What one lane reports after one chunk."""

    lane: str
    updates: int
    steps: int  # of the lane
    metrics: dict[str, float]
    scores: dict[str, float]  # reward, length and terms of the evaluation
    steps_per_s: float  # of the worker, learning included


class LaneProgress(Model):
    """What of a line in `metrics.jsonl` decides whether it stays."""

    model_config = ConfigDict(extra="allow")
    lane: str
    updates: Count


class MetricsLine(NamedTuple):
    """A line of `metrics.jsonl`."""

    content: bytes
    progress: LaneProgress


class MetricsFile:
    """`metrics.jsonl` of a folder, to which whole lines are appended. When work goes on after a
    kill, rows that nobody knows of any more are dropped, and so are those that stand there twice.
    """

    def __init__(self, folder: Path, known_updates: Callable[[str], float]) -> None:
        """`known_updates` says how far a lane is; rows beyond that were lost with a process."""
        self.path = folder / FILE
        self.seen = drop_lost_rows(self.path, known_updates)

    def append(self, rows: Iterable[Row]) -> list[Row]:
        """Write rows, unless they were written before; those that are new."""
        new = [row for row in rows if row.updates > self.seen.get(row.lane, 0)]
        if new:
            self.seen |= {row.lane: row.updates for row in new}
            lines = (json.dumps(finite(row._asdict())) + "\n" for row in new)
            with self.path.open("ab", buffering=0) as file:
                file.write("".join(lines).encode())
        return new


def drop_lost_rows(path: Path, known_updates: Callable[[str], float]) -> dict[str, int]:
    """Keep only rows up to what is known of each lane, each once; how far the lanes are."""
    if not path.exists():
        return {}
    seen: dict[str, int] = {}
    lost: set[int] = set()
    size = 0
    for n, (line, row) in enumerate(read_rows(path)):
        size += len(line) + 1
        if seen.get(row.lane, 0) < row.updates <= known_updates(row.lane):
            seen[row.lane] = row.updates
        else:
            lost.add(n)
    if lost or size != path.stat().st_size:  # or the last line was not finished
        kept = (line for n, (line, _) in enumerate(read_rows(path)) if n not in lost)
        write_bytes(path, b"".join(line + b"\n" for line in kept))
    return seen


def make_row(program: Program, chunk: Chunk, lane: int, name: str, scores: dict[str, float]) -> Row:
    """What one lane of a worker reports with a chunk."""
    updates = int(chunk.updates[lane])
    metrics = zip(metric_names(program), map(float, chunk.metrics[lane]), strict=True)
    return Row(
        lane=name,
        updates=updates,
        steps=updates * program.rollout,
        metrics=dict(metrics),
        scores=scores,
        steps_per_s=float(chunk.steps) / max(float(chunk.busy), 1e-9),
    )


class Journal:
    """`metrics.jsonl` and TensorBoard files of a training; rows that a checkpoint does not know are
    dropped when a run goes on.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        known: dict[str, int] = {}
        for path in sorted((folder / "checkpoints").glob("worker-*.safetensors")):
            known |= progress_in(path)
        self.rows = MetricsFile(folder, lambda lane: known.get(lane, 0))
        self.writers: dict[str, Any] = {}
        self.folder = folder / "tensorboard"

    def note(self, job: Job, chunk: Chunk) -> list[Row]:
        """Write down what a worker reported, unless it was written before; the rows that are
        new.
        """
        names = ("reward", "length", *self.program.environment.terms)
        rows = []
        for k, lane in enumerate(job.names):
            scores = dict(zip(names, map(float, chunk.scores[k]), strict=True))
            rows.append(make_row(self.program, chunk, k, name=lane, scores=scores))
        new = self.rows.append(rows)
        for row in new:
            self.write_curves(row)
        return new

    def write_curves(self, row: Row) -> None:
        """One point in each TensorBoard curve of a lane."""
        if row.lane not in self.writers:
            import tensorboardX  # loads PyTorch where it is installed: late, as that takes seconds

            self.writers[row.lane] = tensorboardX.SummaryWriter(
                str(self.folder / file_name(row.lane)),
                purge_step=row.steps,
                flush_secs=10,
                filename_suffix=f".{time.monotonic_ns()}",
            )
        writer = self.writers[row.lane]
        points = {TAGS[name]: value for name, value in row.metrics.items() if name in TAGS}
        if not row.metrics["episodes"]:
            points = {
                tag: value for tag, value in points.items() if not tag.startswith("rollout/ep_")
            }
        if "entropy" in row.metrics:
            points["train/entropy_loss"] = -row.metrics["entropy"]
        points["train/n_updates"] = row.updates
        points["time/fps"] = row.steps_per_s
        points["eval/mean_reward"] = row.scores["reward"]
        points["eval/mean_ep_length"] = row.scores["length"]
        points |= {
            f"reward/{name[6:]}": value
            for name, value in row.metrics.items()
            if name.startswith("terms/")
        }
        for tag, value in points.items():
            writer.add_scalar(tag, value, row.steps)

    def close(self) -> None:
        """Flush the TensorBoard files."""
        for writer in self.writers.values():
            writer.close()


def progress_in(path: Path) -> dict[str, int]:
    """The updates of each lane that a checkpoint holds."""
    arrays, facts = read_checkpoint(path)
    lanes = validate_shape(facts.get("lanes"), list[str], f"{path}: lanes", RunError, CURE)
    updates = arrays.get("lanes/updates")
    if updates is None or updates.shape != (len(lanes),) or updates.dtype.kind not in "iu":
        raise RunError(f"{path}: lanes/updates is no array of {len(lanes)} whole numbers; {CURE}")
    return dict(zip(lanes, updates.tolist(), strict=True))


def read_rows(path: Path) -> Iterator[MetricsLine]:
    """The lines of `metrics.jsonl`, each with what it says of a lane's progress; without a last one
    that a kill cut off.
    """
    for n, line in enumerate(read_lines(path), 1):
        if line.endswith(b"\n"):
            row = parse_json(line[:-1], LaneProgress, f"{path}: line {n}", RunError, LINE_CURE)
            yield MetricsLine(line[:-1], row)
            continue
        try:
            row = parse_json(line, LaneProgress, f"{path}: the last line", RunError)
        except RunError:
            return
        yield MetricsLine(line, row)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of an ordinary file one after another: it may be larger than memory."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            check_file(path, os.fstat(handle), FILE_BYTES, RunError, CURE)
            with os.fdopen(handle, "rb", closefd=False) as file:
                while line := file.readline(LINE_BYTES):
                    if len(line) == LINE_BYTES:
                        raise RunError(f"{path}: a line has more than {LINE_BYTES:,} bytes; {CURE}")
                    yield line
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file; {CURE}") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}; {CURE}") from None


def finite(value: Any) -> Any:
    """A row with None for numbers that JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
