"""Adam, as all algorithms of this engine use it: the direction only, for rates that are data."""

import optax

from flatout.learners.hyperparameters import ADAM_EPSILON

ADAM = optax.scale_by_adam(eps=ADAM_EPSILON)
