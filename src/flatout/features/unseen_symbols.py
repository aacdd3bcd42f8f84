"""A fitted recipe for other symbols than those it was fitted on.

A symbol that it knows keeps its own statistics: it looks as it did in training, whatever stands
beside it. One that it never saw gets the medians of those that it knows, number by number: it is
scaled as the middle one of them. Indicators have no unit, so this is the right size for a market of
the same kind. Its own bars would be the other choice; but then a policy would change with the bars
that judge it, and with how many of them there are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flatout.bars.panel import FloatArray
from flatout.features.recipe import FittedRecipe
from flatout.features.scalers import Scaler


def move_recipe(fitted: FittedRecipe, symbols: tuple[str, ...]) -> FittedRecipe:
    """The same recipe for bars of exactly these symbols, in this order.

    >>> from flatout import Recipe
    >>> from flatout.bars.synthetic import built_in_market
    >>> from flatout.features.recipe import fit
    >>> fitted = fit(Recipe(("return_1",)), built_in_market(n_bars=300), np.arange(200))
    >>> move_recipe(fitted, ("BETA", "OMEGA")).symbols
    ('BETA', 'OMEGA')
    """
    own, middle = fitted.scaler.statistics, pool_statistics(fitted.scaler)
    columns = [
        own[:, fitted.symbols.index(symbol)] if symbol in fitted.symbols else middle
        for symbol in symbols
    ]
    scaler = fitted.scaler._replace(statistics=np.stack(columns, axis=1))
    return replace(fitted, symbols=symbols, scaler=scaler)


def pool_statistics(scaler: Scaler) -> FloatArray:
    """The median over the symbols of each number that scales, (number, feature); symbols that had
    no value in training have no say.

    Medians of centres and spreads are a centre and a spread, and those of quantiles ascend as the
    quantiles do. One odd symbol among several moves none of them far.
    """
    return np.asarray(np.nanmedian(scaler.statistics, axis=1), np.float64)


def list_unseen(taught: Sequence[str], symbols: Sequence[str]) -> list[str]:
    """Those symbols that are not among the taught ones, in their order."""
    return [symbol for symbol in symbols if symbol not in taught]
