"""A recurrent network that reads an image row by row, or pixel by pixel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Recurrent(nn.Module):
    """One recurrent layer; its last state decides."""

    def __init__(self, kind: str, inputs: int = 28, width: int = 128) -> None:
        super().__init__()
        kinds: dict[str, Callable[[], nn.RNNBase]] = {
            "rnn": lambda: nn.RNN(inputs, width, nonlinearity="relu", batch_first=True),
            "lstm": lambda: nn.LSTM(inputs, width, batch_first=True),
            "gru": lambda: nn.GRU(inputs, width, batch_first=True),
        }
        self.inputs, self.recurrent, self.head = inputs, kinds[kind](), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x.reshape(len(x), -1, self.inputs))[0][:, -1])
