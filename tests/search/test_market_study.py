"""From bars and settings to lanes: which bars teach and judge in the joined tape, and what scalers
have seen.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from small_studies import SPACE, small_panel, small_settings

from flatout.bars.panel import PRICES, FloatArray, Panel
from flatout.errors import SettingsError
from flatout.features import indicators
from flatout.features.indicators import compute_indicators
from flatout.folds.blocks import Block, list_rows
from flatout.learners.lane_trees import stack_trees
from flatout.market.episode import choose_start
from flatout.market.market import cast
from flatout.market.tape import make_tape
from flatout.search.controls import NOISE, ORACLE
from flatout.search.market_study import FINAL, MarketStudy, find_widest_network, make_study
from rounding import assert_close

VALUES = {"train.learning_rate": 1e-3, "train.gamma": 0.9, "market.limits.reserve": 0.1}
FOLDS: dict[str, dict[str, Any]] = {
    "kfold": {"kind": "kfold", "groups": 2},
    "cpcv 3 of which 1": {"kind": "cpcv", "groups": 3, "test_groups": 1},
    "cpcv 4 of which 2": {"kind": "cpcv", "groups": 4, "test_groups": 2},
    "walk": {"kind": "walk_forward", "groups": 4, "train_groups": 2},
    "anchored": {"kind": "anchored", "groups": 4, "train_groups": 1},
    "none sealed": {"kind": "kfold", "groups": 3, "hold_out": 0.0},
}


@cache
def study_of(name: str = "kfold", **train: Any) -> MarketStudy:
    return make_study(small_panel(900), small_settings(folds=FOLDS[name], train=train), 4, 1)


def bars_of(blocks: Sequence[Block]) -> list[int]:
    return [bar for block in blocks for bar in range(block.first, block.stop)]


def segment_bars(segments: Any, offset: int) -> list[int]:
    """The bars of segments, counted from where their stretch begins."""
    return [
        int(bar) - offset
        for first, stop in zip(segments.first, segments.stop, strict=True)
        for bar in range(first, stop)
    ]


@pytest.mark.parametrize("name", FOLDS)
def test_lanes_teach_and_judge_on_the_bars_of_their_split(name: str) -> None:
    """Exactly those, shifted to where the split's own tape begins; judging begins one bar earlier,
    with the decision that the first judged bar answers.
    """
    study = study_of(name)
    for split, about in enumerate(study.folds.splits):
        offset = study.stretches[about.name].offset
        lane = study.lane(VALUES, split, 0)
        assert segment_bars(lane.rates.environment.segments, offset) == bars_of(about.train)
        judged = lane.judged.segments
        for k, block in enumerate(about.test):
            assert (int(judged.first[k]) + 1 - offset, int(judged.stop[k]) - offset) == block
        assert not judged.first[len(about.test) :].any()
        assert not judged.stop[len(about.test) :].any()


@pytest.mark.parametrize("name", FOLDS)
def test_stretches_lie_one_after_another_and_hold_their_own_features(name: str) -> None:
    study = study_of(name)
    n_bars = study.panel.n_bars
    assert [where.offset for where in study.stretches.values()] == [
        k * n_bars for k in range(len(study.stretches))
    ]
    assert len(study.tape.features) == n_bars * len(study.stretches)
    assert list(study.stretches) == [
        *(split.name for split in study.folds.splits),
        FINAL,
        NOISE,
        ORACLE,
    ]
    for stretch in [*(split.name for split in study.folds.splits), FINAL]:
        where = study.stretches[stretch]
        own = make_tape(
            study.panel, where.fitted.transform(study.panel), study.settings.market.capital
        )
        rows = slice(where.offset, where.offset + n_bars)
        np.testing.assert_array_equal(study.tape.features[rows], own.features)
        np.testing.assert_array_equal(study.tape.columns[:, rows], cast(own, np.float32).columns)


def test_indicators_are_computed_once_for_each_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the study's own bars, which splits, the last training and the oracle share, and for
    those without an edge.
    """
    seen: list[str] = []

    def compute(panel: Panel, names: Sequence[str]) -> FloatArray:
        seen.append(panel.fingerprint)
        return compute_indicators(panel, names)

    monkeypatch.setattr(indicators, "compute_indicators", compute)
    study = make_study(small_panel(900), small_settings(), 4, 1)
    assert seen[0] == study.panel.fingerprint
    assert len(seen) == len(set(seen)) == 2


@pytest.mark.parametrize("name", FOLDS)
def test_features_of_a_stretch_are_those_of_its_recipe(name: str) -> None:
    study = study_of(name)
    for stretch in (FINAL, study.folds.splits[0].name):
        computed = study.stretches[stretch].fitted.transform(study.panel)
        np.testing.assert_array_equal(study.features_of(stretch), computed)


