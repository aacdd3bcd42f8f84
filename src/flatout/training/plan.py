"""The forecast of a training: memory from its arrays, time from two updates that are really
made.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flatout.learners.engines import engine_of
from flatout.learners.forecast import Forecast, find_largest_n_envs, forecast, free_bytes
from flatout.learners.jobs import Chunk
from flatout.training.training import Training, make_jobs, next_until
from flatout.workers.driving import drive_workers, start_workers
from flatout.workers.slots import Slot

TRIAL_UPDATES = 2
# the speed of more is no other, and a forecast shall not take longer than what it is for
TRIAL_LANES = 256
MIB = 2**20


@dataclass(frozen=True)
class Plan:
    """What a training will take."""

    training: Training
    workers: int
    memory: Forecast  # of the largest worker
    steps_per_s: float | None = None  # of all workers together
    compile_seconds: float | None = None
    free: int | None = None  # bytes of a GPU; None on a CPU
    measured_bytes: int | None = None  # peak of one worker in the trial

    @property
    def total_bytes(self) -> int:
        """Memory of all workers together."""
        return self.memory.total * self.workers

    @property
    def largest_n_envs(self) -> int:
        """The most accounts per agent that fit into memory."""
        training = self.training
        return find_largest_n_envs(
            training.program, len(training.lanes), self.workers, data_bytes(training), self.free
        )

    @property
    def seconds(self) -> float | None:
        """From start to end, compiling included; None before a trial was made."""
        if self.steps_per_s is None or self.compile_seconds is None:
            return None
        return self.compile_seconds + self.training.steps / self.steps_per_s

    @property
    def fits(self) -> bool:
        """Whether the memory is there."""
        return (
            self.total_bytes <= free_bytes()
            if self.free is None
            else self.memory.total <= self.free
        )

    def with_trial(self, slots: Sequence[Slot]) -> "Plan":
        """This plan with the time that a short trial on all workers forecasts; nothing is tried
        that does not fit.
        """
        if not self.fits:
            return self
        lanes = self.training.lanes[:TRIAL_LANES]
        trial = replace(self.training, lanes=lanes, updates=TRIAL_UPDATES, chunk=TRIAL_UPDATES)
        with tempfile.TemporaryDirectory() as folder:
            jobs = make_jobs(trial, Path(folder), len(slots))
            last: dict[int, Chunk] = {}

            def keep_last(worker: int, chunk: Chunk) -> None:
                last[worker] = chunk

            with start_workers(slots, [[job] for job in jobs], Path(folder)) as workers:
                drive_workers(workers, lambda k, chunk: next_until(trial, chunk), keep_last)
            compiled = max((w.ready.compile_seconds for w in workers if w.ready), default=0.0)
        return replace(
            self,
            steps_per_s=sum(self.speed(chunk) for chunk in last.values()),
            compile_seconds=compiled,
            measured_bytes=max(int(chunk.peak_bytes) for chunk in last.values()),
        )

    def speed(self, trial: Chunk) -> float:
        """Steps per second of a worker whose trial took this long: evaluations come once per chunk,
        not per trial.
        """
        updates, evaluations = (
            self.training.updates,
            -(-self.training.updates // self.training.chunk),
        )
        share = updates / TRIAL_UPDATES
        seconds = share * float(trial.busy) + evaluations * float(trial.seconds - trial.busy)
        return share * float(trial.steps) / seconds

    def facts(self) -> dict[str, Any]:
        """The forecast as plain values, as `--plan --json` prints it."""
        program = self.training.program
        return {
            "agents": len(self.training.lanes),
            "workers": self.workers,
            "n_envs": program.n_envs,
            "n_steps": program.n_steps,
            "updates": self.training.updates,
            "steps": self.training.steps,
            "trajectories": "index only" if program.index_only else "whole",
            "memory_bytes": {
                **self.memory._asdict(),
                "worker": self.memory.total,
                "all": self.total_bytes,
            },
            "free_bytes": free_bytes() if self.free is None else self.free,
            "largest_n_envs": self.largest_n_envs,
            "trial_peak_bytes": self.measured_bytes,
            "compile_seconds": self.compile_seconds,
            "steps_per_s": self.steps_per_s,
            "seconds": self.seconds,
        }

    def lines(self) -> list[str]:
        """The forecast in sentences, as `--plan` prints it."""
        f = self.facts()
        memory = ", ".join(
            f"{name} {size / MIB:,.0f}" for name, size in self.memory._asdict().items()
        )
        lines = [
            f"{f['agents']} agents on {f['workers']} workers, {f['n_envs']} accounts x "
            f"{f['n_steps']} bars per update, "
            f"{f['updates']} updates each, {f['steps']:,} steps in all; trajectories "
            f"{f['trajectories']}",
            f"memory: {self.memory.total / MIB:,.0f} MiB per worker ({memory}), "
            f"{self.total_bytes / MIB:,.0f} MiB in "
            f"all; free {f['free_bytes'] / MIB:,.0f} MiB, enough for {f['largest_n_envs']:,} "
            f"accounts per agent",
        ]
        if not self.fits:
            lines.append(
                "this does not fit: lower train.n_envs, train.n_steps or the number of agents"
            )
        elif self.seconds is not None:
            lines.append(
                f"time: about {self.seconds:,.0f} s ({self.steps_per_s:,.0f} steps/s measured in "
                f"a trial, evaluation included, after {self.compile_seconds:.0f} s of compiling)"
            )
        return lines


def make_plan(training: Training, slots: Sequence[Slot], free: int | None = None) -> Plan:
    """The forecast without a trial; `free` bytes are a GPU's."""
    one_by_one = (
        all(slot.name.startswith("cpu") for slot in slots)
        or engine_of(training.program.environment) != "jax"
    )
    per_worker = -(-len(training.lanes) // len(slots))
    memory = forecast(training.program, per_worker, data_bytes(training), one_by_one)
    return Plan(training, len(slots), memory, free=free)


def data_bytes(training: Training) -> int:
    """Of what all lanes share."""
    return 0 if training.data is None else sum(array.nbytes for array in training.data)
