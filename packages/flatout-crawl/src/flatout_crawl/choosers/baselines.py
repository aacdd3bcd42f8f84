"""Ways to choose the next link without having learned before: what a learned policy must beat.

A chooser sees the whole frontier, not only the candidates of an observation, so none is
handicapped. It is made anew for every crawl. `AlwaysFirst` and `Repeat` are no baselines but
guards: a reward that pays them is wrong.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from flatout_crawl.choosers.frontier import RELEVANCE, Floats
from flatout_crawl.choosers.observation import Observation, observe
from flatout_crawl.choosers.session import CrawlSession, Visit
from flatout_crawl.reading.facts import SIMILARITIES
from flatout_crawl.reading.text import TextVectors, url_text

RATE, DECAY = 0.5, 1e-4  # of the logistic regression
UNKNOWN = 1e9  # the score of a group that was never tried


class Chooser(Protocol):
    """Chooses the next URL of one crawl."""

    def choose(self, session: CrawlSession) -> str | None:
        """A URL, or None to stop."""
        ...

    def on_visit(self, session: CrawlSession, visit: Visit) -> None:
        """What came of the choice."""
        ...


MakeChooser = Callable[[int], Chooser]  # from a seed


class Oblivious:
    """Learns nothing from what comes."""

    def on_visit(self, session: CrawlSession, visit: Visit) -> None:
        """Nothing is learned from a visit."""


class Random(Oblivious):
    """Follows any open link, all equally likely."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def choose(self, session: CrawlSession) -> str | None:
        """Any of the open links, drawn at random."""
        return url_of(session, int(self.rng.choice(session.frontier.open_ids())))


class BreadthFirst(Oblivious):
    """The link known longest."""

    def choose(self, session: CrawlSession) -> str | None:
        """The first of the queue."""
        return url_of(session, int(session.frontier.open_ids()[0]))


class DepthFirst(Oblivious):
    """The first link of the page that was found last."""

    def choose(self, session: CrawlSession) -> str | None:
        """Of the links found at the latest step, the first."""
        ids = session.frontier.open_ids()
        latest = session.frontier.seen_at[ids]
        return url_of(session, int(ids[np.argmax(latest)]))


class BestFirst(Oblivious):
    """The link most similar to the topic; with `inherit`, its page's relevance counts too (as in
    shark-search).
    """

    def __init__(self, inherit: float = 0.0) -> None:
        self.inherit = inherit

    def choose(self, session: CrawlSession) -> str | None:
        """The best; the older wins a tie."""
        ids, frontier = session.frontier.open_ids(), session.frontier
        scores = frontier.similarity[ids] + self.inherit * frontier.facts[ids, RELEVANCE]
        return url_of(session, int(ids[np.argmax(scores)]))


