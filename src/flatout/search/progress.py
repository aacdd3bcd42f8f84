"""How far studies are: bars on a terminal or in a notebook, a line per round elsewhere."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from flatout.search.run import PreparedStudy
from flatout.search.study import Study
from flatout.search.study_state import TrialDecision
from flatout.terminal import can_draw, describe_span, plain, say


class StudyProgress:
    """Shows how far each study is, until the block is left."""

    def __init__(
        self, prepared: Sequence[PreparedStudy], quiet: bool, console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.drawn = not quiet and can_draw(self.console)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
        )
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.drawn)
        self.trials = {one.request.name: one.market.settings.search.trials for one in prepared}
        self.tasks: dict[str, TaskID] = {}
        self.best: dict[str, float] = {}
        self.began = time.monotonic()

    def __enter__(self) -> "StudyProgress":
        self.bar.start()
        for name, trials in self.trials.items():
            self.tasks[name] = self.bar.add_task(
                f"{plain(name)}: compiling", total=trials, facts=""
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show_stage(self, study: Study, stage: str) -> None:
        """Show that a stage of a study begins."""
        name = study.name
        self.bar.update(self.tasks[name], description=f"{plain(name)}: {plain(stage)}")
        if not self.quiet and not self.drawn:
            say(f"{name}: {stage}", err=True)

    def show_note(self, study: Study, note: str) -> None:
        """Show a sentence that stays on the screen, also where no progress is shown."""
        if self.drawn:
            self.console.print(plain(f"{study.name}: {note}"), highlight=False)
        else:
            say(f"{study.name}: {note}", err=True)

    def show_round(self, study: Study, decisions: Sequence[TrialDecision]) -> None:
        """Some trials were judged."""
        name, state = study.name, study.state
        values = [one.value or 0.0 for one in decisions if one.state == "complete"]
        self.best[name] = max([self.best.get(name, float("-inf")), *values])
        done, trials = len(state.finished), self.trials[name]
        facts = []
        if self.best[name] > float("-inf"):
            facts.append(f"best {self.best[name]:.2f}")
        if state.seconds:
            facts.append(f"{state.steps / state.seconds:,.0f} steps/s")
            facts.append(f"lanes busy {state.busy_seconds / state.worker_seconds:.0%}")
        if done:
            facts.append(f"{3600 * done / state.seconds:,.0f} trials/h")
            facts.append(f"{describe_span(state.seconds / done * (trials - done))} left")
        self.bar.update(
            self.tasks[name],
            description=f"{plain(name)}: searching",
            completed=done,
            facts=", ".join(facts),
        )
        if not self.quiet and not self.drawn:
            say(f"{name}: {done} of {trials} trials; {', '.join(facts)}", err=True)
