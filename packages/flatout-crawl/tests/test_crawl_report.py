"""The report of a crawl: complete in itself, the finding first, and harmless whatever pages
hold.
"""

import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from flatout.errors import RunError
from flatout_crawl.choosers.baselines import BestFirst
from flatout_crawl.runs.contest import contest, field_of_site
from flatout_crawl.runs.report import (
    EVALUATION_SECTIONS,
    RUN_SECTIONS,
    headline,
    page,
    write_report,
)
from flatout_crawl.runs.report_facts import gather, host_facts
from flatout_crawl.runs.report_shapes import AuditRow
from flatout_crawl.sites.site import SiteSettings, generate

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e"
SEED = "http://127.0.0.1:8000/"


def line(**facts: Any) -> str:
    return json.dumps(facts) + "\n"


def run_folder(folder: Path, **outcome: Any) -> Path:
    """A run's files as a crawl writes them, with text from a hostile site in them."""
    order = {
        "seed_url": SEED,
        "relevance": {"keywords": ["solar"]},
        "allow": ["127.0.0.1:8000"],
        "chooser": "best-first",
    }
    (folder / "run.json").write_text(
        json.dumps({"order": order, "files": {}, "started": "2026-01-01", "flatout": "0.1.0"})
    )
    facts = {
        "ended": ("all 30 requests are "
                 "spent"), "is_live": True, "requests": 30, "sent": 31, "total": 30, "found": 2,
        "pages": 20, "open_links": 7, "failures": {"status 404": 3, "robots": 1}, "wasted_mb": 0.2,
        "seconds": 3.1,
        "curve": [0, 0, 1, 1, 2] + [2] * 25, "beside": {}, "hosts": {"127.0.0.1:8000": 31},
    }  # fmt: skip
    (folder / "outcome.json").write_text(json.dumps(facts | outcome))
    rows = [
        line(
            url=f"{SEED}a", score=0.9, title=EVIL, path=[SEED, f"{SEED}hub", f"{SEED}a"], request=3
        ),
        line(url="javascript:alert(3)", score=0.8, title="b", path=[SEED], request=5),
    ]
    (folder / "targets.jsonl").write_text("".join(rows))
    audit = [
        line(
            time=f"2026-01-01T00:00:0{k}.500+00:00",
            method="GET",
            url=f"{SEED}{name}",
            address="127.0.0.1:8000",
            status=200,
            bytes=1000,
            seconds=0.5,
            failure="",
        )
        for k, name in ((1, "robots.txt"), (3, ""), (4, "a"))
    ]
    (folder / "audit.jsonl").write_text("".join(audit) + '{"time": "2026-01')
    (folder / "robots.jsonl").write_text(
        line(asked=f"{SEED}robots.txt", time=1.0, status=200, body="User-agent: *")
    )
    return folder


def evaluation_folder(folder: Path) -> Path:
    field = field_of_site(
        generate(SiteSettings(seed=9, pages=100, hazards=False))
    )  # contests wait for slow pages
    found = contest(lambda seed: BestFirst(), [field], budget=25)
    (folder / "evaluation.json").write_text(
        json.dumps({**found, "assumptions": ["made up"], "settings": {"sites": 1}})
    )
    return folder


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def own(text: str) -> str:
    """The page without the library's text."""
    return text.replace(get_plotlyjs(), "")


def test_the_first_line_says_what_was_found(tmp_path: Path) -> None:
    text = own(write_report(run_folder(tmp_path)).read_text())
    words = [part.strip() for part in Tags(text.split("<main>")[1]).text if part.strip()]
    assert words[0] == "2 TARGETS FOUND"
    assert words[1] == "30 requests; it ended because all 30 requests are spent."


@pytest.mark.parametrize(
    ("outcome", "words"),
    [({"found": 1}, "1 TARGET FOUND"), ({"found": 0}, "0 TARGETS FOUND")],
)
def test_little_or_nothing_is_said_as_plainly(
    tmp_path: Path, outcome: dict[str, Any], words: str
) -> None:
    assert headline(gather(run_folder(tmp_path, **outcome)))[1] == words


