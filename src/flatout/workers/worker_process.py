"""A worker process: owns one device, holds its jobs' lanes, and advances them chunk by chunk when
told.

Started by `workers.py` as `python -m flatout.workers.worker_process`; it gets its jobs through the
connection that it inherited, and answers every `Order` with a `Chunk`. Orders wait in a queue: a
driver that sends the next one early never lets the device wait. After each chunk all of its state
is on disk before the answer is sent. It dies with its driver: the end of its standard input means
that nobody wants its work any more.
"""

import contextlib
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from flatout.learners.engines import LaneBatch, batch_maker
from flatout.learners.jobs import Failure, Job, Order, Ready
from flatout.workers.lifeline import die_with_driver


def main() -> None:
    """Serve one driver until it lets go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends its workers
    die_with_driver()
    connection = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError):
        try:
            sys.path[:] = connection.recv()
            serve(connection, connection.recv())
        except Exception as error:  # told to the driver, which raises it for the user
            connection.send(Failure(type(error).__name__, str(error)))


def serve(connection: Connection, jobs: Sequence[Job]) -> None:
    """Answer orders until the connection is closed."""
    began = time.perf_counter()
    crews = assemble(jobs)
    working = max(crew.compiled.working_bytes for crew in crews)
    connection.send(
        Ready(tuple(crew.state.last for crew in crews), time.perf_counter() - began, working)
    )
    orders: SimpleQueue[Order | None] = SimpleQueue()
    threading.Thread(target=receive, args=(connection, orders), daemon=True).start()
    while order := orders.get():
        chunk = crews[order.job].advance(order)
        connection.send(chunk._replace(peak_bytes=peak_bytes()))


def receive(connection: Connection, orders: "SimpleQueue[Order | None]") -> None:
    """Take orders as they come, None at the end: a driver that sends a large one must not wait for
    this worker while this worker waits for the driver to read its answer.
    """
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.put(connection.recv())
    orders.put(None)


def assemble(jobs: Sequence[Job]) -> list[LaneBatch]:
    """The crews of all jobs; equal data is loaded once, and equal shapes are compiled once."""
    crew_of, load_data = batch_maker(jobs[0].program.environment)
    loaded, programs, crews = dict[object, Any](), dict[object, Any](), list[LaneBatch]()
    for job in jobs:
        if job.data not in loaded:
            loaded[job.data] = load_data(job)
        plan = job.evaluation
        shape = (
            job.program,
            job.data,
            len(job.seeds),
            plan and (plan.n_envs, plan.n_steps, plan.traced),
        )
        crew = crew_of(job, loaded[job.data], programs.get(shape))
        programs[shape] = crew.compiled
        crews.append(crew)
    return crews


def peak_bytes() -> int:
    """The most memory that this process has held. Linux counts the memory of the process that
    started it into `ru_maxrss`, so a worker of a large driver would seem large: the high-water mark
    is its own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
