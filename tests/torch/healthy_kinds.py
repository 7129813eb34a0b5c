"""Programs that train well: other losses, other ends of sequences, other loops, each near a fault and without it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from healthy import Batch, Net, Program, classes, healthy, mlp, numbers, padded, pictures, text, tokens_loss
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def scheduled(program: Program, schedule: Any) -> Program:
    def step(x: Tensor, y: Tensor) -> Tensor:
        value = program.plain(x, y)
        schedule.step()
        return value

    program.step = step
    return program


@healthy
def root_mean_square() -> Program:
    """A root and a division by a deviation, neither of which meets 0."""
    model = Net(lambda m, x: m.body((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)), body=mlp(8, 32, 1))
    return Program(model, numbers, lambda o, y: F.mse_loss(o, y).sqrt())


@healthy
def quantiles() -> Program:
    def loss(o: Tensor, y: Tensor) -> Tensor:
        return torch.stack([torch.maximum(q * (y - o), (q - 1) * (y - o)) for q in (0.1, 0.5, 0.9)]).mean()

    return Program(mlp(8, 32, 1), numbers, loss)


@healthy
def logarithms_of_targets() -> Program:
    def positive(number: int) -> Batch:
        x, y = numbers(number)
        return x, (2 * y).exp()

    return Program(mlp(8, 32, 1), positive, lambda o, y: F.mse_loss(o, y.log()))


@healthy
def distances_of_pairs() -> Program:
    """One for alike: these are to be near, and their distance is a root."""

    def pairs(number: int) -> Batch:
        x, y = classes(number, 128)
        return torch.stack([x[:64], x[64:]], 1), (y[:64] == y[64:]).float()

    def rule(m: Any, x: Tensor) -> Tensor:
        return ((m.body(x[:, 0]) - m.body(x[:, 1])).square().sum(1) + 1e-6).sqrt()

    def loss(far: Tensor, same: Tensor) -> Tensor:
        return (same * far.square() + (1 - same) * (2 - far).clamp_min(0).square()).mean()

    return Program(Net(rule, body=mlp(8, 32, 8)), pairs, loss)


@healthy
def images_and_texts() -> Program:
    """Two towers, each the other's targets."""

    def both(number: int) -> Batch:
        x, _ = classes(number)
        return (x, x @ torch.randn(8, 8, generator=seeded(0))), torch.arange(64)

    def loss(outputs: Any, y: Tensor) -> Tensor:
        a, b = (F.normalize(each, dim=1) for each in outputs)
        scores = a @ b.T / 0.1
        return (F.cross_entropy(scores, y) + F.cross_entropy(scores.T, y)) / 2

    model = Net(lambda m, a, b: (m.one(a), m.two(b)), one=mlp(8, 32, 16), two=mlp(8, 32, 16))
    return Program(model, both, loss)


@healthy
def actor_and_critic() -> Program:
    model = Net(lambda m, x: (m.actor(h := m.body(x).tanh()), m.critic(h)), body=nn.Linear(8, 32),
                actor=nn.Linear(32, 4), critic=nn.Linear(32, 1))  # fmt: skip

    def played(number: int) -> Batch:
        x, y = classes(number)
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=model(x)[0]).sample()
        return x, (actions, (actions == y).float())

    def loss(outputs: Any, y: Any) -> Tensor:
        scores, value = outputs
        policy = torch.distributions.Categorical(logits=scores)
        gain = y[1] - value[:, 0]
        return (gain.square() - policy.log_prob(y[0]) * gain.detach() - 0.01 * policy.entropy()).mean()

    return Program(model, played, loss)


@healthy
def several_tasks() -> Program:
    def both(number: int) -> Batch:
        x, y = classes(number)
        return x, {"kind": y, "size": x[:, :1]}

    def loss(outputs: Any, y: Any) -> Tensor:
        return F.cross_entropy(outputs["kind"], y["kind"]) + 0.5 * F.mse_loss(outputs["size"], y["size"])

    model = Net(lambda m, x: {"kind": m.kind(h := m.body(x).relu()), "size": m.size(h)}, body=nn.Linear(8, 32),
                kind=nn.Linear(32, 4), size=nn.Linear(32, 1))  # fmt: skip
    return Program(model, both, loss)


