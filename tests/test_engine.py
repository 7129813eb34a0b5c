"""The engines against plain PyTorch: gradients, training, and each network of a stack for itself.

Both engines are held to the same statements: the batched matmuls (`graph`), and the fused kernels (`fused`), which
Triton's interpreter runs where there is no GPU.
"""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from stiefel_init import StiefelError, sample
from stiefel_init.lab import fused, runner
from stiefel_init.lab.cells import ACTIVATIONS, SCHEMES, Cell, split_evenly
from stiefel_init.lab.data import from_arrays
from stiefel_init.lab.engine import Outcome, Stack, Task, train
from stiefel_init.lab.networks import Architecture, Parameters
from stiefel_init.lab.runner import run
from stiefel_init.lab.tasks import Tasks

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ENGINES = ("graph", "fused")
MODULES = {
    "relu": nn.ReLU,
    "leaky_relu": lambda: nn.LeakyReLU(0.01),
    "prelu": lambda: nn.PReLU(1, 0.25),
    "elu": nn.ELU,
    "selu": nn.SELU,
}
LOSSES = {
    "cross_entropy": nn.functional.cross_entropy,
    "squared_error": lambda out, y: nn.functional.mse_loss(out.squeeze(-1), y),
}


def images(rows: int, inputs: int = 21, classes: int = 5, seed: int = 0) -> Task:
    """Classes that can be learned, as pixels from 0 to 255."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows + 40)
    y[:classes] = np.arange(classes)
    x = np.clip(rng.normal(60, 30, (rows + 40, inputs)) + 110 * (np.arange(inputs) % classes == y[:, None]), 0, 255)
    x = x.astype(np.uint8)
    return Task(x[:rows], y[:rows], x[rows:], y[rows:], classes, "cross_entropy", 255.0)


def table(rows: int, inputs: int = 7, seed: int = 0) -> Task:
    """A regression on real features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows + 40, inputs)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2]).astype(np.float32)
    return Task(x[:rows], y[:rows], x[rows:], y[rows:], 1, "squared_error")


def stack_of(cells: Sequence[Cell], tasks: Sequence[Task], engine: str = "graph") -> Stack:
    return Stack(cells, tasks, DEVICE, engine)


def scramble_(stack: Stack, seed: int = 0) -> None:
    """Weights of no scheme, biases that are not zero, slopes of both signs: nothing may hide behind a zero."""
    generator = torch.Generator().manual_seed(seed)
    p = stack.parameters
    for weight, bias in zip(p.weights, p.biases):
        weight.copy_(torch.randn(weight.shape, generator=generator) * math.sqrt(2 / weight.shape[2]))
        bias.copy_(torch.randn(bias.shape, generator=generator) * 0.1)
    if p.slopes is not None:
        p.slopes.copy_(torch.rand(p.slopes.shape, generator=generator) - 0.4)


