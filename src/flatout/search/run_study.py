"""`flatout.run_study`: settings searched with cross-validation, and a verdict on the winner."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.bars.source import Bars, BarsSource, find_source
from flatout.errors import SettingsError
from flatout.evaluation.saved_policy import SavedPolicy, load_policy
from flatout.search.about_study import study_path
from flatout.search.finalist_results import policy_folder
from flatout.search.progress import StudyProgress
from flatout.search.report_model import StudyReport
from flatout.search.run import PreparedStudy, StudyRequest, agreed_engine, prepare, run_studies
from flatout.settings.loading import GivenSettings, Resolved, resolve_settings
from flatout.settings.tables import EngineName
from flatout.workers.devices import DeviceChoice, choose_devices


@dataclass(frozen=True)
class AskedStudy:
    """One study as it is asked for."""

    name: str
    resolved: Resolved
    source: BarsSource


@dataclass(frozen=True)
class StudyResult:
    """A study: its verdict, and where all of it lies."""

    name: str
    folder: Path  # report.html, report.json, ledger.csv, trials/, metrics.jsonl, policy/
    report: StudyReport | None  # all figures; None if the study was stopped before its end

    @property
    def finished(self) -> bool:
        """Whether it came to a verdict; the same call goes on with one that was stopped."""
        return self.report is not None

    @property
    def promotable(self) -> bool:
        """Whether every gate was passed."""
        return self.report is not None and self.report.promotable

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        if self.report is None:
            return "stopped before its verdict; the same call goes on"
        verdict = self.report.verdict
        return (verdict and verdict.sentence) or "not computed"

    @property
    def page(self) -> Path:
        """The report as a page that opens offline."""
        return self.folder / "report.html"

    def load_policy(self, seed: int = 0) -> SavedPolicy:
        """The winner, trained on all bars before the hold-out, with one of its seeds; whether it
        should be traded is the verdict's to say.
        """
        return load_policy(policy_folder(self.folder, seed))


def run_study(
    bars: Bars | None = None,
    *,
    name: str = "study",
    symbols: Sequence[str] | None = None,
    bar: str | None = None,
    settings: GivenSettings = None,
    trials: int | None = None,
    timesteps: int | None = None,
    seeds: int | None = None,
    hold_out: float | None = None,
    storage: str | None = None,
    workers: int | None = None,
    engine: EngineName | None = None,
    device: str | None = None,
    out: Path | str = "runs",
    progress: bool = True,
) -> StudyResult:
    """Search settings with cross-validation and judge the winner. The same call goes on after any
    interruption: nothing that was tried is lost.

    bars       a file or folder, a Panel, a Polars or pandas frame; else `data.bars` of the
               settings; else the built-in random walk, on which nothing can be earned
    name       of the study and of its folder in `out`
    settings   a path to flatout.toml, a dict of its tables, or `Settings`
    trials     stands over search.trials (100)
    timesteps  of each trial, split and seed; stands over train.timesteps (100,000)
    seeds      per trial and split; stands over train.seeds (1)
    hold_out   share of the bars at the end, sealed until the winner is judged; stands over
               folds.hold_out (0.15)
    storage    an Optuna storage URL; else a journal in the study's folder
    progress   a bar on a terminal or in a notebook, lines elsewhere
    """
    changes = {
        "search.trials": trials,
        "train.timesteps": timesteps,
        "train.seeds": seeds,
        "train.engine": engine,
        "folds.hold_out": hold_out,
    }
    resolved = resolve_settings(settings, changes)
    asked = AskedStudy(name, resolved, find_source(resolved, bars, symbols, bar))
    prepared, chosen = prepare_studies([asked], Path(out), workers, device)
    with StudyProgress(prepared, quiet=not progress) as shown:
        [result] = run_prepared(prepared, chosen, Path(out), storage, shown)
    return result


def prepare_studies(
    asked: Sequence[AskedStudy], out: Path, workers: int | None, device: str | None
) -> tuple[list[PreparedStudy], DeviceChoice]:
    """Folds, tapes and lanes of some studies that share the machine; nothing is written."""
    names = [study.name for study in asked]
    if len(set(names)) < len(names):
        raise SettingsError(
            "two studies have one name: rename a settings file, as its name becomes the study's"
        )
    engine = agreed_engine([(study.name, study.resolved) for study in asked], out)
    chosen = choose_devices(engine, device, sys.maxsize, workers)
    prepared = []
    for study in asked:
        source = study.source
        request = StudyRequest(study.name, source.given_name, source.symbols, source.bar)
        prepared.append(
            prepare(request, study.resolved, source.read(), len(chosen.slots), out, chosen)
        )
    return prepared, chosen


def run_prepared(
    prepared: Sequence[PreparedStudy],
    chosen: DeviceChoice,
    out: Path,
    storage: str | None,
    shown: StudyProgress,
) -> list[StudyResult]:
    """Run studies to their reports."""
    reports = run_studies(
        prepared,
        chosen.slots,
        out,
        storage,
        on_round=shown.show_round,
        on_stage=shown.show_stage,
    )
    return [
        StudyResult(one.request.name, study_path(out, one.request.name), report)
        for one, report in zip(prepared, reports, strict=True)
    ]
