"""Guesses at what a model is called with, for those whose forward `torch.fx` cannot read."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...recipe.trace import SIDES

_LENGTH = 8  # of a sequence


def examples(model: nn.Module) -> Iterator[Any]:
    """Inputs that the model may take: its own of the package transformers, and what suits its first layer."""
    tensor = next(model.parameters(), None)
    if tensor is None:
        return
    with torch.device(tensor.device):
        own = getattr(model, "dummy_inputs", None)
        if isinstance(own, Mapping) and all(isinstance(each, Tensor) for each in own.values()):
            given = {name: each.to(tensor.device) for name, each in own.items()}
            yield given
            if "input_ids" in given:
                yield {**given, "decoder_input_ids": given["input_ids"]}
        named = inspect.signature(model.forward).parameters.values()
        needed = [each.name for each in named if each.default is each.empty and each.kind not in (2, 4)]
        main = getattr(model, "main_input_name", needed[0] if needed else None)
        if len(needed) > 1 or not isinstance(main, str):
            return
        for example in _of_layers(model):
            yield {main: example} if any(each.name == main for each in named) else example


def _of_layers(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            yield (torch.arange(2 * _LENGTH) % module.num_embeddings).view(2, _LENGTH)
        elif isinstance(module, nn.Linear):
            yield from (torch.ones(2, module.in_features), torch.ones(2, _LENGTH, module.in_features))
        elif isinstance(module, nn.RNNBase):
            yield torch.ones(2, _LENGTH, module.input_size)
        elif isinstance(module, nn.modules.conv._ConvNd):
            config = getattr(model, "config", None)
            sides = [side] if isinstance(side := getattr(config, "image_size", None), int) else SIDES
            yield from (torch.ones(2, module.in_channels, *(size,) * len(module.kernel_size)) for size in sides)
        else:
            continue
        return
