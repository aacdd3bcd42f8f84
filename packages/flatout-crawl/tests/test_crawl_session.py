"""The books of a crawl: what is paid, what is earned, what ends it."""

import asyncio

import pytest
from small_sites import HOME, PAGES, FixedFetcher, html, known, small_task, url

from flatout.errors import SettingsError
from flatout_crawl.choosers.session import CrawlSession, CrawlTask, Prices, SiteUnreachable, Visit
from flatout_crawl.net.fetching import Answer


def followed(
    *paths: str, task: CrawlTask | None = None, prices: Prices | None = None
) -> tuple[CrawlSession, list[Visit]]:
    """A crawl of these pages after the seed."""

    async def run() -> tuple[CrawlSession, list[Visit]]:
        session = CrawlSession(task or small_task(), 50, prices)
        await session.start()
        return session, [await session.fetch(url(path)) for path in paths]

    return asyncio.run(run())


def test_a_page_without_relevance_costs_its_request() -> None:
    session, (visit,) = followed("news")
    assert visit.reward == -0.03
    assert (visit.spent, visit.new_links, visit.found) == (1, 3, False)
    assert session.requests == 2  # with the seed


def test_a_relevant_page_earns_its_relevance_less_the_request() -> None:
    _, (visit,) = followed("solar/a")
    assert visit.relevance > 0.5
    assert visit.reward == pytest.approx(visit.relevance - 0.03)
    assert visit.found


def test_below_the_threshold_nothing_is_earned() -> None:
    _, (visit,) = followed("solar/a", prices=Prices(threshold=0.999))
    assert 0 < visit.relevance < 0.999
    assert visit.reward == -0.03


def test_the_same_page_again_earns_nothing() -> None:
    session, (first, again) = followed("solar/a", "solar/a")
    assert first.earned > 0
    assert (again.earned, again.reward, again.repeat, again.found) == (0, -0.03, True, False)
    assert session.requests == 3


def test_a_copy_under_another_url_earns_nothing() -> None:
    session, (first, copy) = followed("solar/a", "solar/a-copy")
    assert first.earned > 0
    assert copy.repeat
    assert copy.reward == -0.03
    assert session.found == {"a"}


def test_a_copy_counts_as_the_target_that_it_is_a_copy_of() -> None:
    session, (visit,) = followed("solar/a-copy")
    assert visit.found
    assert visit.earned > 0
    assert session.recall == 0.5


def test_redirects_are_paid_for_and_where_they_led_is_not_asked_again() -> None:
    session, (_, visit) = followed("solar", "moved")
    assert visit.spent == 2
    assert visit.reward == pytest.approx(visit.relevance - 0.06)
    assert session.found == {"b"}
    number = session.frontier.index[url("solar/b")]
    assert not session.frontier.open[number]


def test_an_error_costs_more() -> None:
    session, (visit,) = followed("broken", prices=Prices(error=0.2))
    assert visit.reward == pytest.approx(-0.23)
    assert session.errors == 1


def test_what_was_refused_before_it_was_sent_is_no_request_once() -> None:
    session, (first, again) = followed("forbidden", "forbidden")
    assert (first.spent, first.reward) == (0, -0.03)
    assert (again.spent, again.reward) == (1, -0.06)
    assert session.requests == 2


def test_bytes_may_cost() -> None:
    body = len(PAGES[url("news")])
    _, (visit,) = followed("news", prices=Prices(request=0.0, megabyte=10.0))
    assert visit.reward == pytest.approx(-10 * body / 1e6)


def test_pages_from_an_archive_cost_like_others() -> None:
    pages = {
        **PAGES,
        url("news"): Answer(url("news"), 200, html("news", ["/x"]), "text/html", 0.0, 0),
    }
    _, (visit,) = followed("news", task=small_task(pages))
    assert visit.spent == 1


def test_a_redirect_out_of_scope_is_a_failure() -> None:
    pages = {
        **PAGES,
        url("news"): Answer(
            "http://other.lab/", 200, html("other", ["/x"], "solar power " * 9), "text/html"
        ),
    }
    _, (visit,) = followed("news", task=small_task(pages))
    assert visit.answer.failure == "scope"
    assert (visit.earned, visit.new_links) == (0, 0)


def test_links_out_of_scope_are_not_known() -> None:
    pages = {**PAGES, HOME: html("home", ["/news", "http://other.lab/a", "https://small.lab/b"])}
    session, _ = followed(task=small_task(pages))
    assert list(session.frontier.index) == [HOME, url("news")]
    session, _ = followed(
        task=small_task(pages, scope=lambda address: "other" in address or address == HOME)
    )
    assert list(session.frontier.index) == [HOME, "http://other.lab/a"]


