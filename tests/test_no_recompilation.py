"""Numbers are data: other rules, other prices, other segments run in the program that is already
compiled.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr

from flatout.market import jax_market
from flatout.market.market import Market, build_market
from flatout.settings.tables import Settings
from scenarios import random_panel

ACCOUNTS = 4
NOISE = np.full(ACCOUNTS, 0.5, np.float32)


def market(seed: int = 0, n_bars: int = 60, **limits: Any) -> Market:
    values = {"market": {"limits": limits}, "features": {"indicators": ["return_1"]}}
    return build_market(random_panel(seed, n_bars, 2), Settings.model_validate(values))


class Counted:
    """A jitted step and observation that counts how often Python traced it."""

    def __init__(self) -> None:
        self.traces = 0
        self.run = jax.jit(self._run, static_argnums=4)

    def _run(self, state: Any, action: Any, tape: Any, rules: Any, shape: Any) -> Any:
        self.traces += 1
        state, result = jax_market.step(state, action, jnp.asarray(NOISE), tape, rules, shape)
        return state, result.outcome.reward, jax_market.observe(state, tape, rules, shape)

    def play(self, market: Market, steps: int = 3) -> None:
        tape, rules = jax_market.upload(market)
        state = jax_market.reset(jnp.asarray(NOISE), rules, market.shape)
        for _ in range(steps):
            state, _, _ = self.run(
                state, jnp.zeros((ACCOUNTS, market.action_size)), tape, rules, market.shape
            )


@pytest.mark.long
def test_only_another_shape_recompiles_and_other_numbers_do_not() -> None:
    """Every rule, the prices and the segment differ; the state of one step is the input of the
    next.
    """
    counted, first = Counted(), market()
    counted.play(first)
    changes = {
        "max_weight": 0.3,
        "max_short_weight": 0.2,
        "trailing_stop": 0.1,
        "cooldown_bars": 3,
        "max_held_bars": 9,
    }
    for other in (
        market(seed=1),
        market(**changes),
        market().between(5, 30),
        market().between(5, 30, episode_bars=4),
    ):
        counted.play(other)
    assert counted.traces == counted.run._cache_size() == 1
    counted.play(replace(first, shape=first.shape._replace(fill="next_close")), steps=1)
    assert counted.traces == counted.run._cache_size() == 2  # so the counter counts


def constants(jaxpr: Any) -> list[Any]:
    """Array constants of a jaxpr and of those inside it."""
    found = list(jaxpr.consts)
    for equation in jaxpr.jaxpr.eqns:
        found += [
            c for x in equation.params.values() if isinstance(x, ClosedJaxpr) for c in constants(x)
        ]
    return found


def test_nothing_large_is_baked_into_the_program() -> None:
    first = market(n_bars=200)
    tape, rules = jax_market.upload(first)
    state = jax_market.reset(jnp.asarray(NOISE), rules, first.shape)
    action = jnp.zeros((ACCOUNTS, first.action_size))

    def size(function: Any, *inputs: Any) -> int:
        return sum(int(np.size(x)) for x in constants(jax.make_jaxpr(function)(*inputs)))

    assert size(lambda *x: Counted()._run(*x, first.shape), state, action, tape, rules) < 100
    # so it would be seen
    assert size(lambda *x: Counted()._run(*x, tape, rules, first.shape), state, action) > 1000
