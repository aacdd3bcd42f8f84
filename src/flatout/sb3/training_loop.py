"""The loop of `PPO.learn`: counters, updates, and what is logged of them."""

import sys
import time
from collections import deque

import numpy as np

from flatout.errors import FlatoutError
from flatout.sb3.arguments import check_whole, evaluate_schedules
from flatout.sb3.callbacks import Callbacks
from flatout.sb3.engine import LearningEngine
from flatout.sb3.logger import record_episodes, record_update
from flatout.sb3.model import LearningModel


def reset_counters(model: LearningModel, total_timesteps: int, reset: bool) -> int:
    """Set the counters of a training of so many steps and return the step at which it ends. Without
    `reset` steps count on from where they are, and so do the episodes that are logged.
    """
    model.start_time = time.time_ns()
    if reset or model.ep_info_buffer is None:
        model.ep_info_buffer = deque(maxlen=model._stats_window_size)
        model.ep_success_buffer = deque(maxlen=model._stats_window_size)
    model.num_timesteps = 0 if reset else model.num_timesteps
    model._num_timesteps_at_start = model.num_timesteps
    model._total_timesteps = (
        check_whole("total_timesteps", cut_fraction(total_timesteps)) + model.num_timesteps
    )
    return model._total_timesteps


def cut_fraction(given: object) -> object:
    """A number such as 1e5 as an int; all else as it is, for whoever refuses it."""
    finite = isinstance(given, float | np.floating) and np.isfinite(given)
    return int(given) if finite else given  # type: ignore[call-overload]


def run_updates(
    model: LearningModel, engine: LearningEngine, callbacks: Callbacks, log_interval: int | None
) -> None:
    """Update until all steps of the training were made, or a callback wants no more; log every
    `log_interval`th update, or none.
    """
    iteration, going = 0, True
    while going and model.num_timesteps < model._total_timesteps:
        metrics, going = engine.run_update(model, callbacks)
        if metrics is not None:
            iteration += 1
            note_update(model, metrics)
            if log_interval is not None and iteration % log_interval == 0:
                dump_logs(model, iteration)


def note_update(model: LearningModel, metrics: dict[str, float]) -> None:
    """Record what an update measured; refuse to go on where its loss is not finite."""
    if not np.isfinite(metrics["loss"]):
        raise FlatoutError(
            f"the loss is {metrics['loss']} after {model.num_timesteps} steps: rewards or "
            "observations are not finite, or far too large; check the environment, scale it, or "
            "lower learning_rate"
        )
    model._n_updates += round(metrics["epochs"])
    record_update(model.logger, metrics, evaluate_schedules(model))
    model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")


def dump_logs(model: LearningModel, iteration: int) -> None:
    """Write what was recorded, with the means over the last episodes and the speed; `iteration` is
    the number of the update, or 0 to leave it out.
    """
    logger = model.logger
    elapsed = max((time.time_ns() - model.start_time) / 1e9, sys.float_info.epsilon)
    if iteration:
        logger.record("time/iterations", iteration, exclude="tensorboard")
    record_episodes(logger, model.ep_info_buffer or (), model.ep_success_buffer or ())
    logger.record("time/fps", int((model.num_timesteps - model._num_timesteps_at_start) / elapsed))
    logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
    logger.record("time/total_timesteps", model.num_timesteps, exclude="tensorboard")
    logger.dump(model.num_timesteps)
