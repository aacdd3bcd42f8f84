"""PROMOTABLE or not, from gates that were fixed before the first trial."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flatout.settings.study import GateSettings


@dataclass(frozen=True)
class Evidence:
    """The figures that gates look at; None where one does not exist. Sharpe ratios are those of
    skill returns, except that `worst_path` is what was really earned.
    """

    deflated_sharpe: float | None
    pbo: float | None
    probability_of_loss: float | None
    null_p: float | None
    leads: Mapping[str, float]  # by baseline: probability of such a lead over it by luck
    cost_sharpes: Mapping[float, float]  # by cost factor
    delay_sharpes: Mapping[int, float]  # by bars
    trades: int  # decisions that change the weights
    worst_path: float
    hold_out_sharpe: float | None
    activity_p: float  # that it moves next to nothing about


class Gate(NamedTuple):
    """One gate and what it saw."""

    name: str
    wanted: str
    found: str
    passed: bool
    sentence: str  # why it refuses; empty where it does not


class Verdict(NamedTuple):
    """The judgement with its reasons."""

    promotable: bool
    sentence: str
    gates: tuple[Gate, ...]
    gates_hash: str

    def facts(self) -> dict[str, Any]:
        """The verdict and its gates as plain JSON values."""
        return {**self._asdict(), "gates": [gate._asdict() for gate in self.gates]}


# of the in-sample best, out of sample: then it does not matter which of the good ones is best
LOSS_IS_RARE = 0.05
CONSTANT_P = 0.05  # of the hypothesis that a path moves next to nothing about


def give_verdict(gates: GateSettings, evidence: Evidence) -> Verdict:
    """The verdict on the evidence: promotable if every gate that is on lets it pass."""
    found = [gate for gate in try_gates(gates, evidence) if gate is not None]
    tried = [gate._replace(sentence="") if gate.passed else gate for gate in found]
    failed = [gate for gate in tried if not gate.passed]
    if failed:
        sentence = "; ".join(gate.sentence for gate in failed[:3])
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        sentence = f"{len(failed)} of {len(tried)} gates refuse it: {sentence}{more}"
    else:
        sentence = f"all {len(tried)} gates passed"
    return Verdict(not failed, sentence, tuple(tried), gates_hash(gates))


def gates_hash(gates: GateSettings) -> str:
    """sha256 of the gates as they were when the study started, so that a later change shows."""
    return hashlib.sha256(
        json.dumps(gates.model_dump(mode="json"), sort_keys=True).encode()
    ).hexdigest()


def try_gates(gates: GateSettings, evidence: Evidence) -> list[Gate | None]:
    """Every gate with what it saw; None for those that are off."""
    return [
        require_at_least(
            name="deflated Sharpe",
            wanted=gates.deflated_sharpe,
            found=evidence.deflated_sharpe,
            reason="luck among so many trials explains it",
        ),
        require_not_overfitted(gates.pbo, evidence),
        require_at_most(
            name="copies as good",
            wanted=gates.null_p,
            found=evidence.null_p,
            reason="its own decisions at other times do as well",
        ),
        *(require_beating(name, gates.beats_p, evidence) for name in gates.beats),
        require_survival("costs", gates.cost_factor, evidence.cost_sharpes, "times the costs"),
        require_survival("delay", gates.delay_bars, evidence.delay_sharpes, "bar(s) later"),
        require_at_least("trades", gates.trades, evidence.trades, "it hardly changes its mind"),
        require_at_least(
            name="worst path",
            wanted=gates.worst_path,
            found=evidence.worst_path,
            reason="one path loses too much",
        ),
        require_above(
            name="hold-out Sharpe",
            wanted=gates.hold_out_sharpe,
            found=evidence.hold_out_sharpe,
            reason="it shows no skill on the sealed bars",
        ),
        require_at_most(
            name="not constant",
            wanted=CONSTANT_P,
            found=evidence.activity_p,
            reason="it asks for the same weights whatever it sees",
        ),
    ]


def format_number(value: float | None) -> str:
    """A number as a table shows it: three digits, or whole from 1,000 on."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def require_at_least(
    name: str, wanted: float | None, found: float | None, reason: str
) -> Gate | None:
    """A gate that lets pass from the bound on; None where no bound is wanted."""
    if wanted is None:
        return None
    return Gate(
        name=name,
        wanted=f"at least {format_number(wanted)}",
        found=format_number(found),
        passed=found is not None and found >= wanted,
        sentence=f"{reason} ({name} {format_number(found)})",
    )


def require_above(name: str, wanted: float | None, found: float | None, reason: str) -> Gate | None:
    """A gate that lets pass above the bound; None where no bound is wanted, or no bars were sealed
    and so nothing was found.
    """
    if wanted is None or found is None:
        return None
    return Gate(
        name=name,
        wanted=f"above {format_number(wanted)}",
        found=format_number(found),
        passed=found > wanted,
        sentence=f"{reason} ({name} {format_number(found)})",
    )


def require_at_most(
    name: str, wanted: float | None, found: float | None, reason: str
) -> Gate | None:
    """A gate that lets pass up to the bound; None where no bound is wanted."""
    if wanted is None:
        return None
    return Gate(
        name=name,
        wanted=f"at most {format_number(wanted)}",
        found=format_number(found),
        passed=found is not None and found <= wanted,
        sentence=f"{reason} ({format_number(found)})",
    )


def require_not_overfitted(wanted: float | None, evidence: Evidence) -> Gate | None:
    """PBO tells whether the best of one half stays in the better half. Where nearly all trials are
    good and alike it does not, and need not: then it must hardly ever lose out of sample.
    """
    if wanted is None:
        return None
    pbo, loss = evidence.pbo, evidence.probability_of_loss
    rarely_loses = loss is not None and loss <= LOSS_IS_RARE
    return Gate(
        name="PBO",
        wanted=(
            f"at most {format_number(wanted)}, or loses out of sample in at most "
            f"{LOSS_IS_RARE:.0%} of the cases"
        ),
        found=f"{format_number(pbo)}; loses in {format_number(loss)}",
        passed=pbo is not None and (pbo <= wanted or rarely_loses),
        sentence=(
            f"the best in one half of the bars is not good in the other (PBO {format_number(pbo)})"
        ),
    )


def require_beating(baseline: str, wanted: float, evidence: Evidence) -> Gate:
    """A gate for which the median path has more skill than a baseline, beyond luck."""
    found = evidence.leads.get(baseline)
    return Gate(
        name=f"beats {baseline}",
        wanted=f"a lead by luck in at most {format_number(wanted)}",
        found=format_number(found),
        passed=found is not None and found <= wanted,
        sentence=f"it does not beat {baseline} (luck leads in {format_number(found)})",
    )


def require_survival(
    name: str, wanted: float | None, found: Mapping[Any, float], unit: str
) -> Gate | None:
    """A gate for which the median path still shows skill under harder conditions: `found` has its
    Sharpe ratio by condition, of which the wanted one counts.
    """
    if wanted is None:
        return None
    sharpe = found.get(wanted)
    condition = f"{format_number(wanted)} {unit}"
    return Gate(
        name=name,
        wanted=f"shows skill at {condition}",
        found=format_number(sharpe),
        passed=sharpe is not None and sharpe > 0,
        sentence=f"it shows no skill at {condition} (Sharpe {format_number(sharpe)})",
    )
