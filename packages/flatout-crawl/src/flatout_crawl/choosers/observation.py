"""What the agent sees of a crawl: 16 numbers about the whole, 28 about each of K links, and which
choices there are.

All numbers are finite, scaled to be of the order of 1, and clipped at ±10. How a link's numbers
come about stands in `facts.py` and `frontier.py`; their names are `LINK`.
"""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary
from numpy.typing import NDArray

from flatout_crawl.choosers.frontier import LIMIT, LINK, Floats, Frontier, Ids, candidates
from flatout_crawl.choosers.session import CrawlSession

__all__ = [
    "GLOBAL",
    "LINK",
    "CandidateView",
    "flatten_observation",
    "observation_size",
    "observation_space",
    "observe",
]

GLOBAL = (
    "budget_left",  # share
    "requests_left",  # logarithm
    "pages",
    "relevant_pages",
    "harvest",  # recent average of what was earned
    "last_reward",
    "since_found",  # steps since a page earned something
    "frontier",
    "error_share",
    "seconds",  # recent average of an answer's time
    "new_links",  # recent average per page
    "group_entropy",  # how evenly open links are spread over tag paths: 0 to 1
    "best_score",  # among the candidates
    "mean_score",
    "best_group",  # the most that a tag path earned per link
    "last_relevance",
)

Observation = dict[str, NDArray[np.float32] | NDArray[np.int8]]


class CandidateView(NamedTuple):
    """An observation, and which link stands behind each choice."""

    observation: Observation
    links: Ids


def observation_space(count: int) -> Dict:
    """The space of observations with this many candidates."""
    return Dict(
        {
            "global": Box(-LIMIT, LIMIT, (len(GLOBAL),), np.float32),
            "links": Box(-LIMIT, LIMIT, (count, len(LINK)), np.float32),
            "mask": MultiBinary(count + 1),
        }
    )


def observation_size(count: int) -> int:
    """Numbers in a flat observation."""
    return len(GLOBAL) + count * len(LINK) + count + 1


def flatten_observation(observation: Observation) -> Floats:
    """As `gymnasium.spaces.flatten` does it: global, links, mask."""
    parts = [
        np.asarray(observation[name], np.float32).ravel() for name in ("global", "links", "mask")
    ]
    return np.concatenate(parts)


def observe(
    session: CrawlSession, count: int, rng: np.random.Generator, stop: bool = True
) -> CandidateView:
    """What is seen now; without links to follow, stopping is the one choice."""
    chosen, scores = candidates(session.frontier, count, rng)
    links, mask = np.zeros((count, len(LINK)), np.float32), np.zeros(count + 1, np.int8)
    links[: len(chosen)] = session.frontier.features(chosen, session.steps)
    mask[: len(chosen)], mask[count] = 1, stop or not len(chosen)
    return CandidateView(
        {"global": overview(session, scores), "links": links, "mask": mask}, chosen
    )


def overview(session: CrawlSession, scores: Floats) -> Floats:
    """(GLOBAL,) numbers about the whole crawl, and the scores of the candidates."""
    frontier, last, left = session.frontier, session.last, max(0, session.budget - session.requests)
    numbers = (
        left / session.budget,
        math.log1p(left) / 5,
        math.log1p(session.pages) / 5,
        math.log1p(session.relevant) / 3,
        session.recent.harvest,
        last.reward if last else 0.0,
        math.log1p(session.since_found) / 3,
        math.log1p(frontier.open_count) / 5,
        session.errors / max(1, session.errors + session.pages),
        math.log1p(session.recent.seconds),
        math.log1p(session.recent.new_links) / 3,
        entropy(frontier),
        float(scores[0]) if len(scores) else 0.0,  # the best come first
        float(scores.sum()) / len(scores) if len(scores) else 0.0,
        float(np.max(frontier.tags.mean)) if len(frontier) else 0.0,
        last.relevance if last else 0.0,
    )
    return np.clip(np.array(numbers, np.float32), -LIMIT, LIMIT)


def entropy(frontier: Frontier) -> float:
    """Of the open links over tag paths, as a share of the most it could be."""
    held = frontier.tags.open
    held = held[held > 0]
    if len(held) < 2:
        return 0.0
    return float(
        math.log(frontier.open_count) - held @ np.log(held) / frontier.open_count
    ) / math.log(len(held))
