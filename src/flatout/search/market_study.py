"""From bars and settings to the lanes of a study: folds, one scaled tape per split, and the rates
of any trial.

The bars of the sealed hold-out are not in any array here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import map_leaves
from flatout.bars.panel import FloatArray, Panel
from flatout.errors import SettingsError
from flatout.evaluation.held_out import BESIDE
from flatout.evaluation.skill import Timeline, make_timeline
from flatout.evaluation.study_folds import make_study_folds
from flatout.features.recipe import FittedRecipe, fit_each
from flatout.folds.blocks import Block, list_rows
from flatout.folds.splits import SHORTEST, Folds, final_block
from flatout.learners.engines import market_environment
from flatout.learners.forecast import choose_program, usual_envs
from flatout.learners.rates import Program, Rates, program_of, rates_of
from flatout.market.market import cast, make_rules, make_shape, recipe_of, segments
from flatout.market.rewards import RewardTerms
from flatout.market.rules import Costs, Rules, Segments
from flatout.market.starts import choose_episode_bars
from flatout.market.tape import Tape, join_tapes, make_tape
from flatout.policies.network import Sizes, gates_of
from flatout.search.controls import KnownFeatures, choose_control_bars, make_controls
from flatout.search.space import HIDDEN, Values, apply_values, check_space
from flatout.settings.study import STUDY_TIMESTEPS
from flatout.settings.tables import Settings

LOG_RETURN = RewardTerms._fields.index("log_return")
FINAL = "final"  # the stretch of the last training
TURNOVER = RewardTerms._fields.index("turnover")
TERMS = len(RewardTerms._fields)  # in traces the weights of the assets follow


class LaneSpec(NamedTuple):
    """One agent of a trial: all that a worker needs to start it."""

    seed: int
    rates: Rates
    judged: Rules
    hidden: tuple[int, ...]
    log_std: float


class Stretch(NamedTuple):
    """Some bars in the joined tape: those of a split, of the last training, or of a control."""

    offset: int
    train: tuple[Block, ...]
    test: tuple[Block, ...]
    fitted: FittedRecipe  # on its training rows
    closes: FloatArray  # (bar, asset) from the offset on


@dataclass(frozen=True)
class MarketStudy:
    """What all trials of a study share."""

    settings: Settings
    panel: Panel  # up to the hold-out
    folds: Folds
    program: Program
    tape: Tape
    stretches: dict[str, Stretch]  # by split name, and FINAL, NOISE, ORACLE
    updates: int

    @property
    def rungs(self) -> tuple[int, ...]:
        """Updates after which trials are judged; the last is the whole budget."""
        shares = (1.0,) if self.settings.search.pruner == "none" else self.settings.search.rungs
        return tuple(sorted({max(1, round(share * self.updates)) for share in shares}))

    @property
    def lanes_per_trial(self) -> int:
        """How many agents a trial has: one for each split and seed."""
        return len(self.folds.splits) * self.settings.train.seeds

    @property
    def test_bars(self) -> int:
        """How many bars the longest test block has."""
        return max(block.length for split in self.folds.splits for block in split.test)

    @property
    def test_blocks(self) -> int:
        """How many blocks judge a split, at most."""
        return max(len(split.test) for split in self.folds.splits)

    @cached_property
    def train_blocks(self) -> int:
        """The most stretches that a split teaches with."""
        return max(len(split.train) for split in self.folds.splits)

    @cached_property
    def timeline(self) -> Timeline:
        """The bars of all judged groups, which every path consists of."""
        return make_timeline(
            self.panel.close, [self.folds.groups[group] for group in self.folds.judged]
        )

    @cached_property
    def split_timelines(self) -> tuple[Timeline, ...]:
        """The bars that judge each split."""
        return tuple(make_timeline(self.panel.close, split.test) for split in self.folds.splits)

    def features_of(self, stretch: str) -> NDArray[np.float32]:
        """What the recipe of a stretch made of its bars: (bar, asset, feature)."""
        where = self.stretches[stretch]
        n_bars, n_assets = where.closes.shape
        rows = self.tape.features[where.offset : where.offset + n_bars]
        return np.reshape(rows, (n_bars, n_assets, -1))

    def lane(self, values: Values, split: int, seed: int, cost_factor: float = 1.0) -> LaneSpec:
        """The agent of a trial's values in one split."""
        return self.lane_on(self.folds.splits[split].name, values, seed, cost_factor)

    def lane_on(
        self, stretch: str, values: Values, seed: int, cost_factor: float = 1.0
    ) -> LaneSpec:
        """An agent of some values on a stretch of the tape; it is judged with costs times a factor.
        Its noise depends on stretch and seed alone: trials are compared under equal luck.
        """
        settings, where = apply_values(self.settings, values), self.stretches[stretch]
        rules = map_leaves(np.asarray, cast(make_rules(settings.market, self.panel), np.float32))
        longest = max(block.length for block in where.train)
        length = choose_episode_bars(settings.market.episode_bars, longest)
        n_bars = len(self.tape.features)
        teach = shift_blocks(
            where.train, where.offset, count=self.train_blocks, length=length, n_bars=n_bars
        )
        judge = shift_blocks(
            begin_one_bar_earlier(where.test),
            where.offset,
            count=self.test_blocks,
            length=None,
            n_bars=n_bars,
        )
        sizes = self.program.sizes
        gates = (
            gates_of(sizes, settings.train.hidden)
            if self.program.gated
            else np.ones(len(sizes.hidden), np.float32)
        )
        entropy = np.random.SeedSequence(
            [self.settings.search.seed, list(self.stretches).index(stretch), seed]
        )
        return LaneSpec(
            seed=int(entropy.generate_state(1)[0]),
            rates=rates_of(settings.train, self.updates, rules._replace(segments=teach), gates),
            judged=rules._replace(segments=judge, costs=scale_costs(rules.costs, cost_factor)),
            hidden=settings.train.hidden,
            log_std=settings.train.log_std,
        )


