"""Synthetic markets whose best trader is known: seeded processes, each with a `panel()` of bars.

Every bar opens at the close before it, so an order that fills at the next open fills at the price
it was decided on. A market is a frozen dataclass and its panel a pure function of it: equal fields,
equal bars. Prices, signals, wicks and volume come from separate random streams: another wick
changes no close. This file does not know what the best trader earns (`oracles/optimum.py` does),
nor fees, accounts or agents.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flatout.bars.panel import BoolArray, FloatArray, Panel, TimeArray
from flatout.errors import BarsError

__all__ = ["built_in_market"]

FIRST_BAR = np.datetime64("2021-01-01T00:00:00", "us")
BPS = 1e-4
# Each kind of randomness has its own stream, numbered here once.
PRICE, SIGNAL, WICK, VOLUME = range(4)


@dataclass(frozen=True, kw_only=True)
class SyntheticMarket(ABC):
    """What all synthetic markets share; a market adds its process by giving the log returns and
    extras.
    """

    n_bars: int = 10_000  # length of the panel
    seed: int = 0  # everything random follows from it
    bar_seconds: int = 3600  # length of a bar
    symbols: tuple[str, ...] = ("SYN",)  # one column each
    start_price: float = 100.0  # open of the first bar
    wick_bps: float = 5.0  # typical reach of high and low beyond open and close
    # units per bar; large, so that no order of sane size moves the price
    typical_volume: float = 1e9

    def __post_init__(self) -> None:
        _require(self.n_bars >= 2, "n_bars", self.n_bars, "at least 2")
        _require(self.bar_seconds > 0, "bar_seconds", self.bar_seconds, "positive")
        _require(self.start_price > 0, "start_price", self.start_price, "positive")
        _require(self.wick_bps >= 0, "wick_bps", self.wick_bps, "zero or more")
        _require(self.typical_volume > 0, "typical_volume", self.typical_volume, "positive")
        distinct = len(set(self.symbols)) == len(self.symbols) > 0
        _require(distinct, "symbols", self.symbols, "one or more distinct names")

    @abstractmethod
    def log_returns(self) -> FloatArray:
        """Close over open of each bar, in logs: (time, asset)."""

    def extras(self) -> dict[str, FloatArray]:
        """What can be seen at each bar's close besides the bar: (time, asset) each."""
        return {}

    @property
    def n_assets(self) -> int:
        return len(self.symbols)

    def panel(self) -> Panel:
        """The bars of this market."""
        log_price = np.log(self.start_price) + np.cumsum(self.log_returns(), axis=0)
        close = np.exp(log_price)
        open_ = np.vstack([np.full((1, self.n_assets), self.start_price), close[:-1]])
        up, down = np.exp(self.wick_bps * BPS * np.abs(self._normal(WICK, 2)))
        return Panel(
            symbols=self.symbols,
            time=self._time(),
            bar_seconds=self.bar_seconds,
            open=open_,
            high=np.maximum(open_, close) * up,
            low=np.minimum(open_, close) / down,
            close=close,
            volume=self.typical_volume * np.exp(0.25 * self._normal(VOLUME)),
            tradable=self._tradable(),
            extras=self.extras(),
        )

    def _time(self) -> TimeArray:
        step = np.timedelta64(self.bar_seconds * 1_000_000, "us")
        time: TimeArray = FIRST_BAR + np.arange(self.n_bars) * step
        return time

    def _tradable(self) -> BoolArray:
        return np.ones((self.n_bars, self.n_assets), dtype=np.bool_)

    def _random(self, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence((self.seed, stream))))

    def _normal(self, stream: int, *blocks: int) -> FloatArray:
        return self._random(stream).standard_normal((*blocks, self.n_bars, self.n_assets))


@dataclass(frozen=True, kw_only=True)
class RandomWalk(SyntheticMarket):
    """No edge: every expected simple return is exactly zero, whatever was seen before."""

    symbols: tuple[str, ...] = ("WALK_A", "WALK_B", "WALK_C")
    sigma: float = 0.01  # standard deviation of a bar's log return
    correlation: float = 0.0  # between any two assets, by one common factor; 0 to 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.sigma >= 0, "sigma", self.sigma, "zero or more")
        _require(0 <= self.correlation <= 1, "correlation", self.correlation, "in [0, 1]")

    @property
    def drift(self) -> float:
        """Mean log return that makes the mean simple return zero."""
        return -0.5 * self.sigma**2

    def log_returns(self) -> FloatArray:
        own, common = self._normal(PRICE, 2)
        noise = np.sqrt(1 - self.correlation) * own + np.sqrt(self.correlation) * common[:, :1]
        returns: FloatArray = self.drift + self.sigma * noise
        return returns


