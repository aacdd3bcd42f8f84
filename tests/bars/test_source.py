"""Which bars a run is about: what is given, what `[data]` names, or the built-in market."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from flatout.bars.read import read_bars
from flatout.bars.source import BUILT_IN, IN_MEMORY, BarsSource, find_source, select_symbols
from flatout.bars.synthetic import RandomWalk, built_in_market
from flatout.bars.write import write_bars
from flatout.errors import BarsError
from flatout.settings.loading import Resolved, load_settings, resolve_settings

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


def test_other_bars_under_the_same_name_are_found_out(tmp_path: Path) -> None:
    BarsSource(WALK).keep(tmp_path / "bars.parquet")
    other = replace(WALK, volume=2 * WALK.volume)
    with pytest.raises(BarsError, match="are not those that were read back"):
        BarsSource(other).keep(tmp_path / "bars.parquet")
