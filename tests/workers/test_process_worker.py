"""Workers: where they run, and that a training survives the death of any process with every bit in
place.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.errors import RunError
from flatout.learners.jobs import WorkerFailure
from flatout.training.metrics_file import Row
from flatout.training.training import make_jobs
from flatout.workers import process_worker, slots
from flatout.workers.process_worker import ProcessWorker, explain_exit
from flatout.workers.slots import ONE_THREAD, Slot, cpu_slots, share_lanes
from tiny_training import (
    PATHS,
    DyingEnvironment,
    FailingEnvironment,
    checkpoints,
    run_tiny,
    tiny_slots,
    tiny_training,
)
from worker_processes import children, kill_workers, lives

PATIENCE = 600.0  # seconds that anything here may take on a busy machine


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled programs, for all tests of the session."""
    folder = tmp_path_factory.getbasetemp() / "xla"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A training that nobody touched."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_tiny(folder, cache)
    return folder


def rows_of(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The journal without speeds, by lane and updates; no row twice."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = {(row["lane"], row["updates"]): row | {"steps_per_s": 0} for row in rows}
    assert len(found) == len(rows)
    return found


def check_same(folder: Path, undisturbed: Path) -> None:
    """Nothing tells that a training was disturbed."""
    assert checkpoints(folder) == checkpoints(undisturbed)
    assert rows_of(folder) == rows_of(undisturbed)


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What comes to hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true")


@pytest.mark.parametrize("lanes", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shares_are_even_and_hold_every_lane_once(lanes: int, workers: int) -> None:
    found = share_lanes(lanes, workers)
    assert len(found) == workers
    assert [lane for share in found for lane in share] == list(range(lanes))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "available_cores", lambda: [2, 3, 5, 7])
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.parametrize(
    ("lanes", "asked", "cores"),
    [
        (1, None, [(2, 3, 5, 7)]),  # one agent has them all
        (1, 4, [(2, 3, 5, 7)]),
        (9, 1, [(2, 3, 5, 7)]),
        (2, None, [(2,), (3,)]),
        (9, None, [(2,), (3,), (5,), (7,)]),
        (9, 3, [(2,), (3,), (5,)]),
        (3, 8, [(2,), (3,), (5,)]),  # more workers than lanes
        (9, 6, [(2,), (3,), (5,), (7,), (2,), (3,)]),  # more workers than cores
    ],
)
@pytest.mark.usefixtures("four_cores")
def test_cores_are_shared_out(lanes: int, asked: int | None, cores: list[tuple[int, ...]]) -> None:
    found = cpu_slots(lanes, asked)
    assert [slot.cores for slot in found] == cores
    for slot in found:
        assert slot.environment["JAX_PLATFORMS"] == "cpu"
        assert (ONE_THREAD in slot.environment.get("XLA_FLAGS", "")) is (len(slot.cores) == 1)


@pytest.mark.usefixtures("four_cores")
def test_a_users_own_flags_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    assert cpu_slots(2)[0].environment["XLA_FLAGS"] == f"--xla_dump_to=/tmp/x {ONE_THREAD}"


def test_the_cause_of_a_death_is_told() -> None:
    assert "want of memory" in explain_exit(-signal.SIGKILL)
    assert explain_exit(-signal.SIGSEGV) == "signal 11"
    assert explain_exit(7) == "exit code 7"


@pytest.mark.parametrize(
    "failure",
    [
        WorkerFailure("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes"),
        WorkerFailure("MemoryError", ""),
    ],
)
def test_want_of_memory_is_explained(tmp_path: Path, failure: WorkerFailure) -> None:
    worker = SimpleNamespace(slot=Slot("gpu 3"), jobs=make_jobs(tiny_training(), tmp_path, 1))
    message = ProcessWorker.explain(worker, failure)  # type: ignore[arg-type]
    assert message.startswith("out of memory on gpu 3: lower train.n_envs (4), train.n_steps (8)")
    assert "the number of lanes (2)" in message


@pytest.mark.long
def test_a_killed_worker_is_replaced_and_nothing_is_lost(
    tmp_path: Path, cache: Path, undisturbed: Path
) -> None:
    """Killed in the middle of a chunk; after it where this process is slow, but never when all is
    over.
    """
    killed: list[int] = []
    killer = threading.Timer(0.05, lambda: killed.extend(kill_workers()))

    def on_rows(rows: list[Row]) -> None:
        if rows and rows[0].updates == 400:
            killer.start()
        elif rows and rows[0].updates > 400:
            killer.join(PATIENCE)

    results = run_tiny(tmp_path, cache, on_rows=on_rows)
    assert len(killed) == 1
    assert [result.updates for result in results] == [1200, 1200]
    check_same(tmp_path, undisturbed)
    assert not children(os.getpid())
    assert not (tmp_path / "scratch").exists()


@pytest.mark.long
def test_workers_may_be_killed_at_any_moment(
    tmp_path: Path, cache: Path, undisturbed: Path
) -> None:
    """Also while they start, compile, write; as often in a row as is forgiven. The first is killed
    while it starts or trains: until then it has sent nothing.
    """
    rng, killed, over, first = random.Random(0), [], threading.Event(), threading.Event()

    def kill() -> None:
        for kills in range(process_worker.MOST_RESTARTS):
            wait_for(lambda: over.is_set() or set(children(os.getpid())) - set(killed))
            if over.wait(rng.uniform(0, 4 if kills else 0.2)):
                return
            killed.extend(kill_workers())
            first.set()

    def on_rows(rows: list[Row]) -> None:
        assert first.wait(PATIENCE)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        run_tiny(tmp_path, cache, on_rows=on_rows)
    finally:
        over.set()
        thread.join()
    assert killed
    check_same(tmp_path, undisturbed)


@pytest.mark.long
def test_a_worker_that_always_dies_ends_the_run(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_worker, "MOST_RESTARTS", 1)
    with pytest.raises(RunError) as caught:
        run_tiny(tmp_path, cache, environment=DyingEnvironment())
    message = str(caught.value)
    assert "died 2 times in a row without finishing a chunk (last: exit code 7)" in message
    assert message.endswith(f"its messages are in {tmp_path / 'logs' / 'worker-0.log'}")
    assert (tmp_path / "logs" / "worker-0.log").exists()
    assert not children(os.getpid())


def test_an_exception_in_a_worker_is_told(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(
        RunError, match=r"the worker on cpu 0 failed: ValueError: the well is poisoned"
    ):
        run_tiny(tmp_path, cache, environment=FailingEnvironment())
    assert not children(os.getpid())


@pytest.mark.long
def test_a_checkpoint_of_another_training_is_refused(
    tmp_path: Path, cache: Path, undisturbed: Path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    path = tmp_path / "checkpoints" / "worker-0.safetensors"
    path.write_bytes((undisturbed / "checkpoints" / path.name).read_bytes())
    with pytest.raises(RunError, match="belongs to another training"):
        run_tiny(tmp_path, cache, n_envs=6)


def test_a_message_cut_by_death_is_a_death(tmp_path: Path) -> None:
    """The connection then says OSError, not EOFError."""
    job = replace(make_jobs(tiny_training(), tmp_path, 1)[0])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "executable", "/bin/true")
        worker = ProcessWorker(tiny_slots(tmp_path)[0], [job], tmp_path / "log")

        def cut() -> Any:
            raise OSError("got end of file during message")

        real, worker.connection = worker.connection, SimpleNamespace(recv=cut, close=lambda: None)  # type: ignore[assignment]
        assert worker.answer() == ()
        assert worker.restarts == 1
        real.close()
        worker.stop()


def start_driver(folder: Path, cache: Path) -> subprocess.Popen[bytes]:
    """A process of its own that trains in this folder."""
    program = (
        f"from pathlib import Path; import tiny_training as t; "
        f"t.run_tiny(Path({str(folder)!r}), Path({str(cache)!r}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": PATHS}
    )


@pytest.mark.slow
def test_a_killed_driver_leaves_no_orphans_and_its_training_goes_on(
    tmp_path: Path, cache: Path, undisturbed: Path
) -> None:
    """Killed while the worker starts, and twice while it trains."""
    rng = random.Random(1)
    journal = tmp_path / "metrics.jsonl"
    for rows in (0, 1, 5):
        driver = start_driver(tmp_path, cache)
        try:
            pids = wait_for(lambda pid=driver.pid: children(pid))
            wait_for(
                lambda rows=rows: journal.exists() and len(journal.read_text().splitlines()) >= rows
            )
            time.sleep(rng.uniform(0, 0.3))
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        wait_for(lambda pids=pids: not any(map(lives, pids)))
    run_tiny(tmp_path, cache)
    check_same(tmp_path, undisturbed)
