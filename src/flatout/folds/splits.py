"""Splits of the bars into those that teach and those that judge, by `[folds]` of the settings.

A bar that teaches must know nothing of a bar that judges. Two things reach across a boundary: the
reward of a decision lies up to fill delay + reward horizon bars after it (so as many bars before a
test block are *purged*), and an observation looks back (so as many bars after a test block are
under *embargo*). Both hold for each test block on its own; the bars between two test blocks teach.
The hold-out at the end judges too: it is purged like a test block.

Bars are numbers here: this module knows neither dates nor prices nor learners.
"""

from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import NamedTuple

from flatout.errors import SettingsError
from flatout.folds.blocks import Block, merge, subtract
from flatout.settings.study import STUDY_HOLD_OUT, FoldSettings

SHORTEST = 2  # bars of a block: a decision, and a bar that shows what came of it
MOST_SPLITS = 10_000  # each of them is a training

FoldPath = tuple[tuple[int, int], ...]  # (group, split) in time order


class Split(NamedTuple):
    """One training and what judges it."""

    name: str
    test_groups: tuple[int, ...]
    train: tuple[Block, ...]  # maximal runs, in time order
    test: tuple[Block, ...]  # one per test group, neighbours too: each is judged on its own


class Folds(NamedTuple):
    """All splits of a study. Bars before `first` only warm the features, bars from `cut` on are
    sealed.
    """

    first: int
    cut: int  # n_bars without a hold-out
    n_bars: int
    groups: tuple[Block, ...]
    splits: tuple[Split, ...]
    purge: int
    embargo: int
    kind: str

    @property
    def hold_out(self) -> Block:
        """The sealed bars; empty without a hold-out."""
        return Block(self.cut, self.n_bars)

    @property
    def judged(self) -> tuple[int, ...]:
        """The groups that some split tests."""
        return tuple(sorted({group for split in self.splits for group in split.test_groups}))

    @property
    def paths(self) -> tuple[FoldPath, ...]:
        """Path j takes each judged group from the j-th split that tests it: all bars judged once,
        out of sample.
        """
        testers = (
            [(group, s) for s, split in enumerate(self.splits) if group in split.test_groups]
            for group in self.judged
        )
        return tuple(zip(*testers, strict=True))


def make_folds(
    settings: FoldSettings,
    n_bars: int,
    warm: int,
    fill_delay: int,
    reward_horizon: int,
    lookback: int,
) -> Folds:
    """The splits of `n_bars` bars whose features are warm from bar `warm` on.

    All numbers count bars, whatever their size. An order decided at bar t fills at t +
    `fill_delay`, and its reward is known `reward_horizon` bars later. The observation at t holds
    bars t - `lookback` to t: all that indicators and stacked bars reach back.
    """
    refuse_numbers(warm, fill_delay, reward_horizon, lookback)
    refuse_group_counts(settings)
    sizes = gap_sizes(settings, fill_delay, reward_horizon, lookback)
    cut = n_bars - hold_out_bars(settings, n_bars)
    groups = equal_groups(settings.groups, Block(warm, cut))
    splits = tuple(
        make_split(
            kind=settings.kind,
            test_groups=tests,
            groups=groups,
            window=window,
            hold_out=Block(cut, n_bars),
            sizes=sizes,
        )
        for tests, window in choose_test_groups(settings, groups)
    )
    return Folds(
        first=warm,
        cut=cut,
        n_bars=n_bars,
        groups=groups,
        splits=splits,
        purge=sizes.purge,
        embargo=sizes.embargo,
        kind=settings.kind,
    )


def final_block(folds: Folds) -> Block:
    """The bars on which finalists are trained again: all but the hold-out and the purge before
    it.
    """
    return Block(folds.first, folds.cut - (folds.purge if folds.hold_out.length else 0))


class GapSizes(NamedTuple):
    """Bars that training leaves out around judged bars."""

    purge: int  # before them
    embargo: int  # after them


def gap_sizes(
    settings: FoldSettings, fill_delay: int, reward_horizon: int, lookback: int
) -> GapSizes:
    """How many bars to purge and to put under embargo; what would leak is refused."""
    purge = fill_delay + reward_horizon if settings.purge_bars is None else settings.purge_bars
    embargo = lookback if settings.embargo_bars is None else settings.embargo_bars
    if purge < fill_delay + reward_horizon:
        raise SettingsError(
            f"folds.purge_bars is {purge}, but orders fill {fill_delay} bars later and are "
            f"rewarded over {reward_horizon} more: training before a test block would see the "
            f"test; give at least {fill_delay + reward_horizon}, or leave it out"
        )
    if embargo < lookback:
        raise SettingsError(
            f"folds.embargo_bars is {embargo}, but observations look back {lookback} bars: "
            f"training after a test block would see the test; give at least {lookback}, leave it "
            "out, or use features that look back less"
        )
    return GapSizes(purge, embargo)


