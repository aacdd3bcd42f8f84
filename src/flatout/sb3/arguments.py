"""Stable-Baselines3's arguments as flatout's: which are allowed, and what the learner makes of
them.

What cannot be honoured is refused by name: a script that asked for something else must not seem to
get it.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr
from flatout.learners.hyperparameters import Hyperparameters
from flatout.learners.rates import Rates, make_rates
from flatout.settings.fields import to_whole
from flatout.settings.train import Activation

Arguments = Mapping[str, Any]  # by Stable-Baselines3's names; each is checked for what it must be
Schedule = Callable[[float], float]  # of the progress that remains, from 1 to 0
MaybeScheduled = float | Schedule
ACTIVATIONS: dict[str, Activation] = {"Tanh": "tanh", "ReLU": "relu", "SiLU": "silu"}
# Stable-Baselines3's arguments that are read at every update, and what flatout calls them; their
# defaults are its own, see `ppo.PPO`
OUR_NAMES = {
    "learning_rate": "learning_rate",
    "n_epochs": "epochs",
    "gamma": "gamma",
    "gae_lambda": "gae_lambda",
    "clip_range": "clip",
    "clip_range_vf": "value_clip",
    "normalize_advantage": "normalise_advantage",
    "ent_coef": "entropy",
    "vf_coef": "value",
    "max_grad_norm": "max_grad_norm",
    "target_kl": "target_kl",
}
POLICY_KWARGS = ("net_arch", "activation_fn", "log_std_init", "ortho_init")
ELSEWHERE = "or use stable_baselines3.PPO"


class PolicyArchitecture(NamedTuple):
    """The network that `policy_kwargs` ask for."""

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"
    log_std: float = 0.0


def check_policy_name(policy: object) -> None:
    """Refuse all but MlpPolicy, by its name or as Stable-Baselines3's class."""
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", repr(policy))
    module = "" if isinstance(policy, str) else getattr(policy, "__module__", "")
    if name == "MlpPolicy" or (
        name == "ActorCriticPolicy" and module.startswith("stable_baselines3.")
    ):
        return
    raise SettingsError(f'policy is {name!r}; flatout.PPO has "MlpPolicy": give that, {ELSEWHERE}')


def read_policy_kwargs(kwargs: Arguments | None) -> PolicyArchitecture:
    """The network that `policy_kwargs` ask for."""
    given = dict(kwargs or {})
    unknown = [name for name in given if name not in POLICY_KWARGS]
    if unknown:
        raise SettingsError(
            f"policy_kwargs has {', '.join(map(repr, unknown))}; flatout.PPO knows "
            f"{', '.join(POLICY_KWARGS)}: leave it out, {ELSEWHERE}"
        )
    if given.get("ortho_init", True) is not True:
        raise SettingsError(
            "policy_kwargs['ortho_init'] is not True; weights start orthogonal: leave it out"
        )
    log_std = check_number("policy_kwargs['log_std_init']", given.get("log_std_init", 0.0))
    return PolicyArchitecture(
        hidden=hidden_of(given.get("net_arch")),
        activation=activation_of(given.get("activation_fn")),
        log_std=log_std,
    )


def hidden_of(net_arch: object) -> tuple[int, ...]:
    """Widths of the hidden layers of actor and critic."""
    if net_arch is None:
        return PolicyArchitecture().hidden
    if isinstance(net_arch, Mapping):
        if set(net_arch) != {"pi", "vf"} or list(net_arch["pi"]) != list(net_arch["vf"]):
            raise SettingsError(
                f"policy_kwargs['net_arch'] is {dict(net_arch)}; actor and critic have equal "
                "layers here: give dict(pi=[64, 64], vf=[64, 64]) or [64, 64]"
            )
        net_arch = net_arch["pi"]
    widths = list(net_arch) if isinstance(net_arch, list | tuple) else [net_arch]
    sizes = [int(one) for one in widths if isinstance(one, int | np.integer) and one >= 1]
    if not widths or len(sizes) < len(widths):
        raise SettingsError(
            f"policy_kwargs['net_arch'] is {net_arch!r}; it is a list of one or more widths, "
            f"such as [64, 64]"
        )
    return tuple(sizes)


def activation_of(given: object) -> Activation:
    """The activation of a class of torch.nn, known by its name: PyTorch need not be loaded."""
    name = (
        "Tanh"
        if given is None
        else given
        if isinstance(given, str)
        else getattr(given, "__name__", repr(given))
    )
    known = {known.lower(): activation for known, activation in ACTIVATIONS.items()}
    if name.lower() not in known:
        raise SettingsError(
            f"policy_kwargs['activation_fn'] is {name}; there are "
            f"torch.nn.{', torch.nn.'.join(ACTIVATIONS)}"
        )
    return known[name.lower()]


def check_unsupported(given: Arguments) -> None:
    """Refuse what flatout.PPO has no equal for."""
    for name, neutral, why in (
        ("use_sde", False, "there is no state-dependent exploration"),
        ("sde_sample_freq", -1, "there is no state-dependent exploration"),
        ("rollout_buffer_class", None, "the learner keeps its trajectories itself"),
        ("rollout_buffer_kwargs", None, "the learner keeps its trajectories itself"),
        ("_init_setup_model", True, "a model is always whole; `PPO.load` makes one from a file"),
    ):
        if given[name] != neutral and not (name == "rollout_buffer_kwargs" and given[name] == {}):
            raise SettingsError(
                f"{name} is {given[name]!r}; {why} in flatout.PPO: leave it out, {ELSEWHERE}"
            )


