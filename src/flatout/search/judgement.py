"""The judgement of a study: figures of the winner's paths, what they stand beside, and the
verdict.
"""

from dataclasses import dataclass
from functools import cached_property

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
from flatout.search.callbacks import OnBar, OnStageText
from flatout.search.controls import NOISE
from flatout.search.finalist_results import FinalistResults
from flatout.search.market_study import FINAL, LOG_RETURN, TURNOVER, MarketStudy
from flatout.search.report_model import ControlFacts, DeflatedFacts, OverfittingFacts
from flatout.search.sealed import SealedResult, judge_sealed
from flatout.search.study import Study
from flatout.search.trial_files import check_fits, read_trial

TRADERS = 200
TRADED = 1e-6  # turnover from which a bar counts as a trade
# deviation of actions, which reach from -1 to 1, below which a policy hardly looks at the market
CONSTANT = 0.02
UNLEARNED = (
    "could not learn even with tomorrow's prices: give more train.timesteps or a larger "
    "train.learning_rate"
)


@dataclass(frozen=True)
class Judgement:
    """Everything that the report is made of; parts are computed when they are asked for."""

    study: Study
    finals: FinalistResults
    panel: Panel  # all bars, the sealed ones too
    source: str
    sealed: SealedResult | None
    reference: Reference

    @property
    def market(self) -> MarketStudy:
        """What all trials of the study shared."""
        return self.study.market

    @property
    def per_year(self) -> float:
        """How many bars a year has."""
        return self.market.panel.bars_per_year

    @cached_property
    def winner_returns(self) -> FloatArray:
        """(seed, path, bar) under plain conditions."""
        return self.returns_under(0)

    def returns_under(self, condition: int) -> FloatArray:
        """(seed, path, bar) of the winner under one of the conditions."""
        return path_returns(
            self.market.folds, self.finals.finalist_terms[0, condition, :, :, LOG_RETURN]
        )

    @property
    def flat_returns(self) -> FloatArray:
        """(path, bar) under plain conditions: all paths of the first seed, then of the next."""
        return self.winner_returns.reshape(-1, self.winner_returns.shape[-1])

    @property
    def chosen_returns(self) -> FloatArray:
        """(bar,) of the chosen path."""
        return self.flat_returns[self.chosen_path]

    @cached_property
    def chosen_path(self) -> int:
        """The flattened (seed, path) of median Sharpe ratio: where one path must stand for all."""
        return median_path(self.winner_returns, self.per_year)

    def along_chosen_path(self, term: int) -> FloatArray:
        """(bar,): one term of the reward, on the chosen path."""
        values = path_values(self.market.folds, self.finals.finalist_terms[0, 0, :, :, term])
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
        """All trials of the study, whatever became of them."""
        return self.study.optuna_study.get_trials(deepcopy=False)

    @cached_property
    def trials_ever(self) -> int:
        """On these bars, by this study and all others that this machine knows of."""
        note_trials(self.panel.fingerprint, str(self.study.folder.resolve()), len(self.trials))
        return trials_ever(self.panel.fingerprint)

    @cached_property
    def overfitting(self) -> OverfittingFacts | None:
        """How the best trial of one half of history did in the other half; None for too few."""
        found = overfitting_facts(self.columns, self.per_year)
        return None if found is None else OverfittingFacts.model_validate(found)

    @cached_property
    def deflation(self) -> DeflatedFacts:
        """How much of the winner's Sharpe ratio luck explains."""
        found = deflation_facts(
            paths=self.flat_returns,
            sharpes=metrics.bar_sharpe(self.columns.T),
            columns=self.columns,
            trials=self.trials_ever,
            bars_per_year=self.per_year,
        )
        return DeflatedFacts.model_validate(found)

    def median_sharpe(self, condition: int) -> float:
        """The median Sharpe ratio of the winner's paths under one of the conditions."""
        return path_figures(self.returns_under(condition), self.per_year).median_sharpe

    @cached_property
    def null_p(self) -> float:
        """The share of random traders that earn at least as much as the chosen path."""
        return share_as_good(float(np.log1p(self.chosen_returns).sum()), self.reference.traders)

    @cached_property
    def turnover(self) -> FloatArray:
        """(bar,) of the chosen path."""
        return -self.along_chosen_path(TURNOVER)

    @cached_property
    def constant(self) -> bool:
        """Whether no seed's policy looks at the market."""
        return all(is_constant(Bundle.load(folder), self.market) for folder in self.finals.policies)

    @cached_property
    def verdict(self) -> Verdict:
        """What the gates say to all of the evidence."""
        figures = path_figures(self.winner_returns, self.per_year)
        harder = list(enumerate(self.finals.conditions))
        evidence = Evidence(
            deflated_sharpe=self.deflation.dsr,
            pbo=self.overfitting.pbo if self.overfitting else None,
            probability_of_loss=self.overfitting.probability_of_loss if self.overfitting else None,
            null_p=self.null_p,
            median_sharpe=figures.median_sharpe,
            baseline_sharpes={
                n: finite(float(metrics.sharpe(r, self.per_year)))
                for n, r in self.baselines.items()
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

    @property
    def baselines(self) -> dict[str, FloatArray]:
        """(bar,) of each baseline: its returns on the judged bars."""
        return self.reference.baselines

    def judge_control(self, name: str) -> ControlFacts:
        """What agents earned in a market whose answer is known, and whether that is right."""
        block = self.market.stretches[name].test[0]
        terms = self.finals.control_terms[name][:, LOG_RETURN, 0, : block.length]
        returns = np.expm1(terms.astype(np.float64))
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
        return ControlFacts(
            sharpe=finite(float(np.median(metrics.sharpe(returns, self.per_year)))),
            probability=known,
            sentence=sentence,
            passed=passed,
        )


def judge_study(
    study: Study,
    finals: FinalistResults,
    panel: Panel,
    source: str,
    *,
    on_stage: OnStageText,
    progress: OnBar,
) -> Judgement:
    """Run the baselines and random traders, and open the seal once for the winner."""
    market = study.market
    terms = finals.finalist_terms[0, 0]
    on_stage(f"baselines and {TRADERS} random traders of equal turnover")
    reference = reference_returns(
        build_market(market.panel, market.settings, market.stretches[FINAL].fitted),
        [market.folds.groups[group] for group in market.folds.judged],
        {name: BASELINES[name] for name in BESIDE},
        turnover=-float(np.mean(path_values(market.folds, terms[:, :, TURNOVER]))),
        traders=TRADERS,
        seed=market.settings.search.seed,
        progress=progress,
    )
    sealed = None
    if market.folds.hold_out.length:
        on_stage("the sealed bars, opened once for the winner")
        sealed = judge_sealed(study.folder, market, panel, finals=finals, progress=progress)
    return Judgement(
        study=study,
        finals=finals,
        panel=panel,
        source=source,
        sealed=sealed,
        reference=reference,
    )


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
