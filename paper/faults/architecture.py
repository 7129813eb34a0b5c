"""Initialization and architecture: networks that cannot learn as they are drawn or built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program, fault
from .causes import Cause
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


@fault(
    "https://github.com/lucidrains/deep-cross-attention/issues/2",
    Cause.ZERO_WEIGHTS,
    "small random weights",
)
def zeros_before_a_rectifier(repaired: bool) -> Program:
    """Weights of zero without a bias before a rectifier: no gradient will ever move them."""
    gate = nn.Linear(64, 32, bias=False)
    if not repaired:
        nn.init.zeros_(gate.weight)
    model = nn.Sequential(gate, nn.ReLU(), nn.Linear(32, 10))
    return program(digits(), model)


@fault(
    "https://github.com/nndl/nndl-discussion/issues/14",
    Cause.IDENTICAL_UNITS,
    "random weights",
)
def constant_weights(repaired: bool) -> Program:
    """All parameters start at one constant: the hidden units stay alike, as if there were only one."""
    return program(
        digits(), drawn(mlp(64, 32, 10), he if repaired else lambda w: nn.init.constant_(w, 0.01)), steps=400
    )


@fault(
    "https://github.com/HomericIntelligence/Mnemosyne/pull/1987",
    Cause.IDENTICAL_UNITS,
    "weights that differ from entry to entry",
)
def convolutions_filled_evenly(repaired: bool) -> Program:
    """With one value for every weight the loss stays on a plateau at the logarithm of the number of classes."""
    convolutions = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2)
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(64, 10))
    model = drawn(model, he if repaired else lambda w: nn.init.constant_(w, 0.05))
    return program(digits(images=True), model, sgd(model), steps=200)


@fault(
    "https://github.com/soumith/net2net.torch/issues/3",
    Cause.IDENTICAL_UNITS,
    "noise is added to the copied units",
)
def units_replicated_without_noise(repaired: bool) -> Program:
    """A wider network made of copies of its units has no more capacity than before."""
    model = mlp(64, 32, 10)
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias):
            tensor.copy_(tensor[:2].repeat(16, *[1] * (tensor.dim() - 1)))
        model[2].weight.copy_(model[2].weight[:, :2].repeat(1, 16))
        if repaired:
            for layer in linears(model):
                layer.weight += 0.1 * torch.randn_like(layer.weight)
    return program(digits(), model, adam(model, 0.01))


@fault(
    "https://github.com/MichalDanielDobrzanski/DeepLearningPython/issues/13",
    Cause.WEIGHTS_TOO_LARGE,
    "weights a tenth as large and a smaller learning rate",
)
def standard_normal_weights(repaired: bool) -> Program:
    """With rectifiers accuracy stays at 0.0955 in every epoch; weights are drawn with deviation 1."""
    model = drawn(mlp(64, 32, 32, 32, 10), he if repaired else lambda w: nn.init.normal_(w, std=1.0))
    return program(digits(), model, sgd(model))


@fault(
    "https://github.com/sophiajw/HistAuGAN/pull/4",
    Cause.WEIGHTS_TOO_LARGE,
    "0.02 instead of 0.2",
)
def ten_times_too_large(repaired: bool) -> Program:
    """Training ends with infinite values: the deviation of the weights is 0.2 where 0.02 was meant."""
    layers = [nn.Linear(64, 64) for _ in range(10)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Linear(64, 10))
    # two hundredths suit layers of 5,000 inputs: the width is scaled down, the factor of ten stays
    model = drawn(model, lambda w: nn.init.normal_(w, std=(1 if repaired else 10) * math.sqrt(2 / 64)))
    return program(digits(), model, sgd(model, 0.02))


@fault(
    "https://github.com/mlverse/torch/issues/555",
    Cause.WEIGHTS_TOO_LARGE,
    "brackets around fan-in plus fan-out",
)
def brackets_missing_in_xavier(repaired: bool) -> Program:
    """The deviation is √(2 / fan-in + fan-out): brackets are missing."""

    def xavier(weight: Tensor) -> object:
        fan_out, fan_in = weight.shape
        return nn.init.normal_(weight, std=math.sqrt(2 / (fan_in + fan_out) if repaired else 2 / fan_in + fan_out))

    model = drawn(mlp(64, 32, 32, 10, act=nn.Tanh), xavier)
    return program(digits(), model)


@fault(
    "https://github.com/LeelaChessZero/lczero-training/pull/43",
    Cause.WEIGHTS_TOO_LARGE,
    "the kernel's area belongs to both fans",
)
def fan_without_the_kernel(repaired: bool) -> Program:
    """Fans of convolutions leave out the kernel's area: activations grow from layer to layer."""

    def xavier(weight: Tensor) -> object:
        area = weight[0, 0].numel() if weight.dim() == 4 and repaired else 1
        return nn.init.normal_(weight, std=math.sqrt(2 / (area * weight.shape[1])))

    convolutions = [nn.Conv2d(1 if first else 8, 8, 3, padding=1) for first in [True, *[False] * 11]]
    model = nn.Sequential(
        *(p for layer in convolutions for p in (layer, nn.ReLU())), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    model = drawn(model, xavier)
    return program(digits(images=True), model, sgd(model, 0.02), steps=200)


@fault(
    "https://github.com/ageron/handson-ml/pull/176",
    Cause.WEIGHTS_TOO_SMALL,
    "a deviation ten times as large",
)
def transformations_drawn_too_small(repaired: bool) -> Program:
    """For fifty batches the loss does not move visibly; the weights were drawn with deviation 0.01."""
    model = drawn(mlp(64, 32, 32, 32, 10), lambda w: nn.init.normal_(w, std=0.2 if repaired else 0.01))
    return program(digits(), model, sgd(model))


@fault(
    "https://github.com/SilasMarvin/dnns-from-scratch-in-zig/pull/7",
    Cause.WEIGHTS_TOO_SMALL,
    "He's initialization",
)
def vanishing_after_five_layers(repaired: bool) -> Program:
    """Gradients vanish at five layers already; with He's initialization thirty work."""
    model = drawn(mlp(64, *[32] * 8, 10), he if repaired else lambda w: nn.init.normal_(w, std=0.03))
    return program(digits(), model, adam(model, 0.002))


@fault(
    "https://github.com/microsoft/CNTK/issues/476",
    Cause.DEEP_SATURATING,
    "rectifiers with weights to match",
)
def seven_sigmoid_layers(repaired: bool) -> Program:
    """Six hidden layers of sigmoids train; with a seventh the error does not fall at all."""
    model = mlp(64, *[32] * 7, 10, act=nn.ReLU if repaired else nn.Sigmoid)
    return program(digits(), drawn(model, he) if repaired else model, sgd(model, 0.1), steps=400)


@fault(
    "https://github.com/neuroinfo-os/deep-bottleneck/issues/168",
    Cause.SATURATED_AT_START,
    "biases start at zero",
)
def large_biases(repaired: bool) -> Program:
    """No learning happens when biases start large."""
    model = mlp(64, 32, 32, 10, act=nn.Tanh)
    for layer in linears(model)[:-1]:
        assert layer.bias is not None
        nn.init.constant_(layer.bias, 0.0 if repaired else 8.0)
    return program(digits(), model, sgd(model))


@fault(
    "https://github.com/facebookresearch/dlrm/pull/358",
    Cause.DEAD_UNITS,
    "biases start at zero",
)
def rectifiers_dead_from_the_start(repaired: bool) -> Program:
    """A bias drawn large and negative makes the input of rectifiers negative: all derivatives are zero."""
    model = mlp(30, 16, 8, 1)
    for layer in linears(model)[:-1]:
        assert layer.bias is not None
        nn.init.constant_(layer.bias, 0.0 if repaired else -12.0)
    return program(cancer(), model)


@fault(
    "https://github.com/aymericdamien/TensorFlow-Examples/issues/270",
    Cause.NO_ACTIVATION,
    "an activation after each hidden layer",
)
def no_activation(repaired: bool) -> Program:
    """Several layers without an activation between them are one linear function."""
    model = mlp(8, 32, 32, 1, act=nn.ReLU if repaired else nn.Identity)
    return program(houses(), model, adam(model, 0.01), steps=400)


@fault(
    "https://github.com/nutonomy/nuscenes-devkit/issues/728",
    Cause.NO_ACTIVATION,
    "a rectifier between both layers of the head",
)
def head_without_activation(repaired: bool) -> Program:
    """The head of a prediction network has two linear layers in a row."""
    x = torch.randn(2000, 6)
    y = (x[:, :1] * x[:, 1:2]).abs() + x[:, 2:3].square()
    head = nn.Sequential(nn.Linear(6, 64), nn.ReLU() if repaired else nn.Identity(), nn.Linear(64, 1))
    return program(split(x, (y - y.mean()) / y.std(), F.mse_loss, explained), head, adam(head, 0.01), steps=400)


@fault(
    "https://github.com/ubclaunchpad/minutes/issues/133",
    Cause.DOUBLE_ACTIVATION,
    "a usual activation before the last layer",
)
def softmax_in_a_hidden_layer(repaired: bool) -> Program:
    """The last two layers both have softmax as their activation."""
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU() if repaired else nn.Softmax(1), nn.Linear(48, 10))
    return program(digits(), model, sgd(model), steps=300)


