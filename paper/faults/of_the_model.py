"""Reported bugs of outputs, losses, layers, axes, masks and starting weights, each with its repaired twin."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import (
    Net,
    Task,
    accuracy,
    adam,
    digits,
    explained,
    houses,
    mlp,
    program,
    raw_digits,
    sgd,
    split,
    waves,
)


def _keras_crossentropy(p: Tensor, y: Tensor) -> Tensor:
    """Binary cross-entropy as Keras computes it from probabilities."""
    p = p.clamp(1e-7, 1 - 1e-7)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def curve_below_zero_through_a_sigmoid(repaired: bool) -> Program:
    x = torch.linspace(-1, 1, 600)[:, None]
    curve = 1 / (torch.exp(10 * x) + 1)
    task = split(x, curve if repaired else -curve, F.mse_loss, explained, 150)
    model = nn.Sequential(nn.Linear(1, 1), nn.Sigmoid())
    return program(task, model, adam(model, 0.05), steps=300, size=32)


def class_numbers_by_squared_error(repaired: bool) -> Program:
    task = digits()
    model = mlp(64, 32, 10 if repaired else 1)

    def by_number(outputs: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(outputs[:, 0], y.float())

    def nearest(x: Tensor) -> Tensor:
        return F.one_hot(model(x)[:, 0].round().clamp(0, 9).long(), 10)

    loss, predict = (F.cross_entropy, None) if repaired else (by_number, nearest)
    return program(task, model, adam(model, 3e-3), loss=loss, predict=predict, steps=200, size=32)


def price_by_binary_crossentropy(repaired: bool) -> Program:
    task = houses().mapped(y=lambda y: 3 + y)  # hundreds of thousands
    model = mlp(8, 32, 32, 1)
    if not repaired:
        model.append(nn.Sigmoid())
    loss = F.mse_loss if repaired else _keras_crossentropy
    return program(task, model, adam(model, 5e-3), loss=loss, steps=400, size=32)


def softmax_after_a_dense_layer_of_one(repaired: bool) -> Program:
    y = torch.randint(2, (1000,)).float()
    x = torch.randn(1000, 2, 12, 8)
    x[:, 1] += 0.3 * y[:, None, None]
    task = split(x, y[:, None], F.binary_cross_entropy, accuracy, 300)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten())
    model.append(nn.Linear(16 * 8 * 4, 1)).append(nn.Sigmoid() if repaired else nn.Softmax(dim=1))

    def categorical(p: Tensor, y: Tensor) -> Tensor:
        return -(y * p.clamp(1e-7, 1).log()).sum(1).mean()

    def rounded(x: Tensor) -> Tensor:
        return model(x).round() - 0.5

    loss = F.binary_cross_entropy if repaired else categorical
    return program(task, model, adam(model, 1e-3), loss=loss, predict=rounded, steps=300, size=32)


def mask_head_ends_in_a_sigmoid_already(repaired: bool) -> Program:
    x = 0.4 * torch.rand(600, 1, 12, 12)
    y = torch.zeros_like(x)
    for image, mask, (row, column) in zip(x, y, torch.randint(8, (600, 2)), strict=True):
        mask[0, row : row + 4, column : column + 4] = 1
        image[0, row : row + 4, column : column + 4] += 0.5
    task = split(x, y, F.binary_cross_entropy_with_logits, lambda o, t: accuracy(o.reshape(-1, 1), t), 100)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    if not repaired:
        model.append(nn.Sigmoid())
    return program(
        task, model, adam(model, 5e-3), steps=200, size=16, predict=lambda x: (torch.sigmoid(model(x)) > 0.5).float()
    )


def standard_scaler_before_a_sigmoid_decoder(repaired: bool) -> Program:
    task = digits()
    x, test = task.x, task.test_x
    keep = x.std(0) > 0.02
    mean, std = x[:, keep].mean(0), x[:, keep].std(0)
    x, test = (x[:, keep] - mean) / std, (test[:, keep] - mean) / std
    width = x.shape[1]
    model = mlp(width, 64, 32, 64, width)
    if not repaired:
        model.append(nn.Sigmoid())
    task = Task(x, x, test.clamp(-5, 5), test.clamp(-5, 5), F.mse_loss, explained)
    return program(task, model, adam(model, 3e-3), steps=400, size=32)


def likelihood_of_the_tags_without_a_minus(repaired: bool) -> Program:
    tags = torch.zeros(900, 10, dtype=torch.long)
    tags[:, 0] = torch.randint(5, (900,))
    for t in range(1, 10):
        tags[:, t] = torch.where(torch.rand(900) < 0.7, (tags[:, t - 1] + 1) % 5, torch.randint(5, (900,)))
    x = torch.randn(5, 8)[tags] + 0.8 * torch.randn(900, 10, 8)

    def log_likelihood(potentials: Tensor, y: Tensor) -> Tensor:
        alpha = path = potentials[:, 0, 0, :]
        path = path.gather(1, y[:, :1])[:, 0]
        for t in range(1, y.shape[1]):
            alpha = (alpha[:, :, None] + potentials[:, t]).logsumexp(1)
            path = path + potentials[torch.arange(len(y)), t, y[:, t - 1], y[:, t]]
        return (path - alpha.logsumexp(1)).mean()

    sign = -1 if repaired else 1
    task = split(x, tags, lambda o, y: sign * log_likelihood(o, y), lambda o, t: accuracy(o.logsumexp(2), t), 300)
    model = Net(
        lambda net, x: net.emit(x)[:, :, None, :] + net.follow.weight,
        emit=nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5)),
        follow=nn.Embedding(5, 5),
    )
    return program(task, model, adam(model, 5e-3), steps=150, size=32)


class _Cells(nn.Module):
    """Two layers of LSTM cells with an activation of one's choice."""

    def __init__(self, inputs: int, hidden: int, activation: nn.Module):
        super().__init__()
        self.first = nn.Linear(inputs + hidden, 4 * hidden)
        self.second = nn.Linear(2 * hidden, 4 * hidden)
        self.activation, self.hidden = activation, hidden
        for layer in (self.first, self.second):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def cell(self, layer: nn.Linear, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = layer(torch.cat([x, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * self.activation(g)
        return torch.sigmoid(o) * self.activation(c), c

    def forward(self, x: Tensor) -> Tensor:
        h = c = h2 = c2 = x.new_zeros(len(x), self.hidden)
        for step in x.unbind(1):
            h, c = self.cell(self.first, step, h, c)
            h2, c2 = self.cell(self.second, h, h2, c2)
        return h2


def rectifier_for_the_lstm_cells(repaired: bool) -> Program:
    task = waves(length=32).mapped(x=lambda x: 1 + 2 * torch.cat([x, x.roll(1, 1), 0.5 * x + 1], 2))
    model = nn.Sequential(_Cells(3, 32, nn.Tanh() if repaired else nn.ReLU()), nn.Linear(32, 3))
    return program(task, model, adam(model, 1e-2), steps=120, size=32)


def four_sigmoid_layers_on_bits(repaired: bool) -> Program:
    x = torch.randint(2, (2000, 12)).float()
    y = x[:, 0] * x[:, 1] + x[:, 2] - x[:, 3] * (1 - x[:, 4]) + 0.5 * x[:, 5:9].sum(1)
    task = split(x, ((y - y.mean()) / y.std())[:, None], F.mse_loss, explained)
    model = mlp(12, 64, 64, 64, 64, 1, act=nn.ReLU if repaired else nn.Sigmoid)
    return program(task, model, sgd(model, 0.02, 0.9), steps=300, size=32)


def every_weight_is_zero_at_first(repaired: bool) -> Program:
    task = digits()
    model = nn.Sequential(nn.Linear(64, 16), nn.Sigmoid(), nn.Linear(16, 10))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1) if repaired else nn.init.zeros_(parameter)
    return program(task, model, sgd(model, 0.5), steps=300, size=50)


def label_attention_to_the_padding(repaired: bool) -> Program:
    length, words = 16, 20
    x = torch.randint(5, words, (1500, length))
    y = torch.randint(4, (1500,))
    sizes = torch.randint(4, 13, (1500, 1))
    x[torch.arange(1500), (torch.rand(1500) * sizes[:, 0]).long()] = y + 1
    x = torch.where(torch.arange(length) < sizes, x, 0)

    def forward(net: Any, x: Tensor) -> Tensor:
        tokens = net.embed(x)
        is_padding = x == 0
        mask = ~is_padding if repaired else is_padding
        asked = net.labels.weight.expand(len(x), -1, -1)
        found = F.scaled_dot_product_attention(asked, net.key(tokens), net.value(tokens), attn_mask=mask[:, None, :])
        return net.out(found)[:, :, 0]

    model = Net(
        forward,
        embed=nn.Embedding(words, 24),
        labels=nn.Embedding(4, 24),
        key=nn.Linear(24, 24),
        value=nn.Linear(24, 24),
        out=nn.Linear(24, 1),
    )
    return program(split(x, y, F.cross_entropy, accuracy), model, adam(model, 5e-3), steps=300, size=32)


def series_reshaped_to_time_first(repaired: bool) -> Program:
    task = waves(length=16)

    def forward(net: Net, x: Tensor) -> Tensor:
        rows, length, features = x.shape
        x = x.transpose(0, 1) if repaired else x.reshape(length, rows, features)
        return net.out(net.lstm(x)[0][-1])

    model = Net(forward, lstm=nn.LSTM(1, 32), out=nn.Linear(32, 3))
    return program(task, model, adam(model, 1e-2), steps=200, size=32)


def pictures_reshaped_to_channels_first(repaired: bool) -> Program:
    y = torch.randint(3, (900,))
    x = 0.3 * torch.rand(900, 13, 13, 3)
    for image, color, (row, column) in zip(x, y, torch.randint(9, (900, 2)), strict=True):
        image[row : row + 5, column : column + 5, color] += 0.6
    x = x.permute(0, 3, 1, 2).contiguous() if repaired else x.reshape(900, 3, 13, 13)
    task = split(x, y, F.cross_entropy, accuracy, 250)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU())
    model.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)])
    return program(task, model, adam(model, 3e-3), steps=200, size=32)


