"""What a training reports: a table on the screen, and TensorBoard files under Stable-Baselines3's
names.

The logger has the methods that callbacks call on Stable-Baselines3's: `record`, `record_mean`,
`dump`.
"""

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flatout.errors import SettingsError
from flatout.sb3.arguments import ScheduledValues
from flatout.training.metrics_file import TAGS

if TYPE_CHECKING:
    import tensorboardX

__all__ = ["Logger"]

# how waiting and learning overlapped, of environments that wait
OVERLAP_METRICS = ("lag_mean", "lag_max", "learner_idle", "too_old")
LogValue = Any  # a number or a text; Stable-Baselines3's loggers take pictures and more
Excluded = str | tuple[str, ...] | None


class TrainingLogger(Protocol):
    """What a training calls on its logger: flatout's or Stable-Baselines3's."""

    name_to_value: dict[str, LogValue]

    def record(self, key: str, value: LogValue, exclude: Excluded = None) -> None: ...
    def record_mean(self, key: str, value: float | None, exclude: Excluded = None) -> None: ...
    def dump(self, step: int = 0) -> None: ...
    def info(self, *texts: object) -> None: ...
    def get_dir(self) -> str | None: ...
    def close(self) -> None: ...


class Logger:
    """Values of one iteration, by name, until they are dumped.

    >>> logger = Logger(printed=True)
    >>> logger.record("rollout/ep_rew_mean", 12.5)
    >>> logger.dump(step=100)
    --------------------------
    | rollout/        |      |
    |     ep_rew_mean | 12.5 |
    --------------------------
    """

    def __init__(self, folder: Path | None = None, printed: bool = False) -> None:
        self.dir = None if folder is None else str(folder)
        self.printed = printed
        self.name_to_value: dict[str, LogValue] = {}
        self.name_to_count: dict[str, int] = {}
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        # Stable-Baselines3's loggers have such; this one writes by itself
        self.output_formats: list[object] = []
        self.writer: tensorboardX.SummaryWriter | None = None

    def record(self, key: str, value: LogValue, exclude: Excluded = None) -> None:
        """Record a value; of several before the next dump the last counts."""
        self.name_to_value[key] = value
        self.name_to_excluded[key] = (exclude,) if isinstance(exclude, str) else exclude or ()

    def record_mean(self, key: str, value: float | None, exclude: Excluded = None) -> None:
        """Record a value; of several before the next dump their mean counts."""
        if value is None:
            return
        count = self.name_to_count.get(key, 0)
        self.record(
            key,
            self.name_to_value.get(key, 0.0) * count / (count + 1) + value / (count + 1),
            exclude,
        )
        self.name_to_count[key] = count + 1

    def dump(self, step: int = 0) -> None:
        """Write what was recorded as the point of this step, and forget it."""
        if self.printed:
            print(format_table(self.values_for("stdout")))
        if self.dir is not None:
            self.write(self.values_for("tensorboard"), step)
        for values in (self.name_to_value, self.name_to_count, self.name_to_excluded):
            values.clear()

    def values_for(self, output: str) -> dict[str, LogValue]:
        """The recorded values that are not excluded from this output."""
        return {
            k: value
            for k, value in self.name_to_value.items()
            if output not in self.name_to_excluded[k]
        }

    def write(self, values: Mapping[str, LogValue], step: int) -> None:
        """Add one point to each of TensorBoard's curves."""
        if self.writer is None:
            import tensorboardX  # loads PyTorch where it is installed: late, as that takes seconds

            self.writer = tensorboardX.SummaryWriter(
                self.dir, flush_secs=10, filename_suffix=f".{time.monotonic_ns()}"
            )
        for name, value in values.items():
            if isinstance(value, str):
                self.writer.add_text(name, value, step)
            elif np.ndim(value) == 0 and isinstance(value, int | float | np.number):
                self.writer.add_scalar(name, float(value), step)
            else:
                raise SettingsError(
                    f"{name} is a {type(value).__name__}; this logger writes numbers and texts: "
                    "exclude it from 'tensorboard', or give the model Stable-Baselines3's logger "
                    "with `set_logger`"
                )
        self.writer.flush()

    def info(self, *texts: object) -> None:
        """Print the texts, if tables are printed."""
        if self.printed:
            print(*texts)

    log = debug = warn = error = info

    def get_dir(self) -> str | None:
        """The folder of TensorBoard's files, or None."""
        return self.dir

    def close(self) -> None:
        """Flush the files; what comes later opens them again."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def new_logger(verbose: int, tensorboard_log: str | None, name: str, anew: bool) -> Logger:
    """A logger that prints if asked; a run that goes on writes into the folder of the last one."""
    folder = None
    if tensorboard_log is not None:
        root = Path(tensorboard_log)
        found = [re.fullmatch(rf"{re.escape(name)}_(\d+)", path.name) for path in root.glob("*")]
        last = max([int(match[1]) for match in found if match], default=0)
        folder = root / f"{name}_{last + 1 if anew or not last else last}"
        folder.mkdir(parents=True, exist_ok=True)
    return Logger(folder, verbose >= 1)


def record_update(
    logger: TrainingLogger, metrics: Mapping[str, float], scheduled: ScheduledValues
) -> None:
    """Record what an update measured, under the names that Stable-Baselines3's users know."""
    points = {
        tag: metrics[name]
        for name, tag in TAGS.items()
        if name in metrics and tag.startswith("train/")
    }
    points |= {f"overlap/{name}": metrics[name] for name in OVERLAP_METRICS if name in metrics}
    points |= {"train/entropy_loss": -metrics["entropy"], "train/clip_range": scheduled.clip}
    if scheduled.value_clip is not None:
        points["train/clip_range_vf"] = scheduled.value_clip
    points |= {
        f"reward/{name[6:]}": value for name, value in metrics.items() if name.startswith("terms/")
    }
    for tag, value in points.items():
        logger.record(tag, value)


def record_episodes(
    logger: TrainingLogger, episodes: Iterable[Mapping[str, float]], successes: Iterable[float]
) -> None:
    """Record means over the last episodes, where there are any."""
    for tag, values in (
        ("rollout/ep_rew_mean", [episode["r"] for episode in episodes]),
        ("rollout/ep_len_mean", [episode["l"] for episode in episodes]),
        ("rollout/success_rate", list(successes)),
    ):
        if values:
            logger.record(tag, float(np.mean(values)))


def format_table(values: Mapping[str, object]) -> str:
    """Names and values as a table, under the headings that their prefixes are."""
    lines: list[tuple[str, str]] = []
    heading = ""
    for name, value in sorted(values.items(), key=lambda item: ("/" in item[0], item[0])):
        group, _, rest = name.rpartition("/")
        if group != heading:
            heading = group
            lines.append((f"{group}/", ""))
        lines.append((f"    {rest}" if group else rest, format_value(value)))
    left, right = (max((len(line[k]) for line in lines), default=0) for k in (0, 1))
    rule = "-" * (left + right + 7)
    return "\n".join([rule, *(f"| {a:<{left}} | {b:<{right}} |" for a, b in lines), rule])


def format_value(value: object) -> str:
    """A value for the table: a float in three digits, anything else as it reads."""
    return f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
