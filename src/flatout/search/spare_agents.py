"""Agents that no trial runs: controls, finalists and the winner, trained to the end and judged in
spare lanes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flatout.arrays import map_leaves
from flatout.learners.jobs import Chunk, WorkOrder
from flatout.policies.network import Network
from flatout.search.finalist_results import Condition, Floats
from flatout.search.space import Values
from flatout.search.spare_lanes import SpareLanes


class SpareAgent(NamedTuple):
    """Who is trained beside the trials: some values on a stretch of the tape, from a seed."""

    stretch: str
    values: Values
    seed: int


class JudgedAgent(NamedTuple):
    """An agent after its training: the answers of its worker under each condition, and its lane."""

    chunks: Sequence[Chunk]
    lane: int

    @property
    def traces(self) -> Floats:
        """(condition, term or weight, block, bar): what it earned and held."""
        return np.stack([np.asarray(chunk.traces[self.lane]) for chunk in self.chunks])

    @property
    def network(self) -> Network:
        """What it learned, where networks were asked for."""
        networks = self.chunks[0].networks
        assert networks is not None
        return map_leaves(lambda leaf: np.array(leaf[self.lane]), networks)


def train_agents(
    lanes: SpareLanes,
    agents: Sequence[SpareAgent],
    conditions: Sequence[Condition],
    networks: bool = False,
) -> list[JudgedAgent]:
    """Train agents in groups that fill a worker's lanes, and judge each group under all
    conditions.
    """
    width = -(-len(agents) // max(1, -(-len(agents) // lanes.study.layout.lanes)))
    groups = [agents[first : first + width] for first in range(0, len(agents), width)]
    scripts = [
        [
            order_agents(lanes, group, condition, begin=n == 0, networks=networks)
            for n, condition in enumerate(conditions)
        ]
        for group in groups
    ]
    return [
        JudgedAgent(chunks, lane)
        for group, chunks in zip(groups, lanes.carry_out(scripts), strict=True)
        for lane in range(len(group))
    ]


def order_agents(
    lanes: SpareLanes,
    agents: Sequence[SpareAgent],
    condition: Condition,
    begin: bool,
    networks: bool,
) -> WorkOrder:
    """Train some agents to the end (or leave them as they are) and judge them under a condition."""
    market = lanes.study.market
    specs = [
        market.lane_on(agent.stretch, agent.values, agent.seed, condition.cost_factor)
        for agent in agents
    ]
    return lanes.make_order(
        specs, market.updates, begin=begin, delay=condition.delay, networks=networks
    )
