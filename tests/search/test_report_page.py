"""The report of a study: complete in itself, true to its numbers, and never at a loss for words."""

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from sample_report import WINNER, sample_report

from flatout.pages.charts import POINTS, Chart
from flatout.pages.frame import render_section
from flatout.pages.values import Html, fill_in, write_decimal, write_percent, write_value
from flatout.search import report_charts as charts
from flatout.search.assumption_model import CostFacts
from flatout.search.report_assumptions import show_costs
from flatout.search.report_curves import FanNames, choose_log_ticks, draw_equity_curves
from flatout.search.report_file import fit_report
from flatout.search.report_model import OverfittingFacts, StudyReport, TrialRow, VerdictFacts
from flatout.search.report_page import SECTIONS, render_report, show_verdict, write_page

CHARTS = 7  # paths, hold-out, Sharpes, degradation, logits, trials, finalists
READERS = {  # which sections read which part of the report, and are empty without it
    "assumptions": ("assumptions",),
    "winner": ("sharpes",),
    "curves": ("hold-out",),
    "overfitting": ("degradation", "pbo"),
    "deflated": ("deflated",),
    "trials": ("trials",),
    "importance": ("importance",),
    "finalists": ("finalists",),
    "controls": ("controls",),
    "reward_terms": ("reward",),
    "trades": ("trading", "days"),
    "throughput": ("throughput",),
}
ALSO = {  # those that read it and have something to show without it
    "winner": ("winner", "trials"),
    "curves": ("winner",),
    "baselines": ("winner", "sharpes"),
    "null": ("sharpes",),
    "deflated": ("sharpes",),
    "costs": ("stress",),
    "delays": ("stress",),
    "files": ("days",),
}
BY_ANCHOR = {section.anchor: section for section in SECTIONS}


@cache
def shared() -> dict[str, Any]:
    return sample_report(n_bars=60, n_trials=20, n_days=70, halves=40)


def small() -> dict[str, Any]:
    """A report that the test may change."""
    return copy.deepcopy(shared())


def fitted(report: Mapping[str, Any]) -> StudyReport:
    """The report as pages read it."""
    return fit_report(report).report


def page(report: Mapping[str, Any]) -> str:
    """The page of whatever stands in a file."""
    return render_report(fitted(report))


def verdict(report: Mapping[str, Any]) -> Html:
    """The banner of the page."""
    return show_verdict(fitted(report).verdict or VerdictFacts())


def shown(report: Mapping[str, Any], anchor: str) -> str:
    return render_section(BY_ANCHOR[anchor], fitted(report), "not computed")


def draw_paths(report: Mapping[str, Any], names: FanNames) -> Chart | None:
    """The fan of the winner's paths."""
    curves = fitted(report).curves
    assert curves is not None
    return draw_equity_curves(curves.time or (), curves.paths or (), curves.baselines or {}, names)


class Tags(HTMLParser):
    """Names and attributes of all elements, and the text between them."""

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


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(small())
    assert text.count(get_plotlyjs()) == 1
    assert not re.search(r"https?:|//cdn|@import|url\(", own(text))
    seen = Tags(own(text))
    assert not [
        key for key, _ in seen.attributes if key in ("src", "srcset", "data", "action", "poster")
    ]
    links = {value for key, value in seen.attributes if key == "href"}
    assert links == {f"#{section.anchor}" for section in SECTIONS} | {
        "ledger.csv",
        "days.csv",
        "report.json",
    }
    assert "link" not in seen.tags


def test_all_sections_are_there_in_order_after_the_verdict() -> None:
    text = own(page(small()))
    places = [
        text.index('class="verdict'),
        *(text.index(f'<section id="{s.anchor}">') for s in SECTIONS),
    ]
    assert places == sorted(places)
    assert SECTIONS[0].anchor == "assumptions"
    assert "not computed" not in text
    assert text.count('class="chart"') == CHARTS


def test_every_chart_and_table_of_evidence_has_its_note() -> None:
    text = own(page(small()))
    assert text.count("<figure>") == text.count("Bad sign:") == text.count("<figcaption>")
    # deflation, importance, stress, controls, reward, days
    assert text.count("<figure>") == CHARTS + 6


