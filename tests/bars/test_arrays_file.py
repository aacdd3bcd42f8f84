"""Arrays on disk: which are read, and which are refused in words."""

import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from flatout.bars.arrays_file import load_array, load_numbers, load_times
from flatout.errors import BarsError

PRICES = np.arange(6.0).reshape(3, 2)


def test_npy_and_npz_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PRICES)
    np.savez(tmp_path / "one.npz", anything=PRICES)
    np.savez_compressed(tmp_path / "many.npz", price_array=PRICES, tech_array=PRICES + 1)
    for name in ("a.npy", "one.npz", "many.npz"):
        assert load_numbers(tmp_path / name, "price_array").tolist() == PRICES.tolist()
    assert load_numbers(tmp_path / "many.npz", "tech_array")[0, 0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_all_numbers_become_doubles(dtype: type, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PRICES.astype(dtype))
    assert load_numbers(tmp_path / "a.npy", "price_array").dtype == np.float64


class Boom:
    """Leaves a trace if it is ever unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def test_pickles_are_refused_and_never_run(tmp_path: Path) -> None:
    bomb, trace = Boom(tmp_path / "trace"), tmp_path / "trace"
    np.save(tmp_path / "objects.npy", np.array([bomb], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", price_array=np.array([bomb], dtype=object))
    for name in ("price_array", "pickle.pkl", "pickle.npy"):
        (tmp_path / name).write_bytes(pickle.dumps(bomb))
    for name, message in {
        "objects.npy": "it holds pickled objects",
        "objects.npz": "it holds pickled objects",
        "price_array": "it is a pickle",
        "pickle.pkl": "it is a pickle",
        "pickle.npy": "it holds pickled objects",
    }.items():
        with pytest.raises(
            BarsError,
            match=rf"{message}\. flatout reads no pickles.*numpy\.save\('price_array\.npy'",
        ):
            load_array(tmp_path / name, "price_array")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", b"", "the file cannot be read"),
        (
            "a.npy",
            b"nonsense",
            "pickled objects",
        ),  # anything without NumPy's mark may be a pickle to NumPy
        ("a.npz", b"PK\x03\x04nonsense", "the file cannot be read"),
        (
            "a.csv",
            b"1,2",
            "the extension '.csv' is not supported. Arrays are read from .npy and .npz",
        ),
    ],
)
def test_what_is_no_array_is_refused(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BarsError) as refused:
        load_array(tmp_path / name, "price_array")
    assert message in str(refused.value)


def test_a_file_cut_off_is_refused(tmp_path: Path) -> None:
    for name, write in (("a.npy", np.save), ("a.npz", np.savez)):
        write(tmp_path / name, np.zeros((500, 3)))
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:1000])
        with pytest.raises(BarsError, match="the file cannot be read"):
            load_array(tmp_path / name, "price_array")


def test_a_missing_file_and_a_missing_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BarsError, match="there is no such file"):
        load_array(tmp_path / "nowhere.npy", "price_array")
    np.savez(tmp_path / "a.npz", first=PRICES, second=PRICES)
    with pytest.raises(
        BarsError, match=r"no array 'price_array' among first, second\. Call it price_array"
    ):
        load_array(tmp_path / "a.npz", "price_array")


@pytest.mark.parametrize("array", [np.array(["1", "2"]), np.array([1j]), np.array([True])])
def test_what_is_no_number_is_refused(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(BarsError, match="not numbers"):
        load_numbers(tmp_path / "a.npy", "price_array")


def test_times_are_one_per_row(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array(["2024-01-01", "2024-01-02"], "datetime64[D]"))
    assert load_times(tmp_path / "a.npy", "time_array").dtype == "datetime64[us]"
    np.save(tmp_path / "a.npy", PRICES)
    with pytest.raises(BarsError, match=r"float64 of shape \(3, 2\), not one time per bar"):
        load_times(tmp_path / "a.npy", "time_array")


def header(shape: object, descr: object = "<f8", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return (
        b"\x93NUMPY"
        + version
        + struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
        + text
    )


@pytest.mark.parametrize(
    "shape", [(10**12,), (2**62, 4), (-3, -2), (0, 2), (7,), (10**30, 2), (3, 2.0), "x"]
)
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_nothing_is_allocated_for_what_a_header_promises(
    tmp_path: Path, shape: object, name: str
) -> None:
    content = header(shape) + PRICES.tobytes()
    if name == "a.npy":
        (tmp_path / name).write_bytes(content)
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("price_array.npy", content)
    with pytest.raises(BarsError, match=rf"{name}: the file cannot be read: "):
        load_array(tmp_path / name, "price_array")


def test_an_archive_that_unpacks_to_far_more_is_refused_with_the_limit(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("price_array.npy", header((6 << 20,)) + bytes(48 << 20))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    with pytest.raises(
        BarsError, match=r"a\.npz: its [\d,]+ bytes unpack to 50,[\d,]+, and 3[\d,]+ are allowed"
    ):
        load_array(tmp_path / "a.npz", "price_array")


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("price_array.npy", header((6 << 20,)) + bytes(48 << 20))
    content, size = (
        (tmp_path / "a.npz").read_bytes(),
        struct.pack("<I", len(header((6 << 20,))) + (48 << 20)),
    )
    assert content.count(size) == 2
    (tmp_path / "a.npz").write_bytes(content.replace(size, struct.pack("<I", 1000)))
    with pytest.raises(BarsError, match=r"a\.npz: the file cannot be read: "):
        load_array(tmp_path / "a.npz", "price_array")


def test_small_numbers_do_not_become_a_gigabyte(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", price_array=np.ones(20 << 20, np.uint8))
    with pytest.raises(BarsError, match=r"20,971,520 values in [\d,]+ bytes would fill the memory"):
        load_array(tmp_path / "a.npz", "price_array")


def test_versions_that_numpy_does_not_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(header((3, 2), version=b"\x02\x00") + PRICES.tobytes())
    assert load_numbers(tmp_path / "a.npy", "price_array").tolist() == PRICES.tolist()
    (tmp_path / "a.npy").write_bytes(header((3, 2), version=b"\x09\x00") + PRICES.tobytes())
    with pytest.raises(BarsError, match=r"its version \(9, 0\) is unknown"):
        load_numbers(tmp_path / "a.npy", "price_array")


def test_numbers_beyond_double_become_infinite_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([np.finfo(np.longdouble).max]))
    assert load_numbers(tmp_path / "a.npy", "price_array").dtype == np.float64


def test_an_array_may_lie_in_columns_and_in_another_order_of_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(PRICES.astype(">f4")))
    assert load_numbers(tmp_path / "a.npy", "price_array").tolist() == PRICES.tolist()
    np.save(tmp_path / "a.npy", np.array([1, 2], ">i8"))
    assert load_times(tmp_path / "a.npy", "time_array").dtype == np.int64


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            np.array([2**62], "datetime64[s]"),
            r"row 0: the time 4611686018427387904 in datetime64\[s\] is outside the years",
        ),
        (
            np.array([0, -(2**62)], "datetime64[D]"),
            r"row 1: the time -4611686018427387904 in datetime64\[D\] is outside",
        ),
        (np.array([2**62], "datetime64[Y]"), r"it holds datetime64\[Y\], whose unit no bar has"),
        (np.array([1], "datetime64[as]"), r"it holds datetime64\[as\], whose unit no bar has"),
    ],
)
def test_times_that_microseconds_cannot_hold_are_refused(
    tmp_path: Path, times: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "a.npy", times)
    with pytest.raises(BarsError, match=message):
        load_times(tmp_path / "a.npy", "time_array")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(BarsError, match=r"a\.npy: is a pipe, a socket or a device"):
        load_array(tmp_path / "a.npy", "price_array")
