"""The `flatout` command: puts the verbs together and turns errors into sentences."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from flatout.cli import backtest, bench, config, data, demo, doctor
from flatout.errors import FlatoutError

main = typer.Typer(
    name="flatout",
    help="Train trading agents flat out, and refuse those that were only lucky.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
main.command("demo")(demo.demo)
main.command("doctor")(doctor.doctor)
main.command("backtest")(backtest.backtest_command)
main.add_typer(data.app, name="data")
main.add_typer(bench.app, name="bench")
main.add_typer(config.app, name="config")


def app() -> None:
    """Run the command; what flatout refuses is said in one message, without a traceback."""
    try:
        main()
    except FlatoutError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)
