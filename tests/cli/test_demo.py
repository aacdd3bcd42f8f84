"""`flatout demo`: works offline and without arguments, and says what to do next."""

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flatout.cli import demo
from flatout.cli.backtest import built_in_market
from flatout.cli.main import main


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo on fewer bars."""
    monkeypatch.setattr(demo, "built_in_market", partial(built_in_market, 300))


def test_the_whole_demo_as_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert said["policy"] == "equal_weight"
    assert said["source"] == "built-in random walk"
    assert said["symbols"] == ["ALFA", "BETA", "DELTA", "GAMMA", "OMEGA"]
    assert said["bars"] > 3000
    assert set(said["metrics"]) == {"equal_weight", "cash", "buy_and_hold", "momentum"}
    assert {path.name for path in Path(said["run"]).iterdir()} == {
        "about.json", "equity.html", "ledger.csv", "metrics.json", "settings.json",
    }  # fmt: skip


@pytest.mark.usefixtures("short")
def test_people_see_the_figures_and_the_next_step(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for words in ("equal_weight", "Sharpe", "random traders", "ledger.csv", "next: flatout data check"):
        assert words in result.output


@pytest.mark.usefixtures("short")
def test_another_seed_is_another_market(tmp_path: Path) -> None:
    runs = [CliRunner().invoke(main, ["demo", "--json", "--seed", s, "--out", str(tmp_path)]).stdout for s in "112"]
    marks = [json.loads(run)["fingerprint"] for run in runs]
    assert marks[0] == marks[1] != marks[2]
