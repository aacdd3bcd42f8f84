"""What came out after the last trial, as `closing.safetensors` keeps it: the finalists under harder
conditions, and the controls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import NumpyArray
from flatout.errors import RunError
from flatout.evaluation.skill import PARTS
from flatout.foreign import finite, read_tensors, shorten_repr
from flatout.runs import write_arrays
from flatout.search.market_study import TERMS
from flatout.search.scores import sum_trial_weights
from flatout.search.study import Study

FILE = "closing.safetensors"
CURE = "remove it, and the same search makes it again"
COST_FACTORS = (0.0, 1.0, 2.0, 3.0)
DELAYS = (0, 1, 2)
Floats = NDArray[np.float32]


class Condition(NamedTuple):
    """How the finalists are judged."""

    cost_factor: float
    delay: int


@dataclass(frozen=True)
class FinalistResults:
    """The finalists with what they earned, the controls, and the winner's policies."""

    finalists: tuple[int, ...]  # trial numbers, the winner first
    conditions: tuple[Condition, ...]  # the first is the plain one
    finalist_terms: Floats  # (finalist, condition, split, seed, term, block, bar)
    finalist_sums: Floats  # (finalist, condition, split, seed, block, part, asset) of the weights
    winner_weights: Floats  # (split, seed, asset, block, bar) under plain conditions
    controls: Floats  # (agent of either, term or weight, block, bar)
    policies: tuple[Path, ...]  # the winner's, one folder per seed

    @property
    def winner(self) -> int:
        """The number of the winning trial."""
        return self.finalists[0]


def conditions_of(study: Study) -> tuple[Condition, ...]:
    """Plain, then each cost factor, then each delay; what the gates ask for is among them."""
    gates = study.market.settings.gates
    costs, delays = {*COST_FACTORS}, {*DELAYS}
    if gates.cost_factor is not None:
        costs.add(gates.cost_factor)
    if gates.delay_bars is not None:
        delays.add(gates.delay_bars)
    dearer = [Condition(factor, 0) for factor in sorted(costs - {1.0})]
    later = [Condition(1.0, delay) for delay in sorted(delays - {0})]
    return (Condition(1.0, 0), *dearer, *later)


def has_finalist_results(study: Study) -> bool:
    """Whether the finalists of a study were judged and written down."""
    return (study.folder / FILE).exists()


def write_finalist_results(
    study: Study, finalists: Sequence[int], traces: Floats, controls: Floats
) -> None:
    """Write what was found, whole: traces are (finalist, condition, split, seed, term or weight,
    block, bar), the winner's first; `controls` are the agents of both markets, one after another.
    """
    sums = [[sum_trial_weights(study.market, one) for one in finalist] for finalist in traces]
    arrays = {
        "finalists": np.asarray(finalists, np.int32),
        "finalist_terms": np.ascontiguousarray(traces[:, :, :, :, :TERMS], np.float32),
        "finalist_sums": np.asarray(sums, np.float32),
        "winner_weights": np.ascontiguousarray(traces[0, 0, :, :, TERMS:], np.float32),
        "controls": np.ascontiguousarray(controls, np.float32),
    }
    write_arrays(study.folder / FILE, arrays)


def read_finalist_results(study: Study) -> FinalistResults:
    """The results as they were written down; refused if they are not of this study."""
    path = study.folder / FILE
    arrays = read_tensors(path, RunError, CURE).arrays
    if problem := find_contradiction(study, arrays):
        raise RunError(f"{path}: {problem}; {CURE}")
    seeds = study.market.settings.search.final_seeds
    return FinalistResults(
        finalists=tuple(int(number) for number in arrays["finalists"]),
        conditions=conditions_of(study),
        finalist_terms=arrays["finalist_terms"],
        finalist_sums=arrays["finalist_sums"],
        winner_weights=arrays["winner_weights"],
        controls=arrays["controls"],
        policies=tuple(policy_folder(study.folder, seed) for seed in range(seeds)),
    )


def find_contradiction(study: Study, arrays: Mapping[str, NumpyArray]) -> str | None:
    """What in a file of results is not of this study; None if all of it is."""
    market, search = study.market, study.market.settings.search
    finalists = arrays.get("finalists", np.zeros(0))
    bars, assets = (market.test_blocks, market.test_bars), market.panel.n_assets
    conditions, splits = len(conditions_of(study)), len(market.folds.splits)
    each = (len(finalists), conditions, splits, search.final_seeds)
    wanted = {
        "finalists": (np.int32, (len(finalists),)),
        "finalist_terms": (np.float32, (*each, TERMS, *bars)),
        "finalist_sums": (np.float32, (*each, market.test_blocks, PARTS, assets)),
        "winner_weights": (np.float32, (splits, search.final_seeds, assets, *bars)),
        "controls": (np.float32, control_shape(study)),
    }
    if set(arrays) != set(wanted):
        return f"holds {shorten_repr(sorted(arrays))} instead of {', '.join(wanted)}"
    for name, (kind, shape) in wanted.items():
        if arrays[name].dtype != kind or arrays[name].shape != shape:
            return (
                f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}, not "
                f"{np.dtype(kind)} of shape {shape}"
            )
    trials = {trial.number for trial in study.optuna_study.get_trials(deepcopy=False)}
    if not 1 <= len(finalists) <= search.finalists or not trials.issuperset(finalists.tolist()):
        return (
            f"finalists are 1 to {search.finalists} of this study's trials, given "
            f"{shorten_repr(finalists.tolist())}"
        )
    return None if finite(arrays["finalist_terms"]) else "finalist_terms holds what is no number"


def control_shape(study: Study) -> tuple[int, ...]:
    """Of the traces of all agents on both controls: (agent, term or weight, block, bar)."""
    market = study.market
    agents = 2 * market.settings.search.final_seeds
    return (agents, TERMS + market.panel.n_assets, market.test_blocks, market.test_bars)


def policy_folder(folder: Path, seed: int) -> Path:
    """Where the winner's policy of a seed lies in a study's folder."""
    return folder / "policy" / f"seed-{seed}"
