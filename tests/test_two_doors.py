"""What flatout says is right for both doors, the shell and Python: only the commands name options;
all code below them writes an argument as `out`, which cli/failures.py turns into --out.
"""

import ast
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import flatout
from flatout.bars.from_arrays import ArrayFiles
from flatout.cli.failures import ARGUMENTS, name_options
from flatout.cli.main import main
from flatout.errors import BarsError
from flatout.evaluation.saved_policy import SavedPolicy

ROOT = Path(flatout.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
# a whole command, with the values of an f-string as {}: it is meant to be typed into a shell
COMMAND = re.compile(r"flatout [a-z-]+(?: --[a-z-]+(?: \{\})?| \{\})+")
ALLOWED = {
    ("settings/loading.py", "--set"),  # where a value came from, as `flatout config` prints it
    ("workers/slots.py", "--xla_cpu_multi_thread_eigen"),  # a flag of XLA
}
DOORS = (flatout.train, flatout.run_study, flatout.export_policy, SavedPolicy.backtest, ArrayFiles)


def list_modules() -> list[Path]:
    """All modules but the commands and the measurements, which have one door."""
    return sorted(
        path
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ("cli", "bench")
    )


def list_texts(tree: ast.AST) -> Iterator[str]:
    """All texts of a module but its docstrings; values within f-strings are {}."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            yield from list_texts(node)


def find_options(source: str) -> list[str]:
    """The options that texts of a module name outside of whole commands."""
    texts = list_texts(ast.parse(source))
    return [option for text in texts for option in OPTION.findall(COMMAND.sub("", text))]


def test_code_below_the_commands_names_no_option() -> None:
    named = {
        (str(path.relative_to(ROOT)), option)
        for path in list_modules()
        for option in find_options(path.read_text())
    }
    assert named == ALLOWED, "write the argument as `name`, see cli/failures.py"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise E("give --out another folder")', ["--out"]),
        ('raise E(f"{a}: give another --name "\n f"or --hold-out")', ["--name", "--hold-out"]),
        ('raise E(f"go on with: flatout train --resume {run}")', []),
        ('raise E(f"`flatout status --out {out}` lists them, or give --out")', ["--out"]),
        ('def f():\n    """Prints what --plan prints."""\n    return "a--b ---"', []),
    ],
)
def test_the_scan_finds_options_and_passes_commands(source: str, found: list[str]) -> None:
    assert find_options(source) == found


def test_every_argument_that_becomes_an_option_is_one_of_a_function() -> None:
    known = {name for door in DOORS for name in signature(door).parameters}
    assert set(ARGUMENTS) <= known


def test_every_argument_in_a_sentence_becomes_an_option() -> None:
    """Else a reader in the shell would look for an option that is not called so."""
    known = {name for door in DOORS for name in signature(door).parameters}
    written = {
        name
        for path in list_modules()
        for text in list_texts(ast.parse(path.read_text()))
        for name in re.findall(r"`(\w+)`", text)
    }
    assert written & known <= set(ARGUMENTS)


def test_arguments_become_options_and_all_else_stays() -> None:
    said = "runs: full; give another `name` or `out`, ask `flatout doctor`; `Bundle`, `hold_out`"
    assert name_options(said) == (
        "runs: full; give another --name or --out, ask `flatout doctor`; `Bundle`, --hold-out"
    )


PRICES = {"open": [1.0], "high": [1.0], "low": [1.0], "close": [1.0], "volume": [1.0]}
TIMES = {"date": ["2024-01-01"]}


@pytest.mark.parametrize("name", ["bars.csv", "BTC.csv"])
def test_files_that_lack_something_are_refused_in_words_of_both_doors(
    tmp_path: Path, name: str
) -> None:
    table = (
        {**TIMES, **PRICES} if name == "bars.csv" else {**TIMES, "price": [1.0], "symbol": ["A"]}
    )
    pl.DataFrame(table).write_csv(tmp_path / name)
    with pytest.raises(BarsError) as refused:
        flatout.read_bars(tmp_path / name)
    shell = name_options(str(refused.value))
    if name == "bars.csv":
        assert "in capitals, or name its one symbol by `symbols`." in str(refused.value)
        assert "name its one symbol by --symbols." in shell
    else:
        assert "rename yours, or in Python state it: flatout.read_bars(..., columns={" in shell


def test_a_frame_is_not_told_to_change_its_file_name() -> None:
    with pytest.raises(
        BarsError, match=r"there is no symbol column\. Add a column called symbol, or"
    ):
        flatout.read_bars(pl.DataFrame({**TIMES, **PRICES}))


@pytest.mark.parametrize("verb", ["train", "search"])
def test_an_option_is_not_said_to_be_another(verb: str) -> None:
    refused = CliRunner().invoke(main, [verb, "--engine", "tf"])
    assert "train.engine (from the options): " in str(refused.exception)
    refused = CliRunner().invoke(main, [verb, "--set", "train.engine=tf"])
    assert "train.engine (from --set train.engine=tf): " in str(refused.exception)
