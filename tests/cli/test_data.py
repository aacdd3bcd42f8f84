"""`flatout data`: the table, the JSON and the converted file."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.cli.data import app
from flatout.errors import BarsError
from session_panels import Times, session_times

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


def test_check_honours_the_settings(bars: Path) -> None:
    settings = bars.parent / "flatout.toml"
    settings.write_text('[data]\nbars = "bars.csv"\nsymbols = ["BBB"]\nbar = "4h"\n')
    said = json.loads(runner.invoke(app, ["check", "-c", str(settings), "--json"]).output)
    assert (said["symbols"], said["bar"], said["bars"]) == (["BBB"], "4h", 12)
    words = ["check", str(bars), "-c", str(settings), "--symbols", "AAA", "--json"]
    assert json.loads(runner.invoke(app, words).output)["symbols"] == ["AAA"]
    refused = runner.invoke(app, ["check"])
    assert "no bars are given: name a file or folder, or give a -c" in str(refused.exception)


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


SYMBOLS_FIRST = ["--symbols", "BBB", "AAA"]


@pytest.mark.parametrize(
    "words",
    [["check", *SYMBOLS_FIRST, "bars.csv", "--json"],
     ["check", *SYMBOLS_FIRST, "folder/", "--json"],
     ["check", "--symbols=BBB,AAA", "bars.csv", "--json"],
     ["convert", *SYMBOLS_FIRST, "bars.csv", "out.parquet", "--json"],
     ["convert", "--json", "bars.csv", *SYMBOLS_FIRST, "out.parquet"]],
    ids=" ".join,
)  # fmt: skip
def test_paths_stand_after_symbols_too(
    bars: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bars.parent)
    Path("folder").mkdir()
    Path("folder", "bars.csv").write_bytes(bars.read_bytes())
    assert json.loads(runner.invoke(app, words).output)["symbols"] == ["BBB", "AAA"]


def test_a_bar_size_joins_bars_in_every_command(bars: Path, tmp_path: Path) -> None:
    found = [
        json.loads(runner.invoke(app, [*words, "--bar", "4h", "--json"]).output)
        for words in (["check", str(bars)], ["convert", str(bars), str(tmp_path / "out.parquet")])
    ]
    assert [(one["bar"], one["bars"]) for one in found] == [("4h", 12)] * 2
    assert (
        found[0]["fingerprint"] == found[1]["fingerprint"] == read_bars(bars, bar="4h").fingerprint
    )


DATA = '[data]\nbars = "bars.csv"\nsymbols = ["BBB"]\nbar = "4h"\ncalendar = "always_open"\n'


@pytest.mark.parametrize(
    ("words", "symbols", "bar"),
    [
        ([], ["BBB"], "4h"),
        (["bars.csv"], ["BBB"], "4h"),
        (["--symbols", "AAA", "--bar", "2h"], ["AAA"], "2h"),
        (["bars.csv", "--symbols", "AAA,BBB"], ["AAA", "BBB"], "4h"),
    ],
)
def test_convert_honours_the_settings(
    bars: Path, words: list[str], symbols: list[str], bar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bars.parent)
    Path("flatout.toml").write_text(DATA)
    for config in (["-c", "flatout.toml"], ["flatout.toml"], ["--config=flatout.toml"]):
        said = json.loads(
            runner.invoke(app, ["convert", *words, "out.parquet", *config, "--json"]).output
        )
        assert (said["symbols"], said["bar"]) == (symbols, bar)
        Path("out.parquet").unlink()


def test_convert_honours_the_environment(bars: Path, tmp_path: Path) -> None:
    words = ["convert", str(tmp_path / "out.parquet"), "--json"]
    said = runner.invoke(app, words, env={"FLATOUT__DATA__BARS": str(bars)})
    assert json.loads(said.output)["fingerprint"] == read_bars(bars).fingerprint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bars.csv"], "bars.csv is the only path: name the bars, then the file to write"),
        (["bars.csv", "-c", "flatout.toml"], "the file to write, but it exists: name the bars"),
        (["bars.csv", "a.parquet", "b.parquet"], "3 paths are given: one of bars, then the file"),
    ],
)
def test_convert_does_not_guess_its_paths(
    bars: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bars.parent)
    Path("flatout.toml").write_text(DATA)
    before = bars.read_bytes()
    assert said in str(runner.invoke(app, ["convert", *words]).exception)
    assert bars.read_bytes() == before


def test_refusals_are_raised_for_the_caller_to_print(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", str(tmp_path / "nowhere.csv")])
    assert isinstance(result.exception, BarsError)


def save_sessions(path: Path, times: Times) -> Path:
    rows = [f"{t.item():%Y-%m-%d %H:%M},10,12,9,11,5,AAA" for t in times]
    path.write_text("\n".join(["date,open,high,low,close,volume,symbol", *rows]) + "\n")
    return path


@pytest.fixture
def new_york(tmp_path: Path) -> Path:
    """Half hours of New York with a bar on a holiday, one after a half day, and one missing."""
    times = session_times("XNYS", 1800, "2023-06-01", "2024-01-31")
    gone = np.datetime64("2023-09-05T13:30", "us")
    added = np.array(["2023-07-04T15:00", "2023-11-24T18:00"], "datetime64[us]")
    return save_sessions(tmp_path / "bars.csv", np.union1d(times[times != gone], added))


def test_a_calendar_shows_what_is_not_in_its_sessions(new_york: Path) -> None:
    result = runner.invoke(app, ["check", str(new_york), "--calendar", "NYSE"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert any("sessions of XNYS" in line for line in lines)
    line = [line for line in lines if "AAA" in line][-1]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "AAA",
        "1, first 2023-07-04 15:00",
        "1, first 2023-11-24 18:00",
        "1, first 2023-09-05 13:30",
    ]
    assert "(XNYS calendar)" in lines[-1]
    assert "bars per year: 3,2" in lines[-1]
    assert "(calendar XNYS: 13 bars a day, 25" in lines[-1]


def test_the_same_in_json(new_york: Path) -> None:
    said = json.loads(
        runner.invoke(app, ["check", str(new_york), "--calendar", "XNYS", "--json"]).output
    )
    assert said["calendar"] == "XNYS"
    assert said["bars_per_year"] == pytest.approx(13 * 251, rel=0.01)
    assert said["sessions"] == [
        {
            "symbol": "AAA",
            "closed_day_bars": 1,
            "first_closed_day_bar": "2023-07-04T15:00:00+00:00",
            "outside_bars": 1,
            "first_outside_bar": "2023-11-24T18:00:00+00:00",
            "missing_bars": 1,
            "first_missing_bar": "2023-09-05T13:30:00+00:00",
        }
    ]
    plain = json.loads(runner.invoke(app, ["check", str(new_york), "--json"]).output)
    assert "sessions" not in plain
    assert plain["trading_year"].endswith("(from the data: 12.9 bars a day, 250 days)")


def test_an_unknown_calendar_is_refused(new_york: Path) -> None:
    result = runner.invoke(app, ["check", str(new_york), "--calendar", "XNYC"])
    assert isinstance(result.exception, BarsError)
    assert "nearest: " in str(result.exception)
    assert "XNYS" in str(result.exception)
