"""The evidence about a study's winner, computed again from what was stored: one formula after
another, without the function that makes it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy

from flatout.bars.panel import Panel
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import BASELINES
from flatout.evaluation.decisions import (
    Decisions,
    count_decisions,
    find_decisions,
    measure_activity,
)
from flatout.evaluation.deflation import deflated_sharpe, effective_trials
from flatout.evaluation.evidence import weigh_lead
from flatout.evaluation.metrics import sharpe
from flatout.evaluation.overfitting import overfitting
from flatout.evaluation.paths import path_returns, path_sums, path_values
from flatout.evaluation.reference import Reference, run_baselines
from flatout.evaluation.saved_policy import SavedPolicy
from flatout.evaluation.skill import make_timeline, skill_returns, sum_by_part
from flatout.evaluation.verdict import Evidence
from flatout.folds.blocks import Block
from flatout.market.market import build_market
from flatout.policies.bundle import Bundle
from flatout.search.finalist_results import FILE, Condition
from flatout.search.market_study import FINAL, LOG_RETURN, MarketStudy
from flatout.search.run import PreparedStudy
from flatout.search.trial_files import read_trial


class Stored(NamedTuple):
    """What is kept of a study's finalists, and how each was judged."""

    conditions: Sequence[Condition]
    terms: np.ndarray  # (finalist, condition, split, seed, term, block, bar)
    sums: np.ndarray  # (finalist, condition, split, seed, block, part, asset)
    weights: np.ndarray  # (split, seed, asset, block, bar) of the winner

    def returns(self, market: MarketStudy, condition: int = 0) -> np.ndarray:
        """(path, bar) of the winner."""
        found = path_returns(market.folds, self.terms[0, condition, :, :, LOG_RETURN])
        return found.reshape(-1, found.shape[-1])

    def skill(self, market: MarketStudy, condition: int = 0) -> np.ndarray:
        """(path, bar) of the winner, beyond its average weights."""
        sums = path_sums(market.folds, self.sums[0, condition])
        flat = sums.reshape(-1, *sums.shape[-2:])
        return skill_returns(self.returns(market, condition), flat, market.timeline)


class ElseKnown(NamedTuple):
    """What the evidence takes from other parts of a judgement."""

    trials: Sequence[int]  # numbers of the complete ones
    trials_ever: int
    references: Mapping[str, Reference]
    null_p: float
    hold_out_sharpe: float


def weigh_anew(market: MarketStudy, folder: Path, stored: Stored, known: ElseKnown) -> Evidence:
    """The evidence, formula by formula."""
    year, skill = market.panel.bars_per_year, stored.skill(market)
    order = sorted(range(len(skill)), key=lambda path: float(sharpe(skill[path], year)))
    chosen = order[(len(order) - 1) // 2]
    decisions = decide_anew(market, stored, chosen)
    columns = trial_columns(market, folder, known.trials)
    ever, halves = known.trials_ever, overfitting(columns)
    effective = min(effective_trials(columns) + ever - columns.shape[1], ever)
    luck = 1 / math.sqrt(skill.shape[1])
    medians = {
        condition: float(np.median(sharpe(stored.skill(market, k), year)))
        for k, condition in enumerate(stored.conditions)
    }
    return Evidence(
        deflated_sharpe=float(np.median([deflated_sharpe(one, effective, luck) for one in skill])),
        pbo=halves.pbo,
        probability_of_loss=halves.probability_of_loss,
        null_p=known.null_p,
        leads={n: weigh_lead(skill[chosen], one.skill) for n, one in known.references.items()},
        cost_sharpes={c.cost_factor: s for c, s in medians.items() if c.delay == 0},
        delay_sharpes={c.delay: s for c, s in medians.items() if c.cost_factor == 1},
        trades=count_decisions(decisions),
        worst_path=float(np.min(np.prod(1 + stored.returns(market), axis=1)) - 1),
        hold_out_sharpe=known.hold_out_sharpe,
        activity_p=measure_activity(decisions).p_value,
    )


def decide_anew(market: MarketStudy, stored: Stored, chosen: int) -> Decisions:
    """What one of the winner's paths decided, from the weights that were stored."""
    assets = range(market.panel.n_assets)
    found = [path_values(market.folds, stored.weights[:, :, asset]) for asset in assets]
    weights = np.stack([one.reshape(-1, one.shape[-1])[chosen] for one in found], axis=1)
    starts = np.zeros(len(weights), bool)
    at = 0
    for group in market.folds.judged:
        starts[at] = True
        at += market.folds.groups[group].length
    earned = stored.returns(market)[chosen]
    return find_decisions(weights, earned, market.timeline.asset_returns, starts)


def trial_columns(market: MarketStudy, folder: Path, trials: Sequence[int]) -> np.ndarray:
    """(bar, trial): skill returns, from the files of the trials."""
    found = []
    for number in trials:
        file = read_trial(folder, number)
        assert file.weight_sums is not None
        returns = path_returns(market.folds, file.log_return)
        sums = path_sums(market.folds, file.weight_sums)
        found.append(skill_returns(returns, sums, market.timeline).mean(axis=(0, 1)))
    return np.stack(found, axis=1)


def check_evidence(found: Evidence, expected: Evidence) -> None:
    """All figures are the same, to rounding."""
    for name, value in vars(expected).items():
        wanted: Any = pytest.approx(value, rel=1e-9, abs=1e-12)
        assert getattr(found, name) == wanted, name


def weigh_report_anew(made: PreparedStudy, folder: Path, report: Mapping[str, Any]) -> Evidence:
    """The evidence about a study that has a report. Its copies count as the report shows them."""
    market, null = made.market, report["null"]
    arrays = safetensors.numpy.load_file(folder / FILE)
    stored = Stored(
        conditions=[Condition(f, 0) for f in (1.0, 0.0, 2.0, 3.0)]
        + [Condition(1.0, bars) for bars in (1, 2)],
        terms=arrays["finalist_terms"],
        sums=arrays["finalist_sums"],
        weights=arrays["winner_weights"],
    )
    as_good = sum(one >= null["sharpe"] for one in null["sharpes"])
    traded = build_market(market.panel, market.settings, market.stretches[FINAL].fitted)
    blocks = [market.folds.groups[group] for group in market.folds.judged]
    beaten = {name: BASELINES[name] for name in market.settings.gates.beats}
    known = ElseKnown(
        trials=[row["number"] for row in report["trials"] if row["state"] == "complete"],
        trials_ever=report["assumptions"]["trials"]["ever"],
        references=run_baselines(traded, blocks, beaten),
        null_p=(1 + as_good) / (1 + null["copies"]),
        hold_out_sharpe=judge_sealed_anew(made.panel, folder, market.folds.cut),
    )
    return weigh_anew(market, folder, stored, known)


def judge_sealed_anew(panel: Panel, folder: Path, cut: int) -> float:
    """The median Sharpe ratio of what the winner's policies earn from bar `cut` on, beyond their
    average weights; each in a backtest of its own.
    """
    found = []
    for path in sorted((folder / "policy").iterdir()):
        bundle = Bundle.load(path)
        history = backtest(
            bundle.market(panel), SavedPolicy(bundle), 1, cut - 1, record_weights=True
        )
        assert history.weights is not None
        sums = sum_by_part(history.weights[:, 0].T, panel.n_bars - cut)
        timeline = make_timeline(panel.close, [Block(cut, panel.n_bars)])
        skill = skill_returns(history.returns[:, 0], sums, timeline)
        found.append(float(sharpe(skill, panel.bars_per_year)))
    return float(np.median(found))
