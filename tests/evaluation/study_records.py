"""Records of studies for the tests of this folder: days since 2024 and symbols, and no more."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flatout.evaluation.seen_bars import SeenBars, TimeSpan
from flatout.evaluation.trial_registry import StudyEntry, StudyRecord

START = datetime(2024, 1, 1, tzinfo=UTC)
BARS = "0f3a" * 16


def days(first: float, end: float) -> TimeSpan:
    return TimeSpan(START + timedelta(days=first), START + timedelta(days=end))


def bars(first: float, end: float, *symbols: str) -> SeenBars:
    return SeenBars(symbols or ("BTC", "ETH"), days(first, end))


def record(
    name: str,
    judged: tuple[float, float] = (0, 85),
    hold_out: tuple[float, float] | None = (85, 100),
    symbols: Sequence[str] = ("BTC", "ETH"),
    **changes: Any,
) -> StudyRecord:
    """A study of a hundred days, unless said otherwise."""
    facts = {
        "id": hashlib.md5(name.encode()).hexdigest(),
        "folder": f"/runs/{name}",
        "fingerprint": BARS,
        "symbols": tuple(symbols),
        "bar_seconds": 3600,
        "judged": days(*judged),
        "hold_out": days(*hold_out) if hold_out else None,
        "begun": START,
    }
    return StudyRecord(**{**facts, **changes})


def enter(registry: Path, name: str, trials: int, **changes: Any) -> StudyEntry:
    """A study that has started so many trials."""
    entry = StudyEntry(registry, record(name, **changes))
    entry.note_trials(trials)
    return entry
