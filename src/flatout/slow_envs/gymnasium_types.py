"""Names for what Gymnasium's environments take and return, written down once.

Gymnasium leaves the kind of observations, actions and infos to each environment. Environments of
every kind stand side by side here, so nothing closer than `Any` fits all of them.
"""

from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym

SpaceValue = Any  # an observation or an action: a number, an array, or a dict or tuple of them
EnvInfo = dict[str, Any]  # the info of a step or a reset; `gymnasium.Env` has this very type
EnvOptions = dict[str, Any] | None  # the options of a reset, likewise
ResetTuple = tuple[SpaceValue, EnvInfo]
StepTuple = tuple[SpaceValue, SupportsFloat, bool, bool, EnvInfo]
PlainEnv = gym.Env[SpaceValue, SpaceValue]
AnyEnv = Any  # an environment, plain or async, in whatever wrappers: for functions of one
EnvAnswer = Any  # an attribute of an environment, or what its method returns
Maker = Callable[[], object]  # makes an environment, plain or async; what it made is checked