class InOrder(Oblivious):
    """A given order of URLs, such as a sitemap's or an oracle's; those asked for already are left
    out.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = iter(urls)

    def choose(self, session: CrawlSession) -> str | None:
        """The next URL that was not asked for yet; None after the last."""
        index, is_open = session.frontier.index, session.frontier.open
        for url in self.urls:
            number = index.get(url)
            if number is None or (number >= 0 and is_open[number]):
                return url
        return None


class GroupBandit:
    """A bandit over groups of links, of which those without open links sleep (AUER, as in
    SB-CLASSIFIER).

    Each group is tried once; then the one with the largest mean plus bonus gives a random link. A
    page pays the group of the link that led to it, and half as much the group that led to the page
    before: lists of targets are worth it.
    """

    def __init__(self, seed: int, kinds: bool = False, exploration: float = 0.05) -> None:
        """Groups have one tag path; with `kinds` also one URL template."""
        self.rng, self.column, self.exploration = (
            np.random.default_rng(seed),
            2 if kinds else 0,
            exploration,
        )
        self.tried, self.earned = np.zeros(256), np.zeros(256)

    def choose(self, session: CrawlSession) -> str | None:
        """A random link of the best group that is awake."""
        frontier = session.frontier
        groups = frontier.kinds if self.column else frontier.tags
        tried, earned = self.tried[: len(groups.names)], self.earned[: len(groups.names)]
        bonus = self.exploration * np.sqrt(2 * np.log1p(tried.sum()) / np.maximum(tried, 1))
        scores = np.where(tried > 0, earned / np.maximum(tried, 1) + bonus, UNKNOWN)
        scores = np.where(groups.open > 0, scores, -np.inf)
        best = int(self.rng.choice(np.flatnonzero(scores == scores.max())))
        ids = frontier.open_ids()
        return url_of(session, int(self.rng.choice(ids[frontier.group[ids, self.column] == best])))

    def on_visit(self, session: CrawlSession, visit: Visit) -> None:
        """Pay the groups of the links that led to this page."""
        frontier = session.frontier
        while len(self.tried) < max(len(frontier.kinds.names), len(frontier.tags.names)):
            self.tried, self.earned = (
                np.concatenate([x, np.zeros_like(x)]) for x in (self.tried, self.earned)
            )
        if visit.link < 0 or visit.technical:
            return
        self.tried[frontier.group[visit.link, self.column]] += 1
        self.earned[frontier.group[visit.link, self.column]] += visit.earned
        before = int(frontier.parent[visit.link])
        if before >= 0:
            self.earned[frontier.group[before, self.column]] += 0.5 * visit.earned


class LinkClassifier:
    """Logistic regression, learned while crawling, from a link's words and place to whether its
    page was relevant.

    Relevant pages are few, so they weigh as much as all others together. Now and then a random link
    is followed.
    """

    def __init__(self, seed: int, exploration: float = 0.05) -> None:
        self.rng, self.exploration = np.random.default_rng(seed), exploration
        self.vectors = TextVectors(256)
        self.inputs: Floats = np.zeros((256, 0), np.float32)  # (link, input)
        self.known = 0  # rows of it
        self.weights: Floats = np.zeros(0, np.float32)
        self.seen = [1, 1]  # pages that were not relevant, and that were

    def choose(self, session: CrawlSession) -> str | None:
        """The likeliest link; by similarity as long as nothing was learned."""
        ids = session.frontier.open_ids()
        self._prepare(session)
        if self.rng.random() < self.exploration:
            return url_of(session, int(self.rng.choice(ids)))
        scores = self.inputs[ids] @ self.weights + session.frontier.similarity[ids]
        return url_of(session, int(ids[np.argmax(scores)]))

    def on_visit(self, session: CrawlSession, visit: Visit) -> None:
        """One step of gradient descent."""
        if visit.link < 0 or visit.technical:
            return
        self._prepare(session)
        relevant = visit.earned > 0
        self.seen[relevant] += 1
        weight = sum(self.seen) / (2 * self.seen[relevant])
        inputs = self.inputs[visit.link]
        likely = 1 / (1 + np.exp(-np.clip(inputs @ self.weights, -30, 30)))
        self.weights += np.float32(RATE) * (
            np.float32(weight * (relevant - likely)) * inputs - DECAY * self.weights
        )

    def _prepare(self, session: CrawlSession) -> None:
        """Inputs of links that are new: hashed words, and what the page shows of them."""
        frontier, first = session.frontier, self.known
        if len(frontier) == first:
            return
        links = frontier.links[first:]
        hashed = self.vectors.matrix(
            [f"{link.anchor} {url_text(link.url)} {link.context}" for link in links]
        )
        kinds = self.vectors.matrix([link.tag_path.replace("/", " ") for link in links])
        places = frontier.facts[first : len(frontier), SIMILARITIES:RELEVANCE] / 3
        fresh = np.concatenate([hashed, kinds, places], axis=1)
        if not self.inputs.shape[1]:
            self.inputs, self.weights = (
                np.zeros((256, fresh.shape[1]), np.float32),
                np.zeros(fresh.shape[1], np.float32),
            )
        while len(self.inputs) < len(frontier):
            self.inputs = np.concatenate([self.inputs, np.zeros_like(self.inputs)])
        self.inputs[first : len(frontier)], self.known = fresh, len(frontier)


class LearnedChooser(Oblivious):
    """A policy from observations to actions, as it acts in the environment."""

    def __init__(
        self,
        policy: Callable[[Observation], int],
        seed: int,
        candidates: int = 64,
        stop_action: bool = False,
    ) -> None:
        self.policy, self.candidates, self.stop_action = policy, candidates, stop_action
        self.rng = np.random.default_rng(seed)

    def choose(self, session: CrawlSession) -> str | None:
        """What the policy takes; None where it stops."""
        seen = observe(session, self.candidates, self.rng, self.stop_action)
        action = int(self.policy(seen.observation))
        return url_of(session, int(seen.links[action])) if action < self.candidates else None


class AlwaysFirst(Oblivious):
    """The first link of the page just read, whatever it is: known or not, followed or not."""

    def choose(self, session: CrawlSession) -> str | None:
        """It, or the seed page where there is none."""
        return session.page.urls[0] if session.page and session.page.urls else session.task.seed_url


class Repeat(Oblivious):
    """The most relevant page known, again and again."""

    def __init__(self) -> None:
        self.best = (-1.0, "")

    def choose(self, session: CrawlSession) -> str | None:
        """The page that was best so far; first, once, what best-first search would take."""
        if session.steps < 1:
            return BestFirst().choose(session)
        return max(self.best, (0.0, session.task.seed_url))[1]

    def on_visit(self, session: CrawlSession, visit: Visit) -> None:
        """Remember the page if it is the best so far."""
        self.best = max(self.best, (visit.relevance, visit.asked))


def url_of(session: CrawlSession, number: int) -> str:
    """The URL of a link, by its number in the frontier."""
    return session.frontier.links[number].url


def standard() -> dict[str, MakeChooser]:
    """The baselines by name; oracle and sitemap need to know the site."""
    return {
        "random": Random,
        "breadth-first": lambda seed: BreadthFirst(),
        "depth-first": lambda seed: DepthFirst(),
        "best-first": lambda seed: BestFirst(),
        "shark-search": lambda seed: BestFirst(inherit=0.5),
        "link-classifier": LinkClassifier,
        "tag-path-bandit": GroupBandit,
        "kind-bandit": lambda seed: GroupBandit(seed, kinds=True),
    }
