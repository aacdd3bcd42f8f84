"""What a study will take: memory from its arrays, time from two updates that are really made."""

from collections.abc import Sequence
from dataclasses import dataclass

from flatout.foreign import JsonTable
from flatout.search.run import PreparedStudy
from flatout.search.space import middle_value
from flatout.training.plan import Plan, make_plan
from flatout.training.training import Lane, Training
from flatout.workers.slots import Slot


@dataclass(frozen=True)
class StudyPlan:
    """The forecast of one study."""

    prepared: PreparedStudy
    plan: Plan  # of one batch of lanes

    @property
    def trial_steps(self) -> int:
        """Environment steps of one trial, all splits and seeds."""
        market = self.prepared.market
        return market.updates * market.program.rollout * market.lanes_per_trial

    @property
    def trials_per_hour(self) -> float | None:
        """How many trials fit into an hour without pruning; None if nothing was measured."""
        speed = self.plan.steps_per_s
        return None if speed is None else 3600 * speed / self.trial_steps

    @property
    def seconds(self) -> float | None:
        """How long all trials take without pruning, then finalists, winner and controls."""
        speed, compiling = self.plan.steps_per_s, self.plan.compile_seconds
        if speed is None or compiling is None:
            return None
        market, search = self.prepared.market, self.prepared.market.settings.search
        lanes = search.trials * market.lanes_per_trial
        lanes += search.final_seeds * (search.finalists * len(market.folds.splits) + 3)
        return compiling + lanes * market.updates * market.program.rollout / speed

    def facts(self) -> JsonTable:
        """The figures of the forecast, for programs."""
        market, layout = self.prepared.market, self.prepared.layout
        return {
            "study": self.prepared.request.name, "trials": market.settings.search.trials,
            "splits": layout.splits, "seeds": layout.seeds, "paths": len(market.folds.paths),
            "lanes_per_worker": layout.lanes, "workers": layout.workers, "updates": market.updates,
            "trial_steps": self.trial_steps, "memory_bytes": 2 * self.plan.total_bytes,
            "steps_per_s": self.plan.steps_per_s, "trials_per_hour": self.trials_per_hour,
            "compile_seconds": self.plan.compile_seconds, "seconds_without_pruning": self.seconds,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """The forecast in sentences, for people."""
        facts = self.facts()
        lines = [
            f"{facts['trials']} trials x {facts['splits']} splits x {facts['seeds']} seeds; each "
            f"lane {facts['updates']} updates, {facts['trial_steps']:,} steps per trial",
            f"{facts['workers']} workers with two batches of {facts['lanes_per_worker']} lanes; "
            f"memory about {facts['memory_bytes'] / 2**20:,.0f} MiB",
        ]
        if self.seconds is not None:
            lines.append(
                f"about {facts['trials_per_hour']:,.0f} trials per hour, {self.seconds / 60:,.1f} "
                f"minutes in all without pruning ({facts['steps_per_s']:,.0f} steps/s measured, "
                f"{facts['compile_seconds']:.0f} s of compiling); the progress bar corrects this "
                "as the study runs"
            )
        return lines


def make_study_plan(
    prepared: PreparedStudy, slots: Sequence[Slot], measure: bool = True
) -> StudyPlan:
    """The forecast; measuring takes some seconds."""
    market, layout = prepared.market, prepared.layout
    values = {name: middle_value(knob) for name, knob in market.settings.search.space.items()}
    lanes = []
    for k in range(layout.lanes * layout.workers):
        spec = market.lane(values, k % layout.splits, 0)
        lanes.append(
            Lane(
                name=f"lane{k}",
                seed=spec.seed,
                rates=spec.rates,
                judged=spec.judged,
                hidden=spec.hidden,
                log_std=spec.log_std,
            )
        )
    training = Training(
        program=market.program,
        data=market.tape,
        lanes=tuple(lanes),
        updates=market.updates,
        chunk=market.updates,
        eval_envs=market.test_blocks,
        eval_steps=market.test_bars,
    )
    plan = make_plan(training, slots)
    return StudyPlan(prepared, plan.with_trial(slots) if measure else plan)
