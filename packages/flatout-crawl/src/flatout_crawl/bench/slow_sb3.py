"""Stable-Baselines3's PPO on SubprocVecEnv in `flatout bench slow`."""

import json
import sys
import time
from contextlib import closing
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from flatout_crawl.bench.slow_peers import makers
from flatout_crawl.bench.slow_workload import (
    EPOCHS,
    MEMORY,
    ROWS,
    Count,
    Spec,
    answer_lines,
    memory_of,
    requests_seen,
)


class Resets(BaseCallback):  # type: ignore[misc]
    """Counts the episodes that ended, each of which SubprocVecEnv follows with a reset in the same
    step.
    """

    count = 0

    def _on_step(self) -> bool:
        self.count += int(np.sum(self.locals["dones"]))
        return True


class SubprocPpo:
    """Stable-Baselines3 as its users have it: all environments step, then it learns, then they step
    again.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.vector = SubprocVecEnv(makers(spec))
        self.vector.env_method("aim", 0)  # answered when all processes are there
        self.model = PPO(
            "MlpPolicy",
            self.vector,
            n_steps=ROWS,
            batch_size=spec.minibatch,
            n_epochs=EPOCHS,
            seed=0,
            device="cpu",
        )

    def measure(self, kind: str) -> dict[str, Any]:
        """Whole rollouts with the learning that follows each, until the time is up."""
        if kind == MEMORY:
            sizes = [memory_of(process.pid) for process in self.vector.processes]
            return {name: float(np.mean([size[name] for size in sizes])) for name in sizes[0]}
        origin, resets, rollout = self.spec.origins[kind], Resets(), ROWS * self.spec.envs
        self.vector.env_method("aim", self.spec.kinds.index(kind))
        self.model.learn(rollout)  # begins with a reset
        updates, first, begun = 0, requests_seen(origin), time.perf_counter()
        while time.perf_counter() - begun < self.spec.seconds:
            self.model.learn(rollout, resets, reset_num_timesteps=False)
            updates += 1
        seconds = time.perf_counter() - begun
        return Count(
            steps=updates * rollout,
            resets=resets.count,
            seconds=seconds,
            first=first,
            last=requests_seen(origin),
            updates=updates,
        )._asdict()

    def close(self) -> None:
        """End the processes of all environments."""
        self.vector.close()


def main() -> None:
    """Measure what is asked for."""
    with closing(SubprocPpo(Spec(**json.loads(sys.argv[1])))) as contestant:
        answer_lines(contestant.measure)


if __name__ == "__main__":
    main()
