"""Programs that train well: schedules, initializations, outputs and models of many kinds."""

from __future__ import annotations

import copy
from typing import Any

import torch
from healthy import Batch, Net, Program, classes, healthy, mlp, numbers, pictures, text
from torch import Tensor, nn
from torch.nn import functional as F


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


@healthy
def gated_units() -> Program:
    """GLU and SwiGLU: one half of the units multiplies the other; softmax over experts, of which each is read."""

    def rule(m: Any, x: Tensor) -> Tensor:
        h = F.glu(m.stem(x))
        share = m.gate(h).softmax(-1)
        return torch.stack([expert(h) for expert in m.experts], -1).mul(share[:, None]).sum(-1)

    model = Net(rule, stem=nn.Linear(8, 64), gate=nn.Linear(32, 3),
                experts=nn.ModuleList(mlp(32, 16, 4) for _ in range(3)))  # fmt: skip
    return Program(model, classes, F.cross_entropy)


@healthy
def shuffled_channels() -> Program:
    """Groups of channels that are exchanged by a view, a transpose and a view; and pixels that become channels."""

    def rule(m: Any, x: Tensor) -> Tensor:
        h = m.first(F.pixel_unshuffle(x, 2)).relu()
        n, c, height, width = h.shape
        h = h.view(n, 4, c // 4, height, width).transpose(1, 2).reshape(n, c, height, width)
        return m.head(m.second(h).relu().mean((2, 3)))

    model = Net(rule, first=nn.Conv2d(4, 16, 3, 1, 1, groups=4), second=nn.Conv2d(16, 16, 3, 1, 1),
                head=nn.Linear(16, 4))  # fmt: skip
    return Program(model, pictures, F.cross_entropy)
