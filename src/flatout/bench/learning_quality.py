"""Time to quality: how much of a planted edge each way of learning earns on bars that did not
teach, after how many samples and seconds.

The market: seven assets with the usual features and a planted signal; 20,000 bars teach and 20,000
judge, at the default costs. The mark is a simple rule that reads the signal; a patient one, which
also knows what it holds, stands beside. Learners are judged
without noise, by many accounts on stretches as long as an episode. Seconds are of learning alone,
compiling and judging apart, on the device that JAX takes.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flatout.arrays import Array, ArrayTree, NumpyArray
from flatout.bars.synthetic import PlantedSignal
from flatout.bench.learning_summary import OnPoint, compare_curves
from flatout.features.indicators import DEFAULT_INDICATORS
from flatout.features.recipe import fit
from flatout.foreign import JsonTable
from flatout.learners.agent import actor_of, bound_action
from flatout.learners.engines import market_environment
from flatout.learners.forecast import usual_envs
from flatout.learners.jax_engine import population
from flatout.learners.rates import Program, Rates, program_of, rates_of
from flatout.market import episode, jax_market
from flatout.market.episode import Episode, Shape
from flatout.market.market import Market, build_market, recipe_of
from flatout.market.orders import weights_action
from flatout.policies.network import Network, new_network
from flatout.settings.tables import ActionKind, Settings
from flatout.settings.train import TrainSettings

TAUGHT, JUDGED, EPISODE = 20_000, 20_000, 256  # bars
ASSETS, STRENGTH_BPS, SAMPLES = 7, 20.0, 330_000
JUDGES = 512  # accounts
# of the samples, after which learners are judged
SHARES = (0.03, 0.06, 0.09, 0.12, 0.18, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
KEENNESS, THRESHOLDS, PATIENCE = (2.0, 4.0, 16.0), (0.0, 0.5, 1.0, 1.5), (0.5, 1.0, 1.5)  # of rules
EVERY_RULE = {
    "trailing_stop": 0.05, "cooldown_bars": 3, "max_held_bars": 48, "forced_share": 0.25,
    "reserve": 0.05, "lot_step": 1e-4,
}  # fmt: skip
PER_ASSET = {"network": "per_asset", "distribution": "softmax", "hidden": (32, 32)}
LEARNERS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "ppo per_asset, 16 x 64": {
        **PER_ASSET, "n_envs": 16, "n_steps": 64, "learning_rate": 1e-3, "log_std": -1.0,
    },
    "pathwise flat": {"algorithm": "pathwise", "distribution": "softmax", "hidden": (64, 64)},
    "pathwise per_asset": {"algorithm": "pathwise", **PER_ASSET},
    "myopic per_asset": {"algorithm": "pathwise", **PER_ASSET, "n_steps": 1, "n_envs": 2048},
}  # fmt: skip
Decide = Callable[[Episode], Array]  # the (account, action) actions of states
# The (account, action) actions of what accounts see, and of the bars at which they stand.
Act = Callable[[NumpyArray, NumpyArray], NumpyArray]


class Figures(NamedTuple):
    """What policies earn per bar on bars that did not teach."""

    growth_bps: float
    sharpe: float  # per year
    turnover: float


class Ground(NamedTuple):
    """The market, and the bars that teach and judge."""

    market: Market
    tape: ArrayTree
    taught: ArrayTree  # rules
    judged: ArrayTree

    @property
    def lesson(self) -> Market:
        """The market of the bars that teach, in episodes as long as a judge's stretch."""
        return self.market.between(int(self.market.rules.segments.first[0]), TAUGHT, EPISODE)


def make_ground(
    strength_bps: float, every_rule: bool, action: ActionKind = "weights", shorts: float = 0.0
) -> Ground:
    """The market with a signal of this strength; 0 is a walk without an edge. `shorts` is the
    largest short weight.
    """
    symbols = tuple(f"A{k}" for k in range(ASSETS))
    panel = PlantedSignal(
        n_bars=TAUGHT + JUDGED, seed=11, symbols=symbols, strength_bps=strength_bps
    ).panel()
    settings = Settings.model_validate(
        {
            "features": {"indicators": [*DEFAULT_INDICATORS, "extra:signal"]},
            "market": {
                "action": action,
                "limits": {**(EVERY_RULE if every_rule else {}), "max_short_weight": shorts},
            },
        }
    )
    fitted = fit(recipe_of(settings.features), panel, np.arange(TAUGHT))
    market = build_market(panel, settings, fitted)
    first = int(market.rules.segments.first[0])
    tape, taught = jax_market.upload(market.between(first, TAUGHT, EPISODE))
    _, judged = jax_market.upload(market.between(TAUGHT, TAUGHT + JUDGED, EPISODE))
    return Ground(market, tape, taught, judged)


