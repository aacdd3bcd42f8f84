"""How fast environments that wait are stepped while an agent learns: flatout beside
Stable-Baselines3's PPO on SubprocVecEnv and Gymnasium's AsyncVectorEnv, in one run, on one machine,
over real sockets.

What no scheduler can beat: each of N environments has one request under way at any time, so there
are at most N / (mean latency) requests per second. A step is one request, and so is a reset;
`share_of_bound` is therefore (steps + resets) x (mean latency) / N per second: the share of the
environments' time in which they waited for the site and nothing else. The mean is that of the waits
that the server drew in the measured time, which its seed and its counter tell. The server has its
process on the same machine, and everybody shares its cores. Contestants are measured one after the
other; the best round counts.
"""

import contextlib
import importlib.util
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from flatout.children import own_program
from flatout.errors import RunError, SettingsError
from flatout_crawl.bench.slow_workload import (
    BUDGET,
    EPOCHS,
    MEMORY,
    MINIBATCH,
    READY,
    ROWS,
    SITE,
    Count,
    Spec,
)
from flatout_crawl.sites.latency import NO_LATENCY, Latency, constant, exponential, stragglers
from flatout_crawl.sites.site import generate
from flatout_crawl.sites.site_server import Serving, serve_sites

STRAGGLERS, SLOWER = 0.01, 40  # share of requests, and how many times the usual latency they take
MOST_ENVS = 256  # connections that the fetcher opens at a time
PATIENCE_S = 30.0  # for a contestant to end by itself
PROGRAMS = {
    "flatout": "flatout_crawl.bench.slow_contestant",
    "subproc": "flatout_crawl.bench.slow_sb3",
    "gymnasium": "flatout_crawl.bench.slow_peers",
}
KINDS: dict[str, Callable[[float], Latency]] = {
    "constant": constant,
    "exponential": exponential,
    "stragglers": lambda seconds: stragglers(seconds, STRAGGLERS, SLOWER * seconds),
}
OnStatus = Callable[[str], None]
Counts = dict[str, dict[str, list[Count]]]  # by contestant and kind, one per round


class ContestantProcess:
    """A process that measures itself when asked."""

    def __init__(self, process: "subprocess.Popen[str]", name: str) -> None:
        self.process, self.name = process, name

    def ask(self, kind: str) -> dict[str, Any]:
        """What it measured with this kind of latency."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(kind) + "\n")
            self.process.stdin.flush()
        return dict(self.read_line(kind))

    def read_line(self, about: str) -> Any:
        """Wait for the process's next line and parse it; RunError if it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RunError(
                f"{self.name} ended with {self.process.wait()} in {about!r}: see its messages above"
            )
        return json.loads(line)


@contextlib.contextmanager
def contending(spec: Spec) -> Iterator[ContestantProcess]:
    """A contestant's process, until the block is left."""
    command = own_program(PROGRAMS[spec.contestant], json.dumps(asdict(spec)))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        try:
            contestant = ContestantProcess(process, spec.contestant)
            contestant.read_line(READY)  # nobody shall start while another is measured
            yield contestant
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure_slow(
    envs: int = 32,
    latency: float = 0.05,
    seconds: float = 15.0,
    rounds: int = 2,
    kinds: Sequence[str] = tuple(KINDS),
    on_status: OnStatus = lambda text: None,
) -> dict[str, Any]:
    """Steps per second of every contestant with every kind of latency, and what an environment
    takes of memory.
    """
    check(envs, kinds)
    latencies = {kind: KINDS[kind](latency) for kind in kinds}
    counts: Counts = {}
    facts = machine()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serving = {**latencies, MEMORY: NO_LATENCY}
        origins = {
            kind: stack.enter_context(serve_sites(SITE, drawn)).origin
            for kind, drawn in serving.items()
        }
        specs = {
            name: Spec(contestant=name, envs=envs, seconds=seconds, origins=origins, folder=folder)
            for name in entrants()
        }
        on_status("memory of flatout")
        with contending(
            specs["flatout"]
        ) as fresh:  # one that has measured nothing yet: memory is seldom given back
            memory = {"flatout": fresh.ask(MEMORY)}
        contestants = []
        for name, spec in specs.items():
            on_status(f"starting {name}")
            contestants.append(stack.enter_context(contending(spec)))
        for k in range(rounds):
            for kind in kinds:
                for one in contestants:
                    on_status(f"round {k + 1} of {rounds}, {kind}: {one.name}")
                    counts.setdefault(one.name, {}).setdefault(kind, []).append(
                        Count(**one.ask(kind))
                    )
        for one in contestants:
            if one.name == "subproc":
                on_status("memory of a process")
                memory["subproc"] = one.ask(MEMORY)
    return summary(counts, latencies, memory, envs) | {
        "seconds": seconds,
        "rounds": rounds,
        "machine": facts,
    }


