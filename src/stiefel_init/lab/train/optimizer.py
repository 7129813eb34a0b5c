"""`Plain`, torch's own optimizers; `Optimizer`, the graph engine's; and what both engines of perceptrons do besides:
the edge layers' own rate, and steps that keep the weights between hidden layers in the set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from ...core import geometry
from ...torch.optim import kernel
from .cell import ON_SET, Cell
from .network import Architecture, Parameters

ANGLES = 20  # of Muon the rate is an angle: so many times that of the other parameters, as in `StiefelMuon`


class Plain:
    """torch's fused Adam (β 0.9, 0.999; ε 1e-8), AdamW or gradient descent, of groups with `lr` and `weight_decay`.

    By torch's functions: its classes import torch's compiler, which takes seconds and may swallow a Ctrl-C.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, adam: bool = True) -> None:
        self.groups = groups
        self.moments: list[list[list[Tensor]]] = [
            [*([torch.zeros_like(each) for each in some] for _ in range(2)), [each.new_zeros(()) for each in some]]
            for some in (group["params"] if adam else [] for group in groups)
        ]
        self.adam = adam

    @torch.no_grad()
    def step(self) -> None:
        for group, moments in zip(self.groups, self.moments):
            given = [at for at, parameter in enumerate(group["params"]) if parameter.grad is not None]
            rows = [group["params"][at] for at in given]
            gradients, lr = [row.grad for row in rows], group["lr"]
            decay = group.get("weight_decay", 0.0)
            if rows and self.adam:
                first, second, steps = ([values[at] for at in given] for values in moments)
                (adamw if decay else adam)(
                    rows, gradients, first, second, [], steps, fused=True, capturable=rows[0].is_cuda, amsgrad=False,
                    beta1=0.9, beta2=0.999, lr=lr, weight_decay=decay, eps=1e-8, maximize=False,
                )  # fmt: skip
            elif rows:
                sgd(
                    rows, gradients, [None] * len(rows), fused=True, weight_decay=decay, momentum=0.0, lr=lr,
                    dampening=0.0, nesterov=False, maximize=False,
                )  # fmt: skip

    def state(self) -> list[Tensor]:
        return [tensor for moments in self.moments for values in moments for tensor in values]


class Optimizer:
    """The graph engine's: `Plain` over the rows of a stack, each at its own rate; and what else a cell asks for."""

    def __init__(self, cells: Sequence[Cell], network: Parameters, slopes: Parameters) -> None:
        rows = [nn.Parameter(row) for row in network.flat]
        for row, slope in zip(rows, slopes.flat):
            row.grad = slope
        # A captured step reads its rate from memory, where it may change.
        moving = cells[0].schedule != "constant" and network.flat.is_cuda
        groups: list[dict[str, Any]] = []
        for rate, decay in dict.fromkeys((cell.rate, cell.decay) for cell in cells):
            chosen = [row for row, cell in zip(rows, cells) if (cell.rate, cell.decay) == (rate, decay)]
            lr = network.flat.new_tensor(rate) if moving else rate
            groups.append({"params": chosen, "lr": lr, "rate": rate, "weight_decay": decay})
        self.plain = Plain(groups, adam=not cells[0].optimizer.endswith("sgd"))
        self.on_set = OnSet(cells, network, slopes) if cells[0].optimizer in ON_SET else None
        self.edges = EdgeRates(cells, network)
        self.factor = 1.0
        self.released = False  # whether weights are let go that were kept on the set

    def state(self) -> list[Tensor]:
        return [*self.plain.state(), *(() if self.on_set is None else self.on_set.state())]

    def scale(self, factor: float) -> None:
        """Take the next steps at so many times the rates."""
        self.factor = factor
        for group in self.plain.groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["rate"] * factor)
            else:
                group["lr"] = group["rate"] * factor

    def step(self) -> None:
        edges = self.edges.before()
        if self.on_set is not None and not self.released:
            before, group = self.on_set.before(), self.plain.groups[0]
            self.plain.step()
            lr = group["lr"]
            self.on_set.step(before, lr / group["rate"] if isinstance(lr, Tensor) else self.factor)
        else:
            self.plain.step()
        self.edges.after(edges)


