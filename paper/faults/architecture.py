"""Initialization and architecture: networks that cannot learn as they are drawn or built."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import Net, adam, cancer, digits, explained, houses, linears, mlp, program, recall, sgd, split


def drawn(model: nn.Sequential, draw: Callable[[Tensor], object]) -> nn.Sequential:
    """The model with each weight drawn anew and biases at zero."""
    for layer in linears(model):
        draw(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return model


def he(weight: Tensor) -> object:
    return nn.init.kaiming_normal_(weight, nonlinearity="relu")


def zeros_before_a_rectifier(repaired: bool) -> Program:
    gate = nn.Linear(64, 32, bias=False)
    if not repaired:
        nn.init.zeros_(gate.weight)
    model = nn.Sequential(gate, nn.ReLU(), nn.Linear(32, 10))
    return program(digits(), model)


def constant_weights(repaired: bool) -> Program:
    return program(
        digits(), drawn(mlp(64, 32, 10), he if repaired else lambda w: nn.init.constant_(w, 0.01)), steps=400
    )


def units_replicated_without_noise(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    with torch.no_grad():
        for name in ("0.weight", "0.bias"):
            units = model.get_parameter(name)
            units.copy_(units[:2].repeat(16, *[1] * (units.dim() - 1)))
        readers = model.get_parameter("2.weight")
        readers.copy_(readers[:, :2].repeat(1, 16))
        if repaired:
            for layer in linears(model):
                layer.weight += 0.1 * torch.randn_like(layer.weight)
    return program(digits(), model, adam(model, 0.01))


def standard_normal_weights(repaired: bool) -> Program:
    model = drawn(mlp(64, 32, 32, 32, 10), he if repaired else lambda w: nn.init.normal_(w, std=1.0))
    return program(digits(), model, sgd(model))


def brackets_missing_in_xavier(repaired: bool) -> Program:
    def xavier(weight: Tensor) -> object:
        fan_out, fan_in = weight.shape
        return nn.init.normal_(weight, std=math.sqrt(2 / (fan_in + fan_out) if repaired else 2 / fan_in + fan_out))

    model = drawn(mlp(64, 32, 32, 10, act=nn.Tanh), xavier)
    return program(digits(), model)


def fan_without_the_kernel(repaired: bool) -> Program:
    def xavier(weight: Tensor) -> object:
        area = weight[0, 0].numel() if weight.dim() == 4 and repaired else 1
        return nn.init.normal_(weight, std=math.sqrt(2 / (area * weight.shape[1])))

    convolutions = [nn.Conv2d(1 if first else 8, 8, 3, padding=1) for first in [True, *[False] * 11]]
    model = nn.Sequential(
        *(p for layer in convolutions for p in (layer, nn.ReLU())), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    model = drawn(model, xavier)
    return program(digits(images=True), model, sgd(model, 0.02), steps=200)


def transformations_drawn_too_small(repaired: bool) -> Program:
    model = drawn(mlp(64, 32, 32, 32, 10), lambda w: nn.init.normal_(w, std=0.2 if repaired else 0.01))
    return program(digits(), model, sgd(model))


def vanishing_after_five_layers(repaired: bool) -> Program:
    model = drawn(mlp(64, *[32] * 8, 10), he if repaired else lambda w: nn.init.normal_(w, std=0.03))
    return program(digits(), model, adam(model, 0.002))


def seven_sigmoid_layers(repaired: bool) -> Program:
    model = mlp(64, *[32] * 7, 10, act=nn.ReLU if repaired else nn.Sigmoid)
    return program(digits(), drawn(model, he) if repaired else model, sgd(model, 0.1), steps=400)


def large_biases(repaired: bool) -> Program:
    model = mlp(64, 32, 32, 10, act=nn.Tanh)
    for layer in linears(model)[:-1]:
        assert layer.bias is not None
        nn.init.constant_(layer.bias, 0.0 if repaired else 8.0)
    return program(digits(), model, sgd(model))


def rectifiers_dead_from_the_start(repaired: bool) -> Program:
    model = mlp(30, 16, 8, 1)
    for layer in linears(model)[:-1]:
        assert layer.bias is not None
        nn.init.constant_(layer.bias, 0.0 if repaired else -12.0)
    return program(cancer(), model)


def no_activation(repaired: bool) -> Program:
    model = mlp(8, 32, 32, 1, act=nn.ReLU if repaired else nn.Identity)
    return program(houses(), model, adam(model, 0.01), steps=400)


def softmax_in_a_hidden_layer(repaired: bool) -> Program:
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU() if repaired else nn.Softmax(1), nn.Linear(48, 10))
    return program(digits(), model, sgd(model), steps=300)


def gates_with_two_sigmoids(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        h, symbols = torch.zeros(len(x), 24), m.embed(x)
        for number in range(x.shape[1]):
            both = torch.cat([symbols[:, number], h], 1)
            gate = m.gate(both).sigmoid()
            gate = gate if repaired else gate.sigmoid()
            h = gate * h + (1 - gate) * m.new(both).tanh()
        return m.out(h)

    model = Net(rule, embed=nn.Embedding(4, 8), gate=nn.Linear(32, 24), new=nn.Linear(32, 24), out=nn.Linear(24, 4))
    with torch.no_grad():
        model.get_parameter("gate.bias").fill_(3.0)
    return program(recall(50), model, adam(model, 0.01), steps=150)


def deep_without_normalization(repaired: bool) -> Program:
    layers: list[nn.Module] = []
    for number in range(12):
        layers += [
            nn.Conv2d(8 if number else 1, 8, 3, 1, 1),
            nn.BatchNorm2d(8) if repaired else nn.Identity(),
            nn.ReLU(),
        ]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    return program(digits(images=True), model, sgd(model, 0.05), steps=120)


class Residual(nn.Module):
    """A block of which the input may be added to the output."""

    def __init__(self, width: int, skip: bool, scale: float = 1.0):
        super().__init__()
        self.layer, self.skip, self.scale = nn.Linear(width, width), skip, scale

    def forward(self, x: Tensor) -> Tensor:
        out = self.scale * self.layer(x).relu()
        return x + out if self.skip else out


def skip_connection_missing(repaired: bool) -> Program:
    model = nn.Sequential(nn.Linear(64, 32), *(Residual(32, repaired, 0.3) for _ in range(16)), nn.Linear(32, 10))
    return program(digits(), model, adam(model, 0.002))


def residual_stream_grows(repaired: bool) -> Program:
    blocks = [Residual(32, True, 1 / 30 if repaired else 1.0) for _ in range(30)]
    for block in blocks:
        he(block.layer.weight)
    model = nn.Sequential(nn.Linear(64, 32), *blocks, nn.Linear(32, 10))
    return program(digits(), model, sgd(model, 0.05))


def hidden_layers_of_width_one(repaired: bool) -> Program:
    x = torch.rand(500, 1)
    task = split(x, torch.sin(6 * x), F.mse_loss, explained, 100)
    width = 8 if repaired else 1
    model = mlp(1, 2 * width, width, 1)
    return program(task, model, adam(model, 0.02), steps=600)


def one_neuron_in_a_layer(repaired: bool) -> Program:
    return program(digits(), mlp(64, 32, 16 if repaired else 1, 32, 10), steps=400)


def embedding_of_deviation_one(repaired: bool) -> Program:
    pairs = torch.cartesian_prod(torch.arange(60), torch.arange(60))
    y = (torch.randn(60, 3)[pairs[:, 0]] * torch.randn(60, 3)[pairs[:, 1]]).sum(1, keepdim=True)
    task = split(pairs, y / y.std(), F.mse_loss, explained, 1000)
    tables = {name: nn.Embedding(60, 32) for name in ("user", "item")}
    for table in tables.values():
        nn.init.normal_(table.weight, std=0.1 if repaired else 1.0)
    model = Net(lambda m, x: (m.user(x[:, 0]) * m.item(x[:, 1])).sum(1, keepdim=True), **tables)
    return program(task, model, adam(model, 0.02))


def rectified_recurrence(repaired: bool) -> Program:
    rnn = nn.RNN(8, 24, nonlinearity="tanh" if repaired else "relu", batch_first=True)
    nn.init.orthogonal_(rnn.get_parameter("weight_hh_l0"), 2.0)
    model = Net(
        lambda m, x: m.out(m.rnn(m.embed(x))[0][:, -1]), embed=nn.Embedding(4, 8), rnn=rnn, out=nn.Linear(24, 4)
    )
    task = recall(30)
    return program(replace(task, y=task.x[:, -1], test_y=task.test_x[:, -1]), model, sgd(model))


def forget_gates_closed(repaired: bool) -> Program:
    rnn = nn.LSTM(8, 24, batch_first=True)
    with torch.no_grad():
        for name in ("bias_ih_l0", "bias_hh_l0"):
            rnn.get_parameter(name)[24:48] = 1.5 if repaired else -0.5
    model = Net(
        lambda m, x: m.out(m.rnn(m.embed(x))[0][:, -1]), embed=nn.Embedding(4, 8), rnn=rnn, out=nn.Linear(24, 4)
    )
    return program(recall(20), model, adam(model, 0.01), steps=150)


def attention_not_divided(repaired: bool) -> Program:
    width = 64
    parts = {name: nn.Linear(8, width, bias=False) for name in ("query", "key")}
    for part in parts.values():
        nn.init.normal_(part.weight, std=1.0)

    def rule(m: Any, x: Tensor) -> Tensor:
        scores = m.query(x[:, :1]) @ m.key(x).transpose(1, 2)
        return m.out(((scores / (8 * width if repaired else 1)).softmax(-1) @ m.value(x))[:, 0])

    x = torch.randn(2000, 12, 8)
    x[:, 0, 1:] = 0
    y = x.mean(1) @ torch.randn(8, 1)
    model = Net(rule, **parts, value=nn.Linear(8, 8), out=nn.Linear(8, 1))
    return program(split(x, y / y.std(), F.mse_loss, explained), model, sgd(model, 0.05), steps=300)


def linear_layers_left_at_zero(repaired: bool) -> Program:
    model = mlp(64, 32, 32, 10)
    return program(digits(), drawn(model, he if repaired else nn.init.zeros_), sgd(model))


def weights_between_zero_and_one(repaired: bool) -> Program:
    model = mlp(64, 32, 32, 10)
    return program(digits(), model if repaired else drawn(model, nn.init.uniform_), sgd(model))


def output_added_to_itself(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.stem(x)
        for block in m.blocks:
            out = block(h)
            h = (out + (h if repaired else out)).relu()
        return m.out(h)

    blocks = nn.ModuleList(mlp(32, 32, 32) for _ in range(12))
    model = Net(rule, stem=nn.Linear(64, 32), blocks=blocks, out=nn.Linear(32, 10))
    return program(digits(), model, sgd(model, 0.02), steps=200)


def rectified_and_thrown_away(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        for layer in (m.first, m.second):
            x = layer(x)
            active = m.act(x)
            x = active if repaired else x
        return m.out(x)

    parts = {"first": nn.Linear(8, 32), "second": nn.Linear(32, 32), "act": nn.ReLU(), "out": nn.Linear(32, 1)}
    model = Net(rule, **parts)
    return program(houses(), model, adam(model, 0.01), steps=400)


def graph(share: float) -> tuple[Tensor, Tensor]:
    """A random graph of twelve nodes with this share of all edges, and features (N, 12, 4)."""
    edges = (torch.rand(12, 12) < share).float().triu(1)
    return edges + edges.T, torch.randn(2000, 12, 4)


def no_edge_to_itself(repaired: bool) -> Program:
    edges, x = graph(0.06)
    closed = (edges + torch.eye(12)) / (edges.sum(1, keepdim=True) + 1)
    y = closed @ (2 * x[..., :1]).sin()
    spread = closed if repaired else edges / edges.sum(1, keepdim=True).clamp_min(1)
    model = Net(lambda m, x: m.out(spread @ m.conv(x).tanh()), conv=nn.Linear(4, 32), out=nn.Linear(32, 1))
    return program(split(x, y / y.std(), F.mse_loss, explained), model, adam(model, 0.01))


def multiplied_by_the_degree(repaired: bool) -> Program:
    edges, x = graph(0.5)
    degree = edges.sum(1, keepdim=True).clamp_min(1)
    y = edges / degree @ (edges / degree @ x)[..., :2].abs().sum(2, keepdim=True)
    spread = edges / degree if repaired else edges * degree
    parts = {"first": nn.Linear(4, 32), "second": nn.Linear(32, 32), "out": nn.Linear(32, 1)}
    model = Net(lambda m, x: m.out(spread @ m.second(m.first(spread @ x).relu()).relu()), **parts)
    return program(split(x, (y - y.mean()) / y.std(), F.mse_loss, explained), model, sgd(model, 0.05, 0.9))
