"""Times in all their spellings, and the refusal of what could mean two things."""

from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from bar_files import line, save

from flatout.bars.read import read_bars
from flatout.errors import BarsError

HOURS = np.array(["2024-01-01T00", "2024-01-01T01"], "datetime64[us]").tolist()
EPOCH = (1_704_067_200, 1_704_070_800)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2024-01-01 00:00:00", "2024-01-01 01:00:00"),
        ("2024-01-01T00:00", "2024-01-01T01:00"),
        ("2024-01-01", "2024-01-01 01:00"),
        ("2024-01-01T00:00:00Z", "2024-01-01T01:00:00+00:00"),
        ("2024-01-01 00:00:00 UTC", "2024-01-01 01:00:00 UTC"),
        ("2024-01-01T00:00:00.000Z", "2024-01-01T01:00:00.000000000Z"),
        ("2024-01-01 05:30:00+05:30", "2024-01-01 06:30:00+0530"),
        ("2023-12-31 19:00:00-05", "2023-12-31 20:00:00-05:00"),
        *(
            (f"{EPOCH[0]}{zeros}", f"{EPOCH[1]}{zeros}")
            for zeros in ("", "000", "000000", "000000000", ".0")
        ),
    ],
)
def test_text_and_numbers_in_csv(tmp_path: Path, first: str, second: str) -> None:
    assert read_bars(save(tmp_path / "x.csv", [line(first), line(second)])).time.tolist() == HOURS


def parquet(tmp_path: Path, dates: pl.Series) -> Path:
    n = len(dates)
    prices = {name: [10.0] * n for name in ("open", "high", "low", "close", "volume")}
    pl.DataFrame({"date": dates, **prices, "symbol": ["AAA"] * n}).write_parquet(
        tmp_path / "x.parquet"
    )
    return tmp_path / "x.parquet"


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_typed_times(tmp_path: Path, unit: str, zone: str | None) -> None:
    dates = pl.Series(HOURS).cast(pl.Datetime(unit))  # type: ignore[arg-type]
    dates = dates if zone is None else dates.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    assert read_bars(parquet(tmp_path, dates)).time.tolist() == HOURS


@pytest.mark.parametrize("scale", [1, 1000, 1_000_000, 1_000_000_000])
@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64])
def test_typed_numbers(tmp_path: Path, scale: int, kind: type[pl.DataType]) -> None:
    assert (
        read_bars(parquet(tmp_path, pl.Series([t * scale for t in EPOCH]).cast(kind))).time.tolist()
        == HOURS
    )


def test_typed_dates(tmp_path: Path) -> None:
    panel = read_bars(parquet(tmp_path, pl.Series([date(2024, 1, 1), date(2024, 1, 2)])))
    assert panel.time.tolist() == [datetime(2024, 1, 1), datetime(2024, 1, 2)]


def test_a_zone_with_summer_time_in_the_type_is_fine(tmp_path: Path) -> None:
    new_york = ZoneInfo("America/New_York")
    opens = [datetime(2024, 3, day, 0, tzinfo=new_york) for day in (4, 5, 6, 7, 8, 11, 12, 13)]
    panel = read_bars(
        parquet(tmp_path, pl.Series(opens, dtype=pl.Datetime("us", "America/New_York")))
    )
    assert panel.time.tolist() == [t.astimezone(UTC).replace(tzinfo=None) for t in opens]
    assert (panel.bar_seconds, panel.always_open) == (86_400, False)


