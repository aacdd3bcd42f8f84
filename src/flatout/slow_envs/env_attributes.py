"""Attributes of an environment, read, called and set through its wrappers.

These functions are sent to wherever an environment lives, also to its own process: they import no
library for learning.
"""

from collections.abc import Mapping, Sequence

import gymnasium as gym

from flatout.slow_envs.gymnasium_types import EnvAnswer


def read_attribute(env: object, name: str) -> EnvAnswer:
    """An attribute of an environment or of what it wraps."""
    if hasattr(env, "get_wrapper_attr"):
        return env.get_wrapper_attr(name)
    return getattr(env, name)


def call_attribute(
    env: object, name: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> EnvAnswer:
    """An attribute of an environment or of what it wraps, or what it returns if it is a method."""
    found = read_attribute(env, name)
    return found(*args, **kwargs) if callable(found) else found


def assign_attribute(env: object, name: str, value: object) -> None:
    """Set an attribute of an environment, in whichever wrapper has it."""
    if hasattr(env, "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
    else:
        setattr(env, name, value)


def is_wrapped_in(env: object, wrapper_class: type) -> bool:
    """Whether a wrapper of this class is among those around the environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
