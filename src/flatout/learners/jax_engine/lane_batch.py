"""A crew: the lanes of one job on this worker's device, advanced turn by turn, with all of their
state on disk.
"""

import time
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flatout.arrays import map_leaves
from flatout.learners.batch_state import empty_chunk, save, saved_arrays, untimed
from flatout.learners.jax_engine import population
from flatout.learners.jax_engine.evaluate import evaluator, tracer
from flatout.learners.jobs import Best, Chunk, Job, Newcomers, Order, Saved
from flatout.learners.rates import Rates
from flatout.policies.network import new_network

USUAL_DELAY = 2  # bars; one program serves all delays up to it


class Compiled(NamedTuple):
    """What crews of one shape share."""

    run_chunk: Any
    evaluate: Any  # None where nobody judges
    working_bytes: int


class JaxLaneBatch:
    """Lanes that advance together."""

    def __init__(self, job: Job, data: Any, compiled: Compiled | None = None) -> None:
        self.job, self.data = job, data
        self.rates = jax.tree.map(jnp.asarray, job.rates)
        plan = job.evaluation
        self.judged = self.judged_by(plan.environment) if plan else self.rates
        self.state = start(job, data, self.rates)
        self.compiled = compiled or self.compile()

    def compile(self) -> Compiled:
        """The programs that advance and judge lanes of this shape."""
        program, plan, lanes = self.job.program, self.job.evaluation, self.state.lanes
        run_chunk = population.chunk_runner(program).lower(self.data, self.rates, lanes).compile()
        evaluate = None
        if plan and plan.traced:
            trace = jax.jit(tracer(program, plan.n_envs, plan.n_steps))
            evaluate = trace.lower(self.data, self.judged, lanes.network, self.no_delay()).compile()
        elif plan:
            judge = jax.jit(evaluator(program, plan.n_envs, plan.n_steps))
            evaluate = judge.lower(self.data, self.judged, lanes.network, plan.seed).compile()
        return Compiled(run_chunk, evaluate, run_chunk.memory_analysis().temp_size_in_bytes)

    def advance(self, order: Order) -> Chunk:
        """Carry out an order; what it led to is on disk when this returns."""
        began = time.perf_counter()
        if order.newcomers:
            self.receive(order.newcomers)
        done = np.asarray(self.state.lanes.updates)
        rates = self.rates._replace(until=jnp.asarray(order.until, jnp.int32))
        lanes, metrics = self.compiled.run_chunk(self.data, rates, self.state.lanes)
        updates = np.asarray(lanes.updates)
        busy = time.perf_counter() - began
        scores, traces, best = self.judge(lanes.network, updates, order.delay)
        chunk = Chunk(
            updates=updates,
            metrics=np.asarray(metrics),
            scores=scores,
            steps=int(np.sum(updates - done)) * self.job.program.rollout,
            busy=busy,
            seconds=time.perf_counter() - began,
            peak_bytes=0,
            job=order.job,
            turn=order.turn,
            traces=traces,
        )
        self.state = Saved(lanes, best, untimed(chunk))
        save(self.job, array_names(self.state))
        return (
            chunk._replace(networks=jax.tree.map(np.asarray, lanes.network))
            if order.networks
            else chunk
        )

    def judge(self, networks: Any, updates: Any, delay: int) -> tuple[Any, Any, Best]:
        """Scores, traces and the best networks so far; empty arrays for what was not asked for."""
        plan, last = self.job.evaluation, self.state.last
        if plan is None:
            return last.scores, last.traces, self.state.best
        if plan.traced:
            trace = self.tracing(max(delay, USUAL_DELAY)) if delay else self.compiled.evaluate
            traces = trace(self.data, self.judged, networks, self.no_delay() + delay)
            return last.scores, np.asarray(traces), self.state.best
        result = self.compiled.evaluate(self.data, self.judged, networks, plan.seed)
        figures = [np.mean(np.asarray(x), axis=1) for x in (result.reward, result.length)]
        scores = np.concatenate(
            [np.stack(figures, axis=1), np.mean(np.asarray(result.terms), axis=1)], axis=1
        )
        return scores, last.traces, better(self.state.best, scores[:, 0], updates, networks)

    @cache  # noqa: B019 a crew lives as long as its process
    def tracing(self, most_delay: int) -> Any:
        """A program that carries orders out late; compiled when it is wanted, as few studies come
        so far.
        """
        plan = self.job.evaluation
        return (
            jax.jit(tracer(self.job.program, plan.n_envs, plan.n_steps, most_delay))
            if plan
            else None
        )

    def receive(self, newcomers: Newcomers) -> None:
        """Put new agents into some lanes; the others stay as they are, except for their rates."""
        self.rates = jax.tree.map(jnp.asarray, newcomers.rates)
        self.judged = self.judged_by(newcomers.judged)
        if not newcomers.lanes:
            return
        job, count = self.job, len(self.job.seeds)
        networks = [new_network(job.program.sizes, 0)] * count
        seeds, taken = [0] * count, np.zeros(count, bool)
        for lane, seed, log_std, hidden in zip(*newcomers[2:], strict=True):
            networks[lane] = new_network(job.program.sizes, seed, log_std, hidden)
            seeds[lane], taken[lane] = seed, True
        fresh = population.init(job.program, self.data, self.rates, networks, seeds)
        self.state = self.state._replace(lanes=chosen(taken, fresh, self.state.lanes))

    def judged_by(self, environment: Any) -> Rates:
        """The rates under which the lanes are judged."""
        return self.rates._replace(environment=jax.tree.map(jnp.asarray, environment))

    def no_delay(self) -> Any:
        """Orders are carried out when they are made."""
        return jnp.zeros(len(self.job.seeds), jnp.int32)