def test_the_page_is_the_same_each_time_and_leaves_the_report_alone() -> None:
    report = small()
    assert page(report) == page(report)
    assert report == shared()


@pytest.mark.parametrize(
    ("promotable", "words", "kind"),
    [
        (True, "PROMOTABLE", "good"),
        (False, "NOT PROMOTABLE", "bad"),
        (None, "NO VERDICT", "none"),
        (1, "NO VERDICT", "none"),
    ],
)
def test_the_verdict_is_what_the_gates_said(promotable: object, words: str, kind: str) -> None:
    report = small()
    report["verdict"]["promotable"] = promotable
    banner = verdict(report)
    assert banner.startswith(f'<div class="verdict {kind}"><b>{words}</b>')
    passed = [gate["passed"] for gate in report["verdict"]["gates"]]
    assert banner.count("✓") == sum(passed)
    assert banner.count("✗") == len(passed) - sum(passed)
    for gate in report["verdict"]["gates"]:
        assert write_value(gate["sentence"]) in banner
        assert write_value(gate["wanted"]) in banner
    assert report["verdict"]["gates_hash"] in banner


def test_a_gate_that_was_not_asked_has_neither_tick_nor_cross() -> None:
    banner = verdict({"verdict": {"promotable": False, "gates": [{"name": "pbo", "passed": None}]}})
    assert "✓" not in banner
    assert "✗" not in banner
    assert "not computed" in banner


def test_the_six_assumptions_that_decide_most() -> None:
    text = shown(small(), "assumptions")
    for words in (
        "at the next bar's open",
        "27.0 bps a side",
        "2 + 64",
        "812",
        "opened",
        "hindsight",
        "dropped 132",
    ):
        assert words in Tags(text).text or words in text
    assert "study momentum-crypto-1h, trial 287, 3 seeds" in text  # who opened the hold-out


def test_costs_of_a_side() -> None:
    fees = {
        "tiers": [{"maker_bps": 10.0, "taker_bps": 30.0}],
        "maker_share": 0.25,
        "half_spread_bps": 1.5,
    }
    assert show_costs(CostFacts.model_validate(fees)).value == "26.5 bps a side"
    assert "not computed" in show_costs(CostFacts(tiers=[])).note


def test_a_fill_at_the_close_just_seen_is_called_optimistic() -> None:
    report = small()
    assert "optimistic</span>" not in shown(report, "assumptions")
    report["assumptions"]["market"]["fill"] = "same_close"
    assert "optimistic</span>" in shown(report, "assumptions")


def test_what_other_studies_saw_is_said_where_it_counts() -> None:
    report = small()
    text = "".join(Tags(shown(report, "assumptions")).text)
    for words in (
        "312 of others, which saw 87\u00a0% of the judged bars",
        "other studies on the judged bars",
        "/home/somebody/runs/momentum-crypto-4h",
        "opened before, by 1 study, last on 2026-10-02",
    ):
        assert words in text
    said = "812 trials were ever run on these bars or on part of them, 312 of them by other studies"
    assert said in shown(report, "deflated")
    assert "Not fresh:" in shown(report, "hold-out")
    fresh = report["assumptions"]
    fresh["hold_out"]["wear"] = None
    fresh["trials"]["of_others"] = 0
    fresh["other_studies"] = []
    assert "Not fresh:" not in shown(report, "hold-out")
    assert "812 trials were ever run on these bars. Had" in shown(report, "deflated")
    assert "other studies on" not in shown(report, "assumptions")


def test_the_deflated_sharpe_ratio_is_said_in_words() -> None:
    report = small()
    text = shown(report, "deflated")
    for words in ("812 trials", "1.64", "0.41", "2.1\u00a0%", "16.3 years", "It is too short."):
        assert words in text
    report["deflated"]["years"] = 20.0
    assert "It is long enough." in shown(report, "deflated")
    report["deflated"]["min_track_years"] = None
    assert "No length of such a record" in shown(report, "deflated")


def test_the_last_sixty_days_newest_first() -> None:
    report = small()
    dates = re.findall(r"<td>(\d{4}-\d\d-\d\d)</td>", shown(report, "days"))
    assert dates == [day["date"] for day in report["trades"]["days"][:-61:-1]]
    assert "The last 60 of 70 days" in shown(report, "days")
    assert "days.csv has all" in shown(report, "days")


