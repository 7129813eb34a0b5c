"""Images on the device: standardized, cut out of a frame and flipped."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .cell import AugmentName

_MEASURED = 5000
"""Images, spread evenly, that tell the mean and the deviation of each channel."""


class Pictures:
    """Rows of bytes as images of shape (rows, channels, height, width), whose channels have mean 0 and deviation 1.

    Where images are cut, each is taken out of a frame an eighth of its side wider on each side, in which it goes on as
    in a mirror; where they are flipped, every second one is.
    """

    def __init__(self, features: np.ndarray, on_device: Tensor, image: tuple[int, int, int], scale: float) -> None:
        """`features` are the training rows, `on_device` the same there; they are divided by `scale`."""
        self.image = image
        self.table = on_device.view(-1, *image)
        some = features[:: -(-len(features) // _MEASURED)].reshape(-1, image[0], image[1] * image[2]) / scale
        deviation = some.std((0, 2))
        mean, deviation = some.mean((0, 2)), np.where(deviation > 0, deviation, 1.0)

        def of_channels(values: np.ndarray) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=on_device.device).view(-1, 1, 1)

        self.scale, self.mean, self.deviation = scale, of_channels(mean), of_channels(deviation)
        channels, height, width = image
        device = on_device.device
        self.channels = torch.arange(channels, device=device)
        self.rows, self.columns = torch.arange(height, device=device), torch.arange(width, device=device)

    def standardized(self, rows: Tensor) -> Tensor:
        """Rows that were divided by the scale, as images."""
        return ((rows.view(-1, *self.image) - self.mean) / self.deviation).contiguous(memory_format=torch.channels_last)

    def batch(self, chosen: Tensor, lots: Tensor, augment: AugmentName) -> Tensor:
        """Training rows as images; a lot of 32 random bits says how each is cut and flipped."""
        columns = self.columns.expand(len(chosen), -1)
        rows = self.rows.expand(len(chosen), -1)
        lots = lots.long() + 2**31
        if "flip" in augment:
            columns = torch.where((lots % 2 == 1)[:, None], len(self.columns) - 1 - columns, columns)
        if "crop" in augment:
            high, wide = len(self.rows) // 8, len(self.columns) // 8
            down, right = lots // 2 % (2 * high + 1), lots // (4 * high + 2) % (2 * wide + 1)
            rows = _mirrored(rows + (down - high)[:, None], len(self.rows))
            columns = _mirrored(columns + (right - wide)[:, None], len(self.columns))
        pixels = self.table[
            chosen[:, None, None, None], self.channels, rows[:, :, None, None], columns[:, None, :, None]
        ]
        return (pixels.permute(0, 3, 1, 2) / self.scale - self.mean) / self.deviation  # channels last in memory


def _mirrored(places: Tensor, size: int) -> Tensor:
    """Places beyond the edges of 0 … size - 1 as those that lie there in a mirror at the edge."""
    return size - 1 - (size - 1 - places.abs()).abs()
