"""Callbacks: Stable-Baselines3's objects, plain functions, and lists of both, called where its PPO
calls them.

They are known by their methods (`init_callback`, `on_step`), so that Stable-Baselines3 need not be
installed.
"""

from typing import Any

from flatout.errors import SettingsError


class FunctionCall:
    """A function of (locals, globals) that says whether to go on."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    def init_callback(self, model: Any) -> None:
        """Nothing to prepare."""

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Keep what the function will be shown."""
        self.locals, self.globals = locals_, globals_

    def update_locals(self, locals_: dict[str, Any]) -> None:
        """Show newer values."""
        self.locals.update(locals_)

    def on_step(self) -> bool:
        """Ask the function."""
        return bool(self.function(self.locals, self.globals))

    def on_rollout_start(self) -> None:
        """Nothing to do."""

    on_rollout_end = on_training_end = on_rollout_start


class Progress:
    """A bar on the screen, as a callback: it follows the model's steps."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        )

    def init_callback(self, model: Any) -> None:
        """Remember whom to follow."""
        self.model = model

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Show it."""
        self.first = self.model.num_timesteps
        self.task = self.bar.add_task("", total=locals_["total_timesteps"] - self.first)
        self.bar.start()

    def on_step(self) -> bool:
        """Move it."""
        self.bar.update(self.task, completed=self.model.num_timesteps - self.first)
        return True

    def update_locals(self, locals_: dict[str, Any]) -> None:
        """Nothing to keep."""

    def on_rollout_start(self) -> None:
        """Nothing to do."""

    on_rollout_end = on_rollout_start

    def on_training_end(self) -> None:
        """Leave it as it stands."""
        self.bar.stop()


class Calls:
    """All callbacks of one training."""

    def __init__(self, callback: Any, progress_bar: bool, model: Any) -> None:
        given = (
            list(callback)
            if isinstance(callback, list | tuple)
            else []
            if callback is None
            else [callback]
        )
        self.each = [called(one) for one in given] + ([Progress()] if progress_bar else [])
        for one in self.each:
            one.init_callback(model)

    def training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """All begin; each keeps its own copy of the names."""
        for one in self.each:
            one.on_training_start(dict(locals_), globals_)

    def rollout_start(self) -> None:
        """A rollout begins."""
        for one in self.each:
            one.on_rollout_start()

    def step(self, locals_: dict[str, Any]) -> bool:
        """A step was made; False if any wants to stop. All are asked."""
        for one in self.each:
            one.update_locals(locals_)
        answers = [one.on_step() for one in self.each]
        return all(answers)

    def rollout_end(self) -> None:
        """A rollout is whole."""
        for one in self.each:
            one.on_rollout_end()

    def training_end(self) -> None:
        """All end."""
        for one in self.each:
            one.on_training_end()


def called(callback: Any) -> Any:
    """The callback as an object with Stable-Baselines3's methods."""
    if all(
        hasattr(callback, name)
        for name in ("init_callback", "on_training_start", "on_step", "update_locals")
    ):
        return callback
    if callable(callback):
        return FunctionCall(callback)
    raise SettingsError(
        f"callback is {callback!r}; give a callback of Stable-Baselines3, a function of "
        f"(locals, globals), or a list"
    )
