"""`flatout stop`: ask a running study to end after its current round, and wait until it has."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flatout.cli.options import Json, print_json
from flatout.cli.status import Folder, Storage, Studies, facts_of
from flatout.errors import RunError
from flatout.foreign import JsonTable
from flatout.runs import is_held
from flatout.terminal import describe_span, say

POLL_SECONDS = 0.2


def stop_command(
    folder: Folder = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the study has ended.")
    ] = True,
    out: Studies = Path("runs"),
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Ask a running study to stop after its current round. Nothing is lost: the search that started
    it goes on.
    """
    from flatout.search.scheduler import STOP
    from flatout.search.stored_studies import find_study  # loads Optuna

    target = find_study(folder, out) if folder is not None else find_running_study(out)
    if target is None:
        print_facts(
            {"study": None, "state": "not running"}, f"no study under {out} is running", as_json
        )
        return
    if not is_held(target):
        message = f"{target.name} is not running: there is nothing to stop"
        print_facts({"study": target.name, "state": "not running"}, message, as_json)
        return
    (target / STOP).touch()
    if not wait:
        print_facts(
            {"study": target.name, "state": "stopping"},
            f"{target.name} stops after its current round",
            as_json,
        )
        return
    wait_for_end(target, target / STOP, quiet=as_json)
    facts = facts_of(target, storage)
    print_facts(facts, ending_sentence(facts), as_json)


def find_running_study(out: Path) -> Path | None:
    """The study that runs; of several, one must be named."""
    from flatout.search.stored_studies import study_folders

    running = [folder for folder in study_folders(out) if is_held(folder)]
    if len(running) > 1:
        names = ", ".join(sorted(folder.name for folder in running))
        raise RunError(f"several studies are running: {names}; name the one to stop")
    return running[0] if running else None


def wait_for_end(folder: Path, request: Path, quiet: bool) -> None:
    """Wait until the study's lock is free. A study that was just starting has swept the request
    away: it is made again.
    """
    began = time.monotonic()
    console = Console(stderr=True, quiet=quiet)
    if not quiet:
        say(f"{folder.name} was asked to stop; it ends its current round first", err=True)
    with console.status("") as progress:
        while is_held(folder):
            request.touch()
            progress.update(f"waiting for {describe_span(time.monotonic() - began)}")
            time.sleep(POLL_SECONDS)
    request.unlink(missing_ok=True)


def ending_sentence(facts: JsonTable) -> str:
    """How far the study came, and how it goes on."""
    if facts["state"] == "finished":
        return (
            f"{facts['study']} had nothing left to stop: it is finished; `flatout report "
            f"{facts['folder']}` shows it"
        )
    trials = facts["trials"]
    return (
        f"{facts['study']} has stopped after {trials['ended']} of {trials['total']} trials; the "
        "same `flatout search` command goes on from there"
    )


def print_facts(facts: JsonTable, sentence: str, as_json: bool) -> None:
    """Print a sentence for people, or the facts for programs."""
    if as_json:
        print_json(facts)
    else:
        say(sentence)
