"""Where the episodes of drivers start: how long they are where nobody says, and bars that are asked
for.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.errors import RulesError
from flatout.market.rules import Segments

LONGEST_EPISODE = 1024  # bars, where the settings do not say


def choose_episode_bars(given: int | None, n_bars: int) -> int:
    """The bars of an episode in a stretch of so many: as the settings say, else a quarter of them,
    at most 1,024, so that episodes start in many places.

    >>> choose_episode_bars(None, n_bars=2000), choose_episode_bars(50, n_bars=2000)
    (500, 50)
    """
    return given or min(LONGEST_EPISODE, max(n_bars // 4, 2))


def read_starts(
    options: Mapping[str, Any] | None, n_accounts: int, segments: Segments
) -> NDArray[np.int32] | None:
    """The (account,) bars that `options["start"]` asks for; None where it does not."""
    asked = (options or {}).get("start")
    return None if asked is None else check_starts(asked, n_accounts, segments)


def check_starts(asked: Any, n_accounts: int, segments: Segments) -> NDArray[np.int32]:
    """One whole number for all accounts, or one for each, as (account,) bars at whose close an
    episode may start: the segment goes on for a bar at least.
    """
    bars = np.asarray(asked)
    if bars.dtype.kind not in "iu" or bars.shape not in ((), (n_accounts,)):
        raise RulesError(
            f"`start` is {asked!r}: give the number of a bar, a whole one, or one for each of the "
            f"{n_accounts} accounts"
        )
    first, last = np.asarray(segments.first), np.asarray(segments.stop) - 2
    inside = (bars[..., None] >= first) & (bars[..., None] <= last)
    if not inside.any(axis=-1).all():
        wrong = bars[~inside.any(axis=-1)].flat[0]
        allowed = ", ".join(f"{a} to {b}" for a, b in zip(first, last, strict=True) if a <= b)
        raise RulesError(
            f"`start` asks for bar {wrong}: an episode may start at the close of bars {allowed}"
        )
    return np.broadcast_to(bars, n_accounts).astype(np.int32)
