"""What a hold-out lost by being looked at before: said in the report and beside its gate.

The gate stays as it was fixed: a winner that fails on worn bars fails. But one that passes shows
nothing new on bars that were looked at before, and the verdict says so.
"""

from flatout.evaluation.other_studies import TOUCH, SealedBefore
from flatout.evaluation.verdict import Verdict

GATE = "hold-out Sharpe"


def describe_wear(sealed: SealedBefore) -> str | None:
    """A sentence on bars of the hold-out that are not fresh; None if all are.

    >>> describe_wear(SealedBefore(0.0, 0, None, 0.001, 1)) is None
    True
    >>> describe_wear(SealedBefore(0.0, 0, None, 0.5, 1))
    '50 % of these sealed bars judged trials of 1 other study'
    """
    parts = []
    if sealed.opened and sealed.last:
        parts.append(
            f"{format_share(sealed.opened)} of these sealed bars were in a hold-out that was "
            f"opened before, by {count_studies(sealed.openers)}, last on {sealed.last:%Y-%m-%d}"
        )
    if sealed.judged > TOUCH:
        parts.append(
            f"{format_share(sealed.judged)} of these sealed bars judged trials of "
            f"{count_studies(sealed.judges, 'other ')}"
        )
    return "; ".join(parts) or None


def mark_verdict(verdict: Verdict, mark: str | None) -> Verdict:
    """The verdict with what is known of the hold-out beside its gate, and, where all gates were
    passed, behind it.
    """
    if mark is None:
        return verdict
    gates = tuple(
        gate._replace(
            found=f"{gate.found}; {mark}",
            sentence=gate.sentence and f"{gate.sentence}; {mark}",
        )
        if gate.name == GATE
        else gate
        for gate in verdict.gates
    )
    behind = f"; but the hold-out is no new evidence: {mark}" if verdict.promotable else ""
    return verdict._replace(gates=gates, sentence=verdict.sentence + behind)


def format_share(share: float) -> str:
    """A share in percent; what is not quite all or nothing is not shown as if it were."""
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    return f"{min(max(100 * share, 0.1), 99.9):.3g} %"


def count_studies(count: int, which: str = "") -> str:
    """A number of studies in words."""
    return f"{count} {which}stud{'y' if count == 1 else 'ies'}"
