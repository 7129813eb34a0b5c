"""The precision of float32 products, set for a while: samplers need all of it, the laboratory's studies choose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

Precision = Literal["ieee", "tf32"]


@contextmanager
def products(device: str, precision: Precision) -> Iterator[None]:
    """Products of float32 matrices on a kind of device, in float32 itself or in tf32; afterwards as before.

    PyTorch before 2.9 has one setting for all devices.
    """
    backend: Any = {"cuda": torch.backends.cuda, "cpu": torch.backends.mkldnn}.get(device)
    if backend is None:
        yield
    elif hasattr(backend, "matmul") and hasattr(backend.matmul, "fp32_precision"):
        before = backend.matmul.fp32_precision
        backend.matmul.fp32_precision = precision
        try:
            yield
        finally:
            backend.matmul.fp32_precision = before
    else:
        general = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest" if precision == "ieee" else "high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(general)
