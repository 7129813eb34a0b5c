"""What models read of sequences: steps, places, their order, padding; and which step the loss asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import diagnose

TOKENS = torch.randint(1, 9, (64, 12), generator=torch.Generator().manual_seed(0))


class Reads(nn.Module):
    """Tokens, read in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        both = how in ("last", "ends")
        self.embed, self.place, self.how = nn.Embedding(9, 16), nn.Embedding(64, 16), how
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=both)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.head = nn.Linear(32 if both else 16, 9)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        real = (x > 0)[:, :, None]
        read = {
            "last": lambda: self.rnn(h)[0][:, -1],
            "ends": lambda: torch.cat([*self.rnn(h)[1]], 1),
            "steps": lambda: self.rnn(h)[0],
            "each": lambda: h,
            "two": lambda: self.rnn(h[:, -3:])[0][:, -1],
            "all": lambda: self.rnn(h)[0][:, -1],
            "bag": lambda: self.layer(h).mean(1),
            "placed": lambda: self.layer(h + self.place(torch.arange(x.shape[1]))).mean(1),
            "by example": lambda: self.layer(h + self.place(torch.arange(len(x)))[:, None]).mean(1),
            "others": lambda: h.sum(1, keepdim=True) - h,
            "padding": lambda: (h * ~real).sum(1),
            "mean": lambda: (h * real).sum(1) / real.sum(1),
            "with padding": lambda: h.mean(1),
        }
        return self.head(read[self.how]())


def each_token(o: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(o.flatten(0, 1), y.flatten())


def later(o: Tensor, y: Tensor) -> Tensor:
    return each_token(o[:, :-1], y[:, 1:])


HIDDEN = torch.where(torch.arange(12) % 5 == 0, TOKENS, -100)
ENDING = torch.where(torch.arange(12) < 2 + 10 * (torch.arange(64) % 2)[:, None], TOKENS, 0)
SEQUENCES: list[tuple[str, str, Tensor, Tensor, Any, str, Any]] = [
    # kind, how tokens are read, inputs, targets, loss, and the twin's way and loss
    ("backward direction is not read", "last", TOKENS, TOKENS[:, 0], F.cross_entropy, "ends", F.cross_entropy),
    ("steps are not seen", "two", TOKENS, TOKENS[:, 0], F.cross_entropy, "all", F.cross_entropy),
    ("order is not seen", "bag", TOKENS, TOKENS[:, 0], F.cross_entropy, "placed", F.cross_entropy),
    ("examples mix", "by example", TOKENS, TOKENS[:, 0], F.cross_entropy, "placed",
     F.cross_entropy),
    ("mask is inverted", "padding", ENDING, TOKENS[:, 0], F.cross_entropy, "mean", F.cross_entropy),
    ("padding is read", "with padding", ENDING, TOKENS[:, 1], F.cross_entropy, "mean", F.cross_entropy),
    ("targets stand in the inputs", "steps", TOKENS, TOKENS, each_token, "steps", later),
    ("targets are shifted twice", "steps", TOKENS, TOKENS.roll(-1, 1), later, "steps", each_token),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "how", "inputs", "targets", "loss", "twin", "right"), SEQUENCES, ids=[row[0] for row in SEQUENCES]
)
def test_what_is_read_of_sequences(
    kind: str, how: str, inputs: Tensor, targets: Tensor, loss: Any, twin: str, right: Any
) -> None:
    for way, of in ((how, loss), (twin, right)):
        found = diagnose(Reads(way), inputs, targets, loss=of)
        kinds = [finding.kind for finding in (*found.findings, *found.warnings)]
        assert (kind in kinds) == ((way, of) == (how, loss)), found.verdict


def test_targets_that_the_input_shows_where_others_are_hidden() -> None:
    for targets, is_found in ((HIDDEN, True), (HIDDEN.roll(1, 0), False)):
        found = diagnose(Reads("steps"), TOKENS, targets, loss=each_token)
        assert ("targets stand in the inputs" in [finding.kind for finding in found.findings]) == is_found


def test_the_decoder_reads_what_it_is_to_say() -> None:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(9, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 9)

        def forward(self, source: Tensor, before: Tensor) -> Tensor:
            return self.out(self.rnn(self.embed(before), self.rnn(self.embed(source))[1])[0])

    aims = TOKENS.flip(1)
    for before, is_found in ((aims, True), (F.pad(aims, (1, 0))[:, :-1], False)):
        found = diagnose(Translator(), (TOKENS, before), aims, loss=each_token)
        assert ("targets stand in the inputs" in [finding.kind for finding in found.findings]) == is_found