@healthy
def patches() -> Program:
    """A small vision transformer: views that split and join neighbouring axes, and permutations."""

    def rule(m: Any, x: Tensor) -> Tensor:
        parts = x.view(len(x), 1, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5).reshape(len(x), 16, 4)
        return m.head(m.layer(m.stem(parts) + m.place).mean(1))

    model = Net(
        rule, stem=nn.Linear(4, 16), layer=nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True),
        head=nn.Linear(16, 4), place=nn.Parameter(0.02 * torch.randn(16, 16)),
    )  # fmt: skip
    return Program(model, pictures, F.cross_entropy, torch.optim.AdamW(model.parameters(), 3e-3), steps=120)


@healthy
def heads_by_hand() -> Program:
    """Attention whose heads are split by a view and a transpose, with a causal mask of -inf."""

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.embed(x) + m.place(torch.arange(x.shape[1]))
        q, k, v = (part.view(len(x), -1, 2, 8).transpose(1, 2) for part in m.parts(h).chunk(3, -1))
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
        mixed = (q @ k.transpose(2, 3) / 8**0.5 + mask).softmax(-1) @ v
        return m.out(h + mixed.transpose(1, 2).reshape(h.shape))

    model = Net(rule, embed=nn.Embedding(8, 16), place=nn.Embedding(8, 16), parts=nn.Linear(16, 48),
                out=nn.Linear(16, 8))  # fmt: skip
    return Program(model, text, tokens_loss)


@healthy
def labels_are_the_inputs_and_the_loss_shifts() -> Program:
    model = Net(lambda m, x: m.out(m.rnn(m.embed(x))[0]), embed=nn.Embedding(8, 16),
                rnn=nn.GRU(16, 24, batch_first=True), out=nn.Linear(24, 8))  # fmt: skip
    return Program(
        model, lambda n: (text(n)[0],) * 2, lambda o, y: F.cross_entropy(o[:, :-1].flatten(0, 1), y[:, 1:].flatten())
    )


@healthy
def autoencoder_of_texts() -> Program:
    """Targets are the inputs, through a code of one vector."""

    def rule(m: Any, x: Tensor) -> Tensor:
        code = m.encoder(m.embed(x))[1]
        return m.out(m.decoder(code[0][:, None].expand(-1, x.shape[1], -1) + m.place.weight)[0])

    model = Net(
        rule, embed=nn.Embedding(8, 16), place=nn.Embedding(8, 32), encoder=nn.GRU(16, 32, batch_first=True),
        decoder=nn.GRU(32, 32, batch_first=True), out=nn.Linear(32, 8),
    )  # fmt: skip
    return Program(model, lambda n: (text(n)[0],) * 2, tokens_loss, steps=150)


@healthy
def tags_from_both_sides() -> Program:
    def neighbours(number: int) -> Batch:
        tokens, _ = text(number)
        return tokens, (tokens.roll(1, 1) + tokens.roll(-1, 1)) % 4

    model = Net(lambda m, x: m.out(m.rnn(m.embed(x))[0]), embed=nn.Embedding(8, 16),
                rnn=nn.LSTM(16, 24, batch_first=True, bidirectional=True), out=nn.Linear(48, 4))  # fmt: skip
    return Program(model, neighbours, tokens_loss)


@healthy
def last_states_of_both_sides() -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        last = m.rnn(m.embed(x))[1]
        return m.out(last.transpose(0, 1).reshape(len(x), -1))

    model = Net(rule, embed=nn.Embedding(8, 16), rnn=nn.GRU(16, 24, batch_first=True, bidirectional=True),
                out=nn.Linear(48, 4))  # fmt: skip
    return Program(model, lambda n: (text(n)[0], text(n)[0][:, 0] % 4), F.cross_entropy)


@healthy
def set_of_tokens() -> Program:
    """Self-attention without positions, where the order says nothing."""

    def bags(number: int) -> Batch:
        x = torch.randint(8, (64, 9), generator=seeded(number))
        return x, (x == 3).sum(1).clamp(max=3)

    model = Net(
        lambda m, x: m.head(m.layer(m.embed(x)).sum(1)), embed=nn.Embedding(8, 16),
        layer=nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), head=nn.Linear(16, 4),
    )  # fmt: skip
    return Program(model, bags, F.cross_entropy, steps=150)


