"""A learned policy in backtests sees and orders exactly what it saw and ordered in training."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.bars.panel import Panel
from flatout.bars.synthetic import built_in_market
from flatout.errors import BarsError, BundleError, RecipeError, RulesError
from flatout.evaluation.accounts import Accounts
from flatout.evaluation.backtest import SideBySide, backtest, order_in_money
from flatout.evaluation.baselines import BASELINES, EqualWeight, Moment, Momentum, RandomTrader
from flatout.evaluation.comparison import compare
from flatout.evaluation.saved_policy import SavedPolicy, bars_of_training, load_policy
from flatout.features.recipe import Recipe, fit
from flatout.market import episode
from flatout.market.gymnasium_env import MarketEnv
from flatout.market.market import Market, build_market
from flatout.policies.bundle import Bundle
from flatout.settings.tables import Settings
from market.small_markets import INDICATORS, LIMITS
from rounding import assert_close
from small_bundles import bundle_of, market_settings, panel_of

KINDS = ("trade", "weights", "direction_amount", "discrete")
# Orders beyond the whole equity, positions that are closed to the last unit, small trades: what a
# detour through shares of the equity would get wrong.
WIDE = LIMITS | {"max_short_weight": 1.0, "max_weight": 1.0, "gross_limit": 2.0, "trade_size": 2.0}
EXACT = LIMITS | {"lot_step": 0.0, "max_short_weight": 0.0, "min_notional": 0.0, "gross_limit": 1.0}
SMALL = LIMITS | {"trade_size": 0.1, "ruin": 0.0}
SMOOTH = SMALL | {"lot_step": 0.0, "min_notional": 0.0}
CHAIN = {
    "roundings": 300 * 100,
    "size": 10.0,
}  # bars, and operations of each; observations are up to 10


@cache
def learned(
    kind: str, limits: str = "all", seed: int = 0, fill: str = "next_open"
) -> tuple[SavedPolicy, Market]:
    """A policy and its market; on bars that the recipe knows the first half of."""
    rules = {"all": LIMITS, "wide": WIDE, "exact": EXACT, "small": SMALL, "smooth": SMOOTH}[limits]
    panel = panel_of(seed, 300)
    bundle = bundle_of(panel, seed, action=kind, limits=rules, fill=fill, order_sizes=[0.3, 1.0])
    return SavedPolicy(bundle), bundle.market(panel)


def stepped(bundle: Bundle, market: Market) -> tuple[np.ndarray, np.ndarray]:
    """Equity and observations when the market is stepped directly, by the policy's own kind of
    action.
    """
    first, stop = int(market.rules.segments.first[0]), market.panel.n_bars
    tape, rules = market.between(first, stop, episode_bars=stop - first).arrays(np.float64)
    state = episode.reset(np.zeros(1), market.shape, rules, np)
    equity, seen, ended = [1.0], [], False
    while not ended:
        seen.append(episode.observe(state, tape, market.shape, rules, np)[0])
        action = bundle.act(seen[-1][None])[0].astype(np.float64)[:, None]
        state, outcome = episode.step(state, action, tape, market.shape, rules, np)
        equity.append(float(state.marks.equity[0]))
        ended = bool(outcome.terminated[0] | outcome.truncated[0])
    return np.array(equity), np.array(seen)


@dataclass(frozen=True)
class Watching(SavedPolicy):
    """Keeps what its first account was shown."""

    shown: list[np.ndarray] = field(default_factory=list)

    def money(self, moment: Moment) -> np.ndarray:
        self.shown.append(moment.require_accounts().observe()[0])
        return super().money(moment)


@pytest.mark.long
@pytest.mark.parametrize("limits", ["all", "wide", "exact", "small"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_backtest_is_the_market_stepped_directly(kind: str, limits: str) -> None:
    policy, market = learned(kind, limits, 1)
    watching = Watching(policy.bundle)
    history = backtest(market, watching, record_fills=True)
    equity, seen = stepped(policy.bundle, market)
    assert_close(history.equity[: len(equity), 0], equity, **CHAIN)
    assert_close(np.array(watching.shown)[: len(seen)], seen, **CHAIN)
    assert (
        history.equity[len(equity) :, 0] == history.equity[len(equity) - 1, 0]
    ).all()  # ruined: frozen
    assert sum(fill.kind == "stop" for fill in history.fills) > 5
    assert np.std(equity) > 1e-2


@pytest.mark.parametrize("fill", ["next_close", "same_close"])
def test_the_same_holds_for_every_fill(fill: str) -> None:
    policy, market = learned("weights", fill=fill)
    equity, _ = stepped(policy.bundle, market)
    assert_close(backtest(market, policy).equity[: len(equity), 0], equity, **CHAIN)


def test_the_same_holds_for_features_of_larger_bars(tmp_path: Path) -> None:
    """Of a policy that was saved and loaded, on hours of which it reads days."""
    panel = panel_of(1, 900)
    recipe = fit(Recipe(("return_1", "1d:volatility"), 2, "zscore"), panel, np.arange(700))
    bundle_of(panel, action="trade", limits=SMALL, recipe=recipe).save(tmp_path)
    policy = load_policy(tmp_path)
    market = policy.bundle.market(panel)
    history = backtest(market, policy)
    equity, _ = stepped(policy.bundle, market)
    assert_close(history.equity[: len(equity), 0], equity, **CHAIN)
    assert np.std(equity) > 1e-3
    result = policy.backtest(panel, progress=False)
    assert (result.first, result.stop) == (22 * 24 - 2 + 1, 900)


def test_what_it_does_depends_on_all_that_it_sees_of_itself() -> None:
    """Cooldowns and holding times are met, so the equality above is not one of zeros."""
    policy, market = learned("weights", "all", 1)
    _, seen = stepped(policy.bundle, market)
    private = seen[:, -4 * 3 :].reshape(
        len(seen), 4, 3
    )  # weight, from_best, held, cooldown of three assets
    assert (private.std(axis=0) > 1e-3).all()


@pytest.mark.parametrize("kind", KINDS)
def test_observations_are_those_of_the_training_environment(kind: str) -> None:
    """MarketEnv runs in single precision, so the two part by rounding only: there are no lots that
    could be missed.

    It is given the backtest's actions. A policy of its own would answer every rounding, and enlarge
    it.
    """
    policy, market = learned(kind, "smooth")
    watching = Watching(policy.bundle)
    backtest(market, watching)
    env = MarketEnv(market)
    first = int(market.rules.segments.first[0])
    observation, _ = env.reset(seed=0, options={"start": first})
    for expected in watching.shown[:10]:
        assert_close(observation, expected, roundings=10 * 100, size=1.0)  # ten bars
        action = policy.bundle.act(expected[None])[0]
        np.testing.assert_allclose(
            policy.bundle.act(observation[None])[0], action, rtol=0, atol=0.01
        )
        observation, *_ = env.step(action)


@pytest.mark.parametrize("kind", KINDS)
def test_side_by_side_it_does_what_it_does_alone(kind: str) -> None:
    policy, market = learned(kind, "wide")
    other = SavedPolicy(
        bundle_of(
            market.panel,
            5,
            action=kind,
            limits=WIDE,
            recipe=policy.bundle.recipe,
            order_sizes=[0.3, 1.0],
        )
    )
    policies = (Momentum(), policy, RandomTrader(seed=3), other)
    together = backtest(market, SideBySide(policies, (1, 1, 4, 2)), accounts=8)
    bounds = ((0, 1), (1, 2), (2, 6), (6, 8))
    for one, (first, stop) in zip(policies, bounds, strict=True):
        alone = backtest(market, one, accounts=stop - first)
        assert_close(together.accounts(slice(first, stop)).equity, alone.equity, **CHAIN)


def test_it_can_be_compared() -> None:
    policy, market = learned("weights")
    result = compare(market, policy, {"cash": BASELINES["cash"]}, lucky=5)
    assert_close(result.chosen.equity, backtest(market, policy).equity, **CHAIN)
    assert len(result.chosen.fills) > 10
    assert (result.baselines["cash"].equity == 1).all()


def test_baselines_order_shares_of_the_equity_whatever_the_market_is() -> None:
    """`trade_size` and the market's kind of action are the agent's, not theirs."""
    _, market = learned("trade", "wide")
    _, small = learned("direction_amount", "wide")
    limits = small.rules.limits._replace(trade_size=np.asarray(0.01))
    small = replace(small, rules=small.rules._replace(limits=limits))
    np.testing.assert_array_equal(
        backtest(market, EqualWeight(3600)).equity, backtest(small, EqualWeight(3600)).equity
    )


def test_it_also_speaks_in_shares_of_the_equity() -> None:
    policy, market = learned("weights")

    def both(moment: Moment) -> np.ndarray:
        shares = policy(moment)
        money = shares * moment.require_accounts().equity[:, None]
        np.testing.assert_allclose(money, order_in_money(policy, moment), rtol=1e-12, atol=1e-15)
        return shares

    assert backtest(market, both, accounts=2).equity.shape[1] == 2


def test_the_future_is_not_in_what_it_is_shown() -> None:
    _, market = learned("weights")
    found: list[Accounts] = []

    def looking(moment: Moment) -> np.ndarray:
        found.append(moment.require_accounts())
        return np.zeros_like(moment.weights)

    backtest(market, looking)
    closes = market.panel.close
    for accounts in found[::50]:
        t, n = int(accounts.state.t[0]), market.panel.n_assets
        assert len(accounts.tape.features) == t + 1
        np.testing.assert_array_equal(accounts.mark[:, 0], closes[t])
        np.testing.assert_array_equal(
            accounts.tape.columns[4 * n : 5 * n, -1], closes[t]
        )  # the newest bar is now's


def poisoned(panel: Panel, after: int) -> Panel:
    """Other prices from the bar after this one on."""
    factor = np.ones_like(panel.close)
    factor[after + 1 :] = np.linspace(0.7, 1.6, panel.n_assets)
    prices = {name: getattr(panel, name) * factor for name in ("open", "high", "low", "close")}
    return replace(panel, **prices)


def test_a_poisoned_future_changes_nothing_before_it() -> None:
    policy, market = learned("weights", "wide")
    other = policy.bundle.market(poisoned(market.panel, 150))
    clean, spoilt = backtest(market, policy), backtest(other, policy)
    until = int(np.searchsorted(clean.bars, 150)) + 2  # equity at the close of bar 150
    np.testing.assert_array_equal(clean.equity[:until], spoilt.equity[:until])
    assert clean.equity[until, 0] != spoilt.equity[until, 0]


# --- refusals -------------------------------------------------------------------------------------


def market_with(features: dict[str, Any], rows: int = 150, **market: Any) -> Market:
    """The market of the policy below, built otherwise: other features, training rows, or market
    keys.
    """
    panel = learned("weights")[1].panel
    recipe = Recipe(**{"indicators": INDICATORS, "lookback": 2, "scaler": "zscore"} | features)
    return build_market(
        panel, Settings(market=market_settings(**market)), fit(recipe, panel, np.arange(rows))
    )


def test_a_market_with_an_equal_recipe_is_its_own() -> None:
    policy, market = learned("weights")
    np.testing.assert_array_equal(
        backtest(market_with({}), policy).equity, backtest(market, policy).equity
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": {}, "action": "trade"},
            "the market's action is 'trade', this policy was trained with 'weights'",
        ),
        (
            {"features": {}, "fill": "same_close"},
            "the market's fill is 'same_close', .* with 'next_open'",
        ),
        ({"features": {"scaler": "robust"}}, "the market's features are not this policy's"),
        (
            {"features": {"indicators": ("roc", "return_1")}},
            "the market's features are not this policy's",
        ),
        ({"features": {"lookback": 1}}, "the market's features are not this policy's"),
        (
            {"features": {}, "rows": 300},
            "one fitted on other rows; build the market with `Bundle.market`",
        ),
    ],
)
def test_a_market_built_otherwise_is_refused(changes: dict[str, Any], message: str) -> None:
    policy, _ = learned("weights")
    with pytest.raises(BundleError, match=message):
        backtest(market_with(**changes), policy)


def test_a_moment_without_accounts_is_refused() -> None:
    policy, _ = learned("weights")
    moment = Moment(0, np.ones((5, 3)), np.zeros((1, 3)), 3600)
    with pytest.raises(
        RulesError, match=r"must see the accounts it drives: run it by backtest\(\)"
    ):
        policy(moment)


def test_without_bars_it_says_that_the_built_in_market_is_not_its_own() -> None:
    policy, _ = learned("weights")
    with pytest.raises(RecipeError, match=r"^no bars are given \(`bars`, .*unknown ALFA, BETA"):
        policy.backtest(progress=False)
    with pytest.raises(
        RecipeError, match=r"^other symbols .*give bars that hold all of the former"
    ):
        policy.backtest(built_in_market(), progress=False)


# --- other symbols --------------------------------------------------------------------------------


def policy_of_seven(tmp_path: Path) -> SavedPolicy:
    """Taught on S00 to S06, saved and loaded."""
    panel = panel_of(4, 200, 7)
    bundle_of(panel, 1, kind="per_asset", distribution="softmax").save(tmp_path / "best")
    return load_policy(tmp_path / "best")


def test_seven_symbols_by_name_are_the_policy_as_it_was(tmp_path: Path) -> None:
    policy, panel = policy_of_seven(tmp_path), panel_of(4, 200, 7)
    own = policy.backtest(panel, progress=False)
    named = policy.backtest(panel, symbols=panel.symbols, progress=False)
    assert own.facts() == named.facts()
    np.testing.assert_array_equal(own.comparison.chosen.equity, named.comparison.chosen.equity)
    assert policy.for_symbols(panel.symbols) is policy
    assert "taught" not in repr(own)


def test_a_policy_of_seven_symbols_trades_twelve_and_says_so(tmp_path: Path) -> None:
    policy = policy_of_seven(tmp_path)
    panel = panel_of(9, 200, 12)
    with pytest.raises(RecipeError, match=r"unknown S07, .*if you name them by `symbols`"):
        policy.backtest(panel, progress=False)
    result = policy.backtest(panel, symbols=panel.symbols, progress=False)
    said = "taught on other symbols, S00, S01, S02, S03, S04, S05, S06; it never saw S07, S08"
    assert said in repr(result)
    assert result.facts()["bundle"]["unseen_symbols"] == [f"S{k:02d}" for k in range(7, 12)]
    traded = {k for fill in result.comparison.chosen.fills for k in np.flatnonzero(fill.units)}
    assert traded == set(range(12))


def test_it_predicts_for_other_symbols_when_asked(tmp_path: Path) -> None:
    panel = panel_of(9, 200, 12)
    policy = policy_of_seven(tmp_path).for_symbols(panel.symbols)
    assert "taught on other symbols, S00" in repr(policy)
    observation, _ = MarketEnv(policy.bundle.market(panel)).reset(seed=0)
    shares = (policy.predict(observation) + 1) / 2
    assert shares.shape == (13,)
    assert_close(shares.sum(keepdims=True), np.ones(1), roundings=64, dtype=np.float32)
    with pytest.raises(BarsError, match="symbols are an empty list"):
        policy.for_symbols([])


# --- names and training bars ----------------------------------------------------------------------


def test_a_policy_is_called_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, market = learned("weights")
    for name, expected in (("best", "best"), ("cash", "cash-learned")):
        policy.bundle.save(tmp_path / name)
        loaded = load_policy(tmp_path / name)
        assert loaded.name == expected
        np.testing.assert_array_equal(
            backtest(loaded.bundle.market(market.panel), loaded).equity,
            backtest(market, policy).equity,
        )
    monkeypatch.chdir(tmp_path / "best")
    assert load_policy(".").name == "best"


@pytest.mark.parametrize(
    ("first", "stop", "within"), [(0, 300, 149), (100, 200, 49), (148, 200, 1), (149, 200, 0)]
)
def test_bars_of_the_training_are_counted(first: int, stop: int, within: int) -> None:
    """The recipe was fitted on rows 0 to 149; the bar of the first decision is not traded."""
    policy, market = learned("weights")
    assert bars_of_training(policy.bundle, market.panel, first, stop) == within


def test_a_policy_is_one_line(tmp_path: Path) -> None:
    bundle = bundle_of(notes={"timesteps": 2048, "best_held_out_reward": 0.25})
    policy = SavedPolicy(bundle, Path("runs/first/best"))
    symbols = ", ".join(bundle.recipe.symbols)
    assert repr(policy) == (
        f"SavedPolicy('runs/first/best': {bundle.settings.action} actions for {symbols}, "
        f"{bundle.observation_size} numbers observed, 2,048 timesteps, held-out reward 0.25)"
    )
    assert repr(SavedPolicy(bundle_of(notes={}))).endswith("numbers observed)")


def test_the_folder_of_a_run_is_answered_with_the_policies_below(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for place in ("AAA/last", "AAA/best", "BBB/best"):
        bundle_of().save(run / place)
    with pytest.raises(BundleError) as caught:
        load_policy(run)
    assert str(caught.value) == (
        f"{run} holds no policy itself; give one of those below: {run}/AAA/best, {run}/BBB/best, "
        f"{run}/AAA/last"
    )
    with pytest.raises(BundleError, match=r"give one of those below: .*/AAA/best, .*/AAA/last$"):
        load_policy(run / "AAA")
    for k in range(8):
        bundle_of().save(run / f"C{k}" / "last")
    with pytest.raises(BundleError, match=r"/last and 5 more$"):
        load_policy(run)
    with pytest.raises(BundleError, match="give a folder that a training saved a policy in"):
        load_policy(tmp_path / "nothing")


def test_a_backtest_is_one_line() -> None:
    policy, market = learned("weights")
    result = policy.backtest(market.panel, progress=False)
    total = result.metrics["learned"]["total_return"]
    assert repr(result).startswith(f"BacktestResult('learned': return {total:+.1%}, p-value ")
    assert "bars in memory, 2" in repr(result)
    assert len(repr(result)) < 200
