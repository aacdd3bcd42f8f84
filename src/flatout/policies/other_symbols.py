"""A policy on symbols that did not teach it, where somebody names them.

A network that looks at each asset has no place for a symbol and no number of them. What a bundle
holds by symbol is its scaling, which `features/unseen_symbols.py` moves, and its lot steps, which
must be given: nobody can know another symbol's.
"""

from collections.abc import Sequence
from dataclasses import replace

from flatout.errors import BundleError
from flatout.features.unseen_symbols import list_unseen, move_recipe
from flatout.foreign import shorten
from flatout.policies.bundle import Bundle
from flatout.settings.tables import MarketSettings

LONGEST = 200  # letters of symbols in a sentence


def move_bundle(bundle: Bundle, symbols: tuple[str, ...]) -> Bundle:
    """The same policy for bars of exactly these symbols, in this order; itself if they are its
    own.
    """
    own = bundle.recipe.symbols
    if symbols == own:
        return bundle
    if bundle.kind == "flat":
        raise BundleError(
            f"symbols are {name_all(symbols)}, and this policy trades exactly {name_all(own)}, in "
            "this order: its network is flat, with a place for each of them; name these, or train "
            'with train.network = "per_asset", which also trades other symbols'
        )
    if bundle.taught:
        raise BundleError(
            f"symbols are {name_all(symbols)}, and this policy was taken from "
            f"{name_all(bundle.taught)} to {name_all(own)} already: take the one that was taught"
        )
    return replace(
        bundle,
        recipe=move_recipe(bundle.recipe, symbols),
        settings=keep_lot_steps(bundle.settings, symbols),
        taught=own,
    )


def keep_lot_steps(settings: MarketSettings, symbols: Sequence[str]) -> MarketSettings:
    """The settings without the lot steps of symbols that are not traded."""
    steps = settings.limits.lot_step
    if not isinstance(steps, dict):
        return settings
    kept = {symbol: step for symbol, step in steps.items() if symbol in symbols}
    limits = settings.limits.model_copy(update={"lot_step": kept})
    return settings.model_copy(update={"limits": limits})


def describe_taught(bundle: Bundle) -> str:
    """Which symbols taught a policy that is asked to trade others; empty if it trades its own."""
    own = bundle.recipe.symbols
    if not bundle.taught or set(bundle.taught) == set(own):
        return ""
    if unseen := list_unseen(bundle.taught, own):
        return (
            f"taught on other symbols, {name_all(bundle.taught)}; it never saw "
            f"{name_all(unseen)}, whose indicators are scaled by the medians of those that it saw"
        )
    return f"taught on more symbols, {name_all(bundle.taught)}"


def name_all(symbols: Sequence[str]) -> str:
    """Symbols for a sentence, as far as it has room."""
    return shorten(", ".join(symbols), LONGEST)
