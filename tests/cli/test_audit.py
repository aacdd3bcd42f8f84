"""`flatout audit`: sound bars pass, and every planted fault is found by the check that is there for
it.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from flatout.bars.panel import PRICES, Panel
from flatout.bars.synthetic import RandomWalk
from flatout.bars.write import write_bars
from flatout.cli.main import main
from flatout.errors import SettingsError
from flatout.evaluation import audit
from flatout.evaluation.audit_leaks import poison_rows
from flatout.evaluation.finding import Finding
from flatout.evaluation.study_folds import make_study_folds
from flatout.features import indicators, recipe
from flatout.folds import splits
from flatout.market import execute, tape
from flatout.search.market_study import make_study
from flatout.settings.loading import load_settings
from flatout.settings.tables import Settings

CHECKS = FEATURES, ACCOUNTS, LATER, SCALERS, FOLDS, IDLE, TRIP, RANDOM, CASH, FILLS, BARS = (
    "features do not see the future",
    "accounts do not see the future",
    "orders fill later",
    "scalers learn from training bars only",
    "folds keep their distance",
    "an account that does nothing keeps its money",
    "a round trip earns price differences minus costs",
    "random trades earn price differences minus costs",
    "cash never runs out",
    "fills are possible and paid for",
    "bars are usable",
)
Patch = Callable[[pytest.MonkeyPatch], None]


def settings_with(*overrides: str) -> Settings:
    given = [
        "features.indicators=['return_1', 'rsi', 'volatility', 'volume', 'extra:funding']",
        *overrides,
    ]
    return load_settings(overrides=given, environment={}).settings


def sound_bars(n_bars: int = 1200) -> Panel:
    """Three assets: one plain, one with missing bars, one listed late; and a further column."""
    panel = RandomWalk(n_bars=n_bars, symbols=("AAA", "BBB", "CCC"), typical_volume=1e4).panel()
    columns = {name: getattr(panel, name).copy() for name in (*PRICES, "volume")}
    tradable = panel.tradable.copy()
    present = np.ones_like(tradable)
    for name in PRICES:
        columns[name][700:710, 1] = columns["close"][699, 1]
        columns[name][:420, 2] = np.nan
    for rows, asset in ((slice(700, 710), 1), (slice(0, 420), 2)):
        columns["volume"][rows, asset] = 0
        tradable[rows, asset] = present[rows, asset] = False
    funding = np.random.default_rng(0).normal(size=panel.close.shape)
    return replace(
        panel, **columns, tradable=tradable, present=present, extras={"funding": funding}
    )


def crosses(
    settings: Settings | None = None, panel: Panel | None = None, until: str = BARS
) -> dict[str, str]:
    """The names and sentences of the checks that failed; those after this one are not made."""
    found: dict[str, str] = {}
    for finding in audit.audit(panel or sound_bars(), settings or settings_with()):
        if not finding.passed:
            found[finding.name] = finding.sentence
        if finding.name == until:
            break
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [
            "folds.kind=kfold",
            "market.fill=next_close",
            "features.scaler=zscore",
            "folds.hold_out=0.0",
        ],
        [
            "folds.kind=walk_forward",
            "market.limits.trailing_stop=0.01",
            "market.limits.cooldown_bars=3",
        ],
        ["folds.kind=anchored", "market.limits.max_short_weight=0.5", "market.limits.lot_step=0.5"],
        ["market.costs.maker_share=0.5", "market.limits.participation=0.001", "market.capital=1e6"],
        ["features.indicators=['1d:return_1', '4h:roc', '1d:extra:funding']"],
    ],
    ids=" ".join,
)
def test_sound_bars_pass(overrides: list[str]) -> None:
    found = list(audit.audit(sound_bars(), settings_with(*overrides)))
    assert [finding for finding in found if not finding.passed] == []
    assert tuple(finding.name for finding in found) == CHECKS


def test_the_folds_are_those_of_a_study() -> None:
    panel, settings = (
        sound_bars(),
        settings_with("train.n_envs=4", "train.hidden=[4]", "train.n_steps=8"),
    )
    assert make_study_folds(panel, settings) == make_study(panel, settings, 1, 1).folds


# --- planted faults -------------------------------------------------------------------------------


def shifted_features(patch: pytest.MonkeyPatch) -> None:
    """All features are those of the next bar."""
    real = indicators.compute_indicators
    patch.setattr(
        indicators,
        "compute_indicators",
        lambda panel, names: np.roll(real(panel, names), -1, axis=0),
    )


def one_normalised_feature(patch: pytest.MonkeyPatch) -> None:
    """One feature is measured against its mean over all bars."""
    real = indicators.compute_indicators

    def compute(panel: Panel, names: Any) -> Any:
        values = real(panel, names)
        values[:, :, 1] -= np.nanmean(values[:, :, 1])
        return values

    patch.setattr(indicators, "compute_indicators", compute)


def unfinished_bars(patch: pytest.MonkeyPatch) -> None:
    """Larger bars are known when they begin."""
    real = indicators.find_coarse_bars

    def find(panel: Panel, seconds: int) -> Any:
        coarse = real(panel, seconds)
        return replace(coarse, known=np.minimum(coarse.known + 1, coarse.panel.n_bars - 1))

    patch.setattr(indicators, "find_coarse_bars", find)


def dead_features(patch: pytest.MonkeyPatch) -> None:
    """Features that never change cannot leak, and are no features."""
    real = indicators.compute_indicators
    patch.setattr(
        indicators, "compute_indicators", lambda panel, names: np.ones_like(real(panel, names))
    )


def volatility_of_tomorrow(patch: pytest.MonkeyPatch) -> None:
    """Impact is priced with a volatility that is not known yet."""
    real = tape.trailing_volatility
    patch.setattr(tape, "trailing_volatility", lambda close: np.roll(real(close), -3, axis=0))


def bar_after_next(patch: pytest.MonkeyPatch) -> None:
    """Orders meet the bar after the next one."""
    patch.setattr(tape, "shift_back", lambda column: np.concatenate([column[2:], column[-2:]]))


def scaler_of_all_rows(patch: pytest.MonkeyPatch) -> None:
    real = recipe.fit_scaler
    patch.setattr(
        recipe,
        "fit_scaler",
        lambda name, values, rows: real(name, values, np.arange(300, len(values))),
    )


def scaler_of_rows_between(patch: pytest.MonkeyPatch) -> None:
    """A test block between two training blocks teaches the scaler."""
    real = recipe.fit_scaler
    patch.setattr(
        recipe,
        "fit_scaler",
        lambda name, values, rows: real(name, values, np.arange(rows[0], rows[-1] + 1)),
    )


def no_purge(patch: pytest.MonkeyPatch) -> None:
    """Training begins and ends right at the tests."""
    real = splits.make_split
    none = splits.GapSizes(purge=0, embargo=0)
    patch.setattr(splits, "make_split", lambda **given: real(**{**given, "sizes": none}))


def short_embargo(patch: pytest.MonkeyPatch) -> None:
    real = splits.gap_sizes
    patch.setattr(splits, "gap_sizes", lambda *given: real(*given)._replace(embargo=5))


def free_money(patch: pytest.MonkeyPatch) -> None:
    """Every account earns a little at every bar."""
    real = execute.pay_borrow

    def pay(account: Any, *given: Any) -> Any:
        paid = real(account, *given)
        return paid._replace(cash=paid.cash + 1e-8)

    patch.setattr(execute, "pay_borrow", pay)


def units_from_nowhere(patch: pytest.MonkeyPatch) -> None:
    """Purchases deliver a little more than was paid for."""
    real = execute.grow

    def grow(account: Any, *given: Any, **named: Any) -> Any:
        after, trade = real(account, *given, **named)
        return after._replace(units=after.units + 1e-6 * (after.units - account.units)), trade

    patch.setattr(execute, "grow", grow)


def overspending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(execute, "share_of", lambda available, needed, xp: xp.ones_like(needed))


def cheap_trades(patch: pytest.MonkeyPatch) -> None:
    real = execute.cost_rate
    patch.setattr(execute, "cost_rate", lambda *given: 0.5 * real(*given))


def endless_volume(patch: pytest.MonkeyPatch) -> None:
    real = execute.fill_order

    def fill(account: Any, wanted: Any, *, room: Any, **named: Any) -> Any:
        return real(account, wanted, room=1e9 * room, **named)

    patch.setattr(execute, "fill_order", fill)


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (shifted_features, {FEATURES}),
        (one_normalised_feature, {FEATURES}),
        (unfinished_bars, {FEATURES}),
        (dead_features, {FEATURES}),
        (volatility_of_tomorrow, {FEATURES}),
        (bar_after_next, {FEATURES, ACCOUNTS, FILLS}),
        (scaler_of_all_rows, {SCALERS}),
        (scaler_of_rows_between, {SCALERS}),
        (no_purge, {FOLDS}),
        (short_embargo, {FOLDS}),
        (free_money, {IDLE, TRIP, RANDOM}),
        (units_from_nowhere, {TRIP, RANDOM}),
        (overspending, {CASH}),
        (cheap_trades, {FILLS}),
        (endless_volume, {FILLS}),
    ],
)
def test_a_planted_fault_is_found(
    plant: Patch, found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    changes = {
        endless_volume: ["market.limits.participation=0.0001"],
        unfinished_bars: ["features.indicators=['return_1', '1d:return_1']"],
    }
    settings = settings_with(*changes.get(plant, []))
    assert found <= set(crosses(settings, until=max(found, key=CHECKS.index)))


def test_a_leaking_feature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one_normalised_feature(monkeypatch)
    assert crosses(until=FEATURES)[FEATURES].startswith("rsi changed when bars from ")


def test_a_fill_at_the_price_just_seen_is_refused() -> None:
    assert list(crosses(settings_with("market.fill=same_close"))) == [LATER]


def test_other_splits_than_those_of_purgedcv_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that keeps its distance, but is not all that it could be."""
    real = splits.make_split

    def lazy(**given: Any) -> Any:
        split = real(**given)
        first, *rest = split.train
        return split._replace(train=(first._replace(first=first.first + 1), *rest))

    monkeypatch.setattr(splits, "make_split", lazy)
    assert crosses(until=FOLDS)[FOLDS] == "purgedcv would train on other bars"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert FOLDS not in crosses(until=FOLDS)


