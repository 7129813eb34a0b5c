"""Plain and unusual programs that train well: nothing may be reported of them.

Each is made anew by `make()`; `step` is one step of its loop, by default the one that everybody writes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Any, Any]


@dataclass
class Program:
    """A script: `batch(n)` is its n-th batch, `step(x, y)` returns the loss of one step of its loop."""

    model: nn.Module
    batch: Callable[[int], Batch]
    loss: Callable[[Any, Any], Tensor]
    optimizer: Any = None
    step: Callable[[Any, Any], Tensor] | None = None
    steps: int = 90

    def __post_init__(self) -> None:
        self.optimizer = self.optimizer or torch.optim.Adam(self.model.parameters(), 1e-2)

    def run(self) -> Iterator[Tensor]:
        for number in range(self.steps):
            x, y = self.batch(number)
            yield (self.step or self.plain)(x, y)

    def plain(self, x: Any, y: Any) -> Tensor:
        self.optimizer.zero_grad()
        value = self.loss(self.model(x), y)
        value.backward()
        self.optimizer.step()
        return value


def classes(number: int, size: int = 64, kinds: int = 4) -> tuple[Tensor, Tensor]:
    """Gaussian clouds."""
    generator = torch.Generator().manual_seed(number)
    y = torch.randint(kinds, (size,), generator=generator)
    return F.one_hot(y, 8) * 2.5 + torch.randn(size, 8, generator=generator), y


def numbers(number: int, size: int = 64) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(number))
    return x, (x[:, :1] + 0.5 * x[:, 1:2].abs() - x[:, 2:3])


def pictures(number: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """Noise with a bright quarter, 8 by 8."""
    generator = torch.Generator().manual_seed(number)
    y = torch.randint(4, (size,), generator=generator)
    x = 0.5 * torch.randn(size, 1, 8, 8, generator=generator)
    for at, label in enumerate(y.tolist()):
        x[at, 0, 4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 1.0
    return x, y


def text(number: int, size: int = 32, length: int = 9) -> tuple[Tensor, Tensor]:
    """Tokens that count on, modulo 7, now and then by two; the targets are the next ones."""
    generator = torch.Generator().manual_seed(number)
    steps = 1 + (torch.rand(size, length, generator=generator) < 0.1).long()
    tokens = (torch.randint(7, (size, 1), generator=generator) + steps.cumsum(1)) % 7 + 1
    return tokens[:, :-1], tokens[:, 1:]


def padded(number: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Rows of tokens that end with zeros; the class is the most frequent half of the alphabet."""
    generator = torch.Generator().manual_seed(number)
    y = torch.randint(2, (size,), generator=generator)
    x = 1 + 3 * y[:, None] + torch.randint(4, (size, 10), generator=generator)
    lengths = torch.randint(3, 11, (size, 1), generator=generator)
    return torch.where(torch.arange(10) < lengths, x, 0), y


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU, end: nn.Module | None = None) -> Any:
    widths = widths or (8, 32, 4)
    parts: list[nn.Module] = []
    for width, after in pairwise(widths):
        parts += [nn.Linear(width, after), act()]
    return nn.Sequential(*parts[:-1], *([] if end is None else [end]))