def test_the_last_training_has_all_bars_before_the_hold_out() -> None:
    study = study_of()
    [block] = study.stretches[FINAL].train
    assert block == Block(study.folds.first, study.folds.cut - study.folds.purge)
    rates = study.lane_on(FINAL, VALUES, 0).rates
    assert segment_bars(rates.environment.segments, study.stretches[FINAL].offset) == bars_of(
        [block]
    )
    sealed = study_of("none sealed")
    assert sealed.stretches[FINAL].train == (Block(sealed.folds.first, sealed.panel.n_bars),)


def garbage(panel: Panel, rows: Any, seed: int = 5) -> Panel:
    """Other bars in some rows."""
    rng = np.random.default_rng(seed)
    factor = np.ones(panel.close.shape)
    factor[rows] = np.exp(rng.normal(0, 1, factor[rows].shape))
    prices = {name: getattr(panel, name) * factor for name in (*PRICES, "volume")}
    extras = {
        name: np.where(factor != 1, rng.normal(0, 9, factor.shape), x)
        for name, x in panel.extras.items()
    }
    return replace(panel, **prices, extras=extras)


@pytest.mark.parametrize("name", FOLDS)
def test_sealed_bars_are_in_no_array(name: str) -> None:
    """Whatever they are, everything that a study knows stays the same to the bit."""
    study = study_of(name)
    assert study.panel.n_bars == study.folds.cut
    if not study.folds.hold_out.length:
        return
    panel = small_panel(900)
    other = make_study(garbage(panel, slice(study.folds.cut, None)), study.settings, 4, 1)
    for a, b in zip(study.tape, other.tape, strict=True):
        np.testing.assert_array_equal(a, b)
    lanes = [(study.lane_on(s, VALUES, 0), other.lane_on(s, VALUES, 0)) for s in study.stretches]
    for mine, theirs in lanes:
        assert leaves(mine) == leaves(theirs)
    changed = make_study(garbage(panel, slice(study.folds.cut - 1, None)), study.settings, 4, 1)
    assert (changed.tape.columns != study.tape.columns).any()  # so the comparison can fail


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [np.asarray(tree).tolist()]


@pytest.mark.parametrize("name", FOLDS)
def test_scalers_have_seen_training_rows_only(name: str) -> None:
    """A column without memory, so that only the row itself can leak: garbage everywhere else
    changes nothing.
    """
    settings = small_settings(
        folds=FOLDS[name], features={"indicators": ["extra:signal"], "scaler": "zscore"}
    )
    panel = small_panel(900)
    study = make_study(panel, settings, 4, 1)
    for stretch, where in study.stretches.items():
        if stretch == NOISE:  # which has bars of its own
            continue
        taught = list_rows(where.train)
        elsewhere = np.setdiff1d(np.arange(panel.n_bars), taught)
        signal = panel.extras["signal"].copy()
        signal[elsewhere] = 1e6
        spoilt = make_study(replace(panel, extras={"signal": signal}), settings, 4, 1)
        statistics = where.fitted.scaler.statistics
        np.testing.assert_array_equal(
            spoilt.stretches[stretch].fitted.scaler.statistics, statistics
        )
        signal = panel.extras["signal"].copy()
        signal[taught[-1]] = 1e6
        spoilt = make_study(replace(panel, extras={"signal": signal}), settings, 4, 1)
        assert (spoilt.stretches[stretch].fitted.scaler.statistics != statistics).any()


def test_splits_have_scalers_of_their_own() -> None:
    study = study_of("cpcv 4 of which 2")
    found = [
        study.stretches[split.name].fitted.scaler.statistics.tobytes()
        for split in study.folds.splits
    ]
    assert len(set(found)) == len(found) == 6


@pytest.mark.parametrize("name", FOLDS)
def test_episodes_start_on_training_bars_of_their_split_only(name: str) -> None:
    """Whatever the noise; segments that only fill up the number are never chosen, all others
    are.
    """
    study = study_of(name)
    noise = np.linspace(0, 1, 20_001)[:-1].astype(np.float32)
    counts = {len(split.train) for split in study.folds.splits}
    for split, about in enumerate(study.folds.splits):
        lane = study.lane(VALUES, split, 0)
        segments, offset = lane.rates.environment.segments, study.stretches[about.name].offset
        start, last = choose_start(noise, segments, np)
        inside = np.zeros(len(noise), bool)
        for block in about.train:
            here = (start - offset >= block.first) & (last - offset < block.stop)
            assert here.any()
            inside |= here
        assert inside.all()
        assert len(segments.first) == max(counts)
    if name.startswith("cpcv"):
        assert len(counts) > 1  # so some were filled up


