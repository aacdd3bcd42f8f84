"""What the tracer says of a policy, bar by bar, is what a backtest of the same policy says: one
market, two drivers.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.bars.synthetic import PlantedSignal
from flatout.evaluation.backtest import History, backtest
from flatout.evaluation.baselines import Moment
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.folds.blocks import Block
from flatout.learners.jax_engine.evaluate import make_tracer
from flatout.learners.lane_trees import stack_trees
from flatout.policies.bundle import Bundle
from flatout.policies.network import Network
from flatout.search.market_study import LOG_RETURN, TERMS, TURNOVER, MarketStudy, make_study
from flatout.settings.tables import Settings
from rounding import assert_close
from small_bundles import network_of
from small_learners import QUICK

pytestmark = pytest.mark.long

PANEL = PlantedSignal(n_bars=700, symbols=("ONE", "TWO"), strength_bps=80.0).panel()
LANES, LONGER = 3, 20
CLOSE: dict[str, Any] = {
    "roundings": 200,
    "size": 1.0,
    "dtype": np.float32,
}  # a bar's changes of an equity of size 1


def settings_of(action: str = "weights", costs: float = 1.0, **limits: Any) -> Settings:
    """Every cost on; times a factor if that is asked for."""
    return Settings.model_validate(
        {
            "market": {
                "action": action,
                "costs": {
                    "tiers": [{"maker_bps": 10.0 * costs, "taker_bps": 20.0 * costs}],
                    "maker_share": 0.3,
                    "half_spread_bps": 2.0 * costs,
                    "impact": 0.5 * costs,
                    "borrow_bps_per_year": 500.0 * costs,
                },
                "limits": {"reserve": 0.1, "max_weight": 0.7, "min_notional": 0.0, **limits},
            },
            "features": {"indicators": ["return_1", "roc", "extra:signal"], "scaler": "zscore"},
            "train": {"n_envs": 4, "n_steps": 16, "hidden": [8, 8]},
            "folds": {"kind": "cpcv", "groups": 4, "test_groups": 2},
            "search": {"space": {"train.gamma": {"low": 0.9, "high": 0.99}}},
        }
    )


@cache
def study_of(action: str = "weights", **limits: Any) -> MarketStudy:
    return make_study(PANEL, settings_of(action, **limits), 4, 1)


def policy_of(study: MarketStudy, seed: int = 0) -> Network:
    """Looks at the market, but not so sharply that rounding errors grow from bar to bar."""
    sizes = study.program.sizes
    network = network_of(sizes.observation, sizes.head, seed, sizes.hidden)._replace(
        log_std=np.zeros(sizes.deviations, np.float32)
    )
    head = network.actor.head
    calm = head._replace(weight=head.weight * np.float32(0.3))
    if not sizes.deviations:  # a bias would choose the same whatever is seen
        calm = calm._replace(bias=np.zeros_like(head.bias))
    return network._replace(actor=network.actor._replace(head=calm))


@cache
def program_of(study: Any, segments: int, steps: int, most_delay: int) -> Any:
    """Compiled once for all tests."""
    return jax.jit(make_tracer(study, segments, steps, most_delay), compiler_options=QUICK)


def trace(
    study: MarketStudy, lanes: list[tuple[int, Network]], delay: Any = 0, most_delay: int = 0,
    cost_factor: float = 1.0, segments: int | None = None, judged: Any = None,
) -> np.ndarray:  # fmt: skip
    """(lane, term, segment, bar) of some (split, policy), some bars longer than the longest
    block.
    """
    count = len(lanes)
    delays = jnp.asarray(np.resize(delay, LANES), jnp.int32)
    lanes = (lanes * LANES)[:LANES]  # always as many, so that few programs are compiled
    specs = [study.lane({}, split, 0, cost_factor=cost_factor) for split, _ in lanes]
    rates = [
        spec.rates._replace(environment=spec.judged if judged is None else judged) for spec in specs
    ]
    run = program_of(
        study.program, segments or study.test_blocks, study.test_bars + LONGER, most_delay
    )
    networks = stack_trees([network for _, network in lanes])
    return np.asarray(
        run(jax.tree.map(jnp.asarray, study.tape), stack_trees(rates), networks, delays)
    )[:count]


@dataclass(frozen=True)
class Late(SavedPolicy):
    """Carries its actions out some bars later; before there is an old one, the first serves."""

    delay: int = 0
    decided: list[np.ndarray] = field(default_factory=list)

    def money(self, moment: Moment) -> np.ndarray:
        accounts = moment.require_accounts()
        self.decided.append(self.bundle.act(accounts.observe()))
        return accounts.order(self.decided[max(len(self.decided) - 1 - self.delay, 0)])


def backtested(
    study: MarketStudy,
    split: int,
    block: Block,
    network: Network,
    delay: int = 0,
    settings: Settings | None = None,
) -> History:
    """The same policy on the same bars, in NumPy, double precision but for the network."""
    where = study.stretches[study.folds.splits[split].name]
    market = (settings or study.settings).market
    bundle = Bundle(
        network,
        study.program.activation,
        study.program.distribution,
        where.fitted,
        market,
        kind=study.program.network,
    )
    return backtest(
        bundle.market(study.panel),
        Late(bundle, delay=delay),
        accounts=1,
        first=block.first - 1,
        stop=block.stop,
        record_weights=True,
    )


def check_same(traced: np.ndarray, history: History, block: Block) -> None:
    """(term, bar) of one block against its backtest; after the block's end there is nothing.

    Bar by bar, and summed up to each bar: what is wrong by little on every bar shows there.
    """
    assert traced.shape[1] >= block.length + LONGER
    np.testing.assert_array_equal(history.bars, np.arange(block.first, block.stop))
    expected = {LOG_RETURN: np.log1p(history.returns[:, 0]), TURNOVER: -history.turnover[:, 0]}
    for term, values in expected.items():
        found = traced[term, : block.length]
        assert_close(found, values, **CLOSE)
        assert_close(
            np.cumsum(found, dtype=float),
            np.cumsum(values),
            **CLOSE | {"roundings": 10 * block.length},
        )
    assert not traced[:, block.length :].any()
    assert history.weights is not None
    held = np.moveaxis(history.weights[:, 0], 0, -1)
    assert_close(traced[TERMS:, : block.length], held, **CLOSE | {"roundings": 10 * block.length})
    assert np.std(history.returns) > 1e-4
    assert history.turnover.mean() > 1e-3


@pytest.mark.parametrize("action", ["weights", "trade", "direction_amount", "discrete"])
def test_a_trace_is_a_backtest_bar_by_bar(action: str) -> None:
    """On all test blocks of two splits, for two policies side by side."""
    study = study_of(action)
    lanes = [(0, policy_of(study, 1)), (4, policy_of(study, 2))]
    found = trace(study, lanes)
    for (split, network), traced in zip(lanes, found, strict=True):
        for k, block in enumerate(study.folds.splits[split].test):
            check_same(traced[:, k], backtested(study, split, block, network), block)


def test_rules_that_forbid_are_the_same_too() -> None:
    """Stops, cooldowns, forced sales and short positions. A stop that is touched in one precision
    only would part the two for good: on these bars no decision changes if all weights do by a
    hundred roundings.
    """
    study = study_of(
        trailing_stop=0.03,
        cooldown_bars=3,
        max_held_bars=12,
        forced_share=0.5,
        max_short_weight=0.4,
        gross_limit=1.0,
    )
    network = policy_of(study, 3)
    [traced] = trace(study, [(2, network)])
    for k, block in enumerate(study.folds.splits[2].test):
        check_same(traced[:, k], backtested(study, 2, block, network), block)


def test_the_first_bar_judged_is_the_blocks_first() -> None:
    """The order that was decided one bar earlier meets it."""
    study = study_of()
    split, network = 3, policy_of(study, 1)
    block = study.folds.splits[split].test[0]
    [plain] = trace(study, [(split, network)])
    assert plain[TURNOVER, 0, 0] < -0.01
    history = backtested(study, split, block, network)
    assert history.bars[0] == block.first
    assert len(history.bars) == block.length
    equity = np.prod(1 + history.returns[:, 0])
    earned = plain[LOG_RETURN, 0, : block.length].sum(dtype=float)
    assert_close(earned, np.log(equity), **CLOSE | {"roundings": 10 * block.length})


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_a_delay_carries_old_decisions_out(delay: int) -> None:
    """One program for all delays up to the largest."""
    study = study_of()
    split, network = 1, policy_of(study, 1)
    [traced] = trace(study, [(split, network)], delay=delay, most_delay=2)
    for k, block in enumerate(study.folds.splits[split].test):
        check_same(traced[:, k], backtested(study, split, block, network, delay), block)
    if delay:
        [prompt] = trace(study, [(split, network)])
        assert np.abs(prompt[LOG_RETURN] - traced[LOG_RETURN]).max() > 1e-3


def test_lanes_have_delays_of_their_own() -> None:
    study = study_of()
    network = policy_of(study, 1)
    delays = [2, 0, 1]
    assert len(delays) == LANES
    together = trace(study, [(1, network)] * LANES, delay=delays, most_delay=2)
    for k, delay in enumerate(delays):
        [alone] = trace(study, [(1, network)], delay=delay, most_delay=2)
        assert_close(together[k], alone, **CLOSE)


@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_a_cost_factor_is_a_market_with_such_costs(factor: float) -> None:
    study = study_of()
    split, network = 0, policy_of(study, 1)
    [traced] = trace(study, [(split, network)], cost_factor=factor)
    [plain] = trace(study, [(split, network)])
    dearer = settings_of(costs=factor)
    for k, block in enumerate(study.folds.splits[split].test):
        check_same(traced[:, k], backtested(study, split, block, network, settings=dearer), block)
        change = traced[LOG_RETURN, k].sum() - plain[LOG_RETURN, k].sum()
        assert change * (1 - factor) > 0.01  # dearer earns less, cheaper more


def test_segments_of_one_call_are_those_of_calls_of_their_own() -> None:
    study = study_of()
    split, network = 2, policy_of(study, 2)
    [together] = trace(study, [(split, network)])
    judged = study.lane({}, split, 0).judged
    for k in range(2):
        segments = judged.segments._replace(
            first=judged.segments.first[[k]], stop=judged.segments.stop[[k]]
        )
        only = judged._replace(segments=segments)
        [[*terms]] = trace(study, [(split, network)], segments=1, judged=only)
        assert_close(together[:, k], np.stack(terms)[:, 0], **CLOSE)
    assert np.abs(together[LOG_RETURN, 0] - together[LOG_RETURN, 1]).max() > 1e-3


def test_after_ruin_there_is_nothing() -> None:
    """A backtest keeps what is left; both count the bar of the ruin."""
    study = study_of(ruin=0.95)
    split, network = 5, policy_of(study, 4)
    [traced] = trace(study, [(split, network)])
    ruined = 0
    for k, block in enumerate(study.folds.splits[split].test):
        history = backtested(study, split, block, network)
        assert_close(
            traced[LOG_RETURN, k, : block.length], np.log1p(history.returns[:, 0]), **CLOSE
        )
        low = np.flatnonzero(history.equity[:, 0] <= 0.95)
        if len(low):
            ruined += 1
            assert not traced[:, k, low[0] :].any()
            assert traced[LOG_RETURN, k, low[0] - 1] < 0
    assert ruined
