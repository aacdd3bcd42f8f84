"""Every searched knob must change something: agents with its smallest and its largest value learn
for a few updates.

A knob whose two agents end bit for bit alike is dead, and a study that searched it would report
importance where there is none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flatout.errors import RunError
from flatout.search.space import Values, extreme_values, middle_value
from flatout.search.spare_lanes import SpareLanes
from flatout.search.study import Study
from flatout.settings.study import usual_space

FEW, MANY = 3, 12  # updates; those that look dead after a few get more
BITING = ("train.learning_rate", "train.epochs")  # large steps make limits on steps bite


class DeadKnobError(RunError):
    """A study searches what changes nothing, so it was not begun."""


class AgentBits(NamedTuple):
    """What an agent reported and earned, bit by bit."""

    metrics: bytes
    traces: bytes


def check_live_knobs(lanes: SpareLanes) -> None:
    """Stop with the names of dead knobs, if there are any."""
    study = lanes.study
    dead = list(study.space)
    for updates in (FEW, MANY):
        agents = [values for name in dead for values in values_at_both_ends(study, name)]
        outcomes = train_briefly(lanes, agents, updates)
        pairs = zip(dead, outcomes[::2], outcomes[1::2], strict=True)
        dead = [name for name, low, high in pairs if low == high]
    if dead:
        usual = study.space == usual_space(study.market.program.algorithm)
        space = "the default search.space" if usual else "search.space"
        cure = "write a search.space without it" if usual else "take it out"
        raise DeadKnobError(
            f"{space} holds {', '.join(dead)}, which changed nothing between the ends of its "
            f"range in {MANY} updates: {cure}, or change the settings that keep it from acting"
        )


def values_at_both_ends(study: Study, name: str) -> list[Values]:
    """The settings of two agents that differ in one knob only."""
    base = {
        other: extreme_values(knob)[1] if other in BITING else middle_value(knob)
        for other, knob in study.space.items()
    }
    return [{**base, name: end} for end in extreme_values(study.space[name])]


def train_briefly(lanes: SpareLanes, agents: Sequence[Values], updates: int) -> list[AgentBits]:
    """What each agent reported and earned after some updates on the first split."""
    market, width = lanes.study.market, lanes.study.layout.lanes
    specs = [market.lane(values, split=0, seed=0) for values in agents]
    groups = [specs[first : first + width] for first in range(0, len(specs), width)]
    answers = lanes.carry_out([[lanes.make_order(group, updates)] for group in groups])
    return [
        AgentBits(
            np.asarray(chunk.metrics[lane]).tobytes(), np.asarray(chunk.traces[lane]).tobytes()
        )
        for group, [chunk] in zip(groups, answers, strict=True)
        for lane in range(len(group))
    ]
