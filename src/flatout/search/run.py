"""A study's folder: made or found again, held by one process, filled until its report is
written.
"""

import contextlib
import io
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import optuna
import polars as pl

from flatout.bars.panel import Panel
from flatout.bars.source import BUILT_IN
from flatout.errors import RunError, SettingsError
from flatout.evaluation.skill import PARTS
from flatout.foreign import shorten_repr
from flatout.learners.engines import engine_of
from flatout.runs import LOCK, hold_folder, runs_folder, sweep, versions, write_bytes, write_json
from flatout.search.about_study import ABOUT, CURE, SETTINGS, is_begun, study_path
from flatout.search.about_study import read_run as read_run
from flatout.search.begun_study import check_begun, keep_bars, storage_mark
from flatout.search.callbacks import OnBar, OnNote, OnRound, OnStage
from flatout.search.finalist_results import FILE as FINALIST_RESULTS
from flatout.search.finalist_results import read_finalist_results
from flatout.search.judgement import EdgeRule, judge_study
from flatout.search.lane_layout import LANE_BATCHES, USUAL_LANES, Layout, make_layout
from flatout.search.market_study import MarketStudy, make_study
from flatout.search.pruners import make_pruner
from flatout.search.report_facts import make_report
from flatout.search.report_file import read_report, write_report
from flatout.search.report_model import DayRow, StudyReport
from flatout.search.report_page import write_page
from flatout.search.scheduler import run_scheduler
from flatout.search.space import make_distributions
from flatout.search.storage import (
    JOURNAL,
    close_storage,
    drop_lease,
    explain_storage_errors,
    give_lease_back,
    open_storage,
    open_study,
    place_of,
    take_lease,
)
from flatout.search.stored_studies import to_stored_trial
from flatout.search.study import Study
from flatout.search.study_entry import keep_identity, make_entry, make_id
from flatout.settings.loading import Resolved
from flatout.settings.study import Knob
from flatout.settings.train import EngineName
from flatout.workers.devices import DeviceChoice
from flatout.workers.slots import Slot


@dataclass(frozen=True)
class StudyRequest:
    """Which bars a study is about."""

    name: str
    bars: str | None = None  # a file or folder; the built-in market if not given
    symbols: tuple[str, ...] | None = None
    bar: str | None = None  # resampled to this size
    calendar: str | None = None  # from the bars if not given


@dataclass(frozen=True)
class PreparedStudy:
    """A study before its workers start."""

    request: StudyRequest
    resolved: Resolved
    panel: Panel
    market: MarketStudy
    layout: Layout
    known_rule: EdgeRule | None = None  # where the edge was planted

    @property
    def source(self) -> str:
        """Where the bars come from, for people."""
        return self.request.bars or BUILT_IN


def prepare(
    request: StudyRequest,
    resolved: Resolved,
    panel: Panel,
    workers: int,
    out: Path,
    chosen: DeviceChoice | None = None,
) -> PreparedStudy:
    """Folds, tape and lanes; nothing is written. What memory has decided for a study that exists
    stays decided.
    """
    resolved = resolved.model_copy(update={"settings": resolved.settings.for_study()})
    settings = resolved.settings
    search = settings.search
    folder = study_path(out, request.name)
    begun = read_run(folder)[1] if is_begun(folder) else {}
    train = settings.train
    if train.n_envs is None and begun:
        train = train.model_copy(update={"n_envs": begun["n_envs"]})
    if chosen:
        train = train.model_copy(update={"engine": chosen.engine})
    settings = settings.model_copy(update={"train": train})
    at_once = (
        (LANE_BATCHES + 1) * USUAL_LANES * workers
    )  # a spare batch checks knobs and trains finalists
    market = make_study(panel, settings, at_once, workers, free=chosen and chosen.free_bytes)
    if "index_only" in begun:  # another program might round differently
        market = replace(market, program=market.program._replace(index_only=begun["index_only"]))
    layout = make_layout(
        len(market.folds.splits), settings.train.seeds, workers, search.trials, search.batch
    )
    return PreparedStudy(request, resolved, panel, market, layout)


def agreed_engine(studies: Sequence[tuple[str, Resolved]], out: Path) -> EngineName:
    """The engine that several studies ask for; one that was begun stays with its own."""
    asked: set[EngineName] = set()
    for name, resolved in studies:
        folder, engine = study_path(out, name), resolved.settings.train.engine
        if engine == "auto" and is_begun(folder):
            engine = read_run(folder)[1].get("engine", "jax")
        asked.add(engine)
    asked.discard("auto")
    if len(asked) > 1:
        raise SettingsError(
            "studies of one command share their workers, but these ask for the engines jax and "
            "torch: give `engine`, or run them one after another"
        )
    return asked.pop() if asked else "auto"


