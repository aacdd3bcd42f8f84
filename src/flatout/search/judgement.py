"""The judgement of a study: figures of the winner's paths, what they stand beside, and the
verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import optuna

from flatout.bars.panel import FloatArray, Panel
from flatout.evaluation import metrics
from flatout.evaluation.baselines import BASELINES
from flatout.evaluation.deflation import probabilistic_sharpe
from flatout.evaluation.evidence import deflation_facts, overfitting_facts
from flatout.evaluation.held_out import BESIDE
from flatout.evaluation.paths import (
    finite,
    median_path,
    path_figures,
    path_returns,
    path_values,
    trial_returns,
)
from flatout.evaluation.reference import Reference, reference_returns, share_as_good
from flatout.evaluation.trial_registry import note_trials, trials_ever
from flatout.evaluation.verdict import Evidence, Verdict, give_verdict
from flatout.market import episode
from flatout.market.market import build_market
from flatout.policies.bundle import Bundle
from flatout.search.controls import NOISE
from flatout.search.finalists import Closing
from flatout.search.market_study import FINAL, LOG_RETURN, TURNOVER, MarketStudy
from flatout.search.sealed import SealedResult, judge_sealed
from flatout.search.study import Study
from flatout.search.trial_files import check_fits, read_trial

TRADERS = 200
TRADED = 1e-6  # turnover from which a bar counts as a trade
# deviation of actions, which reach from -1 to 1, below which a policy hardly looks at the market
CONSTANT = 0.02
Said = Callable[[str], None]
UNLEARNED = (
    "could not learn even with tomorrow's prices: give more train.timesteps or a larger "
    "train.learning_rate"
)


@dataclass(frozen=True)
class Judgement:
    """Everything that the report is made of; parts are computed when they are asked for."""

    study: Study
    closing: Closing
    panel: Panel  # all bars, the sealed ones too
    source: str
    sealed: SealedResult | None
    reference: Reference

    @property
    def market(self) -> MarketStudy:
        return self.study.market

    @property
    def per_year(self) -> float:
        return self.market.panel.bars_per_year

    @cached_property
    def winner_returns(self) -> FloatArray:
        """(seed, path, bar) under plain conditions."""
        return self.returns_under(0)

    def returns_under(self, condition: int) -> FloatArray:
        """(seed, path, bar) of the winner under one of the conditions."""
        return path_returns(
            self.market.folds, self.closing.finalist_terms[0, condition, :, :, LOG_RETURN]
        )

    @cached_property
    def chosen_path(self) -> int:
        """The flattened (seed, path) of median Sharpe ratio: where one path must stand for all."""
        return median_path(self.winner_returns, self.per_year)

    def along_chosen_path(self, term: int) -> FloatArray:
        """One term of each bar of that path."""
        values = path_values(self.market.folds, self.closing.finalist_terms[0, 0, :, :, term])
        found: FloatArray = values.reshape(-1, values.shape[-1])[self.chosen_path]
        return found

    @cached_property
    def columns(self) -> FloatArray:
        """(bar, trial): the returns of all complete trials."""
        complete = [t.number for t in self.trials if t.state == optuna.trial.TrialState.COMPLETE]
        files = [read_trial(self.study.folder, number) for number in complete]
        for file in files:
            check_fits(file, self.market.folds)
        return np.stack(
            [trial_returns(self.market.folds, file.log_return) for file in files], axis=1
        )

    @cached_property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        return self.study.study.get_trials(deepcopy=False)

    @cached_property
    def trials_ever(self) -> int:
        """On these bars, by this study and all others that this machine knows of."""
        note_trials(self.panel.fingerprint, str(self.study.folder.resolve()), len(self.trials))
        return trials_ever(self.panel.fingerprint)

    @cached_property
    def overfitting(self) -> dict[str, Any] | None:
        return overfitting_facts(self.columns, self.per_year)

    @cached_property
    def deflated(self) -> dict[str, Any]:
        paths = self.winner_returns.reshape(-1, self.winner_returns.shape[-1])
        sharpes = metrics.bar_sharpe(self.columns.T)
        return deflation_facts(paths, sharpes, self.columns, self.trials_ever, self.per_year)

    def median_sharpe(self, condition: int) -> float:
        """Of the winner's paths."""
        return path_figures(self.returns_under(condition), self.per_year).median_sharpe

    @cached_property
    def null_p(self) -> float:
        chosen = self.winner_returns.reshape(-1, self.winner_returns.shape[-1])[self.chosen_path]
        return share_as_good(float(np.log1p(chosen).sum()), self.reference.traders)

    @cached_property
    def turnover(self) -> FloatArray:
        """(bar,) of the chosen path."""
        return -self.along_chosen_path(TURNOVER)

    @cached_property
    def constant(self) -> bool:
        """Whether no seed's policy looks at the market."""
        return all(
            is_constant(Bundle.load(folder), self.market) for folder in self.closing.policies
        )

    @cached_property
    def verdict(self) -> Verdict:
        figures = path_figures(self.winner_returns, self.per_year)
        harder = list(enumerate(self.closing.conditions))
        evidence = Evidence(
            deflated_sharpe=self.deflated["dsr"],
            pbo=self.overfitting["pbo"] if self.overfitting else None,
            probability_of_loss=self.overfitting["probability_of_loss"]
            if self.overfitting
            else None,
            null_p=self.null_p,
            median_sharpe=figures.median_sharpe,
            baseline_sharpes={
                n: finite(float(metrics.sharpe(r, self.per_year))) for n, r in self.beside().items()
            },
            cost_sharpes={c.cost_factor: self.median_sharpe(k) for k, c in harder if c.delay == 0},
            delay_sharpes={
                c.delay: self.median_sharpe(k) for k, c in harder if c.cost_factor == 1.0
            },
            trades=int(np.sum(self.turnover > TRADED)),
            worst_path=float(np.min(figures.total_return)),
            hold_out_sharpe=self.sealed.median_sharpe if self.sealed else None,
            constant=self.constant,
        )
        return give_verdict(self.market.settings.gates, evidence)

    def beside(self) -> dict[str, FloatArray]:
        """Returns of the baselines."""
        return self.reference.baselines

    def control(self, name: str) -> dict[str, Any]:
        """What agents earned in a market whose answer is known."""
        block = self.market.stretches[name].test[0]
        returns = np.expm1(
            self.closing.control_terms[name][:, LOG_RETURN, 0, : block.length].astype(np.float64)
        )
        sharpes = metrics.sharpe(returns, self.per_year)
        known = float(np.median([probabilistic_sharpe(path) for path in returns]))
        found = known >= 0.95
        if name == NOISE:
            sentence = (
                "found an edge where there is none"
                if found
                else "found nothing where there is nothing"
            )
            passed = not found
        else:
            sentence = "learned from tomorrow's prices" if found else UNLEARNED
            passed = found
        sharpe = float(np.median(sharpes))
        return {
            "sharpe": finite(sharpe),
            "probability": known,
            "sentence": sentence,
            "passed": passed,
        }


