"""A crawl to its end: what it keeps, and that it can be stopped anywhere and gone on with as if it
never was.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from recorded_sites import Counting, StoppedError, order_of, record, site

from flatout.errors import RunError, SettingsError
from flatout.slow_envs.clock import run_virtually
from flatout_crawl.choosers.baselines import standard
from flatout_crawl.choosers.evaluate import crawl
from flatout_crawl.choosers.policy import CrawlPolicy
from flatout_crawl.choosers.scorer import LinkScorer
from flatout_crawl.choosers.session import Prices, SiteUnreachable
from flatout_crawl.net.fetching import Answer
from flatout_crawl.runs.archive import Archive, RecordingFetcher
from flatout_crawl.runs.deployment import Deployment, Status, source_of
from flatout_crawl.runs.live import KeptRobots, RobotsRow, Source, politeness_of
from flatout_crawl.runs.order import CrawlOrder, begin, read_order
from flatout_crawl.runs.visits import JsonLines


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def go(
    order: CrawlOrder, folder: Path, fetcher: Any, reported: list[Status] | None = None
) -> dict[str, Any] | None:
    """One start of a crawl; None if it was stopped."""
    begin(folder, order)
    with Archive(folder / "archive.sqlite") as archive:
        source = Source(RecordingFetcher(fetcher, archive), archive, None)
        deployment = Deployment(
            order, folder, source, (reported if reported is not None else []).append
        )
        try:
            run_virtually(deployment.run())  # some pages are slow
        except StoppedError:
            return None
        else:
            return deployment.finish()
        finally:
            deployment.close()


def policy_file(folder: Path) -> str:
    model = LinkScorer(candidates=16, width=8)
    CrawlPolicy(model, model.new_weights(1)).save(folder / "some.safetensors")
    return str(folder / "some.safetensors")


def test_it_crawls_as_the_evaluation_does(tmp_path: Path) -> None:
    made = site()
    archive = record(made, tmp_path / "site.sqlite")
    order = order_of(made, archive=str(archive), chooser="best-first", seed=3, allow=())
    begin(tmp_path / "run", order)
    with source_of(order, tmp_path / "run") as source:
        deployment = Deployment(order, tmp_path / "run", source)
        run_virtually(deployment.run())
        outcome = deployment.finish()
        deployment.close()
        task = order.task(source.fetcher)
        session = run_virtually(
            crawl(task, standard()["best-first"](3), order.requests, Prices(threshold=0.4))
        )
    assert outcome["curve"] == session.curve
    assert (
        outcome["found"] == len(session.found) == len(rows(tmp_path / "run" / "targets.jsonl")) > 0
    )
    assert (outcome["requests"], outcome["sent"]) == (session.requests, 0)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"targets.jsonl", "graph.gexf", "report.html", "outcome.json", "run.json"} <= files


def test_a_target_says_how_it_was_reached(tmp_path: Path) -> None:
    made = site()
    outcome = go(order_of(made), tmp_path, Counting(made))
    assert outcome is not None
    assert outcome["found"] > 1
    found = rows(tmp_path / "targets.jsonl")
    for row in found:
        assert row["path"][0] == made.seed_url
        assert made.resolve(row["path"][-1]) == made.resolve(row["url"])
        assert row["score"] >= 0.4
        assert row["title"]
        for here, there in zip(row["path"], row["path"][1:], strict=False):
            assert there in made.graph[made.resolve(here)]
    assert [row["request"] for row in found] == sorted(row["request"] for row in found)
    curve = outcome["curve"]
    assert all(curve[row["request"] - 1] == position for position, row in enumerate(found, 1))


def once(
    tmp_path_factory: pytest.TempPathFactory, chooser: str
) -> tuple[CrawlOrder, dict[str, Any], Counting, Path]:
    """A crawl that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole")
    learned = {"policy": policy_file(folder), "chooser": "policy"}
    order = order_of(site(), seed=7, **(learned if chooser == "policy" else {"chooser": chooser}))
    fetcher = Counting(site())
    outcome = go(order, folder / "run", fetcher)
    assert outcome is not None
    return order, outcome, fetcher, folder / "run"


