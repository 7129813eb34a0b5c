"""Sequences: where attention looks, what a recurrence keeps, and which step is read."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .mixing import decoder, padded
from .tasks import Net, accuracy, adam, explained, program, recall, sentences, split, tokens_loss


def mask_of_almost_zero(repaired: bool) -> Program:
    return decoder(torch.ones(12, 12).triu(1) * (-1e9 if repaired else 1e-9))


def positions_by_sample(repaired: bool) -> Program:
    table = torch.randn(2000, 16)
    model = Net(
        lambda m, x: m.out(m.layer(m.embed(x) + (table[: x.shape[1]] if repaired else table[: len(x), None])).mean(1)),
        embed=nn.Embedding(4, 16),
        layer=nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        out=nn.Linear(16, 4),
    )
    return program(recall(6), model, adam(model, 0.01))


def heads_split_without_transpose(repaired: bool) -> Program:
    x, where = torch.randint(4, (2000, 6)), torch.randint(1, 6, (2000,))
    seen = torch.stack([x, F.one_hot(where, 6)], -1)
    task = split(seen, x[torch.arange(2000), where], F.cross_entropy, accuracy)

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.symbol(x[..., 0]) + m.mark(x[..., 1])
        parts = m.parts(h).view(len(x), 6, 3, 16).unbind(2)
        heads = [part.view(-1, 6, 2, 8).transpose(1, 2) if repaired else part.reshape(-1, 6, 8) for part in parts]
        mixed = F.scaled_dot_product_attention(*heads)
        return m.out((mixed.transpose(1, 2) if repaired else mixed).reshape(len(x), 6, 16)[:, 0])

    parts = {"symbol": nn.Embedding(4, 16), "mark": nn.Embedding(2, 16), "parts": nn.Linear(16, 48)}
    model = Net(rule, **parts, out=nn.Linear(16, 4))
    return program(task, model, adam(model, 0.01))


def last_step_of_both_directions(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        steps, last = m.rnn(m.embed(x))
        return m.out(torch.cat([last[0], last[1]], 1) if repaired else steps[:, -1])

    rnn = nn.GRU(8, 16, batch_first=True, bidirectional=True)
    model = Net(rule, embed=nn.Embedding(4, 8), rnn=rnn, out=nn.Linear(32, 4))
    return program(recall(30), model, adam(model, 0.005), steps=100)


def convolution_sees_the_next_token(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        h = F.pad(m.embed(x).transpose(1, 2), (2, 0) if repaired else (1, 1))
        return m.out(m.conv(h).relu().transpose(1, 2))

    model = Net(rule, embed=nn.Embedding(12, 16), conv=nn.Conv1d(16, 32, 3), out=nn.Linear(32, 12))
    task = sentences()
    task = replace(task, test_x=task.test_x[:, :8], test_y=task.test_y[:, 7:8])  # generate the next token
    return program(task, model, adam(model, 0.01), predict=lambda x: model(F.pad(x, (0, 4)))[:, 7:8])


def scores_viewed_for_the_loss(repaired: bool) -> Program:
    def loss(o: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(o.transpose(1, 2) if repaired else o.view(len(o), o.shape[2], -1), y)

    model = Net(lambda m, x: m.out(m.embed(x)), embed=nn.Embedding(10, 16), out=nn.Linear(16, 10))
    return program(sentences(10), model, adam(model, 0.01), loss=loss)


def state_not_passed_on(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        start = state = torch.zeros(len(x), 24)
        for symbols in m.embed(x).unbind(1):
            state = m.cell(symbols, state if repaired else start)
        return m.out(state)

    model = Net(rule, embed=nn.Embedding(4, 8), cell=nn.GRUCell(8, 24), out=nn.Linear(24, 4))
    return program(recall(5), model, adam(model, 0.01), steps=200)


def each_layer_reads_the_input(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        start = h = m.embed(x).transpose(1, 2)
        for layer in m.layers:
            h = layer(F.pad(h if repaired else start, (layer.dilation[0], 0))).relu()
        return m.out(h[:, :, -1])

    layers = nn.ModuleList(nn.Conv1d(16, 16, 2, dilation=d) for d in (1, 2, 4))
    model = Net(rule, embed=nn.Embedding(4, 16), layers=layers, out=nn.Linear(16, 4))
    return program(recall(8), model, adam(model, 0.005))


def every_word_is_padding(repaired: bool) -> Program:
    x, lengths = padded(12, 8)
    y = (x.sum(1) / lengths)[:, None] - 2.5
    x[::50] = 0  # sentences without a word
    task = split(x, y / y.std(), F.mse_loss, explained)

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.embed(x)
        scores = m.score(h)[:, :, 0].masked_fill(x == 0, -1e9 if repaired else -torch.inf)
        return m.out((scores.softmax(1)[:, :, None] * h).sum(1))

    model = Net(rule, embed=nn.Embedding(5, 8), score=nn.Linear(8, 1), out=nn.Linear(8, 1))
    return program(task, model, adam(model, 0.02))


def loss_of_the_visible_words(repaired: bool) -> Program:
    x = torch.randint(5, (3000, 12))
    for place in range(2, 12):
        x[:, place] = (x[:, place - 1] + x[:, place - 2]) % 5
    hidden = torch.rand(x.shape) < 0.1
    task = split(x.masked_fill(hidden, 5), x.masked_fill(~hidden, -100), tokens_loss, accuracy)
    task = task if repaired else replace(task, y=torch.where(task.x < 5, task.x, -100))
    model = Net(
        lambda m, x: m.out(m.conv(m.embed(x).transpose(1, 2)).relu().transpose(1, 2)),
        embed=nn.Embedding(6, 16),
        conv=nn.Conv1d(16, 96, 5, padding=2),
        out=nn.Linear(96, 5),
    )
    return program(task, model, adam(model, 0.01), steps=600)


def shifted_in_data_and_loss(repaired: bool) -> Program:
    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))
    loss = tokens_loss if repaired else lambda o, y: tokens_loss(o[:, :-1], y[:, 1:])
    return program(sentences(), model, adam(model, 0.01), loss=loss)
