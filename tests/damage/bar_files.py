"""Damaged bar files: CSV, Parquet and Feather in several spellings, folders of them, and arrays to
import.

Whatever is read must be a panel that can be checked, joined into larger bars and written. Damage
that alters a value within what a market can produce cannot be seen by anyone and counts as read.
"""

import contextlib
import itertools
import math
import os
import random
import struct
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from damage.mutations import damage_bytes
from damage.one_case import SilentlyWrong
from flatout.bars.check import check_bars
from flatout.bars.from_arrays import ArrayFiles, read_arrays
from flatout.bars.panel import PRICES, Panel
from flatout.bars.probing import Probe, probing
from flatout.bars.read import read_bars
from flatout.bars.resample import resample
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.errors import BarsError

COUNT = 10_000
TOGETHER = 20  # cases whose table files one process tries out, as it does with those of a folder
BARS = RandomWalk(n_bars=120, symbols=("AAA", "BBB")).panel()
HEADER = "date,open,high,low,close,volume,symbol"
CELLS = (
    "", "nan", "inf", "-inf", "1e999", "1e308", "-1", "0", "5e-324", "9" * 400, "x" * 3_000_000,
    "{date}", "{", "%s",
    "0x10", "1_000", "\x00", "\x1b[31m", "[red]", ("=cmd|'/c calc'!A0"), "../../up", "/abs", "a\tb",
                                                  "\u202eabc", "½",
    "١٢٣", "true", "null", "1,5", "a" * 101, "'", "-", "1e-400", "99999999999999999999",
)  # fmt: skip
DATES = (
    "0001-01-01", "9999-12-31", "0000-00-00", "1799-12-31", "2262-01-01", "2024-02-30",
    "1970-01-01T00:00:00", "-1",
    "2024-01-01T00:00:00+99:99", "2024-01-01T24:00:00", "99999999999999999999", "1e300",
    "12345678901234567890123",
    "soon", "2024-01-01T00:00:00.000000000001", "292277026596-12-04", "1704067200",
    "2024-01-01T00:00:00-15:00",
)  # fmt: skip
LINES = (
    "",
    ",",
    '"',
    '"' * 1001,
    "," * 5000,
    "\r",
    "\x00" * 50,
    "date,open",
    "x" * 2_000_000,
    "https://example.org",
)
NESTED: tuple[Callable[[int], pl.Series], ...] = (
    lambda n: pl.Series([[1.0]] * n),
    lambda n: pl.Series([[[1]]] * n),
    lambda n: pl.Series([{"a": 1, "b": "x"}] * n),
    lambda n: pl.Series([b"\xff\x00"] * n),
    lambda n: pl.Series([True] * n),
    lambda n: pl.Series([None] * n),
    lambda n: pl.Series([timedelta(days=10**6)] * n),
    lambda n: pl.Series([datetime(2024, 1, 1).time()] * n),
    lambda n: pl.Series([2**63 - 1] * n).cast(pl.Datetime("ms")),
    lambda n: pl.Series(range(n)).cast(pl.Datetime("ns", "Asia/Kolkata")),
    lambda n: pl.Series([2**31 - 1] * n, dtype=pl.Int32).cast(pl.Date),
    lambda n: pl.Series([-(2**63) + 1] * n).cast(pl.Datetime("us")),
    lambda n: pl.Series([2**64 - 1] * n, dtype=pl.UInt64),
    lambda n: pl.Series(["1.5"] * n).cast(pl.Decimal(38, 30)),
    lambda n: pl.Series(["A"] * n, dtype=pl.Categorical),
    lambda n: pl.Series(["\n"] * n),
    lambda n: pl.Series(["x" * 10_000] * n),
    lambda n: pl.Series([float("nan")] * n),
    lambda n: pl.Series([1e308] * n),
    lambda n: pl.Series([10**30] * n, dtype=pl.Int128),
    lambda n: pl.Series([[1, 2]] * n, dtype=pl.Array(pl.Int64, 2)),
)


attempts = itertools.count(1)
shared = contextlib.ExitStack()


@cache
def shared_probe() -> Probe:
    """The probe of many attempts: to start a process for each would take longer than all else."""
    return shared.enter_context(probing())


