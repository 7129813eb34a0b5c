"""Programs that train well: losses, tasks, texts and loops of many kinds."""

from __future__ import annotations

import copy
from typing import Any

import torch
from healthy import Batch, Net, Program, classes, healthy, mlp, padded, pictures, text, tokens_loss
from torch import Tensor, nn
from torch.nn import functional as F


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

    return Program(siamese, pairs, loss)


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
