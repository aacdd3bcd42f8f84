"""The trades of a backtest as a table that people can check by hand: one row per fill."""

import io
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flatout.bars.panel import Panel
from flatout.evaluation.backtest import Fills
from flatout.runs import write_bytes

FORMULA = r"^[=+\-@＝＋－＠'\t\r]"
SCHEMA: dict[str, Any] = {
    "bar_open_time": pl.Datetime("us", "UTC"),
    "symbol": pl.String,
    "kind": pl.String,  # order or stop
    "side": pl.String,
    "units": pl.Float64,
    "price": pl.Float64,  # before costs
    "notional": pl.Float64,
    "cost": pl.Float64,  # fee, spread and impact
    "equity_at_close": pl.Float64,
}


def ledger_table(panel: Panel, fills: tuple[Fills, ...], capital: float) -> pl.DataFrame:
    """All fills in units of the asset and in quote currency."""
    rows = []
    for fill in fills:
        for i in np.flatnonzero(fill.units):
            units, price = float(fill.units[i]) * capital, float(fill.price[i])
            side = "buy" if units > 0 else "sell"
            money = (abs(units) * price, float(fill.cost[i]) * capital, fill.equity * capital)
            rows.append(
                (
                    panel.time[fill.bar].item().replace(tzinfo=UTC),
                    panel.symbols[i],
                    fill.kind,
                    side,
                    abs(units),
                    price,
                    *money,
                )
            )
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def escape_formulas(column: str) -> pl.Expr:
    """Texts as spreadsheets show them: =, +, - or @ in front would make a formula, which they run.
    An apostrophe makes it text; whoever wants the text back takes one apostrophe off.
    """
    text = pl.col(column)
    return pl.when(text.str.contains(FORMULA)).then("'" + text).otherwise(text).alias(column)


def write_ledger(path: Path, panel: Panel, fills: tuple[Fills, ...], capital: float) -> int:
    """Write the ledger as CSV, atomically; returns the number of rows."""
    table = ledger_table(panel, fills, capital)
    buffer = io.BytesIO()
    table.with_columns(escape_formulas("symbol")).write_csv(buffer)
    write_bytes(path, buffer.getvalue())
    return table.height
