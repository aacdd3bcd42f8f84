"""Callbacks: Stable-Baselines3's objects, plain functions, and lists of both, called where its PPO
calls them.

They are known by their methods (`init_callback`, `on_step`), so that Stable-Baselines3 need not be
installed.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

from flatout.errors import SettingsError
from flatout.sb3.model import LearningModel

# Local or global names of the training loop; Stable-Baselines3's callbacks have this type.
Names = dict[str, Any]


class Callback(Protocol):
    """The methods of Stable-Baselines3's `BaseCallback` that a training calls."""

    def init_callback(self, model: LearningModel) -> None: ...
    def on_training_start(self, locals_: Names, globals_: Names) -> None: ...
    def update_locals(self, locals_: Names) -> None: ...
    def on_step(self) -> bool: ...
    def on_rollout_start(self) -> None: ...
    def on_rollout_end(self) -> None: ...
    def on_training_end(self) -> None: ...


class FunctionCallback:
    """A function of (locals, globals) that returns whether to go on."""

    def __init__(self, function: Callable[[Names, Names], object]) -> None:
        self.function = function
        self.locals: Names = {}
        self.globals: Names = {}

    def init_callback(self, model: LearningModel) -> None:
        """Do nothing: the function finds the model in its locals."""

    def on_training_start(self, locals_: Names, globals_: Names) -> None:
        """Keep the names that the function will be given."""
        self.locals, self.globals = locals_, globals_

    def update_locals(self, locals_: Names) -> None:
        """Take over the newest values of the names."""
        self.locals.update(locals_)

    def on_step(self) -> bool:
        """Call the function; False ends the training."""
        return bool(self.function(self.locals, self.globals))

    def on_rollout_start(self) -> None:
        """Do nothing: the function is called after steps only."""

    on_rollout_end = on_training_end = on_rollout_start


class ProgressBar:
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

    def init_callback(self, model: LearningModel) -> None:
        """Keep the model whose steps are counted."""
        self.model = model

    def on_training_start(self, locals_: Names, globals_: Names) -> None:
        """Show an empty bar, as long as the training has steps."""
        self.first = self.model.num_timesteps
        self.task = self.bar.add_task("", total=locals_["total_timesteps"] - self.first)
        self.bar.start()

    def on_step(self) -> bool:
        """Move the bar to the steps made so far; the training always goes on."""
        self.bar.update(self.task, completed=self.model.num_timesteps - self.first)
        return True

    def update_locals(self, locals_: Names) -> None:
        """Do nothing: the bar reads the model."""

    def on_rollout_start(self) -> None:
        """Do nothing: the bar moves with steps."""

    on_rollout_end = on_rollout_start

    def on_training_end(self) -> None:
        """Leave the bar as it stands."""
        self.bar.stop()


class Callbacks:
    """All callbacks of one training, called one after the other."""

    def __init__(self, callback: object, progress_bar: bool, model: LearningModel) -> None:
        if callback is None:
            given = []
        else:
            given = list(callback) if isinstance(callback, list | tuple) else [callback]
        self.each = [as_callback(one) for one in given]
        if progress_bar:
            self.each.append(ProgressBar())
        for one in self.each:
            one.init_callback(model)

    def training_start(self, locals_: Names, globals_: Names) -> None:
        """A training begins; each callback keeps its own copy of the names."""
        for one in self.each:
            one.on_training_start(dict(locals_), globals_)

    def rollout_start(self) -> None:
        """The environments are about to be stepped for the next update."""
        for one in self.each:
            one.on_rollout_start()

    def step(self, locals_: Names) -> bool:
        """A step was made; False if any callback wants to end the training. All are called."""
        for one in self.each:
            one.update_locals(locals_)
        answers = [one.on_step() for one in self.each]
        return all(answers)

    def rollout_end(self) -> None:
        """All steps of the next update were made."""
        for one in self.each:
            one.on_rollout_end()

    def training_end(self) -> None:
        """The last update was made, or a callback ended the training."""
        for one in self.each:
            one.on_training_end()


def as_callback(callback: object) -> Callback:
    """The callback as an object with Stable-Baselines3's methods."""
    if has_callback_methods(callback):
        return callback
    if callable(callback):
        return FunctionCallback(callback)
    raise SettingsError(
        f"callback is {callback!r}; give a callback of Stable-Baselines3, a function of "
        f"(locals, globals), or a list"
    )


def has_callback_methods(callback: object) -> TypeGuard[Callback]:
    """Whether this is an object with Stable-Baselines3's methods, rather than a function."""
    return all(
        hasattr(callback, name)
        for name in ("init_callback", "on_training_start", "on_step", "update_locals")
    )
