"""What all tables of `flatout.toml` are made of."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# What the compiled programs hold: counters of 32 bits, and single precision.
MOST_COUNTED = 2**31 - 1
LARGEST = 3e38
# Strict: `true` is no number, and neither is "5".
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Share = Annotated[Number, Field(ge=0, le=1)]
Money = Annotated[float, Field(strict=True, ge=1e-6, le=LARGEST)]  # other money is divided by it
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Count = Annotated[int, Field(strict=True, ge=0, le=MOST_COUNTED)]
# Timesteps are counted in 64 bits; what the optimiser counts in 32 is refused when it is known.
Timesteps = Annotated[int, Field(strict=True, ge=1, le=10**15)]
AtLeastOne = Annotated[int, Field(strict=True, ge=1, le=MOST_COUNTED)]
Switchable = BeforeValidator(lambda given: None if given == "off" else given)  # TOML has no null


class Model(BaseModel):
    """Frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
