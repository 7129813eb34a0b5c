"""A model of any library, as `initialize` sees it: its parameters, its arrays, and how to run it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..recipe.layers import ArrayRef, Leave
from ..recipe.trace import Norm

Apply = Callable[..., Any]
GUESSES = 12
PIXELS = (32, 28, 8, 64, 224)  # sides of images that networks are made for


@dataclass(frozen=True)
class Model:
    """The parameters of a model and how to run and rebuild it."""

    parameters: list[ArrayRef]
    leaves: Mapping[Any, jax.Array]
    """All its arrays of floats, by the keys of the parameters."""
    call: Callable[[Mapping[Hashable, Any], tuple[Any, ...], dict[str, Any]], Any]
    """Runs it with other arrays in place of the leaves, in evaluation mode."""
    rebuilt: Callable[[Mapping[Hashable, jax.Array]], Any]
    """The model with new arrays in place of some leaves."""
    normalized: Norm
    """The kind of its normalization layers, if it has any."""
    trainable: Callable[[Any], set[Hashable]]
    """The keys of the leaves that a filter of the library names."""
    examples: list[jax.ShapeDtypeStruct]
    """Inputs that it may take, going by what its layers read, in their order."""
    is_state: Callable[[Any], bool] = lambda node: False
    """Whether a node of its inputs is a state."""


def is_floating(leaf: Any) -> bool:
    """Whether a leaf is an array of real or complex floats."""
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def kept(tree: Any, spec: Any, keys: list[Hashable]) -> set[Hashable]:
    """The keys of the leaves of a tree at which `spec`, a tree of bools or of its beginning, or a function, is true."""
    if jax.tree_util.all_leaves([spec]) and callable(spec):  # many modules are callable too
        marks = [spec(leaf) for leaf in jax.tree.leaves(tree)]
    else:
        marks = jax.tree.leaves(jax.tree.map(lambda mark, part: jax.tree.map(lambda _: bool(mark), part), spec, tree))
    return {key for key, mark in zip(keys, marks) if mark}


def example(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """The shape of an input."""
    return jax.ShapeDtypeStruct(shape, dtype)


def no_rule(owner: object) -> Leave:
    """For parameters of layers that are not known here."""
    return Leave(f"no rule for parameters of {type(owner).__name__}")
