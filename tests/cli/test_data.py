"""`flatout data`: the table, the JSON and the converted file."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.cli.data import app
from flatout.errors import BarsError

runner = CliRunner()


@pytest.fixture
def bars(tmp_path: Path) -> Path:
    hours = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(48)]
    rows = [
        f"{t:%Y-%m-%d %H:%M},10,12,9,11,5,{s}"
        for s in ("AAA", "BBB")
        for t in hours
        if s == "AAA" or t.hour != 7
    ]
    path = tmp_path / "bars.csv"
    path.write_text("\n".join(["date,open,high,low,close,volume,symbol", *rows]) + "\n")
    return path


def test_check_shows_a_line_per_symbol_and_a_summary(bars: Path) -> None:
    result = runner.invoke(app, ["check", str(bars)])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    (line,) = [line for line in lines if "BBB" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")][:7] == [
        "BBB", "46", "2024-01-01 00:00", "2024-01-02 23:00", "2", "2", "1 bars",
    ]  # fmt: skip
    assert lines[-1].startswith(
        "2 symbols, 48 bars of 1h (always open), 2024-01-01 00:00 to 2024-01-02 23:00 UTC"
    )
    assert read_bars(bars).fingerprint[:16] in lines[-1]


def test_check_prints_json_only(bars: Path) -> None:
    result = runner.invoke(
        app, ["check", str(bars), "--json", "--symbols", "BBB,AAA", "--bar", "1h"]
    )
    said = json.loads(result.output)
    assert (said["symbols"], said["bar"], said["bars"], said["calendar"]) == (
        ["BBB", "AAA"],
        "1h",
        48,
        "always_open",
    )
    assert said["fingerprint"] == read_bars(bars, symbols=("BBB", "AAA")).fingerprint
    assert said["reports"][0]["missing_bars"] == 2
    assert said["reports"][0]["first"] == "2024-01-01T00:00:00+00:00"


def test_convert_writes_a_file_that_reads_back(bars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    result = runner.invoke(app, ["convert", str(bars), str(out)])
    assert result.exit_code == 0
    assert "2 symbols, 48 bars of 1h" in result.output
    assert read_bars(out).fingerprint == read_bars(bars).fingerprint


def test_convert_resamples(bars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    result = runner.invoke(
        app, ["convert", str(bars), str(out), "--bar", "4h", "--symbols", "BBB", "--json"]
    )
    said = json.loads(result.output)
    assert (said["bar"], said["bars"], said["symbols"]) == ("4h", 12, ["BBB"])
    assert json.loads(Path(said["manifest"]).read_text())["fingerprint"] == said["fingerprint"]
    assert read_bars(out).volume[:, 0].tolist() == [20.0, 15.0, 20.0, 20.0, 20.0, 20.0] * 2


def test_refusals_are_raised_for_the_caller_to_print(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", str(tmp_path / "nowhere.csv")])
    assert isinstance(result.exception, BarsError)
