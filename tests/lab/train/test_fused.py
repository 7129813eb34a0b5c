"""The fused engine: where it goes, and its tf32, as exact as tf32 from half precision, whatever the numbers' range."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from plain_training import DEVICE, LOSSES, SHAPES, descents, engine_of, flat, images, scramble_, table, worst
from torch import nn

from stiefel_init import StiefelError
from stiefel_init.lab.train import fused as fused_engine
from stiefel_init.lab.train.cell import SMOOTH, Cell
from stiefel_init.lab.train.fused import FusedEngine, agrees_with_graph
from stiefel_init.lab.train.graph import GraphEngine
from stiefel_init.lab.train.problem import Problem
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import pick_engine
from stiefel_init.theory import ACTIVATIONS


@pytest.mark.parametrize(
    ("major", "shared", "narrow", "tf32", "wide"),
    [(7, 64, *[False] * 3), (8, 99, True, False, False), (8, 163, True, True, False), (9, 227, *[True] * 3)],
)
def test_the_fused_engine_goes_where_its_kernels_can_run(
    major: int, shared: int, narrow: bool, tf32: bool, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(major=major, shared_memory_per_block_optin=shared << 10)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    cuda = torch.device("cuda")
    problem = images(50, classes=10)
    assert FusedEngine.suits(Cell("none", width=64), problem, cuda) is narrow
    assert FusedEngine.suits(Cell("none", width=64, precision="tf32"), problem, cuda) is tf32
    assert FusedEngine.suits(Cell("none", width=128), problem, cuda) is wide
    assert not FusedEngine.suits(Cell("none", width=129), problem, cuda)
    assert not FusedEngine.suits(Cell("none", width=64), problem, torch.device("cpu"))
    for cell, suits in ((Cell("none", width=64), narrow), (Cell("none", width=128), wide)):
        assert pick_engine("auto", cell, problem, cuda) is (FusedEngine if suits else GraphEngine)


def test_the_fused_engine_says_what_it_cannot_train() -> None:
    problem, cell = images(17), Cell("none", depth=2, width=8)
    for refused in (replace(cell, width=(5, 6)), replace(cell, width=129), replace(cell, dropout=0.5)):
        with pytest.raises(StiefelError, match="engine='graph'"):
            pick_engine("fused", refused, problem, DEVICE)
        assert pick_engine("graph", refused, problem, DEVICE) is GraphEngine
        assert not FusedEngine.suits(refused, problem, torch.device("cuda"))
    assert FusedEngine.refuses(replace(cell, width=128), problem) is None
    with pytest.raises(StiefelError, match="engine='fast' is not known"):
        run([Cell("wine", depth=2, width=5)], device="cpu", engine="fast")  # type: ignore[arg-type]


def test_kernels_that_nobody_compared_on_a_card_are_tried_there_first(capsys: pytest.CaptureFixture[str]) -> None:
    """They are taken if a step is that of the graph engine, and neither if it differs nor if they do not compile."""

    class Wrong(GraphEngine):
        def epoch(self, *given: Any) -> Any:
            self.stack.parameters.flat.add_(0.1)
            return super().epoch(*given)

    class Broken(GraphEngine):
        def epoch(self, *given: Any) -> Any:
            raise RuntimeError("no such instruction")

    cpu = torch.device("cpu")
    assert agrees_with_graph(FusedEngine, "tanh", DEVICE)
    assert not agrees_with_graph(Wrong, "tanh", cpu)
    assert not capsys.readouterr().err
    assert not agrees_with_graph(Broken, "tanh", cpu)
    assert "No kernel for tanh on cpu (RuntimeError); its networks train slower." in capsys.readouterr().err


# In the precision of tf32.


class Tf32Product(torch.autograd.Function):
    """x·wᵀ of operands rounded to tf32's 11 bits, forward and backward; exact inputs are left as they are."""

    @staticmethod
    def rounded(x: torch.Tensor) -> torch.Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp(torch.round(mantissa * 2048) / 2048, exponent)

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, exact: bool) -> torch.Tensor:
        x, w = x if exact else Tf32Product.rounded(x), Tf32Product.rounded(w)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        (x, w), d = ctx.saved_tensors, Tf32Product.rounded(d)
        return d @ w, d.T @ x, None


def in_tf32(network: nn.Sequential, x: torch.Tensor, exact: bool = False) -> torch.Tensor:
    """The network's outputs by products in tf32; exact inputs are whole numbers, as pixels are."""
    for layer, module in enumerate(network):
        if isinstance(module, nn.Linear):
            x = Tf32Product.apply(x, module.weight, exact and layer == 0) + module.bias
        else:
            x = module(x)
    return x


