"""What of a model goes into its file, and how it comes back; also its policy as a Bundle.

Functions cannot be saved without pickle: a schedule must be given again when a model shall learn
on.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flatout.errors import BundleError, SettingsError
from flatout.foreign import shortened
from flatout.market.market import Market, build_market
from flatout.policies.bundle import Bundle
from flatout.policies.bundle_files import flatten
from flatout.policies.network import Network
from flatout.runs import versions
from flatout.sb3 import arguments, flat_spaces
from flatout.sb3.knowledge import Knowledge, knowledge_arrays, knowledge_facts, knowledge_of, part
from flatout.sb3.model_file import CURE, ModelFacts, ModelFile, read_model, write_model
from flatout.settings.tables import MarketSettings, Settings

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


class Saved(NamedTuple):
    """A model from a file."""

    facts: ModelFacts
    observation_space: Any
    action_space: Any
    known: Knowledge


def write(model: Any, path: Any) -> None:
    """Write the model's file."""
    known = model.known
    facts = {
        "arguments": {name: plain(getattr(model, name)) for name in NUMBERS}
        | {
            name: plain(getattr(model, name))
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
        **knowledge_facts(known),
    }
    arrays = knowledge_arrays(known)
    for name in ("observation_space", "action_space"):
        arrays |= {
            f"{name}.{k}": array
            for k, array in flat_spaces.space_arrays(getattr(model, name)).items()
        }
    write_model(path, facts, arrays)


def plain(value: Any) -> Any:
    """A number as JSON has it."""
    return value.item() if isinstance(value, np.generic) else value


def read(path: Any) -> Saved:
    """The model in a file, all of whose arrays fit its spaces and its policy."""
    file = read_model(path)
    observation, action = (space_in(file, name) for name in ("observation_space", "action_space"))
    flat_spaces.check_spaces(observation, action)
    known = knowledge_of(file, flat_spaces.sizes_of(observation, action, file.facts.policy.hidden))
    parts = ("network.", "optimiser.", "observation_space.", "action_space.")
    if strange := [name for name in file.arrays if not name.startswith(parts)]:
        raise BundleError(
            f"{file.name} holds {shortened(strange[0])}, which is no part of a model; {CURE}"
        )
    return Saved(file.facts, observation, action, known)


def space_in(file: ModelFile, name: str) -> Any:
    """One of the spaces in a file."""
    try:
        return flat_spaces.space_of(getattr(file.facts, name), part(file.arrays, name))
    except SettingsError as error:
        raise BundleError(f"{file.name}: {name}: {error}; {CURE}") from None


def arguments_of(saved: Saved, device: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments of a saved model, some of them changed."""
    policy = arguments.Policy(**saved.facts.policy.model_dump())
    kwargs = {
        "net_arch": list(policy.hidden),
        "activation_fn": policy.activation,
        "log_std_init": policy.log_std,
    }
    changes = {OTHER_NAMES.get(name, name): value for name, value in changes.items()}
    if "policy_kwargs" in changes and arguments.policy_of(changes.pop("policy_kwargs")) != policy:
        raise SettingsError(
            f"policy_kwargs are not those of the file, which are {kwargs}: leave them out"
        )
    chosen = {
        **FIXED,
        **saved.facts.arguments.model_dump(),
        "policy_kwargs": kwargs,
        "device": device,
    }
    chosen |= {name: lost(name) for name in saved.facts.functions}
    unknown = [name for name in changes if name not in chosen]
    if unknown:
        raise SettingsError(
            f"{unknown[0]!r} is no argument of PPO; there are {', '.join(sorted(chosen))}"
        )
    return chosen | changes


def inner_folder(folder: str | None) -> str | None:
    """The folder for TensorBoard's files that a model's file names, if it lies in the current one:
    a file from somebody else does not decide where in the system something is written.
    """
    if folder is None or Path(os.path.realpath(folder.replace("\0", ""))).is_relative_to(
        Path.cwd()
    ):
        return folder
    warnings.warn(
        f"the file's tensorboard_log is {shortened(folder)}, which is not in the current folder, "
        f"so nothing is written "
        "there: give it again, PPO.load(path, env=env, tensorboard_log=...)",
        stacklevel=4,  # whoever calls `learn`
    )
    return None


def lost(name: str) -> Any:
    """Stands for a function that a file cannot hold."""

    def missing(_: float) -> float:
        raise SettingsError(
            f"{name} was a function, which a file without pickle cannot hold: give it again, "
            f"PPO.load(path, env=env, {name}=...)"
        )

    return missing


def restore(model: Any, saved: Saved) -> None:
    """Put back what is no argument: spaces, counters and all that was learned."""
    model.observation_space, model.action_space = saved.observation_space, saved.action_space
    model.n_envs, model.num_timesteps = saved.facts.n_envs, saved.facts.num_timesteps
    model._n_updates = saved.facts.n_updates
    model._loaded = saved.known
    model._seed = model._loaded.seed if model.seed is None else model._seed


def check_network(given: Network, own: Network) -> None:
    """Refuse a network whose arrays have other shapes than one's own."""
    shapes, wanted = ({k: np.shape(x) for k, x in flatten(one).items()} for one in (given, own))
    if shapes != wanted:
        raise SettingsError(f"the file's network has shapes {shapes}, this model's has {wanted}")


def bundle_of(model: Any, settings: Any) -> Bundle:
    """The policy with all it needs to trade."""
    market = model.market
    if market is None:
        raise BundleError(
            "this model does not learn in a flatout market on the fused engine, so there is no "
            "recipe of its "
            "features: use `save`, or give PPO a flatout.Market"
        )
    chosen = settings.market if isinstance(settings, Settings) else settings or MarketSettings()
    check_settings(market, chosen)
    notes = {"seed": model.known.seed, "timesteps": model.num_timesteps, "learner": "flatout.PPO"}
    return Bundle(
        model.network, model.architecture.activation, "gaussian", market.fitted, chosen, None, notes
    )


def check_settings(market: Market, settings: MarketSettings) -> None:
    """Refuse settings that are not those of the market: a bundle would trade by other rules than it
    learned.
    """
    other = build_market(market.panel, Settings(market=settings), market.fitted)
    for name, own, given in (
        ("shape", market.shape, other.shape),
        ("costs", market.rules.costs, other.rules.costs),
        ("limits", market.rules.limits, other.rules.limits),
        ("reward", market.rules.reward, other.rules.reward),
        ("tape", market.tape, other.tape),
    ):
        if not all(same(*pair) for pair in zip(own, given, strict=True)):
            raise BundleError(
                f"the market's {name} is not what these settings make: call "
                "save_bundle(path, settings) with the settings that the market was built with"
            )


def same(one: Any, other: Any) -> bool:
    """Whether two fields are equal, arrays or not."""
    first, second = np.asarray(one), np.asarray(other)
    return np.array_equal(
        first, second, equal_nan=first.dtype.kind == "f" and second.dtype.kind == "f"
    )
