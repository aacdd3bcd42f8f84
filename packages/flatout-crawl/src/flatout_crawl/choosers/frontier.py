"""The links that are known and not yet followed, as growing arrays: a step costs as much as it
brings new links.

A link keeps what it looked like where it was first seen. Links of one kind (same tag path, same URL
template) form groups, and a group knows what the links followed from it have earned. This file asks
for no page and gives no reward.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout_crawl.reading.facts import LINK_FACTS, SIMILARITIES, PageFacts
from flatout_crawl.reading.page import Link

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

PATH_COLUMNS = ("parent_relevance", "path_share", "nearness", "depth")
LIVE_COLUMNS = (
    "in_links",
    "tag_mean",
    "tag_count",
    "tag_bonus",
    "template_mean",
    "template_count",
    "age",
)
LINK = (*LINK_FACTS, *PATH_COLUMNS, *LIVE_COLUMNS)  # the columns of a link
RELEVANCE = len(LINK_FACTS)  # the column of the most relevant page that a link stands on
SIMILARITY_WEIGHTS = np.array([0.5, 0.25, 0.25], np.float32)  # anchor, URL, context
GROUP_WEIGHT = 0.5  # of each of a link's two groups beside its similarity
ELSEWHERE = -1  # in the index: a URL that was read without ever standing on a page
LIMIT = 10.0
OPEN, FOLLOWED, EARNED, MEAN, COUNT, RARITY, CAUTIOUS = range(7)  # rows of a table of groups


class Trail(NamedTuple):
    """How a page was reached, itself included."""

    pages: int = 0  # on the way from the seed
    relevant: int = 0  # of those
    since: int = -1  # pages after the last relevant one; -1 if there was none

    @property
    def columns(self) -> tuple[float, float, float]:
        """Columns of the links on that page: path_share, nearness, depth."""
        nearness = 1 / (self.since + 1) if self.since >= 0 else 0.0
        return self.relevant / max(self.pages, 1), nearness, min(self.pages / 5, LIMIT)

    def onward(self, relevant: bool) -> "Trail":
        """The trail to a page that is linked to from this one."""
        since = 0 if relevant else (self.since + 1 if self.since >= 0 else -1)
        return Trail(self.pages + 1, self.relevant + relevant, since)


class Groups:
    """Kinds of links: how many are open, how many were followed, and what those earned.

    What follows from that is kept beside it: a step changes one group and looks at all of them.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.table = _no_groups(64)
        self.credited = 0  # links followed, of all groups

    def number(self, name: str) -> int:
        """A group's number; a new one for a new name."""
        found = self.names.setdefault(name, len(self.names))
        if found >= self.table.shape[1]:
            self.table = np.concatenate([self.table, _no_groups(found)], axis=1)
        return found

    def credit(self, number: int, earned: float) -> None:
        """One more link of this group was followed, and earned so much."""
        followed = self.table.item(FOLLOWED, number) + 1
        total = self.table.item(EARNED, number) + earned
        rarity = 1 / math.sqrt(followed)
        self.table[FOLLOWED:, number] = (
            followed,
            total,
            total / followed,
            math.log1p(followed) / 3,
            rarity,
            total / (followed + 1),
        )
        self.credited += 1

    def columns_of(self, numbers: Ids) -> NDArray[np.float64]:
        """(3, number) of these groups: what a followed link earned on average, how many were
        followed as a logarithm, and what is added for being little known (UCB1's, where no link
        followed counts as one).
        """
        columns = self.table[MEAN : RARITY + 1].take(numbers, axis=1)
        columns[2] *= math.sqrt(2 * math.log1p(self.credited))
        return columns

    @property
    def open(self) -> NDArray[np.float64]:
        """(group,) links that are known and not followed."""
        return self.table[OPEN, : len(self.names)]

    @property
    def followed(self) -> NDArray[np.float64]:
        """(group,) links that were followed."""
        return self.table[FOLLOWED, : len(self.names)]

    @property
    def mean(self) -> NDArray[np.float64]:
        """(group,) earned per link followed; 0 where none was."""
        return self.table[MEAN, : len(self.names)]

    @property
    def cautious_mean(self) -> NDArray[np.float64]:
        """(group,) as if one more link had been followed for nothing."""
        return self.table[CAUTIOUS, : len(self.names)]