# --- what does not exist


@pytest.mark.parametrize("anchor_of", READERS)
@pytest.mark.parametrize("instead", ["gone", None, {}, []])
def test_a_section_without_its_numbers_says_so(anchor_of: str, instead: object) -> None:
    report = small()
    report[anchor_of] = instead
    if instead == "gone":
        del report[anchor_of]
    for anchor in READERS[anchor_of]:
        assert '<p class="missing">not computed: ' in shown(report, anchor)
        assert '<p class="missing">' not in shown(shared(), anchor)


@pytest.mark.parametrize(
    ("keys", "anchor"),
    [
        (("costs", "delays"), "stress"),
        (("curves", "winner"), "winner"),
        (("curves",), "winner"),
        (("null",), "sharpes"),
    ],
)
def test_a_section_with_several_sources_says_what_it_lacks(
    keys: tuple[str, ...], anchor: str
) -> None:
    report = {key: value for key, value in small().items() if key not in keys}
    assert '<p class="missing">not computed: ' in shown(report, anchor)


def test_the_verdict_may_be_missing() -> None:
    assert verdict({}).count("not computed") == 2
    assert "NO VERDICT" in verdict({})


@pytest.mark.parametrize(
    "nothing", [{}, {"study": None}, dict.fromkeys(sample_report(60, 5, 20, 3, 9))]
)
def test_a_report_of_nothing_is_still_a_page(nothing: dict[str, Any]) -> None:
    text = own(page(nothing))
    # the known limits are always known; two in the verdict
    assert text.count("not computed") == len(SECTIONS) - 1 + 2
    assert "Paper fills are optimistic" in text
    assert "None" not in text


