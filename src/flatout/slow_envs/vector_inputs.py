"""What a vector environment is given, checked and brought into one form: an environment's spaces, a
seed for each environment, a mask, a value for each environment.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flatout.errors import SettingsError
from flatout.foreign import shorten_repr
from flatout.slow_envs.async_env import AsyncEnv
from flatout.slow_envs.gymnasium_types import Maker


def check_makers(given: object) -> list[Maker]:
    """The makers in a list, or a refusal of what is none."""
    cure = "give a list of functions, each of which makes an environment"
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise SettingsError(f"makers are {shorten_repr(given)}: {cure}")
    makers = list(given)
    if not makers:
        raise SettingsError(f"AsyncioVectorEnv was given no makers: {cure}")
    for k, maker in enumerate(makers):
        if not callable(maker):
            raise SettingsError(f"maker {k} is {shorten_repr(maker)}: {cure}")
    return makers


def check_equal_spaces(envs: Sequence[AsyncEnv]) -> None:
    """Refuse environments whose spaces differ from those of the first."""
    first = envs[0]
    for k, env in enumerate(envs):
        if (env.observation_space, env.action_space) != (
            first.observation_space,
            first.action_space,
        ):
            raise SettingsError(
                f"environment {k} has the spaces {env.observation_space} and "
                f"{env.action_space}, the first has {first.observation_space} and "
                f"{first.action_space}: they must be equal"
            )


def spread_seeds(seed: int | Sequence[int | None] | None, n_envs: int) -> Sequence[int | None]:
    """One seed per environment: each is one more than that of the one before."""
    if seed is None:
        return [None] * n_envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + k for k in range(n_envs)]
    if len(seed) != n_envs:
        raise SettingsError(
            f"there are {len(seed)} seeds for {n_envs} environments: give one for each"
        )
    return seed


def spread_values(values: object, n_envs: int) -> Sequence[object]:
    """One value per environment: a list or tuple has them, anything else is the value of all."""
    each = values if isinstance(values, list | tuple) else [values] * n_envs
    if len(each) != n_envs:
        raise SettingsError(
            f"there are {len(each)} values for {n_envs} environments: give one for each"
        )
    return each


def check_mask(mask: ArrayLike | None, n_envs: int) -> NDArray[np.bool_]:
    """The mask as booleans, one per environment; all if none is given."""
    if mask is None:
        return np.ones(n_envs, np.bool_)
    given = np.asarray(mask)
    if given.shape != (n_envs,) or given.dtype != np.bool_ or not given.any():
        raise SettingsError(
            f"reset_mask is {mask!r}: it must be {n_envs} booleans, of which at least one is True"
        )
    return given