@pytest.mark.parametrize(
    ("dates", "row", "reason"),
    [
        (["2024-01-01 00:00", "2024-01-01 01:00Z"], 3, "has another UTC offset than the first"),
        (["2024-01-01 00:00Z", "2024-01-01 01:00"], 3, "has another UTC offset than the first"),
        (
            ["2024-03-10 01:00-05:00", "2024-03-10 03:00-04:00"],
            3,
            "has another UTC offset than the first",
        ),
        (["2024-01-01", "01/02/2024"], 3, "'01/02/2024' is not understood"),
        (["2024-01-01", "2024-13-01"], 3, "'2024-13-01' is not understood"),
        (["2024-01-01", ""], 3, "the time is missing"),
        (["20240101", "20240102"], 2, "'20240101' is no time since 1970"),
        (["1704067200", "soon"], 3, "'soon' is no number as in the first row"),
        (["1704067200", "1704070800000"], 3, "'1704070800000' is not in s as in the first row"),
    ],
)
def test_refusals(tmp_path: Path, dates: list[str], row: int, reason: str) -> None:
    with pytest.raises(BarsError, match=rf"x\.csv: symbol AAA, row {row}: .*{reason}"):
        read_bars(save(tmp_path / "x.csv", [line(t) for t in dates]))


@pytest.mark.parametrize("wrong", ["0001-01-01", "1799-12-31", "2262-01-02", "9999-12-31"])
def test_years_that_no_market_has_are_refused_with_their_row(tmp_path: Path, wrong: str) -> None:
    path = save(tmp_path / "x.csv", [line("2024-01-01"), line(wrong)])
    with pytest.raises(
        BarsError, match=rf"row 3: the time '{wrong}' is outside the years 1800 to 2261"
    ):
        read_bars(path)


@pytest.mark.parametrize("wrong", ["99999999999999999999", "9300000000000000000", "1e300"])
def test_numbers_that_are_no_times_are_refused(tmp_path: Path, wrong: str) -> None:
    path = save(tmp_path / "x.csv", [line("1704067200000000000"), line(wrong)])
    with pytest.raises(BarsError, match=r"row 3: the time '.*' is no time since 1970"):
        read_bars(path)


@pytest.mark.parametrize(
    "wrong", ["2024-01-01T01:00+99:99", "2024-01-01T01:00-15:00", "2024-01-01T24:00:00"]
)
def test_offsets_and_hours_that_do_not_exist_are_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(BarsError, match=r"row 2: the time '.*' is not understood"):
        read_bars(save(tmp_path / "x.csv", [line(wrong), line(wrong)]))


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        (
            pl.Series([0, 2**31 - 1], dtype=pl.Int32).cast(pl.Date),
            r"row 2: the time 2147483647 \(days since 1970\)",
        ),
        (
            pl.Series([0, 2**63 - 1]).cast(pl.Datetime("ms")),
            r"row 2: the time 9223372036854775807 \(ms since 1970\)",
        ),
        (
            pl.Series([0, -(2**63)]).cast(pl.Datetime("us", "UTC")),
            r"row 2: the time -9223372036854775808 \(us",
        ),
        (
            pl.Series([0, 2**63 - 1]).cast(pl.Datetime("ns")),
            r"row 2: the time 9223372036854775807 \(ns",
        ),
        (pl.Series([1, 2**64 - 1], dtype=pl.UInt64), "row 1: the time 1 is no time since 1970"),
    ],
)
def test_typed_times_out_of_range_are_refused(
    tmp_path: Path, dates: pl.Series, message: str
) -> None:
    with pytest.raises(BarsError, match=message):
        read_bars(parquet(tmp_path, dates))


@pytest.mark.parametrize(
    "dates",
    [
        pl.Series([[1], [2]]),
        pl.Series([{"a": 1}, {"a": 2}]),
        pl.Series([b"\xff", b"\xfe"]),
        pl.Series([True, False]),
        pl.Series([datetime(2024, 1, 1).time()] * 2),
        pl.Series([{f"field {k}": 1 for k in range(500)}] * 2),
    ],
    ids=lambda dates: str(dates.dtype)[:12],
)
def test_types_that_are_no_times_are_refused_in_a_short_sentence(
    tmp_path: Path, dates: pl.Series
) -> None:
    with pytest.raises(
        BarsError, match=r"row 1: the column for the date holds .*, not times"
    ) as refused:
        read_bars(parquet(tmp_path, dates))
    assert len(str(refused.value)) < 500