def prepare(folder: Path) -> None:
    """Honest files of each kind; all have the bars of BARS."""
    write_bars(BARS, folder / "bars.parquet")
    (folder / "bars.manifest.json").unlink()
    frame = pl.read_parquet(folder / "bars.parquet").with_columns(
        pl.col("date").dt.replace_time_zone(None)
    )
    frame.write_parquet(
        folder / "plain.parquet", compression="uncompressed", use_pyarrow=False, row_group_size=50
    )
    frame.write_ipc(folder / "bars.feather", compression="lz4")
    frame.write_ipc(folder / "zstd.feather", compression="zstd")
    frame.write_csv(folder / "bars.csv")
    epochs = frame.with_columns(pl.col("date").dt.epoch("ms"))
    epochs.write_csv(folder / "epochs.csv")
    close = BARS.close
    np.save(folder / "prices.npy", close)
    np.savez_compressed(folder / "prices.npz", price_array=close, tech_array=close)
    np.save(folder / "times.npy", BARS.time)


def damage(number: int, originals: Path, folder: Path) -> str:
    """Damage by number: a kind of file, then a kind of damage."""
    rng = random.Random(number)
    return (
        damage_csv,
        damage_csv,
        damage_table,
        damage_table,
        damage_frame,
        damage_arrays,
        damage_place,
    )[number % 7](rng, originals, folder)


def damage_csv(rng: random.Random, originals: Path, folder: Path) -> str:
    """Bytes, cells, lines or columns of a CSV file."""
    name = rng.choice(("bars.csv", "epochs.csv"))
    content = (originals / name).read_bytes()
    if rng.random() < 0.35:
        content, said = damage_bytes(content, rng)
        (folder / name).write_bytes(content)
        return f"{name}: {said}"
    lines = content.decode().splitlines()
    row, kind = (
        rng.randrange(len(lines)),
        rng.choice(("cell", "cell", "date", "date", "line", "drop", "twice", "column")),
    )
    if kind in ("cell", "date"):
        cells = lines[row].split(",")
        column = 0 if kind == "date" else rng.randrange(len(cells))
        cells[column] = rng.choice(DATES if kind == "date" else CELLS)
        lines[row] = ",".join(cells)
        said = f"row {row + 1}, column {column} became {cells[column][:30]!r}"
    elif kind == "column":
        at = rng.randrange(7)
        value = rng.choice(CELLS + DATES)[:200]
        changed = [line.split(",") for line in lines]
        lines = [
            ",".join([*cells[:at], value, *cells[at + 1 :]]) if k else lines[0]
            for k, cells in enumerate(changed)
        ]
        said = f"all of column {at} became {value[:30]!r}"
    else:
        said = f"row {row + 1}: {kind}"
        more = [rng.choice(LINES)] if kind == "line" else [lines[row]] if kind == "twice" else []
        lines[row : row + 1] = more if kind == "drop" else [lines[row], *more]
    encoding = rng.choice(("utf-8",) * 9 + ("utf-16", "utf-8-sig", "latin-1"))
    (folder / name).write_bytes(
        "\n".join(lines).encode(encoding, "replace") + b"\n" * rng.choice((1, 1, 1, 100_000))
    )
    return f"{name}: {said}, {encoding}"


def damage_table(rng: random.Random, originals: Path, folder: Path) -> str:
    """Bytes of a Parquet or Feather file, mostly where its numbers of rows, sizes and places
    are.
    """
    name = rng.choice(("bars.parquet", "plain.parquet", "bars.feather", "zstd.feather"))
    content = bytearray((originals / name).read_bytes())
    if rng.random() < 0.3:
        damaged, said = damage_bytes(bytes(content), rng)
        (folder / name).write_bytes(damaged)
        return f"{name}: {said}"
    places = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(max(0, len(content) - 2000) if rng.random() < 0.7 else 0, len(content))
        value = rng.choice(
            (
                b"\0",
                b"\xff",
                b"\x7f",
                b"\x80",
                rng.randbytes(1),
                struct.pack("<q", 2 ** rng.randrange(63)),
            )
        )
        content[at : at + len(value)] = value
        places.append(at)
    (folder / name).write_bytes(content)
    return f"{name}: numbers changed at {places}"


