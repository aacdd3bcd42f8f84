"""Markets in which the right answer is known, in the shape of the user's own: one without any edge,
one with tomorrow among the features.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.bars.panel import FloatArray, Panel
from flatout.bars.synthetic import RandomWalk
from flatout.evaluation.accounts import Floats
from flatout.evaluation.baselines import Moment
from flatout.features.recipe import FittedRecipe, fit_each
from flatout.folds.blocks import Block
from flatout.folds.splits import Folds
from flatout.market.market import cast, recipe_of
from flatout.market.tape import Tape, make_tape
from flatout.settings.tables import Fill, Settings

NOISE, ORACLE = "noise control", "oracle control"


class Control(NamedTuple):
    """A market and which of its bars teach and judge."""

    closes: FloatArray  # (bar, asset)
    tape: Tape
    train: tuple[Block, ...]
    test: tuple[Block, ...]
    fitted: FittedRecipe


class ControlBars(NamedTuple):
    """Which bars of both controls teach and judge."""

    train: tuple[Block, ...]
    test: tuple[Block, ...]


class KnownFeatures(NamedTuple):
    """A fitted recipe, and what it makes of a panel."""

    fitted: FittedRecipe
    features: NDArray[np.float32]


def choose_control_bars(panel: Panel, settings: Settings, folds: Folds) -> ControlBars:
    """In each control the first part teaches and the rest judges."""
    judged = min(
        max(block.length for split in folds.splits for block in split.test), panel.n_bars // 3
    )
    first, cut = recipe_of(settings.features).count_warmup(panel) + 1, panel.n_bars - judged
    return ControlBars((Block(first, cut - folds.purge),), (Block(cut, panel.n_bars),))


def make_controls(
    panel: Panel, settings: Settings, folds: Folds, known: KnownFeatures | None = None
) -> dict[str, Control]:
    """Both markets by name. `known` are the features of the panel itself, fitted on the part that
    teaches, where they are computed already.
    """
    recipe, bars = recipe_of(settings.features), choose_control_bars(panel, settings, folds)
    found = {}
    for name, traded, ready in (
        (NOISE, make_bars_without_edge(panel, settings.search.seed), None),
        (ORACLE, panel, known),
    ):
        fitted, features = ready or fit_each(recipe, traded, [np.arange(*bars.train[0])])[0]
        if name == ORACLE:
            features = features.copy()
            features[:, :, 0] = gain_of_next_bar(traded, settings.market.fill)
        tape = cast(make_tape(traded, features, settings.market.capital), np.float32)
        found[name] = Control(traded.close, tape, bars.train, bars.test, fitted)
    return found


def make_bars_without_edge(panel: Panel, seed: int) -> Panel:
    """A random walk as volatile as these bars; further columns are theirs in random order."""
    moves = np.diff(np.log(panel.close), axis=0)
    sigma = float(np.median(np.nanstd(moves, axis=0)))
    walk = RandomWalk(
        n_bars=panel.n_bars,
        seed=seed,
        symbols=panel.symbols,
        bar_seconds=panel.bar_seconds,
        sigma=sigma,
    ).panel()
    order = np.random.default_rng(seed).permutation(panel.n_bars)
    return replace(
        walk,
        time=panel.time,
        extras={name: column[order] for name, column in panel.extras.items()},
        year=panel.year,
    )


def gain_of_next_bar(panel: Panel, fill: Fill) -> NDArray[np.float32]:
    """What an order made now will earn before costs, in units of its deviation, at most 3: (time,
    asset).
    """
    gain = log_gain_of_next_bar(panel, fill)
    return np.clip(gain / max(float(np.std(gain)), 1e-12), -3, 3).astype(np.float32)


def log_gain_of_next_bar(panel: Panel, fill: Fill) -> FloatArray:
    """The log return between the fill of an order made now and that of one made a bar later: (time,
    asset).

    At the close of bar t that is from open t + 1 to open t + 2 (`next_open`), from close t + 1 to
    close t + 2 (`next_close`), or from close t to close t + 1 (`same_close`).
    """
    price = panel.open if fill == "next_open" else panel.close
    late = 0 if fill == "same_close" else 1
    gain = np.zeros_like(price)
    gain[: -1 - late] = np.nan_to_num(
        np.log(price[1 + late :] / price[late:-1])
    )  # nothing before a symbol's first bar
    return gain


@dataclass(frozen=True)
class Foresight:
    """A rule that knows the gain of the next bar: all money goes where most is gained beyond what
    moving there costs.
    """

    gains: FloatArray  # (time, asset) of the next bar
    cost: float  # of a move from one asset to another, as a share of the money

    def __call__(self, moment: Moment) -> Floats:
        held = moment.weights
        worth = self.gains[len(moment.closes) - 1] - self.cost * (1 - held)
        best = np.argmax(worth, axis=1)
        wanted = np.eye(held.shape[1])[best] * (worth[np.arange(len(best)), best] > 0)[:, None]
        stays = np.all(wanted == 0, axis=1) & (
            np.sum(held * self.gains[len(moment.closes) - 1], axis=1) > -self.cost
        )
        order: Floats = np.where(stays[:, None], 0.0, wanted - held)
        return order