def hold_out_bars(settings: FoldSettings, n_bars: int) -> int:
    """Bars at the end that stay sealed."""
    share = STUDY_HOLD_OUT if settings.hold_out is None else settings.hold_out
    bars = round(share * n_bars)
    if share > 0 and bars < SHORTEST:
        raise SettingsError(
            f"folds.hold_out is {share}, which is {bars} of {n_bars} bars, but judging needs at "
            f"least {SHORTEST}; give a larger share, more bars, or 0 for no hold-out"
        )
    return bars


def equal_groups(count: int, whole: Block) -> tuple[Block, ...]:
    """`count` neighbouring blocks of the whole, the longer ones (by one bar) first."""
    size, longer = divmod(whole.length, count)
    if size < SHORTEST:
        raise SettingsError(
            f"folds.groups is {count}, but only {max(whole.length, 0)} bars lie between bar "
            f"{whole.first}, where the features are warm, and bar {whole.stop}, the end or the "
            f"hold-out: each group needs at least {SHORTEST} bars; give fewer groups, more bars, "
            "or a smaller folds.hold_out"
        )
    edges = [whole.first + g * size + min(g, longer) for g in range(count + 1)]
    return tuple(map(Block, edges, edges[1:]))


def refuse_numbers(warm: int, fill_delay: int, reward_horizon: int, lookback: int) -> None:
    """Refuse numbers that no market has: they would make the gaps too small without a word."""
    if warm < 0 or fill_delay < 0 or reward_horizon < 1 or lookback < 0:
        raise SettingsError(
            f"features warm from bar {warm}, fill delay {fill_delay}, reward horizon "
            f"{reward_horizon} and lookback "
            f"{lookback} bars make no folds: give a reward horizon of at least 1, and 0 or more "
            f"for the others"
        )


def refuse_group_counts(settings: FoldSettings) -> None:
    """Refuse numbers of groups that leave nothing to teach or nothing to judge."""
    groups, tests, trains = settings.groups, settings.test_groups, settings.train_groups
    if settings.kind == "cpcv" and tests >= groups:
        raise SettingsError(
            f"folds.test_groups is {tests} of {groups} groups, which leaves none to train on; "
            f"give at most {groups - 1}, or more groups"
        )
    if settings.kind == "cpcv" and (groups > MOST_SPLITS or comb(groups, tests) > MOST_SPLITS):
        # which take long to count
        made = f"{comb(groups, tests):,}" if groups <= 100 else "far too many"
        raise SettingsError(
            f"folds.groups is {groups} and folds.test_groups {tests}, which makes {made} splits, "
            f"each of them a training; at most {MOST_SPLITS:,} are allowed: give fewer groups, or "
            "fewer test groups"
        )
    if settings.kind in ("walk_forward", "anchored") and trains >= groups:
        raise SettingsError(
            f"folds.train_groups is {trains} of {groups} groups, which leaves none to test; give "
            f"at most {groups - 1}, or more groups"
        )


def choose_test_groups(
    settings: FoldSettings, groups: tuple[Block, ...]
) -> Iterator[tuple[tuple[int, ...], Block]]:
    """Each split's test groups, and the bars among which it may look for training blocks."""
    whole = Block(groups[0].first, groups[-1].stop)
    if settings.kind in ("cpcv", "kfold"):
        tests = settings.test_groups if settings.kind == "cpcv" else 1
        yield from ((chosen, whole) for chosen in combinations(range(len(groups)), tests))
    else:
        for g in range(settings.train_groups, len(groups)):
            oldest = 0 if settings.kind == "anchored" else g - settings.train_groups
            yield (g,), Block(groups[oldest].first, groups[g].first)


def make_split(
    kind: str,
    test_groups: tuple[int, ...],
    groups: tuple[Block, ...],
    window: Block,
    hold_out: Block,
    sizes: GapSizes,
) -> Split:
    """The split that tests these groups; training blocks too short for one decision are dropped."""
    name = f"{kind.removesuffix('_forward')} {'+'.join(map(str, test_groups))}"
    test = tuple(groups[g] for g in test_groups)
    away = (
        Block(block.first - sizes.purge, block.stop + sizes.embargo)
        for block in merge((*test, hold_out))
    )
    train = tuple(block for block in subtract(window, away) if block.length >= SHORTEST)
    if not train:
        raise SettingsError(
            f"split {name} has no {SHORTEST} neighbouring bars left to train on: of bars "
            f"{window}, {sizes.purge} are purged "
            f"before and {sizes.embargo} embargoed after each test block "
            f"({', '.join(map(str, merge(test)))}); give more "
            "bars, fewer groups, fewer test groups, or features that look back less"
        )
    return Split(name, test_groups, train, test)
