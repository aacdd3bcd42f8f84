"""The `flatout` command as a whole: help, exit codes, and errors in one sentence."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from flatout.cli.main import app, main

VERBS = [
    [], ["demo"], ["doctor"], ["backtest"], ["data"], ["data", "check"], ["data", "convert"],
     ["bench"],
    ["bench", "env"], ["bench", "train"], ["bench", "study"], ["bench", "verdict"], ["config"],
     ["config", "show"],
    ["train"], ["search"], ["init"], ["status"], ["stop"], ["report"], ["audit"], ["trials"],
     ["trials", "list"],
    ["trials", "show"], ["trials", "diff"], ["export"], ["import-arrays"], ["bench", "torch"],
     ["bench", "slow"], ["bench", "learn"],
    ["crawl"], ["crawl", "doctor"], ["crawl", "record"], ["crawl", "run"], ["crawl", "train"],
     ["crawl", "eval"],
    ["crawl", "report"],
]  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """The installed command, in a process of its own."""
    flatout = Path(sys.executable).with_name("flatout")
    return subprocess.run([flatout, *words], capture_output=True, text=True, check=False)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process: exit code, output and errors."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flatout", *words])
        with pytest.raises(SystemExit) as exit_:
            app()
        return int(exit_.value.code or 0), *capsys.readouterr()

    return call


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help(verb: list[str]) -> None:
    result = CliRunner().invoke(main, [*verb, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Usage: flatout" in result.output
    assert "--help" in result.output


def all_verbs() -> dict[tuple[str, ...], Any]:
    """Every verb and sub-verb by its words."""
    found: dict[tuple[str, ...], Any] = {}
    for name, verb in typer.main.get_command(main).commands.items():
        found[(name,)] = verb
        found |= {
            (name, below): command for below, command in getattr(verb, "commands", {}).items()
        }
    return found


def test_no_verb_is_missing_above() -> None:
    assert sorted(all_verbs()) == sorted(tuple(verb) for verb in VERBS[1:])


def test_every_verb_and_option_is_explained() -> None:
    for words, verb in all_verbs().items():
        assert verb.help, words
        assert all(option.help for option in verb.params), words


def test_a_missing_file_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.csv"
    result = command("backtest", "--bars", str(missing))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"error: {missing}: there is no such file or folder. Check the path.\n"


def test_json_alone_is_on_standard_output() -> None:
    result = command("config", "show", "--json", "--set", "market.capital=5")
    assert result.returncode == 0
    assert result.stderr == ""
    assert json.loads(result.stdout)["settings"]["market"]["capital"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["config", "show", "--config", "nowhere.toml"],
            "nowhere.toml: there is no such file; give a TOML file",
        ),
        (["config", "show", "--set", "market.captial=1"], "did you mean market.capital?"),
        (["config", "show", "--set", "market.capital"], "has no '='"),
        (["backtest", "--policy", "momentun"], "did you mean momentum?"),
        (["data", "check", "nowhere.csv"], "nowhere.csv: there is no such file or folder"),
    ],
)
def test_what_is_refused_is_said_without_a_traceback(run: Run, words: list[str], said: str) -> None:
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["[open]", "[/bold]", "[red]x[/red]"])
def test_brackets_in_an_error_are_shown_as_given(run: Run, text: str) -> None:
    """Square brackets are part of what was given, not instructions to the terminal."""
    code, _, err = run("config", "show", "--set", f"market.fill={text}")
    assert code == 2
    assert f"(from --set market.fill={text})" in err


def test_a_long_error_is_not_broken_into_lines(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / ("x" * 150) / "nowhere.csv"
    _, _, err = run("data", "check", str(missing))
    assert str(missing) in err


def test_an_interruption_is_said_and_has_its_own_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flatout.cli.main.main", interrupted)
    code, _, err = run("demo")
    assert (code, err) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "words", [["nonsense"], ["backtest", "--nonsense"], ["bench", "env", "--rounds", "0"]]
)
def test_a_wrong_usage_has_exit_code_2(run: Run, words: list[str]) -> None:
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert "Usage: flatout" in err
    assert "Traceback" not in err


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output.strip()) == (0, f"flatout {version('flatout')}")