def judge(
    study: Study,
    closing: Closing,
    panel: Panel,
    source: str,
    said: Said,
    progress: Callable[[int], None],
) -> Judgement:
    """Run the baselines and random traders, and open the seal once for the winner."""
    market = study.market
    terms = closing.finalist_terms[0, 0]
    turnover = -float(np.mean(path_values(market.folds, terms[:, :, TURNOVER])))
    said(f"baselines and {TRADERS} random traders of equal turnover")
    plain = build_market(market.panel, market.settings, market.stretches[FINAL].fitted)
    blocks = [market.folds.groups[group] for group in market.folds.judged]
    seed = market.settings.search.seed
    reference = reference_returns(
        plain, blocks, {name: BASELINES[name] for name in BESIDE}, turnover, TRADERS, seed, progress
    )
    sealed = None
    if market.folds.hold_out.length:
        said("the sealed bars, opened once for the winner")
        sealed = judge_sealed(study.folder, market, panel, closing, progress)
    return Judgement(study, closing, panel, source, sealed, reference)


def is_constant(bundle: Bundle, study: MarketStudy, bars: int = 500) -> bool:
    """Whether a policy would order the same at every bar, from a flat account."""
    market = bundle.market(study.panel)
    tape, rules = market.arrays(np.float64)
    block = study.stretches[FINAL].train[0]
    rows = np.unique(
        np.linspace(block.first, block.stop - 1, min(bars, block.length)).astype(np.int64)
    )
    state = episode.reset(np.zeros(len(rows)), market.shape, rules, np)._replace(t=rows)
    actions = bundle.act(episode.observe(state, tape, market.shape, rules, np))
    return bool(np.max(np.std(np.asarray(actions), axis=0)) < CONSTANT)
