"""How commands show text that came from outside."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.cli.main import main
from flatout.errors import SettingsError
from flatout.terminal import plain, say, visible

ODD = ("[red]x", "[/]", "a\x1b[2Jb", "BTC/USDT")


def rendered(text: str) -> str:
    """What Rich writes between two pieces of markup."""
    file = io.StringIO()
    Console(file=file, width=10_000).print(f"[bold]<[/]{text}[bold]>[/]", highlight=False)
    return file.getvalue()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t")))
def test_brackets_are_shown_and_nothing_is_obeyed(text: str) -> None:
    assert rendered(plain(text)) == f"<{visible(text)}>\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("\x1b[31m", "\\x1b[31m"), ("a\rb", "a\\rb"), ("\u202egnp", "\\u202egnp"), ("\x07", "\\x07"),
     ("\ud800", "\\ud800"), ("é – 贵", "é – 贵"), ("a\nb", "a\nb")],
)  # fmt: skip
def test_control_characters_are_spelled_out(
    text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert visible(text) == shown
    say(text)
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.fixture
def bars(tmp_path: Path) -> Path:
    """Bars of symbols that are no ordinary ones."""
    path = tmp_path / "odd.parquet"
    write_bars(RandomWalk(n_bars=400, symbols=ODD[:2]).panel(), path)
    return path


@pytest.mark.parametrize("words", [["data", "check"], ["backtest", "--out", "runs", "--bars"]])
def test_symbols_are_shown_as_they_are(
    bars: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*words, str(bars)], env={"COLUMNS": "300"})
    assert result.exit_code == 0
    assert "[red]x" in result.output
    assert "[/]" in result.output


@pytest.mark.parametrize(
    "words",
    ["train g.toml", "train -c g.toml", "train --portfolio g.toml", "train --symbols A B g.toml",
     "train --out h.toml g.toml", "audit g.toml", "backtest --json g.toml", "search g.toml",
     "search -c g.toml", "search --symbols A B -c g.toml", "search --symbols A g.toml",
     "train --config=g.toml --plan", "train -cg.toml --plan", "audit --config=g.toml",
     "data check --config=g.toml", "data check -cg.toml", "backtest --config=g.toml",
     "search --config=g.toml", "train g.toml -c g.toml", "train g.toml --config=g.toml",
     "backtest --symbols=BTC g.toml", "train --symbols=BTC,ETH g.toml",
     "audit --symbols=BTC,ETH g.toml", "search --symbols=BTC,ETH g.toml",
     "train --seed=3 g.toml", "train --bars=plain.csv g.toml", "backtest --policy=momentum g.toml",
     "data check plain.csv --symbols=BTC g.toml"],
)  # fmt: skip
def test_settings_files_are_given_with_and_without_their_option(words: str, tmp_path: Path) -> None:
    path = tmp_path / "g.toml"
    path.write_text("[train]\nn_env = 3\n")
    result = CliRunner().invoke(main, words.replace("g.toml", str(path)).split())
    assert str(path) in str(result.exception)
    assert "train.n_envs" in str(result.exception)


@pytest.mark.parametrize(
    "words",
    ["backtest f.toml g.toml --json", "train f.toml -c g.toml", "train --config=f.toml g.toml",
     "audit -cf.toml g.toml", "audit -c f.toml -c g.toml", "data check f.toml --seed=3 g.toml"],
)  # fmt: skip
def test_two_settings_files_are_refused(words: str, tmp_path: Path) -> None:
    for name in ("f.toml", "g.toml"):
        (tmp_path / name).write_text("[train]\nn_envs = 3\n")
        words = words.replace(name, str(tmp_path / name))
    result = CliRunner().invoke(main, words.split())
    assert isinstance(result.exception, SettingsError)
    assert "one settings file, but 2 are given: " in str(result.exception)
    assert f"{tmp_path / 'f.toml'}, {tmp_path / 'g.toml'}" in str(result.exception)