def check_numbers(given: Arguments) -> None:
    """Refuse numbers outside of what PPO is defined for."""
    for name in ("n_steps", "batch_size", "n_epochs", "stats_window_size"):
        check_whole(name, given[name])
    for name in ("gamma", "gae_lambda"):
        check_number(name, given[name], 0.0, 1.0)
    for name in ("ent_coef", "vf_coef"):
        check_number(name, given[name])
    check_number("max_grad_norm", given["max_grad_norm"], 0.0)
    for name in ("learning_rate", "clip_range", "clip_range_vf", "target_kl"):
        optional = name in ("clip_range_vf", "target_kl")
        if not (given[name] is None and optional) and not (
            callable(given[name]) and name != "target_kl"
        ):
            check_number(name, given[name], 0.0)
    if given["normalize_advantage"] and given["batch_size"] < 2:
        raise SettingsError(
            "batch_size is 1; advantages are normalised over a minibatch: give 2 or more"
        )


def check_seed(given: object) -> int | None:
    """A seed as an int, None for none; anything but a whole number is refused."""
    seed = to_whole(given)
    if seed is None or type(seed) is int:
        return seed
    raise SettingsError(f"seed is {shorten_repr(given)}; it must be a whole number, or None")


def check_number(name: str, value: object, low: float = -np.inf, high: float = np.inf) -> float:
    """The argument of this name as a float; anything but a finite number in bounds is refused."""
    if (
        isinstance(value, int | float | np.number)
        and not isinstance(value, bool)
        and low <= value <= high
        and np.isfinite(float(value))
    ):
        return float(value)
    bounds = (
        f" from {low:g} to {high:g}"
        if np.isfinite(high)
        else f" of {low:g} or more"
        if low > -np.inf
        else ""
    )
    raise SettingsError(f"{name} is {value!r}; it must be a number{bounds}")


def check_whole(name: str, value: object) -> int:
    """The argument of this name as an int; anything but a whole number from 1 on is refused."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise SettingsError(f"{name} is {value!r}; it must be a whole number of 1 or more")
    return int(value)


def schedule_of(given: MaybeScheduled) -> Schedule:
    """A number, or a function of the progress that remains, as such a function."""
    if callable(given):
        return lambda progress_remaining: float(given(progress_remaining))
    return lambda _: float(given)


def count_minibatches(rollout: int, batch_size: int) -> int:
    """How many equal minibatches the fused engine makes of a rollout."""
    if rollout % batch_size == 0:
        return rollout // batch_size
    fitting = [size for size in range(1, rollout + 1) if rollout % size == 0]
    near = sorted(sorted(fitting, key=lambda size: abs(size - batch_size))[:5])
    raise SettingsError(
        f"batch_size is {batch_size}, which does not divide n_steps x n_envs = {rollout}: on this "
        f"engine all minibatches are equal; sizes that work are {', '.join(map(str, near))}"
    )


def check_rollout(
    rollout: int, batch_size: int, normalize_advantage: bool, equal_minibatches: bool
) -> None:
    """Refuse, or warn of, rollouts (n_steps x n_envs transitions) that do not suit the minibatches.
    An engine of equal minibatches refuses others itself.
    """
    if rollout < 2 and normalize_advantage:
        raise SettingsError(
            "n_steps x n_envs is 1; advantages are normalised over a rollout: give more steps"
        )
    if not equal_minibatches and rollout % batch_size and rollout > batch_size:
        warnings.warn(
            f"batch_size is {batch_size}, which does not divide n_steps x n_envs = {rollout}: the "
            f"last minibatch of each epoch has {rollout % batch_size} transitions",
            stacklevel=4,  # whoever made the model
        )


class UpdateArguments(Protocol):
    """The attributes of a model that an update reads; callbacks may change them."""

    lr_schedule: Schedule
    n_epochs: int
    gamma: float
    gae_lambda: float
    clip_range: MaybeScheduled
    clip_range_vf: MaybeScheduled | None
    normalize_advantage: bool
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    target_kl: float | None
    architecture: PolicyArchitecture
    _current_progress_remaining: float


class ScheduledValues(NamedTuple):
    """Numbers that may be functions of the progress; the defaults stand before the first update,
    when no function is asked.
    """

    learning_rate: float = 0.0
    clip: float = 1.0
    value_clip: float | None = None


def evaluate_schedules(model: UpdateArguments) -> ScheduledValues:
    """What the model's schedules give at its present progress."""
    progress = model._current_progress_remaining
    value_clip = None if model.clip_range_vf is None else schedule_of(model.clip_range_vf)(progress)
    return ScheduledValues(
        learning_rate=model.lr_schedule(progress),
        clip=schedule_of(model.clip_range)(progress),
        value_clip=value_clip,
    )


def hyperparameters_of_model(model: UpdateArguments, scheduled: ScheduledValues) -> Hyperparameters:
    """PPO's hyperparameters by flatout's names, from the model's attributes as they are now."""
    given = {ours: getattr(model, theirs) for theirs, ours in OUR_NAMES.items()}
    given |= scheduled._asdict()
    return Hyperparameters(**given | {"normalise_advantage": bool(model.normalize_advantage)})


def rates_of_model(
    model: UpdateArguments, environment: tuple[object, ...], scheduled: ScheduledValues
) -> Rates:
    """The rates of an update, from the model's attributes as they are now. `environment` are the
    rates of its environments, if they have any.

    Stable-Baselines3 has no rewards in units of returns, and its schedules are functions: ours are
    constant within an update.
    """
    return make_rates(
        hyperparameters_of_model(model, scheduled),
        environment,
        gates=np.ones(len(model.architecture.hidden), np.float32),
        updates=1,
        until=0,
        final_rate_share=1.0,
        normalise_reward=False,
    )
