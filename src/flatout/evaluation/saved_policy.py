"""`Learned`: a saved policy in backtests, beside the baselines and under the same rules.

It sees what training showed it and orders what training let it order; the network runs in single
precision on NumPy, the ledger in double. A market that is not the policy's is refused at the first
bar.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flatout.bars.panel import Panel
from flatout.evaluation.accounts import Floats
from flatout.evaluation.baselines import BASELINES, Moment
from flatout.market.rewards import LEAST_EQUITY
from flatout.policies.bundle import Bundle


@dataclass(frozen=True)
class SavedPolicy:
    """The policy of a bundle, without noise."""

    bundle: Bundle
    folder: Path = Path("learned")  # where it was loaded from

    @property
    def name(self) -> str:
        """What it is called beside the baselines: its folder's name."""
        name = (
            self.folder.name if self.folder.name not in ("", "..") else self.folder.resolve().name
        )
        return f"{name}-learned" if name in BASELINES else name

    def money(self, moment: Moment) -> Floats:
        """The (account, asset) order in money."""
        accounts = moment.require_accounts()
        self.bundle.check_shown(accounts.fitted, accounts.shape)
        return accounts.order(self.bundle.act(accounts.observe()))

    def __call__(self, moment: Moment) -> Floats:
        """The same as shares of the equity, as baselines give them."""
        return (
            self.money(moment) / np.maximum(moment.require_accounts().equity, LEAST_EQUITY)[:, None]
        )


def load_policy(folder: Path | str) -> SavedPolicy:
    """The policy that a training saved in this folder."""
    return SavedPolicy(Bundle.load(folder), Path(folder))


def bars_of_training(bundle: Bundle, panel: Panel, first: int, stop: int) -> int:
    """How many bars traded in a backtest of first..stop-1 lie between the first and last bar of the
    training: what is earned there may be memory.
    """
    training, times = bundle.recipe.training, panel.time[first + 1 : stop]
    start, end = (
        np.datetime64(text.removesuffix("Z")) for text in (training.first_time, training.last_time)
    )
    return int(np.sum((times >= start) & (times <= end)))