def start_judges(ground: Ground) -> Episode:
    """The accounts that judge, each at the first bar of its stretch: the same for every policy."""
    noise = jax.random.uniform(jax.random.key(5), (JUDGES,))
    return episode.reset(noise, ground.market.shape, ground.judged, jax_market.xp)


def trade_judged(ground: Ground, decide: Decide) -> tuple[Array, Array]:
    """(bar, account) log returns and traded notional of a policy, without noise, on the bars that
    judge.
    """
    shape, start = ground.market.shape, start_judges(ground)

    def body(state: Episode, _: None) -> tuple[Episode, tuple[Array, Array]]:
        state, outcome = episode.step(
            state, decide(state).T, ground.tape, shape, ground.judged, jax_market.xp
        )
        return state, (outcome.terms.log_return, outcome.executed.notional)

    found: tuple[Array, Array] = jax.lax.scan(body, start, None, length=EPISODE)[1]
    return found


def trade_outside(ground: Ground, act: Act) -> tuple[Array, Array]:
    """What `trade_judged` tells, of a policy that XLA cannot compile: the same accounts on the same
    stretches, through the same kernel, but the policy is asked bar after bar.
    """
    shape, state = ground.market.shape, start_judges(ground)
    gains, traded = [], []
    for _ in range(EPISODE):
        seen = see_judged(state, ground.tape, ground.judged, shape)
        action = jnp.asarray(act(np.asarray(seen), np.asarray(state.t)), seen.dtype)
        state, gained, notional = advance_judged(state, action, ground.tape, ground.judged, shape)
        gains.append(gained)
        traded.append(notional)
    return np.stack(gains), np.stack(traded)


@partial(jax.jit, static_argnames="shape")
def see_judged(state: Episode, tape: ArrayTree, rules: ArrayTree, shape: Shape) -> Array:
    """The (account, feature) observations of accounts that judge."""
    return episode.observe(state, tape, shape, rules, jax_market.xp)


@partial(jax.jit, static_argnames="shape")
def advance_judged(
    state: Episode, action: Array, tape: ArrayTree, rules: ArrayTree, shape: Shape
) -> tuple[Episode, Array, Array]:
    """One bar: where accounts stand then, their log returns, and what they traded."""
    state, outcome = episode.step(state, action.T, tape, shape, rules, jax_market.xp)
    return state, outcome.terms.log_return, outcome.executed.notional


def describe(ground: Ground, gains: Array, traded: Array) -> Figures:
    """The figures of what accounts earned and traded."""
    gains, traded = np.asarray(gains, np.float64), np.asarray(traded, np.float64)
    deviation, per_year = float(gains.std()), ground.market.panel.bars_per_year
    sharpe = float(gains.mean()) / deviation * per_year**0.5 if deviation else 0.0
    return Figures(1e4 * float(gains.mean()), sharpe, float(traded.mean()))


Follow = Callable[[Ground, int], Iterator[JsonTable]]  # what a learner of a seed earns, by and by


class RuleFigures(NamedTuple):
    """What rules earn that read the signal, each the best of some on the bars that judge."""

    simple: Figures  # the mark: it looks at the signal only
    patient: Figures  # it also stays with what it holds


def judge_rules(ground: Ground) -> RuleFigures:
    """Shares by a softmax of how far each asset's signal lies above a threshold."""
    signal = jnp.asarray(ground.market.panel.extras["signal"], jnp.float32)

    def decide(keenness: Array, threshold: Array, patience: Array, state: Episode) -> Array:
        held = episode.weights_of(state, jax_market.xp).T
        score = keenness * (signal[state.t] - threshold + patience * held)
        scores = jnp.concatenate([score, jnp.zeros((score.shape[0], 1))], axis=1)
        return weights_action(jax.nn.softmax(scores, axis=1)[:, :-1].T, jnp).T

    look = jax.jit(lambda *rule: trade_judged(ground, partial(decide, *rule)))

    def best(patience: Sequence[float]) -> Figures:
        rules = product(KEENNESS, THRESHOLDS, patience)
        found = [describe(ground, *look(*rule)) for rule in rules]
        return max(found, key=lambda one: one.growth_bps)

    return RuleFigures(best((0.0,)), best(PATIENCE))


