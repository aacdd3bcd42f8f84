"""What is remembered of pages: worked out once, by URL and content, and not without bound."""

from functools import partial

import numpy as np
from small_sites import HOME, PAGES, html, url

from flatout_crawl.net.fetching import Answer
from flatout_crawl.net.scope import canonical
from flatout_crawl.reading.facts import LINK_FACTS, PageNotes
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.parsing import read_page
from flatout_crawl.reading.relevance import Judged
from flatout_crawl.reading.text import Topic
from rounding import close_to


def notes(read: list[str], remembered_pages: int = 100) -> PageNotes:
    """Notes that say in `read` what had to be read."""

    def judge(page: Page, body: bytes) -> float:
        read.append(page.url)
        return len(body) % 2

    reader = partial(read_page, canonical=canonical)
    return PageNotes(
        Judged(judge), Topic("solar power"), lambda address: True, reader, remembered_pages
    )


def answer(address: str, body: bytes) -> Answer:
    return Answer(address, 200, bytes(bytearray(body)), "text/html")  # a copy: equal, not the same


def test_a_page_is_worked_out_once() -> None:
    read: list[str] = []
    kept = notes(read)
    body = html("home", ["/a", "/b"])
    assert kept.facts(answer(HOME, body)) is kept.facts(answer(HOME, body))
    assert read == [HOME]


def test_another_body_or_url_is_another_page() -> None:
    read: list[str] = []
    kept = notes(read)
    # title and text are the same, the markup is not: what a CSS rule says may differ
    plain, classed = html("home", ["/a"], list_class="x"), html("home", ["/a"], list_class="xy")
    first, second = kept.facts(answer(HOME, plain)), kept.facts(answer(HOME, classed))
    assert first.digest == second.digest
    assert first.relevance != second.relevance
    kept.facts(answer(url("copy"), plain))
    assert read == [HOME, HOME, url("copy")]


def test_the_oldest_is_forgotten() -> None:
    read: list[str] = []
    kept = notes(read, remembered_pages=2)
    for path in ("1", "2", "3", "2", "3", "1"):
        kept.facts(answer(url(path), html(path)))
    assert read == [url(path) for path in ("1", "2", "3", "1")]


def test_columns_of_links_by_hand() -> None:
    body = html(
        "docs", [("/docs/solar-power.pdf", "solar power"), ("/other/12?page=3&size=4", "x")]
    )
    facts = notes([]).facts(answer(url("docs/"), body))
    first, second = (dict(zip(LINK_FACTS, row.tolist(), strict=True)) for row in facts.columns)
    assert first["anchor_similarity"] > 0.99
    assert first["url_similarity"] > 0.5
    assert (first["same_directory"], first["type_document"], first["type_page"]) == (1, 1, 0)
    assert (second["same_directory"], second["type_page"], second["query_parameters"]) == (0, 1, 1)
    assert (first["path_depth"], second["path_depth"]) == (0.5, 0.5)
    assert second["digit_ratio"] == np.float32(4 / len("/other/12page=3&size=4"))
    assert (first["zone_main"], first["position"]) == (1, 0)
    assert second["position"] == close_to(np.log(2) / 5, roundings=16, dtype=np.float32)


def test_a_page_without_links_has_no_rows() -> None:
    facts = notes([]).facts(answer(url("news/3"), PAGES[url("news/3")]))  # type: ignore[arg-type]
    assert facts.columns.shape == (0, len(LINK_FACTS))
