"""Mixing across samples or time: axes taken for each other, and masks that are missing or the wrong way round."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import Net, accuracy, adam, digits, explained, mlp, program, recall, sentences, split, waves


def reader(features: int, classes: int, batch_first: bool = True) -> dict[str, nn.Module]:
    """A recurrent layer and a classifier."""
    return {"rnn": nn.GRU(features, 24, batch_first=batch_first), "out": nn.Linear(24, classes)}


def view_for_transpose(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.out(m.rnn(x.transpose(0, 1) if repaired else x.reshape(x.shape[1], x.shape[0], -1))[0][-1]),
        **reader(1, 3, batch_first=False),
    )
    return program(waves(), model, adam(model, 0.01))


def states_viewed_across_samples(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        state = m.rnn(m.embed(x))[1]
        return m.out((state.transpose(0, 1) if repaired else state).reshape(len(x), -1))

    parts = {"embed": nn.Embedding(4, 8), "rnn": nn.GRU(8, 16, 2, batch_first=True), "out": nn.Linear(32, 4)}
    model = Net(rule, **parts)
    return program(recall(5), model, adam(model, 0.01))


def channels_viewed_into_time(repaired: bool) -> Program:
    x = torch.randn(2000, 6, 10, 4)
    y = (x[:, 0, :, 0] + x[:, 3, :, 2] > 0).long()  # one answer for each of ten times
    task = split(x, y, lambda o, y: F.cross_entropy(o.flatten(0, 1), y.flatten()), accuracy)
    model = Net(
        lambda m, x: m.each(x.transpose(1, 2).flatten(2) if repaired else x.reshape(len(x), 10, -1)),
        each=mlp(24, 32, 2),
    )
    return program(task, model)


def softmax_over_the_batch(repaired: bool) -> Program:
    model = mlp(64, 32, 10).append(nn.Softmax(dim=1 if repaired else 0))
    return program(
        digits(),
        model,
        loss=lambda p, y: F.nll_loss((p + 1e-8).log(), y),
        predict=lambda x: torch.cat([model.eval()(picture) for picture in x.split(1)]),
    )


def attention_over_the_batch(repaired: bool) -> Program:
    x = torch.randn(2000, 8, 6)
    x[:, :, 0] = 6 * F.one_hot(torch.randint(8, (2000,)), 8)
    task = split(x, x[torch.arange(2000), x[:, :, 0].argmax(1), 1:2], F.mse_loss, explained)
    axis = 1 if repaired else 0
    model = Net(
        lambda m, x: (m.score(x).softmax(axis) * m.value(x)).sum(1), score=nn.Linear(6, 1), value=nn.Linear(6, 1)
    )
    return program(task, model, adam(model, 0.02))


def recurrent_layer_without_batch_first(repaired: bool) -> Program:
    model = Net(lambda m, x: m.out(m.rnn(x)[0][:, -1]), **reader(1, 3, batch_first=repaired))
    return program(waves(), model, adam(model, 0.01))


def encoder_without_batch_first(repaired: bool) -> Program:
    x, where = torch.randint(4, (2000, 6)), torch.randint(1, 6, (2000,))
    marks = F.one_hot(where, 6)  # the first position is to report the marked symbol
    task = split(torch.stack([x, marks], -1), x[torch.arange(2000), where], F.cross_entropy, accuracy)
    model = Net(
        lambda m, x: m.out(m.layer(m.symbol(x[..., 0]) + m.mark(x[..., 1]) + m.place.weight)[:, 0]),
        symbol=nn.Embedding(4, 16),
        mark=nn.Embedding(2, 16),
        place=nn.Embedding(6, 16),
        layer=nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=repaired),
        out=nn.Linear(16, 4),
    )
    return program(task, model, adam(model, 0.01))


def no_causal_mask(repaired: bool) -> Program:
    layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(12)

    def rule(m: Any, x: Tensor) -> Tensor:
        length = x.shape[1]
        h = m.embed(x) + m.place(torch.arange(length))
        return m.out(m.layer(h, mask[:length, :length] if repaired else None))

    model = Net(rule, embed=nn.Embedding(12, 24), place=nn.Embedding(12, 24), layer=layer, out=nn.Linear(24, 12))
    task = sentences()
    task = replace(task, test_x=task.test_x[:, :8], test_y=task.test_y[:, 7:8])  # generate the next token
    return program(task, model, adam(model, 0.005), predict=lambda x: model.eval()(x)[:, -1:])


def state_kept_between_shuffled_batches(repaired: bool) -> Program:
    x = torch.rand(2000, 6, 1)
    task = split(x, x.sum(1) - 3, F.mse_loss, explained)
    model = Stateful(kept=not repaired)
    return program(task, model, adam(model, 0.01), predict=lambda x: torch.cat([model(part) for part in x.split(50)]))


class Stateful(nn.Module):
    """A recurrent regression that may go on from where the last batch ended."""

    def __init__(self, kept: bool):
        super().__init__()
        self.kept = kept
        self.state: Tensor | None = None
        self.rnn, self.out = nn.RNN(1, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 1)
        nn.init.eye_(self.rnn.get_parameter("weight_hh_l0"))

    def forward(self, x: Tensor) -> Tensor:
        fits = self.kept and self.state is not None and self.state.shape[1] == len(x)
        seen, last = self.rnn(x, self.state if fits else None)
        self.state = last.detach()
        return self.out(seen[:, -1])


def padded(length: int, longest: int, rows: int = 2000) -> tuple[Tensor, Tensor]:
    """Two symbols of 1 to 4, or as many as the longest row has, then zeros; and the number of symbols."""
    lengths = torch.where(torch.rand(rows) < 0.5, 2, longest)
    return torch.randint(1, 5, (rows, length)) * (torch.arange(length) < lengths[:, None]), lengths


def padding_in_the_mean(repaired: bool) -> Program:
    x, lengths = padded(30, 30)
    y = (x.sum(1) / lengths)[:, None] - 2.5
    task = split(x, y / y.std(), F.mse_loss, explained)

    def rule(m: Any, x: Tensor) -> Tensor:
        seen = (x > 0 if repaired else torch.ones_like(x)).float()
        vectors = m.embed(x) * seen[:, :, None]
        return m.out(vectors.sum(1) / seen.sum(1, keepdim=True))

    model = Net(rule, embed=nn.Embedding(5, 8), out=nn.Linear(8, 1))
    return program(task, model, adam(model, 0.02))


def last_output_is_padding(repaired: bool) -> Program:
    x, lengths = padded(100, 6)
    task = split(x, x[torch.arange(len(x)), lengths - 1] - 1, F.cross_entropy, accuracy)

    def rule(m: Any, x: Tensor) -> Tensor:
        seen = m.rnn(m.embed(x))[0]
        last = (x > 0).sum(1) - 1 if repaired else torch.full((len(x),), -1)
        return m.out(seen[torch.arange(len(x)), last])

    model = Net(rule, embed=nn.Embedding(5, 8), rnn=nn.RNN(8, 16, batch_first=True), out=nn.Linear(16, 4))
    return program(task, model, adam(model, 0.005), steps=250)


def mask_inverted(repaired: bool) -> Program:
    x, lengths = padded(12, 8)
    y = (x.sum(1) / lengths)[:, None] - 2.5
    task = split(x, y / y.std(), F.mse_loss, explained)

    def rule(m: Any, x: Tensor) -> Tensor:
        hidden = (x == 0) if repaired else (x != 0)
        h = m.embed(x)
        weights = m.score(h)[:, :, 0].masked_fill(hidden, -1e9).softmax(1)
        return m.out((weights[:, :, None] * h).sum(1))

    model = Net(rule, embed=nn.Embedding(5, 8), score=nn.Linear(8, 1), out=nn.Linear(8, 1))
    return program(task, model, adam(model, 0.02))


def no_positions(repaired: bool) -> Program:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = Net(
        lambda m, x: m.out(m.layer(m.embed(x) + (m.place.weight if repaired else 0)).mean(1)),
        embed=nn.Embedding(4, 16),
        layer=layer,
        out=nn.Linear(16, 4),
        **({"place": nn.Embedding(6, 16)} if repaired else {}),
    )
    return program(recall(6), model, adam(model, 0.01))


def pixels_reshaped_into_channels(repaired: bool) -> Program:
    y = torch.randint(4, (2000,))
    x = 0.3 * torch.randn(2000, 8, 8, 4)
    rows, columns = torch.randint(8, (2, 2000))
    x[torch.arange(2000), rows, columns, y] += 2.5  # the channel of the bright pixel is the class
    task = split(x, y, F.cross_entropy, accuracy)

    def rule(m: Any, x: Tensor) -> Tensor:
        maps = x.permute(0, 3, 1, 2) if repaired else x.reshape(len(x), 4, 8, 8)
        return m.out(m.conv(maps).relu().amax((2, 3)))

    model = Net(rule, conv=nn.Conv2d(4, 16, 1), out=nn.Linear(16, 4))
    return program(task, model, adam(model, 0.01))


def decoder(mask: Tensor, repaired_loss: bool = True) -> Program:
    """A small language model with this mask, which generates the last token."""
    layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)

    def rule(m: Any, x: Tensor) -> Tensor:
        length = x.shape[1]
        return m.out(m.layer(m.embed(x) + m.place(torch.arange(length)), mask[:length, :length]))

    model = Net(rule, embed=nn.Embedding(12, 24), place=nn.Embedding(12, 24), layer=layer, out=nn.Linear(24, 12))
    task = sentences()
    task = replace(task, test_x=task.test_x[:, :8], test_y=task.test_y[:, 7:8])
    return program(task, model, adam(model, 0.005), predict=lambda x: model.eval()(x)[:, -1:])


def mask_taken_for_numbers(repaired: bool) -> Program:
    mask = torch.ones(12, 12).triu(1).bool()
    return decoder(mask if repaired else mask.float())


def mask_of_the_wrong_triangle(repaired: bool) -> Program:
    return decoder(torch.ones(12, 12).triu(1).bool() if repaired else torch.ones(12, 12).tril(-1).bool())