def tf32_errors(cell: Cell, problem: Problem, scale: float = 1.0, rate: float = 64.0) -> tuple[float, float]:
    """Gradients of the fused engine's tf32: error against tf32's own, and against true ones; medians of networks."""
    cell = replace(cell, optimizer="sgd", rate=rate, batch=None, precision="tf32")
    trainer = engine_of("fused", [replace(cell, seed=seed) for seed in range(5)], [problem] * 5)
    scramble_(trainer.stack)
    for weight in trainer.stack.parameters.weights[1:-1]:
        weight.mul_(scale)
    errors = []
    for step in descents(trainer, [problem] * 5):
        (found, true), (x, y) = step.gradient, step.batch
        step.network.zero_grad()
        LOSSES[problem.loss](in_tf32(step.network, x, exact=problem.scale != 1), y).backward()
        errors.append((worst(found, flat(step.network, gradients=True)), worst(found, true)))
    from_tf32, error = np.median(errors, 0)
    return from_tf32, error


@pytest.mark.parametrize("problem", [images, table])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "tanh", *SMOOTH])
def test_one_part_is_as_exact_as_tf32(activation: str, problem: Any) -> None:
    from_tf32, error = tf32_errors(Cell("none", depth=3, width=6, activation=activation), problem(17))
    assert from_tf32 < 1e-6 if activation in ("relu", "leaky_relu") else from_tf32 < error
    assert 2e-5 < error < 4e-3


@pytest.mark.parametrize(("depth", "width", "rows"), [*SHAPES, (2, 9, 256), (2, 16, 300)])
def test_one_part_of_every_shape(depth: int, width: int, rows: int) -> None:
    assert tf32_errors(Cell("none", depth=depth, width=width), table(rows))[0] < 1e-5


def test_one_part_of_the_ends_of_a_scale() -> None:
    """The largest number of a tile just below a power of two, and a tile of zeros."""
    problem = table(17)
    for features in (np.clip(problem.features, -1.5, 1.5), np.zeros_like(problem.features)):
        features[0, 0] = np.nextafter(np.float32(2), np.float32(0)) if features.any() else 0
        assert tf32_errors(Cell("none", depth=2, width=6), replace(problem, features=features))[0] < 1e-5


def test_one_part_takes_the_whole_batch_or_shares_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`propagate` applies the gradient itself, or leaves it to `update` in one share of 64 rows or three of 16.

    All start every step from the same parameters and moments. One share is the same gradient, bit for bit; roundings of
    the optimizer may differ, by less than 2⁻¹⁸ of the learning rate. Three shares are added in another order, which
    changes a parameter by at most 0.0025 of the rate; leaving one out changes it by more than the rate.
    """
    # Deep enough for two rounds of biases; the last batch, of 20 rows, leaves one tile of 16 empty.
    cells = [Cell("none", "he", 18, 6, activation="prelu", seed=seed, rate=rate, batch=40, precision="tf32")
             for seed, rate in enumerate((1e-3, 4e-3))]  # fmt: skip
    whole = engine_of("fused", cells, [images(60)] * 2)
    assert whole.shape["WHOLE"]
    limits = {64: 2**-18, 16: 0.01}
    shared = {}
    for rows in limits:
        monkeypatch.setattr(fused_engine, "_tile_rows", lambda cell, batch, rows=rows: rows)
        shared[rows] = engine_of("fused", cells, [images(60)] * 2)
        assert shared[rows].tiles == -(-40 // rows)
        shared[rows].shape["WHOLE"] = False
    expected = whole.stack.parameters
    for number, start in enumerate((0, 40, 0, 40)):
        for engine in (whole, *shared.values()):
            engine.stack.epoch = number // 2
        for engine in shared.values():
            engine.stack.parameters.flat.copy_(expected.flat)
            for moment, true in zip(engine.moments, whole.moments):
                moment.copy_(true)
        for engine in (whole, *shared.values()):
            engine.losses.zero_()
            engine.step(start, min(start + 40, 60))
        for rows, limit in limits.items():
            found = shared[rows].stack.parameters
            losses = [engine.losses.sum(1).tolist() for engine in (whole, shared[rows])]
            assert losses[1] == pytest.approx(losses[0], rel=limit)
            size = torch.maximum(found.flat.abs(), expected.flat.abs())
            unit = torch.nextafter(size, torch.full_like(size, math.inf)) - size
            off = ((found.flat - expected.flat).abs() - unit) / whole.rates[:, None]
            assert float(off.max()) < limit, f"shares of {rows} rows, from {start}"
    assert expected.slopes is not None
    assert float((expected.slopes - 0.25).abs().min()) > 1e-4, "every slope has moved"


@pytest.mark.parametrize(("scale", "rate"), [(30.0, 1e-6), (1e-3, 1e12)])
def test_one_part_of_numbers_beyond_half_precision(scale: float, rate: float) -> None:
    """Activations up to 1e7, and derivatives down to 1e-15; of weights below 1e-3 the smallest lose digits."""
    assert tf32_errors(Cell("none", depth=6, width=16), table(40), scale, rate)[0] < (1e-5 if scale > 1 else 3e-4)