def check(envs: int, kinds: Sequence[str]) -> None:
    """Refuse what cannot be measured."""
    if not 2 <= envs <= MOST_ENVS:
        raise SettingsError(f"envs is {envs}: give 2 to {MOST_ENVS}")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise SettingsError(
            f"kinds of latency are {', '.join(KINDS)}, not {', '.join(unknown) or 'none at all'}"
        )


def entrants() -> list[str]:
    """Those that are installed."""
    there = importlib.util.find_spec("stable_baselines3") is not None
    return [name for name in PROGRAMS if there or name != "subproc"]


def mean_drawn(latency: Latency, first: int, last: int) -> float:
    """The mean of the waits that the server drew for these of its requests."""
    rng = Serving(generate(SITE), latency).rng
    drawn = [latency.draw(rng).seconds for _ in range(last)][first:]
    return sum(drawn) / len(drawn)


def speed(count: Count) -> float:
    """Steps per second of a measurement."""
    return count.steps / count.seconds


def summary(
    counts: Counts,
    latencies: dict[str, Latency],
    memory: dict[str, dict[str, float]],
    envs: int,
) -> dict[str, Any]:
    """The figures and the ratios that people ask for."""
    best = {
        name: {kind: max(rows, key=speed) for kind, rows in of.items()}
        for name, of in counts.items()
    }
    ours = best["flatout"]
    means = {
        kind: mean_drawn(latencies[kind], count.first, count.last) for kind, count in ours.items()
    }
    bounds = {kind: envs / mean for kind, mean in means.items()}
    share = {
        kind: round(count.requests / count.seconds / bounds[kind], 4)
        for kind, count in ours.items()
    }
    return {
        "share_of_bound": share,
        **{
            key(name): {kind: round(speed(c), 1) for kind, c in of.items()}
            for name, of in best.items()
        },
        **ratios(best),
        "requests_per_s": {
            kind: round(count.requests / count.seconds, 1) for kind, count in ours.items()
        },
        "bound_requests_per_s": {kind: round(bound, 1) for kind, bound in bounds.items()},
        "learner_idle": {kind: round(count.learner_idle, 4) for kind, count in ours.items()},
        "lag_p95": {kind: count.lag_p95 for kind, count in ours.items()},
        "cpu_ms_per_request": {
            kind: round(1e3 * count.cpu_s / count.requests, 3) for kind, count in ours.items()
        },
        **memory_figures(memory),
        "updates": tabulate_speeds(best, lambda count: count.updates),
        "requests_counted": tabulate_speeds(best, lambda count: count.requests),
        "requests_served": tabulate_speeds(best, lambda count: count.last - count.first),
        "measured_s": tabulate_speeds(best, lambda count: round(count.seconds, 2)),
        "envs": envs,
        "latency": {kind: latency.spelled for kind, latency in latencies.items()},
        "mean_latency_s": {kind: round(mean, 5) for kind, mean in means.items()},
        "workload": f"a crawl of {SITE.pages} pages over HTTP on loopback, {BUDGET} requests per "
        f"episode; PPO on {ROWS} steps x {envs} environments, {EPOCHS} epochs, "
        f"minibatch {MINIBATCH}; gymnasium: random actions, no learner",
    }


def key(name: str) -> str:
    """Of a contestant's speed."""
    return "steps_per_s" if name == "flatout" else f"{name}_steps_per_s"


def tabulate_speeds(
    best: dict[str, dict[str, Count]], figure: Callable[[Count], float]
) -> dict[str, dict[str, float]]:
    """A figure by contestant and kind."""
    return {name: {kind: figure(count) for kind, count in of.items()} for name, of in best.items()}


def ratios(best: dict[str, dict[str, Count]]) -> dict[str, float]:
    """How many times the speed of SubprocVecEnv with PPO."""
    theirs = best.get("subproc", {})
    return {
        f"ratio_{kind}": round(speed(best["flatout"][kind]) / speed(c), 2)
        for kind, c in theirs.items()
    }


def memory_figures(memory: dict[str, dict[str, float]]) -> dict[str, float]:
    """An environment's memory beside that of a process; the process is charged its share of what it
    shares.
    """
    per_env = memory["flatout"]["rss_per_env_mb"]
    found = {"rss_per_env_mb": round(per_env, 3), "rss_mb": round(memory["flatout"]["rss_mb"], 1)}
    if "subproc" not in memory:
        return found
    process = memory["subproc"]
    return {
        **found,
        "process_rss_mb": round(process["rss_mb"], 1),
        "process_pss_mb": round(process["pss_mb"], 1),
        "env_share_of_process": round(per_env / process["pss_mb"], 4),
    }


def machine() -> dict[str, Any]:
    """Where this is measured, and how busy it was before."""
    packages = [
        name
        for name in ("aiohttp", "gymnasium", "stable_baselines3", "torch")
        if importlib.util.find_spec(name)
    ]
    return {
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }
