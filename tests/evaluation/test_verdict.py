"""The verdict: each gate refuses for its own reason, one that is off says nothing, and no evidence
is no pass.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from flatout.evaluation.verdict import (
    Evidence,
    Gate,
    Verdict,
    format_number,
    gates_hash,
    give_verdict,
)
from flatout.settings.study import GateSettings

GOOD = Evidence(
    deflated_sharpe=0.99,
    pbo=0.05,
    probability_of_loss=0.02,
    null_p=0.01,
    leads={"cash": 0.001, "buy_and_hold": 0.01, "equal_weight": 0.01, "momentum": 0.2},
    cost_sharpes={0.0: 2.5, 1.0: 2.0, 2.0: 1.2, 3.0: -0.5},
    delay_sharpes={0: 2.0, 1: 1.0, 2: -0.1},
    trades=500,
    worst_path=-0.1,
    hold_out_sharpe=0.7,
    activity_p=0.001,
)
GATES = GateSettings()


def verdict(gates: GateSettings = GATES, **changes: Any) -> Verdict:
    return give_verdict(gates, replace(GOOD, **changes))


def gate(found: Verdict, name: str) -> Gate:
    return next(gate for gate in found.gates if gate.name == name)


def test_what_passes_every_gate_is_promotable() -> None:
    found = verdict()
    assert found.promotable
    assert found.sentence == "all 12 gates passed"
    assert all(gate.passed and not gate.sentence for gate in found.gates)
    assert len({gate.name for gate in found.gates}) == 12


LEADS = GOOD.leads
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("deflated Sharpe", {"deflated_sharpe": 0.949}, "luck among so many trials explains it"),
    ("deflated Sharpe", {"deflated_sharpe": None}, "none"),
    ("PBO", {"pbo": 0.21, "probability_of_loss": 0.3}, "not good in the other"),
    ("PBO", {"pbo": None, "probability_of_loss": None}, "PBO none"),
    ("copies as good", {"null_p": 0.051}, "its own decisions at other times do as well"),
    ("copies as good", {"null_p": None}, "none"),
    ("beats cash", {"leads": {**LEADS, "cash": 0.051}}, "does not beat cash"),
    ("beats equal_weight", {"leads": {**LEADS, "equal_weight": 0.3}}, "not beat equal_weight"),
    ("beats buy_and_hold", {"leads": {**LEADS, "buy_and_hold": 1.0}}, "not beat buy_and_hold"),
    ("beats cash", {"leads": {"buy_and_hold": 0.0, "equal_weight": 0.0}}, "none"),
    ("costs", {"cost_sharpes": {1.0: 2.0, 2.0: 0.0}}, "shows no skill at 2 times the costs"),
    ("costs", {"cost_sharpes": {1.0: 2.0}}, "none"),
    ("delay", {"delay_sharpes": {0: 2.0, 1: -0.2}}, "shows no skill at 1 bar"),
    ("delay", {"delay_sharpes": {}}, "none"),
    ("trades", {"trades": 99}, "hardly changes its mind"),
    ("worst path", {"worst_path": -0.51}, "one path loses too much"),
    ("hold-out Sharpe", {"hold_out_sharpe": 0.0}, "shows no skill on the sealed bars"),
    ("not constant", {"activity_p": 0.2}, "asks for the same weights whatever it sees"),
]


@pytest.mark.parametrize(("name", "changes", "reason"), REFUSALS)
def test_each_gate_refuses_for_its_own_reason(
    name: str, changes: dict[str, Any], reason: str
) -> None:
    found = verdict(**changes)
    assert not found.promotable
    assert [gate.name for gate in found.gates if not gate.passed] == [name]
    assert reason in gate(found, name).sentence
    assert found.sentence == f"1 of 12 gates refuse it: {gate(found, name).sentence}"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("deflated Sharpe", {"deflated_sharpe": 0.95}),
        ("PBO", {"pbo": 0.2, "probability_of_loss": 1.0}),
        ("copies as good", {"null_p": 0.05}),
        ("trades", {"trades": 100}),
        ("worst path", {"worst_path": -0.5}),
        ("hold-out Sharpe", {"hold_out_sharpe": 1e-9}),
        ("costs", {"cost_sharpes": {2.0: 1e-9}}),
    ],
)
def test_bounds_are_kept_to_the_last_digit(name: str, changes: dict[str, Any]) -> None:
    assert gate(verdict(**changes), name).passed


def test_where_all_trials_are_good_it_does_not_matter_which_is_best() -> None:
    """A large PBO is forgiven if the best of one half hardly ever loses in the other; no PBO at all
    is not.
    """
    assert gate(verdict(pbo=0.9, probability_of_loss=0.05), "PBO").passed
    assert not gate(verdict(pbo=0.9, probability_of_loss=0.051), "PBO").passed
    assert not gate(verdict(pbo=0.9, probability_of_loss=None), "PBO").passed
    assert not gate(verdict(pbo=None, probability_of_loss=0.0), "PBO").passed


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("deflated_sharpe", ("deflated Sharpe")),
        ("pbo", "PBO"),
        ("null_p", "copies as good"),
        ("cost_factor", "costs"),
        ("delay_bars", "delay"),
        ("trades", "trades"),
        ("worst_path", "worst path"),
        ("hold_out_sharpe", "hold-out Sharpe"),
    ],
)
def test_a_gate_that_is_off_says_nothing(key: str, name: str) -> None:
    bad = next(changes for refused, changes, _ in REFUSALS if refused == name)
    found = verdict(GateSettings.model_validate({key: "off"}), **bad)
    assert found.promotable
    assert name not in {gate.name for gate in found.gates}
    assert found.sentence == "all 11 gates passed"


def test_without_sealed_bars_there_is_no_gate_of_theirs() -> None:
    found = verdict(hold_out_sharpe=None)
    assert found.promotable
    assert "hold-out Sharpe" not in {gate.name for gate in found.gates}


def test_orders_that_depend_on_nothing_are_refused_whatever_is_off() -> None:
    off = dict.fromkeys(
        (
            "deflated_sharpe",
            "pbo",
            "null_p",
            "cost_factor",
            "delay_bars",
            "trades",
            "worst_path",
            "hold_out_sharpe",
        ),
        "off",
    )
    found = verdict(GateSettings.model_validate({**off, "beats": []}), activity_p=1.0)
    assert [gate.name for gate in found.gates] == ["not constant"]
    assert not found.promotable


def test_other_baselines_factors_and_delays() -> None:
    gates = GateSettings(beats=("momentum",), cost_factor=3.0, delay_bars=2)
    found = verdict(gates)
    assert [gate.name for gate in found.gates if not gate.passed] == [
        "beats momentum",
        "costs",
        "delay",
    ]
    assert gate(found, "costs").wanted == "shows skill at 3 times the costs"


def test_three_reasons_are_told_and_the_others_counted() -> None:
    found = verdict(
        deflated_sharpe=0.1, pbo=0.9, probability_of_loss=0.9, null_p=0.9, trades=1, worst_path=-0.9
    )
    assert found.sentence.startswith("5 of 12 gates refuse it: luck among")
    assert found.sentence.endswith("; and 2 more")
    assert found.sentence.count(";") == 3


def test_it_is_told_to_programs_too() -> None:
    facts = json.loads(json.dumps(verdict(trades=3).facts(), allow_nan=False))
    assert facts["promotable"] is False
    assert facts["gates_hash"] == gates_hash(GATES)
    trades = next(gate for gate in facts["gates"] if gate["name"] == "trades")
    assert trades == {
        "name": "trades", "wanted": "at least 100", "found": "3", "passed": False,
        "sentence": "it hardly changes its mind (trades 3)",
    }  # fmt: skip


def test_other_gates_have_another_hash() -> None:
    hashes = {
        gates_hash(GateSettings.model_validate(x))
        for x in ({}, {"pbo": 0.3}, {"pbo": "off"}, {"beats": []})
    }
    assert len(hashes) == 4
    assert gates_hash(GateSettings()) == gates_hash(GateSettings())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (0.12345, "0.123"),
        (123456.0, "123,456"),
        (-0.5, "-0.5"),
        (500, "500"),
        (1e-7, "1e-07"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert format_number(value) == text