class Net(nn.Module):
    """Named parts and a rule `forward(net, x)`."""

    def __init__(self, rule: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.rule = rule

    def forward(self, *x: Any) -> Any:
        return self.rule(self, *x)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


def tokens_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


PROGRAMS: dict[str, Callable[[], Program]] = {}


def healthy(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__.replace("_", " ")] = make
    return make


@healthy
def frozen_backbone() -> Program:
    model = mlp(8, 48, 48, 4)
    for _ in Program(model, classes, F.cross_entropy).run():
        pass
    model[4] = nn.Linear(48, 4)
    model[:4].requires_grad_(False)
    return Program(model, classes, F.cross_entropy, torch.optim.Adam(model[4].parameters(), 1e-2))


@healthy
def random_features() -> Program:
    """Reservoirs and random Fourier features are frozen as they were drawn, and buffers."""
    model = Net(lambda m, x: m.head((x @ m.w + m.b).cos()), head=nn.Linear(128, 4))
    model.register_buffer("w", 0.5 * torch.randn(8, 128))
    model.register_buffer("b", 6 * torch.rand(128))
    return Program(model, classes, F.cross_entropy)


@healthy
def label_smoothing() -> Program:
    return Program(mlp(), classes, nn.CrossEntropyLoss(label_smoothing=0.1))


@healthy
def soft_targets() -> Program:
    def mixed(number: int) -> Batch:
        x, y = classes(number)
        share = torch.rand(64, 1, generator=torch.Generator().manual_seed(number)) / 2
        hot = F.one_hot(y, 4).float()
        return x * (1 - share) + x.roll(1, 0) * share, hot * (1 - share) + hot.roll(1, 0) * share

    return Program(mlp(), mixed, F.cross_entropy)


@healthy
def focal_loss() -> Program:
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(outputs, y, reduction="none")
        return ((1 - (-each).exp()) ** 2 * each).mean()

    return Program(mlp(), classes, loss)


@healthy
def focal_loss_of_a_sigmoid() -> Program:
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        aims = (y > 1).float()[:, None]
        p = outputs.sigmoid()
        each = F.binary_cross_entropy_with_logits(outputs, aims, reduction="none")
        return ((aims - p).abs() ** 2 * each).mean()

    return Program(mlp(8, 32, 1), classes, loss)


@healthy
def dice_loss() -> Program:
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        p, aims = outputs.sigmoid(), y
        return 1 - (2 * (p * aims).sum() + 1) / (p.sum() + aims.sum() + 1)

    def masks(number: int) -> Batch:
        x, _ = pictures(number)
        return x, (F.avg_pool2d(x, 3, 1, 1) > 0.4).float()

    model = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 1, 3, 1, 1))
    return Program(model, masks, loss)


@healthy
def segmentation() -> Program:
    def masks(number: int) -> Batch:
        x, _ = pictures(number)
        return x, (F.avg_pool2d(x, 3, 1, 1) > 0.3).long()[:, 0]

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(),
        nn.Upsample(scale_factor=2), nn.Conv2d(8, 2, 1),
    )  # fmt: skip
    return Program(model, masks, F.cross_entropy)


@healthy
def gan() -> Program:
    model = Net(lambda m, x: m.critic(x), critic=mlp(2, 32, 1, act=lambda: nn.LeakyReLU(0.2)), maker=mlp(4, 32, 2))
    of_critic, of_maker = (
        torch.optim.Adam(part.parameters(), 1e-3, betas=(0.5, 0.999)) for part in (model.critic, model.maker)
    )
    both = F.binary_cross_entropy_with_logits

    def step(x: Tensor, y: Tensor) -> Tensor:
        fake = model.maker(torch.randn(len(x), 4))
        of_critic.zero_grad()
        value = both(model(x), torch.ones(len(x), 1)) + both(model(fake.detach()), torch.zeros(len(x), 1))
        value.backward()
        of_critic.step()
        of_maker.zero_grad()
        both(model(fake), torch.ones(len(x), 1)).backward()
        of_maker.step()
        return value

    def real(number: int) -> Batch:
        x = torch.randn(64, 2, generator=torch.Generator().manual_seed(number)) + 2.0
        x[32:] = x[32:] - 2.0  # of a batch with as many fakes
        return x, (torch.arange(64) < 32).float()[:, None]

    return Program(model, real, both, [of_critic, of_maker], step)


@healthy
def contrastive_pairs() -> Program:
    def views(number: int) -> Batch:
        x, _ = classes(number)
        noise = torch.randn(2, 64, 8, generator=torch.Generator().manual_seed(number)) / 5
        return torch.cat([x + noise[0], x + noise[1]]), torch.arange(128).roll(64)

    def loss(outputs: Tensor, pairs: Tensor) -> Tensor:
        z = F.normalize(outputs, dim=1)
        return F.cross_entropy((z @ z.T / 0.2).fill_diagonal_(-1e9), pairs)

    return Program(mlp(8, 32, 16), views, loss)


@healthy
def cosine_classifier() -> Program:
    model = Net(
        lambda m, x: 16 * F.normalize(m.body(x), dim=1) @ F.normalize(m.head.weight, dim=1).T,
        body=mlp(8, 32, 16), head=nn.Linear(16, 4, bias=False),
    )  # fmt: skip
    return Program(model, classes, F.cross_entropy)