@pytest.fixture(
    scope="module", params=["best-first", "random", "kind-bandit", "link-classifier", "policy"]
)
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[CrawlOrder, dict[str, Any], Counting, Path]:
    return once(tmp_path_factory, request.param)


@pytest.mark.long
@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stops=st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_a_crawl_that_was_stopped_goes_on_as_if_it_never_was(
    whole: tuple[CrawlOrder, dict[str, Any], Counting, Path],
    tmp_path_factory: pytest.TempPathFactory,
    stops: list[int],
) -> None:
    order, outcome, fetcher, before = whole
    folder, asked = tmp_path_factory.mktemp("again") / "run", Counting(site())
    for stop in stops:
        asked.stops_at = asked.asked.total() + stop
        go(order, folder, asked)
    asked.stops_at = None
    reported: list[Status] = []
    after = go(order, folder, asked, reported)
    assert after is not None
    assert {**after, "seconds": 0} == {**outcome, "seconds": 0}
    for name in ("targets.jsonl", "visits.jsonl", "graph.gexf"):
        assert (folder / name).read_bytes() == (before / name).read_bytes(), name
    assert asked.asked == fetcher.asked
    assert asked.asked.most_common(1)[0][1] == 1
    assert [status.requests for status in reported] == sorted(
        status.requests for status in reported
    )


def test_a_crawl_that_ended_asks_for_nothing_when_it_is_begun_again(tmp_path: Path) -> None:
    first, again = Counting(site()), Counting(site())
    before, reported = go(order_of(site()), tmp_path, first), []
    after = go(order_of(site()), tmp_path, again, reported)
    assert before is not None and after is not None
    assert not again.asked
    assert all(status.retraced for status in reported)
    assert after["curve"] == before["curve"]


def test_more_requests_lengthen_a_crawl(tmp_path: Path) -> None:
    learned = {"policy": policy_file(tmp_path), "chooser": "policy"}  # sees how many are left
    fetcher = Counting(site())
    short = go(order_of(site(), requests=20, **learned), tmp_path / "run", fetcher)
    long = go(read_order(tmp_path / "run", requests=50), tmp_path / "run", fetcher)
    assert short is not None and long is not None
    assert (short["requests"], long["requests"]) == (20, 50)
    assert long["curve"][:20] == short["curve"]
    assert fetcher.asked.most_common(1)[0][1] == 1


def test_a_page_that_the_archive_lost_is_asked_for_again(tmp_path: Path) -> None:
    fetcher = Counting(site(), stops_at=30)
    assert go(order_of(site()), tmp_path, fetcher) is None
    lost = [row["asked"] for row in rows(tmp_path / "visits.jsonl") if row["has_body"]][-2]
    with Archive(tmp_path / "archive.sqlite") as archive:
        archive.base.execute("DELETE FROM asked WHERE url = ?", (lost,))
    fetcher.stops_at = None
    outcome, unbroken = (
        go(order_of(site()), tmp_path, fetcher),
        go(order_of(site()), tmp_path / "b", Counting(site())),
    )
    assert outcome is not None and unbroken is not None
    assert outcome["found"] == unbroken["found"]
    assert {url: count for url, count in fetcher.asked.items() if count > 1} == {lost: 2}


class Silent:
    """A host that is not there, until it is."""

    def __init__(self) -> None:
        self.there = False

    async def fetch(self, url: str) -> Answer:
        if self.there:
            return await Counting(site()).fetch(url)
        return Answer(url, 0, failure="connection")

    async def close(self) -> None:
        pass


def test_a_site_that_cannot_be_reached_is_asked_again_the_next_time(tmp_path: Path) -> None:
    silent = Silent()
    with pytest.raises(SiteUnreachable, match="no answer \\(connection\\)"):
        go(order_of(site()), tmp_path, silent)
    silent.there = True
    outcome = go(order_of(site()), tmp_path, silent)
    assert outcome is not None
    assert outcome["found"] > 0


