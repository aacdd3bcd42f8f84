"""`flatout import-arrays`: the file it writes, what it says was assumed, and its refusals."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from flatout.bars.read import read_bars
from flatout.bars.synthetic import RandomWalk
from flatout.cli.main import app, main
from flatout.market.market import build_market
from flatout.settings.tables import Settings

WALK = RandomWalk(n_bars=400, symbols=("ETH", "BTC"), bar_seconds=300).panel()
RSI = np.random.default_rng(0).uniform(0, 100, WALK.close.shape)
COMMON = ["--symbols", "ETH", "BTC", "--bar", "5m", "--start", "2024-01-05"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tech = np.stack([WALK.open, WALK.high, WALK.low, WALK.volume, RSI], axis=2).reshape(
        WALK.n_bars, -1
    )
    np.savez(tmp_path / "data.npz", price_array=WALK.close, tech_array=tech)
    np.save(tmp_path / "objects.npy", np.array([[None, 1.0]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "hole.npy", np.where(WALK.close == WALK.close[3, 1], np.nan, WALK.close))
    return tmp_path


def invoke(folder: Path, *words: str) -> Any:
    given = [
        str(folder / word) if word.endswith((".npz", ".npy", ".parquet")) else word
        for word in words
    ]
    return CliRunner().invoke(main, ["import-arrays", *given, *COMMON])


def test_people_are_told_what_was_assumed(folder: Path) -> None:
    result = invoke(folder, "--prices", "data.npz", "--out", "bars.parquet")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert (
        "2 symbols, 400 bars of 5m (always open), 2024-01-05 00:00 to 2024-01-06 09:15 UTC"
        in lines[0]
    )
    assert lines[1] == "symbols are read in order of name; for this order give --symbols ETH BTC"
    assert [line.startswith("assumed: ") for line in lines[2:]] == [True] * 4
    manifest = json.loads((folder / "bars.manifest.json").read_text())
    assert [f"assumed: {line}" for line in manifest["assumed"]] == lines[2:]


def test_the_bars_are_read_back_and_make_a_market(folder: Path) -> None:
    words = [
        "--tech",
        "data.npz",
        "--indicators",
        "open",
        "high",
        "low",
        "volume",
        "rsi14",
        "--json",
    ]
    result = invoke(folder, "--prices", "data.npz", "--out", "bars.parquet", *words)
    said = json.loads(result.output)
    assert (said["extras"], said["symbols"], len(said["assumed"])) == (["rsi14"], ["ETH", "BTC"], 1)
    panel = read_bars(folder / "bars.parquet", symbols=("ETH", "BTC"), extras=("rsi14",))
    assert panel.fingerprint == said["fingerprint"]
    np.testing.assert_array_equal(panel.extras["rsi14"], RSI)
    np.testing.assert_array_equal(panel.high, WALK.high)
    features = {"indicators": ["extra:rsi14", "return_1"], "scaler": "quantile"}
    assert (
        build_market(panel, Settings.model_validate({"features": features})).shape.n_features == 2
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--prices", "objects.npy", "--out", "b.parquet"],
            "objects.npy: it holds pickled objects. flatout reads no",
        ),
        (["--prices", "hole.npy", "--out", "b.parquet"], "symbol BTC, row 3: the price is nan"),
        (
            ["--prices", "data.npz", "--tech", "data.npz", "--out", "b.parquet"],
            "are needed together",
        ),
        (["--prices", "data.npz", "--out", "bars.csv"], "bars are written as .parquet only"),
        (
            ["--prices", "data.npz", "--out", "data.npz/b.parquet"],
            "b.parquet: it cannot be written: ",
        ),
        (["--prices", "nowhere.npy", "--out", "b.parquet"], "there is no such file"),
    ],
)
def test_refusals_are_one_sentence_and_exit_code_2(
    words: list[str],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["flatout", "import-arrays", *words, *COMMON])
    with pytest.raises(SystemExit) as ended:
        app()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert not list(folder.glob("*.parquet"))
