"""A batch of lanes on PyTorch: the lanes of one job, one after another on one device; orders,
answers and checkpoints are those of the batches on JAX.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import array_api_compat.torch as torch_namespace
import numpy as np
import torch

from flatout.arrays import Array, ArrayTree, map_leaves, to_numpy
from flatout.children import available_cores
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
from flatout.learners.checkpoint import rebuild_tree
from flatout.learners.jobs import (
    TORCH_DEVICE,
    AgentSpec,
    Chunk,
    EvaluationPlan,
    Job,
    NewLanes,
    WorkOrder,
)
from flatout.learners.lane_trees import stack_trees, take_lane
from flatout.learners.market_environment import MarketEnvironment
from flatout.learners.metrics import SCORE, mean_metrics, metric_names
from flatout.learners.stepwise import NumpyMarketEnvironment, evaluate, trace
from flatout.learners.torch_engine import pathwise, ppo
from flatout.learners.torch_engine.compiled import choose_kernels
from flatout.learners.torch_engine.lane import TorchLane
from flatout.learners.torch_engine.pathwise import PathwiseKernels, PathwiseLearner
from flatout.learners.torch_engine.ppo import TorchLearner
from flatout.learners.torch_engine.rollout import Kernels
from flatout.learners.trajectory import Lanes
from flatout.policies.network import new_network


class TorchPrograms(NamedTuple):
    """What batches of one shape share."""

    kernels: Kernels | PathwiseKernels
    working_bytes: int = 0  # unknown before it runs


class TorchLaneBatch:
    """Lanes that advance one after another."""

    def __init__(self, job: Job, data: ArrayTree, programs: TorchPrograms | None = None) -> None:
        self.job, self.data, self.device = job, data, device_of_worker()
        self.on_host = self.device == "cpu"  # where NumPy can read the same memory
        self.programs = programs or make_programs(job, self.device)
        self.rates = job.rates
        plan = job.evaluation
        self.judged = plan.environment if plan else None
        self.lanes = [self.new_learner(k, agent) for k, agent in enumerate(job.agents())]
        self.state = self.load_or_start()
        if programs is None:
            self.lanes[0].warm_up()

    def new_learner(self, lane: int, agent: AgentSpec) -> TorchLane:
        """A new agent for a lane."""
        program, kernels = self.job.program, self.programs.kernels
        given = {
            "rates": take_lane(self.rates, lane),
            "network": new_network(program.sizes, agent.seed, agent.log_std, agent.hidden),
            "seed": agent.seed,
            "device": self.device,
        }
        if isinstance(kernels, PathwiseKernels):
            return PathwiseLearner(program, self.data, **given, kernels=kernels)
        return TorchLearner(program, self.data, **given, kernels=kernels)

    def load_or_start(self) -> BatchState:
        """The lanes as the checkpoint has them, or fresh ones."""
        lanes = self.snapshot()
        best = no_best(len(self.lanes), lanes.network)
        fresh = BatchState(lanes, best, empty_chunk(self.job))
        arrays = read_state(self.job, array_names(fresh))
        if arrays is None:
            return fresh
        last: dict[str, ArrayTree] = {
            name: None if part is None else rebuild_tree(part, arrays, f"last/{name}")
            for name, part in fresh.last._asdict().items()
        }
        loaded = BatchState(
            lanes=rebuild_tree(lanes, arrays, "lanes"),
            best=rebuild_tree(best, arrays, "best"),
            last=drop_timings(Chunk(**last)),
        )
        for k, lane in enumerate(self.lanes):
            lane.load(take_lane(loaded.lanes, k))
        return loaded

    def snapshot(self) -> Lanes:
        """The state of all lanes, on the host, with the lane axis first."""
        return stack_trees([map_leaves(to_saved_kind, lane.state) for lane in self.lanes])

    def advance(self, order: WorkOrder) -> Chunk:
        """Carry out an order; what it led to is on disk when this returns."""
        began = time.perf_counter()
        if order.new_lanes:
            self.begin_lanes(order.new_lanes)
        done = [lane.updates for lane in self.lanes]
        metrics = []
        for lane, until in zip(self.lanes, order.until, strict=True):
            lane.buffers = self.lanes[0].buffers  # one after another: one memory serves all
            metrics.append(advance_lane(lane, until))
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
            round=order.round,
            traces=traces,
        )
        self.state = BatchState(lanes, best, drop_timings(chunk))
        save_state(self.job, array_names(self.state))
        return chunk._replace(networks=lanes.network) if order.networks else chunk

    def judge(self, lanes: Lanes, delay: int) -> EvaluationResult:
        """What the evaluation finds of the lanes' networks."""
        plan, last = self.job.evaluation, self.state.last
        if plan is None:
            return EvaluationResult(last.scores, last.traces, self.state.best)
        found = np.stack([self.judge_lane(plan, k, delay) for k in range(len(self.lanes))])
        if plan.traced:
            return EvaluationResult(last.scores, found, self.state.best)
        now = Best(found[:, SCORE], lanes.updates, lanes.network)
        won = found[:, SCORE] > self.state.best.score
        return EvaluationResult(found, last.traces, select_lanes(won, now, self.state.best))

    def judge_lane(self, plan: EvaluationPlan, k: int, delay: int) -> Array:
        """One lane's scores or traces."""
        lane, data = self.lanes[k], self.data
        program, network, xp = self.job.program, lane.network, torch_namespace
        place: Callable[[Array], Array] = lane.upload
        key = torch.Generator(lane.device).manual_seed(plan.seed)
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
                return to_numpy(
                    trace(
                        program,
                        data,
                        rates,
                        network,
                        n_steps=plan.n_steps,
                        which=which,
                        delay=delay,
                        xp=xp,
                    )
                )
            size = {"n_envs": plan.n_envs, "n_steps": plan.n_steps}
            return to_numpy(evaluate(program, data, rates, network, **size, key=key, xp=xp))

    def begin_lanes(self, new: NewLanes) -> None:
        """Put new agents into some lanes; the others stay as they are, except for their rates."""
        self.rates, self.judged = new.rates, new.judged
        for k, lane in enumerate(self.lanes):
            lane.set_rates(take_lane(self.rates, k))
        for k, agent in new.agents():
            self.lanes[k] = self.new_learner(k, agent)


