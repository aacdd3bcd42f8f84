"""Which bars a run is about: what is given, what `[data]` names, or the built-in market."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from flatout.bars.calendars import follow_calendar
from flatout.bars.read import read_bars
from flatout.bars.source import (
    BUILT_IN,
    IN_MEMORY,
    BarsSource,
    find_source,
    select_symbols,
    source_of_request,
    wanted_extras,
)
from flatout.bars.synthetic import RandomWalk, built_in_market
from flatout.bars.write import write_bars
from flatout.errors import BarsError
from flatout.settings.loading import Resolved, load_settings, resolve_settings
from flatout.settings.tables import Settings
from session_panels import panel_at, session_times

WALK = RandomWalk(n_bars=48, seed=1, symbols=("AAA", "BBB", "CCC")).panel()


def settings_in(folder: Path, text: str) -> Resolved:
    (folder / "flatout.toml").write_text(text)
    return load_settings(folder / "flatout.toml", environment={})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    write_bars(WALK, tmp_path / "data" / "walk.parquet")
    return tmp_path / "data" / "walk.parquet"


def test_a_path_in_a_settings_file_is_beside_that_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = settings_in(tmp_path, '[data]\nbars = "data/walk.parquet"\nsymbols = ["CCC", "AAA"]')
    monkeypatch.chdir(file.parent)
    source = find_source(resolved)
    assert source.path == str(file)
    assert source.read().symbols == ("CCC", "AAA")


def test_a_path_from_the_command_line_is_beside_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = load_settings(overrides=['data.bars="data/walk.parquet"'], environment={})
    assert find_source(resolved).path == str(file)
    resolved = load_settings(environment={"FLATOUT__DATA__BARS": "data/walk.parquet"})
    assert find_source(resolved).path == str(file)


def test_what_is_given_wins(file: Path, tmp_path: Path) -> None:
    resolved = settings_in(tmp_path, '[data]\nbars = "nowhere.csv"\nsymbols = ["X"]\nbar = "4h"')
    source = find_source(resolved, file, ["BBB"], "2h")
    assert (source.path, source.symbols, source.bar) == (str(file), ("BBB",), "2h")
    assert source.read().bar_seconds == 7200


def test_symbols_may_be_one_text() -> None:
    assert find_source(resolve_settings({}), WALK, "AAA, BBB").symbols == ("AAA", "BBB")


def test_without_anything_it_is_the_built_in_market() -> None:
    source = find_source(resolve_settings({}), seed=3)
    assert source.name == BUILT_IN
    assert source.read().fingerprint == built_in_market(seed=3).fingerprint


@pytest.mark.parametrize("each", [False, True])
def test_the_built_in_market_has_symbols_of_its_own(each: bool) -> None:
    source = BarsSource(symbols=("BTC",))
    with pytest.raises(BarsError, match="no bars are given"):
        source.read_each() if each else source.read()


def test_a_bar_size_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BarsError, match="7x"):
        find_source(resolve_settings({}), "nowhere.parquet", bar="7x")


def test_some_symbols_of_a_panel_are_those_of_its_file(file: Path) -> None:
    chosen = select_symbols(WALK, ["CCC", "AAA"])
    assert chosen.fingerprint == read_bars(file, symbols=["CCC", "AAA"]).fingerprint
    with pytest.raises(BarsError, match=r"symbols are AAA, DDD; the bars hold AAA, BBB, CCC"):
        select_symbols(WALK, ["AAA", "DDD"])


@pytest.mark.parametrize("kind", ["panel", "frame", "file"])
def test_one_panel_per_symbol(file: Path, kind: str) -> None:
    given = {"panel": WALK, "frame": pl.read_parquet(file), "file": str(file)}[kind]
    panels = BarsSource(given, ("BBB", "AAA")).read_each()
    alone = [read_bars(file, symbols=[name]).fingerprint for name in ("BBB", "AAA")]
    assert [panel.fingerprint for panel in panels] == alone


def test_bars_in_memory_are_kept_once(tmp_path: Path) -> None:
    source = BarsSource(WALK, ("AAA",))
    assert source.name == IN_MEMORY
    kept = source.keep(tmp_path / "bars.parquet")
    assert kept.read().fingerprint == source.read().fingerprint
    before = (tmp_path / "bars.parquet").stat().st_mtime_ns
    assert source.keep(tmp_path / "bars.parquet") == kept
    assert (tmp_path / "bars.parquet").stat().st_mtime_ns == before
    assert kept.keep(tmp_path / "other.parquet") is kept


def test_a_panel_is_the_same_when_it_is_read_back(tmp_path: Path) -> None:
    """Whatever the order of its symbols, and with columns that no feature wants."""
    panel = replace(select_symbols(WALK, ["CCC", "AAA"]), extras={"mood": WALK.close[:, :2]})
    for settings in ({}, {"features": {"indicators": ["return_1", "extra:mood"]}}):
        source = find_source(resolve_settings(settings), panel)
        path = tmp_path / f"{len(settings)}.parquet"
        assert source.keep(path).read().fingerprint == source.read().fingerprint
    assert source.read().fingerprint == panel.fingerprint


def test_a_column_is_wanted_once_whatever_the_bars_it_is_asked_of() -> None:
    names = ["rsi", "4h:extra:mood", "4h:rsi", "extra:mood", "extra:other"]
    settings = Settings.model_validate({"features": {"indicators": names}})
    assert wanted_extras(settings) == ("mood", "other")


def test_bars_of_a_study_in_memory_are_those_it_kept(tmp_path: Path) -> None:
    request = {"bars": IN_MEMORY, "symbols": ["CCC", "AAA"], "bar": None}
    path = tmp_path / "bars.parquet"
    for kept in (None, path):
        with pytest.raises(BarsError, match="in no file: give the same Panel or frame again"):
            source_of_request(request, Settings(), kept)
    source = BarsSource(WALK, ("CCC", "AAA"))
    source.keep(path)
    found = source_of_request(request, Settings(), path).read()
    assert found.fingerprint == source.read().fingerprint


def test_other_bars_under_the_same_name_are_found_out(tmp_path: Path) -> None:
    BarsSource(WALK).keep(tmp_path / "bars.parquet")
    other = replace(WALK, volume=2 * WALK.volume)
    with pytest.raises(BarsError, match="are not those that were read back"):
        BarsSource(other).keep(tmp_path / "bars.parquet")


def test_the_calendar_of_the_settings_reaches_the_bars(tmp_path: Path) -> None:
    times = session_times("XLON", 3600, "2023-01-02", "2023-03-31")
    write_bars(panel_at(times, 3600), tmp_path / "bars.parquet")
    resolved = settings_in(tmp_path, '[data]\nbars = "bars.parquet"\ncalendar = "LSE"')
    for panel in (find_source(resolved).read(), find_source(resolved, symbols="A").read_each()[0]):
        assert (panel.trading_year.calendar, panel.n_bars) == ("XLON", len(times))
    in_memory = find_source(resolved, panel_at(times, 3600))
    assert in_memory.read().trading_year.calendar == "XLON"
    larger = find_source(resolved, bar="3h").read()
    assert (larger.trading_year.calendar, larger.bar_seconds) == ("XLON", 3 * 3600)
    with pytest.raises(BarsError, match=r"nearest: .*XLON"):
        find_source(settings_in(tmp_path, '[data]\ncalendar = "XLO"'))


def test_a_calendar_goes_on_with_the_bars_that_are_kept(tmp_path: Path) -> None:
    times = session_times("XLON", 3600, "2023-01-02", "2023-03-31")
    panel = follow_calendar(panel_at(times, 3600), "XLON")
    source = find_source(resolve_settings({}), panel)
    assert source.calendar == "XLON"
    kept = source.keep(tmp_path / "bars.parquet")
    assert kept.read().trading_year == source.read().trading_year == panel.trading_year
    request = {"bars": IN_MEMORY, "symbols": ["A"], "bar": None, "calendar": "XLON"}
    later = source_of_request(request, Settings(), tmp_path / "bars.parquet")
    assert later.read().trading_year == panel.trading_year


def test_studies_from_before_calendars_are_still_read(tmp_path: Path) -> None:
    write_bars(WALK, tmp_path / "bars.parquet")
    request = {"bars": str(tmp_path / "bars.parquet"), "symbols": None, "bar": None}
    assert source_of_request(request, Settings()).calendar is None


def test_a_part_in_memory_counts_its_own_bars_as_its_file_would(tmp_path: Path) -> None:
    whole = panel_at(session_times("XNYS", 3600, "2022-01-03", "2023-12-29"), 3600)
    source = find_source(resolve_settings({}), whole.rows(0, 500))
    assert source.read().trading_year == source.keep(tmp_path / "bars.parquet").read().trading_year
    assert source.read().trading_year.origin == "short"
