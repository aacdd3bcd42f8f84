"""The `flatout` command: puts the verbs together and turns errors into sentences."""

import sys
from typing import Annotated

import typer

from flatout.cli import (
    audit,
    backtest,
    bench,
    config,
    data,
    demo,
    doctor,
    export,
    import_arrays,
    init,
    report,
    search,
    status,
    stop,
    train,
    trials,
)
from flatout.cli.failures import describe_failure, make_streams_safe, print_error
from flatout.cli.guests import add_guests
from flatout.cli.options import BarsCommand
from flatout.errors import FlatoutError
from flatout.interrupts import keep_interrupts
from flatout.runs import installed_version
from flatout.terminal import say

main = typer.Typer(
    name="flatout",
    help="Train trading agents flat out, and refuse those that were only lucky.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def tell_version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        typer.echo(f"flatout {installed_version('flatout')}")
        raise typer.Exit


@main.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=tell_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; works after the verb, too.")
    ] = False,
) -> None:
    """Train trading agents flat out, and refuse those that were only lucky."""


main.command("demo")(demo.demo)
main.command("doctor")(doctor.doctor)
main.command("backtest", cls=BarsCommand)(backtest.backtest_command)
main.command("train", cls=BarsCommand)(train.train_command)
main.command("search", cls=search.SearchCommand)(search.search_command)
main.command("init")(init.init_command)
main.command("status")(status.status_command)
main.command("stop")(stop.stop_command)
main.command("report")(report.report_command)
main.command("export")(export.export_command)
main.command("import-arrays", cls=import_arrays.ImportCommand)(import_arrays.import_arrays_command)
main.command("audit", cls=BarsCommand)(audit.audit_command)
main.add_typer(trials.app, name="trials")
main.add_typer(data.app, name="data")
main.add_typer(bench.app, name="bench")
main.add_typer(config.app, name="config")
add_guests(main, bench.app)


def app() -> None:
    """Run the command; what flatout refuses is said in one message, without a traceback."""
    debug = "--debug" in sys.argv
    sys.argv[:] = [
        word for word in sys.argv if word != "--debug"
    ]  # at whichever place it was given
    make_streams_safe()
    try:
        with keep_interrupts():
            main()
    except KeyboardInterrupt:
        say("interrupted", err=True)
        sys.exit(130)
    except FlatoutError as error:
        if debug:
            raise
        print_error(str(error))
        sys.exit(2)
    except Exception as error:  # the last door: whatever it is, it is said in a sentence
        if debug:
            raise
        print_error(describe_failure(error))
        sys.exit(2 if isinstance(error, OSError | MemoryError) else 1)
