"""The others in `flatout bench slow`: the crawl as they want it, one process per environment; and
Gymnasium's AsyncVectorEnv, with random actions and no learner. For Stable-Baselines3 see
`slow_sb3.py`.
"""

import json
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import FlattenObservation

from flatout.slow_envs.async_env import AsyncEnv
from flatout.slow_envs.blocking import Blocking
from flatout_crawl.bench.slow_workload import (
    MEMORY,
    Books,
    Count,
    Spec,
    answer_lines,
    known_tasks,
    new_crawl,
    requests_seen,
)


class Aimed(gym.Wrapper[Any, Any, Any, Any]):
    """Begins its episodes at the task that it was given: so processes need not be started for each
    kind of latency.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.task = 0

    def aim(self, task: int) -> None:
        """Which task the next episodes are of."""
        self.task = task

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options={"task": self.task})


def crawl_in_process(origins: list[str], folder: Path) -> gym.Env[Any, Any]:
    """The crawl as these libraries want it: flat, plain, with connections of its own."""

    def make_crawl() -> AsyncEnv:
        return new_crawl(known_tasks(origins, Books(origins, folder).fetcher), alone=True)

    return FlattenObservation(Aimed(Blocking(make_crawl)))


class RandomActions:
    """Gymnasium's vector environment, without a policy: nothing but its steps."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.vector = AsyncVectorEnv(makers(spec))

    def measure(self, kind: str) -> dict[str, Any]:
        """Steps until the time is up; in the step after an episode's end an environment is reset
        instead.
        """
        envs, origin = self.spec.envs, self.spec.origins[kind]
        self.vector.call("aim", self.spec.kinds.index(kind))
        self.vector.reset(seed=0)
        ended, resets, rows = np.zeros(envs, np.bool_), 0, 0
        first, begun = requests_seen(origin), time.perf_counter()
        while time.perf_counter() - begun < self.spec.seconds:
            rows, resets = rows + envs, resets + int(ended.sum())
            _, _, terminated, truncated, _ = self.vector.step(self.vector.action_space.sample())
            ended = terminated | truncated
        seconds = time.perf_counter() - begun
        return Count(
            steps=rows - resets,
            resets=resets,
            seconds=seconds,
            first=first,
            last=requests_seen(origin),
        )._asdict()

    def close(self) -> None:
        """End the processes of all environments."""
        self.vector.close()


def makers(spec: Spec) -> list[Any]:
    """What makes each environment in its process; without the site that is for flatout's memory
    alone.
    """
    origins = [spec.origins[kind] for kind in spec.kinds if kind != MEMORY]
    return [partial(crawl_in_process, origins, Path(spec.folder)) for _ in range(spec.envs)]


def main() -> None:
    """Measure what is asked for."""
    with closing(RandomActions(Spec(**json.loads(sys.argv[1])))) as contestant:
        answer_lines(contestant.measure)


if __name__ == "__main__":
    main()