def damage_frame(rng: random.Random, originals: Path, folder: Path) -> str:
    """A whole table file with a column of another type, too many rows or columns, or wild
    values.
    """
    frame = pl.read_parquet(originals / "plain.parquet")
    column, kind = (
        rng.choice(frame.columns),
        rng.choice(("type", "type", "value", "rows", "columns", "rename", "wide")),
    )
    said = f"{kind} of {column}"
    if kind == "type":
        which = rng.randrange(len(NESTED))
        frame = frame.with_columns(NESTED[which](frame.height).alias(column))
        said = f"{column} became {frame.schema[column]} ({which})"
    elif kind == "value":
        row = rng.randrange(frame.height)
        wild = rng.choice((None, float("nan"), math.inf, -1.0, 0.0, 1e308, 5e-324, 1e16, 1e-16))
        frame = frame.with_columns(frame["close"].scatter(row, wild).alias(rng.choice(PRICES)))
        said = f"row {row} became {wild}"
    elif kind == "rows":
        frame = frame.select(pl.all().first()).select(
            pl.all().repeat_by(rng.choice((2, 3_000_000))).explode()
        )
    elif kind == "columns":
        frame = frame.select(pl.all().exclude(column))
    elif kind == "rename":
        frame = frame.rename(
            {column: rng.choice(("", "{x}", "\n", "\0row", "t" * 100_000, "Volume AAA", "unix"))}
        )
    else:
        frame = frame.head(3).with_columns(
            pl.lit(1).alias(f"c{k}") for k in range(rng.choice((100, 12_000)))
        )
    if rng.random() < 0.5:
        frame.write_parquet(folder / "bars.parquet", compression="zstd")
    else:
        frame.write_ipc(folder / "bars.feather", compression="zstd")
    return said


def damage_arrays(rng: random.Random, originals: Path, folder: Path) -> str:
    """The arrays of an import: bytes, headers that promise too much, bombs, values and times."""
    prices, times = np.load(originals / "prices.npy"), np.load(originals / "times.npy")
    kind = rng.choice(("npy", "npz", "header", "bomb", "value", "times", "times bytes", "type"))
    target, said = "prices.npy", kind
    if kind in ("npy", "npz", "times bytes"):
        target = {"npy": "prices.npy", "npz": "prices.npz", "times bytes": "times.npy"}[kind]
        content, said = damage_bytes((originals / target).read_bytes(), rng)
        (folder / target).write_bytes(content)
    elif kind == "header":
        shape = rng.choice(
            ((10**12,), (2**62, 4), (-1, 2), (0, 2), (1,) * 40, (10**30, 2), (), (120, 2.0), "x")
        )
        descr = rng.choice(
            (
                "<f8",
                "|O",
                "<U1000000",
                "<c16",
                "V0",
                "<f16",
                ">f4",
                "<M8[Y]",
                [("a", "<f8")],
                "(9,9)f8",
            )
        )
        header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
        header += b" " * rng.choice((0, 1, 20_000)) + b"\n"
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + prices.tobytes()
        said = f"the header says {descr} of {shape}"
        target = rng.choice(("prices.npy", "prices.npz"))
        if target == "prices.npy":
            (folder / target).write_bytes(content)
        else:
            with zipfile.ZipFile(folder / target, "w") as archive:
                archive.writestr("price_array.npy", content)
    elif kind == "bomb":
        target = "prices.npz"
        np.savez_compressed(
            folder / target, price_array=np.ones((rng.choice((3_000_000, 8_000_000)), 2))
        )
    elif kind == "value":
        wild = rng.choice((math.nan, math.inf, -1.0, 0.0, 1e308, 5e-324, 1e16))
        prices[rng.randrange(len(prices)), rng.randrange(2)] = wild
        np.save(folder / target, prices)
        said = f"a price became {wild}"
    elif kind == "type":
        cast = rng.choice(
            ("float16", "longdouble", "complex128", "bool", "int8", "uint64", "U5", "datetime64[s]")
        )
        with np.errstate(all="ignore"):
            np.save(
                folder / target,
                prices.astype(cast) if cast != "datetime64[s]" else prices.astype(int).astype(cast),
            )
        said = f"prices as {cast}"
    else:
        target, unit = "times.npy", rng.choice(("Y", "D", "s", "ns", "as"))
        wrong = np.asarray(rng.choice((2**40, -(2**40), 2**62, -(2**63))), np.int64)
        times = (
            times.astype(np.int64) if rng.random() < 0.5 else times.astype(f"datetime64[{unit}]")
        )
        times[rng.randrange(len(times))] = wrong.astype(times.dtype)
        np.save(folder / target, times)
        said = f"a time became {wrong} in {times.dtype}"
    return f"{target}: {said}"


