"""What names of indicators ask for, and what is said of names that ask for nothing."""

import pytest

from flatout.errors import RecipeError
from flatout.features.indicators import warmup
from flatout.features.names import group_by_bar, parse_indicator
from flatout.features.recipe import Recipe


@pytest.mark.parametrize(
    ("name", "seconds", "own", "column"),
    [
        ("rsi", 0, "rsi", None),
        ("1h:rsi", 3600, "rsi", None),
        ("90m:rsi", 5400, "rsi", None),
        ("extra:funding", 0, "extra:funding", "funding"),
        ("1d:extra:funding", 86_400, "extra:funding", "funding"),
        ("extra:1h:rsi", 0, "extra:1h:rsi", "1h:rsi"),
    ],
)
def test_names_are_taken_apart(name: str, seconds: int, own: str, column: str | None) -> None:
    asked = parse_indicator(name)
    assert (asked.name, asked.seconds, asked.own, asked.column) == (name, seconds, own, column)


def test_names_are_grouped_by_the_size_of_their_bars() -> None:
    groups = group_by_bar(("1h:rsi", "rsi", "1d:rsi", "1h:dx"))
    assert {size: [*group] for size, group in groups.items()} == {3600: [0, 3], 0: [1], 86_400: [2]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1h:rsii", r"'1h:rsii'; did you mean '1h:rsi'\? Known: macd, .* extra:NAME, and each of "),
        ("1h:zzzz", r"unknown indicator '1h:zzzz'\. Known"),
        ("1w:rsi", r"unknown indicator '1w:rsi'; did you mean 'rsi'\? .* as in 1h:rsi"),
        ("1h:", "unknown indicator '1h:'"),
        ("7m:rsi", r"'7m:rsi': A bar of 7m does not divide a day\. Use one that does"),
        ("60m:rsi", "'60m:rsi' has a shorter name: write 1h for 60m"),
        ("24h:extra:x", "'24h:extra:x' has a shorter name: write 1d for 24h"),
        ("1d:4h:rsi", "'1d:4h:rsi' has two bar sizes: give one, as in '1h:rsi'"),
        ("4h:extra:", "extra:NAME for a further column; got '4h:extra:'"),
    ],
)
def test_what_is_no_name_is_refused(name: str, message: str) -> None:
    for refuse in (warmup, lambda name: Recipe(("dx", name))):
        with pytest.raises(RecipeError, match=message):
            refuse(name)


def test_the_same_indicator_of_several_sizes_is_not_given_twice() -> None:
    assert Recipe(("rsi", "1h:rsi", "4h:rsi")).coarse_sizes == (3600, 14_400)
    with pytest.raises(RecipeError, match="given twice: 1h:rsi"):
        Recipe(("1h:rsi", "rsi", "1h:rsi"))
