"""`flatout trials`: what was tried in a study, one trial in detail, and how two of them differ."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich.console import Console
from rich.table import Table

from flatout.cli.options import Json, print_json
from flatout.cli.status import Storage, Studies, wide_console
from flatout.errors import FlatoutError, RunError
from flatout.foreign import JsonTable, JsonValue
from flatout.settings.study import PRUNES_BY_MEAN
from flatout.settings.tables import Settings
from flatout.terminal import plain, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flatout.search.stored_studies import StoredTrial

app = typer.Typer(
    help="Trials of a study: all of them, one in detail, or two beside each other.",
    no_args_is_help=True,
)

Study = Annotated[
    Path | None,
    typer.Option(
        "--study", help="The study's folder or name; else the one last worked on under --out."
    ),
]
Number = Annotated[int, typer.Argument(help="The trial's number.")]
PATH_FIGURES = {
    "sharpe": ("Sharpe", "{:.2f}"), "sortino": ("Sortino", "{:.2f}"),
    "total_return": ("return", "{:+.1%}"),
    "annual_return": ("return per year", "{:+.1%}"), "max_drawdown": ("max drawdown", "{:.1%}"),
}  # fmt: skip


class ParameterDifference(TypedDict):
    """A value of two trials, and how far numbers are apart."""

    name: str
    first: JsonValue
    second: JsonValue
    difference: float | None
    factor: float | None


class RungReports(TypedDict):
    """What the pruner was told of a trial at one rung."""

    rung: int
    values: list[float]


class Sort(StrEnum):
    """What trials are listed by."""

    value = "value"
    number = "number"


@app.callback()
def verbs() -> None:
    """Trials of a study: all of them, one in detail, or two beside each other."""


@app.command("list")
def list_trials(
    study: Study = None,
    sort: Annotated[
        Sort, typer.Option("--sort", help="By value, the best first, or by number.")
    ] = Sort.value,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only the first so many.")] = None,
    out: Studies = Path("runs"),
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """List the trials of a study with their values and parameters."""
    from flatout.search.stored_studies import find_study  # loads Optuna

    folder = find_study(study, out)
    trials = read_trials(folder, storage)
    if sort is Sort.value:
        trials = sorted(
            trials, key=lambda trial: (trial.value is None, -(trial.value or 0.0), trial.number)
        )
    rows = [
        {key: getattr(trial, key) for key in ("number", "state", "value", "params")}
        for trial in trials[:top]
    ]
    if as_json:
        print_json({"study": folder.name, "trials": rows})
        return
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    table = Table("trial", "state", "value", *map(plain, shorten_names(names)))
    for trial in trials[:top]:
        values = [format_value(trial.params.get(name)) for name in names]
        table.add_row(str(trial.number), trial.state, format_value(trial.value, "{:.3f}"), *values)
    console = wide_console()
    console.print(table)
    shown = (
        f"the first {len(rows)} of {len(trials)} trials"
        if len(rows) < len(trials)
        else f"{len(trials)} trials"
    )
    say(f"{folder}: {shown}")


@app.command()
def show(
    number: Number,
    study: Study = None,
    out: Studies = Path("runs"),
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show one trial: parameters, scores by split and seed, figures of its out-of-sample paths,
    reports at rungs.
    """
    from flatout.search.stored_studies import find_study  # loads Optuna

    folder = find_study(study, out)
    found = collect_details(folder, find_trial(read_trials(folder, storage), number))
    if as_json:
        print_json(found)
    else:
        print_trial(found, wide_console())


