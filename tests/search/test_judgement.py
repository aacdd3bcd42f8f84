"""The judgement of a study whose trials and finalists are made up: every gate sees its own figure.

Whatever a gate could be given by mistake differs from what it should be given.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import pytest
from evidence_anew import ElseKnown, Stored, check_evidence, weigh_anew
from fake_workers import Lane, earned, made_study, play

from flatout.evaluation.decisions import count_decisions
from flatout.evaluation.metrics import sharpe
from flatout.evaluation.reference import Reference
from flatout.evaluation.shifted import ShiftedNull
from flatout.evaluation.skill import PARTS, sum_by_part
from flatout.evaluation.verdict import Evidence, give_verdict
from flatout.search.finalist_results import FinalistResults, conditions_of
from flatout.search.judgement import Judgement, choose_path
from flatout.search.market_study import LOG_RETURN, TERMS
from flatout.search.run import open_study_folder
from flatout.search.sealed import SealedResult
from flatout.search.study import Study
from flatout.settings.study import GateSettings

SEEDS, NULL_P, HOLD_OUT = 3, 0.035, 90


class Judged(NamedTuple):
    """A judgement, what it was made of, and its evidence computed anew."""

    found: Judgement
    anew: Evidence


def earn_alike(lane: Lane, blocks: int, bars: int) -> np.ndarray:
    """Most of what trials earn is the same: in effect they are fewer than they are."""
    common = np.random.default_rng(lane.first_bar).standard_normal((blocks, bars))
    found = earned(lane, blocks, bars)
    found[LOG_RETURN] += 0.02 * common
    return found


def made_up_weights(study: Study, rng: np.random.Generator) -> np.ndarray:
    """(split, seed, asset, block, bar): a seed changes its mind the less often, the later it is."""
    market = study.market
    shape = (len(market.folds.splits), SEEDS, market.panel.n_assets, market.test_blocks)
    drawn = rng.uniform(0.23, 0.27, (*shape, market.test_bars))
    for seed in range(SEEDS):
        rows = np.arange(market.test_bars) // (3 + 2 * seed) * (3 + 2 * seed)
        drawn[:, seed] = drawn[:, seed][..., rows]
    return drawn.astype(np.float32)


def made_up_finals(study: Study, rng: np.random.Generator) -> FinalistResults:
    """One finalist that earns a little, and less under harder conditions."""
    market, conditions = study.market, conditions_of(study)
    weights = made_up_weights(study, rng)
    splits = len(market.folds.splits)
    bars = (market.test_blocks, market.test_bars)
    terms = np.zeros((1, len(conditions), splits, SEEDS, TERMS, *bars), np.float32)
    noise = 0.01 * rng.standard_normal((splits, SEEDS, *bars))
    kept = np.zeros((splits, SEEDS, market.test_blocks, PARTS, weights.shape[2]))
    for s, split in enumerate(market.folds.splits):
        for k, block in enumerate(split.test):
            kept[s, :, k] = sum_by_part(weights[s, :, :, k], block.length)
    for k, condition in enumerate(conditions):
        gain = 1e-3 - 2e-4 * condition.cost_factor - 7e-5 * condition.delay
        luck = 1.0 * np.arange(SEEDS)[:, None, None]  # seeds differ
        terms[0, k, :, :, LOG_RETURN] = gain * (1 + luck) + noise
    return FinalistResults(
        finalists=(1,),
        conditions=conditions,
        finalist_terms=terms,
        finalist_sums=np.broadcast_to(kept, (1, len(conditions), *kept.shape)).astype(np.float32),
        winner_weights=weights,
        controls=np.zeros(0, np.float32),
        policies=(),
    )


def made_up_seal(rng: np.random.Generator) -> SealedResult:
    """A hold-out on which the winner's seeds earned something, beyond their weights less."""
    returns = 0.01 * rng.standard_normal((HOLD_OUT, SEEDS)) + 2e-3
    nothing: Any = None
    return SealedResult(
        time=nothing,
        returns=returns,
        skill=returns - 1e-3,
        turnover=nothing,
        baselines={},
        bars_per_year=8766.0,
        exposure=0.5,
    )