def test_what_pages_said_can_do_no_harm(tmp_path: Path) -> None:
    text = own(write_report(run_folder(tmp_path)).read_text())
    seen = Tags(text)
    assert "img" not in seen.tags
    assert not [
        key
        for key, _ in seen.attributes
        if key.startswith("on") or key in ("src", "srcset", "action")
    ]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    links = {value for key, value in seen.attributes if key == "href"}
    assert f"{SEED}a" in links
    assert not [link for link in links if link.startswith("javascript")]
    assert "javascript:alert(3)" in "".join(seen.text)  # as text
    assert "alert(1)" in "".join(seen.text)
    assert seen.tags.count("script") == text.count('type="application/json"') + 2


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = write_report(run_folder(tmp_path)).read_text()
    assert text.count(get_plotlyjs()) == 1
    assert not re.search(r"//cdn|@import|url\(", own(text))
    assert "link" not in Tags(own(text)).tags


def test_all_sections_are_there_and_tell_their_numbers(tmp_path: Path) -> None:
    text = own(write_report(run_folder(tmp_path)).read_text())
    places = [text.index(f'<section id="{section.anchor}">') for section in RUN_SECTIONS]
    assert places == sorted(places)
    assert "not shown" not in text
    for words in (
        "status 404",
        "robots",
        "2 links from the seed page",
        "No baseline is drawn",
        "127.0.0.1:8000",
    ):
        assert words in text


def test_politeness_is_told_from_the_audit_log(tmp_path: Path) -> None:
    facts = gather(run_folder(tmp_path))["audit"]["hosts"]["127.0.0.1:8000"]
    assert (facts["requests"], facts["robots"], facts["ends"]) == (3, 1, {"status 200": 3})
    assert facts["shortest_gap"] == pytest.approx(1.0)
    assert facts["median_gap"] == pytest.approx(1.5)
    assert facts["megabytes"] == pytest.approx(0.003)
    single = AuditRow(datetime(2026, 1, 1, tzinfo=UTC), SEED, 0, 0, 1.0, "timeout")
    assert host_facts([single])["shortest_gap"] is None


def test_a_crawl_that_was_killed_has_a_report_too(tmp_path: Path) -> None:
    (run_folder(tmp_path) / "outcome.json").unlink()
    text = own(write_report(tmp_path).read_text())
    assert "NOT ENDED" in text
    assert f"{SEED}a" in text


def test_baselines_beside_a_recording_are_drawn(tmp_path: Path) -> None:
    band = {"mean": [0, 0.5, 1], "low": [0, 0, 1], "high": [0, 1, 1]}
    text = own(
        write_report(run_folder(tmp_path, beside={"random": band}, is_live=False)).read_text()
    )
    assert "No baseline is drawn" not in text
    assert '"name":"random"' in text


def test_an_evaluation_begins_with_its_verdict(tmp_path: Path) -> None:
    text = own(write_report(evaluation_folder(tmp_path)).read_text())
    words = [part.strip() for part in Tags(text.split("<main>")[1]).text if part.strip()]
    assert words[0] == "DOES NOT BEAT ITS RIVALS"
    assert words[1].startswith("The learned policy does NOT beat best-first")
    assert all(f'<section id="{section.anchor}">' in text for section in EVALUATION_SECTIONS)
    assert "not shown" not in text


