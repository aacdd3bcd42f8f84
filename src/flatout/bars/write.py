"""`write_bars`: a panel as a Parquet file with a manifest beside it, both written whole or not at
all.

The file holds the bars that exist, in the columns `date open high low close volume symbol` and then
the extras; `date` is the bar's open in UTC. Reading it gives a panel of equal fingerprint when the
symbols are sorted by name (otherwise pass `symbols=`) and the extras are named. This file knows
nothing about where panels come from.
"""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from flatout.arrays import NumpyArray
from flatout.bars.bar_size import bar_name
from flatout.bars.calendars import name_calendar
from flatout.bars.check import check_bars, moment
from flatout.bars.panel import PRICES, Panel
from flatout.bars.refusal import refusal
from flatout.foreign import JsonTable
from flatout.runs import write_bytes, write_json


def write_bars(panel: Panel, path: str | Path, assumed: Sequence[str] = ()) -> Path:
    """Write `path` (.parquet) and its manifest; returns the manifest's path, in which `assumed`
    stands if given.
    """
    path = Path(path)
    if path.suffix.lower() != ".parquet":
        raise refusal(
            path, "bars are written as .parquet only", "Choose a name that ends in .parquet."
        )
    table = to_table(panel)
    if table.is_empty():
        raise refusal(path, "the panel has no bars to write", "Check what was read.")
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    content = buffer.getvalue()
    manifest = manifest_path(path)
    facts = describe_file(panel, path, content, table.height) | (
        {"assumed": list(assumed)} if assumed else {}
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
        write_json(manifest, facts)
    except OSError as error:
        raise refusal(
            path, f"it cannot be written: {error.strerror or error}", "Choose another place."
        ) from error
    return manifest


def manifest_path(path: Path) -> Path:
    """Where the manifest of a file of bars lies."""
    return path.with_name(f"{path.stem}.manifest.json")


def to_table(panel: Panel) -> pl.DataFrame:
    """The bars that exist, symbol after symbol in order of time."""
    written = panel.exists.copy()
    # A cut panel may begin or end in carried bars: kept, they hold the grid's ends in place.
    written[[0, -1]] |= np.isfinite(panel.close[[0, -1]])
    asset, bar = np.nonzero(written.T)
    columns: dict[str, NumpyArray] = {"date": panel.time[bar].astype("datetime64[us]")}
    columns |= {name: getattr(panel, name)[bar, asset] for name in (*PRICES, "volume")}
    columns["symbol"] = np.asarray(panel.symbols, dtype=object)[asset]
    columns |= {name: values[bar, asset] for name, values in panel.extras.items()}
    table = pl.DataFrame(columns, schema_overrides={"symbol": pl.String})
    return table.with_columns(pl.col("date").dt.replace_time_zone("UTC"))


def describe_file(panel: Panel, path: Path, content: bytes, rows: int) -> JsonTable:
    """The manifest: what the file holds and by which sums it can be known again."""
    return {
        "file": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "fingerprint": panel.fingerprint,
        "rows": rows,
        "symbols": list(panel.symbols),
        "extras": sorted(panel.extras),
        "first": moment(panel, 0).isoformat(),
        "last": moment(panel, -1).isoformat(),
        "bar": bar_name(panel.bar_seconds),
        "calendar": name_calendar(panel),
        "gaps": {
            report.symbol: {
                "missing_bars": report.missing_bars,
                "gaps": report.gaps,
                "longest_gap_bars": report.longest_gap_bars,
            }
            for report in check_bars(panel)
        },
    }
