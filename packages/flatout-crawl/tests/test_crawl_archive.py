"""Recorded pages come back as they were, each fetched once, whatever happens to the process that
records.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab_server_of_crawl import fetching, lab_server, reply
from simulated_clock_of_crawl import run_simulated

from flatout.errors import RunError
from flatout_crawl.net.fetching import FAILURES, Answer
from flatout_crawl.runs.archive import Archive, ArchiveFetcher, RecordingFetcher
from flatout_crawl.runs.live import live_source
from flatout_crawl.runs.order import CrawlOrder

A, B = "http://example.org/a", "http://example.org/b"
PAGE = Answer(A, 200, b"<p>page", "text/html", 0.5, 1)


class Scripted:
    """A fetcher with one answer, late."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked, self.closed = answer, list[str](), False

    async def fetch(self, url: str) -> Answer:
        self.asked.append(url)
        await asyncio.sleep(1.0)
        return self.answer

    async def close(self) -> None:
        self.closed = True


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.binary(max_size=3000),
    st.integers(100, 499),
    st.sampled_from(["", "type", "size"]),
    st.floats(0, 9),
)
def test_what_goes_in_comes_out(
    tmp_path: Path, body: bytes, status: int, failure: str, seconds: float
) -> None:
    answer = Answer(A, status, body, "text/html", seconds, 3, failure)
    with Archive(tmp_path / "pages.sqlite") as archive:
        archive.put(answer, A)
        assert archive.get(A) == answer and archive.count == 1
    with Archive(tmp_path / "pages.sqlite", read_only=True) as archive:
        assert archive.get("HTTP://example.org:80/x/../a#b") == answer and archive.get(B) is None


def test_a_redirected_page_is_known_under_both_names_and_kept_once(tmp_path: Path) -> None:
    with Archive(tmp_path / "pages.sqlite") as archive:
        archive.put(PAGE._replace(url=B, requests=2), A)
        assert archive.get(A) == PAGE._replace(url=B, requests=2)
        assert archive.get(B) == PAGE._replace(url=B, requests=1)
        assert archive.urls() == (A, B) and archive.base.execute(
            "SELECT count(*) FROM pages"
        ).fetchone() == (1,)
        archive.put(
            PAGE._replace(url="http://far.example/", body=b"", status=302, failure="scope"), A
        )
        assert archive.get("http://far.example/") is None  # nobody asked for it


def test_what_is_recorded_of_each_site(tmp_path: Path) -> None:
    with Archive(tmp_path / "pages.sqlite") as archive:
        for url in (A, B, "http://127.0.0.1:8123/"):
            archive.put(PAGE._replace(url=url), url)
        lab, site = archive.sites()
        assert (lab.host, lab.pages, site.host, site.pages) == (
            "127.0.0.1:8123",
            1,
            "example.org",
            2,
        )
        assert 1e9 < site.first_at <= site.last_at <= lab.last_at


RECORDER = """
import sys
from pathlib import Path
from flatout_crawl.runs.archive import Archive
from flatout_crawl.net.fetching import Answer
archive = Archive(Path(sys.argv[1]))
for k in range(10**6):
    url = f"http://example.org/{archive.count}"
    archive.put(Answer(url, 200, url.encode() * 1000, "text/html"), url)
    print(flush=True)
"""


def test_a_killed_recorder_leaves_whole_pages(tmp_path: Path) -> None:
    path, written = tmp_path / "pages.sqlite", 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        written += len(process.stdout.read(50))
        os.kill(process.pid, signal.SIGKILL)
        written += len(process.stdout.read())
        process.stdout.close()
        process.wait()
    with Archive(path) as archive:
        assert archive.base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert written <= archive.count <= written + 2
        for url in archive.urls():
            answer = archive.get(url)
            assert answer is not None and answer.body == url.encode() * 1000


def test_a_page_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    with Archive(tmp_path / "pages.sqlite") as archive:
        archive.put(PAGE, A)
        archive.base.execute(
            "CREATE TEMP TRIGGER broken BEFORE INSERT ON asked BEGIN SELECT RAISE(ABORT, "
            "'broken'); END"
        )
        with pytest.raises(RunError, match="broken"):
            archive.put(PAGE._replace(body=b"newer"), A)
        assert archive.get(A) == PAGE


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database " * 100)
    other = tmp_path / "other.sqlite"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE mine (x)")
    base.close()
    later = tmp_path / "later.sqlite"
    Archive(later).close()
    base = sqlite3.connect(later)
    base.execute("PRAGMA user_version = 2")
    base.close()
    for path in (text, other, later, tmp_path / "absent" / "x"):
        with pytest.raises(RunError):
            Archive(path)
    with pytest.raises(RunError, match="no archive"):
        Archive(tmp_path / "absent", read_only=True)
    base = sqlite3.connect(other)
    assert base.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    base.close()


@pytest.mark.parametrize(
    "body",
    [zlib.compress(bytes(10_000_000)), b"junk", zlib.compress(b"<p>page")[:-1], zlib.compress(b"")],
)
def test_bodies_that_lie_about_their_size_are_refused(tmp_path: Path, body: bytes) -> None:
    with Archive(tmp_path / "pages.sqlite") as archive:
        archive.put(PAGE, A)
        archive.base.execute("UPDATE pages SET body = ?", (body,))
        with pytest.raises(RunError, match="damaged"):
            archive.get(A)


def test_a_read_only_archive_is_not_written(tmp_path: Path) -> None:
    Archive(tmp_path / "pages.sqlite").close()
    with (
        Archive(tmp_path / "pages.sqlite", read_only=True) as archive,
        pytest.raises(RunError, match="readonly"),
    ):
        archive.put(PAGE, A)


