"""What all tables of `flatout.toml` are made of."""

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from flatout.foreign import shorten_repr

# What the compiled programs hold: counters of 32 bits, and single precision.
MOST_COUNTED = 2**31 - 1
LARGEST = 3e38


def to_plain(value: Any) -> Any:
    """A number of NumPy as Python has it; all else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def to_whole(value: Any) -> Any:
    """A whole number as an int, also one of NumPy's or one written as 1e6; all else as it is, for
    whoever refuses it.

    >>> to_whole(np.int64(3)), to_whole(1e6), to_whole(1.5), to_whole(True), to_whole("5")
    (3, 1000000, 1.5, True, '5')
    """
    value = to_plain(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_whole(
    given: object, name: str, refuse: type[Exception], least: int = 1, most: int = MOST_COUNTED
) -> int:
    """A whole number that a caller gives, in any of the ways of `to_whole`, or a refusal of what is
    none; `name` is the argument's.

    >>> read_whole(2e1, "num_envs", ValueError)
    20
    """
    value = to_whole(given)
    if type(value) is int and least <= value <= most:
        return value
    raise refuse(f"{name} is {shorten_repr(given)}: give a whole number, {least:,} to {most:,}")


# Strict: `true` is no number, and neither is "5".
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST), BeforeValidator(to_plain)]
Share = Annotated[Number, Field(ge=0, le=1)]
Money = Annotated[
    float, Field(strict=True, ge=1e-6, le=LARGEST), BeforeValidator(to_plain)
]  # other money is divided by it
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Whole = BeforeValidator(to_whole)
Count = Annotated[int, Field(strict=True, ge=0, le=MOST_COUNTED), Whole]
# Timesteps are counted in 64 bits; what the optimiser counts in 32 is refused when it is known.
Timesteps = Annotated[int, Field(strict=True, ge=1, le=10**15), Whole]
AtLeastOne = Annotated[int, Field(strict=True, ge=1, le=MOST_COUNTED), Whole]
Switchable = BeforeValidator(lambda given: None if given == "off" else given)  # TOML has no null


class Model(BaseModel):
    """Frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
