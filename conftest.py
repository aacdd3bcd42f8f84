"""What all tests share: programs that JAX has compiled are kept for the other processes of the run
and for the next.

Nearly all of the suite's time is compiling. What is kept is looked up by the program and the
compiler's options, so another instruction set, another version or a changed line compiles anew;
each kind of CPU has a folder of its own, for a checkout may be shared. `make clean` throws all of
it away.

BLAS gets one thread: on a busy machine its threads wait for each other in busy loops, a hundred
times longer than the small products of tests take. What the caller has set stays
(`tests/portable.py` runs the suite with three). No example of Hypothesis has a deadline.

Studies are counted in a registry of the test process, which goes with it: trials of tests are no
evidence about anybody's bars.

A shell lets programs in its background ignore Ctrl-C, and their children after them; tests press
it, so here it works wherever the suite was started.
"""

import hashlib
import os
import platform
import signal
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings


def kind_of_cpu() -> str:
    """A word for what this CPU can do, as far as the system tells."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"


SETTINGS = {
    "JAX_COMPILATION_CACHE_DIR": str(
        Path(__file__).parent / ".pytest_cache" / "xla" / kind_of_cpu()
    ),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
for name, value in SETTINGS.items():  # before anything imports jax, numpy or torch
    os.environ.setdefault(name, value)
REGISTRY = tempfile.TemporaryDirectory(prefix="flatout-registry-")  # removed when pytest ends
os.environ["FLATOUT_REGISTRY"] = REGISTRY.name
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any_machine")