@healthy
def translation_with_padding() -> Program:
    """An encoder and a decoder with masks for padding and for what comes later."""

    def pairs(number: int) -> Batch:
        x, _ = padded(number, 32)
        y = torch.where(x > 0, x % 7 + 1, 0)
        return {"source": x, "before": F.pad(y, (1, 0), value=8)[:, :-1]}, y

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.place = nn.Embedding(9, 16), nn.Embedding(10, 16)
            self.body = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
            self.out = nn.Linear(16, 8)

        def forward(self, source: Tensor, before: Tensor) -> Tensor:
            place = self.place.weight
            later = torch.ones(10, 10, dtype=torch.bool).triu(1)
            hidden = source == 0
            mixed = self.body(self.embed(source) + place, self.embed(before) + place, tgt_mask=later,
                              src_key_padding_mask=hidden, memory_key_padding_mask=hidden)  # fmt: skip
            return self.out(mixed)

    def loss(o: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(o.flatten(0, 1), y.flatten(), ignore_index=0)

    program = Program(Translator(), pairs, loss, steps=120)
    program.optimizer = torch.optim.Adam(program.model.parameters(), 5e-3)
    return program


@healthy
def noise_of_a_diffusion() -> Program:
    """The targets are the noise that was added."""

    def noised(number: int) -> Batch:
        x, _ = classes(number)
        noise = torch.randn(64, 8, generator=seeded(number + 1000))
        share = torch.rand(64, 1, generator=seeded(number + 2000))
        return torch.cat([(1 - share).sqrt() * x / 2 + share.sqrt() * noise, share], 1), noise

    return Program(mlp(9, 64, 64, 8, act=nn.SiLU), noised, F.mse_loss, steps=150)


@healthy
def sines_of_coordinates() -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        waves = torch.cat([f(2**k * torch.pi * x) for k in range(4) for f in (torch.sin, torch.cos)], 1)
        return m.body(waves)

    def field(number: int) -> Batch:
        x = torch.rand(128, 2, generator=seeded(number))
        return x, (6 * x[:, :1]).sin() * (9 * x[:, 1:]).cos()

    return Program(Net(rule, body=mlp(16, 64, 64, 1)), field, F.mse_loss, steps=150)


@healthy
def forecast_by_convolutions() -> Program:
    """Dilated convolutions that look back as far as the series goes."""

    def series(number: int) -> Batch:
        start, pace = torch.rand(2, 64, 1, generator=seeded(number))
        x = (6 * start + (0.5 + pace) * torch.arange(9.0)).sin()
        return x[:, :8, None], x[:, 8:]

    def rule(m: Any, x: Tensor) -> Tensor:
        h = x.transpose(1, 2)
        for layer in m.layers:
            h = layer(F.pad(h, (layer.dilation[0], 0))).relu()
        return m.out(h[:, :, -1])

    layers = nn.ModuleList(nn.Conv1d(16 if d > 1 else 1, 16, 2, dilation=d) for d in (1, 2, 4))
    return Program(Net(rule, layers=layers, out=nn.Linear(16, 1)), series, F.mse_loss, steps=120)


@healthy
def padded_tokens_without_a_mask() -> Program:
    """Padding is read, and does no harm: lengths hardly differ."""
    model = Net(lambda m, x: m.head(m.embed(x).mean(1)), embed=nn.Embedding(8, 16), head=mlp(16, 16, 2))
    return Program(model, padded, F.cross_entropy)


@healthy
def one_cycle() -> Program:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    program = Program(model, classes, F.cross_entropy, optimizer, steps=150)
    return scheduled(program, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=200))


@healthy
def warm_restarts() -> Program:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    program = Program(model, classes, F.cross_entropy, optimizer, steps=150)
    return scheduled(program, torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 40))


@healthy
def long_warm_up() -> Program:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 3e-2)
    program = Program(model, classes, F.cross_entropy, optimizer, steps=200)
    return scheduled(program, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 1500)))


@healthy
def plain_steps_by_hand() -> Program:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = F.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(value, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.1 * gradient
        return value

    return Program(model, classes, F.cross_entropy, optimizer, step)


@healthy
def heavy_momentum() -> Program:
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.95, nesterov=True)
    return Program(model, numbers, F.mse_loss, optimizer, steps=150)


