"""Which bars a run is about: what the caller gives, else what `[data]` of the settings names, else
the built-in market. Every command and every function of flatout asks here.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flatout.bars.bar_size import parse_bar, split_bar
from flatout.bars.calendars import find_kind, follow_calendar
from flatout.bars.frames import Frame
from flatout.bars.panel import EXTRA, PRICES, Panel
from flatout.bars.read import name_symbols, read_each, read_own_size
from flatout.bars.resample import resample
from flatout.bars.synthetic import built_in_market
from flatout.bars.write import write_bars
from flatout.errors import BarsError
from flatout.foreign import JsonTable, shorten_repr
from flatout.settings.fields import to_whole
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings

BUILT_IN = "built-in random walk"
IN_MEMORY = "bars in memory"
MOST_SEED = 2**31 - 1
COLUMNS = (*PRICES, "volume", "tradable")
Bars = str | os.PathLike[str] | Panel | Frame


@dataclass(frozen=True)
class BarsSource:
    """Bars as they are asked for; `read` and `read_each` bring them."""

    bars: str | Panel | Frame | None = (
        None  # a path, a table in memory; None is the built-in market
    )
    symbols: tuple[str, ...] | None = None  # in this order; None is all there are
    bar: str | None = None  # finer bars are joined to this size
    seed: int = 0  # of the built-in market
    extras: tuple[str, ...] = ()  # further columns that features want
    # as `read_bars` takes it; None is inferred, and the built-in market never closes
    calendar: str | None = None

    @property
    def path(self) -> str | None:
        """The file or folder, if it is one."""
        return self.bars if isinstance(self.bars, str) else None

    @property
    def in_memory(self) -> bool:
        """Whether the bars are the caller's own objects, which no later run would find again."""
        return self.bars is not None and not isinstance(self.bars, str)

    @property
    def name(self) -> str:
        """Where the bars come from, for people."""
        return self.given_name or BUILT_IN

    @property
    def given_name(self) -> str | None:
        """The name that was given, None for the built-in market."""
        return IN_MEMORY if self.in_memory else self.path

    def read(self) -> Panel:
        """All symbols on one grid, in bars of the size that is asked for."""
        panel = self.read_own_size()
        return resample(panel, self.bar) if self.bar else panel

    def read_own_size(self) -> Panel:
        """The same before bars are joined."""
        if self.bars is None:
            self.refuse_symbols()
            return built_in_market(seed=self.seed)
        if isinstance(self.bars, Panel):
            same = self.symbols in (None, self.bars.symbols)
            panel = self.bars if same else select_symbols(self.bars, self.symbols or ())
            return self.set_calendar(panel)
        return read_own_size(
            self.bars,
            symbols=self.symbols,
            bar=self.bar,
            calendar=self.calendar,
            extras=self.extras,
        )

    def read_each(self) -> list[Panel]:
        """One panel for each of `symbols`, on the grid of its own bars; files are read once."""
        if self.bars is None or not self.symbols:
            self.refuse_symbols()
            return [self.read()]
        if isinstance(self.bars, Panel):
            panels = [trim(select_symbols(self.bars, [name])) for name in self.symbols]
            panels = [self.set_calendar(panel) for panel in panels]
        else:
            panels = read_each(
                self.bars,
                self.symbols,
                bar=self.bar,
                calendar=self.calendar,
                extras=self.extras,
            )
        return [resample(panel, self.bar) for panel in panels] if self.bar else panels

    def refuse_symbols(self) -> None:
        """The built-in market cannot be cut down to some symbols."""
        if self.symbols is not None and self.bars is None:
            raise BarsError(
                f"symbols are {', '.join(self.symbols)}, but no bars are given (`bars`, or "
                "data.bars in the settings): the built-in market has symbols of its own"
            )

    def set_calendar(self, panel: Panel) -> Panel:
        """A panel in memory as it would be read from a file: its year is that of the calendar, if
        one is named, else that of its own times.
        """
        panel = replace(panel, year=None)
        return follow_calendar(panel, self.calendar) if self.calendar else panel

    def keep(self, path: Path) -> "BarsSource":
        """The same source as a file that a later run finds again: bars in memory are written there
        once, others stay where they are.
        """
        if not self.in_memory:
            return self
        panel = self.read_own_size()
        if not path.exists():
            write_bars(panel, path)
        kept = replace(self, bars=str(path))
        whole = replace(kept, symbols=panel.symbols, extras=tuple(panel.extras))
        if whole.read_own_size().fingerprint != panel.fingerprint:
            raise BarsError(
                f"{path}: the bars in memory are not those that were read back from this file, so "
                "the run could not go on after an interruption: give bars that read_bars has made"
            )
        return kept


