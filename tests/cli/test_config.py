"""`flatout config show`: the settings in force and where each came from."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.cli.config import flatten
from flatout.cli.main import main
from flatout.errors import SettingsError
from flatout.settings.tables import Settings


def show(*words: str) -> Result:
    return CliRunner().invoke(main, ["config", "show", *words])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "flatout.toml"
    path.write_text("[market]\ncapital = 2000.0\nfill = 'next_close'\n")
    return path


def test_every_setting_has_a_line() -> None:
    result = show()
    assert result.exit_code == 0
    lines = dict(line.split(" = ", 1) for line in result.output.splitlines())
    assert list(lines) == list(flatten(Settings().model_dump(mode="json")))
    assert (lines["market.capital"], lines["market.fill"]) == ("10000.0", "'next_open'")
    assert lines["market.limits.trailing_stop"] == "None"


def test_origin_says_where_each_value_came_from(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLATOUT__FEATURES__LOOKBACK", "3")
    result = show("--config", str(config), "--set", "market.capital=5", "--origin")
    lines = result.output.splitlines()
    assert "market.capital = 5.0    # --set market.capital=5" in lines
    assert f"market.fill = 'next_close'    # {config}" in lines
    assert "features.lookback = 3    # FLATOUT__FEATURES__LOOKBACK" in lines
    assert "market.costs.impact = 0.5    # default" in lines


def test_without_origin_no_source_is_shown(config: Path) -> None:
    assert "#" not in show("-c", str(config)).output


def test_json_has_settings_and_origin(config: Path) -> None:
    said = json.loads(show("--config", str(config), "--json").stdout)
    assert Settings.model_validate(said["settings"]).market.capital == 2000
    assert said["origin"]["market.capital"] == str(config)
    assert said["origin"]["market.action"] == "default"
    assert list(said["origin"]) == list(flatten(said["settings"]))


def test_bad_settings_are_refused() -> None:
    assert isinstance(show("--set", "market.capital=none").exception, SettingsError)


def test_flatten_names_every_leaf() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}) == {"a.b": 1, "a.c.d": [2], "e": {}}
