"""`Bundle`: a policy with all it needs to trade: network, fitted recipe, market settings, notes.

It acts on NumPy alone: whoever backtests or trades a policy needs neither JAX nor PyTorch. It
refuses to act in a market that means something else than the one it learnt in: other symbols,
features, actions or fills. Other costs are an experiment, and allowed; other symbols have a door of
their own, `other_symbols.py`. How it lies on disk is `bundle_files.py`'s business.
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

from flatout.arrays import Array, to_numpy
from flatout.bars.panel import Panel
from flatout.errors import BundleError, RecipeError
from flatout.features.recipe import FittedRecipe
from flatout.features.unseen_symbols import list_unseen
from flatout.foreign import JsonTable, JsonValue, finite, shorten_repr
from flatout.market.episode import ACCOUNT_FEATURES, POSITION_FEATURES, Shape
from flatout.market.market import Market, build_market, make_shape, recipe_of
from flatout.market.orders import action_size
from flatout.policies import bundle_files
from flatout.policies.actions import CONTINUOUS, MultiCategorical
from flatout.policies.bundle_checks import (
    check_gates,
    check_known,
    check_lot_steps,
    check_network,
    check_setting,
    plain_notes,
    widths_of,
)
from flatout.policies.network import Network, Sizes, actor
from flatout.policies.per_asset import AssetLayout, actor_of_assets, layout_of
from flatout.settings.tables import FeatureSettings, MarketSettings, Settings, check_long_weights
from flatout.settings.train import Activation, DistributionName, NetworkKind

Floats = NDArray[np.float32]
Actions = NDArray[np.float32 | np.int64]


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
    taught: tuple[str, ...] = ()  # the symbols that taught it, where it is asked to trade others
    notes: Mapping[str, JsonValue] = field(
        default_factory=dict
    )  # seed, timesteps, figures, versions: plain JSON values

    def __post_init__(self) -> None:
        check_known("activation", self.activation, get_args(Activation))
        check_known("distribution", self.distribution, tuple(CONTINUOUS))
        check_known("kind of network", self.kind, get_args(NetworkKind))
        if self.taught and self.kind == "flat":
            raise BundleError(
                "a flat network trades the symbols that taught it, and this one is said to be "
                f"taught on {shorten_repr(self.taught)}: leave `taught` out"
            )
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
        check_network(self.network, tensors, self.sizes)
        if self.gates is not None:
            check_gates(self.gates, self.hidden)

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
                + ("" if self.kind == "flat" else "; `for_symbols` makes it read other symbols")
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
        self._check_bars(panel)
        if features is not None:
            asked, own = recipe_of(features), self.recipe.recipe
            for name in ("indicators", "lookback", "scaler"):
                check_setting(f"features.{name}", getattr(asked, name), getattr(own, name))
        if self.taught:
            check_lot_steps(settings or self.settings, list_unseen(self.taught, panel.symbols))
        if settings is None:
            return
        check_setting("market.action", settings.action, self.settings.action)
        check_setting("market.fill", settings.fill, self.settings.fill)
        if self.choices:
            check_setting(
                "market.order_sizes",
                sorted(settings.order_sizes),
                sorted(self.settings.order_sizes),
            )
        shorts, own_shorts = (s.limits.max_short_weight for s in (settings, self.settings))
        if self.settings.action != "trade" and (shorts > 0) != (own_shorts > 0):
            # shares become (a + 1) / 2 of the long side without shorts, a with them:
            # market/orders.py
            check_setting("market.limits.max_short_weight", shorts, own_shorts)

    def _check_bars(self, panel: Panel) -> None:
        """Refuse bars that the recipe is not for; who could ask for other symbols is told how."""
        try:
            self.recipe.check(panel)
        except RecipeError as error:
            if self.kind == "flat" or panel.symbols == self.recipe.symbols:
                raise
            raise RecipeError(
                f"{error}. This policy looks at each asset in turn: it trades other symbols, too, "
                "if you name them by `symbols`"
            ) from None

    def check_shown(self, fitted: FittedRecipe, shape: Shape) -> None:
        """Refuse the observations and actions of a market that was built otherwise, by name."""
        if fitted is not self.recipe and not same_recipe(fitted, self.recipe):
            raise BundleError(
                "the market's features are not this policy's: another recipe, or one fitted on "
                "other rows; build the market with `Bundle.market`"
            )
        for name, given, own in zip(Shape._fields, shape, self.shape, strict=True):
            check_setting(f"the market's {name}", given, own)

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
            **({"taught_symbols": list(self.taught)} if self.taught else {}),
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
                taught=tuple(facts.taught_symbols or ()),
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


def same_recipe(one: FittedRecipe, other: FittedRecipe) -> bool:
    """Whether two fitted recipes make the same features of the same bars."""
    same = np.array_equal(one.scaler.statistics, other.scaler.statistics, equal_nan=True)
    return same and one.schema_hash == other.schema_hash
