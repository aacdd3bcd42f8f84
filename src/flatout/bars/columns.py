"""Which column of a file means what, by the spellings that data sources use; letter case does not
matter.

| source             | columns
                     |
|--------------------|-------------------------------------------------------------------------------------|
| flatout            | date open high low close volume symbol
                     |
| freqtrade          | date open high low close volume
                     |
| Alpaca             | timestamp or t, open..volume or o h l c v, symbol, trade_count, vwap
                     |
| Binance klines     | open_time open high low close volume close_time ..., also without a header
                     |
| CryptoDataDownload | Unix Date Symbol Open High Low Close "Volume BTC" "Volume USDT"
    |
| Yahoo              | Date Open High Low Close "Adj Close" Volume (Close is taken, Adj Close is
                     not)      |

Two columns for one meaning are refused, with two exceptions: beside `unix`, a `date` repeats the
same time in words; of "Volume X" columns the one of the symbol's base asset is meant. This file
does not look at values.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from flatout.bars.panel import PRICES
from flatout.bars.refusal import list_names, refusal
from flatout.foreign import shorten

EPOCHS = ("unix", "unix_timestamp")
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "date": ("date", "datetime", "time", "timestamp", "t", "open_time", "opentime", *EPOCHS),
    "open": ("open", "o"),
    "high": ("high", "h"),
    "low": ("low", "l"),
    "close": ("close", "c"),
    "volume": ("volume", "v", "vol"),
    "symbol": ("symbol", "ticker", "tic", "pair", "instrument"),
}
COMPARED = 1000  # names, in search of similar ones
BARS = ("date", *PRICES, "volume")


def state_column(meaning: str, name: str) -> str:
    """How a column is told apart from Python, which the shell cannot."""
    return f"in Python state it: flatout.read_bars(..., columns={{{meaning!r}: {shorten(name)!r}}})"


def normalise_name(name: str) -> str:
    return name.strip().lower().replace(" ", "_")


def find_symbol_column(path: Path, found: Sequence[str], given: Mapping[str, str]) -> str | None:
    """The column that names the symbol of each row, or None."""
    return find_column(path, found, "symbol", given)


def find_bar_columns(
    path: Path, found: Sequence[str], symbols: Sequence[str], given: Mapping[str, str]
) -> dict[str, str]:
    """The columns of date, prices and volume as the file spells them."""
    check_given(path, found, given)
    chosen = {meaning: find_column(path, found, meaning, given) for meaning in BARS}
    chosen["volume"] = chosen["volume"] or find_base_volume(path, found, symbols)
    if missing := [meaning for meaning, name in chosen.items() if name is None]:
        accepted = "; ".join(f"{meaning}: {', '.join(SPELLINGS[meaning])}" for meaning in missing)
        raise refusal(
            path,
            f"no column for {', '.join(missing)} among {list_names(found)}",
            f"Accepted names are {accepted} (in any letter case): rename yours, or "
            f"{state_column(missing[0], 'its name here')}.",
        )
    return {meaning: name for meaning, name in chosen.items() if name is not None}


def find_extras(path: Path, found: Sequence[str], extras: Sequence[str]) -> dict[str, str]:
    """The further columns that were asked for by name."""
    by_name = {normalise_name(name): name for name in found}
    for extra in extras:
        if normalise_name(extra) not in by_name:
            near = difflib.get_close_matches(
                normalise_name(extra), list(by_name)[:COMPARED], n=3
            ) or sorted(by_name)
            raise refusal(
                path,
                f"no column {shorten(extra)!r}",
                f"Nearest: {list_names(by_name[name] for name in near)}.",
            )
    return {extra: by_name[normalise_name(extra)] for extra in extras}


def check_given(path: Path, found: Sequence[str], given: Mapping[str, str]) -> None:
    for meaning, name in given.items():
        if meaning not in SPELLINGS:
            raise refusal(path, f"columns= has no {meaning!r}", f"It takes {', '.join(SPELLINGS)}.")
        if name not in found:
            raise refusal(
                path, f"no column {shorten(name)!r} for {meaning}", f"Found: {list_names(found)}."
            )


def find_column(
    path: Path, found: Sequence[str], meaning: str, given: Mapping[str, str]
) -> str | None:
    if meaning in given:
        return given[meaning]
    matches = [name for name in found if normalise_name(name) in SPELLINGS[meaning]]
    epochs = [name for name in matches if normalise_name(name) in EPOCHS]
    if meaning == "date" and len(epochs) == 1 and len(matches) == 2:
        return epochs[0]
    if len(matches) > 1:
        raise refusal(
            path,
            f"several columns could be the {meaning}: {list_names(matches)}",
            f"Remove the others, or {state_column(meaning, matches[0])}.",
        )
    return matches[0] if matches else None


def find_base_volume(path: Path, found: Sequence[str], symbols: Sequence[str]) -> str | None:
    """Of "Volume BTC" and "Volume USDT", the one that every symbol's name begins with: BTC for
    BTC/USDT.
    """
    volumes = {
        name: normalise_name(name).removeprefix("volume_")
        for name in found
        if normalise_name(name).startswith("volume_")
    }
    base = [
        name for name, asset in volumes.items() if all(s.lower().startswith(asset) for s in symbols)
    ]
    if volumes and len(base) != 1:
        raise refusal(
            path,
            f"cannot tell the base volume of {list_names(symbols[:3])} among {list_names(volumes)}",
            f"Call it volume, or {state_column('volume', next(iter(volumes)))}.",
        )
    return base[0] if base else None