def plain(stack: Stack, index: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Network `index` of the stack, as anyone would write it."""
    p, layers = stack.parameters, []
    for layer, (n, m) in enumerate(pairwise(stack.net.widths)):
        linear = nn.Linear(n, m, dtype=dtype)
        linear.weight.data.copy_(p.weights[layer][index])
        linear.bias.data.copy_(p.biases[layer][index])
        layers.append(linear)
        if layer < stack.net.layers - 1:
            activation = MODULES[stack.net.activation]().to(dtype)
            if p.slopes is not None:
                activation.weight.data.fill_(p.slopes[index, layer].item())
            layers.append(activation)
    return nn.Sequential(*layers)


def flat(network: nn.Sequential, read=lambda parameter: parameter) -> list[torch.Tensor]:
    """The network's parameters, or what `read` makes of them, in the order in which a stack keeps them."""
    linear = [parameter for layer in network if isinstance(layer, nn.Linear) for parameter in layer.parameters()]
    slopes = [parameter for layer in network if isinstance(layer, nn.PReLU) for parameter in layer.parameters()]
    return [read(parameter).detach().flatten() for parameter in linear + slopes]


def of_stack(stack: Stack, index: int, values: torch.Tensor) -> list[torch.Tensor]:
    sizes = stack.net.sizes
    if stack.net.activation == "prelu":
        sizes = [*sizes[:-1], *[1] * sizes[-1]]
    return list(values[index].cpu().double().split(sizes))


def batch_of(stack: Stack, task: Task, index: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows the stack trains on, in the order of its network `index`."""
    first = stack.data.rows[index].min().item() if task.rows is None else 0
    rows = stack.order[index, start:stop].cpu().numpy() - first
    x = torch.from_numpy(task.features[rows]).double() / task.scale
    y = torch.from_numpy(task.targets[rows])
    return x, y if y.dtype == torch.int64 else y.double()


def worst(found: Sequence[torch.Tensor], true: Sequence[torch.Tensor]) -> float:
    """The largest error over all parameters, each relative to the largest entry of its kind and layer."""
    assert len(found) == len(true)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(found, true))


SHAPES = [  # depth, width, rows: rows and widths that fill no tile, one tile, and more than one
    (1, 4, 1),
    (2, 5, 17),
    (3, 16, 16),
    (3, 33, 70),
    (2, 70, 35),
]


def gradient_error(cell: Cell, tasks: Sequence[Task], engine: str, signal: float = 1.0) -> float:
    """Of a step of plain gradient descent on all rows, against float64 autograd, over all networks of a stack.

    With another signal than 1 the first layer's weights are multiplied by it, and there are no biases.
    """
    rate = 64.0 / signal  # a large step, so that the difference of two float32 numbers shows the gradient's digits
    cell = replace(cell, optimizer="sgd", rate=rate, batch=None)
    stack = stack_of([replace(cell, seed=seed) for seed in range(len(tasks))], tasks, engine)
    scramble_(stack)
    if signal != 1:
        stack.parameters.weights[0].mul_(signal)
        for bias in stack.parameters.biases:
            bias.zero_()
    references = [plain(stack, index) for index in range(len(tasks))]
    before = stack.parameters.flat.double().clone()
    losses, correct = stack.epochs.run()
    moved = (before - stack.parameters.flat.double()) / rate
    errors = []
    for index, (network, task) in enumerate(zip(references, tasks)):
        x, y = batch_of(stack, task, index, 0, task.size)
        out = network(x)
        loss = LOSSES[task.loss](out, y)
        loss.backward()
        errors.append(worst(of_stack(stack, index, moved), flat(network, lambda parameter: parameter.grad)))
        assert float(losses[index]) / task.size == pytest.approx(loss.item(), rel=1e-5)
        if task.loss == "cross_entropy":
            assert int(correct[index]) == int((out.argmax(-1) == y).sum())
    return max(errors)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_every_activation_and_loss(activation: str, task, engine: str) -> None:
    tasks = [task(17, seed=seed) for seed in range(2)]  # each network learns from its own data
    assert gradient_error(Cell("none", depth=3, width=6, activation=activation), tasks, engine) < 2e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize(("depth", "width", "rows"), SHAPES)
def test_gradients_of_every_shape(depth: int, width: int, rows: int, task, engine: str) -> None:
    assert gradient_error(Cell("none", depth=depth, width=width, activation="prelu"), [task(rows)], engine) < 2e-5


def test_gradients_of_layers_of_different_widths() -> None:
    assert gradient_error(Cell("none", depth=3, width=(5, 9, 3), activation="elu"), [images(17)], "graph") < 2e-5


def test_gradients_of_a_deep_network() -> None:
    assert gradient_error(Cell("none", depth=100, width=16), [images(33)], "graph") < 2e-4
    assert gradient_error(Cell("none", depth=20, width=16), [images(33)], "fused") < 2e-5
    assert gradient_error(Cell("none", depth=100, width=16), [images(33)], "fused") < 5e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_a_faint_signal(activation: str, engine: str) -> None:
    assert gradient_error(Cell("none", depth=3, width=6, activation=activation), [table(17)], engine, 1e-6) < 2e-5


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in Triton's interpreter
@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_not_a_number_shows_in_the_loss(activation: str, engine: str, precision: str) -> None:
    cells = [Cell("none", depth=3, width=6, activation=activation, seed=seed, precision=precision) for seed in range(2)]
    stack = stack_of(cells, [images(17)] * 2, engine)
    stack.parameters.weights[1][0] = math.nan
    losses, _ = stack.epochs.run()
    assert losses.isnan().tolist() == [True, False]


class Tf32Product(torch.autograd.Function):
    """x·wᵀ of operands rounded to tf32's 11 bits, forward and backward; exact inputs are left as they are."""

    @staticmethod
    def rounded(x: torch.Tensor) -> torch.Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp(torch.round(mantissa * 2048) / 2048, exponent)

    @staticmethod
    def forward(ctx, x: torch.Tensor, w: torch.Tensor, exact: bool) -> torch.Tensor:
        x, w = x if exact else Tf32Product.rounded(x), Tf32Product.rounded(w)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        (x, w), d = ctx.saved_tensors, Tf32Product.rounded(d)
        return d @ w, d.T @ x, None


def in_tf32(network: nn.Sequential, x: torch.Tensor, exact: bool = False) -> torch.Tensor:
    """The network's outputs by products in tf32; exact inputs are whole numbers, as pixels are."""
    for layer, module in enumerate(network):
        linear = isinstance(module, nn.Linear)
        x = Tf32Product.apply(x, module.weight, exact and layer == 0) + module.bias if linear else module(x)
    return x


def tf32_errors(cell: Cell, task: Task, scale: float = 1.0, rate: float = 64.0) -> tuple[float, float]:
    """Gradients of the fused engine's tf32: error against tf32's own, and against true ones; medians of networks."""
    cell = replace(cell, optimizer="sgd", rate=rate, batch=None, precision="tf32")
    stack = stack_of([replace(cell, seed=seed) for seed in range(5)], [task] * 5, "fused")
    scramble_(stack)
    for weight in stack.parameters.weights[1:-1]:
        weight.mul_(scale)
    networks = [plain(stack, index) for index in range(5)]
    before = stack.parameters.flat.double().clone()
    stack.epochs.run()
    moved = (before - stack.parameters.flat.double()) / rate
    errors = []
    for index, network in enumerate(networks):
        x, y = batch_of(stack, task, index, 0, task.size)
        LOSSES[task.loss](network(x), y).backward()
        true = flat(network, lambda parameter: parameter.grad.clone())
        network.zero_grad()
        LOSSES[task.loss](in_tf32(network, x, exact=task.scale != 1), y).backward()
        tf32 = flat(network, lambda parameter: parameter.grad)
        found = of_stack(stack, index, moved)
        errors.append((worst(found, tf32), worst(found, true)))
    return tuple(np.median(errors, 0))


@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_part_is_as_exact_as_tf32(activation: str, task) -> None:
    from_tf32, error = tf32_errors(Cell("none", depth=3, width=6, activation=activation), task(17))
    assert from_tf32 < 1e-6 if activation in ("relu", "leaky_relu") else from_tf32 < error
    assert 2e-5 < error < 4e-3


@pytest.mark.parametrize(("depth", "width", "rows"), [*SHAPES, (2, 9, 256), (2, 16, 300)])
def test_one_part_of_every_shape(depth: int, width: int, rows: int) -> None:
    assert tf32_errors(Cell("none", depth=depth, width=width), table(rows))[0] < 1e-5


def test_one_part_of_the_ends_of_a_scale() -> None:
    """The largest number of a tile just below a power of two, and a tile of zeros."""
    task = table(17)
    for features in (np.clip(task.features, -1.5, 1.5), np.zeros_like(task.features)):
        features[0, 0] = np.nextafter(np.float32(2), np.float32(0)) if features.any() else 0
        assert tf32_errors(Cell("none", depth=2, width=6), replace(task, features=features))[0] < 1e-5


def test_one_part_takes_the_whole_batch_or_shares_of_it() -> None:
    """Both ways are one arithmetic: deep enough for several rounds of biases, each network at its own rate."""
    cells = [Cell("none", "he", 18, 6, activation="prelu", seed=seed, rate=rate, batch=16, precision="tf32")
             for seed, rate in enumerate((1e-3, 4e-3))]  # fmt: skip
    stacks = [stack_of(cells, [images(37)] * 2, "fused") for _ in range(2)]
    assert stacks[0].epochs.shape["WHOLE"]
    stacks[1].epochs.shape["WHOLE"] = False
    for epoch in range(2):
        losses = [stack.epoch(epoch)[0] for stack in stacks]
        assert torch.equal(losses[0], losses[1])
    assert float((stacks[0].parameters.flat - stacks[1].parameters.flat).abs().max()) < 1e-7
    assert float((stacks[0].parameters.slopes - 0.25).abs().min()) > 1e-4, "every slope has moved"


def test_which_batches_are_whole() -> None:
    for rows, precision, width, whole in (
        (256, "tf32", 64, True), (257, "tf32", 64, False), (65, "tf32", 65, False), (10, "float32", 4, False)
    ):  # fmt: skip
        stack = stack_of([Cell("none", depth=2, width=width, batch=None, precision=precision)], [table(rows)], "fused")
        assert stack.epochs.shape["WHOLE"] == whole, (rows, precision, width)


@pytest.mark.parametrize(("scale", "rate"), [(30.0, 1e-6), (1e-3, 1e12)])
def test_one_part_of_numbers_beyond_half_precision(scale: float, rate: float) -> None:
    """Activations up to 1e7, and derivatives down to 1e-15; of weights below 1e-3 the smallest lose digits."""
    assert tf32_errors(Cell("none", depth=6, width=16), table(40), scale, rate)[0] < (1e-5 if scale > 1 else 3e-4)


def reference_epoch(
    network: nn.Sequential, optimizer: torch.optim.Optimizer, stack: Stack, task: Task, index: int, forward=None
) -> float:
    """One epoch of an ordinary training loop, on the batches of the stack; the mean loss."""
    total = 0.0
    for start in range(0, stack.size, stack.batch):
        stop = min(start + stack.batch, stack.size)
        x, y = batch_of(stack, task, index, start, stop)
        loss = LOSSES[task.loss](network(x) if forward is None else forward(network, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * (stop - start)
    return total / stack.size


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize(("optimizer", "rates"), [("adam", (1e-3, 4e-3)), ("sgd", (0.02, 0.1))])
def test_training_is_that_of_an_ordinary_loop(optimizer: str, rates: tuple[float, ...], task, engine: str) -> None:
    # 37 rows in batches of 16: the last batch holds 5. Each network has its own rate, data and order; PReLU learns.
    tasks = [task(37, seed=seed) for seed in range(len(rates))]
    cells = [
        Cell("none", depth=3, width=6, activation="prelu", seed=seed, batch=16, rate=rate, optimizer=optimizer)
        for seed, rate in enumerate(rates)
    ]
    stack = stack_of(cells, tasks, engine)
    scramble_(stack)
    networks = [plain(stack, index) for index in range(len(cells))]
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    optimizers = [kind(network.parameters(), lr=rate) for network, rate in zip(networks, rates)]
    start = stack.parameters.flat.clone()
    for epoch in range(3):
        losses, _ = stack.epoch(epoch)
        for index, (network, one, learned) in enumerate(zip(networks, optimizers, tasks)):
            expected = reference_epoch(network, one, stack, learned, index)
            assert float(losses[index]) / stack.size == pytest.approx(expected, rel=1e-5)
    assert float((stack.parameters.slopes - start[:, -3:]).abs().min()) > 1e-4, "every slope has moved"
    for index, network in enumerate(networks):
        found, expected = of_stack(stack, index, stack.parameters.flat), flat(network)
        assert max(float((a - b).abs().max()) for a, b in zip(found, expected)) < 1e-5


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize("depth", [1, 4])
def test_training_in_one_part_is_that_of_a_loop_in_tf32(depth: int, activation: str) -> None:
    task = table(37)
    cells = [Cell("none", depth=depth, width=6, activation=activation, seed=seed, batch=16, rate=4e-3,
                  precision="tf32") for seed in range(5)]  # fmt: skip
    stack = stack_of(cells, [task] * 5, "fused")
    scramble_(stack)
    networks = [plain(stack, index) for index in range(5)]
    optimizers = [torch.optim.Adam(network.parameters(), lr=4e-3) for network in networks]
    start = stack.parameters.flat.clone()
    errors = []
    for epoch in range(2):
        losses, _ = stack.epoch(epoch)
        for index, (network, one) in enumerate(zip(networks, optimizers)):
            expected = reference_epoch(network, one, stack, task, index, in_tf32)
            assert float(losses[index]) / stack.size == pytest.approx(expected, rel=1e-3)
    for index, network in enumerate(networks):
        found, expected = of_stack(stack, index, stack.parameters.flat), flat(network)
        errors.append(max(float((a - b).abs().max()) for a, b in zip(found, expected)))
    assert np.median(errors) < 1e-5
    assert float((stack.parameters.flat - start).abs().max()) > 1e-2


def test_the_fused_engine_takes_the_steps_of_the_other() -> None:
    cells = [Cell("none", scheme, 4, 8, seed=seed, batch=16) for seed, scheme in enumerate(("stiefel", "he", "lee"))]
    stacks = {engine: stack_of(cells, [images(80)] * 3, engine) for engine in ENGINES}
    start = stacks["graph"].parameters.flat.clone()
    assert torch.equal(start, stacks["fused"].parameters.flat)
    for step in range(5):
        stacks["graph"].epochs.steps[0][0]()
        stacks["fused"].epochs.step(16 * step, 16 * step + 16)
        found, expected = stacks["fused"].parameters.flat, stacks["graph"].parameters.flat
        assert float((found - expected).abs().max()) < 0.01 * cells[0].rate, step
    assert float((expected - start).abs().max()) > 2 * cells[0].rate


@pytest.mark.parametrize("engine", ENGINES)
def test_few_shots_are_one_batch(engine: str) -> None:
    whole = images(60)
    task = replace(whole, rows=np.arange(3, 60, 4))
    cell = Cell("none", depth=2, width=6, batch=None, shots=3, epochs=6, rate=0.01)
    stack = stack_of([cell], [task], engine)
    network = plain(stack, 0)
    optimizer = torch.optim.Adam(network.parameters(), lr=cell.rate)
    outcome = train([cell], [task], DEVICE, engine=engine)[0][0]
    for _ in range(cell.epochs):
        expected = reference_epoch(network, optimizer, stack, task, 0)
        assert stack.order[0].tolist() == task.rows.tolist()
    assert outcome.train_loss == [pytest.approx(expected, rel=1e-5)]
    assert outcome.tested == [cell.epochs]
    with torch.no_grad():
        right = network(torch.from_numpy(task.test_features).double() / 255).argmax(-1).numpy() == task.test_targets
    assert outcome.score == outcome.test_score[0] == pytest.approx(100 * right.mean())


@pytest.mark.parametrize("task", [images, table])
def test_the_test_score_is_that_of_each_network_on_its_own_test_rows(task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stiefel_init.lab.engine.EVALUATION_ROWS", 16)  # 40 rows in three parts
    shared, other = task(20), task(20, seed=1)
    tasks = [shared, other, shared]
    stack = stack_of([Cell("none", depth=2, width=6, seed=seed) for seed in range(3)], tasks)
    scramble_(stack)
    for index, (one, score) in enumerate(zip(tasks, stack.evaluate().tolist())):
        with torch.no_grad():
            out = plain(stack, index)(torch.from_numpy(one.test_features).double() / one.scale).numpy()
        if one.loss == "cross_entropy":
            expected = 100 * (out.argmax(-1) == one.test_targets).mean()
        else:
            expected = np.sqrt(np.square(out[:, 0] - one.test_targets).mean())
        assert score == pytest.approx(expected, rel=1e-5)


# A cell's outcome depends on its identity.


def company(cell: Cell) -> list[Cell]:
    """`cell` in the third place of a stack of others."""
    others = [
        replace(cell, scheme=scheme, seed=seed, rate=0.002) for seed, scheme in enumerate(("he", "lee", "xavier"))
    ]
    return [*others[:2], cell, others[2]]


@pytest.mark.parametrize(("scheme", "engine"), [*((scheme, "graph") for scheme in SCHEMES), ("stiefel", "fused")])
def test_alone_or_in_a_stack(scheme: str, engine: str) -> None:
    cell = Cell("none", scheme, 3, 8, seed=5, batch=16)
    tasks = [images(37), images(37, seed=1)]
    alone = stack_of([cell], tasks[:1], engine)
    among = stack_of(company(cell), [tasks[1], tasks[0], tasks[0], tasks[1]], engine)
    assert torch.equal(alone.parameters.flat[0], among.parameters.flat[2])
    for epoch in range(2):
        loss, _ = alone.epoch(epoch)
        losses, _ = among.epoch(epoch)
        first = int(among.data.rows[2].min())
        assert torch.equal(alone.order[0], among.order[2] - first)
        assert sorted(alone.order[0].tolist()) == list(range(37))
        assert float(losses[2]) == pytest.approx(float(loss[0]), rel=1e-6)
    assert not torch.equal(among.order[1], among.order[2]), "another seed, another order"


def test_every_epoch_has_its_own_order() -> None:
    stack = stack_of([Cell("none", depth=1, width=4, batch=16)], [images(64)])
    orders = []
    for epoch in range(3):
        stack.epoch(epoch)
        orders.append(tuple(stack.order[0].tolist()))
    assert len(set(orders)) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_cell_twice_gives_the_same_bits(engine: str) -> None:
    cells = company(Cell("none", depth=2, width=8, batch=16, epochs=2))
    first, second = (train(cells, [images(37)] * 4, DEVICE, engine=engine) for _ in range(2))
    assert first == second
    assert first[1] == engine


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # as intended
@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_that_diverges_harms_no_other(engine: str) -> None:
    cell = Cell("none", "he", 2, 8, batch=16, epochs=3, optimizer="sgd", rate=0.05)
    tasks = [table(37)] * 3
    sound = train([cell, replace(cell, seed=1), replace(cell, seed=2)], tasks, DEVICE, engine=engine)[0]
    lost = train([cell, replace(cell, seed=1, rate=1e9), replace(cell, seed=2)], tasks, DEVICE, engine=engine)[0]
    assert [outcome.diverged for outcome in sound] == [None, None, None]
    assert sound[0] == lost[0]
    assert sound[2] == lost[2]
    assert lost[1].diverged in (1, 2)
    assert not math.isfinite(lost[1].train_loss[-1])
    assert all(map(math.isfinite, lost[1].train_loss[: lost[1].diverged - 1]))
    assert not math.isfinite(lost[1].score)


# The start.


def start(cell: Cell, inputs: int = 40, outputs: int = 10) -> Parameters:
    return stack_of([cell], [images(5 * outputs, inputs, outputs)]).parameters


def test_a_stack_starts_from_the_very_matrices_of_sample() -> None:
    parameters = start(Cell("none", "stiefel", 2, 16, "prelu", seed=7))
    for layer, (m, n) in enumerate(((16, 40), (16, 16), (10, 16))):
        expected = sample(m, n, seed=7, name=f"{layer}.weight")
        assert np.abs(parameters.weights[layer][0].cpu().numpy() - expected).max() < 1e-6
        assert not parameters.biases[layer].any()
    assert parameters.slopes.tolist() == [[0.25, 0.25]]


def test_the_other_schemes_have_their_laws() -> None:
    wide = {"width": 128, "depth": 2}  # 128 × 128 numbers: a standard deviation is off by 2 % once in 3,000 times
    start_of = {name: start(Cell("none", name, **wide)).weights for name in ("orthogonal", "xavier", "he")}
    weight = {name: weights[1][0].cpu() for name, weights in start_of.items()}
    assert float((weight["orthogonal"] @ weight["orthogonal"].mT - torch.eye(128)).abs().max()) < 1e-5
    assert float(weight["orthogonal"].sum(0).std()) > 0.5, "not aligned"
    bound = math.sqrt(6 / 256)
    assert 0.99 * bound < float(weight["xavier"].abs().max()) <= bound
    assert float(weight["xavier"].std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert float(weight["he"].std()) == pytest.approx(math.sqrt(2 / 128), rel=0.02)
    assert float(start_of["he"][0].std()) == pytest.approx(math.sqrt(2 / 40), rel=0.04), "the inputs decide"
    for variant, std in ((None, 0.1), ("0.3", 0.3)):
        found = start(Cell("none", "random", variant=variant, **wide)).weights[1][0]
        assert float(found.std()) == pytest.approx(std, rel=0.02)
    product = start(Cell("none", "lee", **wide)).weights
    assert float((product[1][0].cpu() - torch.eye(128)).abs().max()) < 1e-5, "on square layers Lee's is the identity"
    direct = start(Cell("none", "lee", variant="direct", **wide)).weights
    assert float((product[0] - direct[0]).abs().max()) > 0.01


# Stacks, memory, precision.


MINE = {"mine": from_arrays(np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3)}


def mine(count: int, **options) -> list[Cell]:
    return [Cell("mine", depth=2, width=5, seed=seed, epochs=2, batch=16, **options) for seed in range(count)]


def outcomes(records: list[dict]) -> list[dict]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def no_memory(count: int) -> None:
    if DEVICE.type == "cuda":
        raise torch.OutOfMemoryError("as much as there is")
    torch.empty(10**15)  # PyTorch's own error, on a CPU a RuntimeError


def test_out_of_memory_splits_the_stack_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(mine(7), datasets=MINE, device=DEVICE.type)
    tried = []

    def small_memory(cells: Sequence[Cell], *rest) -> tuple[list[Outcome], str]:
        tried.append(len(cells))
        if len(cells) > 2:
            no_memory(len(cells))
        return train(cells, *rest)

    monkeypatch.setattr(runner, "train", small_memory)
    told: list[str] = []
    found = run(mine(7), datasets=MINE, device=DEVICE.type, warn=told.append)
    assert tried == [7, 4, 2, 2, 3, 2, 1]
    assert len(told) == 3
    assert "7 networks did not fit" in told[0]
    for a, b in zip(outcomes(found), outcomes(expected)):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)
        assert (a["seed"], a["score"]) == (b["seed"], b["score"])


def test_one_network_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "train", lambda cells, *rest: no_memory(1))
    with pytest.raises(StiefelError, match="One network of depth 2 does not fit the memory of"):
        run(mine(1), datasets=MINE, device=DEVICE.type)


def test_other_failures_are_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "train", lambda cells, *rest: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        run(mine(4), datasets=MINE, device=DEVICE.type)


def test_a_trained_stack_gives_its_memory_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    close = Stack.close

    def watch(stack: Stack) -> None:
        held.extend(weakref.ref(tensor) for tensor in (stack.parameters.flat, stack.data.features))
        close(stack)

    monkeypatch.setattr(Stack, "close", watch)
    gc.disable()
    try:
        run(mine(2), datasets=MINE, device=DEVICE.type)
    finally:
        gc.enable()
    assert [one() for one in held] == [None, None]


def test_a_stack_holds_as_many_as_the_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MEMORY_SHARE", 1e-12)
    assert [len(stack) for stack in runner.plan(mine(3), Tasks(MINE), DEVICE, set())] == [1, 1, 1]


def test_stacks_hold_what_can_be_trained_together_and_do_not_depend_on_what_is_done() -> None:
    cells = mine(5) + mine(2, activation="elu") + mine(3, scheme="he") + [replace(cell, width=6) for cell in mine(1)]
    tasks = Tasks(MINE)
    stacks = runner.plan(cells, tasks, DEVICE, set(), most=4)
    assert sorted(map(len, stacks)) == [1, 2, 4, 4]
    assert sorted(cell.key for stack in stacks for cell in stack) == sorted(cell.key for cell in cells)
    done = {stacks[0][0].key, *(cell.key for cell in stacks[2])}
    rest = runner.plan(cells, tasks, DEVICE, done, most=4)
    assert rest == [part for stack in stacks if (part := [cell for cell in stack if cell.key not in done])]


@pytest.mark.parametrize(("count", "most", "sizes"), [(1, 3, [1]), (7, 3, [2, 3, 2]), (12, 12, [12])])
def test_split_evenly(count: int, most: int, sizes: list[int]) -> None:
    parts = split_evenly(mine(count), most)
    assert [len(part) for part in parts] == sizes
    assert [cell for part in parts for cell in part] == mine(count)


def test_records_come_in_the_order_of_the_cells_each_cell_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    monkeypatch.setattr(runner, "train", lambda cells, *rest: (trained.extend(cells), train(cells, *rest))[1])
    cells = [*mine(2, scheme="he"), *mine(2), mine(1)[0]]
    records = run(cells, datasets=MINE, device=DEVICE.type)
    assert [(r["scheme"], r["seed"]) for r in records] == [(cell.scheme, cell.seed) for cell in cells]
    assert len(trained) == 4


@pytest.mark.parametrize("device", [DEVICE, torch.device("cpu")])
def test_the_precision_lasts_as_long_as_the_stack(device: torch.device) -> None:
    backend = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    before = backend.matmul.fp32_precision
    seen = []

    def look(epoch: int) -> None:
        seen.append(backend.matmul.fp32_precision)
        if epoch == 2:
            raise KeyboardInterrupt

    found = {}
    for precision in ("float32", "tf32"):
        cells, tasks = mine(1, precision=precision), [images(37)]
        found[precision] = train(cells, tasks, device, engine="graph")[0][0].train_loss
        with pytest.raises(KeyboardInterrupt):
            train(cells, tasks, device, look, "graph")
        assert backend.matmul.fp32_precision == before
    assert seen == ["ieee", "ieee", "tf32", "tf32"]
    assert found["tf32"] == pytest.approx(found["float32"], rel=2e-2)


def test_tf32_in_the_fused_engine() -> None:
    tasks = [images(37)]
    found = [train(mine(1, precision=name), tasks, DEVICE, engine="fused")[0][0] for name in ("float32", "tf32")]
    assert found[1].train_loss == pytest.approx(found[0].train_loss, rel=2e-2)


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
    assert fused.fits(Cell("none", width=64), 10, cuda) is narrow
    assert fused.fits(Cell("none", width=64, precision="tf32"), 10, cuda) is tf32
    assert fused.fits(Cell("none", width=128), 10, cuda) is wide
    assert not fused.fits(Cell("none", width=129), 10, cuda)
    assert not fused.fits(Cell("none", width=64), 10, torch.device("cpu"))


def test_the_fused_engine_says_what_it_cannot_train() -> None:
    task = images(17)
    for width in ((5, 6), 129):
        cell = Cell("none", depth=2, width=width)
        assert not fused.takes(cell, task.outputs)
        with pytest.raises(StiefelError, match="engine='graph'"):
            stack_of([cell], [task], "fused")
    with pytest.raises(StiefelError, match="engine='fast' is not known"):
        run(mine(1), datasets=MINE, device="cpu", engine="fast")


def test_outcomes_of_a_long_training_are_tested_now_and_then() -> None:
    cell = replace(mine(1)[0], epochs=45)
    told = []
    outcome = train([cell], [images(20)], DEVICE, told.append, "graph")[0][0]
    assert told == list(range(1, 46))
    assert len(outcome.train_loss) == len(outcome.train_score) == 45
    assert outcome.tested == [*range(2, 46, 2), 45]
    assert len(outcome.test_score) == len(outcome.tested)


# From a cell to its task.


def test_few_shots_are_so_many_of_each_class_drawn_by_the_seed() -> None:
    tasks = Tasks()
    cells = [Cell("digits", scheme, seed=seed, shots=3, batch=None) for seed in (0, 1) for scheme in ("he", "lee")]
    rows = [tasks(cell).rows for cell in cells]
    whole = tasks(Cell("digits"))
    assert np.bincount(whole.targets[rows[0]]).tolist() == [3] * 10
    assert len(set(rows[0].tolist())) == 30
    assert (rows[0] == rows[1]).all(), "the same for every scheme"
    assert not (rows[0] == rows[2]).all()
    assert tasks(cells[0]).features is whole.features, "shared, not copied"
    assert tasks(cells[0]).size == 30


def test_a_table_is_split_by_the_seed_and_shifted_by_alpha() -> None:
    tasks = Tasks()
    first, shifted, other = (tasks(Cell("wine", **kw)) for kw in ({}, {"alpha": 2.0}, {"seed": 1}))
    assert np.allclose(shifted.features, first.features + 2, atol=1e-6)
    assert not np.array_equal(first.targets, other.targets)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell("digits", alpha=2), "digits has pixels"),
        (Cell("diabetes", shots=1), "diabetes is a regression"),
        (Cell("wine", shots=1000), "class 0 of wine has only"),
        (Cell("wines"), "wines"),
    ],
)
def test_tasks_that_cannot_be(cell: Cell, words: str) -> None:
    with pytest.raises(StiefelError, match=words):
        Tasks()(cell)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 0}, "depth=0"),
        ({"depth": True}, "depth=True"),
        ({"width": -1}, "width=-1"),
        ({"width": (3, 4)}, "names 2 layers, but depth=10"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch": 0}, "batch=0"),
        ({"shots": 0}, "shots=0"),
        ({"seed": -1}, "seed=-1"),
        ({"rate": 0}, "rate=0"),
        ({"rate": math.nan}, "rate=nan"),
        ({"rate": "fast"}, "rate='fast'"),
        ({"alpha": math.inf}, "alpha=inf"),
        ({"alpha": "two"}, "alpha='two'"),
        ({"scheme": "kaiming"}, "scheme='kaiming' is not known"),
        ({"activation": "tanh"}, "activation='tanh' is not known"),
        ({"optimizer": "lbfgs"}, "optimizer='lbfgs' is not known"),
        ({"precision": "fp8"}, "precision='fp8' is not known"),
        ({"scheme": "lee", "variant": "other"}, "variant='other'"),
        ({"scheme": "random", "variant": "big"}, "variant='big'"),
        ({"scheme": "random", "variant": "-1"}, "variant='-1'"),
    ],
)
def test_cells_that_cannot_be(options: dict, words: str) -> None:
    with pytest.raises(StiefelError, match=words):
        Cell("digits", **options)


def test_equal_cells_have_equal_keys() -> None:
    assert Cell("wine", rate=1, alpha=2).key == Cell("wine", rate=1.0, alpha=2.0).key
    assert Cell("wine", depth=2, width=[3, 4]) == Cell("wine", depth=2, width=(3, 4))
    assert Architecture((4, 3, 2), "prelu").parameters == 4 * 3 + 3 + 3 * 2 + 2 + 1


def test_the_rate_left_out_is_the_papers() -> None:
    assert Cell("digits", depth=100).rate == pytest.approx(1e-4)
    assert Cell("digits", depth=100) == Cell("digits", depth=100, rate=1e-4)
    with pytest.raises(StiefelError, match="rate=0"):
        Cell("digits", rate=0)
