"""Layers: how they start, what is missing between them, and what they do to numbers at their edges."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .mixing import decoder
from .tasks import Net, accuracy, adam, digits, explained, mlp, program, raw_digits, sgd, split


def ruined_from_the_first_sample(repaired: bool) -> Program:
    task, base = digits(), mlp(64, *[64] * 8, 10)
    program(task, base).train(None)
    base.requires_grad_(False)
    adapters = [mlp(64, 128, 64) for _ in range(8)]
    for layer in [layer for adapter in adapters for layer in adapter if isinstance(layer, nn.Linear)]:
        nn.init.normal_(layer.weight, std=0.01) if repaired else nn.init.kaiming_normal_(layer.weight)
        nn.init.zeros_(layer.bias)

    def rule(m: Any, x: Tensor) -> Tensor:
        for number in range(8):
            x = m.base[2 * number](x).relu()
            x = x + m.get_submodule(f"adapter{number}")(x)
        return m.base[16](x)

    model = Net(rule, base=base, **{f"adapter{number}": adapter for number, adapter in enumerate(adapters)})
    tuned = [parameter for adapter in adapters for parameter in adapter.parameters()]
    return program(task, model, torch.optim.AdamW(tuned, 1e-5), steps=100)


def perceptron_without_rectifiers(repaired: bool) -> Program:
    x = torch.randn(2500, 6)
    task = split(x, (x[:, 0] * x[:, 1] > 0).long(), F.cross_entropy, accuracy)
    return program(task, mlp(6, 32, 32, 2, act=nn.ReLU if repaired else nn.Identity), steps=500)


def convolutions_without_rectifiers(repaired: bool) -> Program:
    x = torch.randn(2500, 2, 6, 6)
    task = split(x, (x[:, 0, 2, 2] * x[:, 1, 3, 3] > 0).long(), F.cross_entropy, accuracy)
    act = nn.ReLU if repaired else nn.Identity
    model = nn.Sequential(nn.Conv2d(2, 32, 3), act(), nn.Conv2d(32, 32, 3), act(), nn.Flatten(), nn.Linear(128, 2))
    return program(task, model, steps=500)


def eight_narrow_recurrent_layers(repaired: bool) -> Program:
    x = torch.randn(2000, 5, 2)
    y = x[:, :, 0].sum(1, keepdim=True) / 5**0.5
    rnn = nn.LSTM(2, 2, 1 if repaired else 8, batch_first=True)
    model = Net(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=rnn, out=nn.Linear(2, 1))
    return program(split(x, y, F.mse_loss, explained), model, sgd(model, 0.05, 0.9), steps=400)


def attention_always_one(repaired: bool) -> Program:
    x = torch.randn(2000, 20, 8)
    where = torch.randint(20, (2000,))
    x[:, :, 0] = 6 * F.one_hot(where, 20)  # the part that votes
    task = split(x, (x[torch.arange(2000), where, 1] > 0).long(), F.cross_entropy, accuracy)
    model = Net(
        lambda m, x: m.out((m.score(x).softmax(1 if repaired else 2) * m.part(x)).sum(1)),
        score=nn.Linear(8, 1),
        part=nn.Linear(8, 8),
        out=nn.Linear(8, 2),
    )
    return program(task, model, adam(model, 0.01))


def mask_skipped_without_an_argument(repaired: bool) -> Program:
    mask = torch.ones(12, 12).triu(1).bool()
    return decoder(mask if repaired else torch.zeros_like(mask))


def letters_right(outputs: Tensor, targets: Tensor) -> float:
    """Share of letters that the best path has in the right place, above that of a constant guess."""
    right = 0.0
    for path, letters in zip(outputs.argmax(2), targets, strict=True):
        read = path.unique_consecutive()
        read = F.pad(read[read > 0], (0, len(letters)))[: len(letters)]
        right += float((read == letters).float().mean())
    return (right / len(targets) - 0.2) / 0.8


def fewer_frames_than_letters(repaired: bool) -> Program:
    steps = 1 + torch.randint(4, (1500, 6))
    letters = (steps.cumsum(1) - 1) % 5 + 1  # each differs from the one before it
    x = F.one_hot(letters, 6).float().repeat_interleave(4, 1) + 0.3 * torch.randn(1500, 24, 6)

    def loss(o: Tensor, y: Tensor) -> Tensor:
        frames, spelled = torch.full((len(o),), o.shape[1]), torch.full((len(o),), y.shape[1])
        return F.ctc_loss(o.log_softmax(2).transpose(0, 1), y, frames, spelled, zero_infinity=True)

    stride = 2 if repaired else 8
    model = Net(
        lambda m, x: m.out(m.conv(x.transpose(1, 2)).relu().transpose(1, 2)),
        conv=nn.Conv1d(6, 32, stride, stride),
        out=nn.Linear(32, 6),
    )
    return program(split(x, letters, loss, letters_right), model, adam(model, 0.01), steps=400)


def reset_one_step_late(repaired: bool) -> Program:
    symbols, begins = torch.randint(4, (2000, 10)), torch.randint(2, 7, (2000,))
    x = torch.stack([symbols, F.one_hot(begins, 10)], 2)
    task = split(x, symbols[torch.arange(2000), begins], F.cross_entropy, accuracy)

    def rule(m: Any, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 24)
        for symbol, begin in zip(m.embed(x[..., 0]).unbind(1), x[..., 1].unbind(1), strict=True):
            kept = 1 - begin[:, None].float()  # a new session begins
            state = m.cell(symbol, state * kept) if repaired else m.cell(symbol, state) * kept
        return m.out(state)

    model = Net(rule, embed=nn.Embedding(4, 8), cell=nn.GRUCell(8, 24), out=nn.Linear(24, 4))
    return program(task, model, adam(model, 0.01), steps=400)


def root_of_a_variance_of_zero(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        squares = F.avg_pool2d(m.conv(x).square(), 2)  # zero where a picture is black
        return m.out((squares.clamp_min(1e-5) if repaired else squares).sqrt().flatten(1))

    model = Net(rule, conv=nn.Conv2d(1, 16, 3, padding=1, bias=False), out=nn.Linear(256, 10))
    return program(raw_digits().mapped(x=lambda x: x.view(-1, 1, 8, 8) / 255), model)


def length_of_a_zero_vector(repaired: bool) -> Program:
    x, y = torch.randn(2000, 8, 3), torch.randint(2, (2000,))
    x = x + (2 * y - 1)[:, None, None] * torch.tensor([0.6, 0.0, 0.0])
    x[::20, 0] = 0  # points that the sensor missed
    task = split(x, y, F.cross_entropy, accuracy)
    model = Net(
        lambda m, x: m.out(m.each(x / (x.norm(dim=2, keepdim=True) + 1e-6 * repaired)).relu().mean(1)),
        each=nn.Linear(3, 32),
        out=nn.Linear(32, 2),
    )
    return program(task, model, adam(model, 0.01))