class EdgeRates:
    """A learning rate of their own for the first and the last layer: takes them further after each step.

    Steps of Adam and of gradient descent, decay included, are in proportion to the rate: `ends` times the rate is
    `ends` times the step. So no engine has to know about a second rate.
    """

    def __init__(self, cells: Sequence[Cell], parameters: Parameters) -> None:
        self.further = cells[0].ends - 1
        last = len(parameters.weights) - 1
        self.tensors = [part[layer] for layer in {0, last} for part in (parameters.weights, parameters.biases)]

    def before(self) -> list[Tensor]:
        """The first and last layer as they are now; nothing if they learn as the others do."""
        return [tensor.clone() for tensor in self.tensors] if self.further else []

    def after(self, before: Sequence[Tensor]) -> None:
        """Take them further from where they were `before` the optimizer's step."""
        for tensor, old in zip(self.tensors, before):
            tensor.add_(tensor - old, alpha=self.further)


class KeptLayers:
    """Weights (k, m, n) of one shape that stay in the set, with what their optimizer remembers."""

    def __init__(self, cells: Sequence[Cell], rates: Tensor, shape: Sequence[int]) -> None:
        """`rates` are (k,)."""
        self.kind, self.ones, gain = ON_SET[cells[0].optimizer]
        self.rates = rates
        self.moments = [rates.new_zeros(len(rates), *shape) for _ in range(2 if self.kind == "adam" else 1)]
        self.gains = Gains(rates, cells[0].depth) if gain else None

    def state(self) -> list[Tensor]:
        return [*self.moments, *(() if self.gains is None else self.gains.state())]

    def after(self, weights: Tensor, gradient: Tensor, taken: int | Tensor, factor: float | Tensor) -> Tensor:
        """The weights after a step at so many times the rates; `taken` counts it too."""
        if self.gains is None:
            return self.members(weights, gradient, taken, factor)
        members, gradient = self.gains.before(weights, gradient)
        return self.gains.after(self.members(members, gradient, taken, factor), taken, factor)

    def members(self, old: Tensor, gradient: Tensor, taken: Any, factor: Any) -> Tensor:
        """The next members of the set."""
        rate = (self.rates * factor)[:, None, None]
        if self.kind == "adam":
            first, second = self.moments
            new, *changed = geometry.adam_step(old, gradient, first, second, taken, rate, ones=self.ones)
        elif self.kind == "sgd":
            new, *changed = geometry.sgd_step(old, gradient, self.moments[0], rate)
        else:
            new, *changed = geometry.muon_step(old, gradient, self.moments[0], ANGLES * rate)
        for moment, value in zip(self.moments, changed):
            moment.copy_(value)
        return new


class OnSet:
    """The weights between hidden layers of a stack, of one shape after the other.

    The first and the last layer, and all biases, are free: the plain optimizer trains them.
    """

    def __init__(self, cells: Sequence[Cell], parameters: Parameters, gradients: Parameters) -> None:
        rates = parameters.flat.new_tensor([cell.rate for cell in cells])
        # In float64: 1 - β₂ᵗ cancels.
        self.steps = torch.zeros((), dtype=torch.float64, device=parameters.flat.device)
        shapes: dict[torch.Size, list[int]] = {}
        for layer in range(1, len(parameters.weights) - 1):
            shapes.setdefault(parameters.weights[layer].shape[1:], []).append(layer)
        self.views = [
            [[each.weights[layer] for layer in layers] for each in (parameters, gradients)]
            for layers in shapes.values()
        ]
        self.kept = [KeptLayers(cells, rates.repeat_interleave(len(shapes[shape])), shape) for shape in shapes]

    def state(self) -> list[Tensor]:
        return [self.steps, *(tensor for kept in self.kept for tensor in kept.state())]

    def before(self) -> list[tuple[Tensor, Tensor]]:
        """The weights and their gradients as they are now, of each shape (E · layers, m, n)."""
        return [(_stacked(weights), _stacked(gradients)) for weights, gradients in self.views]

    def step(self, before: Sequence[tuple[Tensor, Tensor]], factor: float | Tensor) -> None:
        """Put the weights where the step on the set takes them from what they were `before` the plain optimizer's."""
        self.steps += 1
        for (weights, _), (old, gradient), kept in zip(self.views, before, self.kept):
            new = kept.after(old, gradient, self.steps, factor)
            torch._foreach_copy_(weights, list(new.unflatten(0, (-1, len(weights))).unbind(1)))


