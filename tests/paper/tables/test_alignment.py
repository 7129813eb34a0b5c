"""Figure 1's study against the plain way to compute it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paper.figures import figure1 as alignment
from torch import nn

from stiefel_init.core import stream as _stream
from stiefel_init.lab.data import Dataset
from stiefel_init.schemes import Orthogonal, Stiefel
from stiefel_init.torch.sampling.source import fill_


@pytest.fixture
def images() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(10), 60)
    centres = rng.integers(0, 200, (10, 70))
    x = (centres[y] + rng.integers(0, 56, (600, 70))).astype(np.uint8)
    return Dataset("blobs", "classification", x, y, 10, 255.0, 400)


def plain(middle: torch.Tensor, images: Dataset, draw: int, name: str) -> float:
    """One training as anybody would write it: three linear layers, autograd, plain gradient descent."""
    pictures = alignment._Images(images, torch.device("cpu"))
    keys = {part: _stream.fold(_stream.key(0, f"figure1/{name}/{part}"), np.array([draw])) for part in
            ("first", "head", "images")}  # fmt: skip
    first, second, head = nn.Linear(70, 64), nn.Linear(64, 64), nn.Linear(64, 10)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), head).double()
    with torch.no_grad():
        for layer in (first, second, head):
            layer.bias.zero_()
        first.weight.copy_(fill_(torch.empty(1, 64, 70), Orthogonal(), keys=keys["first"])[0])
        second.weight.copy_(middle)
        head.weight.copy_(fill_(torch.empty(1, 10, 64), Orthogonal(), keys=keys["head"])[0])
    x = pictures.one_shot(keys["images"])[0].double()
    descent = torch.optim.SGD(model.parameters(), lr=alignment.RATE)
    for _ in range(alignment.STEPS):
        descent.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(10)).backward()
        descent.step()
    with torch.no_grad():
        return 100 * float((model(pictures.test.double()).argmax(1) == pictures.test_y).double().mean())


@pytest.mark.parametrize("mode", alignment.MODES)
def test_the_study_is_what_plain_training_gives(mode: str, images: Dataset) -> None:
    found = alignment.study(images, torch.device("cpu"), matrices=4, members=2, trials=2, modes=(mode,))
    middle = torch.empty(6, 64, 64)
    for part, name in ((slice(0, 4), "matrices"), (slice(4, 6), "members")):
        keys = _stream.fold(_stream.key(0, f"figure1/{name}"), np.arange(part.stop - part.start))
        fill_(middle[part], Stiefel() if name == "members" else Orthogonal(), keys=keys)
    for i in range(6):
        draws = [2 * i + t if mode == "independent" else t for t in range(2)]
        expected = np.mean([plain(middle[i], images, draw, f"0/{mode}") for draw in draws])
        assert found.accuracy[mode][i] == pytest.approx(expected, abs=0.5)  # one test image is half a per cent
    assert 12 < found.accuracy[mode].mean() < 99  # neither chance nor all: the comparison says something
    np.testing.assert_allclose(found.alignment[4:], 64, rtol=1e-5)
    np.testing.assert_allclose(found.alignment, middle.double().sum((1, 2)).numpy(), rtol=1e-4, atol=1e-4)
    assert found.aligned.tolist() == [False] * 4 + [True] * 2
