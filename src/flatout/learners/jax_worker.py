"""A worker process: owns one device, holds its lanes, and advances them chunk by chunk when told.

Started by `workers.py` as `python -m flatout.learners.jax_worker`; it gets a `Job` through the connection that it
inherited, and answers every `until` with a `Chunk`. After each chunk all of its state is on disk before the answer is
sent. It dies with its driver: the end of its standard input means that nobody wants its work any more.
"""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flatout.arrays import map_leaves
from flatout.learners import jax_population
from flatout.learners.checkpoint import check_arrays, read_checkpoint, write_checkpoint
from flatout.learners.jax_evaluate import evaluator
from flatout.learners.jobs import Best, Chunk, Failure, Job, Ready, Saved
from flatout.learners.rates import metric_names
from flatout.policies.network import new_network


def main() -> None:
    """Serve one driver until it lets go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends its workers
    threading.Thread(target=die_with_driver, daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError):
        try:
            serve(connection, connection.recv())
        except Exception as error:  # told to the driver, which raises it for the user
            connection.send(Failure(type(error).__name__, str(error)))


def die_with_driver() -> None:
    """Wait for the end of standard input, which the driver holds open as long as it lives."""
    sys.stdin.buffer.read()
    os._exit(1)


def serve(connection: Connection, job: Job) -> None:
    """Answer orders until the connection is closed."""
    data = None if job.data is None else map_leaves(lambda path: jax.device_put(np.load(path, mmap_mode="r")), job.data)
    rates = jax.tree.map(jnp.asarray, job.rates)
    state = start(job, data, rates)
    began = time.perf_counter()
    run_chunk = jax_population.chunk_runner(job.program).lower(data, rates, state.lanes).compile()
    judged, evaluate = rates, None
    if job.evaluation:
        judged = rates._replace(environment=jax.tree.map(jnp.asarray, job.evaluation.environment))
        judge = jax.jit(evaluator(job.program, job.evaluation.n_envs, job.evaluation.n_steps))
        evaluate = judge.lower(data, judged, state.lanes.network, job.evaluation.seed).compile()
    working = run_chunk.memory_analysis().temp_size_in_bytes
    connection.send(Ready(state.last, time.perf_counter() - began, working))
    while True:
        order = connection.recv()
        began = time.perf_counter()
        done = np.asarray(state.lanes.updates)
        until = jnp.asarray(order, jnp.int32)
        lanes, metrics = run_chunk(data, rates._replace(until=until), state.lanes)
        updates = np.asarray(lanes.updates)
        busy = time.perf_counter() - began
        best, scores = state.best, np.full((len(updates), 0), np.nan, np.float32)
        if evaluate is not None and job.evaluation is not None:
            result = evaluate(data, judged, lanes.network, job.evaluation.seed)
            figures = [np.mean(np.asarray(x), axis=1) for x in (result.reward, result.length)]
            scores = np.concatenate([np.stack(figures, axis=1), np.mean(np.asarray(result.terms), axis=1)], axis=1)
            best = better(best, scores[:, 0], updates, lanes.network)
        steps = int(np.sum(updates - done)) * job.program.rollout
        chunk = Chunk(updates, np.asarray(metrics), scores, steps, busy, time.perf_counter() - began, peak_bytes())
        state = Saved(lanes, best, untimed(chunk))
        save(job, state)
        connection.send(chunk)


def peak_bytes() -> int:
    """The most memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def start(job: Job, data: Any, rates: Any) -> Saved:
    """The lanes as the checkpoint has them, or fresh ones."""
    sizes, program = job.program.sizes, job.program
    networks = [
        new_network(sizes, seed, log_std, hidden)
        for seed, log_std, hidden in zip(job.seeds, job.log_std, job.hidden, strict=True)
    ]
    lanes = jax_population.init(program, data, rates, networks, job.seeds)
    count = len(job.seeds)
    columns = len(metric_names(program))
    scored = 2 + len(program.environment.terms) if job.evaluation else 0
    empty = Chunk(
        updates=np.zeros(count, np.int32),
        metrics=np.zeros((count, columns), np.float32),
        scores=np.zeros((count, scored), np.float32),
        steps=0,
        busy=0.0,
        seconds=0.0,
        peak_bytes=0,
    )
    nothing = Best(
        np.full(count, -np.inf, np.float32), np.zeros(count, np.int32), jax.tree.map(jnp.copy, lanes.network)
    )
    fresh = Saved(lanes, nothing, empty)
    if not job.checkpoint.exists():
        return fresh
    arrays, _ = read_checkpoint(job.checkpoint)
    names = dict(array_names(fresh))
    check_arrays(job.checkpoint, arrays, {name: np.shape(leaf) for name, leaf in names.items()})
    leaves = [jnp.asarray(arrays[name]) for name in names]
    loaded: Saved = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    return loaded._replace(last=untimed(jax.tree.map(np.asarray, loaded.last)))


def untimed(chunk: Chunk) -> Chunk:
    """A chunk without what differs from run to run: equal trainings leave equal checkpoints."""
    return chunk._replace(steps=0, busy=0.0, seconds=0.0, peak_bytes=0)


def array_names(saved: Saved) -> list[tuple[str, Any]]:
    """(name, leaf) of all arrays, in the order of the tree's leaves."""
    return [("/".join(part(key) for key in path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(saved)]


def part(key: Any) -> str:
    """One step of a path as text: a field's name, a dictionary's key or a number."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    raise TypeError(f"no name for {key!r}")


def save(job: Job, state: Saved) -> None:
    """Everything to disk."""
    write_checkpoint(
        job.checkpoint, {name: np.asarray(leaf) for name, leaf in array_names(state)}, {"lanes": list(job.names)}
    )


def better(best: Best, scores: Any, updates: Any, network: Any) -> Best:
    """For each lane the better of what was best and what is now."""
    won = scores > np.asarray(best.score)

    def choose(new: Any, old: Any) -> Any:
        return jnp.where(jnp.reshape(jnp.asarray(won), (-1,) + (1,) * (new.ndim - 1)), new, old)

    return Best(
        np.where(won, scores, best.score).astype(np.float32),
        np.where(won, updates, best.updates).astype(np.int32),
        jax.tree.map(choose, network, best.network),
    )


if __name__ == "__main__":
    main()
