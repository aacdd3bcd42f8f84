"""A worker process: owns one device, holds its jobs' lanes, and advances them chunk by chunk when
it is asked to.

Started by `process_worker.py` as `python -m flatout.workers.worker_process`; it gets its jobs
through the connection that it inherited, and answers every `WorkOrder` with a `Chunk`. Orders wait
in a queue: a driver that sends the next one early never lets the device wait. After each chunk all
of its state is on disk before the answer is sent. It dies with its driver: the end of its standard
input means that nobody wants its work any more.
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

from flatout.learners.engines import LaneBatch, Programs, choose_batch_maker
from flatout.learners.jobs import Job, Ready, WorkerFailure, WorkOrder
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
        except Exception as error:  # sent to the driver, which raises it for the user
            connection.send(WorkerFailure(type(error).__name__, str(error)))


def serve(connection: Connection, jobs: Sequence[Job]) -> None:
    """Answer orders until the connection is closed."""
    began = time.perf_counter()
    batches = make_lane_batches(jobs)
    working = max(batch.programs.working_bytes for batch in batches)
    last = tuple(batch.state.last for batch in batches)
    connection.send(Ready(last, time.perf_counter() - began, working))
    orders: SimpleQueue[WorkOrder | None] = SimpleQueue()
    threading.Thread(target=receive_orders, args=(connection, orders), daemon=True).start()
    while order := orders.get():
        chunk = batches[order.job].advance(order)
        connection.send(chunk._replace(peak_bytes=peak_bytes()))


def receive_orders(connection: Connection, orders: "SimpleQueue[WorkOrder | None]") -> None:
    """Take orders as they come, None at the end: a driver that sends a large one must not wait for
    this worker while this worker waits for the driver to read its answer.
    """
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.put(connection.recv())
    orders.put(None)


def make_lane_batches(jobs: Sequence[Job]) -> list[LaneBatch]:
    """A batch of lanes for each job; equal data is loaded once, and equal shapes are compiled
    once.
    """
    engine = choose_batch_maker(jobs[0].program.environment)
    loaded, programs, batches = dict[object, Any](), dict[object, Programs](), list[LaneBatch]()
    for job in jobs:
        if job.data not in loaded:
            loaded[job.data] = engine.load_data(job)
        plan = job.evaluation
        shape = (
            job.program,
            job.data,
            len(job.seeds),
            plan and (plan.n_envs, plan.n_steps, plan.traced),
        )
        batch = engine.make(job, loaded[job.data], programs.get(shape))
        programs[shape] = batch.programs
        batches.append(batch)
    return batches


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
