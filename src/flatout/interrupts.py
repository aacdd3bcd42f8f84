"""Ctrl-C while long work runs: none is lost."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_S = 0.05


@contextmanager
def keep_interrupts() -> Iterator[None]:
    """A Ctrl-C that falls into a destructor or a callback of the garbage collector, as JAX has one,
    is printed and lost there, as Python can raise nothing from them: within, it is sent once more,
    as a real signal, which also ends a wait.
    """
    usual = sys.unraisablehook
    me = threading.main_thread().ident or 0

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            again = threading.Timer(AGAIN_S, signal.pthread_kill, (me, signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            usual(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
