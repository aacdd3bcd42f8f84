"""What comes out of a training: policies, their figures on held-out bars, and where they lie."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flatout.errors import RunError
from flatout.evaluation.saved_policy import SavedPolicy, load_policy

Figures = Mapping[str, float | None]  # by name, as `evaluation/metrics.py` has them

MOST_SHOWN = 4  # policies in a line about a training


def describe_returns(figures: Mapping[str, Figures]) -> str:
    """The total returns of some policies, in a line; of many the first ones."""
    returns = [
        name if (share := one["total_return"]) is None else f"{name} {share:+.1%}"
        for name, one in figures.items()
    ]
    more = f" and {len(returns) - MOST_SHOWN:,} more" if len(returns) > MOST_SHOWN else ""
    return f"{', '.join(returns[:MOST_SHOWN])}{more}"


@dataclass(frozen=True)
class AgentResult:
    """One market's agents on the bars that were held out, beside the baselines."""

    name: str
    symbols: tuple[str, ...]
    first: str  # time of the first bar that judged, UTC
    last: str
    bars: int
    policies: tuple[str, ...]  # names of its lanes, one per seed
    metrics: Mapping[str, Figures]  # of policies and baselines
    assumptions: str  # how orders fill and what they cost

    def __repr__(self) -> str:
        """One line: which bars judged, and what each policy and baseline returned on them."""
        return (
            f"AgentResult({self.name!r}: returns on {self.bars:,} held-out bars, {self.first[:16]} "
            f"to {self.last[:16]} UTC: {describe_returns(self.metrics)})"
        )


@dataclass(frozen=True)
class TrainingResult:
    """A training that is over. The best policy of each lane was chosen on the held-out bars, so its
    figures there flatter it: a study with folds is what can tell luck from skill.
    """

    folder: Path  # its folder: metrics.jsonl, tensorboard/, report.json, one folder per policy
    agents: Mapping[str, AgentResult]
    bundles: Mapping[str, tuple[str, ...]]  # by lane: folders of its policies, within the run's
    warnings: tuple[str, ...] = ()  # what could not be saved, in sentences

    def __repr__(self) -> str:
        """One line: where it lies, and what each policy returned on the held-out bars."""
        figures = {
            name: agent.metrics[name] for agent in self.agents.values() for name in agent.policies
        }
        return (
            f"TrainingResult({str(self.folder)!r}: returns on held-out bars "
            f"{describe_returns(figures)})"
        )

    def load_policy(
        self, lane: str | None = None, which: Literal["best", "last"] = "best"
    ) -> SavedPolicy:
        """The saved policy of a lane, by default of the first."""
        name = lane if lane is not None else next(iter(self.bundles))
        if name not in self.bundles:
            raise RunError(f"there is no lane {name!r}; there are {', '.join(self.bundles)}")
        saved = {Path(one).name: one for one in self.bundles[name]}
        if which not in saved:
            known = " and ".join(saved) or "none"
            raise RunError(f"there is no policy {which!r} of {name}; saved are: {known}")
        return load_policy(self.folder / saved[which])

    def facts(self) -> dict[str, Any]:
        """All of it as plain values, as `report.json` holds them."""
        agents = {
            agent.name: {
                "symbols": list(agent.symbols),
                "from": agent.first,
                "to": agent.last,
                "bars": agent.bars,
                "policies": list(agent.policies),
                "metrics": {name: dict(figures) for name, figures in agent.metrics.items()},
                "assumptions": agent.assumptions,
            }
            for agent in self.agents.values()
        }
        bundles = {lane: list(folders) for lane, folders in self.bundles.items()}
        return {"run": str(self.folder), "agents": agents, "bundles": bundles}
