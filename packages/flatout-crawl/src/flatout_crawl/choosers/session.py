"""One crawl of one site: ask for a URL, learn what it was worth. Environment and baselines both
drive this.

It keeps the books: requests, repeats, rewards, targets. It does not choose, and it does not know
what a choice is made from.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from flatout.errors import FlatoutError, SettingsError
from flatout.foreign import shorten_repr
from flatout_crawl.choosers.frontier import Frontier, Trail
from flatout_crawl.net.fetching import Answer, Fetcher
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.facts import PageFacts, PageNotes
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.parsing import Resolver, read_page
from flatout_crawl.reading.relevance import Relevance
from flatout_crawl.reading.text import Topic

TECHNICAL = ("budget", "down")  # failures that say nothing about the link: the crawl cannot go on
SEED_ATTEMPTS = 3
MEGABYTE = 1e6
FADING = 0.9  # of the averages over recent steps


class SiteUnreachable(FlatoutError):  # noqa: N818
    """A crawl could not begin: the seed page was not had, or has no link to follow."""


class Prices(NamedTuple):
    """What a request costs and a page brings."""

    request: float = 0.03
    error: float = 0.03  # on top, for an answer that is no page
    megabyte: float = 0.0
    threshold: float = 0.5  # a page below this relevance brings nothing


@dataclass(frozen=True, eq=False)
class CrawlTask:
    """What to look for, and where. Sessions that share a task share what it remembers of pages."""

    fetcher: Fetcher
    seed_url: str
    relevance: Relevance
    topic: str | None = None  # words to compare links with; None: those of the relevance
    # which URLs are of the task; None: those with the seed's host and port
    scope: Callable[[str], bool] | None = None
    # URLs, where known; copies of one share a name in a map
    targets: Mapping[str, str] | Collection[str] | None = None
    budget: int | None = None  # requests; None: whoever runs it says
    name: str = ""  # None given: the seed's URL
    pages: int | None = None  # of the site, where known
    read: Callable[[Answer], Page] | None = None  # None: as HTML
    notes: PageNotes = field(init=False, repr=False)
    target_names: Mapping[str, str] = field(init=False, repr=False)  # URL to name

    def __post_init__(self) -> None:
        seed = canonical(self.seed_url)
        if seed is None:
            raise SettingsError(
                f"{shorten_repr(self.seed_url)} is no URL to begin at; give one such as "
                f"https://docs.example.org/"
            )
        if self.budget is not None and self.budget < 2:
            raise SettingsError(
                f"a budget of {self.budget} requests leaves none after the seed page; give 2 "
                f"or more"
            )
        topic = Topic(self.relevance.topic if self.topic is None else self.topic)
        read = self.read or partial(read_page, canonical=Resolver(canonical))
        known = self.targets or {}
        names = dict(known) if isinstance(known, Mapping) else {url: url for url in known}
        for attribute, value in (
            ("seed_url", seed),
            ("name", self.name or seed),
            ("notes", PageNotes(self.relevance, topic, self.scope or same_site(seed), read)),
            ("target_names", names),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def target_count(self) -> int:
        """How many different targets are known."""
        return len(set(self.target_names.values()))


def same_site(seed_url: str) -> Callable[[str], bool]:
    """Whether a URL has this one's scheme, host and port."""
    origin = urlsplit(seed_url)[:2]
    return lambda url: urlsplit(url)[:2] == origin


class Visit(NamedTuple):
    """What came of asking for a URL."""

    asked: str
    answer: Answer
    link: int = -1  # its number in the frontier
    spent: int = 0  # requests
    relevance: float = 0.0
    earned: float = 0.0  # relevance, if the content is new and relevant enough
    reward: float = 0.0  # earned less what it cost
    repeat: bool = False  # content that was had before
    new_links: int = 0
    found: bool = False  # one target more

    @property
    def technical(self) -> bool:
        """Whether it failed for a reason that lies with the crawler, not with the link."""
        return self.answer.failure in TECHNICAL


class Recent(NamedTuple):
    """Averages over recent steps, the latest counting most."""

    harvest: float = 0.0
    seconds: float = 0.0
    new_links: float = 0.0

    def after(self, visit: Visit) -> "Recent":
        """The averages after one step more."""
        now = (visit.earned, visit.answer.seconds, float(visit.new_links))
        return Recent(
            *(FADING * old + (1 - FADING) * new for old, new in zip(self, now, strict=True))
        )