def paths_in(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in the report; of lists only their first entry."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from paths_in(part, (*path, key))
    if isinstance(value, list) and value:
        yield from paths_in(value[0], (*path, 0))


def put(report: Any, path: tuple[Any, ...], value: object) -> object:
    """Replace what stands there, and return it."""
    for key in path[:-1]:
        report = report[key]
    before, report[path[-1]] = report[path[-1]], value
    return before


@pytest.mark.long
@pytest.mark.parametrize("key", sorted({*READERS, *ALSO, "verdict"}))
def test_no_single_value_is_needed(key: str) -> None:
    anchors = {*READERS.get(key, ()), *ALSO.get(key, ())}
    report = {**shared(), key: copy.deepcopy(shared()[key])}
    for path in list(paths_in(shared()[key], (key,))):
        before = put(report, path, None)
        for instead in (None, type(before)()) if isinstance(before, list | dict) else (None,):
            put(report, path, instead)
            assert all(shown(report, anchor) for anchor in anchors)
            assert verdict(report)
        put(report, path, before)


def replaced(value: Any, kinds: type | tuple[type, ...], instead: Any) -> Any:
    """The same report with all values of some kinds replaced."""
    if isinstance(value, kinds) and not isinstance(value, bool):
        return instead(value) if callable(instead) else instead
    if isinstance(value, dict):
        return {key: replaced(part, kinds, instead) for key, part in value.items()}
    if isinstance(value, list):
        return [replaced(part, kinds, instead) for part in value]
    return value


def test_all_numbers_may_be_none() -> None:
    report = replaced(small(), (int, float), None)
    for anchors in READERS.values():
        for anchor in {*anchors} - {"assumptions", "controls", "days"}:
            assert "not computed: " in shown(report, anchor), anchor
    assert "not computed" in shown(report, "stress")
    text = own(page(report))
    assert "None" not in text
    assert "nan" not in re.sub(r"finance|nano", "", " ".join(Tags(text).text).lower()).split()


def test_all_lists_may_be_empty() -> None:
    report = replaced(small(), list, [])
    for anchor in (
        "winner",
        "hold-out",
        "sharpes",
        "degradation",
        "pbo",
        "trials",
        "stress",
        "finalists",
        "days",
    ):
        assert "not computed: " in shown(report, anchor), anchor
    assert page(report)


def test_all_texts_may_be_none() -> None:
    assert "None" not in own(page(replaced(small(), str, None)))


def test_gaps_in_curves_are_gaps_in_lines() -> None:
    report = small()
    report["curves"]["paths"][0][5] = None
    chart = draw_paths(report, FanNames("one", "middle"))
    assert chart is not None
    thin_line = next(trace for trace in chart.figure.data if trace.name == "one")
    assert np.flatnonzero(np.isnan(thin_line.y)).tolist() == [5]


# --- text from elsewhere

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\"'{x}%{y}"


def spoiled(report: dict[str, Any]) -> dict[str, Any]:
    """Every text is hostile, and so are the names that data choose."""
    texts = replaced(report, str, lambda text: text + HOSTILE)
    for parent, key in (
        (texts, "baselines"),
        (texts["curves"], "baselines"),
        (texts["winner"], "params"),
        (texts, "importance"),
        (texts, "reward_terms"),
        (texts, "controls"),
        (texts, "files"),
        (texts["assumptions"]["market"], "costs"),
        (texts["assumptions"]["market"], "limits"),
    ):
        parent[key] = {f"{name}{HOSTILE}": value for name, value in parent[key].items()}
    return texts


def test_hostile_texts_are_shown_and_never_obeyed() -> None:
    usual, text = Tags(own(page(small()))), own(page(spoiled(small())))
    seen = Tags(text)
    assert set(seen.tags) <= set(usual.tags)
    assert "img" not in seen.tags
    assert seen.tags.count("script") == usual.tags.count("script")
    assert {key for key, _ in seen.attributes} <= {key for key, _ in usual.attributes}
    assert "<img" not in text
    assert "</script><script>" not in text
    assert f"momentum-crypto-1h{HOSTILE}" in "".join(seen.text)


def test_hostile_names_reach_plotly_as_plain_text() -> None:
    data = re.findall(
        r'<script type="application/json">(.*?)</script>', own(page(spoiled(small()))), re.DOTALL
    )
    assert len(data) == CHARTS
    names = [trace.get("name") or "" for figure in data for trace in json.loads(figure)["data"]]
    assert any("&lt;img" in name for name in names)
    assert not any("<" in name for name in names)


@pytest.mark.parametrize(
    "file", ["javascript:alert(1)", "//elsewhere/x.js", "../up.csv", "/etc/x", "a b"]
)
def test_only_plain_names_of_files_become_links(file: str) -> None:
    seen = Tags(own(page({"files": {"days": file}})))
    assert [
        value for key, value in seen.attributes if key == "href" and not value.startswith("#")
    ] == []
    assert file in "".join(seen.text)


# --- what is drawn


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    times = [str(np.datetime64("2024-01-01") + np.timedelta64(k, "D")) for k in range(4000)]
    equity = [1 + k / 4000 for k in range(4000)]
    chart = draw_equity_curves(times, [equity], {"cash": equity}, FanNames("a", "b"))
    assert chart is not None
    for trace in chart.figure.data:
        assert len(trace.x) == len(trace.y) == POINTS
        assert (trace.x[0], trace.x[-1]) == (times[0], times[-1])
        np.testing.assert_allclose([trace.y[0], trace.y[-1]], [equity[0], equity[-1]], rtol=1e-6)
    assert chart.figure.layout.yaxis.type == "log"


def test_the_thick_line_is_the_median_of_the_paths() -> None:
    chart = draw_paths(shared(), FanNames("one", "median"))
    assert chart is not None
    thick = next(trace for trace in chart.figure.data if trace.name == "median")
    np.testing.assert_allclose(thick.y, np.median(shared()["curves"]["paths"], axis=0), rtol=1e-6)
    assert {"cash", "buy and hold", "equal weight", "momentum"} <= {
        trace.name for trace in chart.figure.data
    }
    assert {"cash", "buy and hold", "equal weight", "momentum"} <= {
        words for _, _, words in chart.key
    }


@pytest.mark.parametrize(
    "logits",
    [[-1.0, 0.0, 0.0, 2.0, 3.0], [0.0], [0.0, 0.0], [1.0, 2.0], [-4.0, -3.9], [-1e-9, 1e-9]],
)
def test_the_red_part_of_the_histogram_is_the_pbo(logits: list[float]) -> None:
    chart = charts.draw_logits(OverfittingFacts(logits=[*logits]))
    assert chart is not None
    (bars,) = chart.figure.data
    red = sum(
        share for share, shade in zip(bars.y, bars.marker.color, strict=True) if shade == charts.BAD
    )
    np.testing.assert_allclose(red, np.mean(np.array(logits) <= 0))
    np.testing.assert_allclose(sum(bars.y), 1)


def test_the_degradation_line_has_the_slope_and_runs_through_the_means() -> None:
    found = shared()["overfitting"]
    chart = charts.draw_degradation(OverfittingFacts.model_validate(found))
    assert chart is not None
    *dots, line = chart.figure.data
    slope = (line.y[1] - line.y[0]) / (line.x[1] - line.x[0])
    np.testing.assert_allclose(slope, found["slope"])
    middle = line.y[0] + slope * (np.mean(found["in_sample"]) - line.x[0])
    np.testing.assert_allclose(middle, np.mean(found["out_of_sample"]))
    assert sum(len(trace.x) for trace in dots) == len(found["in_sample"])
    assert max(dots[1].y) < 0 <= min(dots[0].y)


def test_the_best_so_far_counts_completed_trials_only() -> None:
    states = ["complete", "pruned", "COMPLETE", "failed", "complete", "FAIL", "running"]
    values = [0.1, 9.0, 0.3, None, 0.2, None, None]
    rows = [
        TrialRow(number=k, state=s, value=v)
        for k, (s, v) in enumerate(zip(states, values, strict=True))
    ]
    chart = charts.draw_trials(rows, winner=4)
    assert chart is not None
    best, complete, pruned, failed, winner = chart.figure.data
    assert (list(best.x), list(best.y)) == ([0, 2, 5], [0.1, 0.3, 0.3])
    assert list(complete.x) == [0, 2, 4]
    assert (list(pruned.x), list(pruned.y)) == ([1], [9.0])
    assert (list(failed.x), list(failed.y)) == ([3, 5], [0.1, 0.1])  # at the foot
    assert list(winner.x) == [4]


def test_sharpes_stand_beside_the_null_the_baselines_and_luck() -> None:
    chart = charts.draw_sharpes(fitted(shared()))
    assert chart is not None
    rows = {trace.y[0]: list(trace.x) for trace in chart.figure.data[1:]}
    assert rows["winner's paths"] == [path["sharpe"] for path in shared()["winner"]["paths"]]
    assert rows["buy and hold"] == [0.55]
    assert rows["best by luck"] == [1.64]
    np.testing.assert_allclose(sum(chart.figure.data[0].y), 1)


def test_finalists_show_every_seed() -> None:
    chart = charts.draw_finalists(fitted(shared()).finalists or ())
    assert chart is not None
    seeds = {
        trace.y[0]: list(trace.x) for trace in chart.figure.data if trace.error_x.array is None
    }
    assert seeds[f"trial {WINNER}"] == [0.05, 0.43, 0.75]
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("low", "high"), [(0.97, 1.04), (0.7, 1.9), (0.45, 4.3), (0.01, 80.0), (1e-9, 1e9), (1.0, 1.0)]
)
def test_a_log_axis_has_few_round_ticks(low: float, high: float) -> None:
    ticks = choose_log_ticks(low, high)
    assert len(ticks) <= (19 if high / low > 1e9 else 9)
    assert len(ticks) >= (4 if high > low else 0)
    assert all(low * (1 - 1e-9) <= tick <= high * (1 + 1e-9) for tick in ticks)


