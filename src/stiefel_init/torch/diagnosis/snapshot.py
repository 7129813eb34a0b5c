"""A model put back exactly as it was: `unchanged`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def unchanged(modules: Sequence[nn.Module], tensors: Iterable[Tensor]) -> Iterator[None]:
    """Whatever happens inside, restore the modules of a model and the states of all random generators.

    That is: values of parameters and buffers, gradients, mode, hooks and plain attributes of every module; the
    generators of torch (on the devices of the modules and of `tensors`), NumPy and Python. It costs one copy of the
    parameters and buffers. The modules' backward hooks are off meanwhile, as the backward pass is not the user's.
    """
    attributes = [vars(module) for module in modules]
    dicts = attributes + [value for state in attributes for value in state.values() if isinstance(value, dict)]
    saved = [(state, dict(state) if state else None) for state in dicts]  # most are empty
    kinds = (state[name] for state in attributes for name in ("_parameters", "_buffers"))
    held = list({id(tensor): tensor for kind in kinds for tensor in kind.values() if tensor is not None}.values())
    grads = [tensor.grad if tensor.is_leaf else None for tensor in held]
    values = [_Values(group) for group in _alike(held)]
    numbers, python = np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's model may draw from it
    devices = {tensor.device for tensor in (*held, *tensors) if tensor.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices):
            for state in attributes:
                state["_backward_hooks"].clear()
                state["_backward_pre_hooks"].clear()
            yield
    finally:
        for state, before in saved:
            if before is not None:
                state.clear()
                state.update(before)
            elif state:
                state.clear()
        for group in values:
            group.put_back()
        for tensor, grad in zip(held, grads):
            if tensor.is_leaf:
                tensor.grad = grad
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(python)


def _alike(tensors: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """Groups whose values fit into one flat tensor."""
    groups: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
        groups.setdefault((tensor.dtype, tensor.device) if plain else id(tensor), []).append(tensor)
    return groups.values()


class _Values:
    """The values of tensors of one dtype and device, copied, compared and put back all at once: models have many."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._copy = self._flat()

    def _flat(self) -> Tensor:
        if len(self._tensors) == 1:
            return self._tensors[0].detach().clone()
        return torch.cat([tensor.detach().reshape(-1) for tensor in self._tensors])

    def put_back(self) -> None:
        with torch.no_grad():
            if torch.equal(self._flat(), self._copy):
                return
            if len(self._tensors) == 1:
                self._tensors[0].data.copy_(self._copy)
                return
            parts = self._copy.split([tensor.numel() for tensor in self._tensors])
            for tensor, part in zip(self._tensors, parts):
                if not torch.equal(tensor.detach().reshape(-1), part):
                    tensor.data.copy_(part.view_as(tensor))
