"""Multipliers of the learning rate for optax, each layer its own: `lr_scales`."""

from __future__ import annotations

from typing import Any

import jax

from ..core.errors import StiefelError
from ..recipe.initialize import Options, Patterns
from ..recipe.rates import Step, shares
from .adapter import adapter_of
from .model import Apply


def lr_scales(
    model: Any,
    params: Any = None,
    *,
    optimizer: Step = "adam",
    inputs: Any = None,
    apply: Apply | None = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
) -> Any:
    r"""Give each array the multiplier of one learning rate, as `stiefel_init.torch.param_groups` does in PyTorch.

    Args:
        model: As for `initialize`.
        params: The tree of its arrays that optax sees, such as `eqx.filter(model, eqx.is_inexact_array)` or
            `nnx.state(model, nnx.Param)`; the model itself if not given.
        optimizer: What the multipliers are for: `"adam"` and its relatives, `"sgd"`, or `"muon"`.
        inputs, apply, stem, head: As for `initialize`.

    Returns:
        A tree of the structure of `params`, with a number in place of each array.

    Raises:
        StiefelError: for a model, option or name that cannot be used, and if `params` are not arrays of the model.

    >>> import equinox as eqx, optax
    >>> model = eqx.nn.MLP(784, 10, width_size=64, depth=10, key=jax.random.key(0))
    >>> params = eqx.filter(model, eqx.is_inexact_array)
    >>> scales = lr_scales(model, params)
    >>> [layer.weight for layer in scales.layers[::5]]
    [10.0, 1.0, 10.0]
    >>> scaled = optax.stateless(lambda updates, _: jax.tree.map(lambda u, s: u * s, updates, scales))
    >>> optimizer = optax.chain(optax.adam(1e-3), scaled)
    """
    options = Options(inputs=inputs, stem=stem, head=head)
    adapter = adapter_of(model, 0, apply, options)
    by_key = shares(adapter, options, optimizer)
    known = {id(leaf): by_key[key].multiplier for key, leaf in adapter.leaves.items() if key in by_key}
    tree = model if params is None else params
    scales = jax.tree.map(lambda leaf: known.get(id(leaf), 1.0), tree)
    if known and not any(id(leaf) in known for leaf in jax.tree.leaves(tree)):
        raise StiefelError("params holds no array of the model; give the tree that is taken from this very model.")
    return scales