def _no_groups(count: int) -> NDArray[np.float64]:
    table = np.zeros((CAUTIOUS + 1, count))
    table[RARITY] = 1
    return table


class Frontier:
    """All links ever seen; `open` marks those not yet followed. A link's number is its order of
    discovery.
    """

    def __init__(self, capacity: int = 256) -> None:
        self.index: dict[str, int] = {}
        self.links: list[Link] = []
        self.tags, self.templates, self.kinds = (
            Groups(),
            Groups(),
            Groups(),
        )  # a kind is a tag path with a template
        self.facts = np.zeros((capacity, len(LINK_FACTS) + len(PATH_COLUMNS)), np.float32)
        self.similarity = np.zeros(capacity, np.float32)
        self.trail = np.zeros((capacity, 3), np.int64)  # of the page where it was first seen
        self.parent = np.zeros(
            capacity, np.int64
        )  # the link that led to that page; ELSEWHERE for the seed's
        self.in_links = np.zeros(capacity, np.int64)
        self.group = np.zeros((capacity, 3), np.int64)  # tag path, template, kind
        self.seen_at = np.zeros(capacity, np.int64)  # step
        self.open = np.zeros(capacity, np.bool_)
        self.open_count = 0  # how many are open

    def __len__(self) -> int:
        return len(self.links)

    def _room_for(self, more: int) -> None:
        while len(self.links) + more > len(self.open):
            for name, array in vars(self).items():
                if isinstance(array, np.ndarray):
                    setattr(self, name, np.concatenate([array, np.zeros_like(array)]))

    def see(self, page: PageFacts, trail: Trail, step: int, parent: int = ELSEWHERE) -> int:
        """Enter the links of a page, reached by the link `parent` and read for the first time; how
        many were new.
        """
        found = list(map(self.index.get, page.urls))
        known = np.array([k for k in found if k is not None and k >= 0], np.int64)
        self.in_links[known] += 1
        relevance = self.facts[:, RELEVANCE]
        relevance[known] = np.maximum(relevance[known], page.relevance)
        new = [position for position, k in enumerate(found) if k is None]
        if new:
            self._enter(page, new, trail, step)
            self.parent[len(self.links) - len(new) : len(self.links)] = parent
        return len(new)

    def _enter(self, page: PageFacts, new: list[int], trail: Trail, step: int) -> None:
        self._room_for(len(new))
        first, end = len(self.links), len(self.links) + len(new)
        for number, position in enumerate(new, first):
            self.index[page.urls[position]] = number
            self.links.append(page.links[position])
            tag, template = page.tag_paths[position], page.templates[position]
            self.group[number] = (
                self.tags.number(tag),
                self.templates.number(template),
                self.kinds.number(f"{tag} {template}"),
            )
        here, facts = slice(first, end), page.columns[new]
        self.facts[here, :RELEVANCE], self.facts[here, RELEVANCE:] = (
            facts,
            (page.relevance, *trail.columns),
        )
        self.similarity[here], self.in_links[here] = facts[:, :SIMILARITIES] @ SIMILARITY_WEIGHTS, 1
        self.trail[here], self.seen_at[here], self.open[here] = trail, step, True
        self.open_count += len(new)
        for k, groups in enumerate((self.tags, self.templates, self.kinds)):
            np.add.at(groups.table[OPEN], self.group[here, k], 1)

    def shut(self, url: str) -> int:
        """Take a URL out of what may be followed; its number, or ELSEWHERE if no page linked
        to it.
        """
        number = self.index.setdefault(url, ELSEWHERE)
        if number >= 0 and self.open[number]:
            self.open[number] = False
            self.open_count -= 1
            for k, groups in enumerate((self.tags, self.templates, self.kinds)):
                groups.table[OPEN, self.group[number, k]] -= 1
        return number

    def credit(self, number: int, earned: float) -> None:
        """Tell a link's groups what following it earned."""
        for groups, k in zip(
            (self.tags, self.templates, self.kinds), self.group[number].tolist(), strict=True
        ):
            groups.credit(k, earned)

    def trail_to(self, number: int) -> Trail:
        """How the page behind a link is reached, without that page."""
        return Trail(*self.trail[number].tolist()) if number >= 0 else Trail(1)

    def path_to(self, number: int) -> list[str]:
        """URLs of the links from the seed page to this one, itself included."""
        path = []
        while number >= 0:
            path.append(self.links[number].url)
            number = int(self.parent[number])
        return path[::-1]

    def open_ids(self) -> Ids:
        """Numbers of the open links, oldest first."""
        return self.open[: len(self.links)].nonzero()[0]

    def scores(self, ids: Ids) -> Floats:
        """(link,) similarity, plus what its groups earned."""
        groups = self.group.take(ids, axis=0)
        values = self.tags.cautious_mean.take(groups[:, 0]) + self.templates.cautious_mean.take(
            groups[:, 1]
        )
        return (self.similarity.take(ids) + GROUP_WEIGHT * values).astype(np.float32)

    def features(self, ids: Ids, step: int) -> Floats:
        """(link, LINK) of these links now."""
        table, n = np.empty((len(ids), len(LINK)), np.float32), self.facts.shape[1]
        groups = self.group.take(ids, axis=0)
        table[:, :n] = self.facts.take(ids, axis=0)
        table[:, n] = np.log1p(self.in_links.take(ids)) / 3
        table[:, n + 1 : n + 4] = self.tags.columns_of(groups[:, 0]).T
        table[:, n + 4 : n + 6] = self.templates.columns_of(groups[:, 1])[:2].T
        table[:, n + 6] = np.log1p(step - self.seen_at.take(ids)) / 4
        return table  # facts are clipped, and these cannot reach the limit