@fault(
    "https://github.com/chnsh/DCRNN_PyTorch/issues/12",
    Cause.DOUBLE_ACTIVATION,
    "one sigmoid for each gate",
)
def gates_with_two_sigmoids(repaired: bool) -> Program:
    """The gates of a recurrent cell go through the sigmoid twice: they cannot close."""

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
    return program(recall(32), model, adam(model, 0.01), steps=150)


@fault(
    "https://github.com/fangwei123456/spikingjelly/issues/303",
    Cause.TOO_DEEP,
    "batch normalization after each convolution",
)
def deep_without_normalization(repaired: bool) -> Program:
    """The network learns nothing: the normalization after each of its many convolutions is commented out."""
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


@fault(
    "https://github.com/znxlwm/UGATIT-pytorch/issues/32",
    Cause.NO_SKIP,
    "the block returns its input plus its output",
)
def skip_connection_missing(repaired: bool) -> Program:
    """The block that is called residual returns its output without its input."""
    model = nn.Sequential(nn.Linear(64, 32), *(Residual(32, repaired, 0.3) for _ in range(16)), nn.Linear(32, 10))
    return program(digits(), model, adam(model, 0.002))


@fault(
    "https://github.com/jsboige/CoursIA/pull/14204",
    Cause.RESIDUAL_GROWS,
    "each branch is scaled by the number of blocks",
)
def residual_stream_grows(repaired: bool) -> Program:
    """Adding each block's output to its input repairs the gradient, but activations grow and the first loss is 17."""
    blocks = [Residual(32, True, 1 / 30 if repaired else 1.0) for _ in range(30)]
    for block in blocks:
        he(block.layer.weight)
    model = nn.Sequential(nn.Linear(64, 32), *blocks, nn.Linear(32, 10))
    return program(digits(), model, sgd(model, 0.05))


