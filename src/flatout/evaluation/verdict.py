"""PROMOTABLE or not, from gates that were fixed before the first trial."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flatout.settings.study import GateSettings


@dataclass(frozen=True)
class Evidence:
    """The figures that gates look at; None where one does not exist."""

    deflated_sharpe: float | None
    pbo: float | None
    probability_of_loss: float | None
    null_p: float | None
    median_sharpe: float
    baseline_sharpes: Mapping[str, float | None]
    cost_sharpes: Mapping[float, float]  # by cost factor
    delay_sharpes: Mapping[int, float]  # by bars
    trades: int
    worst_path: float
    hold_out_sharpe: float | None
    constant: bool


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
        """For programs."""
        return {**self._asdict(), "gates": [gate._asdict() for gate in self.gates]}


# of the in-sample best, out of sample: then it does not matter which of the good ones is best
LOSS_IS_RARE = 0.05


def give_verdict(gates: GateSettings, evidence: Evidence) -> Verdict:
    """Try every gate that is on."""
    found = [gate for gate in all_gates(gates, evidence) if gate is not None]
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
    """Of the gates as they were when the study started."""
    return hashlib.sha256(
        json.dumps(gates.model_dump(mode="json"), sort_keys=True).encode()
    ).hexdigest()


def all_gates(gates: GateSettings, e: Evidence) -> list[Gate | None]:
    """Every gate, None for those that are off."""
    return [
        at_least(("deflated "
                 "Sharpe"), gates.deflated_sharpe, e.deflated_sharpe, ("luck among so many trials "
                                                                      "explains it")),
        not_overfitted(gates.pbo, e),
        at_most(("random traders as "
                "good"), gates.null_p, e.null_p, "random traders of equal turnover earn as much"),
        *(beats(name, e) for name in gates.beats),
        survives("costs", gates.cost_factor, e.cost_sharpes, "times the costs"),
        survives("delay", gates.delay_bars, e.delay_sharpes, "bar(s) later"),
        at_least("trades", gates.trades, e.trades, "too few trades to say anything"),
        at_least("worst path", gates.worst_path, e.worst_path, "one path loses too much"),
        above(("hold-out "
              "Sharpe"), gates.hold_out_sharpe, e.hold_out_sharpe, ("it does not earn on the "
                                                                   "sealed bars")),
        Gate(
            "not "
            "constant", ("orders depend on the "
                        "market"), "constant" if e.constant else "they do", not e.constant,
            "it orders the same whatever it sees",
        ),
    ]  # fmt: skip


def shown(value: float | None) -> str:
    """A number as a table shows it."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def at_least(name: str, wanted: float | None, found: float | None, reason: str) -> Gate | None:
    """Passes from the bound on."""
    if wanted is None:
        return None
    passed = found is not None and found >= wanted
    return Gate(
        name, f"at least {shown(wanted)}", shown(found), passed, f"{reason} ({name} {shown(found)})"
    )


def above(name: str, wanted: float | None, found: float | None, reason: str) -> Gate | None:
    """Passes above the bound; there is nothing to pass where no bars were sealed."""
    if wanted is None or found is None:
        return None
    return Gate(
        name,
        f"above {shown(wanted)}",
        shown(found),
        found > wanted,
        f"{reason} ({name} {shown(found)})",
    )


def at_most(name: str, wanted: float | None, found: float | None, reason: str) -> Gate | None:
    """Passes up to the bound."""
    if wanted is None:
        return None
    passed = found is not None and found <= wanted
    return Gate(
        name, f"at most {shown(wanted)}", shown(found), passed, f"{reason} ({shown(found)})"
    )


def not_overfitted(wanted: float | None, e: Evidence) -> Gate | None:
    """PBO says whether the best of one half stays in the better half. Where nearly all trials are
    good and alike it does not, and need not: then it must hardly ever lose out of sample.
    """
    if wanted is None:
        return None
    rarely = e.probability_of_loss is not None and e.probability_of_loss <= LOSS_IS_RARE
    passed = e.pbo is not None and (e.pbo <= wanted or rarely)
    found = f"{shown(e.pbo)}; loses in {shown(e.probability_of_loss)}"
    return Gate(
        "PBO", (f"at most {shown(wanted)}, or loses out of sample in at most {LOSS_IS_RARE:.0%} of "
               f"the cases"), found,
        passed, f"the best in one half of the bars is not good in the other (PBO {shown(e.pbo)})",
    )  # fmt: skip


def beats(baseline: str, e: Evidence) -> Gate:
    """The median path has more Sharpe than a baseline; cash has none."""
    other = e.baseline_sharpes.get(baseline)
    passed = other is not None and e.median_sharpe > other
    found = f"{shown(e.median_sharpe)} against {shown(other)}"
    return Gate(
        f"beats {baseline}",
        "a larger Sharpe ratio",
        found,
        passed,
        f"it does not beat {baseline} ({found})",
    )


def survives(name: str, wanted: float | None, found: Mapping[Any, float], unit: str) -> Gate | None:
    """The median path still earns when life is harder."""
    if wanted is None:
        return None
    sharpe = found.get(wanted)
    passed = sharpe is not None and sharpe > 0
    said = f"{shown(wanted)} {unit}"
    return Gate(
        name,
        f"earns at {said}",
        shown(sharpe),
        passed,
        f"it loses at {said} (Sharpe {shown(sharpe)})",
    )
