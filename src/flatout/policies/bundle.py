"""`Bundle`: a policy with all it needs to trade: network, fitted recipe, market settings, notes.

It acts on NumPy alone: whoever backtests or trades a policy needs neither JAX nor PyTorch. It
refuses to act in a market that means something else than the one it learnt in: other symbols,
features, actions or fills. Other costs are an experiment, and allowed. How it lies on disk is
`bundle_files.py`'s business.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import Array, NumpyArray, to_numpy
from flatout.bars.panel import Panel
from flatout.errors import BundleError
from flatout.features.recipe import FittedRecipe
from flatout.foreign import JsonTable, JsonValue, finite, parse_json
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES, Shape
from flatout.market.market import Market, build_market, make_shape, recipe_of
from flatout.market.orders import action_size
from flatout.policies import bundle_files
from flatout.policies.actions import CONTINUOUS, MultiCategorical
from flatout.policies.network import Network, Perceptron, Sizes, actor
from flatout.policies.per_asset import AssetLayout, actor_of_assets, layout_of
from flatout.settings.tables import FeatureSettings, MarketSettings, Settings, check_long_weights
from flatout.settings.train import Activation, DistributionName, NetworkKind

Floats = NDArray[np.float32]
Actions = NDArray[np.float32 | np.int64]
MOST_NOTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Bundle:
    """One policy. Its arrays are its own copies, in single precision, as they will be on disk."""

    network: Network
    activation: Activation
    distribution: DistributionName
    recipe: FittedRecipe
    settings: MarketSettings  # the market it was trained in
    gates: Floats | None = None  # (hidden layer,) of a network that skips some of its layers
    kind: NetworkKind = "flat"  # whether the network sees all at once, or one asset after another
    notes: Mapping[str, JsonValue] = field(
        default_factory=dict
    )  # seed, timesteps, figures, versions: plain JSON values

    def __post_init__(self) -> None:
        _check_name("activation", self.activation, get_args(Activation))
        _check_name("distribution", self.distribution, tuple(CONTINUOUS))
        _check_name("kind of network", self.kind, get_args(NetworkKind))
        if self.distribution == "softmax":
            try:
                check_long_weights(self.settings)
            except ValueError as error:
                raise BundleError(str(error)) from None
        tensors = {
            name: own_copy(array) for name, array in bundle_files.flatten(self.network).items()
        }
        object.__setattr__(self, "network", bundle_files.assemble(tensors))
        if self.gates is not None:
            gates = own_copy(self.gates)
            object.__setattr__(
                self, "gates", None if (gates == 1).all() else gates
            )  # ones skip nothing
        object.__setattr__(self, "notes", plain_notes(self.notes))
        self._check_network(tensors)

    @property
    def shape(self) -> Shape:
        """What fixes its observations and actions."""
        recipe, n_assets = self.recipe.recipe, len(self.recipe.symbols)
        return make_shape(self.settings, n_assets, len(self.recipe.names), recipe.lookback)

    @property
    def observation_size(self) -> int:
        """How many numbers an observation has."""
        return self.shape.observation_size

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return action_size(self.settings.action, len(self.recipe.symbols))

    @property
    def choices(self) -> int | None:
        """Among how many choices each number of an action is one; None if it lies in [-1, 1]."""
        return len(self.shape.levels) or None

    @property
    def layout(self) -> AssetLayout | None:
        """Where each asset is in an observation; None if the network sees all of it at once."""
        return layout_of(self.shape) if self.kind == "per_asset" else None

    @property
    def sizes(self) -> Sizes:
        """What fixes the arrays of its network."""
        if layout := self.layout:
            return Sizes(layout.inputs, self.hidden, layout.head, layout.deviations)
        return bundle_files.network_sizes(
            self.observation_size, self.hidden, self.action_size, self.choices
        )

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the actor's hidden layers."""
        return widths_of(self.network.actor)

    @cached_property
    def schema_hash(self) -> str:
        """sha256 of what goes in and what comes out, and in which order; two trainings of one kind
        share it.
        """
        meaning = {
            "recipe": self.recipe.schema_hash,
            "account": ACCOUNT_FEATURES,
            "position": POSITION_FEATURES,
            "lookback": self.recipe.recipe.lookback,
            "observation_size": self.observation_size,
            "action": self.settings.action,
            "action_size": self.action_size,
        }
        if self.choices:
            meaning["levels"] = self.shape.levels
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()

    def act(self, observation: Array) -> Actions:
        """The action, (..., action) in [-1, 1] or whole numbers if it is `discrete`, for (...,
        observation): the mode of the policy, without noise.
        """
        seen = np.asarray(observation, np.float32)
        if seen.ndim == 0 or seen.shape[-1] != self.observation_size:
            raise BundleError(
                f"the observation has shape {seen.shape}, this policy reads (..., "
                f"{self.observation_size}): make it with the market of `Bundle.market`"
            )
        if not finite(seen):
            raise BundleError(
                "the observation holds NaN or infinite values: check the bars it was made from"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            head = self.run_actor(seen)
            if self.choices:
                action = MultiCategorical(head, self.choices).mode(np)
            else:
                action = CONTINUOUS[self.distribution].bounded(head, -1.0, 1.0, np)
        if not (finite(head) and finite(action)):
            raise BundleError(
                "the action is not a number: the policy's weights are far too large; train it anew"
            )
        return action

    def run_actor(self, seen: Floats) -> Floats:
        """The distribution's parameters, (..., action): means, or the logits of choices."""
        found: Floats = (
            actor_of_assets(self.network, seen, layout, self.activation, np, self.gates)
            if (layout := self.layout)
            else actor(self.network, seen, self.activation, np, self.gates)
        )
        return found

    def market(
        self,
        panel: Panel,
        settings: MarketSettings | None = None,
        features: FeatureSettings | None = None,
    ) -> Market:
        """The market of a panel as this policy knows it, with its own rules or with others that it
        may meet.
        """
        self.check(panel, settings, features)
        return build_market(panel, Settings(market=settings or self.settings), self.recipe)

    def as_settings(self) -> JsonTable:
        """What it brings along, as `load_settings` takes it: other sources may stand over it."""
        return {
            "market": self.settings.model_dump(mode="json"),
            "features": asdict(self.recipe.recipe),
        }

    def check(
        self,
        panel: Panel,
        settings: MarketSettings | None = None,
        features: FeatureSettings | None = None,
    ) -> None:
        """Refuse bars and settings in which observations or actions would mean something else, by
        name.
        """
        self.recipe.check(panel)
        if features is not None:
            asked, own = recipe_of(features), self.recipe.recipe
            for name in ("indicators", "lookback", "scaler"):
                _check_setting(f"features.{name}", getattr(asked, name), getattr(own, name))
        if settings is None:
            return
        _check_setting("market.action", settings.action, self.settings.action)
        _check_setting("market.fill", settings.fill, self.settings.fill)
        if self.choices:
            _check_setting(
                "market.order_sizes",
                sorted(settings.order_sizes),
                sorted(self.settings.order_sizes),
            )
        shorts, own_shorts = (s.limits.max_short_weight for s in (settings, self.settings))
        if self.settings.action != "trade" and (shorts > 0) != (own_shorts > 0):
            # shares become (a + 1) / 2 of the long side without shorts, a with them:
            # market/orders.py
            _check_setting("market.limits.max_short_weight", shorts, own_shorts)

    def check_shown(self, fitted: FittedRecipe, shape: Shape) -> None:
        """Refuse the observations and actions of a market that was built otherwise, by name."""
        if fitted is not self.recipe and not same_recipe(fitted, self.recipe):
            raise BundleError(
                "the market's features are not this policy's: another recipe, or one fitted on "
                "other rows; build the market with `Bundle.market`"
            )
        for name, given, own in zip(Shape._fields, shape, self.shape, strict=True):
            _check_setting(f"the market's {name}", given, own)

    def _check_network(self, tensors: Mapping[str, NumpyArray]) -> None:
        """Refuse a network that has diverged or does not fit the market."""
        for name, array in tensors.items():
            if not finite(array):
                raise BundleError(f"{name} holds NaN or infinite values: the training has diverged")
        check_widths("actor", self.network.actor, self.sizes.observation, self.sizes.head)
        check_widths("critic", self.network.critic, self.sizes.observation, 1)
        if widths_of(self.network.critic) != self.hidden:
            raise BundleError(
                f"the critic's layers are {widths_of(self.network.critic)} wide, the actor's "
                f"{self.hidden}"
            )
        bundle_files.check_size(self.sizes)
        _check_array("log_std", self.network.log_std, (self.sizes.deviations,))
        if self.gates is not None:
            _check_array("gates", self.gates, (len(self.hidden),))
            if not ((self.gates >= 0) & (self.gates <= 1)).all():
                raise BundleError(f"gates are shares from 0 to 1, got {self.gates}")
            if len(set(self.hidden)) > 1:
                widths = ", ".join(map(str, self.hidden))
                raise BundleError(
                    f"gates skip layers of one width; the actor's are {widths} wide: leave them out"
                )

    def save(self, folder: Path | str) -> None:
        """Write the policy into a folder, in place of the one it may hold; killed at any moment,
        the folder holds the old policy or the new one.
        """
        facts = {
            "activation": self.activation,
            "distribution": self.distribution,
            "hidden": self.hidden,
            "observation_size": self.observation_size,
            "action_size": self.action_size,
            **({"choices": self.choices} if self.choices else {}),
            **({"assets": len(self.recipe.symbols)} if self.kind == "per_asset" else {}),
            "market": self.settings.model_dump(mode="json"),
            "notes": self.notes,
            "schema_hash": self.schema_hash,
        }
        gates = {} if self.gates is None else {"gates": self.gates}
        bundle_files.write(
            Path(folder), facts, bundle_files.flatten(self.network) | gates, self.recipe
        )

    @classmethod
    def load(cls, folder: Path | str) -> "Bundle":
        """Read what `save` wrote; refuses what is missing, damaged, mixed up or of another
        version.
        """
        path = Path(folder) / bundle_files.JSON_FILE
        facts, tensors, recipe = bundle_files.read(Path(folder))
        market = bundle_files.market_settings(facts.market, path)
        gates, network = tensors.pop("gates", None), bundle_files.assemble(tensors)
        try:
            bundle = cls(
                network=network,
                activation=facts.activation,
                distribution=facts.distribution,
                recipe=recipe,
                settings=market,
                gates=gates,
                kind="per_asset" if facts.assets else "flat",
                notes=facts.notes,
            )
        except BundleError as error:
            raise BundleError(f"{path}: {error}") from None
        if bundle.schema_hash != facts.schema_hash:
            raise BundleError(
                f"{path} was saved by a flatout whose observations or actions mean something "
                f"else; train it anew"
            )
        return bundle


def own_copy(array: Array) -> Floats:
    """A copy in single precision, which no later update reaches."""
    return np.array(to_numpy(array), np.float32, order="C")


def plain_notes(notes: Mapping[str, object]) -> JsonTable:
    """The notes as JSON gives them back."""
    cure = "notes must be a dict of names and plain JSON values, None for what is not finite"
    try:
        text = json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BundleError(f"the notes cannot be written: {error}; {cure}") from None
    if len(text) > MOST_NOTES:
        raise BundleError(
            f"the notes have {len(text):,} letters; {MOST_NOTES:,} are allowed: keep them elsewhere"
        )
    return parse_json(text, JsonTable, where="the notes", refuse=BundleError, cure=cure)


def same_recipe(one: FittedRecipe, other: FittedRecipe) -> bool:
    """Whether two fitted recipes make the same features of the same bars."""
    same = np.array_equal(one.scaler.statistics, other.scaler.statistics, equal_nan=True)
    return same and one.schema_hash == other.schema_hash


def widths_of(perceptron: Perceptron) -> tuple[int, ...]:
    """Widths of the hidden layers."""
    return tuple(layer.weight.shape[1] for layer in perceptron.hidden)


def check_widths(name: str, perceptron: Perceptron, inputs: int, outputs: int) -> None:
    """Refuse layers that do not follow from each other or from the observation and the action."""
    if not perceptron.hidden:
        raise BundleError(f"the {name} has no hidden layer; a network has at least one")
    width = inputs
    for k, layer in enumerate(perceptron.hidden):
        wide = np.shape(layer.weight)[-1] if np.ndim(layer.weight) else 0
        if not wide:
            raise BundleError(f"{name}.hidden.{k} has no units; a layer has at least one")
        _check_array(f"{name}.hidden.{k}.weight", layer.weight, (width, wide))
        _check_array(f"{name}.hidden.{k}.bias", layer.bias, (wide,))
        width = wide
    _check_array(f"{name}.head.weight", perceptron.head.weight, (outputs, width))
    _check_array(f"{name}.head.bias", perceptron.head.bias, (outputs,))


def _check_array(name: str, array: Floats, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        lanes = (
            "; give the network of one lane, not of a population" if array.ndim > len(shape) else ""
        )
        raise BundleError(
            f"{name} has shape {array.shape}, the recipe, the symbols and the action kind ask "
            f"for {shape}{lanes}"
        )


def _check_name(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise BundleError(f"there is no {what} {given!r}: choose one of {', '.join(allowed)}")


def _check_setting(name: str, given: object, own: object) -> None:
    if given != own:
        raise BundleError(
            f"{name} is {given!r}, this policy was trained with {own!r}: leave it so, or "
            f"train a policy for the other"
        )
