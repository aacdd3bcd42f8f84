"""Searches that would never end do end, and the next one is done as if nothing had been."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from flatout_crawl.reading.page import Page
from flatout_crawl.reading.relevance import Matches, Selects
from flatout_crawl.reading.searching import MOST_BYTES, SEARCHER, Searcher

NESTED = b"<div>" * 200_000  # `div:has(p)` needs minutes for it
EXPONENTIAL = "(a+)+$", b"a" * 60 + b"!"


@pytest.fixture
def searcher() -> Iterator[Searcher]:
    made = Searcher(seconds=0.5)
    yield made
    made.end()


def test_patterns_are_found_or_not(searcher: Searcher) -> None:
    assert searcher.find("css", "table.data", b"<table class=data>") is True
    assert searcher.find("css", "table.data", b"<table>") is False
    assert searcher.find("regex", "SOLAR p.wer", "ü solar power".encode()) is True
    assert searcher.find("regex", "^x", b"") is False
    assert searcher.given_up == 0


@pytest.mark.parametrize(
    ("kind", "pattern", "content"),
    [("css", "div:has(p)", NESTED), ("regex", *EXPONENTIAL)],
    ids=["css", "regex"],
)
def test_a_search_without_end_is_given_up_and_the_next_is_done(
    searcher: Searcher, kind: str, pattern: str, content: bytes
) -> None:
    assert searcher.find(kind, pattern, content) is None  # type: ignore[arg-type]
    assert searcher.given_up == 1
    assert searcher.find("css", "p", b"<p>") is True


def test_a_process_that_was_killed_is_started_again(searcher: Searcher) -> None:
    assert searcher.find("css", "p", b"<p>") is True
    assert searcher.process is not None
    os.kill(searcher.process.pid, signal.SIGKILL)
    searcher.process.wait()
    assert searcher.find("css", "p", b"<p>") is None
    assert searcher.find("css", "p", b"<p>") is True


def test_a_page_larger_than_any_that_is_fetched_is_cut(searcher: Searcher) -> None:
    assert searcher.find("regex", "z", b"a" * MOST_BYTES + b"z") is False


def test_after_a_fork_there_is_another_process(searcher: Searcher) -> None:
    assert searcher.find("css", "p", b"<p>") is True
    searcher.owner = -1  # as it is in a fork
    mine = searcher.process
    assert mine is not None and mine.stdin is not None and mine.stdout is not None
    with closing(mine.stdin), closing(mine.stdout):
        assert searcher.find("css", "p", b"<p>") is True
        assert searcher.process is not mine
    with suppress(ProcessLookupError):
        mine.wait()


def test_pages_that_cannot_be_searched_in_time_are_not_relevant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = Searcher(seconds=0.5)
    monkeypatch.setattr("flatout_crawl.reading.relevance.SEARCHER", quick)
    page = Page("http://a.lab/", "", EXPONENTIAL[1].decode(), (), "")
    assert Selects("div:has(p)")(page, NESTED) == 0.0
    assert Matches(EXPONENTIAL[0])(page, b"") == 0.0
    assert quick.given_up == 2
    assert Matches("a!")(page, b"") == 1.0
    quick.end()


def test_pages_are_searched_in_their_charset() -> None:
    page = Page("http://a.lab/", "", "", (), "")
    assert Selects("p.ü")(page, b"\xff\xfe" + "<p class=ü>".encode("utf-16-le")) == 1.0
    assert Selects("p.ü")(page, '<meta charset="latin-1"><p class=ü>'.encode("latin-1")) == 1.0
    SEARCHER.end()
