"""What the workers of a study are given: their lanes when they start, and an order for each
round.
"""

from collections.abc import Mapping, Sequence

from flatout.arrays import ArrayTree
from flatout.learners.jobs import EvaluationPlan, Job, NewLanes, WorkOrder
from flatout.learners.lane_trees import stack_trees
from flatout.search.lane_layout import LANE_BATCHES, LaneSlot
from flatout.search.market_study import LaneSpec
from flatout.search.space import values_of
from flatout.search.study import Study

SPARE_BATCH = LANE_BATCHES  # of lanes that no trial uses: it checks knobs and trains finalists
JOBS = LANE_BATCHES + 1  # of a study on a worker


def make_jobs(study: Study, worker: int, data: ArrayTree) -> list[Job]:
    """A worker's lanes, all empty, of each batch and of the spare one; `data` are the files of the
    tape.
    """
    count, market, idle = study.layout.lanes, study.market, study.idle
    plan = EvaluationPlan(
        stack_trees([idle.judged] * count), market.test_blocks, market.test_bars, traced=True
    )
    return [
        Job(
            program=market.program,
            names=[f"lane {k}" for k in range(count)],
            rates=stack_trees([idle.rates] * count),
            data=data,
            seeds=[0] * count,
            log_std=[idle.log_std] * count,
            hidden=[idle.hidden] * count,
            checkpoint=study.checkpoint_path(worker, batch),
            evaluation=plan,
        )
        for batch in range(JOBS)
    ]


def make_orders(study: Study, round_number: int) -> list[WorkOrder]:
    """What each worker shall do in a round."""
    places = study.state.batches[round_number % LANE_BATCHES]
    specs = {
        LaneSlot(place, split, seed): study.market.lane(
            values_of(study.space, running.params), split, seed
        )
        for place, running in enumerate(places)
        if running
        for split in range(study.layout.splits)
        for seed in range(study.layout.seeds)
    }
    return [
        make_order(study, round_number, worker, specs) for worker in range(study.layout.workers)
    ]


def make_order(
    study: Study, round_number: int, worker: int, specs: Mapping[LaneSlot, LaneSpec]
) -> WorkOrder:
    """One worker's part of a round: its lanes go on to their trials' rungs, those of new trials
    from the beginning.
    """
    places = study.state.batches[round_number % LANE_BATCHES]
    lanes, until, begin = [], [], []
    for lane in range(study.layout.lanes):
        slot = study.layout.slot_of(worker, lane)
        running = places[slot.place] if slot else None
        lanes.append(specs[slot] if slot and running else study.idle)
        until.append(study.market.rungs[running.rung] if running else 0)
        if running and running.rung == 0:
            begin.append(lane)
    return WorkOrder(tuple(until), round=round_number, new_lanes=make_new_lanes(lanes, begin))


def make_new_lanes(lanes: Sequence[LaneSpec], begin: Sequence[int]) -> NewLanes:
    """The rates of all lanes, and the agents that begin in some of them."""
    return NewLanes(
        rates=stack_trees([lane.rates for lane in lanes]),
        judged=stack_trees([lane.judged for lane in lanes]),
        lanes=tuple(begin),
        seeds=tuple(lanes[k].seed for k in begin),
        log_std=tuple(lanes[k].log_std for k in begin),
        hidden=tuple(lanes[k].hidden for k in begin),
    )
