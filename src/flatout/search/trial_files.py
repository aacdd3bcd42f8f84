"""What every trial earned on bars that did not teach it, bar by bar, one small file per trial."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, NotRequired

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from flatout.arrays import NumpyArray
from flatout.errors import RunError
from flatout.folds.splits import Folds
from flatout.foreign import finite, parse_json, read_tensors, shorten_repr
from flatout.runs import write_arrays
from flatout.search.about_study import CURE
from flatout.search.study_state import Scores, Whole

FORMAT = "flatout.trial"
TRACES = ("log_return", "turnover")
SUMS = "weight_sums"
# of a bar's log return and turnover: e to this is far beyond any market, and still a number
MOST = 300.0
Floats = NDArray[np.float32]


class TrialFacts(TypedDict):
    """What stands in the header of a trial's file."""

    number: Whole
    params: dict[str, bool | int | float | str]
    state: Literal["complete", "pruned", "failed"]
    value: NotRequired[float | None]
    scores: Scores
    updates: Whole


class TrialFile(NamedTuple):
    """One trial's traces and facts."""

    log_return: Floats  # (split, seed, block, bar), 0 after a block's end
    turnover: Floats  # the same shape: traded notional per equity
    facts: TrialFacts
    # (split, seed, block, part, asset): sums of the weights at the closes; once none were kept
    weight_sums: Floats | None = None


def trial_path(folder: Path, number: int) -> Path:
    """Where a trial's file lies."""
    return folder / "trials" / f"{number:05d}.safetensors"


def write_trial(folder: Path, trial: TrialFile) -> None:
    """Write a trial's file into the folder of its study, whole or not at all."""
    path = trial_path(folder, trial.facts["number"])
    path.parent.mkdir(exist_ok=True)
    kept = {name: getattr(trial, name) for name in (*TRACES, SUMS)}
    arrays = {
        name: np.ascontiguousarray(array, np.float32)
        for name, array in kept.items()
        if array is not None
    }
    write_arrays(path, arrays, {FORMAT: trial.facts})


def read_trial(folder: Path, number: int) -> TrialFile:
    """What a trial earned, from its file; refused if it cannot be that trial's."""
    path = trial_path(folder, number)
    if not os.path.lexists(path):
        raise RunError(
            f"{path}: trial {number} has no results yet; `flatout trials list` shows which have"
        )
    tensors = read_tensors(path, RunError, CURE)
    facts = parse_json(
        tensors.notes.get(FORMAT, ""),
        TrialFacts,
        where=f"{path}: {FORMAT}",
        refuse=RunError,
        cure=CURE,
    )
    if problem := find_contradiction(number, facts, tensors.arrays):
        raise RunError(f"{path}: {problem}; {CURE}")
    arrays = tensors.arrays
    return TrialFile(arrays["log_return"], arrays["turnover"], facts, arrays.get(SUMS))


def find_contradiction(
    number: int, facts: TrialFacts, arrays: Mapping[str, NumpyArray]
) -> str | None:
    """What cannot be in a trial's file."""
    if facts["number"] != number:
        return f"is of trial {facts['number']}"
    if set(arrays) not in (set(TRACES), {*TRACES, SUMS}):
        return f"holds {shorten_repr(sorted(arrays))} instead of {', '.join((*TRACES, SUMS))}"
    shape = arrays[TRACES[0]].shape
    for name, array in arrays.items():
        if name == SUMS:
            if array.dtype != np.float32 or array.ndim != 5 or array.shape[:3] != shape[:3]:
                return f"{name} does not hold 32-bit numbers by split, seed, block, part and asset"
        elif array.dtype != np.float32 or array.ndim != 4 or array.shape != shape:
            return f"{name} does not hold 32-bit numbers by split, seed, block and bar"
        if not finite(array):
            return f"{name} holds what is no number"
        if name != SUMS and array.size and np.abs(array).max() > MOST:
            return f"{name} holds {np.abs(array).max():.3g}, which no bar can bring"
    if [len(seeds) for seeds in facts["scores"]] != [shape[1]] * shape[0]:
        return f"scores are not {shape[0]} x {shape[1]}, by split and seed"
    return None


def check_fits(trial: TrialFile, folds: Folds) -> None:
    """Refuse traces that are not those of these folds."""
    blocks = max(len(split.test) for split in folds.splits)
    bars = max(block.length for split in folds.splits for block in split.test)
    splits, _, found_blocks, found_bars = trial.log_return.shape
    if splits != len(folds.splits) or found_blocks < blocks or found_bars < bars:
        raise RunError(
            f"the results of trial {trial.facts['number']} are of {splits} splits with "
            f"{found_blocks} blocks of {found_bars} bars, but this study has {len(folds.splits)} "
            f"with {blocks} of {bars}; {CURE}"
        )


def trial_numbers(folder: Path) -> list[int]:
    """The trials that have files, in order."""
    names = (
        re.fullmatch(r"([0-9]{5,9})\.safetensors", path.name)
        for path in (folder / "trials").glob("*")
    )
    return sorted(int(name[1]) for name in names if name)
