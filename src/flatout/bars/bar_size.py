"""Bar sizes as people write them: "5m", "1h", "1d" and the seconds they stand for.

Months and weeks have no place here: every bar size divides a day, so that a grid can stand on UTC
midnight.
"""

import re

from flatout.errors import BarsError
from flatout.foreign import shorten_repr

UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
WRITTEN = re.compile(r"([1-9][0-9]{0,8})([smhd])")


def parse_bar(bar: object) -> int:
    """The seconds of a bar size: "30s", "5m", "1h", "1d"."""
    match = WRITTEN.fullmatch(bar.strip()) if isinstance(bar, str) else None
    if match is None:
        raise BarsError(
            f"{shorten_repr(bar)} is not a bar size. Write a number and a unit: s, m (minutes), "
            f"h or d, as in 5m or 1h."
        )
    seconds = int(match[1]) * UNITS[match[2]]
    if UNITS["d"] % seconds:
        raise BarsError(
            f"A bar of {bar} does not divide a day. Use one that does, such as 5m, 15m, 1h, 4h, 1d."
        )
    return seconds


def bar_name(seconds: int) -> str:
    """The shortest way to write that many seconds: `parse_bar(bar_name(s)) == s` for every bar
    size.
    """
    unit = next(unit for unit, size in UNITS.items() if seconds % size == 0)
    return f"{seconds // UNITS[unit]}{unit}"


def split_bar(name: str) -> tuple[str, str]:
    """The bar size that a name begins with, and what follows its colon; "" if it begins with none.

    >>> split_bar("1h:rsi"), split_bar("rsi"), split_bar("extra:funding")
    (('1h', 'rsi'), ('', 'rsi'), ('', 'extra:funding'))
    """
    size, _, rest = name.partition(":")
    return (size, rest) if rest and WRITTEN.fullmatch(size) else ("", name)
