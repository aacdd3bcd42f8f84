"""How fast the market runs: steps per second of the scalar ledger and of each driver, and the bound
that memory sets.

The workload: seven assets with fourteen features, every rule switched on, observations included.
Engines take turns, several rounds, and the best round counts: other programs on the machine can
only slow a round down. No timing stands in any test.
"""

import importlib.util
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from flatout.arrays import take_rows
from flatout.bars.panel import Panel
from flatout.bars.synthetic import RandomWalk
from flatout.bench.scalar_account import ScalarAccount, scalar_bars
from flatout.foreign import JsonTable
from flatout.market.episode import observe, private_features, step
from flatout.market.execute import fill_order, stop_out, trading_rates
from flatout.market.gymnasium_env import MarketVectorEnv
from flatout.market.market import Market, build_market
from flatout.market.orders import order_from
from flatout.market.tape import meet
from flatout.settings.tables import Settings

SIZES = (1, 64, 4096)
ACTION_SETS = 8  # drawn before the clock starts, used in turn
SECONDS = 0.4  # how long an engine runs in a round
JAX_STEPS = 64  # steps of one compiled scan
Steps = Callable[[], int]  # runs some steps and says how many

ALL_RULES: JsonTable = {
    "market": {
        "action": "trade",
        "episode_bars": 512,
        "costs": {
            "tiers": [
                {"volume": 0, "maker_bps": 60, "taker_bps": 120},
                {"volume": 10_000, "maker_bps": 40, "taker_bps": 80},
                {"volume": 50_000, "maker_bps": 25, "taker_bps": 50},
                {"volume": 100_000, "maker_bps": 12.5, "taker_bps": 25},
            ],
            "maker_share": 0.2,
        },
        "limits": {
            "lot_step": 0.0001,
            "max_weight": 0.4,
            "max_short_weight": 0.3,
            "reserve": 0.05,
            "trailing_stop": 0.05,
            "cooldown_bars": 12,
            "max_held_bars": 48,
            "trade_size": 0.3,
        },
        "reward": {
            "excess": 0.5,
            "differential_sharpe": 0.1,
            "drawdown": 0.1,
            "turnover": 0.01,
            "concentration": 0.01,
            "concentration_above": 0.2,
        },
    }
}


def bench_panel() -> Panel:
    """The bars of the market that all engines run."""
    return RandomWalk(
        n_bars=5000, symbols=tuple(f"S{i}" for i in range(7)), typical_volume=1e4
    ).panel()


def bench_market() -> Market:
    """The market that all engines run."""
    return build_market(bench_panel(), Settings.model_validate(ALL_RULES))


def scalar_steps(market: Market) -> Steps:
    """Plain Python, one account, from lists of floats: as fast as such a loop can be."""
    bars, first = scalar_bars(market, lists=True), int(market.rules.segments.first[0])
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, bars.n_assets)).tolist()

    def run() -> int:
        account = ScalarAccount(bars, first)
        for action in actions:
            account.step(action)
            account.observation()
        return len(actions)

    return run


def draw_actions(market: Market, n_envs: int, sets: int = ACTION_SETS) -> np.ndarray:
    """Uniform random actions: (set, account, action)."""
    return (
        np.random.default_rng(1)
        .uniform(-1, 1, (sets, n_envs, market.action_size))
        .astype(np.float32)
    )


def numpy_steps(market: Market, n_envs: int) -> Steps:
    """The Gymnasium vector environment on NumPy."""
    env = MarketVectorEnv(market, n_envs)
    env.reset(seed=0)
    actions = draw_actions(market, n_envs)

    def run() -> int:
        for action in actions:
            env.step(action)
        return len(actions) * n_envs

    return run


def torch_steps(market: Market, n_envs: int, compiled: bool = False) -> Steps:
    """TorchMarket on the best device there is."""
    from flatout.market.torch_market import TorchMarket, best_device

    env = TorchMarket(market, n_envs, device=best_device(), compile=compiled)
    env.reset()
    actions = env.upload(draw_actions(market, n_envs))

    def run() -> int:
        for action in actions:
            obs = env.step(action).obs
        obs[0, 0].item()  # wait for the device
        return len(actions) * n_envs

    return run


def jax_steps(market: Market, n_envs: int) -> Steps:
    """One compiled scan; the observation is carried from step to step as a policy would need it."""
    from flatout.market import jax_market

    return jax_market.timed_scan(market, draw_actions(market, n_envs, JAX_STEPS))


def measure_rate(run: Steps, seconds: float = SECONDS) -> float:
    """Steps per second over at least this time."""
    steps, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or steps == 0:
        steps += run()
    return steps / spent