@dataclass(frozen=True, kw_only=True)
class PlantedSignal(SyntheticMarket):
    """log return of bar t+1 = strength · signal at the close of t + sigma · noise; one signal per
    asset.

    The signal is a Markov chain: it stays with probability `persistence`, else a level is drawn,
    all alike. The mean simple return lies sigma² / 2 above the mean log return, as for any noisy
    price.
    """

    symbols: tuple[str, ...] = ("SIGNAL",)
    strength_bps: float = 20.0  # expected log return of the next bar per unit of signal
    sigma: float = 0.01  # standard deviation of the noise in a bar's log return
    levels: tuple[float, ...] = (-1.0, 0.0, 1.0)  # the values of the signal
    persistence: float = 0.9  # autocorrelation of the signal at one bar

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.sigma >= 0, "sigma", self.sigma, "zero or more")
        _require(len(self.levels) > 0, "levels", self.levels, "one level or more")
        _require(0 <= self.persistence < 1, "persistence", self.persistence, "in [0, 1)")

    @property
    def strength(self) -> float:
        """Expected log return of the next bar per unit of signal, as a fraction."""
        return self.strength_bps * BPS

    @property
    def information_coefficient(self) -> float:
        """Correlation of the signal with the next bar's log return."""
        explained = abs(self.strength) * float(np.std(self.levels))
        total = float(np.hypot(explained, self.sigma))
        return float(np.sign(self.strength)) * explained / total if total > 0 else 0.0

    @property
    def transition(self) -> FloatArray:
        """Probability of the next level (column) given this one (row)."""
        n = len(self.levels)
        return self.persistence * np.eye(n) + (1 - self.persistence) / n

    def _signal(self) -> FloatArray:
        """(time + 1, asset): the row before the first bar moves the first bar."""
        random, shape = self._random(SIGNAL), (self.n_bars + 1, self.n_assets)
        drawn = random.integers(len(self.levels), size=shape)
        redraw = random.random(shape) >= self.persistence
        redraw[0] = True
        last_drawn_at = np.maximum.accumulate(
            np.where(redraw, np.arange(shape[0])[:, None], 0), axis=0
        )
        signal: FloatArray = np.asarray(self.levels)[
            np.take_along_axis(drawn, last_drawn_at, axis=0)
        ]
        return signal

    def log_returns(self) -> FloatArray:
        return self.strength * self._signal()[:-1] + self.sigma * self._normal(PRICE)

    def extras(self) -> dict[str, FloatArray]:
        return {"signal": self._signal()[1:]}


@dataclass(frozen=True, kw_only=True)
class MeanRevertingPair(SyntheticMarket):
    """Two assets with a common random factor; their log spread is an AR(1) around zero.

    log price = log start + factor ± spread / 2: the first asset is dear at a positive spread. At
    spread zero neither asset has an edge: the factor's drift makes both expected simple returns
    zero there.
    """

    symbols: tuple[str, ...] = ("PAIR_A", "PAIR_B")
    sigma_common: float = 0.01  # standard deviation of the common factor's log return
    sigma_spread: float = 0.01  # standard deviation of the spread's innovation
    persistence: float = 0.9  # autocorrelation of the spread at one bar

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.n_assets == 2, "symbols", self.symbols, "two names")
        _require(self.sigma_common >= 0, "sigma_common", self.sigma_common, "zero or more")
        _require(self.sigma_spread > 0, "sigma_spread", self.sigma_spread, "positive")
        _require(0 <= self.persistence < 1, "persistence", self.persistence, "in [0, 1)")

    @property
    def drift(self) -> float:
        """Mean log return of the common factor."""
        return -0.5 * self.sigma_common**2 - 0.125 * self.sigma_spread**2

    @property
    def stationary_spread(self) -> float:
        """Long-run standard deviation of the spread."""
        return self.sigma_spread / float(np.sqrt(1 - self.persistence**2))

    def _draw_spread(self) -> FloatArray:
        """(time + 1,): starts at zero, as both prices start alike."""
        shocks = self.sigma_spread * self._random(SIGNAL).standard_normal(self.n_bars)
        spread = np.zeros(self.n_bars + 1)
        for t, shock in enumerate(shocks):
            spread[t + 1] = self.persistence * spread[t] + shock
        return spread

    def log_returns(self) -> FloatArray:
        factor = self.drift + self.sigma_common * self._random(PRICE).standard_normal(self.n_bars)
        half = 0.5 * np.diff(self._draw_spread())
        return np.column_stack([factor + half, factor - half])

    def extras(self) -> dict[str, FloatArray]:
        return {"spread": np.column_stack([self._draw_spread()[1:]] * 2)}


