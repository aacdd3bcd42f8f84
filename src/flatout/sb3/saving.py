"""What of a model goes into its file, and how it comes back.

Functions cannot be saved without pickle: a schedule must be given again when a model shall learn
on.
"""

import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flatout.errors import BundleError, SettingsError
from flatout.foreign import shorten_repr
from flatout.policies.bundle_files import flatten
from flatout.policies.network import Network
from flatout.runs import versions
from flatout.sb3 import arguments, flat_spaces
from flatout.sb3.arguments import Arguments
from flatout.sb3.environments import AnySpace
from flatout.sb3.model import AskedDevice, LearningModel
from flatout.sb3.model_file import CURE, ModelFacts, ModelFile, PathOrFile, read_model, write_model
from flatout.sb3.trained_state import (
    TrainedState,
    read_learner_state,
    select_arrays,
    state_arrays,
    state_facts,
)

SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
NUMBERS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "normalize_advantage", "ent_coef",
    "vf_coef",
    "max_grad_norm", "target_kl", "tensorboard_log", "verbose", "seed",
)  # fmt: skip
FIXED = {
    "use_sde": False, "sde_sample_freq": -1, "rollout_buffer_class": None,
    "rollout_buffer_kwargs": None,
    "_init_setup_model": True, "overlap": None,
}  # fmt: skip
OTHER_NAMES = {"lr_schedule": "learning_rate"}  # how Stable-Baselines3's files call it


class SavedModel(NamedTuple):
    """A model as its file describes it."""

    facts: ModelFacts
    observation_space: AnySpace
    action_space: AnySpace
    state: TrainedState


def save_model(model: LearningModel, path: PathOrFile) -> None:
    """Write arguments, counters, spaces and all that was learned into one file."""
    state = model.learner_state
    facts = {
        "arguments": {name: as_json_value(getattr(model, name)) for name in NUMBERS}
        | {
            name: as_json_value(getattr(model, name))
            for name in SCHEDULES
            if not callable(getattr(model, name))
        }
        | {"stats_window_size": model._stats_window_size},
        "functions": [name for name in SCHEDULES if callable(getattr(model, name))],
        "policy": {**model.architecture._asdict(), "hidden": list(model.architecture.hidden)},
        "observation_space": flat_spaces.space_facts(model.observation_space),
        "action_space": flat_spaces.space_facts(model.action_space),
        "n_envs": model.n_envs,
        "num_timesteps": model.num_timesteps,
        "n_updates": model._n_updates,
        "versions": versions(),
        **state_facts(state),
    }
    arrays = state_arrays(state)
    for name in ("observation_space", "action_space"):
        arrays |= {
            f"{name}.{k}": array
            for k, array in flat_spaces.space_arrays(getattr(model, name)).items()
        }
    write_model(path, facts, arrays)


def as_json_value(value: object) -> object:
    """An argument as JSON has it: NumPy's numbers become Python's."""
    return value.item() if isinstance(value, np.generic) else value


def read_saved_model(path: PathOrFile) -> SavedModel:
    """The model in a file, all of whose arrays fit its spaces and its policy."""
    file = read_model(path)
    observation, action = (read_space(file, name) for name in ("observation_space", "action_space"))
    flat_spaces.check_spaces(observation, action)
    state = read_learner_state(
        file, flat_spaces.sizes_of(observation, action, file.facts.policy.hidden)
    )
    parts = ("network.", "optimiser.", "observation_space.", "action_space.")
    if strange := [name for name in file.arrays if not name.startswith(parts)]:
        raise BundleError(
            f"{file.name} holds {shorten_repr(strange[0])}, which is no part of a model; {CURE}"
        )
    return SavedModel(file.facts, observation, action, state)


def read_space(file: ModelFile, name: str) -> AnySpace:
    """The observation space or the action space in a file."""
    try:
        return flat_spaces.space_of(getattr(file.facts, name), select_arrays(file.arrays, name))
    except SettingsError as error:
        raise BundleError(f"{file.name}: {name}: {error}; {CURE}") from None


def arguments_of(saved: SavedModel, device: AskedDevice, changes: Arguments) -> Arguments:
    """The constructor's arguments of a saved model, some of them changed."""
    policy = arguments.PolicyArchitecture(**saved.facts.policy.model_dump())
    kwargs = {
        "net_arch": list(policy.hidden),
        "activation_fn": policy.activation,
        "log_std_init": policy.log_std,
    }
    changes = {OTHER_NAMES.get(name, name): value for name, value in changes.items()}
    if (
        "policy_kwargs" in changes
        and arguments.read_policy_kwargs(changes.pop("policy_kwargs")) != policy
    ):
        raise SettingsError(
            f"policy_kwargs are not those of the file, which are {kwargs}: leave them out"
        )
    chosen = {
        **FIXED,
        **saved.facts.arguments.model_dump(),
        "policy_kwargs": kwargs,
        "device": device,
    }
    chosen |= {name: missing_schedule(name) for name in saved.facts.functions}
    unknown = [name for name in changes if name not in chosen]
    if unknown:
        raise SettingsError(
            f"{unknown[0]!r} is no argument of PPO; there are {', '.join(sorted(chosen))}"
        )
    return chosen | changes


def check_log_folder(folder: str | None) -> str | None:
    """The folder for TensorBoard's files that a model's file names, if it lies in the current one:
    a file from somebody else does not decide where in the system something is written.
    """
    if folder is None or Path(os.path.realpath(folder.replace("\0", ""))).is_relative_to(
        Path.cwd()
    ):
        return folder
    warnings.warn(
        f"the file's tensorboard_log is {shorten_repr(folder)}, which is not in the current "
        "folder, so nothing is written "
        "there: give it again, PPO.load(path, env=env, tensorboard_log=...)",
        stacklevel=4,  # whoever calls `learn`
    )
    return None


def missing_schedule(name: str) -> arguments.Schedule:
    """Stands for a schedule that a file cannot hold: whoever calls it learns what to do."""

    def missing(_: float) -> float:
        raise SettingsError(
            f"{name} was a function, which a file without pickle cannot hold: give it again, "
            f"PPO.load(path, env=env, {name}=...)"
        )

    return missing


def restore_model(model: LearningModel, saved: SavedModel) -> None:
    """Put back what is no argument: spaces, counters and all that was learned."""
    model.observation_space, model.action_space = saved.observation_space, saved.action_space
    model.n_envs, model.num_timesteps = saved.facts.n_envs, saved.facts.num_timesteps
    model._n_updates, model._loaded = saved.facts.n_updates, saved.state
    model._seed = saved.state.seed if model.seed is None else model._seed


def check_network(given: Network, own: Network) -> None:
    """Refuse a network whose arrays have other shapes than one's own."""
    shapes, wanted = ({k: np.shape(x) for k, x in flatten(one).items()} for one in (given, own))
    if shapes != wanted:
        raise SettingsError(f"the file's network has shapes {shapes}, this model's has {wanted}")


def read_state_for(model: LearningModel, path: PathOrFile) -> TrainedState:
    """All that a file has learned, if its network has the shapes of the model's."""
    state = read_saved_model(path).state
    check_network(state.network, model.network)
    return state