class Candidates(NamedTuple):
    """Links to choose among, with their scores."""

    links: Ids
    scores: Floats


def candidates(frontier: Frontier, count: int, rng: np.random.Generator) -> Candidates:
    """Which open links to choose among: half the best by score, a quarter the newest, a quarter one
    random link each of as many kinds; what these leave free goes to the next best. The best come
    first, in order of score.
    """
    ids = frontier.open_ids()
    scores = frontier.scores(ids)
    top = _largest(scores, count)  # enough also for what is left free
    if len(ids) <= count:
        return Candidates(ids[top], scores[top])
    free = np.ones(len(ids), np.bool_)
    best = top[: count // 2]
    free[best] = False
    newest = free.nonzero()[0][len(ids) - len(best) - count // 4 :]
    free[newest] = False
    spread = _one_per_kind(frontier.group[ids, 2], free.nonzero()[0], count // 4, rng)
    free[spread] = False
    filled = top[free[top]][: count - len(best) - len(newest) - len(spread)]
    chosen = np.concatenate([best, newest, spread, filled])
    return Candidates(ids[chosen], scores[chosen])


def _largest(scores: Floats, count: int) -> Ids:
    """Positions of the largest, in order; the older wins a tie."""
    if count < len(scores):
        above = (
            scores >= np.partition(scores, len(scores) - count)[len(scores) - count]
        ).nonzero()[0]
        return above[np.argsort(-scores[above], kind="stable")[:count]]
    return np.argsort(-scores, kind="stable")


def _one_per_kind(kinds: Ids, free: Ids, count: int, rng: np.random.Generator) -> Ids:
    """Positions of one random free link each of `count` random kinds, or of all if there are
    fewer.
    """
    shuffled = rng.permutation(free)
    first = np.full(int(np.max(kinds)) + 1, -1)
    first[kinds[shuffled]] = shuffled  # the last one written stays: a random member
    return rng.permutation(first[first >= 0])[:count]
