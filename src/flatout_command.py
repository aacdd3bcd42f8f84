"""The `flatout` command as the shell starts it. A Ctrl-C while Python loads the libraries, which
takes a second or two, ends it with one word: this file is outside the package because importing the
package is part of what takes long.
"""

import os
import signal
from typing import Any


def run() -> None:
    """Load the command and hand over to it."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:  # a job in the background is not to hear of it
        signal.signal(signal.SIGINT, end_at_once)
    from flatout.cli.main import app

    signal.signal(signal.SIGINT, usual)
    app()


def end_at_once(*_: Any) -> None:
    """Nothing has begun: an exception would be lost in a library that is half loaded, or shown with
    a traceback.
    """
    os.write(2, b"interrupted\n")
    os._exit(130)
