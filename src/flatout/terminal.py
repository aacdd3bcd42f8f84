"""Text for people: on a terminal, in a notebook or in a file; nothing that comes from outside is
obeyed.
"""

import importlib.util
import sys

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["can_draw", "describe_span", "plain", "progress_bar", "say", "visible"]


def plain(text: object) -> str:
    """Text from outside, such as a symbol, a path or a title, among Rich's markup: brackets are
    shown, not obeyed.

    >>> from rich.text import Text
    >>> Text.from_markup(plain("[bold]BTC")).plain
    '[bold]BTC'
    """
    return escape(visible(text))


def visible(text: object) -> str:
    """Text with control characters spelled out: a terminal would obey them, move the cursor or turn
    the line around.

    >>> visible("BTC\\x1b[2J")
    'BTC\\\\x1b[2J'
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(
        letter if letter in "\n\t" or letter.isprintable() else ascii(letter)[1:-1]
        for letter in shown
    )


def say(text: object, err: bool = False) -> None:
    """Print one line or more on standard output, or on standard error.

    >>> say("3 trials")
    3 trials
    """
    print(visible(text), file=sys.stderr if err else sys.stdout, flush=True)


def can_draw(console: Console) -> bool:
    """Whether a bar can move there: on a terminal, or in a notebook that has ipywidgets, without
    which Rich shows nothing.

    >>> import io
    >>> can_draw(Console(file=io.StringIO()))
    False
    """
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


def progress_bar(quiet: bool = False) -> Progress:
    """A bar with the remaining time where one can move, nothing elsewhere.

    >>> with progress_bar(quiet=True) as bar:
    ...     task = bar.add_task("crawling", total=2)
    ...     bar.advance(task)
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns, console=console, transient=True, disable=quiet or not can_draw(console)
    )


def describe_span(seconds: float) -> str:
    """A number of seconds for people.

    >>> describe_span(75)
    '1 min 15 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
