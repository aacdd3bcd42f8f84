"""A study that was begun: what is asked now beside what was asked then, and the bars that it
keeps.
"""

import hashlib
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from flatout.bars.panel import Panel
from flatout.bars.source import BUILT_IN, IN_MEMORY, BarsSource, source_of_request
from flatout.bars.write import manifest_path
from flatout.errors import BarsError, RunError
from flatout.evaluation.skill import PARTS
from flatout.file_names import file_name
from flatout.foreign import JsonTable, shorten_repr
from flatout.search.about_study import ABOUT, NO_WEIGHTS, SETTINGS, is_begun, read_run
from flatout.search.control_results import FILE as CONTROLS
from flatout.search.study_state import FILE as STATE
from flatout.settings.tables import Settings
from flatout.training.prepare import KEPT_BARS

MAY_CHANGE = ("search.trials",)
ANYWHERE = ("search.registry",)  # where trials are counted changes none of them


def find_study_bars(folder: Path, name: str, asked: Settings, given: BarsSource) -> BarsSource:
    """The bars of a study: those that are given. One that was begun with bars in memory goes on
    with those that it kept, if none are given; other settings than its own are refused before any
    bars are read.
    """
    if not is_begun(folder):
        return given
    begun, about = read_run(folder)
    check_weights(folder, about)
    check_name(folder, about["request"]["name"], name)
    check_settings(folder, begun, asked)
    if given.bars is not None or about["request"]["bars"] != IN_MEMORY:
        return given
    kept = source_of_request(about["request"], begun, folder / KEPT_BARS)
    for name, now, then in (
        ("symbols", given.symbols, kept.symbols),
        ("bar", given.bar, kept.bar),
    ):
        if now is not None and then is not None and now != then:
            raise RunError(
                f"{folder} was begun with {name} {describe_names(then)}, not "
                f"{describe_names(now)}: leave it out, or give another `name`"
            )
    return replace(kept, symbols=kept.symbols or given.symbols, bar=kept.bar or given.bar)


def forget_study(folder: Path) -> None:
    """Take back the beginning of a study that has no trial, so that its name may be given again
    with other settings. Killed on the way, it is still begun.
    """
    for name in ("checkpoints", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    kept = folder / KEPT_BARS
    for path in (
        kept,
        manifest_path(kept),
        folder / CONTROLS,
        folder / STATE,
        folder / SETTINGS,  # without which nothing is begun
        folder / ABOUT,
    ):
        path.unlink(missing_ok=True)


def describe_names(value: str | tuple[str, ...]) -> str:
    """A bar size or symbols, for a message."""
    return value if isinstance(value, str) else ", ".join(value)


def check_weights(folder: Path, about: JsonTable) -> None:
    """Refuse a study whose trials kept no weights, or other sums of them: its winner could not be
    judged.
    """
    if about.get("weights") != PARTS:
        raise RunError(f"{folder}: {NO_WEIGHTS}")


def check_name(folder: Path, begun: str, asked: str) -> None:
    """Refuse a folder that was renamed: its storage knows the study by the name at its start."""
    if begun != asked:
        raise RunError(
            f"{folder} holds the study {shorten_repr(begun)}, begun under that name: call the "
            f"folder {file_name(begun)} again and give this `name`, or give another"
        )


def check_begun(
    folder: Path, name: str, asked: Settings, fingerprint: str, url: str | None
) -> None:
    """Compare what is asked with what a study was begun with."""
    begun, about = read_run(folder)
    check_weights(folder, about)
    check_name(folder, about["request"]["name"], name)
    if about["fingerprint"] != fingerprint:
        kept = " or none, as it has kept them" if (folder / KEPT_BARS).exists() else ""
        source = about["request"]["bars"] or BUILT_IN
        raise RunError(
            f"{folder} was begun on other bars ({source}, {about['fingerprint'][:12]}; these are "
            f"{fingerprint[:12]}): give those bars{kept}, or another `name`"
        )
    if about.get("storage") != storage_mark(url):
        where = (
            "in a storage of another URL"
            if about.get("storage")
            else "in its own journal, not in a storage"
        )
        raise RunError(
            f"{folder} keeps its trials {where}: give `storage` as it was begun with, or "
            f"another `name`"
        )
    check_settings(folder, begun, asked)


def check_settings(folder: Path, begun: Settings, asked: Settings) -> None:
    """Refuse other settings than those that a study was begun with; its trials may become more."""
    free = (*MAY_CHANGE, *ANYWHERE)
    changed = [key for key in list_differences(begun, asked) if key not in free]
    if changed:
        raise RunError(
            f"{folder} was begun with other settings: {', '.join(changed)} differ; gates and all "
            f"else are fixed when a study starts (only {', '.join(MAY_CHANGE)} may grow): set "
            "them back, or give another `name`"
        )
    if asked.search.trials < begun.search.trials:
        raise RunError(
            f"{folder} was begun with {begun.search.trials} trials; a study may grow, not shrink"
        )


def list_differences(begun: Settings, asked: Settings) -> list[str]:
    """Dotted names of the settings that differ."""
    return sorted(
        list_unequal_leaves(begun.model_dump(mode="json"), asked.model_dump(mode="json"), "")
    )


def list_unequal_leaves(a: Any, b: Any, name: str) -> Iterator[str]:
    """The dotted names of the leaves in which two trees differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from list_unequal_leaves(a.get(key), b.get(key), f"{name}.{key}" if name else key)
    elif a != b:
        yield name


def storage_mark(url: str | None) -> str | None:
    """What tells storages apart without telling their passwords."""
    return None if url is None else hashlib.sha256(url.encode()).hexdigest()[:16]


def keep_bars(folder: Path, panel: Panel, calendar: str | None = None) -> None:
    """Write bars that were in memory into the folder of their study, so that it can go on without
    them. Those that a file would not give back as they are stay the caller's to give again, which
    a warning says.
    """
    begun, about = read_run(folder)
    kept = folder / KEPT_BARS
    if about["request"]["bars"] != IN_MEMORY or kept.exists():
        return
    reason = "a file would not give them back as they are"
    try:
        BarsSource(panel, calendar=calendar).keep(kept)
        found = source_of_request(about["request"], begun, kept).read()
        if found.fingerprint == about["fingerprint"]:
            return
    except BarsError as error:
        reason = str(error)
    for path in (kept, manifest_path(kept)):
        path.unlink(missing_ok=True)
    warnings.warn(
        f"{folder}: the bars are not kept, so give them again when the study goes on: {reason}",
        stacklevel=2,
    )
