"""What is said of a hold-out that was looked at before."""

from datetime import UTC, datetime

from flatout.evaluation.other_studies import SealedBefore
from flatout.evaluation.verdict import Evidence, Verdict, give_verdict
from flatout.search.hold_out_wear import GATE, describe_wear, mark_verdict
from flatout.settings.study import GateSettings

WORN = SealedBefore(0.5, 2, datetime(2026, 11, 3, tzinfo=UTC), 0.004, 1)
SENTENCE = (
    "50 % of these sealed bars were in a hold-out that was opened before, by 2 studies, last on "
    "2026-11-03"
)


def judge(hold_out: float | None) -> Verdict:
    """The verdict on a winner that passes everything but maybe the hold-out."""
    return give_verdict(
        GateSettings(),
        Evidence(
            deflated_sharpe=0.99,
            pbo=0.0,
            probability_of_loss=0.0,
            null_p=0.0,
            leads={"cash": 0.0, "buy_and_hold": 0.0, "equal_weight": 0.0},
            cost_sharpes={2.0: 1.0},
            delay_sharpes={1: 1.0},
            trades=1000,
            worst_path=0.1,
            hold_out_sharpe=hold_out,
            activity_p=0.0,
        ),
    )


def test_fresh_bars_need_no_word() -> None:
    assert describe_wear(SealedBefore(0.0, 0, None, 0.0, 0)) is None
    assert mark_verdict(judge(1.0), None) == judge(1.0)


def test_what_was_opened_and_judged_is_said() -> None:
    assert describe_wear(WORN) == SENTENCE
    judged = describe_wear(WORN._replace(judged=1.0, judges=1))
    assert judged == f"{SENTENCE}; 100 % of these sealed bars judged trials of 1 other study"
    nearly = describe_wear(WORN._replace(opened=0.9999))
    assert nearly is not None
    assert nearly.startswith("99.9 %")
    hardly = describe_wear(WORN._replace(opened=1e-6))
    assert hardly is not None
    assert hardly.startswith("0.1 %")


def test_the_gate_and_a_good_verdict_say_it() -> None:
    marked = mark_verdict(judge(1.0), SENTENCE)
    assert marked.promotable  # gates are fixed when a study starts: this one stays
    assert marked.sentence.startswith("all ")
    assert marked.sentence.endswith(f"; but the hold-out is no new evidence: {SENTENCE}")
    [gate] = [gate for gate in marked.gates if gate.name == GATE]
    assert (gate.found, gate.sentence) == (f"1; {SENTENCE}", "")


def test_a_gate_that_refuses_says_it_too() -> None:
    marked = mark_verdict(judge(-1.0), SENTENCE)
    assert not marked.promotable
    assert marked.sentence == judge(-1.0).sentence
    [gate] = [gate for gate in marked.gates if not gate.passed]
    assert gate.name == GATE
    assert gate.sentence.endswith(SENTENCE)


def test_without_a_gate_the_verdict_says_it_alone() -> None:
    marked = mark_verdict(judge(None), SENTENCE)
    assert marked.gates == judge(None).gates
    assert SENTENCE in marked.sentence