# --- bars -----------------------------------------------------------------------------------------


def quality(panel: Panel) -> Finding:
    return audit.check_quality(panel)


def test_bars_with_a_few_jumps_and_gaps_are_usable() -> None:
    found = quality(sound_bars())
    assert (found.passed, found.sentence) == (
        True,
        "3 symbols, 1,200 bars; 10 missing, 0 suspicious jumps",
    )


def test_bars_that_are_missing_empty_or_jump_are_named() -> None:
    panel = sound_bars()
    assert panel.present is not None
    present, volume, close = panel.present.copy(), panel.volume.copy(), panel.close.copy()
    present[100:200, 0] = False
    volume[:800, 1] = 0
    close[500:900:50, 2] *= 2
    found = quality(replace(panel, present=present, volume=volume, close=close))
    assert not found.passed
    assert "AAA: 8.3% of its bars are missing" in found.sentence
    assert "BBB: 66.4% of its bars have no volume" in found.sentence
    assert "CCC: 2.1% of its bars jump suspiciously" in found.sentence


def test_bars_in_which_nothing_can_be_bought_are_refused() -> None:
    panel = sound_bars()
    found = crosses(panel=replace(panel, volume=np.zeros_like(panel.volume)))
    assert found[TRIP] == "nothing could be traded in 399 bars: volumes or limits forbid it"
    assert BARS in found


