"""An account that pays proportional costs, written plainly and without the code it is there to
check.
"""

import numpy as np


def after_trade(held: np.ndarray, wanted: np.ndarray, cost: float) -> np.ndarray:
    """E' of E' = 1 - cost · Σ|wanted E' - held|, by repetition instead of a formula."""
    equity = np.ones(held.shape[:-1])
    for _ in range(30):
        equity = 1 - cost * np.sum(np.abs(wanted * equity[..., None] - held), axis=-1)
    return equity


def one_bar(
    wanted: np.ndarray, log_return: np.ndarray, cost: float
) -> tuple[np.ndarray, np.ndarray]:
    """Growth factor and weights after a bar; a gross weight above one is scaled back at cost."""
    worth = wanted * np.exp(log_return)
    growth = 1 - np.sum(wanted, axis=-1) + np.sum(worth, axis=-1)
    held = worth / growth[..., None]
    limited = held / np.maximum(1.0, np.sum(np.abs(held), axis=-1, keepdims=True))
    return growth * after_trade(held, limited, cost), limited


def log_growth(path: np.ndarray, log_return: np.ndarray, cost: float) -> np.ndarray:
    """Log growth from cash of weights (..., time) to trade to; NaN holds what is there."""
    held, total = np.zeros((*path.shape[:-1], 1)), np.zeros(path.shape[:-1])
    for t, step in enumerate(log_return):
        wanted = np.where(np.isnan(path[..., t, None]), held, path[..., t, None])
        growth, after = one_bar(wanted, np.array([step]), cost)
        total = total + np.log(after_trade(held, wanted, cost) * growth)
        held = after
    return total
