"""Figure 1's study and the signal at initialization, against the plain way to compute them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from stiefel_init import _stream
from stiefel_init.lab import Cell, Dataset, alignment, run, study
from stiefel_init.lab.signal import measure
from stiefel_init.lab.tasks import Tasks
from stiefel_init.torch import initialize_
from stiefel_init.torch._sample import fill_seeded_


@pytest.fixture
def images() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(10), 60)
    centres = rng.integers(0, 200, (10, 70))
    x = (centres[y] + rng.integers(0, 56, (600, 70))).astype(np.uint8)
    return Dataset("blobs", "classification", x, y, 10, 255.0, 400)


def plain(middle: torch.Tensor, images: Dataset, draw: int, name: str) -> float:
    """One training as anybody would write it: three linear layers, autograd, plain gradient descent."""
    pictures = alignment._Images(images, torch.device("cpu"), None)
    keys = {part: _stream.fold(_stream.key(0, f"figure1/{name}/{part}"), np.array([draw])) for part in
            ("first", "head", "images")}  # fmt: skip
    model = nn.Sequential(nn.Linear(70, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).double()
    with torch.no_grad():
        for layer in (model[0], model[2], model[4]):
            layer.bias.zero_()
        model[0].weight.copy_(fill_seeded_(torch.empty(1, 64, 70), keys["first"], aligned=False)[0])
        model[2].weight.copy_(middle)
        model[4].weight.copy_(fill_seeded_(torch.empty(1, 10, 64), keys["head"], aligned=False)[0])
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
        fill_seeded_(middle[part], keys, aligned=name == "members")
    for i in range(6):
        draws = [2 * i + t if mode == "independent" else t for t in range(2)]
        expected = np.mean([plain(middle[i], images, draw, f"0/{mode}") for draw in draws])
        assert found.accuracy[mode][i] == pytest.approx(expected, abs=0.5)  # one test image is half a per cent
    assert 12 < found.accuracy[mode].mean() < 99  # neither chance nor all: the comparison says something
    np.testing.assert_allclose(found.alignment[4:], 64, rtol=1e-5)
    np.testing.assert_allclose(found.alignment, middle.double().sum((1, 2)).numpy(), rtol=1e-4, atol=1e-4)
    assert found.aligned.tolist() == [False] * 4 + [True] * 2


def test_the_signal_is_that_of_an_ordinary_network() -> None:
    cell = Cell("digits", "stiefel", 4, 16, seed=3)
    task = Tasks()(cell)
    found = measure([Cell("digits", "he", 4, 16), cell], task, rows=32)
    linear = [nn.Linear(n, m) for n, m in ((64, 16), (16, 16), (16, 16), (16, 16), (16, 10))]
    model = nn.Sequential(*(layer for one in linear[:-1] for layer in (one, nn.ReLU())), linear[-1])
    for i, layer in enumerate(linear):  # the names that the laboratory gives its layers
        initialize_(nn.ModuleDict({str(i): layer}), seed=3)
    h = torch.from_numpy(task.features[:32]).double() / task.scale
    before = h.var()
    outputs = []
    for module in model.double():
        h = module(h)
        if isinstance(module, nn.Linear):
            outputs.append(h)
            h.retain_grad()
    nn.functional.cross_entropy(h, torch.from_numpy(task.targets[:32])).backward()
    for layer, y in enumerate(outputs[:-1]):
        after = y.detach().relu().var()
        expected = [y.mean(), y.std(), (y > 0).double().mean(), after / before, y.grad.norm()]
        names = ("mean", "std", "active", "variance_ratio", "gradient")
        for name, value in zip(names, expected):
            assert getattr(found, name)[1, layer] == pytest.approx(float(value.detach()), rel=1e-5), (name, layer)
        before = after


@pytest.mark.parametrize(("dataset", "error", "best"), [("diabetes", True, min), ("digits", False, max)])
def test_the_page_of_a_study_marks_the_best(dataset: str, error: bool, best: type, tmp_path: Path) -> None:
    cells = [Cell(dataset, scheme, 2, 8, epochs=2) for scheme in ("stiefel", "he", "random")]

    records = run(cells)
    page = study.write_page(records, tmp_path, error=error).read_text()
    top = best(r["score"] for r in records)
    assert f'<td class="best">{top:.1f}</td>' in page
    assert page.count('class="best"') == 1
