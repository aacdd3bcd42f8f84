"""`flatout.run_study`: settings searched with cross-validation, and a verdict on the winner."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.bars.source import IN_MEMORY, Bars, BarsSource, find_source
from flatout.errors import RunError, SettingsError
from flatout.evaluation.saved_policy import SavedPolicy, load_policy
from flatout.foreign import shorten, shorten_repr, to_path
from flatout.interrupts import keep_interrupts
from flatout.search.about_study import study_path
from flatout.search.begun_study import find_study_bars
from flatout.search.finalist_results import policy_folder
from flatout.search.progress import StudyProgress
from flatout.search.report_model import StudyReport
from flatout.search.run import PreparedStudy, StudyRequest, agreed_engine, prepare, run_studies
from flatout.settings.loading import GivenSettings, Resolved, resolve_settings
from flatout.settings.train import EngineName
from flatout.workers.devices import DeviceChoice, choose_devices

LONGEST_SENTENCE = 300  # letters of a verdict in a line about a study


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

    def __repr__(self) -> str:
        """One line: where it lies, and its verdict."""
        return f"StudyResult({str(self.folder)!r}: {shorten(self.sentence, LONGEST_SENTENCE)})"

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
               settings; else the built-in random walk, on which nothing can be earned. Those in
               memory are kept in the study's folder, which goes on without them; a warning says
               so where a file cannot hold them
    name       of the study and of its folder in `out`
    symbols    which of the bars' symbols it trades, as one portfolio; else all of them
    bar        resample to this bar size, as in "4h"
    settings   a path to flatout.toml, a dict of its tables, or `Settings`. FLATOUT__ variables
               stand over a path or None, as in the shell; a dict and `Settings` are taken alone
    trials     stands over search.trials (100)
    timesteps  of each trial, split and seed; stands over train.timesteps (100,000)
    seeds      per trial and split; stands over train.seeds (1)
    hold_out   share of the bars at the end, sealed until the winner is judged; stands over
               folds.hold_out (0.15)
    storage    an Optuna storage URL; else a journal in the study's folder
    workers    processes; else one per GPU or CPU core
    engine     "jax", "torch" or "auto"; stands over train.engine
    device     "cpu", "cuda", "cuda:1", "rocm", "mps"; else the best there is
    out        the folder in which the study's own folder is made
    progress   a bar on a terminal or in a notebook, lines elsewhere
    """
    changes = {
        "search.trials": trials,
        "train.timesteps": timesteps,
        "train.seeds": seeds,
        "train.engine": engine,
        "folds.hold_out": hold_out,
    }
    folder = to_path(out, "`out`")
    check_text("`name`", name)
    if storage is not None:
        check_text("`storage`", storage)
    resolved = resolve_settings(settings, changes)
    asked = AskedStudy(name, resolved, find_source(resolved, bars, symbols, bar))
    prepared, chosen = prepare_studies([asked], folder, workers, device)
    with keep_interrupts(), StudyProgress(prepared, quiet=not progress) as shown:
        [result] = run_prepared(prepared, chosen, folder, storage, shown)
    return result


def check_text(argument: str, given: object) -> None:
    """Refuse what is no text, or an empty one."""
    if not isinstance(given, str) or not given.strip():
        raise RunError(f"{argument} is {shorten_repr(given)}: give a text")


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
        asked_settings = study.resolved.settings.for_study()
        folder = study_path(out, study.name)
        source = find_study_bars(folder, study.name, asked_settings, study.source)
        given_name = IN_MEMORY if source is not study.source else source.given_name
        request = StudyRequest(study.name, given_name, source.symbols, source.bar, source.calendar)
        prepared.append(
            prepare(
                request,
                study.resolved,
                source.read(),
                workers=len(chosen.slots),
                out=out,
                chosen=chosen,
            )
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
        on_note=shown.show_note,
    )
    return [
        StudyResult(one.request.name, study_path(out, one.request.name), report)
        for one, report in zip(prepared, reports, strict=True)
    ]
