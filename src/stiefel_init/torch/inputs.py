"""What users give: models, and example inputs as arguments, as tensors, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from ..core.errors import StiefelError
from ..recipe.trace import arguments as arguments
from ..recipe.trace import shapes_of


def check_module(model: Any, maker: str = "") -> None:
    """Refuse what is no module; of what a user's `maker` returned, say so."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        said = f"{maker} returned a {kind}; it must return" if maker else f"model is a {kind}; give"
        raise StiefelError(f"{said} a torch.nn.Module.")


def leaves(value: Any) -> Iterator[Any]:
    """All that nested mappings, tuples and lists hold; a packed sequence is a tuple.

    >>> list(leaves({"a": [1, (2, None)]}))
    [1, 2, None]
    """
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    else:
        yield value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors among the leaves."""
    return (leaf for leaf in leaves(value) if isinstance(leaf, Tensor))


def plain(result: Any) -> Any:
    """A model's result as containers that can be looked through; the package transformers has classes of its own."""
    if isinstance(result, Mapping):
        return dict(result)
    return vars(result) if hasattr(result, "__dict__") and not isinstance(result, Tensor | tuple) else result


def shapes(inputs: Any) -> str:
    """The shapes of example inputs, for messages."""
    return shapes_of(leaves(inputs))
