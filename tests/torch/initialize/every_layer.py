"""`initialize_` with one scheme in every layer, the set unless another is named: the paper's recipe."""

from __future__ import annotations

from typing import Any

from torch import nn

from stiefel_init.torch import Plan
from stiefel_init.torch import initialize_ as whole_model_


def initialize_(model: nn.Module, scheme: Any = "stiefel", **options: Any) -> Plan:
    """The scheme in every layer."""
    return whole_model_(model, scheme, **options)
