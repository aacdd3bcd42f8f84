"""`read_arrays`: price and indicator arrays, as FinRL and its relatives make them, as one checked
`Panel`.

`price_array` is (time, asset) of closes, `tech_array` (time, asset x indicator), asset by asset.
What bars need beyond that is taken from indicators named open, high, low and volume; what is
missing even so is filled in the way that flatters a strategy least; `Imported.assumed` lists it.
All checks of bars from tables apply. Rows are counted from 0, as in the arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import polars as pl

from flatout.arrays import NumpyArray
from flatout.bars.align import align
from flatout.bars.arrays_file import load_numbers, load_times
from flatout.bars.bar_size import parse_bar
from flatout.bars.columns import SPELLINGS, normalise_name
from flatout.bars.files import ROW, Table
from flatout.bars.grid import SECOND, Calendar, check_steps, grid_of, infer_calendar
from flatout.bars.panel import PRICES, FloatArray, Panel
from flatout.bars.refusal import list_names, refusal
from flatout.bars.rows import LEAST_PRICE, MOST_PRICE, check_symbols, checked_rows
from flatout.errors import BarsError
from flatout.foreign import shorten_repr

TechOrder = Literal["asset", "indicator"]
OWN = (*PRICES, "volume")
CLOSE_TOLERANCE = 1e-5  # relative; one of the two arrays may be in single precision
ASSUMED_TURNOVER = 1e9  # per bar, in the prices' currency: no order of sane size is held up by it


@dataclass(frozen=True)
class ArrayFiles:
    """Which arrays there are and what their axes mean."""

    prices: Path
    symbols: tuple[str, ...]  # the columns of the prices
    bar: str  # as in 5m
    # the first bar's open in UTC, if bars follow each other without gaps; else `times`
    start: str | None = None
    times: Path | None = None
    tech: Path | None = None
    indicators: tuple[str, ...] = ()  # the columns of one asset in `tech`
    # whether the columns of an asset, or of an indicator, lie beside each other
    tech_order: TechOrder = "asset"
    volume: Path | None = None  # (time, asset), in units of the asset


class Imported(NamedTuple):
    """The bars, and what was assumed in making them."""

    panel: Panel
    assumed: tuple[str, ...]


def read_arrays(files: ArrayFiles) -> Imported:
    """Read the arrays with every check."""
    check_columns(files)
    closes = prices_of(files)
    times, calendar = times_of(files, len(closes))
    given = columns_of(files, closes)
    bars, assumed = fill_columns(
        {"close": closes} | {name: given[name] for name in OWN if name in given}
    )
    extras = {name: values for name, values in given.items() if name not in OWN}
    rows = checked_rows(
        table_of(files, times, bars | extras), symbol_series(files, len(times)), tuple(extras)
    )
    rows = rows.sort("symbol", maintain_order=True)
    calendar, seconds = calendar or infer_calendar(rows), parse_bar(files.bar)
    origins = dict.fromkeys(files.symbols, name_files(files))
    check_steps(rows, origins, seconds, calendar)
    panel = align(
        rows,
        files.symbols,
        time=grid_of(rows, origins, seconds, calendar),
        bar_seconds=seconds,
        extras=tuple(extras),
    )
    if files.start is not None:
        assumed = (*assumed, "no bar is missing: each opens one bar size after the one before")
    return Imported(panel, assumed)


# --- arrays and their shapes


def check_columns(files: ArrayFiles) -> None:
    """Refuse symbols that are no names, or given twice."""
    symbols = files.symbols
    if not symbols or len(set(symbols)) < len(symbols) or not all(symbols):
        raise BarsError(
            f"symbols {list_names(symbols) or '(none)'}: name each column of the prices once"
        )
    check_symbols(files.prices, symbols)


def prices_of(files: ArrayFiles) -> FloatArray:
    """(time, asset) closes; one asset may be a plain (time,)."""
    prices, n = load_numbers(files.prices, "price_array"), len(files.symbols)
    if prices.ndim == 1 and n == 1:
        prices = prices[:, None]
    check_shape(files.prices, prices, n, f"(time, {n}) for the symbols {list_names(files.symbols)}")
    bad = ~((prices >= LEAST_PRICE) & (prices <= MOST_PRICE))
    if bad.any():
        row, asset = map(int, np.argwhere(bad)[0])
        reason = f"the price is {prices[row, asset]:g}"
        advice = f"Prices lie between {LEAST_PRICE:g} and {MOST_PRICE:g}; remove such bars."
        raise refusal(
            files.prices, reason, advice, symbol=files.symbols[asset], row=row, count=int(bad.sum())
        )
    return prices


def check_shape(path: Path, array: FloatArray, columns: int, wanted: str) -> None:
    if array.ndim == 2 and array.shape[1] == columns and len(array) > 1:
        return
    turned = array.ndim == 2 and array.shape[0] == columns
    advice = "Save its transpose." if turned else "Save it so, or name the columns that it has."
    raise refusal(path, f"its shape is {array.shape}, not {wanted}, with two bars or more", advice)


def check_rows(path: Path, array: NumpyArray, n_bars: int) -> None:
    if len(array) != n_bars:
        raise refusal(
            path,
            f"it has {len(array)} rows, the prices have {n_bars}",
            "Give arrays of the same bars.",
        )


def times_of(files: ArrayFiles, n_bars: int) -> tuple[NumpyArray, Calendar | None]:
    """One time per row; with a start the calendar is known, with given times it shows in them."""
    if (files.start is None) == (files.times is None):
        raise BarsError(
            "give either the first bar's time (`start`) or a file with all of them (`times`)"
        )
    if files.times is not None:
        times = load_times(files.times, "time_array")
        check_rows(files.times, times, n_bars)
        return times, None
    first = np.datetime64(moment(cast(str, files.start)), "us")
    return first + np.arange(n_bars) * np.timedelta64(
        parse_bar(files.bar) * SECOND, "us"
    ), "always_open"


def moment(text: str) -> datetime:
    """A time without its zone; one that names none is UTC."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (
        ValueError,
        OverflowError,
    ):  # the latter where another zone's time is in no year that Python has
        example = "write it as 2024-05-01 or 2024-05-01T12:00"
        raise BarsError(f"the start {shorten_repr(text)} is not a time: {example}") from None