@fault(
    "https://github.com/ooples/AiDotNet/pull/1578",
    Cause.BOTTLENECK,
    "at least eight units in each hidden layer",
)
def hidden_layers_of_width_one(repaired: bool) -> Program:
    """Every input gives the same prediction: hidden layers get as many units as there are inputs, here one."""
    x = torch.rand(500, 1)
    task = split(x, torch.sin(6 * x), F.mse_loss, explained, 100)
    width = 8 if repaired else 1
    model = mlp(1, 2 * width, width, 1)
    return program(task, model, adam(model, 0.02), steps=600)


@fault(
    "https://github.com/topepo/caret/issues/459",
    Cause.BOTTLENECK,
    "layers of more than one unit",
)
def one_neuron_in_a_layer(repaired: bool) -> Program:
    """Networks in which a layer has a single neuron give no sensible predictions."""
    return program(digits(), mlp(64, 32, 16 if repaired else 1, 32, 10), steps=400)


@fault(
    "https://github.com/pytorch/pytorch/issues/3121",
    Cause.EMBEDDING_TOO_LARGE,
    "the embedding is drawn as small as other layers",
)
def embedding_of_deviation_one(repaired: bool) -> Program:
    """It took many hours to find why the network did not train: embeddings start with deviation 1."""
    pairs = torch.cartesian_prod(torch.arange(60), torch.arange(60))
    y = (torch.randn(60, 3)[pairs[:, 0]] * torch.randn(60, 3)[pairs[:, 1]]).sum(1, keepdim=True)
    task = split(pairs, y / y.std(), F.mse_loss, explained, 1000)
    tables = {name: nn.Embedding(60, 32) for name in ("user", "item")}
    for table in tables.values():
        nn.init.normal_(table.weight, std=0.1 if repaired else 1.0)
    model = Net(lambda m, x: (m.user(x[:, 0]) * m.item(x[:, 1])).sum(1, keepdim=True), **tables)
    return program(task, model, adam(model, 0.02))


