"""What pages are worth: each kind of relevance, and what users may write."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.errors import SettingsError
from flatout_crawl.reading.page import Page
from flatout_crawl.reading.relevance import (
    AnyOf,
    Examples,
    Judged,
    Keywords,
    KnownTargets,
    Matches,
    Selects,
    parse_relevance,
)

ENERGY = "solar panels turn sunlight into power and wind turbines turn wind into power"
GRID = "the power grid carries power from solar panels and wind turbines to homes"
SPORT = "the team won the match in the last minute and the fans sang all night"


def page(text: str, title: str = "a page", url: str = "http://a.lab/") -> Page:
    return Page(url, title, text, (), "digest")


def test_keywords_count_more_the_oftener_they_stand() -> None:
    keywords = Keywords(("solar",))
    values = [keywords(page("solar " * n + "word " * 20), b"") for n in (0, 1, 2, 5, 50)]
    assert values[0] == 0
    assert values == sorted(set(values))
    assert values[1] < 0.5 < values[2] < values[-1] < 1


def test_keywords_are_whole_words_and_phrases_in_any_case() -> None:
    assert Keywords(("solar",))(page("solarium insolar"), b"") == 0
    assert Keywords(("solar power",))(page("Solar  POWER, power solar"), b"") == pytest.approx(
        1 / 2.2
    )
    assert Keywords(("c++",))(page("written in C++ today"), b"") > 0


def test_every_keyword_counts_the_same_and_titles_count_more() -> None:
    one = Keywords(("solar", "wind"))(page("solar " * 9), b"")
    both = Keywords(("solar", "wind"))(page("solar " * 9 + "wind " * 9), b"")
    assert both == pytest.approx(2 * one, rel=0.01)
    assert Keywords(("solar",))(page("", "solar"), b"") > Keywords(("solar",))(
        page("solar", ""), b""
    )


def test_long_texts_need_more_mentions() -> None:
    short, long = (
        Keywords(("solar",))(page("solar solar " + "word " * n), b"") for n in (10, 20_000)
    )
    assert long < short


def test_examples_know_their_like() -> None:
    examples = Examples((ENERGY, GRID), (SPORT,))
    assert examples(page(ENERGY, ""), b"") == 1
    near = examples(page("wind turbines and solar panels feed power to the grid", ""), b"")
    assert near > 0.6
    assert examples(page(SPORT, ""), b"") < 0.1
    assert examples(page("", ""), b"") == 0
    assert {"power", "wind"} <= set(examples.topic.split())


def test_a_single_example_is_enough() -> None:
    examples = Examples((ENERGY,))
    assert examples(page(ENERGY, ""), b"") == 1
    assert examples(page(SPORT, ""), b"") < 0.1
    assert Examples.of_pages([page(ENERGY, "on energy")]).texts == (f"on energy {ENERGY}",)


def test_rules_look_at_text_or_body() -> None:
    body = b"<table class=data><tr><td>1</td></tr></table>"
    assert Matches("deprecated since v?[0-9]")(page("Deprecated since v4"), b"") == 1
    assert Matches("deprecated since v?[0-9]")(page("deprecated"), b"") == 0
    assert Selects("table.data td")(page(""), body) == 1
    assert Selects("table.other")(page(""), body) == 0
    assert KnownTargets(frozenset({"http://a.lab/"}))(page(""), b"") == 1
    assert KnownTargets(frozenset({"http://a.lab/b"}))(page(""), b"") == 0


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.text(max_size=30), st.binary(max_size=100))
def test_every_relevance_is_from_0_to_1(text: str, title: str, body: bytes) -> None:
    kinds = [
        Keywords(("a", "solar power")),
        Examples((ENERGY, GRID)),
        Examples((SPORT,)),
        Matches("a+"),
        Selects("p"),
    ]
    for relevance in [*kinds, AnyOf(tuple(kinds))]:
        assert 0 <= relevance(page(text, title), body) <= 1


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_a_function_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(SettingsError, match="must be from 0 to 1"):
        Judged(lambda page, body: value)(page(""), b"")


def test_what_users_write(tmp_path: Path) -> None:
    example = tmp_path / "energy.txt"
    example.write_text(ENERGY)
    assert parse_relevance("keywords: solar power, wind") == Keywords(("solar power", "wind"))
    assert parse_relevance("regex:a:b") == Matches("a:b")
    assert parse_relevance("css:table, ul.data") == Selects("table, ul.data")
    assert parse_relevance(f"examples:{example}") == Examples((ENERGY,))
    assert parse_relevance(["css:table"]) == Selects("table")
    assert parse_relevance(["css:table", "regex:x"]) == AnyOf((Selects("table"), Matches("x")))
    assert parse_relevance({"regex": "old", "topic": "old things"}) == Matches("old", "old things")
    assert parse_relevance({"keywords": ["a"], "css": "b"}) == AnyOf(
        (Keywords(("a",)), Selects("b"))
    )
    assert parse_relevance(lambda page, body: 0.25)(page(""), b"") == 0.25
    assert AnyOf((Keywords(("a", "b")), Matches("x", "c"))).topic == "a b c"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("solar", r"must be one of \(keywords: .*such as 'keywords:solar power,wind', not 'solar'"),
        ("keyword:solar", "not 'keyword:solar'"),
        ("keywords:", "not 'keywords:'"),
        ("keywords:,", "keywords must be one or more"),
        ("regex:(", r"'\(' is no regular expression"),
        ("css:p[[", r"'p\[\[' is no CSS selector"),
        ("examples:/no/such/file", "/no/such/file: there is no such file"),
        ({"topic": "x"}, r"not a mapping with \['topic'\]"),
        ({"keywords": ["a"], "colour": 1}, "not a mapping with"),
        ([], "no relevance was given"),
    ],
)
def test_what_they_may_not(spec: Any, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        parse_relevance(spec)


def test_examples_without_words_are_refused() -> None:
    with pytest.raises(SettingsError, match="2 were given, of which 1 are empty"):
        Examples((ENERGY, " "))
