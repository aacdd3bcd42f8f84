"""Small files of bars for the tests, and where the real ones are."""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

HEADER = "date,open,high,low,close,volume,symbol"
MONDAY = datetime(2024, 1, 1)


def times(count: int, minutes: int = 60, start: datetime = MONDAY) -> list[str]:
    return [
        f"{start + index * timedelta(minutes=minutes):%Y-%m-%d %H:%M:%S}" for index in range(count)
    ]


def line(
    date: str, symbol: str = "AAA", prices: Sequence[object] = (10, 12, 9, 11), volume: object = 5
) -> str:
    return ",".join(str(value) for value in (date, *prices, volume, symbol))


def save(path: Path, lines: Iterable[str], header: str | None = HEADER) -> Path:
    path.write_text(
        "\n".join([*([] if header is None else [header]), *lines]) + "\n", encoding="utf-8"
    )
    return path


def real_data(name: str) -> Path:
    """A file of real candles; the test is skipped where there is none."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = Path(os.environ.get("FLATOUT_SHARED_DATA", beside)) / name
    if not path.exists():
        pytest.skip(
            f"real candles are not here: set FLATOUT_SHARED_DATA to the folder that has {name}"
        )
    return path