def test_the_curve_has_one_entry_per_request() -> None:
    session, _ = followed("solar/a", "forbidden", "moved", "news")
    assert session.curve == [
        0,
        1,
        1,
        2,
        2,
    ]  # the redirect's two requests: found when both were made
    assert session.requests == len(session.curve)


def test_without_known_targets_relevant_contents_are_counted() -> None:
    session, _ = followed("solar/a", "solar/a-copy", "solar/b", task=small_task(targets=None))
    assert len(session.found) == 2
    assert session.recall == 0.0


def test_waste_is_what_brought_nothing() -> None:
    session, _ = followed("solar/a", "news")
    assert session.wasted_bytes == len(PAGES[HOME]) + len(PAGES[url("news")])


def test_it_is_over_when_all_targets_are_found() -> None:
    session, _ = followed("solar/a")
    assert not session.over
    session, _ = followed("solar/a", "solar/b")
    assert session.over


def test_it_is_over_without_links() -> None:
    pages = {HOME: html("home", ["/end"]), url("end"): html("end", [], "nothing")}
    session, _ = followed("end", task=small_task(pages))
    assert session.over
    assert session.requests == 2


def test_the_budget_is_exact() -> None:
    async def run(budget: int) -> CrawlSession:
        session = CrawlSession(small_task(relevance=known(), targets=None), budget)
        await session.start()
        while not session.over:
            await session.fetch(HOME)
        return session

    for budget in (2, 3, 17):
        assert asyncio.run(run(budget)).requests == budget


@pytest.mark.parametrize(
    "seed",
    [
        Answer(HOME, 0, failure="timeout"),
        Answer(HOME, 0, requests=0, failure="down"),
        Answer(HOME, 404),
        Answer(HOME, 200, html("no links"), "text/html"),
        Answer("http://other.lab/", 200, html("elsewhere", ["/a"]), "text/html"),
    ],
)
def test_a_site_that_cannot_be_begun_is_unreachable(seed: Answer) -> None:
    with pytest.raises(SiteUnreachable, match=r"the seed page http://small\.lab/ gave"):
        followed(task=small_task({HOME: seed}))


def test_a_seed_that_fails_is_asked_again() -> None:
    class Recovers(FixedFetcher):
        async def fetch(self, address: str) -> Answer:
            found = await super().fetch(address)
            return Answer(address, 503) if len(self.asked) < 3 else found

    task = CrawlTask(fetcher := Recovers(PAGES), HOME, known("solar/a"))
    session, (visit,) = followed("solar/a", task=task)
    assert fetcher.asked == [HOME] * 3 + [url("solar/a")]
    assert (session.requests, session.steps, session.errors) == (4, 1, 2)
    assert session.total_reward == visit.reward == pytest.approx(0.97)


def test_a_cancelled_request_leaves_no_trace() -> None:
    async def run() -> None:
        class Hangs(FixedFetcher):
            async def fetch(self, address: str) -> Answer:
                if address == url("news"):
                    await asyncio.Event().wait()
                return await super().fetch(address)

        session = CrawlSession(CrawlTask(Hangs(PAGES), HOME, known("solar/a")), 50)
        await session.start()
        before = (session.requests, session.steps, session.frontier.open_count, list(session.curve))
        waiting = asyncio.create_task(session.fetch(url("news")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (
            session.requests,
            session.steps,
            session.frontier.open_count,
            list(session.curve),
        ) == before
        assert (await session.fetch(url("solar/a"))).earned == 1

    asyncio.run(run())


def test_a_task_refuses_what_is_no_url_and_a_budget_for_nothing() -> None:
    with pytest.raises(SettingsError, match=r"'ftp://x/' is no URL to begin at; give one such as"):
        CrawlTask(FixedFetcher({}), "ftp://x/", known())
    with pytest.raises(SettingsError, match="a budget of 1 requests leaves none"):
        CrawlTask(FixedFetcher({}), HOME, known(), budget=1)


def test_the_total_is_the_sum_of_the_rewards() -> None:
    session, visits = followed(
        "news", "solar", "broken", "moved", "solar/a", "forbidden", "solar/b"
    )
    assert session.total_reward == pytest.approx(sum(visit.reward for visit in visits))
    assert session.steps == len(visits)
