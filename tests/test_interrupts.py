"""A Ctrl-C that a destructor swallows comes again: in commands, in `train` and in `run_study`."""

import subprocess
import sys

import pytest

from flatout.interrupts import keep_interrupts

SWALLOWED = """
import signal, tempfile, time
import flatout
from flatout.interrupts import keep_interrupts
from flatout.search import run_study
from flatout.training import train

class Destructor:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python can raise nothing from here

def swallow(*_, **__):
    Destructor()
    print("lost so far", flush=True)
    time.sleep(60)

def within():
    with keep_interrupts():
        swallow()

train.run_training = run_study.run_prepared = swallow
given = {"workers": 1, "progress": False, "out": tempfile.mkdtemp(), "device": "cpu"}
small = {"features": {"indicators": ["return_1"]}}
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    %s
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.parametrize(
    "call",
    [
        "within()",
        "flatout.train(settings=small, **given)",
        "flatout.run_study(settings=small, **given)",
    ],
)
def test_an_interrupt_that_a_destructor_swallows_comes_again(call: str) -> None:
    line = [sys.executable, "-c", SWALLOWED % call]
    run = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert run.stdout == "lost so far\nheard\n", run.stderr


def test_what_was_there_before_is_there_again() -> None:
    before = sys.unraisablehook
    with pytest.raises(ZeroDivisionError), keep_interrupts():
        assert sys.unraisablehook is not before
        raise ZeroDivisionError
    assert sys.unraisablehook is before
