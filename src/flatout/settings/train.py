"""The table `[train]` of `flatout.toml`: how agents learn.

Some numbers have another default for each algorithm. They are written beside each other here, and
nowhere else.
"""

from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from flatout.settings.fields import (
    AtLeastOne,
    Model,
    NotNegative,
    Number,
    Positive,
    Share,
    Switchable,
    Timesteps,
)

Activation = Literal["tanh", "relu", "silu"]
DistributionName = Literal["gaussian", "squashed_gaussian", "softmax"]
EngineName = Literal["auto", "jax", "torch"]
Algorithm = Literal["ppo", "pathwise"]
NetworkKind = Literal["flat", "per_asset"]


AUTO: Final = "auto"


class LearnerKind(NamedTuple):
    """What learns: an algorithm, a network, and the distribution of its actions."""

    algorithm: Algorithm
    network: NetworkKind
    distribution: DistributionName


PLAIN = LearnerKind("ppo", "flat", "gaussian")  # it learns in any environment


def by_algorithm(ppo: Any, pathwise: Any, meaning: str = "") -> Any:
    """A field with a default for each algorithm; `meaning` is what it says beside them."""
    said = f"not given = {write_value(pathwise)} for pathwise, {write_value(ppo)} for ppo"
    return Field(
        ppo,
        description="; ".join(filter(None, (meaning, said))),
        json_schema_extra={"pathwise": pathwise},
    )


def of_ppo(default: Any, meaning: str, idle: Any = None) -> Any:
    """A field that ppo alone has; others carry `idle`, or the default."""
    extra = {"only": "ppo", "pathwise": default if idle is None else idle}
    return Field(default, description=f"ppo: {meaning}", json_schema_extra=extra)


def of_pathwise(default: Any, meaning: str, idle: Any) -> Any:
    """A field that pathwise alone has; others carry `idle`."""
    extra = {"only": "pathwise", "pathwise": default}
    return Field(idle, description=f"pathwise: {meaning}; {default}", json_schema_extra=extra)


def write_value(value: Any) -> str:
    """A default as people read it."""
    if value is None:
        return "off"
    return str(list(value) if isinstance(value, tuple) else value)


def default_of(field: FieldInfo, algorithm: str) -> Any:
    """A field's default for an algorithm."""
    return extra_of(field).get(algorithm, field.default)


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """What a field knows of the algorithms; nothing where they do not differ."""
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) else {}


