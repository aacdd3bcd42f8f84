"""A study's folder: made or found again, held by one process, filled until its report is written."""

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import polars as pl

from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.synthetic import built_in_market
from flatout.errors import RunError, SettingsError
from flatout.evaluation.report import write_report
from flatout.learners.devices import Choice
from flatout.learners.engines import engine_of
from flatout.learners.training import alone
from flatout.learners.workers import Slot
from flatout.run_directory import runs_folder, versions, write_bytes, write_json
from flatout.search.closing import FILE as CLOSING
from flatout.search.closing import read_closing
from flatout.search.conduct import Heard, Said, conduct
from flatout.search.judgement import judge
from flatout.search.lanes import CREWS, USUAL_LANES, Layout, make_layout
from flatout.search.market_study import MarketStudy, make_study
from flatout.search.report_facts import as_report
from flatout.search.storage import close_storage, drop_lease, give_lease_back, open_storage, open_study, take_lease
from flatout.search.study import Study
from flatout.settings import EngineName, Resolved, Settings

MAY_CHANGE = ("search.trials",)  # of a study that has begun
TEMPORARY = ".*.????????"  # what `write_bytes` calls a file that is not whole yet


@dataclass(frozen=True)
class Request:
    """Which bars a study is about."""

    name: str
    bars: str | None = None  # a file or folder; the built-in market if not given
    symbols: tuple[str, ...] | None = None
    bar: str | None = None  # resampled to this size


@dataclass(frozen=True)
class Prepared:
    """A study before its workers start."""

    request: Request
    resolved: Resolved
    panel: Panel
    market: MarketStudy
    layout: Layout

    @property
    def source(self) -> str:
        """Where the bars come from, for people."""
        return self.request.bars or "built-in random walk"


def read_panel(request: Request) -> Panel:
    """The bars that a request names."""
    if request.bars is None:
        return built_in_market()
    panel = read_bars(Path(request.bars), symbols=list(request.symbols) if request.symbols else None)
    return resample(panel, request.bar) if request.bar else panel


def prepare(
    request: Request, resolved: Resolved, panel: Panel, workers: int, out: Path, chosen: Choice | None = None
) -> Prepared:
    """Folds, tape and lanes; nothing is written. What memory has decided for a study that exists stays decided."""
    settings = resolved.settings
    search = settings.search
    folder = out / request.name
    begun = read_run(folder)[1] if (folder / "settings.json").exists() else {}  # written last
    train = settings.train
    if train.n_envs is None and begun:
        train = train.model_copy(update={"n_envs": begun["n_envs"]})
    if chosen:
        train = train.model_copy(update={"engine": chosen.engine})
    settings = settings.model_copy(update={"train": train})
    at_once = (CREWS + 1) * USUAL_LANES * workers  # a third crew proves knobs and trains finalists
    market = make_study(panel, settings, at_once, workers, chosen and chosen.free_bytes)
    if "index_only" in begun:  # another program might round differently
        market = replace(market, program=market.program._replace(index_only=begun["index_only"]))
    layout = make_layout(len(market.folds.splits), search.seeds, workers, search.trials, search.batch)
    return Prepared(request, resolved, panel, market, layout)


def agreed_engine(studies: Sequence[tuple[str, Resolved]], out: Path) -> EngineName:
    """The engine that several studies ask for; one that was begun stays with its own."""
    asked: set[EngineName] = set()
    for name, resolved in studies:
        folder, engine = out / name, resolved.settings.train.engine
        if engine == "auto" and (folder / "settings.json").exists():
            engine = read_run(folder)[1].get("engine", "jax")
        asked.add(engine)
    asked.discard("auto")
    if len(asked) > 1:
        raise SettingsError(
            "studies of one command share their workers, but these ask for the engines jax and torch: give --engine, "
            "or run them one after another"
        )
    return asked.pop() if asked else "auto"