def run_studies(
    prepared: Sequence[PreparedStudy],
    slots: Sequence[Slot],
    out: Path,
    storage: str | None,
    on_round: OnRound,
    on_stage: OnStage,
    progress: OnBar = lambda bar: None,
    on_note: OnNote = lambda study, note: None,
) -> list[StudyReport | None]:
    """Run studies to their reports; None for one that was asked to stop before."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with contextlib.ExitStack() as stack:
        studies = [
            stack.enter_context(open_study_folder(one, make_folder(out, one.request.name), storage))
            for one in prepared
        ]
        logs = studies[0].folder / "logs"
        run_scheduler(studies, slots, logs, on_round=on_round, on_stage=on_stage, on_note=on_note)
        return [
            write_missing_report(study, one, on_stage, progress)
            for study, one in zip(studies, prepared, strict=True)
        ]


def write_missing_report(
    study: Study, prepared: PreparedStudy, on_stage: OnStage, progress: OnBar
) -> StudyReport | None:
    """The report of a study whose finalists were judged, written unless it exists; None for a
    study that is not over.
    """
    if not study.done:
        return None
    known = read_report(study.folder)
    if known and known.judged_trials == len(study.optuna_study.get_trials(deepcopy=False)):
        return known
    judgement = judge_study(
        study,
        read_finalist_results(study),
        prepared.panel,
        prepared.source,
        on_stage=partial(on_stage, study),
        progress=progress,
        known_rule=prepared.known_rule,
    )
    report = make_report(judgement)
    write_days(study.folder / "days.csv", (report.trades and report.trades.days) or ())
    write_page(study.folder, report)
    write_report(study.folder, report)
    return report


def write_days(path: Path, days: Sequence[DayRow]) -> None:
    """The per-day table as CSV."""
    buffer = io.BytesIO()
    pl.DataFrame([day.facts() for day in days]).write_csv(buffer)
    write_bytes(path, buffer.getvalue())


def make_folder(out: Path, name: str) -> Path:
    """The folder of a study, made if it is new."""
    folder = study_path(runs_folder(out), name)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{folder}: cannot be used for a study: {error.strerror}; give another `name` or `out`"
        ) from None
    return folder


def check_empty(folder: Path) -> None:
    """Refuse to begin a study among somebody's files; what a start that was cut off has left is no
    hindrance.
    """
    sweep(folder)
    others = sorted(
        {path.name for path in folder.iterdir()} - {LOCK, JOURNAL, f"{JOURNAL}.lock", ABOUT}
    )
    if others:
        raise RunError(
            f"{folder} is no study that could go on, and not empty: it holds "
            f"{shorten_repr(others)}; give another `name` "
            f"or `out`, or restore its {SETTINGS}"
        )


def write_request(folder: Path, prepared: PreparedStudy, url: str | None) -> None:
    """Write down what was asked for: all of it of a new study, and that one has grown."""
    program, asked = prepared.market.program, prepared.resolved
    if not is_begun(folder):
        about = {
            "verb": "search", "request": asdict(prepared.request),
            "fingerprint": prepared.panel.fingerprint,
            "n_envs": program.n_envs, "index_only": program.index_only,
            "engine": engine_of(program.environment),
            "storage": storage_mark(url), "weights": PARTS, "versions": versions(),
            "id": make_id(),
        }  # fmt: skip
        write_json(folder / ABOUT, about)
    elif asked.settings.search.trials == read_run(folder)[0].search.trials:
        return
    else:
        (folder / FINALIST_RESULTS).unlink(
            missing_ok=True
        )  # first: a grown study must not find the old one
    write_json(folder / SETTINGS, asked.model_dump(mode="json"))


@contextlib.contextmanager
def open_study_folder(prepared: PreparedStudy, folder: Path, url: str | None) -> Iterator[Study]:
    """The study, held by this process alone. What was asked is written down once the storage is
    open: a mistyped URL must not stay with the study.
    """
    with hold_folder(folder):
        if is_begun(folder):
            asked = prepared.resolved.settings
            name = prepared.request.name
            check_begun(folder, name, asked, prepared.panel.fingerprint, url)
            remove_leftovers(folder)
        else:
            check_empty(folder)
        storage = open_storage(folder, url)
        try:
            search, rungs = prepared.market.settings.search, prepared.market.rungs
            pruner = make_pruner(search.pruner, rungs, search.finalists)
            study = open_study(storage, prepared.request.name, pruner)
            drop_lease(study, folder, url is None)
            take_lease(study, folder)
            try:
                write_request(folder, prepared, url)
                keep_identity(folder)
                keep_bars(folder, prepared.panel, prepared.request.calendar)
                entry = make_entry(folder, prepared.market, prepared.panel)
                entry.check_registry()
                with explain_storage_errors(place_of(folder, url)):
                    check_trials(
                        study, prepared.market.settings.search.space, place_of(folder, url)
                    )
                yield Study(
                    folder=folder,
                    market=prepared.market,
                    optuna_study=study,
                    storage=storage,
                    layout=prepared.layout,
                    entry=entry,
                )
            finally:
                give_lease_back(study)
        finally:
            close_storage(storage)


def check_trials(study: optuna.Study, space: Mapping[str, Knob], where: str) -> None:
    """Refuse trials that this study has not drawn."""
    wanted = make_distributions(space)
    for trial in study.get_trials(deepcopy=False):
        to_stored_trial(trial, where)
        unlike_asked = [
            name for name, drawn in trial.distributions.items() if wanted.get(name) != drawn
        ]
        unlike_asked += [
            name
            for name, drawn in trial.distributions.items()
            if not drawn._contains(drawn.to_internal_repr(trial.params[name]))
        ]
        complete = trial.state == optuna.trial.TrialState.COMPLETE
        if unlike_asked or (trial.state.is_finished() and set(trial.params) != set(wanted)):
            raise RunError(f"{where}: trial {trial.number} was not drawn from search.space; {CURE}")
        if complete and (trial.value is None or not math.isfinite(trial.value)):
            raise RunError(f"{where}: trial {trial.number} is complete without a value; {CURE}")


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed left: files that it was writing, arrays for its
    workers.
    """
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    sweep(folder, deep=True)
