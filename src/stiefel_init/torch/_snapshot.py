"""A model put back exactly as it was: `unchanged`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def unchanged(model: nn.Module, tensors: Iterable[Tensor]) -> Iterator[None]:
    """Whatever happens inside, `model` leaves as it entered, and so do the states of all generators.

    That is: values of parameters and buffers, gradients, mode, hooks and plain attributes of every module; the
    generators of torch (on the devices of the model and of `tensors`), NumPy and Python. It costs one copy of the
    parameters and buffers. The module's backward hooks are off meanwhile, as the backward pass is not the user's.
    """
    state = [(module, dict(vars(module))) for module in model.modules()]
    inner = [(own, dict(own)) for _, saved in state for own in saved.values() if isinstance(own, dict)]
    held = [*model.parameters(), *model.buffers()]
    kept = [(tensor, tensor.grad if tensor.is_leaf else None, tensor.detach().clone()) for tensor in held]
    numbers, python = np.random.get_state(), random.getstate()  # noqa: NPY002: the user's model may draw from it
    devices = {tensor.device for tensor in (*held, *tensors) if tensor.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices):
            for module, _ in state:
                module._backward_hooks.clear()
                module._backward_pre_hooks.clear()
            yield
    finally:
        _put_back(state, inner)
        with torch.no_grad():
            for tensor, grad, values in kept:
                if tensor.is_leaf:
                    tensor.grad = grad
                if not _same(tensor, values):
                    tensor.data.copy_(values)
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(python)


def _put_back(state: list[tuple[nn.Module, dict[str, Any]]], inner: list[tuple[dict, dict]]) -> None:
    for module, saved in state:
        own = vars(module)
        own.clear()
        own.update(saved)
    for own, saved in inner:
        own.clear()
        own.update(saved)


def _same(tensor: Tensor, values: Tensor) -> bool:
    """Bit for bit, up to the sign of zeros; NaNs are taken as changed, and copied."""
    return torch.equal(tensor.detach(), values)
