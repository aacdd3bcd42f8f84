"""Which files are read, and the refusal of those that cannot be."""

import os
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from bar_files import HEADER, line, save, times

from flatout.bars.files import is_hollow, load_table, name_of_file
from flatout.bars.read import read_bars
from flatout.errors import BarsError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BTC_USDT-1h.parquet", ("BTC_USDT", "1h")),
        ("BTC_USDT_USDT-5m.feather", ("BTC_USDT_USDT", "5m")),
        ("BTCUSDT_1h.csv", ("BTCUSDT", "1h")),
        ("1INCH_USDT.csv", ("1INCH_USDT", None)),
        ("AAPL.csv", ("AAPL", None)),
        ("BRK.B.csv", ("BRK.B", None)),
        ("prices.csv", (None, None)),
        ("aapl.csv", (None, None)),
        ("AAPL_daily.csv", (None, None)),
        ("BTCUSDT-1h-2024-01.csv", (None, None)),
        ("BTC_USDT-1h-mark.csv", (None, None)),
        ("BTC_USDT-1w.csv", (None, None)),
    ],
)
def test_names(name: str, expected: tuple[str | None, str | None]) -> None:
    assert name_of_file(Path(name)) == expected


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match=r"nowhere\.csv: there is no such file or folder"):
        read_bars(tmp_path / "nowhere.csv")


def test_an_unsupported_extension(tmp_path: Path) -> None:
    (tmp_path / "bars.xlsx").write_bytes(b"x")
    with pytest.raises(
        BarsError, match=r"bars\.xlsx: the extension '\.xlsx' is not supported.*\.csv, \.parquet"
    ):
        read_bars(tmp_path / "bars.xlsx")


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no bars")
    with pytest.raises(BarsError, match=r"the folder has no \.csv, \.parquet, \.feather file"):
        read_bars(tmp_path)


@pytest.mark.parametrize("text", ["", "\n\n", "https://www.cryptodatadownload.com\n"])
def test_an_empty_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "AAA.csv").write_text(text)
    with pytest.raises(BarsError, match=r"AAA\.csv: the file is empty"):
        read_bars(tmp_path / "AAA.csv")


def test_a_file_without_rows(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match=r"AAA\.csv: the file has no bars"):
        read_bars(save(tmp_path / "AAA.csv", []))
    pl.DataFrame({name: [] for name in HEADER.split(",")}).write_parquet(tmp_path / "AAA.parquet")
    with pytest.raises(BarsError, match=r"AAA\.parquet: the file has no bars"):
        read_bars(tmp_path / "AAA.parquet")


@pytest.mark.parametrize("name", ["AAA.parquet", "AAA.feather"])
def test_a_damaged_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not what the name says")
    with pytest.raises(BarsError, match=rf"{name}: the file cannot be read"):
        read_bars(tmp_path / name)


def test_damaged_csv(tmp_path: Path) -> None:
    path = save(tmp_path / "AAA.csv", [line(t) for t in times(2)] + ["1,2,3,4,5,6,7,8,9"])
    with pytest.raises(BarsError, match=r"AAA\.csv: the file cannot be read: found more fields"):
        read_bars(path)
    path.write_bytes(b"dat\xe9")
    with pytest.raises(BarsError, match=r"AAA\.csv: the file cannot be read: 'utf-8' codec"):
        read_bars(path)
    path.write_text(f"{HEADER}\n{line('2024-01-01')}\n", encoding="utf-16")
    with pytest.raises(BarsError, match=r"AAA\.csv: the text is UTF-16\. Save it as UTF-8"):
        read_bars(path)


def test_no_header(tmp_path: Path) -> None:
    with pytest.raises(
        BarsError,
        match=r"AAA\.csv: there is no header and 6 columns, not the 12 of klines.*Add a first",
    ):
        read_bars(save(tmp_path / "AAA.csv", ["1704067200,1,1,1,1,1"], None))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = save(
        tmp_path / "AAA.csv",
        [line(t, "1") for t in times(2)],
        "date,open,high,low,close,volume,close",
    )
    with pytest.raises(BarsError, match=r"AAA\.csv: several columns are called close"):
        read_bars(path)


def test_blank_lines_and_a_byte_order_mark_do_no_harm_and_rows_keep_their_numbers(
    tmp_path: Path,
) -> None:
    first, second, third = times(3)
    path = tmp_path / "x.csv"
    path.write_bytes(f"\ufeff{HEADER}\r\n{line(first)}\r\n\r\n{line(second)}\r\n\r\n".encode())
    assert read_bars(path).n_bars == 2
    path.write_text(f"{HEADER}\n{line(first)}\n\n{line(second)}\n{line(third, volume=-1)}\n")
    with pytest.raises(BarsError, match=r"x\.csv: symbol AAA, row 5: volume"):
        read_bars(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.parquet").symlink_to("/dev/zero")
    (tmp_path / "loop.feather").symlink_to(tmp_path / "loop.feather")
    for name, message in {
        "pipe.csv": "is a pipe, a socket or a device, where a file is wanted",
        "zero.parquet": "is a pipe, a socket or a device, where a file is wanted",
        "loop.feather": "cannot be read: ",
    }.items():
        with pytest.raises(BarsError, match=rf"{name}: {message}"):
            read_bars(tmp_path / name)


def test_a_folder_called_like_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "AAA.csv").mkdir()
    with pytest.raises(BarsError, match=r"AAA\.csv: is a folder, where a file is wanted"):
        read_bars(tmp_path)


