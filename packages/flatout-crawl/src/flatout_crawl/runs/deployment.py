"""A crawl to its end, live or of a recording: a chooser leads, everything it brings is kept, and a
kill loses nothing.

Started again on its folder it first retraces what it did, without a request, and then goes on. The
folder holds `targets.jsonl` (appended as they are found), `archive.sqlite`, `audit.jsonl`,
`graph.gexf`, `outcome.json` and `report.html`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr
from flatout.runs import write_json
from flatout_crawl.choosers.baselines import Chooser, MakeChooser, standard
from flatout_crawl.choosers.evaluate import policy_chooser
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.session import CrawlSession, Prices, SiteUnreachable, Visit
from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.ledger import STOP_FILE, printable
from flatout_crawl.net.scope import canonical, origin_of
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.parsing import Resolver, read_page
from flatout_crawl.reading.searching import SEARCHER
from flatout_crawl.runs.archive import Archive, ArchiveFetcher
from flatout_crawl.runs.graph_export import FILE as GRAPH
from flatout_crawl.runs.graph_export import CrawlGraph
from flatout_crawl.runs.live import Source, live_source
from flatout_crawl.runs.order import MOST_REQUESTS, CrawlOrder
from flatout_crawl.runs.report import write_report
from flatout_crawl.runs.visits import VISITS, JsonLines, Retracing, Url, VisitRow

TARGETS, OUTCOME = "targets.jsonl", "outcome.json"
INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class TargetRow:
    """A page that was looked for: a line of targets.jsonl."""

    url: Url
    score: Annotated[float, Field(ge=0, le=1)]
    title: str
    path: tuple[str, ...]  # the links that lead to it, from the seed page on
    # the number of the one that found it
    request: Annotated[int, Field(ge=0, le=2 * MOST_REQUESTS)]


class Status(NamedTuple):
    """How far a crawl is, reported after every step."""

    requests: int
    total: int
    found: int
    open_links: int
    retraced: bool  # the step was one of an earlier start
    target: TargetRow | None  # if one was found


class Titles:
    """Reads pages and remembers their titles, which nothing else in a crawl needs."""

    def __init__(self) -> None:
        self.resolve, self.by_url = Resolver(canonical), dict[str, str]()

    def __call__(self, answer: Answer) -> Page:
        """Read the page of an answer and remember its title."""
        page = read_page(answer, self.resolve)
        self.by_url[page.url] = printable(page.title, 300)
        return page


def chooser_of(order: CrawlOrder) -> Chooser:
    """The chooser that an order names, with its seed."""
    return maker_of(order)(order.seed)


def maker_of(order: CrawlOrder) -> MakeChooser:
    """Makes who chooses, from a seed."""
    if order.policy:
        policy = CrawlPolicy.load(Path(order.policy))
        return policy_chooser(policy.act, policy.model.candidates)
    known = standard()
    if order.chooser not in known:
        raise SettingsError(
            f"there is no chooser {shorten_repr(order.chooser)}: take one of {', '.join(known)}, "
            f"or give a policy"
        )
    return known[order.chooser]


@contextmanager
def source_of(order: CrawlOrder, folder: Path) -> Iterator[Source]:
    """Where pages come from: a recording, or the network."""
    if order.is_live:
        with live_source(order, folder) as source:
            yield source
        return
    with Archive(Path(order.archive), read_only=True) as archive:
        yield Source(ArchiveFetcher(archive), archive, None)


class Deployment:
    """One start of a crawl. After `run`, or whatever interrupted it, `finish` writes what
    there is.
    """

    def __init__(
        self,
        order: CrawlOrder,
        folder: Path,
        source: Source,
        on_status: Callable[[Status], None] = lambda _: None,
    ) -> None:
        self.order, self.folder, self.source, self.on_status = order, folder, source, on_status
        self.chooser = chooser_of(order)
        self.visits = JsonLines(folder / VISITS, VisitRow)
        try:
            self.targets = JsonLines(folder / TARGETS, TargetRow)
        except BaseException:
            self.visits.close()
            raise
        self.written = {row.url for row in self.targets.rows}
        self.fetcher = Retracing(source.fetcher, source.archive, self.visits)
        self.titles, self.graph = Titles(), CrawlGraph()
        task = order.task(self.fetcher, self.titles)
        self.session = CrawlSession(task, order.requests, Prices(threshold=order.threshold))
        self.failures: Counter[str] = Counter()
        self.ended, self.begun = INTERRUPTED, monotonic()
        self.given_up_before = SEARCHER.given_up

    async def run(self) -> None:
        """Crawl until nothing is left to do or to spend."""
        try:
            await self.crawl()
        finally:
            await self.fetcher.close()

    async def crawl(self) -> None:
        """Crawl from the seed page on, until the session is over."""
        session = self.session
        try:
            self.note(await session.start())
        except SiteUnreachable:
            self.visits.cut(0)  # the next start shall ask again
            raise
        while not session.over:
            url = self.chooser.choose(session)  # asked also while retracing: it may learn and draw
            url = self.fetcher.next_url or url
            if url is None:
                self.ended = "the chooser stopped"
                return
            visit = await session.fetch(url)
            self.note(visit)
            if visit.technical:
                self.ended = self.why(visit)
                return
        spent = session.requests >= session.budget
        self.ended = f"all {session.budget} requests are spent" if spent else "no link is left"

    def note(self, visit: Visit) -> None:
        """Keep what a visit brought."""
        retraced, session = self.fetcher.retraced, self.session
        self.chooser.on_visit(session, visit)
        if visit.technical:
            return
        page, answer = session.page, visit.answer
        read = page is not None and answer.is_page and page.url == answer.url
        if not answer.is_page:
            self.failures[answer.failure or f"status {answer.status}"] += 1
        title = self.titles.by_url.get(answer.url, "")
        self.graph.add(visit, session.requests, title, page.urls if read and page else ())
        target = self.target(visit, title) if visit.found else None
        if target and target.url not in self.written:
            self.targets.add(target, sync=True)
            self.written.add(target.url)
        total = session.budget
        self.on_status(
            Status(
                requests=session.requests,
                total=total,
                found=len(session.found),
                open_links=session.frontier.open_count,
                retraced=retraced,
                target=target,
            )
        )

    def target(self, visit: Visit, title: str) -> TargetRow:
        """A line of targets.jsonl."""
        way = (self.session.task.seed_url, *self.session.frontier.path_to(visit.link))
        return TargetRow(
            url=visit.answer.url,
            score=round(visit.relevance, 4),
            title=title,
            path=way,
            request=self.session.requests,
        )

    def why(self, visit: Visit) -> str:
        """What made it impossible to go on."""
        host = origin_of(visit.asked).host
        if visit.answer.failure == "down":
            return f"{host} fails too often or asks to be left alone for long: go on later"
        budget = self.source.budget
        if budget is not None and budget.stop_file.exists():
            return f"{self.folder / STOP_FILE} is there: remove it to go on"
        return (budget.refusal(host) if budget is not None else "") or "the budget is spent"

    def finish(self, beside: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write graph, outcome and report of what there is; the outcome."""
        session, budget = self.session, self.source.budget
        outcome = {
            "ended": self.ended,
            "is_live": self.order.is_live,
            "requests": session.requests,
            "sent": budget.spent if budget else 0,
            "hosts": dict(budget.hosts) if budget else {},
            "total": self.order.requests,
            "found": len(session.found),
            "pages": session.pages,
            "open_links": session.frontier.open_count,
            "failures": dict(self.failures.most_common()),
            "wasted_mb": round(session.wasted_bytes / 1e6, 3),
            "seconds": round(monotonic() - self.begun, 3),
            "curve": session.curve,
            "beside": dict(beside or {}),
            "not_searched": SEARCHER.given_up - self.given_up_before,
        }
        self.graph.write(self.folder / GRAPH)
        write_json(self.folder / OUTCOME, outcome)
        write_report(self.folder)
        return outcome

    def close(self) -> None:
        """Close the files that this start holds."""
        self.visits.close()
        self.targets.close()