def test_pages_of_nothing_are_pages(tmp_path: Path) -> None:
    for kind in ("run", "evaluation"):
        assert "not shown" in page({"kind": kind})
    with pytest.raises(RunError, match="holds neither a crawl"):
        write_report(tmp_path)
    (tmp_path / "evaluation.json").write_text("[1")
    with pytest.raises(RunError, match=r"evaluation.json: is not JSON"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("outcome.json", '{"found": "many"}', "outcome.json: ended is missing"),
        ("outcome.json", "[" * 100_000, "outcome.json: is not JSON"),
        ("outcome.json", "[]", "outcome.json: it: Input should be an object"),
        (
            "targets.jsonl",
            '{"url": 7}\n',
            "targets.jsonl: line 1: url: Input should be a valid string",
        ),
        (
            "audit.jsonl",
            '{"time": "yesterday"}\n',
            "audit.jsonl: line 1: time: Input should be a valid datetime",
        ),
        ("audit.jsonl", "x" * (9 << 20), "audit.jsonl: line 1 has 8,388,608 bytes or more"),
        (
            "robots.jsonl",
            '{"asked": "u", "status": 1e400}\n',
            "robots.jsonl: line 1: is not JSON: a number is larger",
        ),
        ("run.json", "7", "run.json: it: Input should be an object"),
        (
            "evaluation.json",
            '{"curves": {"requests": "all"}}',
            "curves.requests: Input should be a valid array",
        ),
        (
            "evaluation.json",
            '{"verdict": {"beats": 1}}',
            "verdict.beats: Input should be a valid boolean",
        ),
    ],
)
def test_a_damaged_file_is_named_with_the_place(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (run_folder(tmp_path) / name).write_text(content)
    with pytest.raises(RunError, match=message):
        write_report(tmp_path)


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    run_folder(tmp_path)
    for name in ("targets.jsonl", "outcome.json"):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(RunError, match=f"{name}: is a pipe"):
            write_report(tmp_path)
        (tmp_path / name).unlink()


def test_numbers_without_end_and_deep_tables_in_the_order_are_shown(tmp_path: Path) -> None:
    order = {
        "seed_url": SEED,
        "requests": 10**3000,
        "relevance": {"css": EVIL},
        "deep": json.loads("[" * 90 + "]" * 90),
    }
    (run_folder(tmp_path) / "run.json").write_text(json.dumps({"order": order}))
    text = own(write_report(tmp_path).read_text())
    assert "img" not in Tags(text).tags and len(text) < 200_000


def test_pages_in_which_a_search_took_too_long_are_told_of(tmp_path: Path) -> None:
    text = own(write_report(run_folder(tmp_path, not_searched=3)).read_text())
    assert "In 3 pages the search for the pattern took too long" in text


def test_a_report_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside.html"
    outside.write_text("mine")
    (tmp_path / "run").mkdir()
    (run_folder(tmp_path / "run") / "report.html").symlink_to(outside)
    assert "2 TARGETS FOUND" in write_report(tmp_path / "run").read_text()
    assert outside.read_text() == "mine"


@pytest.mark.long
def test_a_browser_draws_both_without_network_and_runs_nothing_else(tmp_path: Path) -> None:
    found = next(
        filter(
            None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))
        ),
        None,
    )
    if found is None:
        pytest.skip("there is no chromium or chrome to open the page with")
    (tmp_path / "run").mkdir()
    write_report(run_folder(tmp_path / "run"))
    frame = '<iframe src="run/report.html" width="390" height="844" style="border:0"></iframe>'
    probe = """<script>let bad = ""; addEventListener("error", event => bad += event.message);
window.alert = () => bad += "alert";
addEventListener("load", () => setTimeout(() => parent.postMessage({bad, inner: innerWidth,
  scroll: document.documentElement.scrollWidth,
  charts: document.querySelectorAll(".chart svg.main-svg .subplot").length}, "*"),
  500));</script>"""
    report = tmp_path / "run" / "report.html"
    report.write_text(report.read_text().replace("<head>", f"<head>{probe}"))
    listen = (
        '<script>addEventListener("message", event => document.title = '
        "JSON.stringify(event.data))</script>"
    )
    (tmp_path / "frames.html").write_text(
        f"<!doctype html><title>waiting</title><body>{listen}{frame}"
    )
    options = "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --dump-dom"
    command = [
        found,
        *options.split(),
        "--allow-file-access-from-files",
        "--virtual-time-budget=8000",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    command += [f"--user-data-dir={tmp_path / 'browser'}", (tmp_path / "frames.html").as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    title = re.search(r"<title>(.*?)</title>", ended.stdout)
    assert title is not None
    facts = json.loads(title.group(1))
    assert facts == {"bad": "", "inner": 390, "scroll": 390, "charts": 1}
