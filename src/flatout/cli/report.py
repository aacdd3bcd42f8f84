"""`flatout report`: a finished study's verdict, and where its page lies."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flatout.cli.options import Json, print_json
from flatout.cli.status import Folder, Studies
from flatout.cli.verdict_box import show_verdict
from flatout.errors import RunError
from flatout.search.report_file import read_report
from flatout.search.report_page import FILE, write_page
from flatout.terminal import say


def report_command(
    folder: Folder = None,
    show_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    out: Studies = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show a study's verdict and where its page lies; the page is written again if it is
    missing.
    """
    from flatout.search.stored_studies import find_study  # loads Optuna

    study = find_study(folder, out)
    report = read_report(study)
    if report is None:
        raise RunError(
            f"{study} has no report yet: it is written when the last trial is over; `flatout "
            f"status {study}` says how far it is"
        )
    page = study / FILE
    if not page.exists():
        write_page(study, report)
    if as_json:
        print_json({**report.facts(), "folder": str(study), "page": str(page)})
    else:
        show_verdict(report, Console())
        say(f"report: {page}")
    if show_page and not webbrowser.open(page.resolve().as_uri()):
        raise RunError(f"no browser could be started: open {page.resolve()} yourself")
