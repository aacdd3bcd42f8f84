"""`flatout bench slow` in small: real processes, real sockets; whether its counts are true, not how
high they are.
"""

import contextlib
import json
import math
import os
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from flatout.cli.main import main
from flatout.errors import RunError, SettingsError
from flatout_crawl.bench import slow_speed
from flatout_crawl.bench.slow_speed import KINDS, contending, mean_drawn, measure_slow, summary
from flatout_crawl.bench.slow_workload import SITE, Count, Spec, known_tasks
from flatout_crawl.sites.latency import constant, exponential
from flatout_crawl.sites.site_server import Serving

ENVS, KIND = 3, "exponential"


class Process(NamedTuple):
    """A process; the time of its start tells it from a later one with the same number."""

    number: int
    parent: int
    started: str
    state: str


def processes() -> list[Process]:
    """All that run now."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                state, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
                found.append(Process(int(folder.name), int(parent), rest[17], state))
    return found


def descendants() -> set[tuple[int, str]]:
    """Number and start of every process below this one."""
    running, below = processes(), {os.getpid()}
    for _ in range(10):  # generations
        below |= {process.number for process in running if process.parent in below}
    return {(p.number, p.started) for p in running if p.number in below and p.number != os.getpid()}


class Small(NamedTuple):
    """A small run, its status messages, and the processes that it had."""

    result: dict[str, Any]
    messages: list[str]
    had: set[tuple[int, str]]


@pytest.fixture(scope="module")
def small() -> Small:
    """One for all tests: it takes a while."""
    messages, had, before = list[str](), set[tuple[int, str]](), descendants()

    def on_status(text: str) -> None:
        messages.append(text)
        had.update(descendants() - before)

    return Small(
        measure_slow(ENVS, 0.005, 3.0, rounds=1, kinds=(KIND,), on_status=on_status), messages, had
    )


def numbers(value: Any) -> list[float]:
    """All numbers within a result."""
    if isinstance(value, dict | list):
        return [
            x
            for part in (value.values() if isinstance(value, dict) else value)
            for x in numbers(part)
        ]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.slow
def test_every_figure_is_there_and_finite(small: Small) -> None:
    result, messages, _ = small
    for name in (
        "share_of_bound",
        "steps_per_s",
        "subproc_steps_per_s",
        "gymnasium_steps_per_s",
        "learner_idle",
    ):
        assert list(result[name]) == [KIND]
        assert result[name][KIND] >= 0
    for name in ("ratio_exponential", "process_rss_mb", "process_pss_mb"):
        assert result[name] > 0
    assert {
        "lag_p95",
        "rss_per_env_mb",
        "env_share_of_process",
        "machine",
        "requests_served",
    } <= set(result)
    assert all(map(math.isfinite, numbers(result)))
    assert "round 1 of 1, exponential: subproc" in messages
    json.dumps(result, allow_nan=False)


@pytest.mark.slow
def test_everybody_who_can_learn_did(small: Small) -> None:
    updates = small[0]["updates"]
    assert updates["flatout"][KIND] > 0
    assert updates["subproc"][KIND] > 0
    assert updates["gymnasium"][KIND] == 0


@pytest.mark.slow
def test_the_server_saw_the_requests_that_were_counted(small: Small) -> None:
    counted, served = small[0]["requests_counted"], small[0]["requests_served"]
    for name in ("subproc", "gymnasium"):  # nothing is under way when they look
        assert counted[name][KIND] == served[name][KIND] > 0
    assert counted["flatout"][KIND] > ENVS
    # under way at either end
    assert abs(counted["flatout"][KIND] - served["flatout"][KIND]) <= ENVS


@pytest.mark.slow
def test_nobody_beats_the_bound(small: Small) -> None:
    """But for the requests at the ends: they are counted where they end, and drawn where they
    begin.
    """
    result = small[0]
    counted = result["requests_counted"]["flatout"][KIND]
    assert 0 < result["share_of_bound"][KIND] < 1 + 2 * ENVS / counted + 0.2


@pytest.mark.slow
def test_no_process_is_left(small: Small) -> None:
    deadline = time.monotonic() + 600
    while left := small.had & {(p.number, p.started) for p in processes() if p.state != "Z"}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    # servers, contestants and the environments' own were seen
    assert len(small.had) >= 2 + 3 + 2 * ENVS


def test_the_mean_of_the_waits_is_that_of_those_drawn_for_these_requests() -> None:
    class Nothing:
        def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
            return 404, {}, b""

    latency = exponential(0.05)
    rng = Serving(Nothing(), latency).rng
    assert isinstance(rng, Random)
    drawn = [latency.draw(rng).seconds for _ in range(10)]
    assert mean_drawn(latency, 4, 10) == pytest.approx(sum(drawn[4:]) / 6)
    assert mean_drawn(constant(0.05), 100, 200) == pytest.approx(0.05)


def test_share_ratios_and_bound_follow_from_the_counts() -> None:
    counts = {
        "flatout": {
            "constant": [
                Count(900, 50, 5.0, 0, 950, 3, 0.25, 2.0, 1.9),
                Count(1000, 0, 5.0, 950, 1950),
            ]
        },
        "subproc": {"constant": [Count(500, 5, 5.0, 0, 505, 2)]},
    }
    memory = {
        "flatout": {"rss_per_env_mb": 0.5, "rss_mb": 100.0},
        "subproc": {"rss_mb": 200.0, "pss_mb": 125.0},
    }
    result = summary(counts, {"constant": constant(0.1)}, memory, 25)
    assert result["bound_requests_per_s"] == {"constant": 250.0}
    assert result["share_of_bound"] == {"constant": 0.8}  # of the best round
    assert result["steps_per_s"] == {"constant": 200.0}
    assert result["ratio_constant"] == 2.0
    assert result["env_share_of_process"] == 0.004


def test_one_request_per_step_can_be_relied_on() -> None:
    """No page of the site is an error, a redirect, a copy or forbidden."""

    class Never:
        async def fetch(self, url: str) -> Any:
            raise AssertionError(url)

        async def close(self) -> None:
            pass

    [task] = known_tasks(["http://127.0.0.1:8000"], Never())
    site = slow_speed.generate(SITE).at("http://127.0.0.1:8000")
    assert not (site.redirects or site.errors or site.forbidden or site.copies)
    linked = {url for page in site.graph.values() for url in page if task.notes.in_scope(url)}
    assert linked <= set(site.graph)


@pytest.mark.parametrize(
    ("envs", "kinds"), [(1, ("constant",)), (1000, ("constant",)), (4, ("wobbly",)), (4, ())]
)
def test_what_cannot_be_measured_is_refused(envs: int, kinds: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError):
        measure_slow(envs, kinds=kinds)


def test_a_contestant_that_ends_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = Spec("gymnasium", 2, 1.0, {"constant": "http://127.0.0.1:1"}, str(tmp_path / "nowhere"))
    with pytest.raises(RunError, match="gymnasium ended with 1"), contending(spec):
        pass
    assert "nowhere" in capfd.readouterr().err


def test_the_command_measures_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(envs: int, **options: Any) -> dict[str, Any]:
        asked.append((envs, options["seconds"], options["rounds"], options["kinds"]))
        return {
            "envs": envs,
            "share_of_bound": {"constant": 0.9},
            "latency": {"constant": "c"},
            "workload": "w",
        }

    monkeypatch.setattr(slow_speed, "measure_slow", measure)
    words = [
        "bench",
        "slow",
        "--json",
        "--envs",
        "8",
        "--seconds",
        "2",
        "--only",
        "constant",
        "stragglers",
    ]
    assert json.loads(CliRunner().invoke(main, words).stdout)["envs"] == 8
    shown = CliRunner().invoke(main, ["bench", "slow"], env={"COLUMNS": "120"}).stdout
    assert "share_of_bound" in shown and "0.9" in shown
    assert asked == [(8, 2.0, 2, ("constant", "stragglers")), (32, 15.0, 2, tuple(KINDS))]