@app.command()
def diff(
    first: Number,
    second: Number,
    study: Study = None,
    out: Studies = Path("runs"),
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show in which parameters two trials differ, by how much, and what came of it."""
    from flatout.search.stored_studies import find_study  # loads Optuna

    folder = find_study(study, out)
    trials = read_trials(folder, storage)
    a, b = (find_trial(trials, number) for number in (first, second))
    params = [
        compare_values(name, a.params.get(name), b.params.get(name))
        for name in {**a.params, **b.params}
    ]
    changed = [row for row in params if row["first"] != row["second"]]
    outcome = [
        compare_values(name, getattr(a, name), getattr(b, name)) for name in ("state", "value")
    ]
    if as_json:
        print_json(
            {"study": folder.name, "trials": [first, second], "outcome": outcome, "params": changed}
        )
        return
    table = Table("", f"trial {first}", f"trial {second}", "change")
    for row in (*outcome, *changed):
        table.add_row(
            plain(row["name"]),
            format_value(row["first"]),
            format_value(row["second"]),
            format_change(row),
        )
    console = wide_console()
    console.print(table)
    console.print(f"{len(params) - len(changed)} parameters are equal", highlight=False)


def read_trials(folder: Path, url: str | None) -> "list[StoredTrial]":
    """The trials of a study, by number."""
    from flatout.search.stored_studies import read_stored

    stored = read_stored(folder, url)
    if stored is None or not stored.trials:
        hint = (
            ""
            if url or (folder / "study.journal").exists()
            else "; if it was run with --storage, give the same one"
        )
        raise RunError(f"{folder} has no trials yet{hint}")
    return stored.trials


def find_trial(trials: "list[StoredTrial]", number: int) -> "StoredTrial":
    """The trial of this number."""
    if not 0 <= number < len(trials):
        raise RunError(f"there is no trial {number}: the study has trials 0 to {len(trials) - 1}")
    return trials[number]


def collect_details(folder: Path, trial: "StoredTrial") -> JsonTable:
    """All that is known of a trial; scores and paths once it has ended."""
    from flatout.search.lane_layout import Layout
    from flatout.search.run import read_run
    from flatout.search.study_state import read_state
    from flatout.search.trial_files import read_trial, trial_path

    settings, about = read_run(folder)
    state = read_state(folder)
    splits = Layout(*state.layout).splits if state else 1
    per_rung = 1 if settings.search.pruner in PRUNES_BY_MEAN else splits
    found: JsonTable = {
        **{key: getattr(trial, key) for key in ("number", "state", "value", "params")},
        "updates": None, "splits": [f"split {k}" for k in range(splits)], "scores": None,
        "paths": None, "note": None,
        "reports": group_by_rung(trial.reports, per_rung),
    }  # fmt: skip
    if not trial_path(folder, trial.number).exists():
        return found | {"note": "it has not ended yet"}
    file = read_trial(folder, trial.number)
    found |= {"updates": file.facts["updates"], "scores": file.facts["scores"]}
    return found | describe_paths(folder, settings, about, file.log_return)


def describe_paths(
    folder: Path, settings: Settings, about: JsonTable, log_return: "NDArray[np.float32]"
) -> JsonTable:
    """Names of the splits and figures of the paths, which need the bars; without them a note that
    says why.
    """
    from flatout.bars.source import source_of_request
    from flatout.evaluation.paths import path_figures, path_returns
    from flatout.evaluation.study_folds import make_study_folds
    from flatout.training.prepare import KEPT_BARS

    try:
        panel = source_of_request(about["request"], settings, folder / KEPT_BARS).read()
        folds = make_study_folds(panel, settings)
    except FlatoutError as error:
        return {"note": f"no figures of paths: {error}"}
    if panel.fingerprint != about["fingerprint"]:
        return {"note": "no figures of paths: the bars have changed since the study began"}
    returns = path_returns(folds, log_return)
    rows = path_figures(returns, panel.rows(0, folds.cut).bars_per_year).rows()
    count = returns.shape[1]
    return {
        "splits": [split.name for split in folds.splits],
        "paths": [{"seed": k // count, "path": k % count, **row} for k, row in enumerate(rows)],
    }


def group_by_rung(reports: dict[int, float], per_rung: int) -> list[RungReports]:
    """What was reported to the pruner at each rung: a figure per split, or their mean if it
    halves.
    """
    steps = sorted(reports)
    rungs = [steps[first : first + per_rung] for first in range(0, len(steps), per_rung)]
    return [
        {"rung": k + 1, "values": [reports[step] for step in rung]} for k, rung in enumerate(rungs)
    ]


def compare_values(name: str, first: JsonValue, second: JsonValue) -> ParameterDifference:
    """Two values, and for numbers how far they are apart."""
    row = ParameterDifference(name=name, first=first, second=second, difference=None, factor=None)
    if all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second)
    ):
        row["difference"] = second - first
        row["factor"] = second / first if first else None
    return row


def format_change(row: ParameterDifference) -> str:
    """How far two values are apart, as in +0.1 (x 1.5)."""
    if row["difference"] is None:
        return ""
    factor = f" (x {row['factor']:.3g})" if row["factor"] is not None and row["factor"] > 0 else ""
    return f"{row['difference']:+.4g}{factor}"


def shorten_names(names: Iterable[str]) -> list[str]:
    """Settings without their tables, where that is clear."""
    lasts = [name.rpartition(".")[2] for name in names]
    return [
        last if lasts.count(last) == 1 else name for name, last in zip(names, lasts, strict=True)
    ]


def format_value(value: object, form: str = "{:.4g}") -> str:
    """A number in few digits, anything else as it is."""
    if value is None:
        return "–"
    return form.format(value) if isinstance(value, float) else plain(str(value))


def print_trial(found: JsonTable, console: Console) -> None:
    """Print one trial for people."""
    updates = f", {found['updates']:,} updates" if found["updates"] else ""
    console.print(
        f"[bold]trial {found['number']}[/]: {plain(found['state'])}, value "
        f"{format_value(found['value'])}{updates}"
    )
    grid = Table.grid(padding=(0, 2))
    for name, value in found["params"].items():
        grid.add_row(plain(name), format_value(value))
    console.print(grid, highlight=False)
    if found["scores"]:
        seeds = range(len(found["scores"][0]))
        table = Table("split", *(f"seed {seed}" for seed in seeds), title="scores")
        for name, row in zip(found["splits"], found["scores"], strict=True):
            table.add_row(plain(name), *(format_value(score, "{:.3f}") for score in row))
        console.print(table)
    if found["paths"]:
        table = Table(
            "seed",
            "path",
            *(title for title, _ in PATH_FIGURES.values()),
            title="out-of-sample paths",
        )
        for row in found["paths"]:
            cells = [format_value(row[key], form) for key, (_, form) in PATH_FIGURES.items()]
            table.add_row(str(row["seed"]), str(row["path"]), *cells)
        console.print(table)
    for row in found["reports"]:
        values = ", ".join(format_value(value, "{:.3f}") for value in row["values"])
        console.print(f"reported at rung {row['rung']}: {values}", highlight=False)
    if found["note"]:
        console.print(plain(found["note"]), highlight=False, soft_wrap=True)