def columns_of(files: ArrayFiles, closes: FloatArray) -> dict[str, FloatArray]:
    """What was given beside the closes, (time, asset) each."""
    columns = {} if files.tech is None and not files.indicators else tech_columns(files, closes)
    if files.volume is not None:
        if "volume" in columns:
            raise refusal(files.volume, "the indicators name a volume too", "Give one of the two.")
        volume = load_numbers(files.volume, "volume_array")
        check_shape(
            files.volume, volume, closes.shape[1], f"(time, {closes.shape[1]}) as the prices"
        )
        check_rows(files.volume, volume, len(closes))
        columns["volume"] = volume
    return columns


def tech_columns(files: ArrayFiles, closes: FloatArray) -> dict[str, FloatArray]:
    """The indicators by name, each (time, asset)."""
    names = tuple(name.strip() for name in files.indicators)
    if files.tech is None or not names:
        raise BarsError(
            "an array of indicators (`tech`) and their names (`indicators`) are needed together"
        )
    check_names(files.tech, names)
    tech, assets = load_numbers(files.tech, "tech_array"), closes.shape[1]
    wanted = f"(time, {assets * len(names)}) for {assets} symbols x {len(names)} indicators"
    check_shape(files.tech, tech, assets * len(names), wanted)
    check_rows(files.tech, tech, len(closes))
    if files.tech_order == "asset":
        parts = np.moveaxis(tech.reshape(len(tech), assets, len(names)), 2, 0)
    else:
        parts = np.moveaxis(tech.reshape(len(tech), len(names), assets), 1, 0)
    columns = {
        normalise_name(name) if normalise_name(name) in OWN else name: part
        for name, part in zip(names, parts, strict=True)
    }
    if "close" in columns:
        check_closes(files, columns["close"], closes)
    return columns


