"""The signal of untrained networks is that of an ordinary network."""

from __future__ import annotations

import pytest
import torch
from paper.figures.signal import measure_signal
from torch import nn

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import Problems
from stiefel_init.torch import initialize_


def test_the_signal_is_that_of_an_ordinary_network() -> None:
    cell = Cell("digits", "stiefel", 4, 16, seed=3)
    problem = Problems()(cell)
    found = measure_signal([Cell("digits", "he", 4, 16), cell], problem, rows=32)
    linear = [nn.Linear(n, m) for n, m in ((64, 16), (16, 16), (16, 16), (16, 16), (16, 10))]
    model = nn.Sequential(*(module for layer in linear[:-1] for module in (layer, nn.ReLU())), linear[-1])
    for i, layer in enumerate(linear):  # the names that the laboratory gives its layers
        initialize_(nn.ModuleDict({str(i): layer}), seed=3)
    h = torch.from_numpy(problem.features[:32]).double() / problem.scale
    before = h.var()
    outputs: list[torch.Tensor] = []
    for module in model.double():
        h = module(h)
        if isinstance(module, nn.Linear):
            outputs.append(h)
            h.retain_grad()
    nn.functional.cross_entropy(h, torch.from_numpy(problem.targets[:32])).backward()
    for place, y in enumerate(outputs[:-1]):
        after = y.detach().relu().var()
        assert y.grad is not None
        expected = [y.mean(), y.std(), (y > 0).double().mean(), after / before, y.grad.norm()]
        names = ("mean", "std", "active", "variance_ratio", "gradient")
        for name, value in zip(names, expected):
            assert found[name][1, place] == pytest.approx(float(value.detach()), rel=1e-5), (name, place)
        before = after
