"""Bar sizes in words and in seconds."""

import pytest

from flatout.bars.bar_size import bar_name, parse_bar, split_bar
from flatout.errors import BarsError


@pytest.mark.parametrize(
    ("bar", "seconds"),
    [
        ("1s", 1),
        ("30s", 30),
        ("5m", 300),
        ("60m", 3600),
        ("90m", 5400),
        ("4h", 14400),
        ("24h", 86400),
        ("1d", 86400),
    ],
)
def test_parse(bar: str, seconds: int) -> None:
    assert parse_bar(bar) == seconds


def test_names_are_the_inverse_for_every_divisor_of_a_day() -> None:
    for seconds in range(1, 86_401):
        if 86_400 % seconds == 0:
            assert parse_bar(bar_name(seconds)) == seconds
    assert [bar_name(s) for s in (300, 3600, 5400, 86400)] == ["5m", "1h", "90m", "1d"]


@pytest.mark.parametrize("bar", ["", "h", "0m", "1M", "1w", "-5m", "1.5h", "5 minutes"])
def test_what_is_no_bar_size(bar: str) -> None:
    with pytest.raises(BarsError, match="is not a bar size"):
        parse_bar(bar)


@pytest.mark.parametrize("bar", ["7m", "5h", "2d"])
def test_bars_must_divide_a_day(bar: str) -> None:
    with pytest.raises(BarsError, match="does not divide a day"):
        parse_bar(bar)


def test_a_bar_size_of_thousands_of_digits_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(BarsError, match="is not a bar size") as refused:
        parse_bar("9" * 100_000 + "d")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("rsi", ("", "rsi")),
        ("1h:rsi", ("1h", "rsi")),
        ("1d:extra:funding", ("1d", "extra:funding")),
        ("extra:1h:rsi", ("", "extra:1h:rsi")),
        ("1w:rsi", ("", "1w:rsi")),
        ("1h", ("", "1h")),
        ("1h:", ("", "1h:")),
        (" 1h:rsi", ("", " 1h:rsi")),
    ],
)
def test_a_name_may_begin_with_a_size(name: str, parts: tuple[str, str]) -> None:
    assert split_bar(name) == parts