@healthy
def triplets() -> Program:
    def triple(number: int) -> Batch:
        x, y = classes(number, 96)
        order = y.argsort()
        return x[order][:90], y[order][:90]

    def loss(z: Tensor, y: Tensor) -> Tensor:
        far = torch.cdist(z, z)
        same = y[:, None] == y
        hardest = (far * same).amax(1) - (far + 1e3 * same).amin(1)
        return (hardest + 1).relu().mean()

    return Program(mlp(8, 32, 16), triple, loss)


@healthy
def cosine_embedding_of_pairs() -> Program:
    def pairs(number: int) -> Batch:
        x, y = classes(number)
        return (x, x.roll(1, 0)), 2 * (y == y.roll(1, 0)).float() - 1

    siamese = Net(lambda m, *pair: tuple(map(m.body, pair)), body=mlp(8, 32, 16))

    def loss(outputs: Any, y: Tensor) -> Tensor:
        return F.cosine_embedding_loss(outputs[0], outputs[1], y)

    program = Program(siamese, pairs, loss)

    def step(x: Any, y: Tensor) -> Tensor:
        program.optimizer.zero_grad()
        value = loss(siamese(*x), y)
        value.backward()
        program.optimizer.step()
        return value

    program.step = step
    return program


@healthy
def tied_language_model() -> Program:
    model = Net(
        lambda m, x: m.out(m.rnn(m.embed(x))[0]),
        embed=nn.Embedding(8, 24), rnn=nn.GRU(24, 24, batch_first=True), out=nn.Linear(24, 8, bias=False),
    )  # fmt: skip
    nn.init.normal_(model.embed.weight, std=0.2)
    model.out.weight = model.embed.weight
    return Program(model, text, tokens_loss)


@healthy
def causal_transformer() -> Program:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.embed(x) + m.place(torch.arange(x.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return m.out(m.norm(m.body(h, mask, is_causal=True)))

    model = Net(
        rule, embed=nn.Embedding(8, 16), place=nn.Embedding(8, 16),
        body=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), norm=nn.LayerNorm(16), out=nn.Linear(16, 8),
    )  # fmt: skip
    return Program(model, text, tokens_loss)


@healthy
def masked_language_model() -> Program:
    def masked(number: int) -> Batch:
        tokens, _ = text(number)
        hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(number)) < 0.25
        return tokens.masked_fill(hidden, 0), tokens.masked_fill(~hidden, -100)

    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = Net(
        lambda m, x: m.out(m.body(m.embed(x) + m.place.weight)),
        embed=nn.Embedding(8, 16), place=nn.Embedding(8, 16), body=nn.TransformerEncoder(layer, 1),
        out=nn.Linear(16, 8),
    )  # fmt: skip
    return Program(model, masked, tokens_loss)


@healthy
def sequence_to_sequence() -> Program:
    def reversed_text(number: int) -> Batch:
        tokens, _ = text(number)
        aims = tokens.flip(1)
        return {"source": tokens, "before": F.pad(aims, (1, 0))[:, :-1]}, aims

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(8, 24), nn.Linear(24, 8)
            self.encoder, self.decoder = (nn.LSTM(24, 24, batch_first=True) for _ in range(2))

        def forward(self, source: Tensor, before: Tensor) -> Tensor:
            return self.out(self.decoder(self.embed(before), self.encoder(self.embed(source))[1])[0])

    program = Program(Translator(), reversed_text, tokens_loss)

    def step(x: Any, y: Tensor) -> Tensor:
        program.optimizer.zero_grad()
        value = tokens_loss(program.model(**x), y)
        value.backward()
        nn.utils.clip_grad_norm_(program.model.parameters(), 1.0)
        program.optimizer.step()
        return value

    program.step = step
    return program


@healthy
def padded_embeddings() -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        known = (x > 0).float()[..., None]
        return m.head((m.embed(x) * known).sum(1) / known.sum(1))

    return Program(Net(rule, embed=nn.Embedding(8, 16, padding_idx=0), head=mlp(16, 16, 2)), padded, F.cross_entropy)


