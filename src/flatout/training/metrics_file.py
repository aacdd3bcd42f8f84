"""What a training reports, lane by lane: `metrics.jsonl` (one row per lane and chunk) and
`tensorboard/`.
"""

import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict

from flatout.errors import RunError
from flatout.file_names import file_name
from flatout.foreign import JSON_BYTES, parse_json, read_file, validate_shape
from flatout.learners.checkpoint import read_checkpoint
from flatout.learners.jobs import Chunk, Job
from flatout.learners.rates import Program, metric_names
from flatout.runs import write_bytes
from flatout.settings.fields import Count, Model

CURE = "restore the run from a copy, or start a new one"
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


class Journal:
    """`metrics.jsonl` and TensorBoard files; rows that a checkpoint does not know are dropped when
    a run goes on.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.path = folder / "metrics.jsonl"
        self.seen: dict[str, int] = self.forget_lost_rows(folder)
        self.file = self.path.open("a", encoding="utf-8")
        self.writers: dict[str, Any] = {}
        self.folder = folder / "tensorboard"

    def forget_lost_rows(self, folder: Path) -> dict[str, int]:
        """Keep only rows up to what the checkpoints hold, and say how far each lane is."""
        if not self.path.exists():
            return {}
        known: dict[str, int] = {}
        for path in sorted((folder / "checkpoints").glob("worker-*.safetensors")):
            known |= progress_in(path)
        kept = [
            (line, row)
            for line, row in read_rows(self.path)
            if row.updates <= known.get(row.lane, 0)
        ]
        write_bytes(self.path, b"".join(line + b"\n" for line, _ in kept))
        return {row.lane: row.updates for _, row in kept}

    def note(self, job: Job, chunk: Chunk) -> list[Row]:
        """Write down what a worker reported, unless it was written before; the rows that are
        new.
        """
        rows = []
        names = metric_names(self.program)
        scored = ("reward", "length", *self.program.environment.terms)
        speed = float(chunk.steps) / max(float(chunk.busy), 1e-9)
        for k, lane in enumerate(job.names):
            updates = int(chunk.updates[k])
            if updates <= self.seen.get(lane, 0):
                continue
            self.seen[lane] = updates
            row = Row(
                lane,
                updates,
                updates * self.program.rollout,
                dict(zip(names, map(float, chunk.metrics[k]), strict=True)),
                dict(zip(scored, map(float, chunk.scores[k]), strict=True)),
                speed,
            )
            rows.append(row)
            self.write(row)
        self.file.flush()
        return rows

    def write(self, row: Row) -> None:
        """One line, and one point in each TensorBoard curve."""
        self.file.write(json.dumps(finite(row._asdict())) + "\n")
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
        """Flush everything."""
        self.file.close()
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


def read_rows(path: Path) -> list[tuple[bytes, LaneProgress]]:
    """The lines of `metrics.jsonl`, each with what it says of a lane's progress; without a last one
    that a kill cut off.
    """
    cure = "remove that line, or restore the file from a copy"
    *whole, rest = read_file(path, JSON_BYTES, RunError, CURE).split(b"\n")
    rows = [
        (line, parse_json(line, LaneProgress, f"{path}: line {n}", RunError, cure))
        for n, line in enumerate(whole, 1)
    ]
    try:
        return [*rows, (rest, parse_json(rest, LaneProgress, f"{path}: the last line", RunError))]
    except RunError:
        return rows


def finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
