"""Numbers as text, among them those with commas between the thousands, as exchanges export them.

A comma counts as such a separator only between groups of exactly three digits, the first of which
is one to three digits that do not begin with 0. A decimal comma ("1,02", "0,123") is therefore no
number here. One with three decimals behind a larger number ("1,234") cannot be known from its text.
"""

import re

import polars as pl

GROUPED = r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?"
WHOLE_TEXT = re.compile(GROUPED)


def has_grouped_thousands(text: str) -> bool:
    """Whether a text without surrounding blanks is a number such as "1,020.00"."""
    return WHOLE_TEXT.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Whether a field of a CSV file is a number, with or without commas between the thousands."""
    if has_grouped_thousands(text.strip()):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_numbers(texts: pl.Series) -> pl.Series:
    """The numbers of a column of texts as Float64; null where a text is none."""
    plain = texts.str.strip_chars()
    if plain.str.contains(",", literal=True).any():
        grouped = plain.str.contains(f"^{GROUPED}$")
        plain = plain.zip_with(~grouped.fill_null(False), plain.str.replace_all(",", ""))
    return plain.cast(pl.Float64, strict=False)