@healthy
def packed_sequences() -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        lengths = (x > 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(m.embed(x), lengths, batch_first=True, enforce_sorted=False)
        return m.head(m.rnn(packed)[1][0][-1])

    model = Net(rule, embed=nn.Embedding(8, 16), rnn=nn.LSTM(16, 16, batch_first=True), head=nn.Linear(16, 2))
    return Program(model, padded, F.cross_entropy)


@healthy
def lstm_of_many_steps() -> Program:
    """The class shows in every step of forty."""

    def waves(number: int) -> Batch:
        x, y = classes(number)
        time = torch.arange(40.0)
        return torch.sin((y[:, None] + 1) * time / 4)[:, :, None] + 0.1 * x[:, :1, None], y

    model = Net(lambda m, x: m.head(m.rnn(x)[0][:, -1]), rnn=nn.LSTM(1, 32, batch_first=True), head=nn.Linear(32, 4))
    return Program(model, waves, F.cross_entropy, torch.optim.Adam(model.parameters(), 5e-3), steps=120)


@healthy
def accumulation() -> Program:
    model = mlp()
    program = Program(model, classes, F.cross_entropy, torch.optim.SGD(model.parameters(), 0.2))
    count = iter(range(10_000))

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = F.cross_entropy(model(x), y)
        (value / 4).backward()
        if next(count) % 4 == 3:
            program.optimizer.step()
            program.optimizer.zero_grad()
        return value

    program.step, program.steps = step, 240
    return program


@healthy
def bfloat16_autocast() -> Program:
    model = mlp(8, 32, 32, 4)

    def step(x: Tensor, y: Tensor) -> Tensor:
        program.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            value = F.cross_entropy(model(x), y)
        value.backward()
        program.optimizer.step()
        return value

    program = Program(model, classes, F.cross_entropy, step=step)
    return program


@healthy
def half_precision_with_a_scaler() -> Program:
    model = mlp(8, 32, 32, 4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def step(x: Tensor, y: Tensor) -> Tensor:
        program.optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            outputs = model(x)
        value = F.cross_entropy(outputs.float(), y)
        scaler.scale(value).backward()
        scaler.unscale_(program.optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(program.optimizer)
        scaler.update()
        return value

    program = Program(model, classes, F.cross_entropy, step=step)
    return program


@healthy
def two_optimizers() -> Program:
    model = Net(lambda m, x: m.head(m.embed(x).mean(1)), embed=nn.Embedding(8, 16), head=mlp(16, 16, 2))
    both = [torch.optim.SGD(model.embed.parameters(), 1.0), torch.optim.Adam(model.head.parameters(), 1e-2)]

    def step(x: Tensor, y: Tensor) -> Tensor:
        for optimizer in both:
            optimizer.zero_grad()
        value = F.cross_entropy(model(x), y)
        value.backward()
        for optimizer in both:
            optimizer.step()
        return value

    return Program(model, padded, F.cross_entropy, both, step)


@healthy
def teacher_by_moving_average() -> Program:
    """Self-distillation: the teacher begins as a copy of the student, and no gradient reaches it."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.predictor = mlp(8, 64, 32), mlp(32, 32, 32)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                aim = self.teacher(x + 0.1)
            return self.predictor(self.student(x)), aim

    def loss(outputs: Any, _: Tensor) -> Tensor:
        return 2 - 2 * F.cosine_similarity(*outputs).mean()

    model = Both()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 3e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(model.teacher.parameters(), model.student.parameters()):
                old.lerp_(new, 0.02)
        return value

    return Program(model, classes, loss, optimizer, step)


@healthy
def averaged_copy() -> Program:
    model = mlp()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    program = Program(model, classes, F.cross_entropy)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = program.plain(x, y)
        averaged.update_parameters(model)
        return value

    program.step = step
    return program


class Sign(torch.autograd.Function):
    """The sign, with the gradient of a clipped identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x > 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * (ctx.saved_tensors[0].abs() < 1)


@healthy
def straight_through() -> Program:
    model = Net(lambda m, x: m.head(Sign.apply(m.stem(x))), stem=nn.Linear(8, 32), head=nn.Linear(32, 4))
    return Program(model, classes, F.cross_entropy)


@healthy
def small_batches_with_batch_normalization() -> Program:
    model = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))
    return Program(model, lambda n: classes(n, 8), F.cross_entropy, steps=240)


@healthy
def warm_up_from_zero() -> Program:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, n / 30))
    program = Program(model, classes, F.cross_entropy, optimizer)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = program.plain(x, y)
        schedule.step()
        return value

    program.step = step
    return program


