"""What a bundle refuses: networks that fit nothing, notes that cannot be written, settings that
mean something else. It knows neither files nor markets.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flatout.arrays import NumpyArray
from flatout.errors import BundleError
from flatout.foreign import JsonTable, finite, parse_json, shorten
from flatout.policies import bundle_files
from flatout.policies.network import Network, Perceptron, Sizes
from flatout.settings.tables import MarketSettings

MOST_NOTES = 1 << 20
LONGEST = 200  # letters of symbols in a sentence


def check_network(network: Network, tensors: Mapping[str, NumpyArray], sizes: Sizes) -> None:
    """Refuse a network that has diverged or does not fit the market; `tensors` are its arrays."""
    for name, array in tensors.items():
        if not finite(array):
            raise BundleError(f"{name} holds NaN or infinite values: the training has diverged")
    check_widths("actor", network.actor, sizes.observation, sizes.head)
    check_widths("critic", network.critic, sizes.observation, 1)
    if widths_of(network.critic) != sizes.hidden:
        raise BundleError(
            f"the critic's layers are {widths_of(network.critic)} wide, the actor's {sizes.hidden}"
        )
    bundle_files.check_size(sizes)
    check_array("log_std", network.log_std, (sizes.deviations,))


def check_gates(gates: NDArray[np.float32], hidden: tuple[int, ...]) -> None:
    """Refuse gates that do not fit hidden layers of these widths."""
    check_array("gates", gates, (len(hidden),))
    if not ((gates >= 0) & (gates <= 1)).all():
        raise BundleError(f"gates are shares from 0 to 1, got {gates}")
    if len(set(hidden)) > 1:
        widths = ", ".join(map(str, hidden))
        raise BundleError(
            f"gates skip layers of one width; the actor's are {widths} wide: leave them out"
        )


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


def check_lot_steps(settings: MarketSettings, unseen: Sequence[str]) -> None:
    """Refuse to trade symbols without a lot step where steps are given by symbol: a policy brings
    those of the symbols that taught it only.
    """
    steps = settings.limits.lot_step
    missing = [symbol for symbol in unseen if isinstance(steps, dict) and symbol not in steps]
    if missing:
        raise BundleError(
            f"market.limits.lot_step is by symbol, and has no step for "
            f"{shorten(', '.join(missing), LONGEST)}, which did not teach this policy: give theirs "
            "in the settings, or one step for all; 0 is any amount"
        )


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
        check_array(f"{name}.hidden.{k}.weight", layer.weight, (width, wide))
        check_array(f"{name}.hidden.{k}.bias", layer.bias, (wide,))
        width = wide
    check_array(f"{name}.head.weight", perceptron.head.weight, (outputs, width))
    check_array(f"{name}.head.bias", perceptron.head.bias, (outputs,))


def check_array(name: str, array: NDArray[np.float32], shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape than the policy's market asks for."""
    if array.shape != shape:
        lanes = (
            "; give the network of one lane, not of a population" if array.ndim > len(shape) else ""
        )
        raise BundleError(
            f"{name} has shape {array.shape}, the recipe, the symbols and the action kind ask "
            f"for {shape}{lanes}"
        )


def check_known(what: str, given: str, allowed: tuple[str, ...]) -> None:
    """Refuse a name that is none of the allowed ones."""
    if given not in allowed:
        raise BundleError(f"there is no {what} {given!r}: choose one of {', '.join(allowed)}")


def check_setting(name: str, given: object, own: object) -> None:
    """Refuse a setting with which the policy's numbers would mean something else."""
    if given != own:
        raise BundleError(
            f"{name} is {given!r}, this policy was trained with {own!r}: leave it so, or "
            f"train a policy for the other"
        )