class Student(NamedTuple):
    """One agent that learns: a population of a single lane."""

    program: Program
    rates: Rates
    updates: int  # in all

    def decide(self, ground: Ground, network: Network, state: Episode) -> Array:
        """The mode of its policy."""
        seen = episode.observe(
            state, ground.tape, ground.market.shape, ground.judged, jax_market.xp
        )
        return self.choose(network, seen)

    def choose(self, network: Network, seen: Array) -> Array:
        """The same of what it sees: (account, action) of (account, feature)."""
        policy = actor_of(self.program, self.rates, network, seen, xp=jnp)
        return bound_action(self.program, policy, policy.mode(jnp), jnp)


def make_student(ground: Ground, changes: Mapping[str, Any], samples: int) -> Student:
    """A learner by the settings that differ from the defaults."""
    settings = TrainSettings(**changes)
    environment = market_environment(ground.market.shape, "jax")
    program = program_of(settings, environment, settings.n_envs or usual_envs(settings))
    updates = max(1, samples // program.rollout)
    rates = rates_of(settings, updates, ground.taught)
    return Student(program, jax.tree.map(lambda x: jnp.asarray(x)[None], rates), updates)


def follow_learning(
    ground: Ground, changes: Mapping[str, Any], samples: int, seed: int
) -> Iterator[JsonTable]:
    """What a learner earns out of sample after shares of its samples."""
    student = make_student(ground, changes, samples)
    network = new_network(student.program.sizes, seed, TrainSettings(**changes).log_std)
    lanes = population.init_lanes(
        student.program, ground.tape, student.rates, [network], seeds=[seed]
    )
    run = population.make_chunk_runner(student.program)
    run = run.lower(ground.tape, student.rates, lanes).compile()
    look = jax.jit(lambda network: trade_judged(ground, partial(student.decide, ground, network)))
    seconds, done = 0.0, 0
    for share in SHARES:
        until = max(1, round(share * student.updates))
        if until == done:
            continue
        rates = student.rates._replace(until=jnp.asarray([until], jnp.int32))
        began = time.perf_counter()
        lanes, _ = jax.block_until_ready(run(ground.tape, rates, lanes))
        seconds, done = seconds + time.perf_counter() - began, until
        figures = describe(ground, *look(population.take_lane(lanes.network, 0)))
        yield {
            "samples": until * student.program.rollout,
            "seconds": seconds,
            **figures._asdict(),
        }


def measure_learning(
    strength_bps: float = STRENGTH_BPS,
    samples: int = SAMPLES,
    seeds: Sequence[int] = (1,),
    learners: Sequence[str] = tuple(LEARNERS),
    every_rule: bool = False,
    action: ActionKind = "weights",
    shorts: float = 0.0,
    accounts: int | None = None,
    peers: Mapping[str, Follow] | None = None,
    on_point: OnPoint = lambda name, point: None,
) -> JsonTable:
    """Curves of all learners, and of peers beside them, on one market; and when each reached the
    marks. The rules ask for long-only weights whatever the learners ask for.
    """
    rules = judge_rules(make_ground(strength_bps, every_rule))
    ground = make_ground(strength_bps, every_rule, action, shorts)
    long_only = action == "weights" and not shorts
    follow: dict[str, Follow] = {
        **{
            name: follow_own(suit_market(LEARNERS[name], long_only, accounts), samples)
            for name in learners
        },
        **(peers or {}),
    }
    curves: dict[str, dict[int, list[JsonTable]]] = {}
    for name, points_of in follow.items():
        for seed in seeds:
            points: list[JsonTable] = []
            for point in points_of(ground, seed):
                points.append(point)
                on_point(f"{name}, seed {seed}", point)
            curves.setdefault(name, {})[seed] = points
    return {
        "strength_bps": strength_bps,
        "every_rule": every_rule,
        "action": action,
        "shorts": shorts,
        "accounts": accounts,
        "rule": rules.simple._asdict(),
        "patient_rule": rules.patient._asdict(),
        **compare_curves(curves, rules.simple.growth_bps, peers=tuple(peers or ())),
    }


def suit_market(
    changes: Mapping[str, Any], long_only: bool, accounts: int | None = None
) -> dict[str, Any]:
    """A learner's settings in a market whose actions are shares that sum to 1, or are not; with
    another number of accounts, if one is given.
    """
    kept = {k: value for k, value in changes.items() if long_only or k != "distribution"}
    return kept if accounts is None else {**kept, "n_envs": accounts}


def follow_own(changes: Mapping[str, Any], samples: int) -> Follow:
    """The points of one of our own learners, of a seed."""
    return lambda ground, seed: follow_learning(ground, changes, samples, seed)
