"""Mixing across samples or time: axes taken for each other, and masks that are missing or the wrong way round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program, fault
from .causes import Cause
from .tasks import Net, accuracy, adam, digits, explained, mlp, program, recall, sentences, split, waves


def reader(features: int, classes: int, batch_first: bool = True) -> dict[str, nn.Module]:
    """A recurrent layer and a classifier."""
    return {"rnn": nn.GRU(features, 24, batch_first=batch_first), "out": nn.Linear(24, classes)}


@fault(
    "https://github.com/jessicayung/blog-code-snippets/issues/6",
    Cause.VIEW_FOR_TRANSPOSE,
    "transposed, not viewed",
)
def view_for_transpose(repaired: bool) -> Program:
    """Sequences are brought into the order of the recurrent layer with view, which cuts them into pieces."""
    model = Net(
        lambda m, x: m.out(m.rnn(x.transpose(0, 1) if repaired else x.reshape(x.shape[1], x.shape[0], -1))[0][-1]),
        **reader(1, 3, batch_first=False),
    )
    return program(waves(), model, adam(model, 0.01))


@fault(
    "https://github.com/timbmg/Sentence-VAE/issues/15",
    Cause.RESHAPE_MIXES_SAMPLES,
    "the layers' states are put side by side for each sample",
)
def states_viewed_across_samples(repaired: bool) -> Program:
    """The hidden state (layers, batch, width) is viewed as (batch, layers × width): samples are mixed up."""

    def rule(m: Any, x: Tensor) -> Tensor:
        state = m.rnn(m.embed(x))[1]
        return m.out((state.transpose(0, 1) if repaired else state).reshape(len(x), -1))

    parts = {"embed": nn.Embedding(4, 8), "rnn": nn.GRU(8, 16, 2, batch_first=True), "out": nn.Linear(32, 4)}
    model = Net(rule, **parts)
    return program(recall(5), model, adam(model, 0.01))


@fault(
    "https://github.com/vitrioil/Speech-Separation/issues/4",
    Cause.RESHAPE_MIXES_TIME,
    "time comes before channels, then both others are joined",
)
def channels_viewed_into_time(repaired: bool) -> Program:
    """Maps (channels, time, frequency) are viewed as features of each time without permuting them first."""
    x = torch.randn(2000, 6, 10, 4)
    y = (x[:, 0, :, 0] + x[:, 3, :, 2] > 0).long()  # one answer for each of ten times
    task = split(x, y, lambda o, y: F.cross_entropy(o.flatten(0, 1), y.flatten()), accuracy)
    model = Net(
        lambda m, x: m.each(x.transpose(1, 2).flatten(2) if repaired else x.reshape(len(x), 10, -1)),
        each=mlp(24, 32, 2),
    )
    return program(task, model)


@fault(
    "https://github.com/perone/euclidesdb/issues/2",
    Cause.SOFTMAX_OVER_BATCH,
    "softmax over the classes",
)
def softmax_over_the_batch(repaired: bool) -> Program:
    """The models of the examples end in softmax over axis 0: pictures of a batch compete, and one alone gets ones."""
    model = mlp(64, 32, 10).append(nn.Softmax(dim=1 if repaired else 0))
    return program(
        digits(),
        model,
        loss=lambda p, y: F.nll_loss((p + 1e-8).log(), y),
        predict=lambda x: torch.cat([model.eval()(picture) for picture in x.split(1)]),
    )


@fault(
    "https://github.com/PetrochukM/PyTorch-NLP/issues/2",
    Cause.SOFTMAX_OVER_BATCH,
    "softmax over the context",
)
def attention_over_the_batch(repaired: bool) -> Program:
    """Attention weights of a single sample are always 1: softmax runs over batch and outputs, not over the context."""
    x = torch.randn(2000, 8, 6)
    x[:, :, 0] = 6 * F.one_hot(torch.randint(8, (2000,)), 8)
    task = split(x, x[torch.arange(2000), x[:, :, 0].argmax(1), 1:2], F.mse_loss, explained)
    axis = 1 if repaired else 0
    model = Net(
        lambda m, x: (m.score(x).softmax(axis) * m.value(x)).sum(1), score=nn.Linear(6, 1), value=nn.Linear(6, 1)
    )
    return program(task, model, adam(model, 0.02))


@fault(
    "https://github.com/Ligouhai-bigone/Sentiment-Analysis-Chinese-pytorch/issues/1",
    Cause.BATCH_TAKEN_FOR_TIME,
    "batch_first=True",
)
def recurrent_layer_without_batch_first(repaired: bool) -> Program:
    """The recurrent layer gets (batch, time, features) without batch_first: sequences are read across samples."""
    model = Net(lambda m, x: m.out(m.rnn(x)[0][:, -1]), **reader(1, 3, batch_first=repaired))
    return program(waves(), model, adam(model, 0.01))


@fault(
    "https://github.com/Exorust/TorchLeet/issues/5",
    Cause.BATCH_TAKEN_FOR_TIME,
    "batch_first=True",
)
def encoder_without_batch_first(repaired: bool) -> Program:
    """Training loss and test error of a transformer's encoder stay high with the default order of axes."""
    x, where = torch.randint(4, (2000, 6)), torch.randint(1, 6, (2000,))
    marks = F.one_hot(where, 6)  # the first position is to report the marked symbol
    task = split(torch.stack([x, marks], -1), x[torch.arange(2000), where], F.cross_entropy, accuracy)
    model = Net(
        lambda m, x: m.out(m.layer(m.symbol(x[..., 0]) + m.mark(x[..., 1]) + m.place.weight)[:, 0]),
        symbol=nn.Embedding(4, 16), mark=nn.Embedding(2, 16), place=nn.Embedding(6, 16),
        layer=nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=repaired),
        out=nn.Linear(16, 4),
    )
    return program(task, model, adam(model, 0.01))