@healthy
def cosine_schedule_to_zero() -> Program:
    """Of targets that are noise for the most part."""

    def noisy(number: int) -> Batch:
        x, y = numbers(number)
        return x, y / y.std() + 2 * torch.randn(64, 1, generator=torch.Generator().manual_seed(number + 10_000))

    model = mlp(8, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    program = Program(model, noisy, F.mse_loss, optimizer, steps=300)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = program.plain(x, y)
        schedule.step()
        return value

    program.step = step
    return program


@healthy
def head_of_zeros() -> Program:
    model = mlp(8, 32, 32, 4)
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    return Program(model, classes, F.cross_entropy)


class Branch(nn.Module):
    """A residual branch whose end starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.gelu(self.first(x)))


@healthy
def branches_of_zeros() -> Program:
    return Program(nn.Sequential(nn.Linear(8, 24), *(Branch(24) for _ in range(6)), nn.Linear(24, 4)), classes,
                   F.cross_entropy)  # fmt: skip


@healthy
def gated_branches() -> Program:
    """ReZero: each branch is multiplied by a number that starts at 0."""

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.stem(x)
        for at, block in enumerate(m.blocks):
            h = h + m.gates[at] * block(h).relu()
        return m.head(h)

    model = Net(
        rule, stem=nn.Linear(8, 24), blocks=nn.ModuleList(nn.Linear(24, 24) for _ in range(8)), head=nn.Linear(24, 4),
        gates=nn.Parameter(torch.zeros(8)),
    )  # fmt: skip
    return Program(model, classes, F.cross_entropy)


@healthy
def targets_unscaled_but_learnable() -> Program:
    model = mlp(8, 64, 64, 1)
    return Program(model, lambda n: (numbers(n)[0], 20 * numbers(n)[1] + 50), F.mse_loss,
                   torch.optim.Adam(model.parameters(), 1e-2), steps=200)  # fmt: skip


@healthy
def sum_with_a_small_rate() -> Program:
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), 2e-4)
    return Program(model, numbers, nn.MSELoss(reduction="sum"), optimizer, steps=150)


@healthy
def half_dropped() -> Program:
    model = nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4)
    )
    return Program(model, classes, F.cross_entropy)


@healthy
def sigmoid_with_binary_cross_entropy() -> Program:
    return Program(mlp(8, 32, 1, end=nn.Sigmoid()), lambda n: (classes(n)[0], (classes(n)[1] > 1).float()[:, None]),
                   nn.BCELoss())  # fmt: skip


@healthy
def several_labels() -> Program:
    def labels(number: int) -> Batch:
        x, y = classes(number)
        return x, torch.stack([y > 1, y % 2 == 0, y == 3], 1).float()

    return Program(mlp(8, 32, 3), labels, nn.BCEWithLogitsLoss())


@healthy
def poisson_rates() -> Program:
    def counts(number: int) -> Batch:
        x, y = classes(number)
        return x, torch.poisson(1.0 + y[:, None], generator=torch.Generator().manual_seed(number))

    return Program(mlp(8, 32, 1, end=nn.Softplus()), counts, lambda o, y: F.poisson_nll_loss(o, y, log_input=False))


@healthy
def mean_and_variance() -> Program:
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        mean, spread = outputs.chunk(2, 1)
        return F.gaussian_nll_loss(mean, y, F.softplus(spread) + 1e-4)

    return Program(mlp(8, 32, 2), numbers, loss)


@healthy
def density() -> Program:
    """A loss that goes below zero."""

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        mean, spread = outputs.chunk(2, 1)
        return (spread + 0.5 * ((y / 20 - mean) / spread.exp()) ** 2).mean()

    return Program(mlp(8, 32, 2), numbers, loss)


@healthy
def log_probabilities() -> Program:
    return Program(mlp(8, 32, 4, end=nn.LogSoftmax(-1)), classes, nn.NLLLoss())


@healthy
def distillation() -> Program:
    teacher = mlp(8, 32, 4)
    for _ in Program(teacher, classes, F.cross_entropy).run():
        pass
    teacher.requires_grad_(False)

    def taught(number: int) -> Batch:
        x, _ = classes(number)
        return x, (teacher(x) / 2).softmax(-1)

    return Program(mlp(), taught, lambda o, y: 4 * F.kl_div((o / 2).log_softmax(-1), y, reduction="batchmean"))


@healthy
def images_by_a_sigmoid() -> Program:
    def bright(number: int) -> Batch:
        x, _ = pictures(number)
        flat = (x.flatten(1) + 0.5).clamp(0, 1)
        return flat, flat

    return Program(mlp(64, 32, 8, 32, 64, end=nn.Sigmoid()), bright, F.mse_loss, steps=150)


@healthy
def variational_autoencoder() -> Program:
    def rule(m: Any, x: Tensor) -> Any:
        mean, spread = m.encoder(x).chunk(2, 1)
        return m.decoder(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread

    def loss(outputs: Any, x: Tensor) -> Tensor:
        seen, mean, spread = outputs
        return F.mse_loss(seen, x) + 0.01 * (mean.square() + spread.exp() - spread - 1).mean()

    model = Net(rule, encoder=mlp(8, 32, 8), decoder=mlp(4, 32, 8))
    return Program(model, lambda n: (classes(n)[0],) * 2, loss)


@healthy
def masked_loss() -> Program:
    def gaps(number: int) -> Batch:
        x, y = numbers(number)
        known = torch.rand(64, 1, generator=torch.Generator().manual_seed(number)) < 0.6
        return x, torch.cat([y * known, known.float()], 1)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        aims, known = y[:, :1], y[:, 1:]
        return ((outputs - aims).square() * known).sum() / known.sum()

    return Program(mlp(8, 32, 1), gaps, loss)


@healthy
def policy_gradient() -> Program:
    """A bandit: the targets are actions with their advantages."""
    model = mlp(8, 32, 4, act=nn.Tanh, end=nn.Softmax(-1))

    def played(number: int) -> Batch:
        x, y = classes(number)
        with torch.no_grad():
            actions = torch.multinomial(model(x), 1)[:, 0]
        gains = (actions == y).float()
        return x, (actions, gains - gains.mean())

    def loss(p: Tensor, y: Any) -> Tensor:
        return -(torch.distributions.Categorical(p).log_prob(y[0]) * y[1]).mean()

    return Program(model, played, loss)


@healthy
def q_learning() -> Program:
    """Values of actions, against a target network of the same module that is copied now and then."""
    model = mlp(8, 32, 4)
    target = copy.deepcopy(model).requires_grad_(False)

    def loss(values: Tensor, y: Any) -> Tensor:
        actions, aims = y
        return F.smooth_l1_loss(values.gather(1, actions[:, None])[:, 0], aims)

    def replayed(number: int) -> Batch:
        x, y = classes(number)
        if number % 20 == 0:
            target.load_state_dict(model.state_dict())
        actions = torch.randint(4, (64,), generator=torch.Generator().manual_seed(number))
        with torch.no_grad():
            aims = (actions == y).float() + 0.5 * target(x.roll(1, 0)).amax(1)
        return x, (actions, aims)

    return Program(model, replayed, loss, steps=150)


@healthy
def convolutions() -> Program:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, 1, 1),
        nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    return Program(model, pictures, F.cross_entropy, optimizer)


@healthy
def low_rank_adapters() -> Program:
    """A frozen trained layer, with a product of two narrow matrices beside it, one of zeros."""
    base = mlp(8, 48, 4)
    for _ in Program(base, classes, F.cross_entropy).run():
        pass
    base.requires_grad_(False)
    model = Net(
        lambda m, x: m.base[2]((m.base[0](x) + m.up(m.down(x))).relu()),
        base=base, down=nn.Linear(8, 2, bias=False), up=nn.Linear(2, 48, bias=False),
    )  # fmt: skip
    nn.init.zeros_(model.up.weight)
    moved = lambda n: (classes(n)[0], (classes(n)[1] + 1) % 4)  # noqa: E731
    new = [*model.down.parameters(), *model.up.parameters()]
    return Program(model, moved, F.cross_entropy, torch.optim.Adam(new, 2e-2), steps=150)


@healthy
def connectionist_temporal_classification() -> Program:
    def spoken(number: int) -> Batch:
        tokens, _ = text(number, length=5)
        x = F.one_hot(tokens.repeat_interleave(3, 1), 8).float()
        return x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(number)), tokens

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        scores = outputs.log_softmax(-1).transpose(0, 1)
        count = len(y)
        return F.ctc_loss(scores, y, torch.full((count,), len(scores)), torch.full((count,), y.shape[1]))

    model = Net(
        lambda m, x: m.out(m.rnn(x)[0]), rnn=nn.GRU(8, 24, batch_first=True, bidirectional=True), out=nn.Linear(48, 8)
    )
    return Program(model, spoken, loss, steps=120)


@healthy
def weight_normalization() -> Program:
    norm = torch.nn.utils.parametrizations.weight_norm
    model = nn.Sequential(norm(nn.Linear(8, 32)), nn.ReLU(), norm(nn.Linear(32, 4)))
    return Program(model, classes, F.cross_entropy)


@healthy
def a_closure() -> Program:
    model = mlp(8, 16, 1, act=nn.Tanh)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4)

    def step(x: Tensor, y: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            value = F.mse_loss(model(x), y)
            value.backward()
            return value

        return optimizer.step(closure)

    return Program(model, lambda n: numbers(0, 256), F.mse_loss, optimizer, step, steps=40)


@healthy
def whole_data_in_every_step() -> Program:
    model = mlp(8, 16, 1, act=nn.Tanh)
    return Program(model, lambda n: numbers(0, 256), F.mse_loss, torch.optim.SGD(model.parameters(), 0.1), steps=150)


@healthy
def fine_tuning_at_a_small_rate() -> Program:
    model = mlp(8, 48, 48, 4)
    for _ in Program(model, classes, F.cross_entropy).run():
        pass
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5)
    return Program(model, lambda n: (classes(n)[0] * 1.1 + 0.1, classes(n)[1]), F.cross_entropy, optimizer)


@healthy
def attention_over_places() -> Program:
    """Pooling by learned weights, a softmax over the steps."""

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.stem(x).tanh()
        return m.head((m.score(h).softmax(1) * h).sum(1))

    def bags(number: int) -> Batch:
        x, y = classes(number)
        noise = torch.randn(64, 6, 8, generator=torch.Generator().manual_seed(number))
        noise[torch.arange(64), torch.arange(64) % 6] += 2 * x
        return noise, y

    return Program(Net(rule, stem=nn.Linear(8, 16), score=nn.Linear(16, 1), head=nn.Linear(16, 4)), bags,
                   F.cross_entropy, steps=150)  # fmt: skip


@healthy
def graph_of_all_nodes() -> Program:
    """A graph convolution: each output depends on other rows, by the adjacency in the model."""
    x, y = classes(0)
    near = (y[:, None] == y).float() * (torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < 0.2)
    near = near + torch.eye(64)
    model = Net(
        lambda m, h: m.second(m.near @ m.first(m.near @ h).relu()), first=nn.Linear(8, 16), second=nn.Linear(16, 4)
    )
    model.register_buffer("near", near / near.sum(1, keepdim=True))
    return Program(model, lambda n: (x, y), F.cross_entropy)


@healthy
def large_inputs_that_the_model_normalizes() -> Program:
    model = nn.Sequential(nn.BatchNorm1d(8), *mlp())
    return Program(model, lambda n: (1000 * classes(n)[0] + 500, classes(n)[1]), F.cross_entropy)


@healthy
def learned_to_the_end() -> Program:
    """A hinge that is met by all examples leaves no gradient at all."""

    def clear(number: int) -> Batch:
        y = torch.arange(64) % 2
        return (2.0 * y[:, None] - 1) * torch.ones(64, 8) + classes(number)[0] / 50, 2.0 * y[:, None] - 1

    return Program(mlp(8, 16, 1), clear, lambda o, y: (1 - o * y).relu().mean())


@healthy
def rows_of_few_classes() -> Program:
    """Four of five examples belong to one class."""

    def rare(number: int) -> Batch:
        generator = torch.Generator().manual_seed(number)
        y = (torch.rand(64, generator=generator) < 0.2).long()
        return torch.randn(64, 8, generator=generator) + y[:, None], y

    return Program(mlp(8, 32, 2), rare, F.cross_entropy)


@healthy
def hinge_loss() -> Program:
    return Program(mlp(8, 32, 1), lambda n: (classes(n)[0], 2.0 * (classes(n)[1] > 1)[:, None] - 1),
                   lambda o, y: (1 - o * y).relu().mean())  # fmt: skip


@healthy
def evaluation_between_steps() -> Program:
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    program = Program(model, classes, F.cross_entropy)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = program.plain(x, y)
        model.eval()
        with torch.no_grad():
            model(x[:16])
        model.train()
        return value

    program.step = step
    return program


@healthy
def rollouts_without_gradients() -> Program:
    """The model's own samples, drawn in training mode in every step, are part of the step."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    program = Program(model, classes, F.cross_entropy)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            model(x + 0.1)
        return program.plain(x, y)

    program.step = step
    return program