def test_threads_may_share_an_archive(tmp_path: Path) -> None:
    with Archive(tmp_path / "pages.sqlite") as archive:

        def work(name: int) -> None:
            for k in range(20):
                url = f"http://example.org/{name}/{k}"
                archive.put(PAGE._replace(url=url, body=url.encode()), url)
                assert archive.get(url) is not None

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert archive.count == 80


def test_the_archive_as_a_site(tmp_path: Path) -> None:
    async def main() -> None:
        with Archive(tmp_path / "pages.sqlite") as archive:
            archive.put(PAGE._replace(url=B, requests=2), A)
            fetcher = ArchiveFetcher(archive, lambda rng: 1.0 + rng.random(), seed=1)
            known = await fetcher.fetch(A + "#x")
            assert known.is_page and known.requests == 2 and 1.0 <= known.seconds < 2.0
            unknown = await fetcher.fetch("http://example.org/unknown")
            assert (unknown.status, unknown.requests, unknown.failure) == (404, 1, "")
            again = ArchiveFetcher(archive, lambda rng: 1.0 + rng.random(), seed=1)
            assert (await again.fetch(A)).seconds == pytest.approx(known.seconds)
            assert (await ArchiveFetcher(archive).fetch(A)).seconds == 0.0
            await fetcher.close()
            assert archive.get(A) is not None

    run_simulated(main())


def test_a_page_is_fetched_once_ever(tmp_path: Path) -> None:
    async def main() -> None:
        with Archive(tmp_path / "pages.sqlite") as archive:
            inner = Scripted(PAGE)
            fetcher = RecordingFetcher(inner, archive)
            answers = await asyncio.gather(*(fetcher.fetch(A) for _ in range(5)))
            assert inner.asked == [A] and [a.requests for a in answers] == [1, 0, 0, 0, 0]
            assert (
                {a.body for a in answers} == {PAGE.body} and not fetcher.locks and not fetcher.users
            )
            await fetcher.close()
            assert inner.closed
        with Archive(tmp_path / "pages.sqlite") as archive:  # another day
            assert (
                await RecordingFetcher(inner, archive).fetch(A)
            ).requests == 0 and inner.asked == [A]

    run_simulated(main())


@pytest.mark.parametrize("failure", FAILURES)
def test_which_failures_are_kept(tmp_path: Path, failure: str) -> None:
    async def main() -> bool:
        with Archive(tmp_path / "pages.sqlite") as archive:
            await RecordingFetcher(Scripted(Answer(A, 0, failure=failure)), archive).fetch(A)
            return archive.count == 1

    assert run_simulated(main()) == (failure in ("scope", "size", "type", "redirects"))


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (Answer(A, 404), True),
        (Answer(A, 500), False),
        (Answer(A, 429), False),
        (Answer(A, 0, requests=0, failure="scope"), False),
    ],
)
def test_which_answers_are_kept(tmp_path: Path, answer: Answer, kept: bool) -> None:
    async def main() -> bool:
        with Archive(tmp_path / "pages.sqlite") as archive:
            await RecordingFetcher(Scripted(answer), archive).fetch(A)
            return archive.count == 1

    assert run_simulated(main()) == kept


def test_a_live_site_is_recorded_and_replayed(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {
                "/": reply(b"page"),
                "/old": reply(status=301, Location="/"),
                "/pdf": reply(b"x", kind="application/pdf"),
            }
            urls = [lab.url(path) for path in ("/old", "/", "/pdf", "/missing")]
            with Archive(tmp_path / "pages.sqlite") as archive:
                async with fetching(tmp_path, lab) as live:
                    recorder = RecordingFetcher(live, archive)
                    first = [await recorder.fetch(url) for url in urls]
                    asked = list(lab.asked)
                    second = [await recorder.fetch(url) for url in urls]
                assert (
                    lab.asked
                    == asked
                    == ["GET /robots.txt", "GET /old", "GET /", "GET /pdf", "GET /missing"]
                )
                replayed = [await ArchiveFetcher(archive).fetch(url) for url in urls]
            strip = {"seconds": 0.0, "requests": 0}
            assert [a._replace(**strip) for a in first] == [a._replace(**strip) for a in second]
            assert [a._replace(**strip) for a in first] == [a._replace(**strip) for a in replayed]
            assert [a.requests for a in replayed] == [2, 1, 1, 1] and [
                a.requests for a in first
            ] == [2, 0, 1, 1]

    asyncio.run(main())


def test_a_redirect_to_a_recorded_page_asks_for_it_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with lab_server() as lab:
            lab.pages |= {
                "/": reply(b"page"),
                "/old": reply(status=301, Location="/"),
                "/out": reply(status=301, Location="http://other.lab/"),
            }
            order = CrawlOrder(lab.url(), {}, (lab.door,), (lab.door,))
            with live_source(order, tmp_path) as source:
                source.archive.put(PAGE._replace(url="http://other.lab/"), "http://other.lab/")
                first, second, outside = [
                    await source.fetcher.fetch(lab.url(path)) for path in ("/", "/old", "/out")
                ]
                await source.fetcher.close()
            assert lab.asked == ["GET /robots.txt", "GET /", "GET /old", "GET /out"]
            assert (first.url, first.body, first.requests) == (lab.url(), b"page", 1)
            assert (second.url, second.body, second.requests) == (lab.url(), b"page", 1)
            assert (outside.failure, outside.body) == ("scope", b"")

    asyncio.run(main())
