"""The study of `flatout demo`, on two markets that look alike: a walk, on which nothing can be
earned, and one with a weak edge. The right answers are a refusal and a promotion.

Both have a column of signals. On the walk it says nothing; in the other market it explains about
two per cent of the next bar's move.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from flatout.bars.panel import FloatArray, Panel
from flatout.bars.source import IN_MEMORY
from flatout.bars.synthetic import PlantedSignal, built_in_market
from flatout.evaluation.accounts import Floats
from flatout.evaluation.baselines import Moment
from flatout.features.indicators import DEFAULT_INDICATORS
from flatout.search.judgement import EdgeRule
from flatout.search.run import PreparedStudy, StudyRequest, prepare
from flatout.settings.loading import Resolved
from flatout.settings.tables import Settings
from flatout.workers.devices import DeviceChoice

DemoMarket = Literal["walk", "edge"]
BARS, STRENGTH_BPS = 6000, 16.0
# others than the walk's: trials on the one market are no trials on the other
EDGE_SYMBOLS = ("KAPPA", "LAMBDA", "RHO", "SIGMA", "TAU")
SIGNAL, RULE = "signal", "knows_the_signal"
KEENNESS, THRESHOLD, PATIENCE = 8.0, 0.5, 1.0  # near the best on such markets
TABLES: dict[str, dict[str, object]] = {
    "features": {"indicators": [*DEFAULT_INDICATORS, f"extra:{SIGNAL}"]},
    "train": {"timesteps": 40_000},
    "search": {"trials": 8, "finalists": 2},
}


@dataclass(frozen=True)
class PatientRule:
    """Spreads its money by how far each asset's signal lies above a threshold, and stays with what
    it holds: a softmax of these scores, with 0 for cash.
    """

    signal: FloatArray  # (bar, asset)

    def __call__(self, moment: Moment) -> Floats:
        now = self.signal[len(moment.closes) - 1]
        scores = KEENNESS * (now - THRESHOLD + PATIENCE * moment.weights)
        scores = np.concatenate([scores, np.zeros((len(scores), 1))], axis=1)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        wanted: Floats = shares / shares.sum(axis=1, keepdims=True)
        return wanted[:, :-1] - moment.weights


def make_market(market: DemoMarket, seed: int, n_bars: int | None = None) -> Panel:
    """The bars of one of the two, with a column of signals."""
    n_bars = n_bars or BARS
    edge = PlantedSignal(
        n_bars=n_bars, seed=seed, symbols=EDGE_SYMBOLS, strength_bps=STRENGTH_BPS
    ).panel()
    return edge if market == "edge" else replace(built_in_market(n_bars, seed), extras=edge.extras)


def prepare_demo(
    names: dict[DemoMarket, str], seed: int, out: Path, chosen: DeviceChoice
) -> Iterator[PreparedStudy]:
    """The same study on each market, by the names that they get."""
    search = {**TABLES["search"], "seed": seed}
    settings = Settings.model_validate({**TABLES, "search": search})
    for market, name in names.items():
        panel = make_market(market, seed)
        made = prepare(
            StudyRequest(name, IN_MEMORY),
            Resolved(settings=settings, origin={}),
            panel,
            workers=len(chosen.slots),
            out=out,
            chosen=chosen,
        )
        rule = EdgeRule(RULE, PatientRule(panel.extras[SIGNAL])) if market == "edge" else None
        yield replace(made, known_rule=rule)
