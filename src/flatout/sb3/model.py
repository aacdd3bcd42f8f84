"""`flatout.PPO` as its own parts see it: engines, callbacks, logger and file writer.

They import this Protocol rather than the class, which imports them. Names are those of
Stable-Baselines3 where it has one, because callbacks read and change them.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr
from flatout.policies.network import Network, new_network
from flatout.sb3 import arguments, flat_spaces
from flatout.sb3.arguments import Arguments, MaybeScheduled, UpdateArguments
from flatout.sb3.environments import AnySpace
from flatout.sb3.logger import TrainingLogger
from flatout.sb3.trained_state import TrainedState, new_learner_state
from flatout.slow_envs.gymnasium_types import EnvInfo
from flatout.slow_envs.overlap import Overlap

if TYPE_CHECKING:
    import torch

AskedDevice: TypeAlias = "torch.device | str"  # a device of PyTorch, its name, or "auto"


class LearningModel(UpdateArguments, Protocol):
    """A model with its arguments as they are now: callbacks may change them between updates."""

    learning_rate: MaybeScheduled
    policy_kwargs: dict[str, object]
    tensorboard_log: str | None
    verbose: int
    use_sde: bool
    seed: int | None  # None: nobody chose one
    asked_device: AskedDevice
    _n_steps: int
    _batch_size: int
    _seed: int  # that of the learner, chosen or drawn
    prediction_noise: np.random.Generator

    observation_space: AnySpace
    action_space: AnySpace
    n_envs: int
    _loaded: TrainedState  # from a file, for as long as there are no environments

    num_timesteps: int  # steps of all environments so far
    start_time: float  # of the training, in nanoseconds since 1970
    ep_info_buffer: deque[Mapping[str, float]] | None  # what a Monitor says of the last episodes
    ep_success_buffer: deque[float] | None
    _stats_window_size: int  # episodes that both hold
    _num_timesteps_at_start: int
    _total_timesteps: int  # at which the training ends
    _n_updates: int  # epochs of gradient descent

    @property
    def n_steps(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def device(self) -> AskedDevice: ...

    @property
    def logger(self) -> TrainingLogger: ...

    @property
    def network(self) -> Network: ...

    @property
    def learner_state(self) -> TrainedState: ...

    def set_network(self, network: Network) -> None: ...


def set_arguments(model: LearningModel, given: Arguments) -> None:
    """Set the constructor's arguments under the names that scripts and callbacks know, and all
    counters to their start; what flatout does not offer is refused.
    """
    arguments.check_unsupported(given)
    check_kinds(given)
    arguments.check_numbers(given)
    model.policy_kwargs = dict(given["policy_kwargs"] or {})
    model.architecture = arguments.read_policy_kwargs(model.policy_kwargs)
    for name in arguments.OUR_NAMES:
        setattr(model, name, given[name])
    model.lr_schedule = arguments.schedule_of(given["learning_rate"])
    model._n_steps, model._batch_size = int(given["n_steps"]), int(given["batch_size"])
    model._stats_window_size = int(given["stats_window_size"])
    log = given["tensorboard_log"]
    model.tensorboard_log = None if log is None else str(log)
    model.verbose, model.seed, model.asked_device = given["verbose"], given["seed"], given["device"]
    model.use_sde = False
    model.num_timesteps = model._num_timesteps_at_start = model._total_timesteps = 0
    model._n_updates = 0
    model.start_time, model._current_progress_remaining = 0.0, 1.0
    model.ep_info_buffer = model.ep_success_buffer = None
    model._seed = draw_seed() if model.seed is None else int(model.seed) % 2**32
    model.prediction_noise = np.random.default_rng(model._seed)


def check_kinds(given: Arguments) -> None:
    """Refuse arguments that are not even of the kind they should be."""
    arguments.check_seed(given["seed"])
    kwargs, overlap = given["policy_kwargs"], given["overlap"]
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise SettingsError(
            f"policy_kwargs is {shorten_repr(kwargs)}; it must be a dict, such as "
            "dict(net_arch=[64, 64])"
        )
    if overlap is not None and not isinstance(overlap, Overlap):
        raise SettingsError(f"overlap is {shorten_repr(overlap)}; it must be a flatout.Overlap")
    if not isinstance(given["verbose"], int | np.integer):
        raise SettingsError(f"verbose is {shorten_repr(given['verbose'])}; it must be 0, 1 or 2")


def draw_seed() -> int:
    """A seed that nobody chose."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def new_state_for(model: LearningModel) -> TrainedState:
    """The state of a learner of the model's spaces and architecture that has learned nothing."""
    hidden = model.architecture.hidden
    sizes = flat_spaces.sizes_of(model.observation_space, model.action_space, hidden)
    network = new_network(sizes, model._seed, model.architecture.log_std)
    return new_learner_state(network, model._seed)


def update_progress(model: LearningModel) -> None:
    """Set the share of the training that remains, which schedules are functions of. Engines call it
    when steps were made.
    """
    model._current_progress_remaining = 1.0 - model.num_timesteps / model._total_timesteps


def keep_episodes(
    model: LearningModel, infos: Iterable[EnvInfo], dones: Sequence[bool] | NDArray[np.bool_]
) -> None:
    """Keep what finished episodes earned, for the means that are logged. Engines call it with the
    infos of a step, one per environment, and whether its episode ended there.
    """
    assert model.ep_info_buffer is not None and model.ep_success_buffer is not None
    for done, info in zip(dones, infos, strict=False):
        if "episode" in info:
            model.ep_info_buffer.append(info["episode"])
        if done and info.get("is_success") is not None:
            model.ep_success_buffer.append(info["is_success"])