def measure_bandwidth(megabytes: int = 256) -> float:
    """Bytes per second that a large copy moves, reading and writing both counted."""
    source = np.ones(megabytes * 2**20 // 4, np.float32)
    target = np.empty_like(source)

    def copy() -> int:
        np.copyto(target, source)
        return 2 * source.nbytes

    copy()
    return measure_rate(copy, 0.2)


def bytes_per_step(market: Market) -> int:
    """What a step must at least read and write: tape row, features, state in and out, action,
    observation, reward and ends.
    """
    n, width = market.shape.n_assets, market.observation_size
    state = 4 * n + 2 + 4 + n + 2  # account, marks, closes, two counters
    floats = (
        market.tape.columns.shape[0]
        + market.tape.features.shape[1]
        + 2 * state
        + market.action_size
        + width
        + 2
    )
    return 4 * floats


def profile_step(n_envs: int = 4096, rounds: int = 5) -> dict[str, float]:
    """Microseconds that the parts of a NumPy step take, each alone; the best of several rounds."""
    market = bench_market()
    env = MarketVectorEnv(market, n_envs)
    env.reset(seed=0)
    for action in draw_actions(market, n_envs, 64):
        env.step(action)
    state, (tape, rules), shape = env.state, market.arrays(np.float32), market.shape
    assert state is not None
    account, limits = state.account, rules.limits
    met, action = meet(tape, state.t, np), draw_actions(market, n_envs, 1)[0].T.copy()
    wanted = (
        order_from(
            shape.action,
            action,
            account,
            worth=state.marks.equity,
            mark=met.mark,
            limits=limits,
            xp=np,
        )
        / met.mark
    )
    rates, room = (
        trading_rates(account, met.bar, rules.costs, np),
        limits.participation * met.bar.volume,
    )
    parts: dict[str, Callable[[], object]] = {
        "step": lambda: step(state, action, tape=tape, shape=shape, rules=rules, xp=np),
        "step: read the tape": lambda: meet(tape, state.t, np),
        "step: fill orders": lambda: fill_order(
            account, wanted, price=met.bar.open, room=room, rates=rates, limits=limits, xp=np
        ),
        "step: stops": lambda: stop_out(
            account, room, bar=met.bar, rates=rates, limits=limits, xp=np
        ),
        "observe": lambda: observe(state, tape, shape=shape, rules=rules, xp=np),
        "observe: market features": lambda: take_rows(tape.features, state.t, np),
        "observe: account features": lambda: private_features(state, rules, np),
        "one `where` over all positions": lambda: np.where(
            account.units > 0, met.mark, met.bar.close
        ),
        "one product over all positions": lambda: account.units * met.mark,
    }
    return {
        name: round(1e6 * min(time_call(part) for _ in range(rounds)), 1)
        for name, part in parts.items()
    }


def time_call(part: Callable[[], object], seconds: float = 0.05) -> float:
    """Seconds that one call takes."""

    def once() -> int:
        part()
        return 1

    return 1 / measure_rate(once, seconds)


def measure_market(
    rounds: int = 5,
    sizes: tuple[int, ...] = SIZES,
    compiled: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> JsonTable:
    """Steps per second of every engine at every size, and the bound of memory bandwidth.

    `compiled` adds TorchMarket fused by torch.compile, which needs a C++ compiler and a minute for
    each size.
    """
    market = bench_market()
    engines: dict[str, Callable[[Market, int], Steps]] = {
        "numpy": numpy_steps,
        "torch": torch_steps,
        "jax": jax_steps,
    }
    if compiled:
        engines["torch_compiled"] = partial(torch_steps, compiled=True)
    if importlib.util.find_spec("torch") is None:  # an extra
        engines = {name: make for name, make in engines.items() if "torch" not in name}
    runs: dict[tuple[str, str], Steps] = {("scalar", ""): scalar_steps(market)}
    for (name, make), size in ((pair, size) for pair in engines.items() for size in sizes):
        progress(f"preparing {name} {size}")
        runs[name, str(size)] = make(market, size)
        runs[name, str(size)]()  # compilation and first touch stay outside the clock
    best = dict.fromkeys(runs, 0.0)
    bandwidth = 0.0
    for k in range(rounds):
        for key, run in runs.items():
            progress(f"round {k + 1} of {rounds}: {' '.join(key)}")
            best[key] = max(best[key], measure_rate(run))
        bandwidth = max(bandwidth, measure_bandwidth())
    table = {name: {str(size): round(best[name, str(size)]) for size in sizes} for name in engines}
    bound = bandwidth / bytes_per_step(market)
    return {
        "scalar": round(best["scalar", ""]),
        **table,
        "bound_steps_per_s": round(bound),
        "times_scalar": {
            name: {size: round(v / best["scalar", ""], 1) for size, v in row.items()}
            for name, row in table.items()
        },
        "memory_bytes_per_s": round(bandwidth),
        "bytes_per_step": bytes_per_step(market),
        "workload": (
            f"7 assets x 14 features, all rules on, observation {market.observation_size} "
            f"wide, float32"
        ),
    }
