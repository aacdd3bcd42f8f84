"""The learner finds the best policy where the best policy is known, and finds nothing where there
is nothing.

Fees are the only cost, as in the optimum. Policies are trained on the first bars of a panel and
judged, without noise, on the rest: many accounts, each on a stretch as long as a training episode.
What an agent sees of its own account (log equity, volume) grows with the stretch; on one of
thousands of bars it sees what training never showed it.

The share of the optimum is not what was earned over the optimum's long-run growth: the luck of the
held-out bars would be in it. The best policy trades the same stretches in the same kernel, and the
share is 1 - (what it earned more than the learned policy) / optimum. On the sine the best growth of
each stretch is exact.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from flatout.bars.synthetic import (
    MeanRevertingPair,
    OracleFeature,
    PlantedSignal,
    RandomWalk,
    Sine,
    SyntheticMarket,
)
from flatout.features.recipe import fit
from flatout.learners.jax_engine import evaluate, population
from flatout.learners.jax_engine.market_environment import JaxMarketEnvironment
from flatout.learners.jax_engine.noise import noise_key
from flatout.learners.lane_trees import stack_trees
from flatout.learners.metrics import metric_names
from flatout.learners.rates import Program, program_of, rates_of
from flatout.market import episode
from flatout.market.market import Market, build_market, recipe_of
from flatout.market.tape import meet
from flatout.policies.network import new_network
from flatout.settings.tables import Settings
from oracles.optimum import ChainPolicy, Optimum, optimum, optimum_on_path, share_of_optimum

Floats = NDArray[np.float64]
Starts = NDArray[np.int32]
Record = Callable[[str, object], None]  # pytest's `record_property`

COST = 1e-3  # of the notional
N_BARS, CUT = 80_000, 20_000  # bars before the cut teach, the others judge
BARS = 256  # of an episode
N_ENVS, JUDGES = 128, 256  # accounts that learn, and that judge
SEEDS, JUDGE_SEED = (0, 1, 2), 7
TRAIN = {
    "n_steps": 64, "minibatches": 4, "epochs": 4, "hidden": (32, 32), "log_std": -0.5,
    "learning_rate": 1e-3,
    "final_rate_share": 0.1, "gamma": 0.95, "gae_lambda": 0.9,
}  # fmt: skip


class Probe(NamedTuple):
    """A market and what it takes to learn it. Probes of one asset see two features each: they share
    one program.
    """

    process: SyntheticMarket
    indicators: tuple[str, ...]
    updates: int


SINE = Probe(
    Sine(n_bars=N_BARS, period_bars=15 * np.pi), ("return_1", "return_20"), 25
)  # no bar ever comes again
ORACLE = Probe(OracleFeature(n_bars=N_BARS, seed=3), ("extra:oracle", "return_1"), 25)
SIGNAL = Probe(PlantedSignal(n_bars=N_BARS, seed=3), ("extra:signal", "return_1"), 100)
PAIR = Probe(MeanRevertingPair(n_bars=N_BARS, seed=3), ("extra:spread",), 120)
WALK = Probe(RandomWalk(n_bars=N_BARS, seed=3, symbols=("WALK",)), ("return_1", "return_20"), 100)


class Judged(NamedTuple):
    """What policies did on the held-out stretches, per bar: (lane, account) each, or (account,)."""

    growth: Floats  # of the logarithm of the equity
    turnover: Floats


class Outcome(NamedTuple):
    """What training led to."""

    judged: Judged
    first_turnover: Floats  # (lane,) of the first update, with the noise of exploration
    last_turnover: Floats


# --- the market -----------------------------------------------------------------------------------


def settings_of(probe: Probe) -> Settings:
    """Proportional costs and no other limits, as the optimum has it."""
    fees = {"maker_bps": COST * 1e4, "taker_bps": COST * 1e4}
    market = {
        "action": "trade", "capital": 1.0,
        "costs": {"tiers": [fees], "half_spread_bps": 0, "impact": 0},
        "limits": {"min_notional": 0, "participation": 1},
    }  # fmt: skip
    features = {"indicators": probe.indicators, "scaler": "zscore"}
    return Settings.model_validate({"market": market, "features": features, "train": TRAIN})


def market_of(probe: Probe) -> Market:
    """All bars; features scaled by those that teach."""
    panel, settings = probe.process.panel(), settings_of(probe)
    return build_market(panel, settings, fit(recipe_of(settings.features), panel, np.arange(CUT)))


def held_out(market: Market) -> Market:
    return market.between(CUT, N_BARS, BARS)


def starts_of(market: Market) -> Starts:
    """(account,): the bars at which the judging accounts start."""
    environment = JaxMarketEnvironment(market.shape)
    noise = environment.draw(noise_key(jnp.asarray(JUDGE_SEED), 0, 0), 1, JUDGES)[0]
    tape, rules = held_out(market).arrays()
    return np.asarray(environment.reset(noise, tape, rules).t)


def independent_bars(starts: Starts) -> float:
    """How many bars that no two accounts share would say as much as these stretches, which
    overlap.
    """
    counts = np.bincount((starts[:, None] + np.arange(BARS)).ravel())
    return float(counts.sum() ** 2 / np.sum(counts**2))


def standard_error(growth: Floats, starts: Starts) -> Floats:
    """Of the mean over (..., account) growths per bar."""
    return growth.std(axis=-1) * np.sqrt(BARS / independent_bars(starts))


# --- the learner ----------------------------------------------------------------------------------


@cache
def runner(program: Program) -> Callable[..., Any]:
    """Compiled once for all probes of a shape."""
    return population.make_chunk_runner(program)


@cache
def judge(program: Program) -> Callable[..., Any]:
    """Compiled once, too."""
    return evaluate.make_evaluator(program, JUDGES, BARS)


def learn(probe: Probe, market: Market, **changes: float) -> Outcome:
    """Three seeds as three lanes of one program; `changes` are rates of all of them."""
    train = settings_of(probe).train
    program = program_of(train, JaxMarketEnvironment(market.shape), N_ENVS)
    warm = int(market.rules.segments.first[0])
    tape, teaching = market.between(warm, CUT, BARS).arrays()
    data, judging = jax.tree.map(jnp.asarray, tape), held_out(market).arrays()[1]
    rates, judged = (
        jax.tree.map(jnp.asarray, stack_trees([rates_of(train, probe.updates, rules)] * len(SEEDS)))
        for rules in (teaching, judging)
    )
    rates = rates._replace(
        **{name: jnp.full_like(getattr(rates, name), value) for name, value in changes.items()}
    )
    networks = [new_network(program.sizes, seed, train.log_std) for seed in SEEDS]
    state = population.init_lanes(program, data, rates, networks, SEEDS)
    turnovers = []
    for until in (1, probe.updates - 1, probe.updates):
        state, metrics = runner(program)(
            data, rates._replace(until=jnp.full_like(rates.until, until)), state
        )
        turnovers.append(-np.asarray(metrics)[:, metric_names(program).index("terms/turnover")])
    evaluation = judge(program)(data, judged, state.network, JUDGE_SEED)
    return Outcome(per_bar(program, evaluation), turnovers[0], turnovers[-1])


def per_bar(program: Program, evaluation: evaluate.EpisodeSums) -> Judged:
    """The figures of whole stretches."""
    assert np.all(np.asarray(evaluation.length) == BARS)
    sums = np.moveaxis(np.asarray(evaluation.terms, np.float64), -1, 0)
    terms = dict(zip(program.environment.terms, sums / BARS, strict=True))
    return Judged(terms["log_return"], -terms["turnover"])


# --- the best -------------------------------------------------------------------------------------


solved = cache(optimum)


def best_of(process: SyntheticMarket, market: Market, starts: Starts) -> tuple[Optimum, Floats]:
    """The best, and what it earns per bar on each stretch: (account,)."""
    if isinstance(process, Sine):
        close = market.panel.close[:, 0]
        bests = [optimum_on_path(close[start : start + BARS + 1], COST) for start in starts]
        realised = np.array([best.value_per_bar for best in bests])
        return bests[0]._replace(value_per_bar=float(realised.mean())), realised
    best = solved(process, COST)
    assert isinstance(best.policy, ChainPolicy)
    realised = best_in_kernel(best.policy, market, starts)
    assert (
        abs(realised.mean() - best.value_per_bar)
        < 4 * standard_error(realised, starts) + best.tolerance
    )
    return best, realised


def best_in_kernel(policy: ChainPolicy, market: Market, starts: Starts) -> Floats:
    """(account,): what the best policy of a chain earns per bar on each stretch."""
    tape, rules = held_out(market).arrays(np.float64)
    (seen,) = market.panel.extras.values()
    state = episode.reset(np.zeros(len(starts)), market.shape, rules, np)._replace(
        t=starts, last=starts + BARS
    )
    for _ in range(BARS):
        weights = (state.account.units * state.close / state.marks.equity).T
        order = best_order(policy, seen[state.t, 0], weights) * state.marks.equity[:, None]
        state, _ = episode.trade(
            state, order.T, meet(tape, state.t, np), market.shape.fill, rules, np
        )
    return np.log(state.marks.equity) / BARS


def best_order(policy: ChainPolicy, seen: Floats, weights: Floats) -> Floats:
    """(account, asset) shares of equity: from the nearest point to its target, nothing where that
    is the same point.
    """
    nearest_state = np.argmin(np.abs(policy.states[:, 0] - seen[:, None]), axis=1)
    point = np.argmin(np.sum((policy.points - weights[:, None]) ** 2, axis=-1), axis=1)
    target = policy.target[nearest_state, point]
    return np.where((target == point)[:, None], 0.0, policy.points[target] - weights)


def shares(probe: Probe, market: Market, judged: Judged) -> tuple[Floats, Floats]:
    """(lane,) shares of the optimum, and their standard errors."""
    starts = starts_of(market)
    best, realised = best_of(probe.process, market, starts)
    missed = realised - judged.growth
    reached = [
        share_of_optimum(best.value_per_bar - float(loss), best) for loss in missed.mean(axis=1)
    ]
    return np.array(reached), standard_error(missed, starts) / best.value_per_bar


def check_share(probe: Probe, least: float, record: Record) -> None:
    """Every seed reaches this share of the optimum on bars that it has not learned from, and not by
    luck.
    """
    market = market_of(probe)
    reached, error = shares(probe, market, learn(probe, market).judged)
    record("share_of_optimum", reached.round(3).tolist())
    print(f"{type(probe.process).__name__}: shares {reached.round(4)} ± {error.round(4)}")
    assert np.all(reached - 3 * error >= least)


# --- the proofs -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_turns_of_a_sine_are_learned(record_property: Record) -> None:
    check_share(SINE, 0.98, record_property)  # without the values that follow in GAE: 0.94 to 0.97


@pytest.mark.long
def test_what_an_oracle_says_is_learned(record_property: Record) -> None:
    check_share(ORACLE, 0.95, record_property)


@pytest.mark.long
def test_without_learning_there_is_no_share_of_the_optimum() -> None:
    """The tests above would fail if nothing was learned."""
    market = market_of(ORACLE)
    outcome = learn(ORACLE._replace(updates=2), market, learning_rate=0.0)
    reached, _ = shares(ORACLE, market, outcome.judged)
    assert np.all(np.abs(reached) < 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("probe", [SIGNAL, PAIR], ids=["planted signal", "mean-reverting pair"])
def test_an_edge_is_found_in_noise(probe: Probe, record_property: Record) -> None:
    check_share(probe, 0.8, record_property)


@pytest.mark.slow
def test_on_a_random_walk_trading_stops_and_nothing_is_earned(record_property: Record) -> None:
    """What the policy earns is what its costs and half its variance take, within the luck of its
    exposure.
    """
    market = market_of(WALK)
    outcome = learn(WALK, market)
    growth, turnover = (figure.mean(axis=1) for figure in outcome.judged)
    record_property("growth_per_bar", growth.tolist())
    record_property(
        "turnover_with_noise", [outcome.first_turnover.tolist(), outcome.last_turnover.tolist()]
    )
    print(
        f"growth {growth}, turnover {turnover}, explored {outcome.first_turnover} → "
        f"{outcome.last_turnover}"
    )
    assert isinstance(WALK.process, RandomWalk)
    # of a stretch's growth, which varies with the square of what was held
    squared_weight = outcome.judged.growth.var(axis=1) * BARS / WALK.process.sigma**2
    luck = standard_error(outcome.judged.growth, starts_of(market))
    explained = WALK.process.drift * squared_weight - COST * turnover
    assert np.all(np.abs(growth - explained) < 3 * luck + 1e-6)
    assert np.all(growth <= 3 * luck)
    assert np.all(outcome.last_turnover < 0.2 * outcome.first_turnover)