class TrainSettings(Model):
    """How agents learn. Marked [shape]: another value is another program; all others are data in
    one.
    """

    algorithm: Literal["auto", "pathwise", "ppo"] = Field(
        AUTO,
        description="pathwise = along the gradient of what a window of `n_steps` earned; auto = "
        "pathwise where actions have a gradient and nothing is given that ppo alone has, such as "
        "`clip` or `epochs`; else ppo [shape]",
    )
    engine: EngineName = Field(
        "auto",
        description=(
            "library that computes [shape]; auto = jax, but torch where only PyTorch can "
            "use the GPU"
        ),
    )
    timesteps: Annotated[Timesteps | None, Switchable] = Field(
        None,
        description="bars that each agent trades, in a study each lane; not given = "
        "500,000 in a training, 100,000 in a study",
    )
    seeds: AtLeastOne = Field(1, description="agents per market; in a study per trial and split")
    n_envs: Annotated[AtLeastOne | None, Switchable] = Field(
        None,
        description="accounts trading at once [shape]; not given = 16 for pathwise, 64 for ppo, "
        "fewer where memory is short",
    )
    n_steps: AtLeastOne = by_algorithm(128, 32, "bars between two updates [shape]")
    minibatches: AtLeastOne = of_ppo(4, "into which a rollout is split [shape]", idle=1)
    epochs: AtLeastOne = of_ppo(4, "passes over a rollout", idle=1)
    network: Literal["auto", "flat", "per_asset"] = Field(
        AUTO,
        description="per_asset = one small network that looks at each asset; auto = per_asset "
        "for pathwise, flat for ppo [shape]",
    )
    hidden: Annotated[tuple[AtLeastOne, ...], Field(min_length=1)] = by_algorithm(
        (64, 64), (32, 32), "widths of the hidden layers of actor and critic [shape]"
    )
    activation: Activation = Field("tanh", description="[shape]")
    distribution: Literal["auto", "gaussian", "squashed_gaussian", "softmax"] = Field(
        AUTO,
        description="of actions [shape]; softmax = shares that sum to 1, for long-only `weights`; "
        "auto = softmax for pathwise where it may be, else gaussian",
    )
    learning_rate: Positive = by_algorithm(3e-4, 3e-3)
    final_rate_share: Share = Field(
        1.0,
        description=(
            "share of the learning rate at the last update, reached in a straight line; 1 "
            "= constant"
        ),
    )
    gamma: Share = Field(0.99, description="discount per bar")
    gae_lambda: Share = 0.95
    clip: Positive = of_ppo(0.2, "of the probability ratio")
    value_clip: Annotated[Positive | None, Switchable] = of_ppo(None, "of the critic's change; off")
    entropy: NotNegative = of_ppo(0.0, "weight of the entropy bonus")
    value: NotNegative = by_algorithm(0.5, 0.0, "weight of the critic's loss")
    max_grad_norm: Annotated[Positive | None, Switchable] = by_algorithm(
        0.5, None, "of all gradients together"
    )
    target_kl: Annotated[Positive | None, Switchable] = of_ppo(
        None, "epochs stop above 1.5 times this; off"
    )
    log_std: Number = of_ppo(0.0, "logarithm of the first standard deviation of actions")
    normalise_advantage: bool = of_ppo(True, "per minibatch")
    normalise_reward: bool = of_ppo(False, "by the running deviation of discounted returns")
    action_noise: NotNegative = of_pathwise(
        0.1, "deviation of the noise on actions, before their bounds", idle=0.1
    )
    feature_noise: NotNegative = of_pathwise(
        0.3, "deviation of the noise on what agents see while they learn", idle=0.0
    )
    weight_decay: NotNegative = of_pathwise(
        0.1, "share of each weight lost per update, times the learning rate", idle=0.0
    )

    @model_validator(mode="after")
    def fill_numbers(self) -> "TrainSettings":
        """The algorithm's own defaults for what is not given."""
        self.take_defaults()
        return self

    def take_defaults(self) -> None:
        """Write the algorithm's defaults over what was not given."""
        for name, field in type(self).model_fields.items():
            if name not in self.model_fields_set and name not in LearnerKind._fields:
                object.__setattr__(self, name, default_of(field, self.algorithm))

    @property
    def kind(self) -> LearnerKind:
        """What learns; what is left open is as it suits any environment."""
        return LearnerKind(
            PLAIN.algorithm if self.algorithm == "auto" else self.algorithm,
            PLAIN.network if self.network == "auto" else self.network,
            PLAIN.distribution if self.distribution == "auto" else self.distribution,
        )

    def is_open(self, name: str) -> bool:
        """Whether a part of the kind was left to the market; "auto" is as if nothing was given."""
        return name not in self.model_fields_set or getattr(self, name) == AUTO

    def settle(self, kind: LearnerKind) -> "TrainSettings":
        """These settings with what is left open as this kind of learner has it, numbers included;
        what was given stays what was given, and what was left open may be settled again.
        """
        settled = self.model_copy()
        for name, value in kind._asdict().items():
            if self.is_open(name):
                object.__setattr__(settled, name, value)
                settled.model_fields_set.discard(name)
        settled.take_defaults()
        return settled

    def list_idle(self) -> list[str]:
        """Numbers that were changed although the algorithm does not have them."""
        return [
            name
            for name, field in type(self).model_fields.items()
            if extra_of(field).get("only", self.algorithm) != self.algorithm
            and getattr(self, name) != default_of(field, self.algorithm)
        ]


def list_own(algorithm: Algorithm) -> frozenset[str]:
    """The numbers that one algorithm alone has."""
    fields = TrainSettings.model_fields.items()
    return frozenset(name for name, field in fields if extra_of(field).get("only") == algorithm)


PPO_ONLY, PATHWISE_ONLY = list_own("ppo"), list_own("pathwise")
