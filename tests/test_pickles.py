"""No pickle is read from a file or a database: reading one runs whatever it says."""

import ast
import pickle
from pathlib import Path
from typing import Any, get_args

import optuna
import pytest
from optuna.distributions import FloatDistribution

from flatout.search.storage import close_storage, make_sampler, open_storage, open_study
from flatout.search.stored_studies import to_stored_trial
from flatout.settings.study import SamplerName

SOURCE = Path(__file__).parents[1] / "src"
LIBRARIES = {"pickle", "cloudpickle", "torch", "joblib", "marshal", "shelve", "yaml", "dill"}
READING = {"load", "loads", "open", "Unpickler"}
# Between a process and those that it has started itself, through pipes that nobody else holds.
PIPES = {
    "slow_envs/learner_process.py",
    "slow_envs/process_env.py",
    "slow_envs/process_parent.py",
    "slow_envs/process_worker.py",
}
SPACE: dict[str, Any] = {
    "x": FloatDistribution(0.0, 1.0),
    "y": FloatDistribution(1e-5, 1e-1, log=True),
}
NAMES = (
    "cma:optimizer:0",
    "cma:optimizer:1",
    "cma:attr",
    "cma:n_restarts",
    "tpe:x",
    "nsga2:generation",
    "anything",
)


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def test_the_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


def test_only_pipes_between_own_processes_carry_pickles() -> None:
    found = {
        path.relative_to(SOURCE / "flatout").as_posix()
        for path in SOURCE.rglob("*.py")
        if any(
            reads_pickles(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    }
    assert found == PIPES


def reads_pickles(node: ast.AST) -> bool:
    """Whether a piece of a program unpickles something."""
    if isinstance(node, ast.keyword):
        return node.arg == "allow_pickle" and not (
            isinstance(node.value, ast.Constant) and node.value.value is False
        )
    if isinstance(node, ast.ImportFrom):
        return node.module in LIBRARIES and any(name.name in READING for name in node.names)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in READING
        and isinstance(node.value, ast.Name)
        and node.value.id in LIBRARIES
    )


@pytest.mark.parametrize("sampler", get_args(SamplerName))
@pytest.mark.parametrize("kind", ["journal", "database"])
def test_attributes_of_studies_and_trials_are_not_unpickled(
    tmp_path: Path, kind: str, sampler: SamplerName
) -> None:
    """Under every name by which Optuna keeps a sampler's state, and under another."""
    url = None if kind == "journal" else f"sqlite:///{tmp_path / 'study.db'}"
    planted = dict.fromkeys(NAMES, pickle.dumps(Trap(tmp_path / "ran")).hex()) | {
        "cma:generation": 0
    }
    storage = open_storage(tmp_path, url)
    study = open_study(storage, "s")
    for name, text in planted.items():
        study.set_user_attr(name, text)
        storage.set_study_system_attr(study._study_id, name, text)
    for n in range(30):
        params = {"x": (n + 0.5) / 30, "y": 1e-3}
        study.add_trial(
            optuna.trial.create_trial(
                params=params,
                distributions=SPACE,
                value=n / 30,
                user_attrs=planted,
                system_attrs=planted,
            )
        )
    close_storage(storage)
    storage = open_storage(tmp_path, url)
    study = open_study(storage, "s")
    study.sampler = make_sampler(sampler, 0, 30)
    assert study.ask(SPACE).params.keys() == SPACE.keys()
    assert [to_stored_trial(trial).number for trial in study.trials] == list(range(31))
    close_storage(storage)
    assert not (tmp_path / "ran").exists()


def test_optunas_own_sampler_would_have_run_it(tmp_path: Path) -> None:
    """What is planted is what it reads: the test above can fail."""
    study = optuna.create_study(direction="maximize")
    planted = {"cma:optimizer:0": pickle.dumps(Trap(tmp_path / "ran")).hex(), "cma:generation": 0}
    for n in range(30):
        study.add_trial(
            optuna.trial.create_trial(
                params={"x": n / 30, "y": 1e-3},
                distributions=SPACE,
                value=0.0,
                system_attrs=planted,
            )
        )
    study.sampler = optuna.samplers.CmaEsSampler(seed=0, n_startup_trials=10)
    study.ask(SPACE)
    assert (tmp_path / "ran").exists()
