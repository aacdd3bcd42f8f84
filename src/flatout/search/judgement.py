"""The judgement of a study: figures of the winner's paths, what they stand beside, and the
verdict.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import optuna

from flatout.bars.panel import FloatArray, Panel
from flatout.errors import RunError
from flatout.evaluation.baselines import BASELINES, Policy
from flatout.evaluation.decisions import Activity, Decisions, find_decisions
from flatout.evaluation.evidence import Harder, Weighed, Winner, weigh_winner
from flatout.evaluation.held_out import BESIDE
from flatout.evaluation.other_studies import OtherStudies, find_other_studies
from flatout.evaluation.paths import (
    median_path,
    path_figures,
    path_returns,
    path_skill,
    path_values,
)
from flatout.evaluation.reference import Reference, run_baselines
from flatout.evaluation.shifted import COPIES, ShiftedNull, compare_with_moves
from flatout.evaluation.verdict import Verdict, give_verdict
from flatout.market.market import build_market
from flatout.search.about_study import NO_WEIGHTS
from flatout.search.callbacks import OnBar, OnStageText
from flatout.search.finalist_results import FinalistResults
from flatout.search.hold_out_wear import describe_wear, mark_verdict
from flatout.search.market_study import FINAL, LOG_RETURN, TURNOVER, MarketStudy
from flatout.search.report_model import DeflatedFacts, OverfittingFacts
from flatout.search.sealed import SealedResult, judge_sealed
from flatout.search.study import Study
from flatout.search.trial_files import check_fits, read_trial

TRADED = 1e-6  # turnover from which a bar counts as one with trades


class EdgeRule(NamedTuple):
    """A rule that knows the edge of a made-up market: what could be earned there."""

    name: str  # among the baselines
    policy: Policy


@dataclass(frozen=True)
class Judgement:
    """Everything that the report is made of; parts are computed when they are asked for."""

    study: Study
    finals: FinalistResults
    panel: Panel  # all bars, the sealed ones too
    source: str
    sealed: SealedResult | None
    references: dict[str, Reference]  # of the baselines
    null: ShiftedNull
    known_rule: str | None = None  # the name of that baseline

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

    def skill_under(self, condition: int, finalist: int = 0) -> FloatArray:
        """(seed, path, bar): returns of a finalist in excess of its average weights, held."""
        return find_skill(self.market, self.finals, condition, finalist)

    @cached_property
    def flat_skill(self) -> FloatArray:
        """(path, bar): the skill returns of `flat_returns`."""
        found = self.skill_under(0)
        return found.reshape(-1, found.shape[-1])

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
        """The flattened (seed, path) of median skill: where one path must stand for all."""
        return choose_path(self.market, self.finals)

    def along_chosen_path(self, term: int) -> FloatArray:
        """(bar,): one term of the reward, on the chosen path."""
        values = path_values(self.market.folds, self.finals.finalist_terms[0, 0, :, :, term])
        found: FloatArray = values.reshape(-1, values.shape[-1])[self.chosen_path]
        return found

    @cached_property
    def columns(self) -> FloatArray:
        """(bar, trial): the skill returns of all complete trials, each the mean over its seeds and
        paths, as if the money were spread evenly over all of a trial's agents.
        """
        complete = [t.number for t in self.trials if t.state == optuna.trial.TrialState.COMPLETE]
        files = [read_trial(self.study.folder, number) for number in complete]
        found = []
        for file in files:
            check_fits(file, self.market.folds)
            if file.weight_sums is None:
                raise RunError(f"{self.study.folder}: {NO_WEIGHTS}")
            skill = path_skill(
                self.market.folds, file.log_return, file.weight_sums, self.market.timeline
            )
            found.append(skill.mean(axis=(0, 1)))
        return np.stack(found, axis=1)

    @cached_property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """All trials of the study, whatever became of them."""
        return self.study.optuna_study.get_trials(deepcopy=False)

    @cached_property
    def others(self) -> OtherStudies:
        """What all studies in the registry of this user saw of these bars."""
        self.study.entry.note_trials(len(self.trials))
        return find_other_studies(self.study.entry)

    @property
    def trials_ever(self) -> int:
        """On these bars or part of them, by this study and all others of this user."""
        return self.others.trials_ever

    @cached_property
    def weighed(self) -> Weighed:
        """All of the evidence."""
        return weigh_winner(
            Winner(
                skill=self.flat_skill,
                returns=self.flat_returns,
                chosen=self.chosen_path,
                decisions=self.decisions,
                columns=self.columns,
                trials=self.trials_ever,
                bars_per_year=self.per_year,
                baselines={name: one.skill for name, one in self.references.items()},
                harder=[
                    Harder(c.cost_factor, c.delay, self.median_skill(k))
                    for k, c in enumerate(self.finals.conditions)
                ],
                null_p=self.null.p_value,
                hold_out_sharpe=self.sealed.median_skill if self.sealed else None,
            )
        )

    @cached_property
    def overfitting(self) -> OverfittingFacts | None:
        """How the best trial of one half of history did in the other half; None for too few."""
        found = self.weighed.overfitting
        return None if found is None else OverfittingFacts.model_validate(found)

    @cached_property
    def deflation(self) -> DeflatedFacts:
        """How much of the winner's Sharpe ratio luck explains."""
        return DeflatedFacts.model_validate(self.weighed.deflation)

    def median_skill(self, condition: int) -> float:
        """The median Sharpe ratio of the winner's skill under one of the conditions."""
        return path_figures(self.skill_under(condition), self.per_year).median_sharpe

    @cached_property
    def turnover(self) -> FloatArray:
        """(bar,) of the chosen path."""
        return -self.along_chosen_path(TURNOVER)

    @cached_property
    def decisions(self) -> Decisions:
        """What the chosen path decided."""
        return find_path_decisions(self.market, self.finals, self.chosen_path)

    @property
    def activity(self) -> Activity:
        """How much the chosen path moves about."""
        return self.weighed.activity

    @cached_property
    def verdict(self) -> Verdict:
        """What the gates say to all of the evidence."""
        gates = self.market.settings.gates
        return mark_verdict(give_verdict(gates, self.weighed.evidence), self.hold_out_mark)

    @property
    def hold_out_mark(self) -> str | None:
        """What the hold-out lost of its freshness before it was opened; None if nothing."""
        return describe_wear(self.others.sealed) if self.sealed and self.others.sealed else None

    @property
    def baselines(self) -> dict[str, FloatArray]:
        """(bar,) of each baseline: its returns on the judged bars."""
        return {name: one.returns for name, one in self.references.items()}


