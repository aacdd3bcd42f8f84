"""Studies of known truth: the kernel's paths, the chain of evidence, and its rates."""

from functools import cache

import numpy as np
import pytest
from known_evidence import weigh_anew

from flatout.bench.known_accounts import BARS, KnownStudy, run_trials, stack_decisions
from flatout.bench.known_paths import lay_tapes, run_plan
from flatout.bench.known_rates import (
    StudyOutcome,
    count_only_gates,
    interval,
    measure_rates,
    summarise_rates,
)
from flatout.bench.known_studies import judge_studies, make_known_study, score_trials
from flatout.bench.known_truths import Truth
from flatout.evaluation.backtest import backtest
from flatout.evaluation.baselines import Moment
from flatout.evaluation.verdict import give_verdict
from flatout.market.market import build_market, cast, make_rules
from flatout.settings.study import GateSettings
from flatout.settings.tables import MarketSettings, Settings
from rounding import assert_close


@cache
def studies() -> tuple[KnownStudy, ...]:
    return tuple(make_known_study("rising", seed, 0.0, 4) for seed in (0, 1))


def test_paths_of_many_studies_are_backtests_of_each() -> None:
    """The kernel's accounts side by side, against `backtest` of one policy at a time."""
    market = MarketSettings()
    tape, offsets = lay_tapes([study.panel for study in studies()], market.capital)
    rules = cast(make_rules(market, studies()[0].panel), np.float64)
    block = studies()[0].groups[1]
    joined, plan = stack_decisions(studies(), block, offsets)
    found = run_plan(tape, rules, plan, joined, keep_weights=True)
    assert found.weights is not None
    settings = Settings.model_validate({"features": {"indicators": ["return_1"]}})
    each = len(studies()[0].decisions)
    for account in range(len(plan.first)):
        study, own = studies()[account // each], studies()[account // each].decisions
        decisions = own[account % each]

        def follow(moment: Moment, decisions: object = decisions) -> np.ndarray:
            now = len(moment.closes) - 1
            wanted = decisions.targets[now] - moment.weights  # type: ignore[attr-defined]
            traded = decisions.traded[now] | (moment.age == 0)  # type: ignore[attr-defined]
            return np.where(traded, wanted, 0.0)

        history = backtest(
            build_market(study.panel, settings),
            follow,
            first=block.first - 1,
            stop=block.stop,
            record_weights=True,
        )
        assert history.weights is not None
        size = {"roundings": 400 * 100, "size": 1.0}
        assert_close(found.returns[account], history.returns[:, 0], **size)
        assert_close(found.costs[account], history.cost[:, 0], **size)
        assert_close(found.weights[account], history.weights[:, 0], **size)


def test_luck_is_refused_and_strong_skill_passes() -> None:
    lucky = judge_studies([make_known_study("rising", seed, 0.0, 8) for seed in range(4)])
    assert not any(one.verdict.promotable for one in lucky)
    skilled = judge_studies(
        [make_known_study("planted_falling", seed, 30.0, 8) for seed in range(4)]
    )
    assert all(one.verdict.promotable for one in skilled), [one.verdict.sentence for one in skilled]
    assert {one.winner.kind for one in skilled} == {"signal"}


def test_a_study_is_judged_alike_whoever_is_beside_it() -> None:
    alone = [judge_studies([study])[0].verdict for study in studies()]
    assert [one.verdict for one in judge_studies(studies())] == alone


@pytest.mark.long
@pytest.mark.parametrize(("truth", "strength"), [("rising", 0.0), ("planted_flat", 12.0)])
def test_evidence_is_what_its_parts_say(truth: Truth, strength: float) -> None:
    """Against backtests of one account at a time, and the formulas one after another."""
    study = make_known_study(truth, 3, strength, 4)
    [found], anew = judge_studies([study], seed=5), weigh_anew(study, seed=5)
    market = MarketSettings()
    tape, offsets = lay_tapes([study.panel], market.capital)
    rules = cast(make_rules(market, study.panel), np.float64)
    [paths] = run_trials([study], tape, offsets, rules)
    np.testing.assert_allclose(score_trials(study, paths), anew.scores, rtol=1e-6)
    assert found.winner == study.rules[int(np.argmax(anew.scores))]
    for name, value in vars(anew.evidence).items():
        assert getattr(found.evidence, name) == pytest.approx(value, rel=1e-6, abs=1e-9), name
    assert found.best_test_p == pytest.approx(anew.best_test_p, rel=1e-6, abs=1e-9)
    assert found.verdict == give_verdict(GateSettings(), found.evidence)


def test_rates_come_from_outcomes() -> None:
    rows = [
        StudyOutcome("flat", 0.0, ("PBO",), False),
        StudyOutcome("flat", 0.0, (), True),
        StudyOutcome("rising", 0.0, ("PBO", "trades"), False),
        StudyOutcome("planted_flat", 4.0, (), True),
        StudyOutcome("planted_flat", 4.0, ("trades",), True),
    ]
    found = summarise_rates(rows)
    assert found["false_promotions"]["flat"] == 0.5 and found["false_promotions"]["rising"] == 0
    assert found["power"]["planted_flat"] == {"4": 0.5}
    assert found["power_best_test"]["planted_flat"] == {"4": 1.0}
    assert found["only_gate"] == {"PBO": 1 / 3, "trades": 0.0}
    assert count_only_gates(rows[:1]) == {"PBO": 1.0}


def test_an_interval_holds_its_share() -> None:
    low, high = interval(iter([True] * 20 + [False] * 980))
    assert low < 0.02 < high and low > 0.012 and high < 0.032
    assert interval(iter([False] * 1000))[1] == pytest.approx(0.0038, abs=2e-4)


@pytest.mark.long
def test_all_truths_and_strengths_are_measured() -> None:
    seen: list[int] = []
    found = measure_rates(1, 1, trials=4, strengths=(30.0,), on_batch=seen.append)
    assert seen[-1] == len(found["false_promotions"]) + len(found["power"]) == 11
    assert BARS > 0 and found["trials"] == 4