def make_study(
    panel: Panel, settings: Settings, lanes_at_once: int, workers: int, free: int | None = None
) -> MarketStudy:
    """The study that settings ask for on these bars; `lanes_at_once` decides what fits into
    memory.
    """
    check_space(settings.search.space, settings)
    check_gates(settings)
    recipe = recipe_of(settings.features)
    folds = make_study_folds(panel, settings)
    known = panel.rows(0, folds.cut)
    tape, stretches = lay_tape(known, settings, folds)
    widest, gated = find_widest_network(settings)
    train = settings.train.model_copy(update={"hidden": widest})
    n_features = tape.features.shape[1] // known.n_assets
    shape = make_shape(settings.market, known.n_assets, n_features, recipe.lookback)
    program = program_of(
        train,
        market_environment(shape, train.engine),
        train.n_envs or usual_envs(train),
        gated=gated,
    )
    data_bytes = sum(array.nbytes for array in tape)
    program = choose_program(
        program,
        train.n_envs,
        lanes=lanes_at_once,
        workers=workers,
        data_bytes=data_bytes,
        free=free,
    )
    updates = max(1, -(-(train.timesteps or STUDY_TIMESTEPS) // program.rollout))
    return MarketStudy(
        settings=settings,
        panel=known,
        folds=folds,
        program=program,
        tape=tape,
        stretches=stretches,
        updates=updates,
    )


def check_gates(settings: Settings) -> None:
    """Refuse to compare winners with baselines that nobody runs: every one of them would be
    refused, hours later.
    """
    unknown = sorted(set(settings.gates.beats) - set(BESIDE))
    if unknown:
        raise SettingsError(
            f"gates.beats names {', '.join(unknown)}; what winners are compared with: "
            f"{', '.join(BESIDE)}"
        )


def lay_tape(panel: Panel, settings: Settings, folds: Folds) -> tuple[Tape, dict[str, Stretch]]:
    """One tape for everything that a study will ever train: each split under its own scaler, the
    last training on all bars, and two controls. All of them then share one compiled program.
    """
    recipe, capital = recipe_of(settings.features), settings.market.capital
    last = (final_block(folds),)
    taught = [split.train for split in folds.splits] + [last]
    names = [split.name for split in folds.splits] + [FINAL]
    tests = [split.test for split in folds.splits] + [(Block(folds.cut - SHORTEST, folds.cut),)]
    control_bars = choose_control_bars(panel, settings, folds)
    rows = [list_rows(blocks) for blocks in (*taught, control_bars.train)]
    *fitted, oracle = fit_each(recipe, panel, rows)  # all at once, as indicators take long
    tapes = [cast(make_tape(panel, features, capital), np.float32) for _, features in fitted]
    found = [
        (train, test, one, panel.close)
        for train, test, (one, _) in zip(taught, tests, fitted, strict=True)
    ]
    for name, control in make_controls(panel, settings, folds, KnownFeatures(*oracle)).items():
        names.append(name)
        tapes.append(control.tape)
        found.append((control.train, control.test, control.fitted, control.closes))
    tape, offsets = join_tapes(tapes)
    where = {
        name: Stretch(at, *stretch) for name, at, stretch in zip(names, offsets, found, strict=True)
    }
    return tape, where


def scale_costs(costs: Costs, factor: float) -> Costs:
    """The costs of trading, all of them times a factor."""
    scaled = ("maker_fee", "taker_fee", "half_spread", "impact", "borrow")
    return costs._replace(
        **{name: (getattr(costs, name) * factor).astype(np.float32) for name in scaled}
    )


def find_widest_network(settings: Settings) -> tuple[tuple[int, ...], bool]:
    """The hidden layers that hold all networks of the space, and whether they differ in depth."""
    knob = settings.search.space.get(HIDDEN)
    if knob is None or knob.choices is None:
        return settings.train.hidden, False
    choices = [tuple(choice) for choice in knob.choices]
    deepest = max(map(len, choices))
    if len({len(choice) for choice in choices}) == 1:
        return tuple(max(widths) for widths in zip(*choices, strict=True)), False
    widest = (max(width for choice in choices for width in choice),) * deepest
    gates_of(Sizes(1, widest, 1, 0), choices[0])
    return widest, True


def begin_one_bar_earlier(blocks: Sequence[Block]) -> list[Block]:
    """Blocks that begin with the decision whose order meets their first bar."""
    return [Block(block.first - 1, block.stop) for block in blocks]


def shift_blocks(
    blocks: Sequence[Block], offset: int, count: int, length: int | None, n_bars: int
) -> Segments:
    """Blocks as segments of the joined tape; empty ones make up the number."""
    found = segments(
        [(offset + block.first, offset + block.stop) for block in blocks], length, n_bars
    )
    nothing = np.zeros(count - len(blocks), np.int32)
    return found._replace(
        first=np.append(found.first, nothing), stop=np.append(found.stop, nothing)
    )
