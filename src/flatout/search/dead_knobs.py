"""Every searched knob must change something: agents with its smallest and its largest value learn
for a few updates.

A knob whose two agents end bit for bit alike is dead, and a study that searched it would report
importance where there is none.
"""

from collections.abc import Sequence

import numpy as np

from flatout.errors import RunError
from flatout.learners.jobs import Order
from flatout.search.space import Values, extremes, middle
from flatout.search.study import Study, newcomers
from flatout.workers.driving import run_scripts
from flatout.workers.worker import Worker

FEW, MANY = 3, 12  # updates; those that look dead after a few get more
BITING = ("train.learning_rate", "train.epochs")  # large steps make limits on steps bite


def prove_live(study: Study, workers: Sequence[Worker], job: int) -> None:
    """Stop with the names of dead knobs, if there are any."""
    dead = list(study.space)
    for updates in (FEW, MANY):
        outcomes = learned(
            study,
            [pair for name in dead for pair in at_both_ends(study, name)],
            updates,
            workers,
            job,
        )
        pairs = zip(dead, outcomes[::2], outcomes[1::2], strict=True)
        dead = [name for name, low, high in pairs if low == high]
    if dead:
        raise RunError(
            f"search.space holds {', '.join(dead)}, which changed nothing between the ends of its "
            f"range in {MANY} "
            "updates: take it out, or change the settings that keep it from acting"
        )


def at_both_ends(study: Study, name: str) -> list[Values]:
    """Two agents that differ in one knob only."""
    knobs = study.space.items()
    base = {other: extremes(knob)[1] if other in BITING else middle(knob) for other, knob in knobs}
    return [{**base, name: end} for end in extremes(study.space[name])]


def learned(
    study: Study, agents: Sequence[Values], updates: int, workers: Sequence[Worker], job: int
) -> list[tuple[bytes, bytes]]:
    """What each agent reported and earned after some updates, bit by bit."""
    width, orders = study.layout.lanes, []
    for first in range(0, len(agents), width):
        some = [study.market.lane(values, 0, 0) for values in agents[first : first + width]]
        until = (updates,) * len(some) + (0,) * (width - len(some))
        lanes = some + [study.idle] * (width - len(some))
        orders.append(Order(until, job=job, newcomers=newcomers(lanes, range(len(some)))))
    chunks = [chunk for [chunk] in run_scripts(workers, [[order] for order in orders])]
    rows = [row for chunk in chunks for row in zip(chunk.metrics, chunk.traces, strict=True)]
    return [
        (np.asarray(metrics).tobytes(), np.asarray(traces).tobytes())
        for metrics, traces in rows[: len(agents)]
    ]
