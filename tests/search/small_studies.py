"""Small studies for the tests of this folder: two assets, tiny networks, a handful of trials, and
what they leave.
"""

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import optuna

from flatout.bars.panel import Panel
from flatout.bars.synthetic import PlantedSignal
from flatout.search.report_model import StudyReport
from flatout.search.run import PreparedStudy, StudyRequest, prepare, run_studies
from flatout.search.storage import close_storage, open_storage
from flatout.search.study import Study
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.workers.slots import ONE_THREAD, Slot

HERE = Path(__file__).parent
SPACE = {
    "train.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "train.gamma": {"low": 0.88, "high": 0.99},
    "market.limits.reserve": {"low": 0.05, "high": 0.30},
}
USUAL: dict[str, dict[str, Any]] = {
    "features": {"indicators": ["return_1", "roc", "extra:signal"], "scaler": "zscore"},
    "train": {"n_envs": 4, "n_steps": 16, "minibatches": 2, "epochs": 2, "hidden": [8, 8]},
    "folds": {"kind": "kfold", "groups": 2},
    "search": {
        "trials": 6,
        "timesteps": 256,
        "batch": 2,
        "finalists": 2,
        "final_seeds": 2,
        "pruner": "wilcoxon",  # six trials are too few for `curve` to prune any
        "space": SPACE,
    },
}


@cache
def small_panel(n_bars: int = 600, seed: int = 0) -> Panel:
    """Two assets whose signal says something about the next bar."""
    return PlantedSignal(
        n_bars=n_bars, seed=seed, symbols=("ONE", "TWO"), strength_bps=80.0
    ).panel()


def small_settings(**changes: Mapping[str, Any]) -> Settings:
    """Keywords are tables, whose keys replace the usual ones."""
    return Settings.model_validate(
        {name: {**USUAL.get(name, {}), **changes.get(name, {})} for name in {*USUAL, *changes}}
    )


def prepared(
    out: Path, name: str = "study", workers: int = 2, panel: Panel | None = None, **changes: Any
) -> PreparedStudy:
    """A small study before its workers start."""
    resolved = Resolved(settings=small_settings(**changes), origin={})
    return prepare(
        StudyRequest(name), resolved, small_panel() if panel is None else panel, workers, out
    )


def small_slots(cache: Path, count: int = 2) -> list[Slot]:
    """Workers with one thread each that keep what they compiled."""
    environment = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip(),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return [Slot(f"cpu {k}", (), environment) for k in range(count)]


def run_small(
    out: Path, cache: Path, studies: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int = 2,
    on_round: Callable[[Study, Any], None] = lambda *_: None, storage: str | None = None,
) -> list[StudyReport | None]:  # fmt: skip
    """Run small studies in real workers, or go on with them; by name the tables in which they
    differ from the usual.
    """
    made = [
        prepared(out, name, workers, **changes)
        for name, changes in (studies or {"study": {}}).items()
    ]
    return run_studies(made, small_slots(cache, workers), out, storage, on_round, lambda *_: None)


def stored(folder: Path, name: str, url: str | None = None) -> list[dict[str, Any]]:
    """The table of a study that nobody runs."""
    storage = open_storage(folder, url)
    try:
        return table(optuna.load_study(study_name=name, storage=storage))
    finally:
        close_storage(storage)


def table(study: optuna.Study) -> list[dict[str, Any]]:
    """All that Optuna knows of the trials, times left out."""
    return [
        {
            "number": t.number, "state": t.state.name, "values": t.values, "params": t.params,
            "intermediate": t.intermediate_values, "attributes": t.user_attrs,
        }
        for t in study.get_trials()
    ]  # fmt: skip
