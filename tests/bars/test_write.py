"""What is written is what was read: columns, manifest, fingerprint, and never half a file."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bar_files import HEADER, line, real_data, save, times
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.bars.panel import Panel
from flatout.bars.probing import probing
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.write import write_bars
from flatout.errors import BarsError


def sample(tmp_path: Path) -> Panel:
    """Two symbols; BBB begins late, has a gap and a flat bar without volume."""
    dates = times(40)
    rows = [f"{line(t)},{index}" for index, t in enumerate(dates)]
    rows += [f"{line(t, 'BBB')}," for t in dates[5:20]]
    rows += [
        f"{line(dates[20], 'BBB', (11, 11, 11, 11), 0)},",
        *(f"{line(t, 'BBB')},1" for t in dates[25:]),
    ]
    return read_bars(save(tmp_path / "x.csv", rows, f"{HEADER},signal"), extras=("signal",))


def test_reading_back_gives_the_same_panel(tmp_path: Path) -> None:
    panel = sample(tmp_path)
    write_bars(panel, tmp_path / "out" / "bars.parquet")
    again = read_bars(tmp_path / "out" / "bars.parquet", extras=("signal",))
    assert again.fingerprint == panel.fingerprint
    np.testing.assert_array_equal(again.exists, panel.exists)


def test_columns_and_types(tmp_path: Path) -> None:
    write_bars(sample(tmp_path), tmp_path / "bars.parquet")
    frame = pl.read_parquet(tmp_path / "bars.parquet")
    assert frame.columns == ["date", "open", "high", "low", "close", "volume", "symbol", "signal"]
    assert frame.schema["date"] == pl.Datetime("us", "UTC")
    assert frame.height == 40 + 31
    assert frame["symbol"].to_list() == ["AAA"] * 40 + ["BBB"] * 31


def test_manifest(tmp_path: Path) -> None:
    panel = sample(tmp_path)
    path = tmp_path / "bars.parquet"
    manifest = write_bars(panel, path)
    assert manifest == tmp_path / "bars.manifest.json"
    facts = json.loads(manifest.read_text())
    assert facts["fingerprint"] == panel.fingerprint
    assert facts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (facts["rows"], facts["symbols"], facts["bar"]) == (71, ["AAA", "BBB"], "1h")
    assert (facts["first"], facts["last"]) == (
        "2024-01-01T00:00:00+00:00",
        "2024-01-02T15:00:00+00:00",
    )
    assert facts["gaps"]["AAA"] == {"missing_bars": 0, "gaps": 0, "longest_gap_bars": 0}
    assert facts["gaps"]["BBB"] == {"missing_bars": 4, "gaps": 1, "longest_gap_bars": 4}


def test_cut_panels_keep_their_grid(tmp_path: Path) -> None:
    panel = sample(tmp_path)

    @given(start=st.integers(0, 30), length=st.integers(4, 10))
    @settings(max_examples=30, deadline=None)
    def holds(start: int, length: int) -> None:
        part = panel.rows(start, start + length)
        write_bars(part, tmp_path / "bars.parquet")
        again = read_bars(tmp_path / "bars.parquet", bar="1h", extras=("signal",))
        assert again.time.tolist() == part.time.tolist()

    with probing():
        holds()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = sample(tmp_path)
    path = tmp_path / "out" / "bars.parquet"
    write_bars(panel, path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(
        BarsError, match=r"bars\.parquet: it cannot be written: disk full\. Choose another place"
    ):
        write_bars(panel.rows(0, 10), path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_what_was_assumed_stands_in_the_manifest(tmp_path: Path) -> None:
    panel = sample(tmp_path)
    manifests = [
        write_bars(panel, tmp_path / f"{len(given)}.parquet", given)
        for given in ((), ("no gaps", "no fees"))
    ]
    facts = [json.loads(manifest.read_text()).get("assumed") for manifest in manifests]
    assert facts == [None, ["no gaps", "no fees"]]


def test_refusals(tmp_path: Path) -> None:
    panel = sample(tmp_path)
    with pytest.raises(BarsError, match=r"bars\.csv: bars are written as \.parquet only"):
        write_bars(panel, tmp_path / "bars.csv")
    nothing = np.full((3, 1), np.nan)
    empty = Panel(
        ("A",), panel.time[:3], 3600, nothing, nothing, nothing, nothing, nothing * 0, nothing > 0
    )
    with pytest.raises(BarsError, match=r"bars\.parquet: the panel has no bars"):
        write_bars(empty, tmp_path / "bars.parquet")


@pytest.mark.parametrize("name", ["btc_spot_1h_2017_2024.parquet", "dow29_daily_2009_2023.parquet"])
def test_real_candles_come_back(tmp_path: Path, name: str) -> None:
    panel = read_bars(real_data(name))
    write_bars(panel, tmp_path / "bars.parquet")
    assert read_bars(tmp_path / "bars.parquet").fingerprint == panel.fingerprint


def test_resampled_real_candles_come_back(tmp_path: Path) -> None:
    panel = resample(read_bars(real_data("crypto_spot_1h_30coins_2021H1.parquet")), "4h")
    write_bars(panel, tmp_path / "bars.parquet")
    assert read_bars(tmp_path / "bars.parquet").fingerprint == panel.fingerprint