def test_values_as_they_are_written() -> None:
    assert write_decimal(-1234.5, 1) == "−1,234.5"
    assert write_decimal(-0.001) == "0.00"
    assert write_percent(0.0421) == "4.2\u00a0%"
    assert write_decimal(None) == write_percent(None) == write_value(None) == "–"
    assert write_decimal(True) == "–"
    assert write_value(10_000.0) == "10,000"
    assert write_value(0.000213) == "0.000213"
    assert write_value(np.float64(0.5)) == "0.5"
    assert write_value(["a", "<b>"]) == "a, &lt;b&gt;"
    assert write_value({"maker_bps": 15.0}) == "maker bps 15"
    assert fill_in("{a} {b}", a="<i>", b=Html("<i>")) == "&lt;i&gt; <i>"


# --- the file, and the browser


def test_the_file_is_written_whole_and_alone(tmp_path: Path) -> None:
    report = small()
    path = write_page(tmp_path, fitted(report))
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == page(report)
    write_page(tmp_path, StudyReport())
    assert path.read_text(encoding="utf-8") == page({})
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_that_cannot_be_made_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_page(tmp_path, StudyReport())
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_page(tmp_path, fitted(small()))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def browser() -> str:
    found = next(
        filter(
            None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))
        ),
        None,
    )
    if found is None:
        pytest.skip("there is no chromium or chrome to open the page with")
    return found


