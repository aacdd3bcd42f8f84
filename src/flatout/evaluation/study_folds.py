"""The folds of a study: which bars teach and which judge, given what its features and rewards look
at.
"""

from flatout.bars.panel import Panel
from flatout.folds.splits import Folds, make_folds
from flatout.market.market import recipe_of
from flatout.market.tape import VOLATILITY_BARS
from flatout.settings.tables import Settings

FILL_DELAY = 1  # bars between a decision and its fill


REWARD_HORIZON = 1  # bars that one reward looks at


def make_study_folds(panel: Panel, settings: Settings) -> Folds:
    """The folds that a study on these bars uses."""
    warmup = recipe_of(settings.features).count_warmup(panel)
    # The first test block is decided one bar earlier, on features that are warm.
    return make_folds(
        settings.folds,
        panel.n_bars,
        warm=warmup + 1,
        fill_delay=FILL_DELAY,
        reward_horizon=REWARD_HORIZON,
        lookback=max(warmup, VOLATILITY_BARS),
    )