def judge_study(
    study: Study,
    finals: FinalistResults,
    panel: Panel,
    source: str,
    *,
    on_stage: OnStageText,
    progress: OnBar,
    known_rule: EdgeRule | None = None,
) -> Judgement:
    """Run the baselines and the winner's copies, and open the seal once for the winner."""
    market = study.market
    traded = build_market(
        market.panel, market.settings, market.stretches[FINAL].fitted, market.features_of(FINAL)
    )
    blocks = [market.folds.groups[group] for group in market.folds.judged]
    on_stage("baselines")
    beside = {name: BASELINES[name] for name in BESIDE}
    if known_rule:
        beside[known_rule.name] = known_rule.policy
    references = run_baselines(traded, blocks, beside, progress)
    on_stage(f"{COPIES} copies of the winner that decide at other times")
    chosen = choose_path(market, finals)
    log_return, sums = finals.finalist_terms[0, 0, :, :, LOG_RETURN], finals.finalist_sums[0, 0]
    returns = path_returns(market.folds, log_return)
    held = returns - path_skill(market.folds, log_return, sums, market.timeline)
    null = compare_with_moves(
        traded,
        blocks,
        find_path_decisions(market, finals, chosen),
        held=held.reshape(-1, held.shape[-1])[chosen],
        seed=market.settings.search.seed,
        progress=progress,
    )
    sealed = None
    if market.folds.hold_out.length:
        on_stage("the sealed bars, opened once for the winner")
        sealed = judge_sealed(
            study.folder, market, panel, finals=finals, entry=study.entry, progress=progress
        )
    return Judgement(
        study=study,
        finals=finals,
        panel=panel,
        source=source,
        sealed=sealed,
        references=references,
        null=null,
        known_rule=known_rule and known_rule.name,
    )


def find_skill(
    market: MarketStudy, finals: FinalistResults, condition: int, finalist: int = 0
) -> FloatArray:
    """(seed, path, bar): a finalist's returns in excess of its average weights, held."""
    return path_skill(
        market.folds,
        finals.finalist_terms[finalist, condition, :, :, LOG_RETURN],
        finals.finalist_sums[finalist, condition],
        market.timeline,
    )


def choose_path(market: MarketStudy, finals: FinalistResults) -> int:
    """The flattened (seed, path) of the winner whose skill has the median Sharpe ratio."""
    return median_path(find_skill(market, finals, 0), market.panel.bars_per_year)


def find_path_decisions(market: MarketStudy, finals: FinalistResults, path: int) -> Decisions:
    """What one of the winner's flattened (seed, path) decided."""
    weights = np.stack(
        [
            path_values(market.folds, finals.winner_weights[:, :, asset])
            for asset in range(market.panel.n_assets)
        ],
        axis=-1,
    )
    returns = path_returns(market.folds, finals.finalist_terms[0, 0, :, :, LOG_RETURN])
    lengths = [market.folds.groups[group].length for group in market.folds.judged]
    starts = np.zeros(returns.shape[-1], bool)
    starts[np.cumsum([0, *lengths[:-1]])] = True
    return find_decisions(
        weights.reshape(-1, *weights.shape[-2:])[path],
        returns.reshape(-1, returns.shape[-1])[path],
        market.timeline.asset_returns,
        starts,
    )