@pytest.mark.parametrize("name", FOLDS)
def test_every_test_block_is_judged_once_from_its_start(name: str) -> None:
    """As the tracer draws them: equally spaced noise, one environment per block."""
    study = study_of(name)
    which = ((np.arange(study.test_blocks) + 0.5) / study.test_blocks).astype(np.float32)
    for split, about in enumerate(study.folds.splits):
        start, last = choose_start(which, study.lane(VALUES, split, 0).judged.segments, np)
        offset = study.stretches[about.name].offset
        found = [
            Block(int(a) - offset + 1, int(b) - offset + 1)
            for a, b in zip(start, last, strict=True)
        ]
        assert found == list(about.test)
    assert study.test_bars == max(
        block.length for split in study.folds.splits for block in split.test
    )


def test_lanes_of_all_stretches_can_be_stacked() -> None:
    """So any of them can follow any other in a lane of the same program."""
    study = study_of("cpcv 4 of which 2")
    lanes = [study.lane_on(name, VALUES, 0) for name in study.stretches]
    rates, judged = (
        stack_trees([lane.rates for lane in lanes]),
        stack_trees([lane.judged for lane in lanes]),
    )
    for leaf in (*leaf_arrays(rates), *leaf_arrays(judged)):
        assert leaf.dtype in (np.float32, np.int32, np.bool_)
        assert leaf.shape[0] == len(lanes)


def leaf_arrays(tree: Any) -> list[np.ndarray]:
    return [a for part in tree for a in leaf_arrays(part)] if isinstance(tree, tuple) else [tree]


def test_values_become_rates_of_the_lane() -> None:
    study = study_of()
    lane = study.lane(VALUES, 0, 0)
    assert lane.rates.learning_rate == np.float32(1e-3)
    assert lane.rates.gamma == np.float32(0.9)
    assert lane.rates.environment.limits.reserve == np.float32(0.1)
    assert lane.judged.limits.reserve == np.float32(0.1)
    other = study.lane({**VALUES, "market.limits.reserve": 0.2}, 0, 0)
    assert other.judged.limits.reserve == np.float32(0.2)


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_a_cost_factor_multiplies_every_cost_of_judging_alone(factor: float) -> None:
    study = study_of()
    plain, dear = study.lane(VALUES, 0, 0), study.lane(VALUES, 0, 0, cost_factor=factor)
    assert leaves(plain.rates) == leaves(dear.rates)
    for name in ("maker_fee", "taker_fee", "half_spread", "impact", "borrow"):
        before, after = getattr(plain.judged.costs, name), getattr(dear.judged.costs, name)
        assert (before > 0).all()
        assert_close(after, before * factor, roundings=4, size=before * factor)
        assert after.dtype == np.float32
    for name in ("tier_volume", "maker_share", "volume_memory"):
        np.testing.assert_array_equal(
            getattr(plain.judged.costs, name), getattr(dear.judged.costs, name)
        )
    assert leaves(plain.judged._replace(costs=dear.judged.costs)) == leaves(dear.judged)


@pytest.mark.parametrize(
    ("search", "rungs"),
    [
        ({"timesteps": 640, "rungs": [0.34, 0.67, 1.0]}, (3, 7, 10)),
        ({"timesteps": 64, "rungs": [0.34, 0.67, 1.0]}, (1,)),
        ({"timesteps": 1, "rungs": [0.5, 1.0]}, (1,)),
        ({"timesteps": 641, "rungs": [0.5, 1.0]}, (6, 11)),
        ({"timesteps": 640, "pruner": "none"}, (10,)),
    ],
)
def test_rungs_are_updates(search: dict[str, Any], rungs: tuple[int, ...]) -> None:
    study = make_study(small_panel(900), small_settings(search=search), 4, 1)
    assert study.rungs == rungs
    assert study.updates == rungs[-1]


def test_the_largest_network_holds_all_others() -> None:
    def widest(*choices: list[int]) -> tuple[tuple[int, ...], bool]:
        return find_widest_network(
            small_settings(search={"space": {"train.hidden": {"choices": list(choices)}}})
        )

    assert find_widest_network(small_settings()) == ((8, 8), False)
    assert widest([8, 16], [32, 4]) == ((32, 16), False)
    assert widest([8, 8], [16]) == ((16, 16), True)


def test_a_space_that_cannot_be_searched_is_refused_first() -> None:
    space = {**SPACE, "train.n_steps": {"low": 8, "high": 16, "whole": True}}
    with pytest.raises(SettingsError, match=r"train\.n_steps, which is not data"):
        make_study(small_panel(), small_settings(search={"space": space}), 4, 1)


@pytest.mark.parametrize("name", ["momentun", "random"])
def test_a_gate_that_no_winner_can_pass_is_refused_first(name: str) -> None:
    """One that compares with a baseline that is not run."""
    message = (
        rf"gates\.beats names {name}; what winners are compared with: cash, buy_and_hold, "
        rf"equal_weight, momentum"
    )
    with pytest.raises(SettingsError, match=message):
        make_study(small_panel(), small_settings(gates={"beats": ["cash", name]}), 4, 1)
    make_study(small_panel(), small_settings(gates={"beats": ["momentum", "buy_and_hold"]}), 4, 1)