def judge(folder: Path, study: Study) -> Judged:
    """The judgement of a study that was played, with made-up finalists."""
    rng, market = np.random.default_rng(5), study.market
    finals, sealed, bars = made_up_finals(study, rng), made_up_seal(rng), len(market.timeline.part)
    references = {
        name: Reference(0.02 * rng.standard_normal(bars), 0.02 * rng.standard_normal(bars))
        for name in market.settings.gates.beats
    }
    nothing: Any = None
    null = ShiftedNull(NULL_P, 1.9, rng.standard_normal(199), nothing)
    found = Judgement(study, finals, nothing, "a test", sealed, references, null)
    complete = [
        trial.number
        for trial in study.optuna_study.get_trials(deepcopy=False)
        if trial.state == optuna.trial.TrialState.COMPLETE
    ]
    ever = 2 * market.settings.search.trials
    assert 2 <= len(complete) < ever == found.trials_ever
    seal_sharpe = float(np.median(sharpe(sealed.skill.T, sealed.bars_per_year)))
    known = ElseKnown(complete, ever, references, NULL_P, seal_sharpe)
    stored = Stored(
        finals.conditions, finals.finalist_terms, finals.finalist_sums, finals.winner_weights
    )
    judged = Judged(found, weigh_anew(market, folder, stored, known))
    assert judged.found.verdict  # while its folder is open
    return judged


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The later of two studies of the same bars."""
    out = tmp_path_factory.mktemp("judged")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        patched.setenv("FLATOUT_REGISTRY", str(out / "registry"))
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        made = made_study(search={"final_seeds": SEEDS})
        for name in ("first", "second"):
            play(out / name, made, earn_alike)
        with open_study_folder(made, out / "second", None) as study:
            return judge(out / "second", study)


def test_evidence_is_what_its_parts_say(judged: Judged) -> None:
    check_evidence(judged.found.weighed.evidence, judged.anew)


def test_gates_see_that_evidence(judged: Judged) -> None:
    expected = give_verdict(judged.found.market.settings.gates, judged.anew)
    gates = judged.found.verdict.gates
    assert [gate.name for gate in gates] == [gate.name for gate in expected.gates]
    for gate, wanted in zip(gates, expected.gates, strict=True):
        assert gate.found.startswith(wanted.found), gate  # behind the hold-out stands its wear
        assert gate.passed == wanted.passed


def test_the_report_is_made_of_the_same_figures(judged: Judged) -> None:
    found, anew = judged.found, judged.anew
    assert found.deflation.dsr_effective == pytest.approx(anew.deflated_sharpe, rel=1e-9)
    assert found.overfitting is not None
    assert (found.overfitting.pbo, found.overfitting.probability_of_loss) == (
        anew.pbo,
        anew.probability_of_loss,
    )
    assert found.activity.p_value == pytest.approx(anew.activity_p, rel=1e-9)
    assert count_decisions(found.decisions) == anew.trades
    assert found.chosen_path == choose_path(found.market, found.finals)


def test_no_figure_could_be_taken_for_another(judged: Judged) -> None:
    """Else the tests above would see nothing."""
    anew, luck = judged.anew, judged.found.deflation
    probabilities = [
        anew.deflated_sharpe, luck.psr, luck.dsr, anew.pbo, anew.null_p,
        anew.probability_of_loss, anew.activity_p, *anew.leads.values(), 0.0, 1.0,
    ]  # fmt: skip
    others = [
        anew.trades, anew.worst_path, anew.hold_out_sharpe, *anew.cost_sharpes.values(),
        *[s for bars, s in anew.delay_sharpes.items() if bars],
    ]  # fmt: skip
    for figures in (probabilities, others):
        shown = [f"{figure:.4g}" for figure in figures if figure is not None]
        assert len(shown) == len(figures) == len(set(shown)), shown
    gates = GateSettings()
    assert judged.found.chosen_path != 0
    assert gates.cost_factor in anew.cost_sharpes and gates.delay_bars in anew.delay_sharpes