def test_a_path_that_no_system_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BarsError, match=r"x\.csv: (it cannot be opened: File name too long|there is no such file)"
    ):
        read_bars(tmp_path / ("x" * 300 + ".csv"))


def test_a_file_that_is_all_hole_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "AAA.csv").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(
        BarsError, match=r"AAA\.csv: its 1,099,511,627,776 bytes are nearly all a hole"
    ):
        read_bars(tmp_path / "AAA.csv")


def test_a_hundred_thousand_columns_are_refused_in_a_short_sentence(tmp_path: Path) -> None:
    path = save(tmp_path / "AAA.csv", ["1"], ",".join(f"c{k}" for k in range(100_000)))
    with pytest.raises(
        BarsError, match=r"AAA\.csv: it has 100,000 columns, and at most 10,000 are read"
    ) as refused:
        read_bars(path)
    assert len(str(refused.value)) < 300
    with pytest.raises(
        BarsError, match=r"no column for date, open.* among c0, c1, .*, 4,980 others"
    ) as refused:
        read_bars(save(path, ["1"], ",".join(f"c{k}" for k in range(5000))))
    assert len(str(refused.value)) < 1000


def test_blank_lines_of_a_wide_file_take_no_memory(tmp_path: Path) -> None:
    path = save(tmp_path / "AAA.csv", [""] * 100_000, ",".join(f"c{k}" for k in range(5000)))
    with pytest.raises(
        BarsError,
        match=r"AAA\.csv: its .* bytes are 100,001 lines of 5,000 columns: most are blank",
    ):
        read_bars(path)


def test_a_first_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "AAA.csv").write_bytes(b"\0" * 2_000_000)
    with pytest.raises(
        BarsError, match=r"AAA\.csv: a line before the bars has more than 1,048,576 bytes"
    ):
        read_bars(tmp_path / "AAA.csv")
    (tmp_path / "AAA.csv").write_bytes(b"x" * 200_000)
    with pytest.raises(
        BarsError, match=r"AAA\.csv: the file cannot be read: field larger than field limit"
    ):
        read_bars(tmp_path / "AAA.csv")


@pytest.mark.parametrize("count", [10**6, 10**6 + 1])
def test_a_million_quotes_are_refused_in_a_short_sentence(tmp_path: Path, count: int) -> None:
    path = save(tmp_path / "AAA.csv", ['"' * count, *(line(t) for t in times(3))])
    with pytest.raises(BarsError, match=r"AAA\.csv: ") as refused:
        read_bars(path)
    assert len(str(refused.value)) < 500


def test_a_file_cut_while_it_is_read_is_read_as_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({name: [1.0] for name in HEADER.split(",")})
    frame.write_parquet(tmp_path / "AAA.parquet")

    class Cutting:
        def check(self, path: Path, content: bytes) -> None:
            path.write_bytes(b"")

    assert load_table(tmp_path / "AAA.parquet", Cutting()).frame.height == 1  # type: ignore[arg-type]
    assert (tmp_path / "AAA.parquet").read_bytes() == b""


def test_a_column_cannot_take_the_name_of_the_row_numbers(tmp_path: Path) -> None:
    pl.DataFrame({"\0row": [1], "date": [1]}).write_parquet(tmp_path / "AAA.parquet")
    with pytest.raises(BarsError, match=r"a column is called"):
        read_bars(tmp_path / "AAA.parquet")


def test_a_system_that_counts_no_blocks_has_no_holes(tmp_path: Path) -> None:
    (tmp_path / "written").write_bytes(b"x" * 10)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 20)
    uncounted = SimpleNamespace(st_blocks=0, st_size=1 << 20)
    assert not is_hollow(tmp_path / "written", uncounted)  # type: ignore[arg-type]
    assert is_hollow(tmp_path / "hole", uncounted)  # type: ignore[arg-type]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_other_separators_than_commas_are_named(tmp_path: Path, mark: str, header: bool) -> None:
    path = tmp_path / "BTC.csv"
    names = mark.join(["date", "open", "high", "low", "close", "volume"])
    row = mark.join(["2024-01-01", *["1020,5"] * 5])
    path.write_text("\n".join([names, row] if header else [row, row]))
    with pytest.raises(BarsError) as refused:
        read_bars(path)
    said = str(refused.value)
    assert "not by commas. Save it with commas between columns and a point before decimals" in said
    assert f"separator={mark!r}".replace("\\", "") in said.replace("\\", "")
    frame = pl.read_csv(path, separator=mark, decimal_comma=True, has_header=header)
    if header:
        assert read_bars(frame, symbols=["BTC"], bar="1d").close[0, 0] == 1020.5