def test_poison_is_made_of_valid_bars_and_keeps_what_does_not_exist() -> None:
    panel = sound_bars()
    rows = np.arange(panel.n_bars) >= 400
    spoilt = poison_rows(panel, rows, 0)
    exists = np.isfinite(panel.close)
    assert np.array_equal(np.isfinite(spoilt.close), exists)
    assert np.all(spoilt.low[exists] <= np.minimum(spoilt.open, spoilt.close)[exists])
    assert np.all(spoilt.high[exists] >= np.maximum(spoilt.open, spoilt.close)[exists])
    assert np.all(spoilt.low[exists] > 0)
    assert spoilt.close[420, 2] == panel.close[420, 2]
    assert np.mean(spoilt.close[421:] == panel.close[421:]) == 0
    assert np.array_equal(spoilt.close[:400], panel.close[:400], equal_nan=True)
    assert not np.any(spoilt.extras["funding"][400:] == panel.extras["funding"][400:])


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def bars(tmp_path: Path) -> Path:
    path = tmp_path / "bars.parquet"
    write_bars(RandomWalk(n_bars=900, symbols=("AAA", "BBB")).panel(), path)
    return path


def call(*words: str) -> Result:
    return CliRunner().invoke(
        main, ["audit", *words, "--set", "features.indicators=['return_1', 'rsi']"]
    )


def test_the_command_shows_a_tick_per_check_and_the_gaps(bars: Path) -> None:
    result = call("--bars", str(bars))
    assert result.exit_code == 0, result.exception
    lines = result.stdout.splitlines()
    assert len([line for line in lines if line.startswith("✓ ")]) == 11
    assert any(line.startswith("    cpcv 0+1") and "150 embargoed" in line for line in lines)
    (folds,) = [line for line in lines if FOLDS in line]
    assert folds.endswith(
        "6 splits, purge 2, embargo 150 bars, no overlap; purgedcv draws the same bars"
    )
    assert lines[-1] == f"{bars}: all 11 checks passed"


def test_the_command_fails_with_a_cross(bars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shifted_features(monkeypatch)
    result = call("--bars", str(bars), "--symbols", "BBB")
    assert result.exit_code == 1
    assert f"✗ {FEATURES}: return_1, rsi changed when bars from " in result.stdout
    assert result.stdout.splitlines()[-1].endswith(" of 11 checks failed")


def test_the_command_as_json(bars: Path, tmp_path: Path) -> None:
    config = tmp_path / "flatout.toml"
    config.write_text("[data]\nbars = 'bars.parquet'\n[market]\nfill = 'same_close'\n")
    result = call("-c", str(config), "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (found["source"], found["passed"], len(found["findings"])) == (str(bars), False, 11)
    assert [finding["name"] for finding in found["findings"] if not finding["passed"]] == [LATER]
    assert len(found["findings"][4]["details"]) == 10


def test_too_few_bars_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.parquet"
    write_bars(RandomWalk(n_bars=160).panel(), path)
    assert isinstance(call("--bars", str(path)).exception, SettingsError)
