"""Bar sizes, calendars, and the refusal of bars of unequal size."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bar_files import MONDAY, line, save, times

from flatout.bars.panel import Panel
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.source import BarsSource
from flatout.errors import BarsError


def written(tmp_path: Path, dates: dict[str, list[str]]) -> Path:
    return save(tmp_path / "x.csv", [line(t, symbol) for symbol, ts in dates.items() for t in ts])


def minutes(*offsets: float) -> list[str]:
    return [f"{MONDAY + timedelta(minutes=offset):%Y-%m-%d %H:%M:%S}" for offset in offsets]


def steps(panel: Panel) -> list[int]:
    return np.diff(panel.time).astype("timedelta64[s]").astype(int).tolist()


def weekdays(count: int, hour: str = "00:00") -> list[str]:
    days = (MONDAY + timedelta(days=d) for d in range(2 * count))
    return [f"{day:%Y-%m-%d} {hour}" for day in days if day.weekday() < 5][:count]


@pytest.mark.parametrize("size", [1, 5, 15, 60, 240, 1440])
def test_the_bar_is_the_most_common_step(tmp_path: Path, size: int) -> None:
    dates = times(10, size)
    panel = read_bars(written(tmp_path, {"AAA": dates[:4] + dates[6:]}))
    assert panel.bar_seconds == size * 60
    assert panel.n_bars == 10


def test_a_stated_bar_is_used(tmp_path: Path) -> None:
    path = written(tmp_path, {"AAA": minutes(0, 120, 240)})
    assert read_bars(path).bar_seconds == 7200
    panel = read_bars(written(tmp_path, {"AAA": minutes(0, 120)}), bar="1h")
    assert panel.tradable[:, 0].tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["x.csv", "AAA-5m.csv"])
@pytest.mark.parametrize("bar", ["5m", "15m", "1h"])
def test_finer_bars_are_joined_to_the_size_that_is_asked_for(
    tmp_path: Path, name: str, bar: str
) -> None:
    dates = times(48, 5)
    path = written(tmp_path, {"AAA": dates[:7] + dates[8:]}).rename(tmp_path / name)
    joined = read_bars(path, bar=bar)
    assert joined.fingerprint == resample(read_bars(path), bar).fingerprint
    source = BarsSource(str(path), ("AAA",), bar)
    assert source.read().fingerprint == source.read_each()[0].fingerprint == joined.fingerprint


def test_a_size_is_stated_where_no_bars_are_finer(tmp_path: Path) -> None:
    """In every place that takes a bar size: two hours are the most common step."""
    path = written(tmp_path, {"AAA": minutes(0, 120, 180, 300)})
    source = BarsSource(str(path), ("AAA",), "1h")
    panels = [read_bars(path, bar="1h"), source.read(), source.read_each()[0]]
    assert [(panel.bar_seconds, panel.n_bars) for panel in panels] == [(3600, 6)] * 3
    frame = BarsSource(pl.read_csv(path), None, "1h")
    assert frame.keep(tmp_path / "kept.parquet").read().fingerprint == panels[0].fingerprint


def test_finer_bars_that_do_not_fill_the_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match="Bars of 20m do not make bars of 30m"):
        read_bars(written(tmp_path, {"AAA": times(9, 20)}), bar="30m")


def test_one_bar_needs_a_stated_size(tmp_path: Path) -> None:
    path = written(tmp_path, {"AAA": minutes(0), "BBB": minutes(0)})
    with pytest.raises(BarsError, match=r"x\.csv: no symbol has two bars.*bar='1h'"):
        read_bars(path)
    assert read_bars(path, bar="1h").n_bars == 1


def test_an_inferred_size_must_divide_a_day(tmp_path: Path) -> None:
    with pytest.raises(
        BarsError, match=r"x\.csv: the bars are 420 s apart, which does not divide a day"
    ):
        read_bars(written(tmp_path, {"AAA": times(5, 7)}))
    with pytest.raises(BarsError, match=r"259200 s apart"):
        read_bars(written(tmp_path, {"AAA": ["2024-01-05", "2024-01-08"]}))


def test_smaller_steps_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"BBB": minutes(0, 60, 120, 150, 180, 240)})
    with pytest.raises(
        BarsError, match=r"x\.csv: symbol BBB, row 5: the step of 30m .* smaller than the bar of 1h"
    ):
        read_bars(path, bar="1h")


def test_steps_that_are_no_multiple_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"BBB": minutes(0, 60, 120, 210, 270)})
    with pytest.raises(
        BarsError,
        match=r"x\.csv: symbol BBB, row 5: the step of 90m .* no multiple of the bar of 1h",
    ):
        read_bars(path)


def test_a_symbol_with_another_bar_size_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"AAA": times(50, 5), "BBB": times(5, 60)})
    with pytest.raises(
        BarsError, match=r"x\.csv: symbol BBB, row 53: from here on the bars are 1h apart, not 5m"
    ):
        read_bars(path)


def test_a_symbol_with_another_bar_size_and_gaps_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"AAA": times(80, 5), "BBB": minutes(0, 60, 180, 240, 360)})
    with pytest.raises(
        BarsError, match=r"symbol BBB, row 83: from here on the bars are 1h apart, not 5m"
    ):
        read_bars(path)


def test_a_stated_bar_smaller_than_the_file_s_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BarsError, match=r"symbol AAA, row 3: from here on the bars are 1h apart, not 5m"
    ):
        read_bars(written(tmp_path, {"AAA": times(10)}), bar="5m")


@pytest.mark.parametrize(("small", "large"), [(6, 5), (30, 3), (500, 400), (100, 8)])
def test_a_stretch_with_another_bar_size_is_refused(tmp_path: Path, small: int, large: int) -> None:
    ends = [5 * (small - 1) + 60 * (index + 1) for index in range(large)]
    path = written(tmp_path, {"AAA": times(small, 5) + minutes(*ends)})
    with pytest.raises(BarsError) as refused:
        read_bars(path)
    assert f"x.csv: symbol AAA, row {small + 2}: from here on the bars are 1h apart, not 5m" in str(
        refused.value
    )
    assert f"({large} such rows)" in str(refused.value)


def test_bars_missing_at_random_are_not_taken_for_another_size(tmp_path: Path) -> None:
    kept = np.random.default_rng(0).random(3000) < 0.55
    dates = [t for t, keep in zip(times(3000, 5), kept, strict=True) if keep]
    panel = read_bars(written(tmp_path, {"AAA": dates}))
    assert panel.bar_seconds == 300
    assert int(panel.tradable.sum()) == len(dates)


def test_symbols_out_of_step_are_refused(tmp_path: Path) -> None:
    path = written(
        tmp_path, {"AAA": times(5), "BBB": times(4, start=MONDAY + timedelta(minutes=30))}
    )
    with pytest.raises(
        BarsError,
        match=r"x\.csv: symbol BBB, row 7: bars of 1h open between those of other symbols",
    ):
        read_bars(path)
    path = written(tmp_path, {"AAA": weekdays(10), "BBB": weekdays(9, "05:00")})
    with pytest.raises(BarsError, match=r"symbol BBB, row 12: bars of 1d open between those"):
        read_bars(path)


def test_always_open_markets_have_a_regular_grid(tmp_path: Path) -> None:
    dates = times(24 * 9)
    panel = read_bars(
        written(tmp_path, {"AAA": dates[:50] + dates[60:], "BBB": dates[:50] + dates[60:]})
    )
    assert panel.always_open
    assert set(steps(panel)) == {3600}
    assert panel.n_bars == 24 * 9


def test_exchanges_have_the_union_of_times(tmp_path: Path) -> None:
    days = weekdays(10)
    panel = read_bars(written(tmp_path, {"AAA": days[:3] + days[4:], "BBB": days[2:7] + days[8:]}))
    assert not panel.always_open
    assert panel.n_bars == 10
    assert (~panel.tradable).sum(axis=0).tolist() == [1, 3]
    without_holiday = read_bars(written(tmp_path, {"AAA": days[:3] + days[4:]}))
    assert without_holiday.tradable.all()
    assert without_holiday.n_bars == 9


def test_nights_are_not_missing_bars(tmp_path: Path) -> None:
    dates = [f"{day[:10]} {hour}:30" for day in weekdays(8) for hour in range(14, 21)]
    panel = read_bars(written(tmp_path, {"AAA": dates}))
    assert (panel.n_bars, panel.always_open, panel.bar_seconds) == (56, False, 3600)


def test_less_than_a_week_counts_as_always_open_unless_stated(tmp_path: Path) -> None:
    path = written(
        tmp_path, {"AAA": [f"2024-01-0{day} {hour}:00" for day in (2, 3) for hour in range(14, 21)]}
    )
    assert read_bars(path).n_bars == 31
    stated = read_bars(path, calendar="exchange")
    assert (stated.n_bars, stated.always_open) == (14, False)


def test_exchange_hours_move_when_clocks_change_but_only_over_a_sunday(tmp_path: Path) -> None:
    winter = [f"2024-03-0{day}T05:00:00Z" for day in (4, 5, 6, 7, 8)]
    summer = [f"2024-03-{day}T04:00:00Z" for day in (11, 12, 13)]
    panel = read_bars(written(tmp_path, {"AAA": winter + summer}))
    assert panel.n_bars == 8
    assert panel.time[5].item() == datetime(2024, 3, 11, 4)
    moved = [*winter[:3], "2024-03-08T04:00:00Z", *summer]
    with pytest.raises(BarsError, match=r"row 5: the step of 47h .* no multiple of the bar of 1d"):
        read_bars(written(tmp_path, {"AAA": moved}))


def seconds(count: int, start: datetime = MONDAY) -> list[str]:
    return [f"{start + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}" for second in range(count)]


SATURDAY = MONDAY + timedelta(days=5)


@pytest.mark.parametrize(
    ("dates", "row"),
    [
        (["1974-01-01 00:00:00", *seconds(200)], 2),
        (["1974-01-01 00:00:00", *seconds(200, SATURDAY)], 2),
        ([*seconds(200, SATURDAY), "2074-01-01 00:00:00"], 202),
        ([*seconds(5, SATURDAY), *seconds(50, datetime(2261, 12, 31))], 6),
        (["1974-01-01 00:00:00", *weekdays(1000)], 2),
    ],
)
def test_one_wrong_date_does_not_fill_the_memory_and_its_row_is_named(
    tmp_path: Path, dates: list[str], row: int
) -> None:
    message = (
        rf"x\.csv: symbol AAA, row {row}: [\d,]+ hours without any bar lie beside it, and "
        rf"{len(dates):,} rows"
    )
    with pytest.raises(BarsError, match=message):
        read_bars(written(tmp_path, {"AAA": dates}))


def test_symbols_that_share_no_times_do_not_fill_the_memory(tmp_path: Path) -> None:
    hours = times(2500)
    path = written(tmp_path, {f"S{k}": [t] for k, t in enumerate(hours)})
    with pytest.raises(
        BarsError, match=r"2,500 rows nowhere near fill 2,500 bars of 2,500 symbols"
    ):
        read_bars(path, bar="1h")
    with pytest.raises(BarsError, match=r"nowhere near fill"):
        read_bars(path, bar="1h", calendar="exchange")


def test_a_sparse_grid_of_ordinary_size_is_read(tmp_path: Path) -> None:
    dates = [*times(10, start=SATURDAY), "2025-01-06 00:00:00"]
    assert read_bars(written(tmp_path, {"AAA": dates})).n_bars == 366 * 24 + 1
    years = weekdays(250) + [t.replace("2024", "2032") for t in weekdays(250)]
    assert read_bars(written(tmp_path, {"AAA": years}), calendar="exchange").n_bars == 500


def test_bars_of_few_trades_are_read_however_many_minutes_are_empty(tmp_path: Path) -> None:
    traded = np.cumsum(np.random.default_rng(0).integers(1, 60, 2000))
    panel = read_bars(written(tmp_path, {"AAA": minutes(*traded.tolist())}), bar="1m")
    assert panel.n_bars == traded[-1] - traded[0] + 1 > 50_000


def test_contracts_that_follow_each_other_are_read(tmp_path: Path) -> None:
    hours = times(40 * 60)
    path = written(tmp_path, {f"F{k}": hours[60 * k : 60 * k + 60] for k in range(40)})
    assert read_bars(path).n_bars == 40 * 60
