"""What a crawl saw, as a graph for Gephi and others (GEXF): pages, links, what they answered, and
which were targets.

Page text is foreign: labels are stripped of control characters, which XML could not hold either.
"""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import networkx as nx

from flatout.runs import write_bytes
from flatout_crawl.choosers.session import Visit
from flatout_crawl.net.ledger import printable

FILE = "graph.gexf"
MOST_EDGES = 300_000  # above it, links to pages that were never asked for are left out
LABEL_LETTERS = 120


class CrawlGraph:
    """Pages in the order in which they were met, and the links between them."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Any]] = {}  # that were asked for, by URL
        self.links: dict[tuple[str, str], str] = {}  # from, to: "link" or "redirect"

    def add(self, visit: Visit, request: int, title: str = "", links: Iterable[str] = ()) -> None:
        """Enter one visit; `links` are those of the page that it led to."""
        ended = visit.answer.url
        self.pages[ended] = {
            "label": printable(title, LABEL_LETTERS) or printable(ended),
            "status": visit.answer.status,
            "failure": visit.answer.failure,
            "relevance": float(visit.relevance),
            "target": visit.found or bool(self.pages.get(ended, {}).get("target")),
            "request": request,
            "asked": True,
        }
        if visit.asked != ended:
            self.pages[visit.asked] = self.pages[ended] | {
                "label": printable(visit.asked),
                "target": False,
            }
            self.links[visit.asked, ended] = "redirect"
        for url in links:
            self.links.setdefault((ended, url), "link")

    def as_networkx(self) -> "nx.DiGraph[str]":
        """The graph; nodes are URLs."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        for url, facts in self.pages.items():
            graph.add_node(printable(url), **facts)
        whole = len(self.links) <= MOST_EDGES
        for (source, target), kind in self.links.items():
            if target not in self.pages:
                if not whole:
                    continue
                graph.add_node(printable(target), **linked_page(target))
            graph.add_edge(printable(source), printable(target), kind=kind)
        return graph

    def write(self, path: Path) -> None:
        """Write it as GEXF, whole or not at all."""
        stream = io.BytesIO()
        nx.write_gexf(self.as_networkx(), stream)
        write_bytes(path, stream.getvalue())


def linked_page(url: str) -> dict[str, Any]:
    """What is known of a page that was linked to only."""
    return {
        "label": printable(url),
        "status": 0,
        "failure": "",
        "relevance": 0.0,
        "target": False,
        "request": 0,
        "asked": False,
    }
