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
    saved = [(state, dict(state)) for state in dicts]
    kinds = (state[name] for state in attributes for name in ("_parameters", "_buffers"))
    held = list({id(tensor): tensor for kind in kinds for tensor in kind.values() if tensor is not None}.values())
    kept = [(tensor, tensor.detach().clone(), tensor.grad if tensor.is_leaf else None) for tensor in held]
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
            state.clear()
            state.update(before)
        for tensor, values, grad in kept:
            if not torch.equal(tensor, values):
                tensor.data.copy_(values)
            if tensor.is_leaf:
                tensor.grad = grad
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(python)