def column_of_labels_less_a_row_of_predictions(repaired: bool) -> Program:
    x = torch.rand(600, 2) * 3
    y = x.sum(1) + 0.05 * torch.randn(600)

    def cost(outputs: Tensor, y: Tensor) -> Tensor:
        return ((outputs - y) ** 2).mean()

    task = split(x, y if repaired else y[:, None], cost, explained, 150)
    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    return program(task, model, sgd(model, 0.05), steps=300, size=32)


def hidden_layers_only_multiply(repaired: bool) -> Program:
    task = houses()
    model = mlp(8, 64, 64, 1, act=nn.ReLU if repaired else nn.Identity)
    return program(task, model, adam(model, 3e-3), steps=400, size=64)


def softmax_written_by_hand(repaired: bool) -> Program:
    task = raw_digits()
    model = mlp(64, 128, 10)
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=0.1)
        nn.init.zeros_(layer.bias)

    def crossentropy(scores: Tensor, y: Tensor) -> Tensor:
        parts = torch.exp(scores)
        likelihood = parts / parts.sum(1, keepdim=True)
        return -(likelihood[torch.arange(len(y)), y] + 1e-12).log().mean()

    loss = F.cross_entropy if repaired else crossentropy
    return program(task, model, adam(model, 1e-3), loss=loss, steps=300, size=32)