def opened(path: Path, folder: Path) -> str:
    """The document after the browser, without any network, has run its scripts."""
    options = (
        "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars "
        "--window-size=1280,900 --allow-file-access-from-files --virtual-time-budget=8000 "
        "--dump-dom"
    )
    quiet = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'browser'}"]
    command = [browser(), *options.split(), *quiet, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


MEASURE = """<script>
let wrong = "";
addEventListener("error", event => wrong += event.message);
const count = wanted => document.querySelectorAll(wanted).length;
addEventListener("load", () => setTimeout(() => parent.postMessage({
  name: "NAME", wrong, inner: innerWidth, scroll: document.documentElement.scrollWidth,
  charts: count(".chart.js-plotly-plot"), drawn: count(".chart.js-plotly-plot:has(svg.main-svg)"),
  subplots: count(".chart svg.main-svg .subplot"), lines: count(".trace.scatter"),
  bars: count(".trace.bars"),
  widest: Math.max(...[...document.querySelectorAll("svg.main-svg")].map(
    svg => svg.getBoundingClientRect().right)),
}, "*"), 500));
</script>"""
FRAMES = """<!doctype html><title>waiting</title><body><script>
const measured = {}; addEventListener("message", event => {
  measured[event.data.name] = event.data; document.title = JSON.stringify(measured); });
</script>"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What pages measure in frames as wide as a phone, for a window cannot be that narrow, and one
    as on a desk.

    All in one browser: it takes seconds to start.
    """
    long = replaced(
        small(), str, lambda text: text if re.match(r"\d{4}-", text) else text + "x" * 90
    )
    wide = page({}).replace("<main>", '<main><div style="width:500px">too wide</div>')
    pages = {
        "usual": page(small()),
        "long": page(long),
        "empty": page({}),
        "wide": wide,
        "desk": page(small()),
    }
    folder, frames = tmp_path_factory.mktemp("pages"), FRAMES
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(
            text.replace("<head>", f"<head>{MEASURE.replace('NAME', name)}"), encoding="utf-8"
        )
        width = 1280 if name == "desk" else 390
        frames += (
            f'<iframe src="{name}.html" width="{width}" height="844" style="border:0"></iframe>'
        )
    (folder / "frames.html").write_text(frames, encoding="utf-8")
    title = re.search(r"<title>(.*?)</title>", opened(folder / "frames.html", folder))
    assert title is not None
    return dict(json.loads(title.group(1)))


@pytest.mark.long
def test_a_browser_draws_all_charts_without_network(measured: dict[str, Any]) -> None:
    desk = measured["desk"]
    assert (desk["inner"], desk["wrong"]) == (1280, "")
    assert desk["charts"] == desk["drawn"] == CHARTS
    assert desk["lines"] > 20
    assert desk["bars"] == 2


@pytest.mark.long
def test_the_page_fits_a_phone(measured: dict[str, Any]) -> None:
    assert measured["wide"]["scroll"] > 390  # the measure can fail
    for name in ("usual", "long", "empty"):
        assert measured[name]["inner"] == 390
        assert measured[name]["scroll"] == 390, name
        assert measured[name]["wrong"] == ""
    assert measured["usual"]["subplots"] == CHARTS + 1  # the Sharpe ratios have two panels
    assert measured["usual"]["widest"] <= 390