def make_programs(job: Job, device: str) -> TorchPrograms:
    """What the job's lanes share: the functions of its algorithm, compiled where that pays."""
    steps = count_vector_steps(job)
    if job.program.algorithm == "pathwise":
        return TorchPrograms(choose_kernels(pathwise.PLAIN, steps >= pathwise.WORTH, device))
    return TorchPrograms(choose_kernels(ppo.PLAIN, steps >= ppo.WORTH, device))


def count_vector_steps(job: Job) -> int:
    """Steps of all environments together that the job is going to make."""
    return int(np.sum(job.rates.updates)) * job.program.n_steps


def to_saved_kind(leaf: Array) -> Array:
    """A leaf as JAX would keep it: PyTorch's sums of whole numbers are wider."""
    array = to_numpy(leaf)
    return array.astype(np.int32) if array.dtype == np.int64 else array


def advance_lane(lane: TorchLane, until: int) -> Array:
    """Bring a lane to so many updates; its metrics over those that it made."""
    total, before = np.zeros(len(metric_names(lane.program)), np.float32), lane.updates
    if before < until:
        total = to_numpy(sum(lane.update() for _ in range(until - before)))
    return mean_metrics(lane.program, total, np.asarray(lane.updates - before, np.float32), np)


def select_lanes(lanes: Array, new: ArrayTree, old: ArrayTree) -> ArrayTree:
    """The new values of some lanes among the old ones of the others."""
    if not isinstance(new, tuple):
        return np.where(np.reshape(lanes, (-1,) + (1,) * (np.ndim(new) - 1)), new, old)
    parts = [select_lanes(lanes, *pair) for pair in zip(new, old, strict=True)]
    return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)


def array_names(tree: ArrayTree, name: str = "") -> list[tuple[str, Array]]:
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


def device_of_worker() -> str:
    """This worker's device, as its slot says."""
    return os.environ.get(TORCH_DEVICE, "cpu")


def load_data(job: Job) -> ArrayTree:
    """The arrays that all lanes share, on the device. A worker that is pinned to some cores uses as
    many threads.
    """
    torch.set_num_threads(len(available_cores()))
    return map_leaves(lambda path: torch.from_numpy(np.load(path)).to(device_of_worker()), job.data)
