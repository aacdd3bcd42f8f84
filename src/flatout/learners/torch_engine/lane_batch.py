"""A crew on PyTorch: the lanes of one job, one after another on one device; orders, answers and
checkpoints are those of the JAX crew.
"""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat.torch as torch_namespace
import numpy as np
import torch

from flatout.arrays import map_leaves, to_numpy
from flatout.children import available_cores
from flatout.learners.batch_state import empty_chunk, save, saved_arrays, untimed
from flatout.learners.checkpoint import rebuilt
from flatout.learners.jobs import (
    TORCH_DEVICE,
    Best,
    Chunk,
    EvaluationPlan,
    Job,
    Newcomers,
    Order,
    Saved,
)
from flatout.learners.lane_trees import stack_trees, take_lane
from flatout.learners.market_environment import MarketEnvironment
from flatout.learners.rates import mean_metrics, metric_names
from flatout.learners.stepwise import NumpyMarketEnvironment, evaluate, trace
from flatout.learners.torch_engine.compiled import quick_kernels
from flatout.learners.torch_engine.ppo import TorchLearner
from flatout.learners.trajectory import Lanes
from flatout.policies.network import new_network


class Compiled(NamedTuple):
    """What crews of one shape share."""

    kernels: Any
    working_bytes: int = 0  # unknown before it runs


class TorchLaneBatch:
    """Lanes that advance one after another."""

    def __init__(self, job: Job, data: Any, compiled: Compiled | None = None) -> None:
        self.job, self.data, self.device = job, data, device()
        self.on_host = self.device == "cpu"  # where NumPy can read the same memory
        self.compiled = compiled or Compiled(quick_kernels(vector_steps(job), self.device))
        self.rates = job.rates
        plan = job.evaluation
        self.judged = plan.environment if plan else None
        agents = zip(job.seeds, job.log_std, job.hidden, strict=True)
        self.lanes = [self.fresh(k, *agent) for k, agent in enumerate(agents)]
        self.state = self.start()
        if compiled is None:
            self.lanes[0].warm_up()

    def fresh(self, lane: int, seed: int, log_std: float, hidden: tuple[int, ...]) -> TorchLearner:
        """A new agent for a lane."""
        program = self.job.program
        network = new_network(program.sizes, seed, log_std, hidden)
        rates = take_lane(self.rates, lane)
        return TorchLearner(
            program, self.data, rates, network, seed, self.device, kernels=self.compiled.kernels
        )

    def start(self) -> Saved:
        """The lanes as the checkpoint has them, or fresh ones."""
        count, lanes = len(self.lanes), self.snapshot()
        nothing = Best(
            np.full(count, -np.inf, np.float32), np.zeros(count, np.int32), lanes.network
        )
        fresh = Saved(lanes, nothing, empty_chunk(self.job))
        arrays = saved_arrays(self.job, array_names(fresh))
        if arrays is None:
            return fresh
        last = Chunk(*(None if part is None else rebuilt(part, arrays, f"last/{name}")
                       for name, part in fresh.last._asdict().items()))  # fmt: skip
        loaded = Saved(
            rebuilt(lanes, arrays, "lanes"), rebuilt(nothing, arrays, "best"), untimed(last)
        )
        for k, lane in enumerate(self.lanes):
            lane.load(take_lane(loaded.lanes, k))
        return loaded

    def snapshot(self) -> Lanes:
        """The state of all lanes, on the host, with the lane axis first."""
        return stack_trees([map_leaves(as_saved, lane.state) for lane in self.lanes])

    def advance(self, order: Order) -> Chunk:
        """Carry out an order; what it led to is on disk when this returns."""
        began = time.perf_counter()
        if order.newcomers:
            self.receive(order.newcomers)
        done = [lane.updates for lane in self.lanes]
        metrics = []
        for lane, until in zip(self.lanes, order.until, strict=True):
            lane.buffers = self.lanes[0].buffers  # they take turns: one rollout's memory serves all
            metrics.append(advanced(lane, until))
        busy = time.perf_counter() - began
        lanes = self.snapshot()
        scores, traces, best = self.judge(lanes, order.delay)
        chunk = Chunk(
            updates=lanes.updates,
            metrics=np.stack(metrics),
            scores=scores,
            steps=int(np.sum(lanes.updates - np.asarray(done))) * self.job.program.rollout,
            busy=busy,
            seconds=time.perf_counter() - began,
            peak_bytes=0,
            job=order.job,
            turn=order.turn,
            traces=traces,
        )
        self.state = Saved(lanes, best, untimed(chunk))
        save(self.job, array_names(self.state))
        return chunk._replace(networks=lanes.network) if order.networks else chunk

    def judge(self, lanes: Lanes, delay: int) -> tuple[Any, Any, Best]:
        """Scores, traces and the best networks so far; empty arrays for what was not asked for."""
        plan, last = self.job.evaluation, self.state.last
        if plan is None:
            return last.scores, last.traces, self.state.best
        found = [self.judged_lane(plan, k, delay) for k in range(len(self.lanes))]
        if plan.traced:
            return last.scores, np.stack(found), self.state.best
        scores = np.stack(found)
        now = Best(scores[:, 0], lanes.updates, lanes.network)
        return (
            scores,
            last.traces,
            chosen(scores[:, 0] > self.state.best.score, now, self.state.best),
        )

    def judged_lane(self, plan: EvaluationPlan, k: int, delay: int) -> Any:
        """One lane's figures or traces."""
        lane, size = self.lanes[k], (plan.n_envs, plan.n_steps)
        program, xp = self.job.program, torch_namespace
        place: Callable[[Any], Any] = lane.upload
        data, network, key = (
            self.data,
            lane.network,
            torch.Generator(lane.device).manual_seed(plan.seed),
        )
        if self.on_host and isinstance(program.environment, MarketEnvironment):
            program = program._replace(
                environment=NumpyMarketEnvironment(program.environment.shape)
            )
            place, xp, key = to_numpy, np, np.random.default_rng(plan.seed)
            data, network = map_leaves(to_numpy, data), map_leaves(to_numpy, network)
        rates = map_leaves(
            place, take_lane(self.rates, k)._replace(environment=take_lane(self.judged, k))
        )
        with torch.no_grad():
            if plan.traced:
                which = place(((np.arange(plan.n_envs) + 0.5) / plan.n_envs).astype(np.float32))
                return to_numpy(trace(program, size, data, rates, network, which, delay, xp))
            return to_numpy(evaluate(program, size, data, rates, network, key, xp))

    def receive(self, newcomers: Newcomers) -> None:
        """Put new agents into some lanes; the others stay as they are, except for their rates."""
        self.rates, self.judged = newcomers.rates, newcomers.judged
        for k, lane in enumerate(self.lanes):
            lane.set_rates(take_lane(self.rates, k))
        for taken, seed, log_std, hidden in zip(*newcomers[2:], strict=True):
            self.lanes[taken] = self.fresh(taken, seed, log_std, hidden)


