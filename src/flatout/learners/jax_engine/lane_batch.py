"""A batch of lanes on JAX: the lanes of one job on this worker's device, advanced round by round,
with all of their state on disk.
"""

import time
from functools import cache
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from flatout.arrays import Array, ArrayTree, map_leaves
from flatout.learners.batch_state import (
    BatchState,
    Best,
    EvaluationResult,
    drop_timings,
    empty_chunk,
    no_best,
    read_state,
    save_state,
)
from flatout.learners.jax_engine import population
from flatout.learners.jax_engine.evaluate import make_evaluator, make_tracer
from flatout.learners.jobs import Chunk, Job, NewLanes, WorkOrder
from flatout.learners.metrics import SCORE
from flatout.learners.rates import Rates
from flatout.policies.network import Network, new_network

TreeT = TypeVar("TreeT")
USUAL_DELAY = 2  # bars; one program serves all delays up to it


class JaxPrograms(NamedTuple):
    """The compiled programs that batches of one shape share."""

    run_chunk: jax.stages.Compiled
    evaluate: Any  # a compiled program too; None where nobody judges, and nobody calls it
    working_bytes: int


class JaxLaneBatch:
    """Lanes that advance together in one compiled program."""

    def __init__(self, job: Job, data: ArrayTree, programs: JaxPrograms | None = None) -> None:
        self.job, self.data = job, data
        self.rates = jax.tree.map(jnp.asarray, job.rates)
        plan = job.evaluation
        self.judged = self.rates_in(plan.environment) if plan else self.rates
        self.state = load_or_start(job, data, self.rates)
        self.programs = programs or self.compile()

    def compile(self) -> JaxPrograms:
        """The programs that advance and judge lanes of this shape."""
        program, plan, lanes = self.job.program, self.job.evaluation, self.state.lanes
        run_chunk = (
            population.make_chunk_runner(program).lower(self.data, self.rates, lanes).compile()
        )
        evaluate = None
        if plan and plan.traced:
            trace = jax.jit(make_tracer(program, plan.n_envs, plan.n_steps))
            evaluate = trace.lower(self.data, self.judged, lanes.network, self.no_delay()).compile()
        elif plan:
            judge = jax.jit(make_evaluator(program, plan.n_envs, plan.n_steps))
            evaluate = judge.lower(self.data, self.judged, lanes.network, plan.seed).compile()
        return JaxPrograms(run_chunk, evaluate, run_chunk.memory_analysis().temp_size_in_bytes)

    def advance(self, order: WorkOrder) -> Chunk:
        """Carry out an order; what it led to is on disk when this returns."""
        began = time.perf_counter()
        if order.new_lanes:
            self.begin_lanes(order.new_lanes)
        done = np.asarray(self.state.lanes.updates)
        rates = self.rates._replace(until=jnp.asarray(order.until, jnp.int32))
        lanes, metrics = self.programs.run_chunk(self.data, rates, self.state.lanes)
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
            round=order.round,
            traces=traces,
        )
        self.state = BatchState(lanes, best, drop_timings(chunk))
        save_state(self.job, array_names(self.state))
        return (
            chunk._replace(networks=jax.tree.map(np.asarray, lanes.network))
            if order.networks
            else chunk
        )

    def judge(self, networks: Network, updates: Array, delay: int) -> EvaluationResult:
        """What the evaluation finds of these networks, after so many updates of each lane."""
        plan, last = self.job.evaluation, self.state.last
        if plan is None:
            return EvaluationResult(last.scores, last.traces, self.state.best)
        if plan.traced:
            late = self.late_tracer(max(delay, USUAL_DELAY)) if delay else None
            trace = late or self.programs.evaluate
            traces = trace(self.data, self.judged, networks, self.no_delay() + delay)
            return EvaluationResult(last.scores, np.asarray(traces), self.state.best)
        result = self.programs.evaluate(self.data, self.judged, networks, plan.seed)
        figures = [np.mean(np.asarray(x), axis=1) for x in (result.reward, result.length)]
        scores = np.concatenate(
            [np.stack(figures, axis=1), np.mean(np.asarray(result.terms), axis=1)], axis=1
        )
        best = keep_better(self.state.best, scores[:, SCORE], updates, networks)
        return EvaluationResult(scores, last.traces, best)

    @cache  # noqa: B019 a batch lives as long as its process
    def late_tracer(self, most_delay: int) -> jax.stages.Wrapped | None:
        """A program that carries orders out late; compiled when it is wanted, as few studies come
        so far. None where nobody judges.
        """
        plan = self.job.evaluation
        return (
            jax.jit(make_tracer(self.job.program, plan.n_envs, plan.n_steps, most_delay))
            if plan
            else None
        )

    def begin_lanes(self, new: NewLanes) -> None:
        """Put new agents into some lanes; the others stay as they are, except for their rates."""
        self.rates = jax.tree.map(jnp.asarray, new.rates)
        self.judged = self.rates_in(new.judged)
        if not new.lanes:
            return
        job, count = self.job, len(self.job.seeds)
        networks = [new_network(job.program.sizes, 0)] * count
        seeds, taken = [0] * count, np.zeros(count, bool)
        for lane, agent in new.agents():
            networks[lane] = new_network(job.program.sizes, agent.seed, agent.log_std, agent.hidden)
            seeds[lane], taken[lane] = agent.seed, True
        fresh = population.init_lanes(job.program, self.data, self.rates, networks, seeds=seeds)
        self.state = self.state._replace(lanes=select_lanes(taken, fresh, self.state.lanes))

    def rates_in(self, environment: ArrayTree) -> Rates:
        """The lanes' rates with others of their environment: those under which they are judged."""
        return self.rates._replace(environment=jax.tree.map(jnp.asarray, environment))

    def no_delay(self) -> Array:
        """(lane,) zeros: orders are carried out when they are made."""
        return jnp.zeros(len(self.job.seeds), jnp.int32)