class CrawlSession:
    """A crawl from its seed page on."""

    def __init__(self, task: CrawlTask, budget: int, prices: Prices | None = None) -> None:
        self.task, self.budget, self.prices = task, budget, prices or Prices()
        self.frontier = Frontier()
        self.requests = self.steps = self.pages = self.errors = self.relevant = self.since_found = 0
        self.earned = self.total_reward = 0.0
        self.wasted_bytes = 0  # of answers that brought nothing
        # names of targets, or digests of relevant pages where none are known
        self.found: set[str] = set()
        self.curve: list[int] = []  # targets found after each request
        self.recent = Recent()
        self.last: Visit | None = None
        self.page: PageFacts | None = None  # read last
        self._asked: set[str] = set()
        self._digests: set[str] = set()
        self._read: set[str] = set()  # URLs of pages

    async def start(self) -> Visit:
        """Ask for the seed page, a few times if need be. It counts as a request and earns no
        reward.
        """
        for _ in range(SEED_ATTEMPTS):
            visit = self._enter(
                self.task.seed_url, await self.task.fetcher.fetch(self.task.seed_url)
            )
            answer, self.steps, self.total_reward = visit.answer, 0, 0.0
            if answer.is_page or visit.technical or (not answer.failure and answer.status < 500):
                break
        if not answer.is_page or not self.frontier.open_count:
            raise SiteUnreachable(
                f"the seed page {self.task.seed_url} gave {describe_answer(answer)}; a crawl needs "
                "a page with links in scope: check the address, the scope and robots.txt"
            )
        return visit._replace(reward=0.0)

    async def fetch(self, url: str) -> Visit:
        """Ask for a URL, known or not. Nothing changes if this is cancelled while it waits."""
        return self._enter(url, await self.task.fetcher.fetch(url))

    def _enter(self, asked: str, answer: Answer) -> Visit:
        number = self.frontier.shut(asked)
        if answer.is_page and not self.task.notes.in_scope(answer.url):
            answer = answer._replace(failure="scope")  # a redirect led elsewhere
        # A page from an archive stands for a request; one refused before it was sent was none, but
        # only once.
        refused = bool(answer.failure) and asked not in self._asked
        spent = answer.requests if refused else max(1, answer.requests)
        self._asked.add(asked)
        visit = Visit(asked, answer, number, spent)
        if not visit.technical:
            visit = self._add_reward(self._judge(visit) if answer.is_page else visit)
            if number >= 0:
                self.frontier.credit(number, visit.earned)
        self._count(visit)
        return visit

    def _judge(self, visit: Visit) -> Visit:
        """Read the page: what it is worth, and what it links to."""
        page = self.task.notes.facts(visit.answer)
        self.frontier.shut(visit.answer.url)
        repeat, relevant = page.digest in self._digests, page.relevance >= self.prices.threshold
        earned = page.relevance if relevant and not repeat else 0.0
        found, new_links = self._note_found(visit, page, earned > 0), 0
        if visit.answer.url not in self._read:
            trail = self.frontier.trail_to(visit.link) if self._read else Trail()
            new_links = self.frontier.see(
                page, trail.onward(relevant), self.steps + bool(self._read), visit.link
            )
        self._digests.add(page.digest)
        self._read.add(visit.answer.url)
        self.page = page
        return visit._replace(
            relevance=page.relevance, earned=earned, repeat=repeat, new_links=new_links, found=found
        )

    def _note_found(self, visit: Visit, page: PageFacts, earns: bool) -> bool:
        names = self.task.target_names
        name = (
            names.get(visit.answer.url, names.get(visit.asked))
            if names
            else (page.digest if earns else None)
        )
        if name is None or name in self.found:
            return False
        self.found.add(name)
        return True

    def _add_reward(self, visit: Visit) -> Visit:
        cost = (
            self.prices.request * visit.spent
            + self.prices.megabyte * len(visit.answer.body) / MEGABYTE
        )
        cost += 0.0 if visit.answer.is_page else self.prices.error
        return visit._replace(reward=visit.earned - cost)

    def _count(self, visit: Visit) -> None:
        self.steps += 1
        self.requests += visit.spent
        self.pages += visit.answer.is_page
        self.errors += not visit.answer.is_page
        self.relevant += visit.earned > 0
        self.earned += visit.earned
        self.total_reward += visit.reward
        self.since_found = 0 if visit.earned > 0 else self.since_found + 1
        self.wasted_bytes += 0 if visit.earned > 0 else len(visit.answer.body)
        before = self.curve[-1] if self.curve else 0
        self.curve += [before] * (visit.spent - 1) + [len(self.found)] * min(visit.spent, 1)
        self.recent, self.last = self.recent.after(visit), visit

    @property
    def recall(self) -> float:
        """Share of the known targets that were found; 0 where none are known."""
        return len(self.found) / self.task.target_count if self.task.target_count else 0.0

    @property
    def over(self) -> bool:
        """Whether nothing is left: no budget, no link, or no target."""
        complete = bool(self.task.target_names) and len(self.found) == self.task.target_count
        return self.requests >= self.budget or not self.frontier.open_count or complete


def describe_answer(answer: Answer) -> str:
    """An answer in words, for a message."""
    if answer.failure:
        return f"no answer ({answer.failure})"
    return (
        f"status {answer.status} and {'a page without such links' if answer.is_page else 'no page'}"
    )
