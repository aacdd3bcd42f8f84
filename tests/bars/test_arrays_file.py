"""Arrays on disk: which are read, and which are refused in words."""

import pickle
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
    for name, said in {
        "objects.npy": "it holds pickled objects",
        "objects.npz": "it holds pickled objects",
        "price_array": "it is a pickle",
        "pickle.pkl": "it is a pickle",
        "pickle.npy": "it holds pickled objects",
    }.items():
        with pytest.raises(BarsError, match=rf"{said}\. flatout reads no pickles.*numpy\.save\('price_array\.npy'"):
            load_array(tmp_path / name, "price_array")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.npy", b"", "the file cannot be read"),
        ("a.npy", b"nonsense", "pickled objects"),  # anything without NumPy's mark may be a pickle to NumPy
        ("a.npz", b"PK\x03\x04nonsense", "the file cannot be read"),
        ("a.csv", b"1,2", "the extension '.csv' is not supported. Arrays are read from .npy and .npz"),
    ],
)
def test_what_is_no_array_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BarsError) as refused:
        load_array(tmp_path / name, "price_array")
    assert said in str(refused.value)


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
    with pytest.raises(BarsError, match=r"no array 'price_array' among first, second\. Call it price_array"):
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
