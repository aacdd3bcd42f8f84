"""What the process that reads table files first finds wrong with them."""

import io

import polars as pl
import pytest

from flatout.bars.table_probe import FREE_ROWS, MOST_COLUMNS, fault_of

SUFFIXES = (".parquet", ".feather")


def content(frame: pl.DataFrame, suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == ".parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_is_wrong_with_a_whole_file(suffix: str) -> None:
    assert fault_of(content(pl.DataFrame({"a": [1, 2]}), suffix), suffix) is None


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damaged", [b"", b"nonsense", b"PAR1" * 10, b"ARROW1\0\0" * 10])
def test_what_is_no_table_is_said_in_one_line(suffix: str, damaged: bytes) -> None:
    fault = fault_of(damaged, suffix)
    assert fault
    assert "\n" not in fault


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_small_file_of_many_rows_is_not_unpacked(suffix: str) -> None:
    rows = FREE_ROWS + 1_000_000
    bomb = content(pl.DataFrame({"a": pl.repeat(1, rows, dtype=pl.Int8, eager=True)}), suffix)
    assert len(bomb) < 100_000
    assert (
        fault_of(bomb, suffix)
        == f"its {len(bomb):,} bytes claim {rows:,} rows: it would fill the memory"
    )


def test_too_many_columns_are_refused() -> None:
    wide = pl.DataFrame({f"c{k}": [1] for k in range(MOST_COLUMNS + 1)})
    assert fault_of(content(wide, ".feather"), ".feather") == "it has more than 10,000 columns"
