"""A study's place in the registry of trials: who it is, and which bars it sees."""

import uuid
from datetime import UTC, datetime
from pathlib import Path

from flatout.bars.panel import Panel
from flatout.errors import RunError
from flatout.evaluation.daily_moves import list_daily_moves
from flatout.evaluation.seen_bars import span_of
from flatout.evaluation.trial_registry import (
    HoldOutLook,
    StudyEntry,
    StudyRecord,
    registry_folder,
)
from flatout.folds.blocks import Block
from flatout.folds.seal import DAMAGED, LOG, openings
from flatout.foreign import read_json
from flatout.runs import write_json
from flatout.search.about_study import ABOUT, CURE, read_run
from flatout.search.market_study import MarketStudy


def make_id() -> str:
    """The id of a study that begins: no other one has it, whatever it is called."""
    return uuid.uuid4().hex


def keep_identity(folder: Path) -> None:
    """Give an id to a study that an earlier version began. That version counted its trials by its
    folder, which is kept beside it, so that they are not counted twice.
    """
    if "id" in read_run(folder)[1]:
        return
    about = read_json(folder / ABOUT, dict[str, object], RunError, CURE)
    identity = {"id": make_id(), "counted_as": str(folder.resolve())}
    write_json(folder / ABOUT, {**about, **identity})


def make_entry(folder: Path, market: MarketStudy, panel: Panel) -> StudyEntry:
    """The entry of a study that has begun, of which all bars are given, the sealed ones too."""
    about, folds = read_run(folder)[1], market.folds
    judged = Block(folds.groups[folds.judged[0]].first, folds.groups[folds.judged[-1]].stop)
    record = StudyRecord(
        id=about["id"],
        folder=str(folder.resolve()),
        fingerprint=panel.fingerprint,
        symbols=panel.symbols,
        bar_seconds=panel.bar_seconds,
        judged=span_of(panel, judged),
        hold_out=span_of(panel, folds.hold_out) if folds.hold_out.length else None,
        begun=datetime.now(UTC),
        counted_as=about.get("counted_as"),
        openings=tuple(HoldOutLook(read_time(folder, o.time), o.what) for o in openings(folder)),
        daily_moves=list_daily_moves(panel, stop=folds.cut),
    )
    return StudyEntry(registry_folder(market.settings.search.registry), record)


def read_time(folder: Path, text: str) -> datetime:
    """When a hold-out was opened, as the log of its study says."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RunError(f"{folder / LOG}: {text[:80]!r} is no time; {DAMAGED}") from None
