"""A crawl's order, written down and read again: damaged, forged or foreign ones are refused with
the place.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flatout.errors import RunError, SettingsError
from flatout_crawl.runs.order import RUN, RUN_BYTES, CrawlOrder, begin, read_order

ORDER = CrawlOrder("http://a.lab/", {"keywords": ["solar"]}, ("a.lab",), seed=3)


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A crawl that was begun, its file changed."""
    begin(folder, ORDER)
    facts = json.loads((folder / RUN).read_text())
    change(facts)
    (folder / RUN).write_text(json.dumps(facts))
    return folder


def test_what_was_begun_is_read_again(tmp_path: Path) -> None:
    assert not begin(tmp_path, ORDER) and begin(tmp_path, ORDER)
    assert read_order(tmp_path) == ORDER
    assert read_order(tmp_path, requests=7, seed=None).requests == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts.pop("order"), "order is missing"),
        (lambda facts: facts["order"].pop("seed_url"), "order.seed_url is missing"),
        (
            lambda facts: facts["order"].update(seed_url=7),
            "order.seed_url: Input should be a valid string",
        ),
        (lambda facts: facts["order"].update(seed_url="file:///etc"), "is no URL to begin at"),
        (lambda facts: facts["order"].update(colour="red"), "order.colour: Unexpected keyword"),
        (lambda facts: facts["order"].update(requests=10**12), "too many for one crawl"),
        (
            lambda facts: facts["order"].update(requests="9"),
            "order.requests: Input should be a valid integer",
        ),
        (lambda facts: facts["order"].update(seed=-1), "a seed of -1"),
        (
            lambda facts: facts["order"].update(allow="a.lab"),
            "order.allow: Input should be a valid",
        ),
        (lambda facts: facts["order"].update(allow=["*"]), "cannot stand on the allow-list"),
        (
            lambda facts: facts["order"].update(lab=["127.0.0.1:" + "9" * 5000]),
            "cannot be a laboratory",
        ),
        (lambda facts: facts.update(files=[]), "files: Input should be an object"),
        (lambda facts: facts.update(order="x" * 1000), "order: Input should be an object"),
    ],
)
def test_a_damaged_order_is_refused_with_the_place(
    tmp_path: Path, change: Any, message: str
) -> None:
    with pytest.raises(RunError, match=message) as refusal:
        read_order(changed(tmp_path, change))
    assert str(tmp_path / RUN) in str(refusal.value) and len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[" * 100_000, b'{"order": NaN}', b" " * (RUN_BYTES + 1), b"7"]
)
def test_what_is_no_order_at_all_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RUN).write_bytes(content)
    with pytest.raises(RunError, match=f"{RUN}.*begin in another folder"):
        read_order(tmp_path)


def test_a_pipe_in_the_place_of_the_order_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RUN)
    with pytest.raises(RunError, match="a pipe"):
        read_order(tmp_path)


def test_a_folder_with_a_link_in_it_is_not_crawled_into(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "run"
    begin(folder, ORDER)
    (folder / "archive.sqlite").symlink_to(outside)
    with pytest.raises(RunError, match="symbolic link"):
        begin(folder, ORDER)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    ("relevance", "message"),
    [
        ({"keywords": 5}, "takes texts, or a list of texts, not 5"),
        ({"keywords": [None]}, "takes texts, or a list of texts"),
        ({"examples": {"a": 1}}, "takes texts, or a list of texts"),
        ({"examples": ["/dev/zero"]}, "a device"),
        ({"regex": "(" * 1_500}, "is no regular expression"),
        ({"regex": "a{99999999999999999999}"}, "is no regular expression"),
        ({"regex": "a" * 5_000}, "a pattern of 5,000 letters"),
        ({"css": "p" * 5_000}, "a pattern of 5,000 letters"),
        ({"css": "p[["}, "is no CSS selector"),
        ({"css": "\ud800"}, "is no CSS selector"),
        ({f"k{k}": k for k in range(9_000)}, "a mapping with"),
    ],
)
def test_what_cannot_be_looked_for_is_refused_in_few_words(
    relevance: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as refusal:
        CrawlOrder("http://a.lab/", relevance, ("a.lab",)).rule()
    assert len(str(refusal.value)) < 1000