@dataclass(frozen=True, kw_only=True)
class Sine(SyntheticMarket):
    """A price that swings for ever: log close = log start + amplitude · sin(2π · time / period)."""

    symbols: tuple[str, ...] = ("SINE",)
    amplitude: float = 0.05  # of the log price
    period_bars: float = 48.0  # bars per swing

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.period_bars > 0, "period_bars", self.period_bars, "positive")

    def log_returns(self) -> FloatArray:
        angle = 2 * np.pi * np.arange(self.n_bars + 1) / self.period_bars
        return np.repeat(np.diff(self.amplitude * np.sin(angle))[:, None], self.n_assets, axis=1)


@dataclass(frozen=True, kw_only=True)
class OneJump(SyntheticMarket):
    """A flat price that jumps once; the bar before the jump is marked 1 in the extra
    `jump_next`.
    """

    symbols: tuple[str, ...] = ("JUMP",)
    size: float = 0.1  # simple return of the jump
    jump_bar: int | None = None  # the bar that closes at the new price; None: drawn from the seed

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.size > -1, "size", self.size, "above -1")
        in_panel = self.jump_bar is None or 1 <= self.jump_bar < self.n_bars
        _require(
            in_panel,
            "jump_bar",
            self.jump_bar,
            "in 1..n_bars-1, so that a trader can see a bar before it",
        )

    @property
    def bar(self) -> int:
        """The number of the bar that jumps."""
        if self.jump_bar is not None:
            return self.jump_bar
        return int(self._random(PRICE).integers(1, self.n_bars))

    def log_returns(self) -> FloatArray:
        returns = np.zeros((self.n_bars, self.n_assets))
        returns[self.bar] = np.log1p(self.size)
        return returns

    def extras(self) -> dict[str, FloatArray]:
        mark = np.zeros((self.n_bars, self.n_assets))
        mark[self.bar - 1] = 1.0
        return {"jump_next": mark}


@dataclass(frozen=True, kw_only=True)
class OracleFeature(SyntheticMarket):
    """Independent returns of mean zero (simple); the next bar's log return is the extra
    `oracle`.
    """

    symbols: tuple[str, ...] = ("ORACLE",)
    sigma: float = 0.01  # standard deviation of a bar's log return

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.sigma > 0, "sigma", self.sigma, "positive")

    @property
    def drift(self) -> float:
        """Mean log return that makes the mean simple return zero."""
        return -0.5 * self.sigma**2

    def _returns(self) -> FloatArray:
        """(time + 1, asset): the last bar's oracle speaks of a bar that the panel does not hold."""
        noise = self._random(PRICE).standard_normal((self.n_bars + 1, self.n_assets))
        return self.drift + self.sigma * noise

    def log_returns(self) -> FloatArray:
        return self._returns()[:-1]

    def extras(self) -> dict[str, FloatArray]:
        return {"oracle": self._returns()[1:]}


def built_in_market(n_bars: int = 4000, seed: int = 0) -> Panel:
    """The market that commands take where no bars are given: a random walk of five assets, on which
    nothing can be earned.

    >>> built_in_market(n_bars=100).close.shape
    (100, 5)
    """
    return RandomWalk(
        n_bars=n_bars, seed=seed, symbols=("ALFA", "BETA", "DELTA", "GAMMA", "OMEGA")
    ).panel()


def _require(holds: bool, name: str, given: object, allowed: str) -> None:
    if not holds:
        raise BarsError(f"{name} is {given!r}; it must be {allowed}")