def run_studies(
    prepared: Sequence[Prepared],
    slots: Sequence[Slot],
    out: Path,
    storage: str | None,
    heard: Heard,
    said: Said,
    progress: Callable[[int], None] = lambda bar: None,
) -> list[dict[str, Any] | None]:
    """Run studies to their reports; None for one that was told to stop before."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with contextlib.ExitStack() as stack:
        studies = [stack.enter_context(opened(one, study_folder(out, one, storage), storage)) for one in prepared]
        conduct(studies, slots, studies[0].folder / "logs", heard, said)
        return [finish(study, one, said, progress) for study, one in zip(studies, prepared, strict=True)]


def finish(study: Study, prepared: Prepared, said: Said, progress: Callable[[int], None]) -> dict[str, Any] | None:
    """The report of a study whose closing is written down; one that exists stays as it is."""
    if not study.done:
        return None
    path = study.folder / "report.json"
    if path.exists():
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if report["assumptions"]["trials"]["this_study"] == len(study.study.get_trials(deepcopy=False)):
            return report
    closing = read_closing(study)
    found = judge(study, closing, prepared.panel, prepared.source, partial(said, study), progress)
    report = as_report(found)
    write_days(study.folder / "days.csv", report["trades"]["days"])
    write_report(study.folder, report)
    write_json(path, report)
    return report


def write_days(path: Path, days: Sequence[dict[str, Any]]) -> None:
    """The per-day table as CSV."""
    buffer = io.BytesIO()
    pl.DataFrame(days).write_csv(buffer)
    write_bytes(path, buffer.getvalue())


def study_folder(out: Path, prepared: Prepared, url: str | None = None) -> Path:
    """The folder of a study: made with what was asked, or checked against it."""
    folder = runs_folder(out) / prepared.request.name
    folder.mkdir(exist_ok=True)
    with alone(folder):  # a study that runs is not changed
        begin_or_check(folder, prepared, url)
    return folder


def begin_or_check(folder: Path, prepared: Prepared, url: str | None) -> None:
    """Write down what was asked, or compare it with what is written there."""
    asked = prepared.resolved.settings
    if not (folder / "settings.json").exists():
        write_json(
            folder / "about.json",
            {
                "verb": "search", "request": asdict(prepared.request), "fingerprint": prepared.panel.fingerprint,
                "n_envs": prepared.market.program.n_envs, "index_only": prepared.market.program.index_only,
                "engine": engine_of(prepared.market.program.environment), "storage": storage_mark(url),
                "versions": versions(),
            },
        )  # fmt: skip
        write_json(folder / "settings.json", prepared.resolved.model_dump(mode="json"))
        return
    begun, about = read_run(folder)
    if about["fingerprint"] != prepared.panel.fingerprint:
        raise RunError(
            f"{folder} was begun on other bars ({about['fingerprint'][:12]}, these are "
            f"{prepared.panel.fingerprint[:12]}): give those bars, or another --name"
        )
    if about.get("storage") != storage_mark(url):
        where = "in a storage of another URL" if about.get("storage") else "in its own journal, not in a storage"
        raise RunError(f"{folder} keeps its trials {where}: give --storage as it was begun with, or another --name")
    changed = [key for key in differences(begun, asked) if key not in MAY_CHANGE]
    if changed:
        raise RunError(
            f"{folder} was begun with other settings: {', '.join(changed)} differ; gates and all else are fixed when "
            f"a study starts (only {', '.join(MAY_CHANGE)} may grow): set them back, or give another --name"
        )
    if asked.search.trials < begun.search.trials:
        raise RunError(f"{folder} was begun with {begun.search.trials} trials; a study may grow, not shrink")
    if asked.search.trials > begun.search.trials:
        (folder / CLOSING).unlink(missing_ok=True)  # first: a grown study must not find the old one
        write_json(folder / "settings.json", prepared.resolved.model_dump(mode="json"))


def storage_mark(url: str | None) -> str | None:
    """What tells storages apart without telling their passwords."""
    return None if url is None else hashlib.sha256(url.encode()).hexdigest()[:16]


def read_run(folder: Path) -> tuple[Settings, dict[str, Any]]:
    """What a study was begun with."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        resolved = Resolved.model_validate(json.loads((folder / "settings.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RunError(f"{folder} is not the folder of a study: {error}") from None
    return resolved.settings, about


def differences(begun: Settings, asked: Settings) -> list[str]:
    """Dotted names of the settings that differ."""
    return sorted(unlike(begun.model_dump(mode="json"), asked.model_dump(mode="json"), ""))


def unlike(a: Any, b: Any, name: str) -> Iterator[str]:
    """The leaves of two trees that are not equal."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from unlike(a.get(key), b.get(key), f"{name}.{key}" if name else key)
    elif a != b:
        yield name


@contextlib.contextmanager
def opened(prepared: Prepared, folder: Path, url: str | None) -> Iterator[Study]:
    """The study, held by this process alone."""
    with alone(folder):
        tidy(folder)
        storage = open_storage(folder, url)
        try:
            study = open_study(storage, prepared.request.name, prepared.market.settings.search.pruner)
            drop_lease(study, folder)
            take_lease(study, folder)
            try:
                yield Study(folder, prepared.market, study, storage, prepared.layout)
            finally:
                give_lease_back(study)
        finally:
            close_storage(storage)


def tidy(folder: Path) -> None:
    """Remove what a process that was killed left: files that it was writing, arrays for its workers."""
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    for temporary in folder.rglob(TEMPORARY):
        temporary.unlink(missing_ok=True)
