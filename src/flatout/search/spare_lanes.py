"""The batch of lanes that no trial uses: it shows that every knob acts, and trains controls,
finalists and the winner.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flatout.learners.jobs import Chunk, WorkOrder
from flatout.search.market_study import LaneSpec
from flatout.search.study import Study
from flatout.search.study_orders import make_new_lanes
from flatout.workers.driving import run_scripts
from flatout.workers.worker import Worker


class SpareLanes(NamedTuple):
    """The spare batch of a study's lanes, on all of its workers."""

    study: Study
    workers: Sequence[Worker]
    job: int  # its number among the jobs of each worker

    def make_order(
        self,
        specs: Sequence[LaneSpec],
        updates: int,
        begin: bool = True,
        delay: int = 0,
        networks: bool = False,
    ) -> WorkOrder:
        """Train agents up to so many updates and judge them, one worker's lanes at most. They begin
        anew, or go on as they are.
        """
        idle = self.study.layout.lanes - len(specs)
        lanes = [*specs, *[self.study.idle] * idle]
        return WorkOrder(
            (updates,) * len(specs) + (0,) * idle,
            job=self.job,
            new_lanes=make_new_lanes(lanes, range(len(specs)) if begin else ()),
            delay=delay,
            networks=networks,
        )

    def carry_out(self, scripts: Sequence[Sequence[WorkOrder]]) -> list[list[Chunk]]:
        """The answers to scripts of orders, each of which stays on one worker."""
        return run_scripts(self.workers, scripts)