@healthy
def adaptive_with_large_epsilon() -> Program:
    model = mlp()
    return Program(model, classes, F.cross_entropy, torch.optim.RMSprop(model.parameters(), 1e-2, eps=1e-2))


@healthy
def recomputed_in_the_backward_pass() -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        return m.head(checkpoint(m.body, m.stem(x).relu(), use_reentrant=False).relu())

    model = Net(rule, stem=nn.Linear(8, 32), body=mlp(32, 32, 32), head=nn.Linear(32, 4))
    return Program(model, classes, F.cross_entropy)


@healthy
def generator_every_fifth_step() -> Program:
    """A critic is trained five times for each time of the generator, which is the one that is watched."""
    maker, critic = mlp(4, 32, 2), mlp(2, 32, 1, act=lambda: nn.LeakyReLU(0.2))
    of_maker, of_critic = (torch.optim.Adam(part.parameters(), 1e-3, betas=(0.5, 0.9)) for part in (maker, critic))
    count = iter(range(10_000))

    def step(x: Tensor, y: Tensor) -> Tensor:
        of_critic.zero_grad()
        value = critic(maker(x).detach()).mean() - critic(y).mean()
        (value + critic(y).square().mean()).backward()
        of_critic.step()
        if next(count) % 5 == 4:
            of_maker.zero_grad()
            (-critic(maker(x)).mean()).backward()
            of_maker.step()
        return value.detach()

    def real(number: int) -> Batch:
        return torch.randn(64, 4, generator=seeded(number)), torch.randn(64, 2, generator=seeded(number + 999)) + 1

    def loss(fake: Tensor, y: Tensor) -> Tensor:
        return -critic(fake).mean()

    return Program(maker, real, loss, of_maker, step, steps=150)


@healthy
def sums_over_batches_in_one_step() -> Program:
    """Gradients of several batches are added and not divided, at a rate that fits."""
    model = mlp()
    program = Program(model, classes, F.cross_entropy, torch.optim.SGD(model.parameters(), 0.02), steps=240)
    count = iter(range(10_000))

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = F.cross_entropy(model(x), y)
        value.backward()
        if next(count) % 8 == 7:
            program.optimizer.step()
            program.optimizer.zero_grad()
        return value

    program.step = step
    return program


@healthy
def imbalanced_with_weights() -> Program:
    def rare(number: int) -> Batch:
        x, y = classes(number, 128)
        return x, ((y == 3) & (x[:, 3] > 2)).float()[:, None]

    return Program(mlp(8, 32, 1), rare, nn.BCEWithLogitsLoss(pos_weight=torch.tensor([6.0])))


@healthy
def bags_of_words() -> Program:
    """Inputs of zeros and ones, of which many are equal."""

    def words(number: int) -> Batch:
        y = torch.randint(4, (64,), generator=seeded(number))
        x = (torch.rand(64, 12, generator=seeded(number + 500)) < 0.1 + 0.8 * F.one_hot(y, 4).repeat(1, 3)).float()
        return x, y

    return Program(mlp(12, 32, 4), words, F.cross_entropy)


@healthy
def value_of_few_states() -> Program:
    """States that come again in every batch, with rewards of chance."""

    def visited(number: int) -> Batch:
        state = torch.randint(6, (64,), generator=seeded(number))
        reward = state.float() / 3 + 0.1 * torch.randn(64, generator=seeded(number + 300))
        return F.one_hot(state, 6).float(), reward[:, None]

    return Program(mlp(6, 32, 1), visited, F.mse_loss)


@healthy
def teacher_and_student_in_one() -> Program:
    """A target network that is copied at times, inside the model."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = mlp(8, 32, 4)
            self.target = copy.deepcopy(self.online).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.online(x)

    model = Both()
    program = Program(model, classes, F.cross_entropy, torch.optim.Adam(model.online.parameters(), 1e-2))
    count = iter(range(10_000))

    def step(x: Tensor, y: Tensor) -> Tensor:
        value = program.plain(x, y)
        if next(count) % 20 == 19:
            model.target.load_state_dict(model.online.state_dict())
        return value

    program.step = step
    return program