class FallsDown(Counting):
    """A site whose host is left alone from the tenth request on."""

    down = True

    async def fetch(self, url: str) -> Answer:
        if self.down and self.asked.total() >= 10:
            return Answer(url, 0, requests=0, failure="down")
        return await super().fetch(url)


def test_a_host_that_goes_down_ends_the_crawl_until_later(tmp_path: Path) -> None:
    fetcher = FallsDown(site())
    outcome = go(order_of(site()), tmp_path, fetcher)
    assert outcome is not None
    assert "go on later" in outcome["ended"]
    assert len(rows(tmp_path / "visits.jsonl")) == 10
    fetcher.down = False
    outcome, unbroken = (
        go(order_of(site()), tmp_path, fetcher),
        go(order_of(site()), tmp_path / "b", Counting(site())),
    )
    assert outcome is not None and unbroken is not None
    assert outcome["curve"] == unbroken["curve"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"chooser": "random"}, "chooser='best-first', and 'random' is given now"),
        ({"threshold": 0.6}, "threshold=0.4, and 0.6 is given now"),
        ({"relevance": {"regex": "x"}}, "relevance="),
    ],
)
def test_another_order_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    assert begin(tmp_path, order_of(site())) is False
    assert begin(tmp_path, order_of(site(), requests=70)) is True
    with pytest.raises(RunError, match=message):
        begin(tmp_path, order_of(site(), **changed))


def test_examples_that_changed_are_refused(tmp_path: Path) -> None:
    example = tmp_path / "example.txt"
    example.write_text("solar power and wind")
    order = order_of(site(), relevance={"examples": [str(example)]})
    begin(tmp_path / "run", order)
    example.write_text("something else")
    with pytest.raises(RunError, match="other files"):
        begin(tmp_path / "run", order)


def test_a_policy_is_kept_with_the_crawl(tmp_path: Path) -> None:
    order = order_of(site(), policy=policy_file(tmp_path), chooser="policy")
    begin(tmp_path / "run", order)
    Path(order.policy).unlink()
    again = read_order(tmp_path / "run")
    assert begin(tmp_path / "run", again) is True
    assert CrawlPolicy.load(Path(again.policy)).model.candidates == 16


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"allow": ()}, "the allow-list is empty"),
        ({"lab": ("10.0.0.1:80",)}, "only a loopback address"),
        ({"requests": 1}, "leave none after the seed page"),
        ({"threshold": 0}, "threshold of 0"),
    ],
)
def test_an_order_that_cannot_be_meant_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        order_of(site(), **changed)


def test_public_hosts_are_never_asked_faster_than_is_polite() -> None:
    assert politeness_of(order_of(site())) is None
    with pytest.raises(SettingsError, match="too short for public hosts"):
        politeness_of(order_of(site(), delay_seconds=0.2))
    slow = politeness_of(order_of(site(), delay_seconds=9.0))
    assert slow is not None
    assert (slow.delay_seconds, slow.first_delay_seconds, slow.connections) == (9.0, 9.0, 1)


def test_robots_are_remembered_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def fetch(url: str) -> Answer:
        asked.append(url)
        return (
            Answer(url, 503)
            if len(asked) == 1
            else Answer(url, 200, b"User-agent: *\xff\n", "text/plain")
        )

    def ask() -> Answer:
        with JsonLines(tmp_path / "robots.jsonl", RobotsRow) as lines:
            return asyncio.run(KeptRobots(fetch, lines)("http://a.lab/robots.txt"))

    now = 1e9
    monkeypatch.setattr("time.time", lambda: now)
    assert ask().status == 503  # trouble is not remembered
    assert (ask().body, ask().body, len(asked)) == (b"User-agent: *\xff\n",) * 2 + (2,)
    now += 3601
    ask()
    assert len(asked) == 3
