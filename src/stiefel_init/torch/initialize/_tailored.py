"""`TailoredReLU`, the activation that the scheme `tat` is made for."""

from __future__ import annotations

from torch import Tensor, nn

from ...theory import tailored_slope
from ...theory.tailored import tailored_scale


class TailoredReLU(nn.Module):
    """√(2/(1+a²)) · LeakyReLU_a, its slope a tailored to the depth of the network.

    Args:
        depth: Activations between the network's input and its output.

    Raises:
        StiefelError: for a depth below 1.

    >>> TailoredReLU(100)
    TailoredReLU(depth=100, slope=0.570)
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth, self.slope = depth, tailored_slope(depth)
        self.scale = tailored_scale(self.slope)

    def forward(self, x: Tensor) -> Tensor:
        """The activation of x."""
        return nn.functional.leaky_relu(x, self.slope) * self.scale

    def extra_repr(self) -> str:
        """The depth and the slope."""
        return f"depth={self.depth}, slope={self.slope:.3f}"
