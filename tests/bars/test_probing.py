"""Another process reads table files first: what becomes of it does not matter to this one."""

import io
import random
from pathlib import Path

import polars as pl
import pytest

from flatout.bars import probing
from flatout.bars.probing import Probe
from flatout.errors import BarsError

PATH = Path("x.feather")


def feather(value: int, rows: int = 200) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"a": [value] * rows, "b": ["text"] * rows}).write_ipc(buffer)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "tried", set())


def test_damage_is_a_refusal_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    rng, original, refused = random.Random(0), feather(1), 0
    with probing.probing() as probe:
        for _ in range(200):
            damaged = bytearray(original)
            for _ in range(3):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            try:
                probe.check(PATH, bytes(damaged))
            except BarsError as error:
                refused += 1
                assert str(error).startswith("x.feather: the file cannot be read: ")
    assert refused > 50
    assert capfd.readouterr() == ("", "")


def test_a_reader_that_ended_is_replaced_for_the_next_file() -> None:
    with probing.probing() as probe:
        probe.check(PATH, feather(1))
        assert probe.process is not None
        probe.process.kill()
        probe.process.wait()
        with pytest.raises(BarsError, match="it is damaged, or takes too much memory"):
            probe.check(PATH, feather(2))
        probe.check(PATH, feather(3))


def test_a_reader_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe()
    probe.start(PATH)
    process = probe.process
    assert process is not None
    monkeypatch.setattr(probing, "SECONDS", 0.0)
    monkeypatch.setattr(probing, "BYTES_PER_SECOND", 1e30)
    monkeypatch.setattr(Probe, "start", lambda self, path: None)
    assert probe.answer(0.0) == "it takes longer than 0 s"  # nothing was asked
    assert process.poll() is not None
    assert probe.process is None


def test_what_was_tried_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with probing.probing() as probe:
        probe.check(PATH, feather(1))
    started: list[Path] = []
    monkeypatch.setattr(Probe, "start", lambda self, path: started.append(path))
    Probe().check(PATH, feather(1))
    assert not started


def test_one_process_serves_all_that_is_read_within() -> None:
    with probing.probing() as outer, probing.probing() as inner:
        assert inner is outer
        inner.check(PATH, feather(1))
        process = outer.process
        assert process is not None
        inner.check(PATH, feather(2))
        assert outer.process is process
    assert process.poll() is not None
    with probing.probing() as later:
        assert later is not outer


@pytest.mark.long
def test_a_file_that_unpacks_to_more_than_the_memory_allowed_is_refused() -> None:
    buffer = io.BytesIO()
    pl.DataFrame({"a": ["x" * (1 << 20)] * 700}).write_ipc(buffer, compression="zstd")
    assert len(buffer.getvalue()) < 1 << 20
    with probing.probing() as probe, pytest.raises(BarsError, match="cannot be read: "):
        probe.check(PATH, buffer.getvalue())


def test_many_threads_take_no_memory_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with 256 cores, where the reader would have a thread for each."""
    monkeypatch.setenv("POLARS_MAX_THREADS", "256")
    with probing.probing() as probe:
        probe.check(PATH, feather(1))
