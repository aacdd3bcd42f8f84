"""The ledger: what a person needs to check a backtest by hand."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.backtest import Fills, History, backtest
from flatout.evaluation.baselines import Cash, RandomTrader
from flatout.evaluation.trades import ledger_table, write_ledger
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings
from scenarios import random_panel

CAPITAL = 25_000.0
COLUMNS = [
    "bar_open_time",
    "symbol",
    "kind",
    "side",
    "units",
    "price",
    "notional",
    "cost",
    "equity_at_close",
]


@cache
def market() -> Market:
    """Bars with gaps, all costs, and stops that are hit."""
    limits = {"trailing_stop": 0.02, "max_held_bars": 10, "participation": 0.001}
    settings = {
        "market": {"capital": CAPITAL, "limits": limits},
        "features": {"indicators": ["return_1"]},
    }
    return build_market(random_panel(5, n_bars=200), Settings.model_validate(settings))


@cache
def history() -> History:
    return backtest(market(), RandomTrader(period_seconds=2 * 3600), record_fills=True)


@pytest.fixture
def table(tmp_path: Path) -> pl.DataFrame:
    """The ledger, written and read back by a program that knows nothing of flatout."""
    rows = write_ledger(tmp_path / "ledger.csv", market().panel, history().fills, CAPITAL)
    read = pl.read_csv(tmp_path / "ledger.csv", try_parse_dates=True)
    assert read.height == rows > 100
    return read


def test_equity_follows_from_the_rows_and_the_closes(table: pl.DataFrame) -> None:
    """Buying takes notional and cost out of the cash, selling brings the notional less the cost."""
    panel, cash, units = market().panel, CAPITAL, dict.fromkeys(market().panel.symbols, 0.0)
    by_time = table.partition_by("bar_open_time", as_dict=True)
    equity = [cash]
    for bar in history().bars:
        time = panel.time[bar].item().replace(tzinfo=UTC)
        for row in by_time.get((time,), pl.DataFrame()).iter_rows(named=True):
            sign = 1 if row["side"] == "buy" else -1
            cash -= sign * row["notional"] + row["cost"]
            units[row["symbol"]] += sign * row["units"]
        equity.append(
            cash + sum(units[s] * panel.close[bar, i] for i, s in enumerate(panel.symbols))
        )
    np.testing.assert_allclose(equity, history().equity[:, 0] * CAPITAL, rtol=1e-6)
    assert np.ptp(equity) > 100


def test_every_row_adds_up(table: pl.DataFrame) -> None:
    assert table.columns == COLUMNS
    np.testing.assert_allclose(table["notional"], table["units"] * table["price"], rtol=1e-12)
    assert (table["units"] > 0).all()
    assert (table["cost"] > 0).all()
    assert set(table["side"]) == {"buy", "sell"}
    assert set(table["kind"]) == {"order", "stop"}
    assert set(table.filter(pl.col("kind") == "stop")["side"]) == {"sell"}


def test_the_equity_of_a_row_is_that_of_the_bars_close(table: pl.DataFrame) -> None:
    panel, equity = market().panel, history().equity[:, 0]
    at_close = {
        panel.time[bar].item().replace(tzinfo=UTC): equity[k + 1]
        for k, bar in enumerate(history().bars)
    }
    expected = [at_close[time] * CAPITAL for time in table["bar_open_time"]]
    np.testing.assert_allclose(table["equity_at_close"], expected, rtol=1e-12)


def test_orders_fill_at_the_open_and_stops_within_the_bar(table: pl.DataFrame) -> None:
    panel = market().panel
    rows = {panel.time[k].item().replace(tzinfo=UTC): k for k in range(panel.n_bars)}
    for row in table.iter_rows(named=True):
        bar, asset = rows[row["bar_open_time"]], panel.symbols.index(row["symbol"])
        if row["kind"] == "order":
            assert row["price"] == pytest.approx(panel.open[bar, asset], rel=1e-12)
        assert (
            panel.low[bar, asset] * (1 - 1e-9)
            <= row["price"]
            <= panel.high[bar, asset] * (1 + 1e-9)
        )
        assert panel.tradable[bar, asset]


def test_a_row_in_units_and_money_of_the_account() -> None:
    panel = market().panel
    fill = Fills(
        3, "order", np.array([0.5, 0.0, -0.25]), np.array([2.0, 9.0, 4.0]), np.full(3, 0.01), 1.5
    )
    buy, sell = ledger_table(panel, (fill,), 100.0).rows()
    time = panel.time[3].item().replace(tzinfo=UTC)
    assert buy == (time, "S00", "order", "buy", 50.0, 2.0, 100.0, 1.0, 150.0)
    assert sell == (time, "S02", "order", "sell", 25.0, 4.0, 100.0, 1.0, 150.0)


def test_times_are_written_in_utc(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.csv", market().panel, history().fills, CAPITAL)
    first = (tmp_path / "ledger.csv").read_text().splitlines()[1].split(",")[0]
    assert datetime.fromisoformat(first) == market().panel.time[2].item().replace(tzinfo=UTC)


def test_an_empty_ledger_has_its_header(tmp_path: Path) -> None:
    idle = backtest(market(), Cash(), record_fills=True)
    assert idle.fills == ()
    assert write_ledger(tmp_path / "ledger.csv", market().panel, idle.fills, CAPITAL) == 0
    assert (tmp_path / "ledger.csv").read_text() == ",".join(COLUMNS) + "\n"
    empty, full = (ledger_table(market().panel, fills, CAPITAL) for fills in ((), history().fills))
    assert empty.schema == full.schema


def test_fills_are_kept_on_request_only() -> None:
    assert backtest(market(), RandomTrader()).fills == ()


def test_symbols_that_spreadsheets_would_run_are_written_as_text_and_can_be_had_back(
    tmp_path: Path,
) -> None:
    symbols = ("=cmd|'/c calc'!A0", "+1", "-1", "@SUM(A1)", "'quoted", "BTC/USDT")
    panel = RandomWalk(n_bars=3, symbols=symbols).panel()
    fills = Fills(1, "order", np.ones(6), panel.open[1], np.zeros(6), 1.0)
    assert write_ledger(tmp_path / "ledger.csv", panel, (fills,), CAPITAL) == 6
    written = pl.read_csv(tmp_path / "ledger.csv")["symbol"].to_list()
    assert [text[0] for text in written] == ["'"] * 5 + ["B"]
    assert tuple(text.removeprefix("'") for text in written) == symbols
