"""The policy of a model that learned in a flatout market, as a Bundle with all it trades by."""

import numpy as np

from flatout.errors import BundleError
from flatout.market.market import Market, build_market
from flatout.policies.bundle import Bundle
from flatout.sb3.model import LearningModel
from flatout.settings.tables import MarketSettings, Settings


def make_bundle(
    model: LearningModel, market: Market | None, settings: Settings | MarketSettings | None
) -> Bundle:
    """The policy with the market's recipe and rules; `settings` are those that the market was built
    with, None for the default ones.
    """
    if market is None:
        raise BundleError(
            "this model does not learn in a flatout market on the fused engine, so there is no "
            "recipe of its features: use `save`, or give PPO a flatout.Market"
        )
    chosen = settings.market if isinstance(settings, Settings) else settings or MarketSettings()
    check_settings(market, chosen)
    notes = {
        "seed": model.learner_state.seed,
        "timesteps": model.num_timesteps,
        "learner": "flatout.PPO",
    }
    return Bundle(
        network=model.network,
        activation=model.architecture.activation,
        distribution="gaussian",
        recipe=market.fitted,
        settings=chosen,
        gates=None,
        notes=notes,
    )


def check_settings(market: Market, settings: MarketSettings) -> None:
    """Refuse settings that are not those of the market: a bundle would trade by other rules than it
    learned.
    """
    other = build_market(market.panel, Settings(market=settings), market.fitted)
    for name, own, given in (
        ("shape", market.shape, other.shape),
        ("costs", market.rules.costs, other.rules.costs),
        ("limits", market.rules.limits, other.rules.limits),
        ("reward", market.rules.reward, other.rules.reward),
        ("tape", market.tape, other.tape),
    ):
        if not all(are_equal(*pair) for pair in zip(own, given, strict=True)):
            raise BundleError(
                f"the market's {name} is not what these settings make: call "
                "save_bundle(path, settings) with the settings that the market was built with"
            )


def are_equal(one: object, other: object) -> bool:
    """Whether two fields are equal, arrays or not."""
    first, second = np.asarray(one), np.asarray(other)
    return np.array_equal(
        first, second, equal_nan=first.dtype.kind == "f" and second.dtype.kind == "f"
    )