def vector_steps(job: Job) -> int:
    """Steps of all environments together that the job is going to make."""
    return int(np.sum(job.rates.updates)) * job.program.n_steps


def as_saved(leaf: Any) -> Any:
    """A leaf as JAX would keep it: PyTorch's sums of whole numbers are wider."""
    array = to_numpy(leaf)
    return array.astype(np.int32) if array.dtype == np.int64 else array


def advanced(lane: TorchLearner, until: int) -> Any:
    """Bring a lane to so many updates; its metrics over those that it made."""
    total, before = np.zeros(len(metric_names(lane.program)), np.float32), lane.updates
    if before < until:
        total = to_numpy(sum(lane.update() for _ in range(until - before)))
    return mean_metrics(total, np.asarray(lane.updates - before, np.float32), np)


def chosen(lanes: Any, new: Any, old: Any) -> Any:
    """The new values of some lanes among the old ones of the others."""
    if not isinstance(new, tuple):
        return np.where(np.reshape(lanes, (-1,) + (1,) * (np.ndim(new) - 1)), new, old)
    parts = [chosen(lanes, *pair) for pair in zip(new, old, strict=True)]
    return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)


def array_names(tree: Any, name: str = "") -> list[tuple[str, Any]]:
    """(name, leaf) of all arrays of nested tuples, in order:
    `lanes/network/actor/hidden/0/weight`.
    """
    if tree is None:
        return []
    if not isinstance(tree, tuple):
        return [(name, tree)]
    fields = getattr(tree, "_fields", range(len(tree)))
    parts = [
        (f"{name}/{field}" if name else str(field), part)
        for field, part in zip(fields, tree, strict=True)
    ]
    return [found for path, part in parts for found in array_names(part, path)]


def device() -> str:
    """This worker's device, as its slot says."""
    return os.environ.get(TORCH_DEVICE, "cpu")


def load_data(job: Job) -> Any:
    """The arrays that all lanes share, on the device. A worker that is pinned to some cores uses as
    many threads.
    """
    torch.set_num_threads(len(available_cores()))
    return map_leaves(lambda path: torch.from_numpy(np.load(path)).to(device()), job.data)
