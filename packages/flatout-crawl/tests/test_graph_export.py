"""The graph of a crawl: what was seen is in it, and Gephi's format can hold it."""

import asyncio
from pathlib import Path

import networkx as nx
import pytest
from small_sites import HOME, PAGES, html, small_task, url

from flatout_crawl.choosers.session import CrawlSession, Visit
from flatout_crawl.net.fetching import Answer
from flatout_crawl.runs import graph_export
from flatout_crawl.runs.graph_export import CrawlGraph


def crawled(asked: list[str]) -> CrawlGraph:
    """The graph of a crawl that asked for these pages of the small site after its first."""

    async def crawl() -> CrawlGraph:
        graph, session = CrawlGraph(), CrawlSession(small_task(PAGES, targets=None), 50)
        for step, address in enumerate([HOME, *asked]):
            visit = await (session.fetch(address) if step else session.start())
            read = visit.answer.is_page and session.page is not None
            graph.add(
                visit, session.requests, f"title of {address}", session.page.urls if read else ()
            )
        return graph

    return asyncio.run(crawl())


def test_pages_links_and_targets_are_there() -> None:
    graph = crawled([url("solar"), url("solar/a"), url("broken"), url("forbidden")]).as_networkx()
    assert graph.nodes[HOME]["label"] == f"title of {HOME}"
    assert graph.nodes[url("solar/a")]["target"] is True
    assert graph.nodes[url("solar/a")]["relevance"] > 0.5
    assert graph.nodes[url("solar/a")]["request"] == 3
    assert (graph.nodes[url("broken")]["status"], graph.nodes[url("broken")]["target"]) == (
        500,
        False,
    )
    assert graph.nodes[url("forbidden")]["failure"] == "robots"
    assert graph.nodes[url("news")]["asked"] is False
    assert set(graph.successors(HOME)) == {
        url(path) for path in ("news", "solar", "broken", "forbidden", "moved")
    }
    assert graph.edges[HOME, url("solar")]["kind"] == "link"


def test_a_redirect_is_an_edge_and_counts_its_target_once() -> None:
    graph = crawled([url("moved")]).as_networkx()
    assert graph.edges[url("moved"), url("solar/b")]["kind"] == "redirect"
    assert [node for node, facts in graph.nodes(data=True) if facts["target"]] == [url("solar/b")]


def test_a_page_that_was_a_target_stays_one() -> None:
    graph = crawled([url("solar/b"), url("moved")]).as_networkx()
    assert graph.nodes[url("solar/b")]["target"] is True


def test_others_can_read_the_file(tmp_path: Path) -> None:
    graph = crawled([url("solar"), url("moved"), url("broken")])
    graph.write(tmp_path / "graph.gexf")
    found, own = nx.read_gexf(tmp_path / "graph.gexf"), graph.as_networkx()
    assert set(found.nodes) == set(own.nodes)
    assert set(found.edges) == set(own.edges)
    for name in ("status", "relevance", "target", "request", "failure", "label"):
        assert all(found.nodes[node][name] == own.nodes[node][name] for node in own.nodes)


def test_text_that_xml_cannot_hold_is_stripped(tmp_path: Path) -> None:
    graph = CrawlGraph()
    page = html("x", ["/y"])
    graph.add(
        Visit(HOME, Answer(HOME, 200, page, "text/html")),
        1,
        "a\x00b\x1b[31m\u202ec</label>\ud800",
        [url("y\x08")],
    )
    graph.write(tmp_path / "graph.gexf")
    found = nx.read_gexf(tmp_path / "graph.gexf")
    assert found.nodes[HOME]["label"] == "ab[31mc</label>"
    assert url("y") in found.nodes


def test_a_very_large_graph_keeps_to_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = crawled([url("solar")])
    monkeypatch.setattr(graph_export, "MOST_EDGES", 3)
    assert set(whole.as_networkx().nodes) == {HOME, url("solar")}
    assert set(whole.as_networkx().edges) == {(HOME, url("solar"))}
