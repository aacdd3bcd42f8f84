"""What all tests share: programs that JAX has compiled are kept for the other processes of the run and for the next.

Nearly all of the suite's time is compiling. What is kept is looked up by the program and the compiler's options, so
another instruction set, another version or a changed line compiles anew. `make clean` throws it away.
"""

import os
from pathlib import Path

KEPT = {
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[1] / ".pytest_cache" / "xla"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
for name, value in KEPT.items():  # before anything imports jax
    os.environ.setdefault(name, value)
