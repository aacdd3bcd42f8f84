"""Markets whose truth is known, for studies without training: walks on which nothing can be known
of the next bar, and walks with a planted signal.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from flatout.bars.panel import BoolArray, FloatArray
from flatout.bars.synthetic import BPS, PRICE, SIGNAL, SyntheticMarket

Luck = Literal[
    "flat", "rising", "falling", "fat_tailed", "clustered", "switching", "together", "delisted"
]
Skill = Literal["planted_flat", "planted_rising", "planted_falling"]
Truth = Luck | Skill
LUCK, SKILL = get_args(Luck), get_args(Skill)
SYMBOLS = ("ALFA", "BETA", "GAMMA")
SIGMA = 0.01  # of a bar
DRIFT = 6e-4  # of a bar, where a market rises or falls: an annual Sharpe ratio of 5.6
COMMON = 0.5  # share of the variance that assets share; 0.95 where they move together
MEMORY = 0.9  # of the signal and of the volatility, from bar to bar


@dataclass(frozen=True, kw_only=True)
class KnownMarket(SyntheticMarket):
    """A walk of several assets; `strength_bps` is what a signal of one deviation adds to a bar."""

    truth: Truth = "flat"
    strength_bps: float = 0.0

    def log_returns(self) -> FloatArray:
        shape, rng = (self.n_bars, self.n_assets), self._random(PRICE)
        common = 0.95 if self.truth == "together" else COMMON
        noise = np.sqrt(common) * rng.normal(size=(self.n_bars, 1))
        noise = noise + np.sqrt(1 - common) * rng.normal(size=shape)
        drift = 0.0
        if self.truth.endswith("rising"):
            drift = DRIFT
        elif self.truth.endswith("falling"):
            drift = -DRIFT
        # the mean simple return is the drift
        moves: FloatArray = SIGMA * noise * self._volatility(rng) + drift - SIGMA**2 / 2
        moves[1:] += self.strength_bps * BPS * self._signal()[:-1]
        return np.where(self._tradable(), moves, 0.0)

    def _volatility(self, rng: np.random.Generator) -> FloatArray:
        """(bar, asset or 1): what a bar's noise is multiplied by, 1 on average of squares."""
        ones = np.ones((self.n_bars, 1))
        if self.truth == "fat_tailed":  # normal noise over this is Student's t with 3 degrees
            return np.asarray(1 / np.sqrt(rng.chisquare(3, (self.n_bars, self.n_assets))))
        if self.truth == "clustered":
            log = follow_average(rng.normal(size=(self.n_bars, 1)), 0.98)
            return np.asarray(np.exp(0.7 * log - 0.49))
        if self.truth == "switching":
            wild = np.cumsum(rng.random((self.n_bars, 1)) < 1 / 150, axis=0) % 2
            return np.asarray(np.where(wild == 1, 1.34, 0.45) * ones)
        return ones

    def _signal(self) -> FloatArray:
        """(bar, asset): of one deviation, known at the bar's close."""
        shape = (self.n_bars, self.n_assets)
        return follow_average(self._random(SIGNAL).normal(size=shape), MEMORY)

    def extras(self) -> dict[str, FloatArray]:
        return {"signal": self._signal()}

    def _tradable(self) -> BoolArray:
        tradable = super()._tradable()
        if self.truth == "delisted":
            end = int(self._random(SIGNAL).integers(self.n_bars // 4, self.n_bars))
            tradable = tradable.copy()
            tradable[end:, 0] = False
        return tradable


def follow_average(noise: FloatArray, memory: float) -> FloatArray:
    """An autoregressive process of unit deviation that forgets at this pace, along the first axis.

    It is a convolution, and thousands of them are drawn: by Fourier's transform, not step by step.
    """
    bars = len(noise)
    shocks = np.sqrt(1 - memory**2) * noise
    shocks[0] = noise[0]
    kernel = (memory ** np.arange(bars)).reshape(-1, *[1] * (noise.ndim - 1))
    size = 1 << (2 * bars - 1).bit_length()  # so long that nothing wraps around
    product = np.fft.rfft(shocks, size, axis=0) * np.fft.rfft(kernel, size, axis=0)
    found: FloatArray = np.fft.irfft(product, size, axis=0)[:bars]
    return found