def load_data(job: Job) -> Any:
    """The arrays that all lanes share, on the device."""
    if job.data is None:
        return None
    return map_leaves(lambda path: jax.device_put(np.load(path, mmap_mode="r")), job.data)


def start(job: Job, data: Any, rates: Rates) -> Saved:
    """The lanes as the checkpoint has them, or fresh ones."""
    sizes, program = job.program.sizes, job.program
    networks = [
        new_network(sizes, seed, log_std, hidden)
        for seed, log_std, hidden in zip(job.seeds, job.log_std, job.hidden, strict=True)
    ]
    lanes = population.init(program, data, rates, networks, job.seeds)
    count = len(job.seeds)
    nothing = Best(
        np.full(count, -np.inf, np.float32),
        np.zeros(count, np.int32),
        jax.tree.map(jnp.copy, lanes.network),
    )
    fresh = Saved(lanes, nothing, empty_chunk(job))
    arrays = saved_arrays(job, array_names(fresh))
    if arrays is None:
        return fresh
    leaves = [jnp.asarray(arrays[name]) for name, _ in array_names(fresh)]
    loaded: Saved = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    return loaded._replace(last=untimed(jax.tree.map(np.asarray, loaded.last)))


def array_names(saved: Saved) -> list[tuple[str, Any]]:
    """(name, leaf) of all arrays, in the order of the tree's leaves."""
    return [
        ("/".join(part(key) for key in path), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(saved)
    ]


def part(key: Any) -> str:
    """One step of a path as text: a field's name, a dictionary's key or a number."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    raise TypeError(f"no name for {key!r}")


def better(best: Best, scores: Any, updates: Any, network: Any) -> Best:
    """For each lane the better of what was best and what is now."""
    won = scores > np.asarray(best.score)
    return Best(
        np.where(won, scores, best.score).astype(np.float32),
        np.where(won, updates, best.updates).astype(np.int32),
        chosen(won, network, best.network),
    )


def chosen(lanes: Any, new: Any, old: Any) -> Any:
    """The new values of some lanes among the old ones of the others."""

    def choose(new: Any, old: Any) -> Any:
        return jnp.where(jnp.reshape(jnp.asarray(lanes), (-1,) + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)