def load_data(job: Job) -> ArrayTree:
    """The arrays that all lanes share, on the device."""
    if job.data is None:
        return None
    return map_leaves(lambda path: jax.device_put(np.load(path, mmap_mode="r")), job.data)


def load_or_start(job: Job, data: ArrayTree, rates: Rates) -> BatchState:
    """The lanes as the checkpoint has them, or fresh ones."""
    sizes, program = job.program.sizes, job.program
    networks = [
        new_network(sizes, agent.seed, agent.log_std, agent.hidden) for agent in job.agents()
    ]
    lanes = population.init_lanes(program, data, rates, networks, seeds=job.seeds)
    best = no_best(len(job.seeds), jax.tree.map(jnp.copy, lanes.network))
    fresh = BatchState(lanes, best, empty_chunk(job))
    arrays = read_state(job, array_names(fresh))
    if arrays is None:
        return fresh
    leaves = [jnp.asarray(arrays[name]) for name, _ in array_names(fresh)]
    loaded: BatchState = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    return loaded._replace(last=drop_timings(jax.tree.map(np.asarray, loaded.last)))


def array_names(state: BatchState) -> list[tuple[str, Array]]:
    """(name, leaf) of all arrays, in the order of the tree's leaves."""
    return [
        ("/".join(name_of_key(key) for key in path), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    ]


def name_of_key(key: object) -> str:
    """One step of a path as text: a field's name, a dictionary's key or a number."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    raise TypeError(f"no name for {key!r}")


def keep_better(best: Best, scores: Array, updates: Array, network: Network) -> Best:
    """For each lane the better of what was best and what is now."""
    won = scores > np.asarray(best.score)
    return Best(
        score=np.asarray(np.where(won, scores, best.score), np.float32),
        updates=np.asarray(np.where(won, updates, best.updates), np.int32),
        network=select_lanes(won, network, best.network),
    )


def select_lanes(lanes: Array, new: TreeT, old: TreeT) -> TreeT:
    """The new values of some lanes among the old ones of the others."""

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(jnp.reshape(jnp.asarray(lanes), (-1,) + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)