class FusedOnSet(KeptLayers):
    """The same in the fused engine: one launch takes all hidden weights of a stack to their next members.

    `flat` are its parameters, (E, P); `shares`, (E, tiles, P), what the tiles of each batch add to their gradients.
    """

    def __init__(self, cells: Sequence[Cell], net: Architecture, flat: Tensor, shares: Tensor) -> None:
        self.weights, self.shares = _hidden(flat, net), _hidden(shares, net)
        layers, *shape = self.weights.shape[-3:]
        super().__init__(cells, flat.new_tensor([cell.rate for cell in cells]).repeat_interleave(layers), shape)
        self.numbers = flat.new_zeros(len(self.rates), 6)
        self.numbers[:, 1:4] = flat.new_tensor((0.9, 0.999, 1e-8) if self.kind == "adam" else (0.0, 0.0, 0.0))

    @staticmethod
    def refuses(cell: Cell) -> bool:
        return ON_SET[cell.optimizer].step not in kernel.KINDS or cell.hidden[0] > kernel.MOST

    def step(self, taken: int, factor: float) -> Tensor:
        """The next weights, for `write`; `taken` counts the steps, this one included."""
        return self.after(self.weights.flatten(0, 1), self.shares.sum(1).flatten(0, 1), taken, factor)

    def members(self, old: Tensor, gradient: Tensor, taken: Any, factor: Any) -> Tensor:
        torch.mul(self.rates, factor, out=self.numbers[:, 0])
        if self.kind == "adam":
            self.numbers[:, 4].fill_(1 - 0.9**taken)
            self.numbers[:, 5].fill_((1 - 0.999**taken) ** 0.5)
        return kernel.step(old, gradient, tuple(self.moments), self.kind, self.numbers, ones=self.ones)

    def write(self, weights: Tensor) -> None:
        self.weights.copy_(weights.view_as(self.weights))


class Gains:
    """W = eˢQ for every hidden layer: Q is kept in the set, and Adam trains s, which starts at 0.

    The gains of a network's layers multiply, so s learns at the rate, (k,) for each matrix, divided by the depth.
    """

    def __init__(self, rates: Tensor, depth: int) -> None:
        self.rates = rates[:, None, None] / depth
        self.log, self.slope, self.first, self.second = (torch.zeros_like(self.rates) for _ in range(4))

    def state(self) -> list[Tensor]:
        return [self.log, self.first, self.second]

    def before(self, weights: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Q and the gradient by it, of weights (k, m, n); notes the one by s, ⟨gradient, W⟩."""
        self.slope.copy_((weights * gradient).sum((-2, -1), keepdim=True))
        gain = self.log.exp()
        return weights / gain, gradient * gain

    def after(self, members: Tensor, steps: int | Tensor, factor: float | Tensor) -> Tensor:
        """The weights of the next members, once Adam has changed the gains; `steps` counts this one."""
        self.first.lerp_(self.slope, 0.1)
        self.second.lerp_(self.slope.square(), 0.001)
        root = (self.second / (1 - 0.999**steps)).sqrt() + 1e-8
        self.log.sub_((factor * self.rates * self.first / (1 - 0.9**steps) / root).to(self.log.dtype))
        return members * self.log.exp()


def _hidden(values: Tensor, net: Architecture) -> Tensor:
    """Of parameters (…, P), the weights between hidden layers of one width, (…, layers, n, n)."""
    inputs, n = net.widths[:2]
    layers, each = net.layers - 2, n * n + n
    first = inputs * n + n
    return values[..., first : first + layers * each].unflatten(-1, (layers, each))[..., : n * n].unflatten(-1, (n, n))


def _stacked(views: Sequence[Tensor]) -> Tensor:
    """Views of shape (E, m, n) as one array (E · layers, m, n), a network's layers one after the other."""
    return torch.stack(list(views), 1).flatten(0, 1)