def check_names(path: Path, names: tuple[str, ...]) -> None:
    """Refuse names that are empty, given twice, or mean something else in a file of bars."""
    spellings = [normalise_name(name) for name in names]
    taken = {
        word: meaning for meaning, words in SPELLINGS.items() for word in words if word not in OWN
    }
    for name, word in zip(names, spellings, strict=True):
        if not word or spellings.count(word) > 1:
            raise refusal(
                path,
                f"the indicator {shorten_repr(name)} has no name or is named twice",
                "Name each once.",
            )
        if word in taken:
            raise refusal(
                path,
                f"an indicator {shorten_repr(name)} would be read as the {taken[word]}",
                "Name it otherwise.",
            )


def check_closes(files: ArrayFiles, given: FloatArray, closes: FloatArray) -> None:
    """Refuse indicators whose close differs from the closes: their order is not the one that was
    given.
    """
    differs = ~np.isclose(given, closes, rtol=CLOSE_TOLERANCE, atol=0.0)
    if not differs.any():
        return
    row, asset = map(int, np.argwhere(differs)[0])
    raise refusal(
        cast(Path, files.tech),
        f"its close is {given[row, asset]:g}, the price is {closes[row, asset]:g}",
        (
            f"Check the order of symbols and indicators, and whether columns lie by "
            f"{files.tech_order} (`tech_order`)."
        ),
        symbol=files.symbols[asset],
        row=row,
        count=int(differs.sum()),
    )


# --- what is missing


def fill_columns(given: Mapping[str, FloatArray]) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Open, high, low, close and volume, and what was assumed of them.

    Without opens a bar opens where it closes: orders then fill one bar later than they were
    decided, at a price that was not known. To open at the close before would let them fill at the
    very price they were decided on.
    """
    close, assumed = given["close"], []
    open_ = given.get("open", close)
    if "open" not in given:
        assumed.append(
            "open is the bar's own close: an order that fills at the next open fills at the "
            "next close"
        )
    ends = np.stack([open_, close])
    high, low = given.get("high", ends.max(axis=0)), given.get("low", ends.min(axis=0))
    if missing := [name for name in ("high", "low") if name not in given]:
        reach = "open and close" if "open" in given else "the close"
        assumed.append(
            f"{' and '.join(missing)} reach no further than {reach}: stops see less than the "
            f"market did"
        )
    volume = given.get("volume")
    if volume is None:
        volume = np.broadcast_to(ASSUMED_TURNOVER / close[0], close.shape)
        assumed.append(
            f"volume is constant, worth {ASSUMED_TURNOVER:.0e} a bar at the first price: "
            "participation limits and impact mean nothing, nor do obv, volume and breakout_volume"
        )
    return {"open": open_, "high": high, "low": low, "close": close, "volume": volume}, tuple(
        assumed
    )


# --- as a table of bars


def table_of(files: ArrayFiles, times: NumpyArray, columns: Mapping[str, FloatArray]) -> Table:
    """Symbol after symbol, with the arrays' row numbers."""
    assets = len(files.symbols)
    frame = pl.DataFrame(
        {ROW: np.tile(np.arange(len(times)), assets), "date": np.tile(times, assets)}
        | {name: values.T.ravel() for name, values in columns.items()}
    )
    return Table(name_files(files), ("date", *columns), frame, newest_first=False)


def name_files(files: ArrayFiles) -> Path:
    """All files at once, for refusals of rows that were made from several."""
    given = (files.prices, files.tech, files.volume, files.times)
    return Path(" + ".join(dict.fromkeys(str(path) for path in given if path is not None)))


def symbol_series(files: ArrayFiles, n_bars: int) -> pl.Series:
    return pl.Series(
        "symbol", np.repeat(np.asarray(files.symbols, dtype=object), n_bars), dtype=pl.String
    )
