"""PPO's hyperparameters as plain numbers. Their names, defaults and meanings are those of the
`[train]` table (`TrainSettings`), and are written there only.

Whoever runs PPO's update gets them from here: the fused engines as the arrays of `Rates`, the
learner of slow environments as part of its `Rule`. The door of Stable-Baselines3 translates its
arguments into these names and has its own defaults.
"""

from dataclasses import dataclass, fields

from flatout.settings.train import TrainSettings

DEFAULTS = TrainSettings()
# learning from a rollout stops when the policy has moved this many times target_kl
KL_TOLERANCE = 1.5
ADAM_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The numbers of PPO's update that every learner knows; None switches a limit off."""

    epochs: int = DEFAULTS.epochs
    learning_rate: float = DEFAULTS.learning_rate
    gamma: float = DEFAULTS.gamma
    gae_lambda: float = DEFAULTS.gae_lambda
    clip: float = DEFAULTS.clip
    value_clip: float | None = DEFAULTS.value_clip
    entropy: float = DEFAULTS.entropy
    value: float = DEFAULTS.value
    max_grad_norm: float | None = DEFAULTS.max_grad_norm
    target_kl: float | None = DEFAULTS.target_kl
    normalise_advantage: bool = DEFAULTS.normalise_advantage


def hyperparameters_of(settings: TrainSettings) -> Hyperparameters:
    """Those that the settings give."""
    names = [field.name for field in fields(Hyperparameters)]
    return Hyperparameters(**{name: getattr(settings, name) for name in names})