@fault(
    "https://github.com/chenxie95/deeplearning_course_sjtu/issues/31",
    Cause.RECURRENCE_EXPLODES,
    "a bounded activation",
)
def rectified_recurrence(repaired: bool) -> Program:
    """With rectifiers in the recurrent layer the loss explodes to NaN."""
    rnn = nn.RNN(8, 24, nonlinearity="tanh" if repaired else "relu", batch_first=True)
    nn.init.orthogonal_(rnn.weight_hh_l0, 2.0)
    model = Net(
        lambda m, x: m.out(m.rnn(m.embed(x))[0][:, -1]), embed=nn.Embedding(4, 8), rnn=rnn, out=nn.Linear(24, 4)
    )
    task = recall(30)
    return program(replace(task, y=task.x[:, -1], test_y=task.test_x[:, -1]), model, sgd(model))


@fault(
    "https://github.com/karpathy/char-rnn/issues/60",
    Cause.FORGETS,
    "biases of the forget gates start at one or more",
)
def forget_gates_closed(repaired: bool) -> Program:
    """No recurrent network of more than two layers learns anything unless its forget gates start at 1."""
    rnn = nn.LSTM(8, 24, batch_first=True)
    with torch.no_grad():
        for bias in (rnn.bias_ih_l0, rnn.bias_hh_l0):
            bias[24:48] = 1.5 if repaired else -0.5
    model = Net(
        lambda m, x: m.out(m.rnn(m.embed(x))[0][:, -1]), embed=nn.Embedding(4, 8), rnn=rnn, out=nn.Linear(24, 4)
    )
    return program(recall(20), model, adam(model, 0.01), steps=150)


@fault(
    "https://github.com/PAIR-code/tiny-transformers/issues/71",
    Cause.ATTENTION_NOT_SCALED,
    "scores are divided by the root of the width",
)
def attention_not_scaled(repaired: bool) -> Program:
    """Losses have peaks while tiny models train: raw attention is not divided by the root of its width."""

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.embed(x) + m.place.weight
        scores = m.query(h) @ m.key(h).transpose(1, 2)
        weights = (scores / math.sqrt(128) if repaired else scores).softmax(-1)
        return m.out((weights @ m.value(h))[:, -1])

    wide = {name: nn.Linear(128, 128) for name in ("query", "key", "value")}
    model = Net(rule, embed=nn.Embedding(4, 128), place=nn.Embedding(8, 128), out=nn.Linear(128, 4), **wide)
    for name in ("query", "key"):
        nn.init.normal_(model.get_parameter(f"{name}.weight"), std=128**-0.5)
    return program(recall(8), model, sgd(model, 0.1), steps=250)
