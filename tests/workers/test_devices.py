"""Which engine and device a run gets: what was asked for or a sentence, and one line where a GPU
cannot be used.
"""

import json
import subprocess
import sys

import pytest

from flatout.errors import RunError
from flatout.learners.jobs import TORCH_DEVICE
from flatout.workers import devices
from flatout.workers.devices import (
    Gpu,
    LibraryGpus,
    ask_library,
    choose_devices,
    list_hardware,
    read_answer,
)
from flatout.workers.slots import cpu_slots

CARD = Gpu("RX 7900", "cuda", "ROCm 6.2", 24 * 2**30, 20 * 2**30)
SMALL = CARD._replace(name="RX 7600", free_bytes=6 * 2**30)
APPLE = Gpu("Apple GPU", "mps", "Metal", 16 * 2**30, 10 * 2**30)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, LibraryGpus]:
    """A machine whose libraries find what the test says."""
    found = {"jax": LibraryGpus(), "torch": LibraryGpus()}
    monkeypatch.setattr(devices, "ask_library", found.__getitem__)
    monkeypatch.setattr(
        devices,
        "list_hardware",
        lambda: ["AMD 6.8"] if found["jax"].trouble or found["torch"].gpus else [],
    )
    return found


@pytest.mark.skipif(bool(list_hardware()), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_asked_and_nothing_said() -> None:
    assert ask_library("jax") == ask_library("torch") == LibraryGpus()
    assert choose_devices("auto", None, 9) == ("jax", cpu_slots(9), None, None)
    assert choose_devices("torch", "auto", 9, 2) == ("torch", cpu_slots(9, 2), None, None)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["jax", "torch"])
@pytest.mark.skipif(bool(list_hardware()), reason="this machine has a GPU")
def test_the_probe_answers(engine: str) -> None:
    """Told in another process; on a machine without GPUs it finds none and has no trouble."""
    command = [sys.executable, "-m", "flatout.workers.device_probe", engine]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout.splitlines()[-1]) == {"gpus": [], "trouble": None}


@pytest.mark.parametrize(
    ("text", "code", "trouble"),
    [
        ("", -11, "torch died while it looked for GPUs (exit code -11)"),
        ("Segmentation fault\n", 139, "exit code 139"),
        (
            '{"gpus": [], "trouble": "RuntimeError: no kernel image"}',
            0,
            "RuntimeError: no kernel image",
        ),
    ],
)
def test_a_broken_driver_is_told(text: str, code: int, trouble: str) -> None:
    found = read_answer("torch", text, code)
    assert not found.gpus
    assert trouble in (found.trouble or "")


def test_what_a_probe_found_is_read() -> None:
    text = "WARNING: something\n" + json.dumps({"gpus": [CARD._asdict()], "trouble": None})
    assert read_answer("torch", text, 0) == LibraryGpus((CARD,))


def test_a_library_without_gpu_support_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "list_hardware", lambda: ["NVIDIA 550"])
    assert "built without support" in (
        read_answer("jax", '{"gpus": [], "trouble": null}', 0).trouble or ""
    )


def test_auto_takes_the_library_that_can_use_the_gpu(machine: dict[str, LibraryGpus]) -> None:
    machine["jax"], machine["torch"] = (
        LibraryGpus((), "the installed jax is built without support for it"),
        LibraryGpus((CARD,)),
    )
    chosen = choose_devices("auto", None, 9)
    assert (chosen.engine, chosen.free_bytes, chosen.note) == ("torch", CARD.free_bytes, None)
    assert [slot.name for slot in chosen.slots] == ["gpu 0 (RX 7900)"]
    assert chosen.slots[0].environment[TORCH_DEVICE] == "cuda"
    machine["jax"] = LibraryGpus((CARD,))
    assert choose_devices("auto", None, 9).engine == "jax"
    assert choose_devices("torch", None, 9).engine == "torch"


def test_a_gpu_that_cannot_be_used_costs_one_line(machine: dict[str, LibraryGpus]) -> None:
    machine["jax"] = LibraryGpus((), "RuntimeError: no kernel image")
    chosen = choose_devices("auto", None, 4)
    assert chosen.slots == cpu_slots(4)
    assert (
        chosen.note == "there is a GPU (AMD 6.8), but RuntimeError: no kernel image; using the CPU"
    )
    with pytest.raises(
        RunError, match="the device cuda: RuntimeError: no kernel image; leave `device` out"
    ):
        choose_devices("auto", "cuda", 4)
    assert choose_devices("auto", "cpu", 4) == ("jax", cpu_slots(4), None, None)


@pytest.mark.parametrize(
    ("lanes", "workers", "device", "places"),
    [
        (1, None, None, [0]),
        (8, None, None, [0, 1]),
        (8, 3, "cuda", [0, 1, 0]),
        (8, None, "rocm:1", [1]),
        (8, None, "cuda:0", [0]),
        (8, 2, "gpu:1", [1, 1]),
    ],
)
def test_gpus_are_shared_out(
    machine: dict[str, LibraryGpus],
    lanes: int,
    workers: int | None,
    device: str | None,
    places: list[int],
) -> None:
    machine["torch"] = LibraryGpus((CARD, SMALL))
    chosen = choose_devices("torch", device, lanes, workers)
    assert [int(slot.environment["CUDA_VISIBLE_DEVICES"]) for slot in chosen.slots] == places
    assert [slot.environment["HIP_VISIBLE_DEVICES"] for slot in chosen.slots] == [
        str(k) for k in places
    ]
    assert chosen.free_bytes == (CARD if device == "cuda:0" else SMALL).free_bytes


def test_apples_gpu_is_called_mps(machine: dict[str, LibraryGpus]) -> None:
    machine["torch"] = LibraryGpus((APPLE,))
    [slot] = choose_devices("auto", "mps", 5).slots
    assert slot.environment[TORCH_DEVICE] == "mps"
    assert "CUDA_VISIBLE_DEVICES" not in slot.environment
    with pytest.raises(RunError, match="the device cuda: "):
        choose_devices("torch", "cuda", 5)


@pytest.mark.parametrize("device", ["cuda:2", "cuda", "mps"])
def test_a_device_that_is_not_there_is_an_error(
    machine: dict[str, LibraryGpus], device: str
) -> None:
    with pytest.raises(
        RunError, match=f"the device {device}: torch sees no such device here; leave `device` out"
    ):
        choose_devices("torch", device, 1)


@pytest.mark.parametrize("device", ["gpu0", "CPU", "cuda:", "tpu"])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(
        RunError, match=f"the device {device} is unknown; there are auto, cpu, cuda"
    ):
        choose_devices("auto", device, 1)