@fault(
    "https://github.com/alex-matton/causal-transformer-decoder/issues/1",
    Cause.NO_CAUSAL_MASK,
    "a mask that hides later positions",
)
def no_causal_mask(repaired: bool) -> Program:
    """Without a mask the decoder copies the tokens that it is to predict, and is terrible when it generates."""
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


@fault(
    "https://github.com/tensorflow/tensorflow/issues/40067",
    Cause.STATE_CARRIED_OVER,
    "each sequence starts from zeros",
)
def state_kept_between_shuffled_batches(repaired: bool) -> Program:
    """The recurrent layer keeps its state between batches although these are shuffled."""
    x = torch.randn(2000, 6, 1)
    task = split(x, x.sum(1), F.mse_loss, explained)
    model = Stateful(kept=not repaired)
    return program(task, model, adam(model, 0.01), predict=lambda x: torch.cat([model(part) for part in x.split(50)]))


class Stateful(nn.Module):
    """A recurrent regression that may go on from where the last batch ended."""

    def __init__(self, kept: bool):
        super().__init__()
        self.kept = kept
        self.state: Tensor | None = None
        self.rnn, self.out = nn.RNN(1, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)

    def forward(self, x: Tensor) -> Tensor:
        fits = self.kept and self.state is not None and self.state.shape[1] == len(x)
        seen, last = self.rnn(x, self.state if fits else None)
        self.state = last.detach()
        return self.out(seen[:, -1])


def padded(length: int, longest: int, rows: int = 2000) -> tuple[Tensor, Tensor]:
    """Two symbols of 1 to 4, or as many as the longest row has, then zeros; and the number of symbols."""
    lengths = torch.where(torch.rand(rows) < 0.5, 2, longest)
    return torch.randint(1, 5, (rows, length)) * (torch.arange(length) < lengths[:, None]), lengths


@fault(
    "https://github.com/yg211/bert_nli/pull/3",
    Cause.PADDING_NOT_MASKED,
    "padded positions have mask 0",
)
def padding_in_the_mean(repaired: bool) -> Program:
    """All entries of the mask are 1, so padded tokens count; with zeros there accuracy is better."""
    x, lengths = padded(30, 30)
    y = (x.sum(1) / lengths)[:, None] - 2.5
    task = split(x, y / y.std(), F.mse_loss, explained)

    def rule(m: Any, x: Tensor) -> Tensor:
        seen = (x > 0 if repaired else torch.ones_like(x)).float()
        vectors = m.embed(x) * seen[:, :, None]
        return m.out(vectors.sum(1) / seen.sum(1, keepdim=True))

    model = Net(rule, embed=nn.Embedding(5, 8), out=nn.Linear(8, 1))
    return program(task, model, adam(model, 0.02))


@fault(
    "https://github.com/thtrieu/qclass_dl/issues/1",
    Cause.PADDING_NOT_MASKED,
    "the output at each row's last word",
)
def last_output_is_padding(repaired: bool) -> Program:
    """Taking the last output gives terrible results: for most rows it belongs to padding."""
    x, lengths = padded(40, 6)
    task = split(x, x[torch.arange(len(x)), lengths - 1] - 1, F.cross_entropy, accuracy)

    def rule(m: Any, x: Tensor) -> Tensor:
        seen = m.rnn(m.embed(x))[0]
        last = (x > 0).sum(1) - 1 if repaired else torch.full((len(x),), -1)
        return m.out(seen[torch.arange(len(x)), last])

    model = Net(rule, embed=nn.Embedding(5, 8), rnn=nn.RNN(8, 16, batch_first=True), out=nn.Linear(16, 4))
    return program(task, model, adam(model, 0.005), steps=250)


@fault(
    "https://github.com/lucidrains/halonet-pytorch/pull/6",
    Cause.MASK_INVERTED,
    "the mask is inverted",
)
def mask_inverted(repaired: bool) -> Program:
    """The mask is true where there is content, and true is filled with minus infinity: attention goes to padding."""
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


@fault(
    "https://github.com/DaoyuanLi2816/Molecule-Generator/pull/23",
    Cause.NO_POSITIONS,
    "an encoding of positions is added to the embedding",
)
def no_positions(repaired: bool) -> Program:
    """Self-attention without positions cannot tell one order of the same atoms from another."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = Net(
        lambda m, x: m.out(m.layer(m.embed(x) + (m.place.weight if repaired else 0)).mean(1)),
        embed=nn.Embedding(4, 16), layer=layer, out=nn.Linear(16, 4),
        **({"place": nn.Embedding(6, 16)} if repaired else {}),
    )
    return program(recall(6), model, adam(model, 0.01))