def damage_place(rng: random.Random, originals: Path, folder: Path) -> str:
    """Not the content of a file but what lies in its place, or beside it."""
    kind = rng.choice(
        (
            "pipe",
            "loop",
            "zero",
            "folder",
            "hollow",
            "names",
            "blank",
            "wide",
            "quotes",
            "span",
            "symbols",
        )
    )
    path = folder / f"AAA{rng.choice(('.csv', '.parquet', '.feather'))}"
    rows = [f"2024-01-01 00:00:{second:02},10,12,9,11,5,AAA" for second in range(40)]
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "hollow":
        with path.open("wb") as file:
            file.truncate(rng.choice((1 << 20, 1 << 31, 1 << 40)))
    elif kind == "names":
        for k in range(200):
            (folder / f"{k}{rng.choice(('.csv', '.txt', '.json', '.parquet', ''))}").write_bytes(
                rng.randbytes(rng.randrange(50))
            )
    else:
        path = path.with_suffix(".csv")
        if kind == "blank":
            columns = rng.choice((7, 5000))
            text = ",".join([HEADER, *(f"c{k}" for k in range(columns - 7))]) + "\n" * rng.choice(
                (100, 3_000_000)
            )
        elif kind == "wide":
            text = ",".join(f"c{k}" for k in range(rng.choice((5000, 100_000)))) + "\n1,2\n"
        elif kind == "quotes":
            text = HEADER + "\n" + '"' * rng.choice((10**6, 10**6 + 1)) + "\n" + rows[0] + "\n"
        elif kind == "span":
            year = rng.choice((1801, 1970, 2023, 2025, 2261))
            wrong = f"{year}-06-01 00:00:00,10,12,9,11,5,AAA"
            text = "\n".join([HEADER, *([wrong, *rows] if year < 2024 else [*rows, wrong])])
        else:
            count = rng.choice((300, 20_000))
            text = "\n".join(
                [
                    HEADER,
                    *(
                        f"{datetime(2024, 1, 1) + timedelta(hours=k)},10,12,9,11,5,S{k}"
                        for k in range(count)
                    ),
                ]
            )
        path.write_text(text)
    return f"{path.name}: {kind}"


def attempt(folder: Path) -> str:
    """Read what is there, check it, join it and write it, as `flatout data` and `flatout
    import-arrays` do.
    """
    probe = shared_probe()
    try:
        return use(folder)
    finally:
        if next(attempts) % TOGETHER == 0:  # memory of processes is known when they have ended
            probe.close()


def use(folder: Path) -> str:
    files = sorted(folder.iterdir())
    if files[0].suffix in (".npy", ".npz"):
        panel = imported(files[0])
    else:
        panel = read_bars(files[0] if len(files) == 1 else folder)
    check_panel(panel)
    check_bars(panel)
    with contextlib.suppress(BarsError):  # too few bars, or of a size that does not fit
        check_panel(resample(panel, "4h"))
    write_bars(panel, folder / "out" / "bars.parquet")
    return "read"


def imported(path: Path) -> Panel:
    """Arrays as bars; the ones that are not damaged are the originals."""
    originals = path.parents[1] / "originals"
    times = path if path.name == "times.npy" else originals / "times.npy"
    prices = originals / "prices.npy" if path.name == "times.npy" else path
    return read_arrays(ArrayFiles(prices, ("AAA", "BBB"), "1h", times=times)).panel


def check_panel(panel: Panel) -> None:
    """Whatever was read is such that nothing later can fail on it."""
    exists = panel.exists
    for name in (*PRICES, "volume"):
        values = getattr(panel, name)[exists]
        if not np.isfinite(values).all() or (values < 0).any():
            raise SilentlyWrong(f"{name} has values that no market has")
    if exists.sum() < 1 or (np.diff(panel.time).astype(np.int64) <= 0).any():
        raise SilentlyWrong("the grid does not rise, or is empty")
    if not all(symbol.isprintable() for symbol in panel.symbols):
        raise SilentlyWrong(f"symbols {panel.symbols!r}")
