"""FinRL's `PolicyGradient` with `EIIE` in `flatout bench learn`: it learns in a process of the
interpreter that has it (`finrl_program.py`), from the same prices and the same costs, and is judged
here, by the same accounts as all others.

It sees windows of prices, as its paper has them, and the planted signal as one feature more.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from flatout.arrays import NumpyArray
from flatout.bench.learning_quality import TAUGHT, Act, Ground, describe, trade_outside
from flatout.bench.learning_summary import next_points
from flatout.children import foreign_program
from flatout.errors import RunError
from flatout.foreign import JsonTable, parse_json
from flatout.market.market import Market
from flatout.market.orders import weights_action

EVERY = 1000  # samples: it is judged after multiples of them
END_SECONDS = 10.0
PROGRAM = Path(__file__).with_name("finrl_program.py")
WINDOW, BATCH = 50, 100  # bars that EIIE sees, and those of an update: FinRL's own defaults


class Answers(NamedTuple):
    """The process that learns, at its pipes."""

    orders: IO[bytes]
    answers: IO[bytes]
    complaints: Path  # what it wrote to its standard error
    wait: Callable[[float], int]  # until it has ended

    def ask(self, order: JsonTable) -> dict[str, float]:
        """The table that it answers an order with."""
        self.send(order)
        return self.read_line()

    def send(self, order: JsonTable, *arrays: NumpyArray) -> None:
        """An order, and the numbers that belong to it."""
        try:
            self.orders.write(json.dumps(order).encode() + b"\n")
            for array in arrays:
                self.orders.write(array.tobytes())
            self.orders.flush()
        except BrokenPipeError:
            raise self.refuse() from None

    def read_line(self) -> dict[str, float]:
        """Its next answer."""
        line = self.answers.readline()
        if not line:
            raise self.refuse()
        return parse_json(line, dict[str, float], where="FinRL's process", cure="install it again")

    def read_weights(self, accounts: int, columns: int) -> NumpyArray:
        """The weights that it decided on, cash first."""
        content = self.answers.read(4 * accounts * columns)
        if len(content) < 4 * accounts * columns:
            raise self.refuse()
        return np.frombuffer(content, np.float32).reshape(accounts, columns)

    def refuse(self) -> RunError:
        """Why it ended, by its own last words."""
        with suppress(subprocess.TimeoutExpired):  # it may still be writing them
            self.wait(END_SECONDS)
        said = self.complaints.read_text(errors="replace").strip().splitlines()
        return RunError(f"FinRL's process ended: {said[-1] if said else 'it said nothing'}")


def follow_finrl(
    ground: Ground, python: Path, samples: int, seconds: float, seed: int
) -> Iterator[JsonTable]:
    """What FinRL's agent earns out of sample, by and by; seconds are of its `train` alone."""
    with start_finrl(ground.market, python, seed) as process:
        spent, done = 0.0, 0
        for until in next_points(max(1, samples // EVERY)):
            spent += process.ask({"teach": (until - done) * EVERY})["seconds"]
            done = until
            act = act_by_weights(process, ground.market.panel.n_assets)
            figures = describe(ground, *trade_outside(ground, act))
            yield {"samples": done * EVERY, "seconds": spent, **figures._asdict()}
            if spent >= seconds:
                return


def act_by_weights(process: Answers, n_assets: int) -> Act:
    """FinRL's policy: it is told what it decided in the bar before, which at first is cash."""
    decided: list[NumpyArray] = []

    def act(seen: NumpyArray, bars: NumpyArray) -> NumpyArray:
        cash = np.zeros((len(bars), n_assets + 1), np.float32)
        cash[:, 0] = 1
        last = decided[-1] if decided else cash
        process.send({"decide": len(bars)}, bars.astype(np.int64), last)
        decided[:] = [process.read_weights(*cash.shape)]
        return np.asarray(weights_action(decided[0][:, 1:].T, np).T)

    return act


@contextmanager
def start_finrl(market: Market, python: Path, seed: int) -> Iterator[Answers]:
    """A process that has the bars, and ends with the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_prices(market, folder, seed)
        complaints = folder / "complaints.log"
        with complaints.open("wb") as errors:
            try:
                process = subprocess.Popen(
                    foreign_program(python, PROGRAM, str(folder)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except OSError as error:
                raise RunError(
                    f"--finrl {python} does not start: {error.strerror}; give the Python "
                    "interpreter of a virtualenv that has FinRL"
                ) from None
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Answers(process.stdin, process.stdout, complaints, process.wait)
        finally:
            process.kill()
            process.communicate()


def write_prices(market: Market, folder: Path, seed: int) -> None:
    """The bars as FinRL's process reads them."""
    np.save(folder / "features.npy", price_features(market))
    np.save(folder / "relatives.npy", price_relatives(market))
    costs = market.rules.costs
    job = {
        "first": int(market.rules.segments.first[0]),
        "stop": TAUGHT,
        "window": WINDOW,
        "batch": BATCH,
        "cost": float(costs.taker_fee[0] + costs.half_spread.max()),
        "seed": seed,
    }
    (folder / "job.json").write_text(json.dumps(job))


def price_relatives(market: Market) -> NumpyArray:
    """(bar, 1 + asset) closes over those of the bar before; cash, which comes first, stays."""
    moves = relative(market.panel.close)
    return np.concatenate([np.ones((len(moves), 1)), moves], axis=1).astype(np.float32)


def price_features(market: Market) -> NumpyArray:
    """(feature, asset, bar): FinRL's three prices, each over that of the bar before as its default
    has it, and the signal as it is.
    """
    panel = market.panel
    columns = [relative(panel.close), relative(panel.high), relative(panel.low)]
    return np.stack([*columns, panel.extras["signal"]]).transpose(0, 2, 1).astype(np.float32)


def relative(prices: NumpyArray) -> NumpyArray:
    """(bar, asset) prices over those of the bar before; 1 in the first bar."""
    return np.concatenate([np.ones_like(prices[:1]), prices[1:] / prices[:-1]])
