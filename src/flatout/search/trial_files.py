"""What every trial earned on bars that did not teach it, bar by bar, one small file per trial."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from flatout.errors import RunError
from flatout.run_directory import write_bytes

FORMAT = "flatout.trial"
Floats = NDArray[np.float32]


class TrialFile(NamedTuple):
    """One trial's traces and facts."""

    log_return: Floats  # (split, seed, block, bar), 0 after a block's end
    turnover: Floats  # the same shape: traded notional per equity
    facts: dict[str, Any]  # number, params, state, scores, updates


def trial_path(folder: Path, number: int) -> Path:
    """Where a trial's file lies."""
    return folder / "trials" / f"{number:05d}.safetensors"


def write_trial(folder: Path, trial: TrialFile) -> None:
    """Write the file whole."""
    path = trial_path(folder, trial.facts["number"])
    path.parent.mkdir(exist_ok=True)
    arrays = {name: np.ascontiguousarray(getattr(trial, name), np.float32) for name in ("log_return", "turnover")}
    write_bytes(path, safetensors.numpy.save(arrays, metadata={FORMAT: json.dumps(trial.facts, sort_keys=True)}))


def read_trial(folder: Path, number: int) -> TrialFile:
    """A trial's file."""
    path = trial_path(folder, number)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            facts = json.loads((file.metadata() or {})[FORMAT])
            return TrialFile(file.get_tensor("log_return"), file.get_tensor("turnover"), facts)
    except FileNotFoundError:
        raise RunError(f"{path}: trial {number} has no results yet; `flatout trials list` shows which have") from None
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} cannot be read as a trial's results: {error}") from None


def trial_numbers(folder: Path) -> list[int]:
    """The trials that have files, in order."""
    return sorted(int(path.stem) for path in (folder / "trials").glob("[0-9]*.safetensors"))
