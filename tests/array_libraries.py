"""NumPy, PyTorch and JAX behind one face: run a function that takes its namespace last, or
differentiate it.
"""

from functools import cache
from typing import Any

import array_api_compat.torch as torch_namespace
import jax
import jax.numpy as jnp
import numpy as np
import torch

from flatout.arrays import to_numpy

LIBRARIES = {"numpy": np, "torch": torch_namespace, "jax": jnp}
DIFFERENTIABLE = ("torch", "jax")


def run(library: str, function: Any, *trees: Any) -> Any:
    """function(*trees, xp) of nested tuples of NumPy arrays or numbers; the result's leaves are
    NumPy arrays.
    """
    xp = LIBRARIES[library]
    with jax.enable_x64(True):
        given = jax.tree.map(lambda x: xp.asarray(np.array(x)), trees)
        return jax.tree.map(
            to_numpy, compiled(function)(*given) if library == "jax" else function(*given, xp)
        )


def gradient(library: str, function: Any, *trees: Any) -> Any:
    """Of the scalar function(*trees, xp) by the first tree, as NumPy arrays; the others are
    constants.
    """
    xp = LIBRARIES[library]
    with jax.enable_x64(True):
        first, *others = jax.tree.map(lambda x: xp.asarray(np.array(x)), trees)
        if library == "jax":
            return jax.tree.map(to_numpy, jax.grad(lambda x: function(x, *others, xp))(first))
        leaves, structure = jax.tree.flatten(
            jax.tree.map(lambda x: x.clone().requires_grad_(), first)
        )
        scalar = function(jax.tree.unflatten(structure, leaves), *others, xp)
        found = torch.autograd.grad(scalar, leaves, allow_unused=True, materialize_grads=True)
        return jax.tree.unflatten(structure, [to_numpy(x) for x in found])


@cache
def compiled(function: Any) -> Any:
    return jax.jit(lambda *given: function(*given, jnp))
