"""What is learned from is not tested on."""

from __future__ import annotations

import torch
from paper.problems import Text


def test_text_holds_out_what_it_tests() -> None:
    text = Text(torch.device("cpu"), tokens=32)
    inputs, targets = text.batch(torch.tensor([0, 7]))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert len(text.train) > 5 * len(text.test) > 1_000_000