def find_source(
    resolved: Resolved,
    bars: Bars | None = None,
    symbols: Sequence[str] | None = None,
    bar: str | None = None,
    seed: int = 0,
) -> BarsSource:
    """The bars that are given, else those of `[data]`; a path in a settings file is relative to
    that file.
    """
    data = resolved.settings.data
    seed = to_whole(seed)
    check_given(bars, bar, seed)
    named = name_symbols(symbols)
    if bars is None and data.bars is not None:
        given: str | Panel | Frame | None = str((folder_of(resolved) / data.bars).resolve())
    elif isinstance(bars, str | os.PathLike):
        given = str(Path(bars).resolve())
    elif isinstance(bars, Panel):
        given = leave_out_extras(bars, wanted_extras(resolved.settings))
    else:
        given = bars
    chosen = named or data.symbols
    if chosen is None and isinstance(bars, Panel):
        chosen = bars.symbols  # a file in which the bars are kept has them in order of name
    calendar = data.calendar
    if calendar is None and isinstance(bars, Panel) and bars.year is not None:
        calendar = bars.year.calendar
    if calendar is not None:
        find_kind(calendar)  # an unknown one is refused before anything is read
    size = data.bar if bar is None else bar
    if size is not None:
        parse_bar(size)  # refused before anything is read
    return BarsSource(
        given,
        chosen,
        size,
        seed=seed,
        extras=wanted_extras(resolved.settings),
        calendar=calendar,
    )


def check_given(bars: object, bar: object, seed: object) -> None:
    """Refuse what cannot name bars, a bar size or a seed, before anything is read."""
    if isinstance(bars, str) and not bars.strip():
        raise BarsError("bars are an empty text: give a path, a Panel, a frame, or None")
    if bar is not None and not isinstance(bar, str):
        raise BarsError(f"bar is {shorten_repr(bar)}: give a size as a text, as in '4h'")
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise BarsError(f"seed is {shorten_repr(seed)}: give a whole number, 0 to {MOST_SEED:,}")


def source_of_request(
    request: JsonTable, settings: Settings, kept: Path | None = None
) -> BarsSource:
    """The bars of a study that was begun, as its `about.json` names them; those that were in memory
    are in the file `kept`.
    """
    bars = request["bars"]
    if bars == IN_MEMORY:
        if kept is None or not kept.exists():
            raise BarsError(
                "the study was begun with bars in memory, which are in no file: give the same "
                "Panel or frame again"
            )
        bars = str(kept)
    symbols = tuple(request["symbols"]) if request["symbols"] else None
    extras = wanted_extras(settings)
    return BarsSource(
        bars, symbols, request["bar"], extras=extras, calendar=request.get("calendar")
    )


def leave_out_extras(panel: Panel, wanted: Sequence[str]) -> Panel:
    """The panel without the columns that no feature wants, as it would be read from a file: else
    the same bars, read from one later, would have another fingerprint.
    """
    extras = {name: value for name, value in panel.extras.items() if name in wanted}
    return panel if len(extras) == len(panel.extras) else replace(panel, extras=extras)


def wanted_extras(settings: Settings) -> tuple[str, ...]:
    """The further columns that the settings' indicators name, as in "extra:funding", each once: a
    column may be asked of several bar sizes, as in "4h:extra:funding".
    """
    named = [split_bar(name)[1] for name in settings.features.indicators or ()]
    wanted = [name.removeprefix(EXTRA) for name in named if name.startswith(EXTRA)]
    return tuple(dict.fromkeys(wanted))


def folder_of(resolved: Resolved) -> Path:
    """The folder that `data.bars` is relative to: its file's, or the current one."""
    origin = resolved.origin.get("data.bars", "")
    return Path(origin).parent if origin in resolved.files else Path()


def select_symbols(panel: Panel, symbols: Sequence[str]) -> Panel:
    """The bars of some symbols, in this order, on the panel's grid."""
    unknown = [name for name in symbols if name not in panel.symbols]
    if unknown or len(set(symbols)) < len(symbols):
        raise BarsError(
            f"symbols are {', '.join(symbols)}; the bars hold {', '.join(panel.symbols)}: name "
            "some of them, each once"
        )
    columns = [panel.symbols.index(name) for name in symbols]
    values = {name: getattr(panel, name)[:, columns] for name in COLUMNS}
    extras = {name: value[:, columns] for name, value in panel.extras.items()}
    present = None if panel.present is None else panel.present[:, columns]
    return replace(panel, symbols=tuple(symbols), extras=extras, present=present, **values)


def trim(panel: Panel) -> Panel:
    """The panel from its first real bar to its last."""
    rows = np.flatnonzero(panel.exists.any(axis=1))
    return panel.rows(int(rows[0]), int(rows[-1]) + 1) if len(rows) else panel
