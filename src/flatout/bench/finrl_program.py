"""FinRL's policy gradient with its EIIE network, as a program of the interpreter that has FinRL:
started by `finrl_peer.py`, with a folder of prices, and asked over pipes.

It must run without flatout, so it imports nothing of it. FinRL's top module is passed by: it loads
libraries of brokers and data vendors that training does not need. The environment is ours, with
what FinRL's own has (windows of features, price relatives, the share that costs leave), because
that one searches a data frame in every bar.

Each line on the standard input is an order as JSON: {"teach": bars} is answered by the seconds
that took, {"decide": accounts}, followed by their bars and last weights, by the new weights. FinRL
trains whole episodes, each of which is all bars that teach; between two orders it waits in a step
of the environment.
"""

import importlib
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

ROUNDS = 8  # of the equation for the share that costs leave: each gains two digits or more


def load_finrl() -> Any:
    """FinRL's algorithms for portfolios, without its top module."""
    spec = importlib.util.find_spec("finrl")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("finrl is not installed in this interpreter")
    package = types.ModuleType("finrl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["finrl"] = package
    return importlib.import_module("finrl.agents.portfolio_optimization.algorithms")


def rest_after_costs(before: Any, after: Any, cost: float) -> float:
    """The share of the money that is left when weights (cash first) change and each trade costs
    this share of what it moves.
    """
    rest = 1.0
    for _ in range(ROUNDS):
        rest = 1 - cost * float(np.abs(before[1:] - rest * after[1:]).sum())
    return rest


class PriceWindows:
    """The bars that teach as FinRL's `PolicyGradient` wants its environment."""

    def __init__(self, folder: Path, job: Any, wait: Callable[[], int]) -> None:
        self.wait, self.left = wait, 0  # bars until the next order must come
        self.features = np.load(folder / "features.npy")  # (feature, asset, bar)
        self.relatives = np.load(folder / "relatives.npy")  # (bar, 1 + asset), of the bar before
        self.window, self.cost = job["window"], job["cost"]
        self.first, self.last = job["first"] + self.window - 1, job["stop"] - 1
        if not (self.last - self.first) % job["batch"]:
            self.last -= 1  # FinRL fails where an episode leaves nothing for a last batch
        self.episode_length = self.last - self.first
        self.portfolio_size = self.features.shape[1]

    def reset(self) -> Any:
        """The window of the first bar; all is cash."""
        self.t, self.held = self.first, np.eye(1, self.portfolio_size + 1)[0]
        return self.see(np.array([self.t]))[0]

    def see(self, bars: Any) -> Any:
        """The (account, feature, asset, bar) windows that end at these bars."""
        columns = bars[:, None] + np.arange(1 - self.window, 1)
        return self.features[:, :, columns].transpose(2, 0, 1, 3)

    def step(self, action: Any) -> Any:
        """One bar with these weights."""
        if not self.left:
            self.left = self.wait()
        self.left -= 1
        rest = rest_after_costs(self.held, action, self.cost)
        self.t += 1
        moved = action * self.relatives[self.t]
        self.held = moved / moved.sum()
        about = {"price_variation": self.relatives[self.t], "trf_mu": rest}
        seen = self.see(np.array([self.t]))[0]
        return seen, float(np.log(rest * moved.sum())), self.t >= self.last, about


def read_array(source: IO[bytes], dtype: str, *shape: int) -> Any:
    """The next numbers on the pipe."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(source.read(size), dtype).reshape(shape)


class Desk:
    """Where orders are answered, while the agent learns or waits."""

    def __init__(self, folder: Path, orders: IO[bytes], answers: IO[bytes]) -> None:
        self.orders, self.answers = orders, answers
        job = json.loads((folder / "job.json").read_text())
        algorithms = load_finrl()
        algorithms.torch.manual_seed(job["seed"])
        self.no_grad = algorithms.torch.no_grad
        self.prices = PriceWindows(folder, job, self.wait)
        self.agent = algorithms.PolicyGradient(
            self.prices,
            policy_kwargs={
                "initial_features": len(self.prices.features),
                "time_window": self.prices.window,
            },
            batch_size=job["batch"],
        )
        self.began: float | None = None

    def wait(self) -> int:
        """Answer until there is an order to learn, and for how many bars."""
        if self.began is not None:
            seconds = time.perf_counter() - self.began
            self.answers.write(json.dumps({"seconds": seconds}).encode() + b"\n")
            self.answers.flush()
        for line in iter(self.orders.readline, b""):
            order = json.loads(line)
            if "teach" in order:
                self.began = time.perf_counter()
                return int(order["teach"])
            self.decide(order["decide"])
        raise SystemExit  # nobody asks any more

    def decide(self, accounts: int) -> None:
        """The weights of so many accounts, without noise."""
        bars = read_array(self.orders, "int64", accounts)
        last = read_array(self.orders, "float32", accounts, self.prices.portfolio_size + 1)
        with self.no_grad():
            weights = self.agent.train_policy(self.prices.see(bars), last.copy())
        self.answers.write(np.asarray(weights, np.float32).reshape(last.shape).tobytes())
        self.answers.flush()


if __name__ == "__main__":
    kept = os.dup(1)  # what libraries print must not come between the answers
    os.dup2(2, 1)
    with os.fdopen(kept, "wb") as answers:
        Desk(Path(sys.argv[1]), sys.stdin.buffer, answers).agent.train(10**9)