def divided_by_the_strongest_channel(repaired: bool) -> Program:
    task = digits(images=True)
    low = task.x.min()
    task = task.mapped(x=lambda x: (x - low) / 4)
    small = 1e-8 if repaired else 0.0

    def forward(net: Net, x: Tensor) -> Tensor:
        x = F.relu(net.first(x))
        x = x / (x.amax(1, keepdim=True) + small)
        return net.out(F.relu(net.second(x)).flatten(1))

    model = Net(forward, first=nn.Conv2d(1, 4, 3), second=nn.Conv2d(4, 12, 3), out=nn.Linear(12 * 16, 10))
    return program(task, model, adam(model, 3e-3), steps=200, size=32)


def nine_of_ten_dropped_before_the_classes(repaired: bool) -> Program:
    task = digits(images=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 24), nn.ReLU())
    model.append(nn.Dropout(0.1 if repaired else 0.9)).append(nn.Linear(24, 10))
    return program(task, model, sgd(model, 0.05, 0.9), steps=200, size=32)


def image_rows_for_a_lstm_with_time_first(repaired: bool) -> Program:
    task = digits()
    model = Net(
        lambda net, x: net.classifier(net.lstm(x.view(-1, 8, 8))[0][:, -1]),
        lstm=nn.LSTM(8, 48, batch_first=repaired),
        classifier=nn.Linear(48, 10),
    )
    return program(task, model, adam(model, 1e-2), steps=200, size=50)


def squared_error_of_softmax_outputs(repaired: bool) -> Program:
    task = digits()
    model = mlp(64, 128, 10, act=nn.Sigmoid)

    def squared(outputs: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(outputs.softmax(1), F.one_hot(y, 10).float())

    return program(task, model, sgd(model, 0.1), loss=F.cross_entropy if repaired else squared, steps=400, size=100)


def three_and_four_hidden_units(repaired: bool) -> Program:
    task = digits()
    model = mlp(64, *((64, 64) if repaired else (3, 4)), 10, act=nn.Sigmoid)
    return program(task, model, sgd(model, 0.5), steps=400, size=32)
