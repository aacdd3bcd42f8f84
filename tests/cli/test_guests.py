"""Guests: verbs that other distributions bring by entry points of the group "flatout.commands".

Each test writes a made-up distribution by hand and runs the command in a process that finds it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flatout.cli.guests import add_guest

pytestmark = pytest.mark.long  # a process for every command
Flatout = Callable[..., subprocess.CompletedProcess[str]]

ONE_VERB = """
import typer

app = typer.Typer()

@app.command()
def greet(name: str = "world", loud: bool = False) -> None:
    '''Say hello.'''
    print(f"hello {name.upper() if loud else name}")
"""
TWO_VERBS = (
    ONE_VERB
    + """
@app.command()
def leave() -> None:
    '''Say goodbye.'''
    print("goodbye")
"""
)
A_GROUP_OF_ONE = (
    ONE_VERB
    + """
@app.callback()
def group() -> None:
    '''Greetings.'''
"""
)
MANY_VALUES = """
import typer
from typing import Annotated
from flatout.cli.options import SpaceSeparated

app = typer.Typer()

class Names(SpaceSeparated):
    lists = ("--only",)

@app.command(cls=Names)
def greet(only: Annotated[list[str], typer.Option()]) -> None:
    print("hello", *only)
"""


def install(folder: Path, source: str, *entries: str) -> None:
    """Write a distribution `hello-flatout` of one module with these entry points."""
    (folder / "hello_flatout.py").write_text(source)
    facts = folder / "hello_flatout-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: hello-flatout\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("\n".join(["[flatout.commands]", *entries, ""]))


@pytest.fixture
def flatout(tmp_path: Path) -> Flatout:
    """The command in a process that finds what was installed into the test's folder."""
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = "from flatout.cli.main import app; app()"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_an_app_of_one_command_is_a_verb(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, ONE_VERB, "hello = hello_flatout:app")
    run = flatout("hello", "--name", "guest", "--loud")
    assert (run.returncode, run.stdout, run.stderr) == (0, "hello GUEST\n", "")


def test_the_help_lists_a_guest_beside_the_other_verbs(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, ONE_VERB, "hello = hello_flatout:app")
    run = flatout("--help")
    assert run.returncode == 0
    (line,) = [line for line in run.stdout.splitlines() if " hello " in line]
    assert "Say hello." in line
    assert " train " in run.stdout and " backtest " in run.stdout


def test_a_guest_may_add_a_verb_to_bench(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, ONE_VERB, "bench hello = hello_flatout:app")
    assert flatout("bench", "hello").stdout == "hello world\n"
    assert "Say hello." in flatout("bench", "--help").stdout
    assert flatout("hello").returncode == 2


def test_an_app_of_several_commands_is_a_group(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, TWO_VERBS, "hello = hello_flatout:app")
    assert flatout("hello", "greet", "--name", "guest").stdout == "hello guest\n"
    assert flatout("hello", "leave").stdout == "goodbye\n"


def test_a_callback_makes_a_group_of_one_command(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, A_GROUP_OF_ONE, "hello = hello_flatout:app")
    assert flatout("hello", "greet").stdout == "hello world\n"
    assert "Greetings." in flatout("--help").stdout


def test_a_guest_brings_its_own_kind_of_command(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, MANY_VALUES, "hello = hello_flatout:app")
    assert flatout("hello", "--only", "you", "me").stdout == "hello you me\n"


def test_one_distribution_may_bring_several_verbs(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, ONE_VERB, "hello = hello_flatout:app", "hi = hello_flatout:app")
    assert flatout("hello").stdout == flatout("hi").stdout == "hello world\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise RuntimeError('not today')\n", "RuntimeError: not today"),
        ("raise SystemExit('not today')\n", "SystemExit: not today"),
        ("def app(:\n", "SyntaxError: invalid syntax"),
        ("other = 3\n", "AttributeError: module 'hello_flatout' has no attribute 'app'"),
        ("def app() -> None: ...\n", "hello_flatout:app is a function, not a typer.Typer"),
    ],
)
def test_a_broken_guest_costs_its_own_verb_only(
    tmp_path: Path, flatout: Flatout, source: str, why: str
) -> None:
    install(tmp_path, source, "hello = hello_flatout:app")
    run = flatout("hello")
    assert (run.returncode, run.stdout) == (2, "")
    message = " ".join(run.stderr.split())
    assert message.startswith("error: hello-flatout is installed but cannot be loaded (" + why)
    assert message.endswith("install it again, in the version of this flatout")
    assert "Traceback" not in run.stderr
    assert flatout("config", "show").returncode == 0


def test_a_broken_guest_explains_itself_whatever_it_is_asked(
    tmp_path: Path, flatout: Flatout
) -> None:
    install(tmp_path, "import no_such_library\n", "hello = hello_flatout:app")
    run = flatout("hello", "greet", "--name", "guest")
    assert run.returncode == 2 and "no_such_library" in run.stderr
    assert "Cannot be loaded; run it to see why." in flatout("--help").stdout


def test_a_broken_guest_leaves_the_others_alone(tmp_path: Path, flatout: Flatout) -> None:
    install(tmp_path, ONE_VERB, "hello = hello_flatout:app", "bench hello = hello_flatout:missing")
    assert flatout("hello").stdout == "hello world\n"
    assert flatout("bench", "hello").returncode == 2


def test_without_guests_nothing_is_added(flatout: Flatout) -> None:
    assert flatout("hello").returncode == 2
    assert " hello " not in flatout("--help").stdout


def test_the_same_app_can_be_added_twice_without_being_changed() -> None:
    app, main = typer.Typer(), typer.Typer()

    @app.command("own-name")
    def own() -> None:
        print("mine")

    add_guest(main, "first", app)
    add_guest(main, "second", app)
    assert app.registered_commands[0].name == "own-name"
    for name in ("first", "second"):
        assert CliRunner().invoke(main, [name]).stdout == "mine\n"


@pytest.mark.parametrize("verb", ["train", "data", "bench env", "nowhere hello"])
def test_no_guest_takes_the_place_of_a_verb(flatout: Flatout, tmp_path: Path, verb: str) -> None:
    install(tmp_path, ONE_VERB, f"{verb} = hello_flatout:app")
    run = flatout(*verb.split(), "--help")
    assert "Say hello" not in run.stdout
    assert f"hello-flatout adds no command `{verb}`" in run.stderr
