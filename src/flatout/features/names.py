"""What the name of an indicator asks for: "rsi" of the bars themselves, "1h:rsi" of larger bars,
"extra:funding" a further column, "4h:extra:funding" its last value in larger bars.

Which indicators there are is `indicators.py`'s business.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flatout.bars.bar_size import bar_name, parse_bar, split_bar
from flatout.bars.panel import EXTRA
from flatout.errors import BarsError, RecipeError
from flatout.foreign import shorten_repr


class AskedIndicator(NamedTuple):
    """The parts of a name that features are asked for by."""

    name: str
    seconds: int  # of the larger bars; 0 for the bars themselves
    own: str  # the name without the size

    @property
    def column(self) -> str | None:
        """The further column that it is, if it is one."""
        return self.own.removeprefix(EXTRA) if self.own.startswith(EXTRA) else None


def parse_indicator(name: str) -> AskedIndicator:
    """A name taken apart; a size must divide a day and be spelled in the shortest way, else one
    feature would have two names.
    """
    size, own = split_bar(name)
    asked = AskedIndicator(name, _parse_size(name, size) if size else 0, own)
    if size and split_bar(own)[0]:
        raise RecipeError(f"{shorten_repr(name)} has two bar sizes: give one, as in '1h:rsi'")
    if asked.column == "":
        raise RecipeError(
            f"an indicator is a name, or {EXTRA}NAME for a further column; got {shorten_repr(name)}"
        )
    return asked


def _parse_size(name: str, size: str) -> int:
    try:
        seconds = parse_bar(size)
    except BarsError as error:
        raise RecipeError(f"{shorten_repr(name)}: {error}") from None
    if bar_name(seconds) != size:
        raise RecipeError(
            f"{shorten_repr(name)} has a shorter name: write {bar_name(seconds)} for {size}"
        )
    return seconds


def group_by_bar(names: Sequence[str]) -> dict[int, dict[int, AskedIndicator]]:
    """Names by the size of their bars in seconds, 0 for the bars themselves; each with its place
    among all.
    """
    groups: dict[int, dict[int, AskedIndicator]] = {}
    for place, name in enumerate(names):
        asked = parse_indicator(name)
        groups.setdefault(asked.seconds, {})[place] = asked
    return groups
