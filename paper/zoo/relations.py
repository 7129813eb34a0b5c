"""Tables, recommendations, graphs and sets; values and policies of a small control problem."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.lab.data import load, split

from ..networks import chain
from .entry import ACCURACY, ERROR, RETURN, Batch, Entry, Task, accuracy, adam, cross_entropy, log_error, squared


@lru_cache
def _people(directory: Path | None) -> tuple[Batch, Batch]:
    found = split(load("adult", directory=directory), 0)
    train, test = (found.x_train, found.y_train), (found.x_test, found.y_test)
    return tuple((torch.as_tensor(x).float(), torch.as_tensor(y).long()) for x, y in (train, test))


def incomes(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Adult: people of a census in standardized columns, and who earns much."""
    train, (x, y) = _people(directory)
    return train, (x[:4000], y[:4000])


def ratings(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Who watched what: made from hidden tastes, three ids and a number for each pair."""
    generator, rows = torch.Generator().manual_seed(0), 200_000 if big else 20_000
    ids = torch.randint(200, (rows, 3), generator=generator)
    taste, numbers = torch.randn(3, 200, 4, generator=generator), torch.randn(rows, 4, generator=generator)
    a, b, c = (taste[k][ids[:, k]] for k in range(3))
    logit = (a * b).sum(1) + 0.5 * (b * c).sum(1) + numbers[:, 0] * numbers[:, 1]
    y = (torch.rand(rows, generator=generator) < torch.sigmoid(1.5 * logit)).long()
    return (ids[2000:], numbers[2000:], y[2000:]), (ids[:2000], numbers[:2000], y[:2000])


class Factors(nn.Module):
    """Embeddings of the ids and a bottom network of the numbers interact by products; a top network decides."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(200, size) for _ in range(3))
        for table in self.tables:
            nn.init.uniform_(table.weight, -math.sqrt(1 / 200), math.sqrt(1 / 200))
        self.bottom, self.top = chain([4, width, size]), chain([size + 6, width, width, 2])

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        dense = torch.relu(self.bottom(numbers))
        each = torch.stack([dense, *(table(ids[:, k]) for k, table in enumerate(self.tables))], 1)
        row, column = torch.triu_indices(4, 4, 1, device=ids.device)
        products = (each @ each.mT)[:, row, column]
        return self.top(torch.cat([dense, products], 1))


class TableResNet(nn.Module):
    """Residual blocks behind batch norms, for tables."""

    def __init__(self, inputs: int, width: int, blocks: int) -> None:
        super().__init__()
        self.read = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            for _ in range(blocks)
        )
        self.head = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.read(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class FeatureTokens(nn.Module):
    """A token for each column, a transformer of torch between them, and the first token decides."""

    def __init__(self, inputs: int, width: int, blocks: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(inputs, width)) for _ in range(2))
        self.first = nn.Parameter(torch.empty(1, 1, width))
        for each in (self.weight, self.bias, self.first):
            nn.init.uniform_(each, -(width**-0.5), width**-0.5)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x[:, :, None] * self.weight + self.bias
        return self.head(self.blocks(torch.cat([self.first.expand(len(x), -1, -1), tokens], 1))[:, 0])


class WideAndDeep(nn.Module):
    """Embeddings and numbers, through ReLU layers of shrinking widths, beside a linear part."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(200, size) for _ in range(3))
        self.wide, self.deep = nn.Linear(4, 2), chain([3 * size + 4, width, width // 2, width // 4, 2])

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        known = [table(ids[:, k]) for k, table in enumerate(self.tables)]
        return self.wide(numbers) + self.deep(torch.cat([*known, numbers], 1))


def prices(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Eight columns of uneven distributions, standardized, and a price that depends on them in a bent way."""
    generator, rows = torch.Generator().manual_seed(4), 40_000 if big else 6_000
    x = torch.randn(rows, 8, generator=generator)
    price = torch.exp(0.5 * x[:, 0] - 0.3 * x[:, 1].abs()) + (x[:, 2] * x[:, 3]).relu() + torch.sin(2 * x[:, 4])
    x = torch.cat([x[:, :4].exp(), x[:, 4:]], 1)
    x, y = (x - x.mean(0)) / x.std(0), price + 0.2 * torch.randn(rows, generator=generator)
    return (x[1000:], y[1000:]), (x[:1000], y[:1000])


def graphs(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Graphs of 20 nodes made in three ways with as many edges: by chance, around a ring, in two groups."""
    generator, rows, n = torch.Generator().manual_seed(1), 20_000 if big else 2_500, 20
    kind = torch.randint(3, (rows,), generator=generator)
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    ring = (torch.minimum(apart, n - apart) <= 4).float()
    groups = ((torch.arange(n)[:, None] < n // 2) == (torch.arange(n) < n // 2)).float()
    chance = torch.stack([torch.full((n, n), 0.3), 0.1 + 0.46 * ring, 0.12 + 0.38 * groups])[kind]
    upper = (torch.rand(rows, n, n, generator=generator) < chance).float().triu(1)
    edges = upper + upper.mT
    x = torch.cat([edges.sum(2, keepdim=True) / 6, torch.randn(rows, n, 7, generator=generator)], 2)
    return (x[500:], edges[500:], kind[500:]), (x[:500], edges[:500], kind[:500])


class GCN(nn.Module):
    """Linear layers between averages over neighbours, Glorot's weights; the mean over nodes decides."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width if k else 8, width, bias=False) for k in range(layers))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(layers))
        self.out = nn.Linear(width, 3)
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        edges = edges + torch.eye(edges.shape[1], device=x.device)
        root = edges.sum(2, keepdim=True).rsqrt()
        for layer, bias in zip(self.layers, self.biases):
            x = torch.relu((root * edges * root.mT) @ layer(x) + bias)
        return self.out(x.mean(1))


class GIN(nn.Module):
    """A small network with batch norm of the sum over neighbours; sums over nodes decide."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList(chain([width if k else 8, width, width]) for k in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.out = nn.Linear(width, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for net, norm in zip(self.nets, self.norms):
            x = torch.relu(norm(net(x + edges @ x).flatten(0, 1)).view(*x.shape[:2], -1))
        return self.out(x.sum(1))


class Dense(nn.Module):
    """Dense graph layers of torch_geometric with ReLU between them; the mean over nodes decides."""

    def __init__(self, kind: str, width: int, layers: int) -> None:
        super().__init__()
        import torch_geometric.nn

        layer = getattr(torch_geometric.nn, kind)
        self.layers = nn.ModuleList(layer(width if k else 8, width) for k in range(layers))
        self.out = nn.Linear(width, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x, edges))
        return self.out(x.mean(1))


class PointNet(nn.Module):
    """Layers with batch norm on every point, the largest of each feature, and layers with batch norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [3, width, width, 4 * width]
        self.each = nn.Sequential(*(
            part for n, m in pairwise(sizes) for part in (nn.Conv1d(n, m, 1), nn.BatchNorm1d(m), nn.ReLU())
        ))  # fmt: skip
        self.whole = nn.Sequential(nn.Linear(4 * width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(self.each(x.mT).amax(2))


def sets(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Sets of ten points, and the logarithm of the volume that they span: of the determinant of their covariance."""
    generator, rows = torch.Generator().manual_seed(2), 50_000 if big else 5_000
    turn = torch.randn(rows, 3, 3, generator=generator)
    x = torch.randn(rows, 10, 3, generator=generator) @ turn
    away = x - x.mean(1, keepdim=True)
    y = (away.mT @ away / 10 + 1e-3 * torch.eye(3)).logdet()
    return (x[1000:], y[1000:]), (x[:1000], y[:1000])


class DeepSet(nn.Module):
    """A network of each point, the sum, and a network of the sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.each, self.whole = chain([3, width, width, width], nn.ELU), chain([width, width, width, 1], nn.ELU)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(self.each(x).sum(1))


def swing(state: Tensor, force: Tensor) -> tuple[Tensor, Tensor]:
    """A pendulum's next states, and what the step costs: (angle, speed) and a torque between -1 and 1."""
    angle, speed = state.unbind(-1)
    torque = 2 * force.clamp(-1, 1)
    turned = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
    cost = turned.square() + 0.1 * speed.square() + 0.001 * torque.square()
    speed = (speed + 0.1 * (7.5 * angle.sin() + 3 * torque)).clamp(-8, 8)
    return torch.stack([angle + 0.1 * speed, speed], -1), cost / 10


def seen(state: Tensor) -> Tensor:
    """What a network is told of a state."""
    angle, speed = state.unbind(-1)
    return torch.stack([angle.cos(), angle.sin(), speed / 8], -1)


FORCES = torch.tensor([-1.0, -0.3, 0.0, 0.3, 1.0])


def states(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """States, a random choice of a torque, and the state half a second later."""
    rows = 100_000 if big else 10_000
    generator = torch.Generator().manual_seed(3)
    state = (2 * torch.rand(rows, 2, generator=generator) - 1) * torch.tensor([math.pi, 6.0])
    choice = torch.randint(5, (rows,), generator=generator)
    after, cost = swing(state, FORCES[choice])
    return (state[500:], choice[500:], cost[500:], after[500:]), (state[:200], choice[:200], cost[:200], after[:200])


def q_loss(learner: Any, batch: Batch) -> Tensor:
    """Double Q-learning from recorded steps, by a slow copy of the network."""
    state, choice, cost, after = batch
    with torch.no_grad():
        best = learner.net(seen(after)).argmax(1, keepdim=True)
        goal = -cost + 0.95 * learner.slow(seen(after)).gather(1, best)[:, 0]
    return F.smooth_l1_loss(learner.net(seen(state)).gather(1, choice[:, None])[:, 0], goal)


@torch.no_grad()
def rolled(net: nn.Module, batch: Batch, steps: int = 60) -> Tensor:
    """The return of the best actions, or of the mean action, from the states of the batch."""
    state, total = batch[0], torch.zeros((), device=batch[0].device)
    for _ in range(steps):
        found = net(seen(state))
        found = found[0] if isinstance(found, tuple) else found
        force = FORCES.to(state.device)[found.argmax(1)] if found.shape[1] > 1 else torch.tanh(found[:, 0])
        state, cost = swing(state, force)
        total -= cost.mean()
    return total


class Dueling(nn.Module):
    """What a state is worth, and what each action adds to that, from a common body."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = chain([3, width, width])
        self.value, self.gains = chain([width, width, 1]), chain([width, width, 5])

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.body(x))
        gains = self.gains(y)
        return self.value(y) + gains - gains.mean(1, keepdim=True)


class ActorCritic(nn.Module):
    """Two tanh networks, orthogonal times √2, the policy's last layer of 0.01."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.actor, self.critic = chain([3, width, width, 1], nn.Tanh), chain([3, width, width, 1], nn.Tanh)
        self.log_deviation = nn.Parameter(torch.full((1,), -0.5))
        for net, last in ((self.actor, 0.01), (self.critic, 1.0)):
            for layer in net:
                if isinstance(layer, nn.Linear):
                    nn.init.orthogonal_(layer.weight, last if layer is net[-1] else math.sqrt(2))
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(x), self.critic(x)[..., 0]


def actor_loss(net: Any, batch: Batch, steps: int = 12) -> Tensor:
    """Advantage actor-critic over a few steps from the states of the batch."""
    state, logs, values, costs = batch[0], [], [], []
    for _ in range(steps):
        mean, value = net(seen(state))
        deviation = net.log_deviation.exp()
        drawn = (mean + deviation * torch.randn_like(mean)).detach()
        logs.append((-((drawn - mean) / deviation).square() / 2 - net.log_deviation)[:, 0])
        state, cost = swing(state, torch.tanh(drawn[:, 0]))
        values.append(value)
        costs.append(cost)
    with torch.no_grad():
        ahead = net(seen(state))[1]
        goals = []
        for cost in costs[::-1]:
            ahead = 0.95 * ahead - cost
            goals.append(ahead)
    goal, value = torch.stack(goals[::-1]), torch.stack(values)
    gain = (goal - value).detach()
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    return -(torch.stack(logs) * gain).mean() + 0.5 * F.mse_loss(value, goal)


def known(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """States, and what the pendulum costs from there when it is left alone and slowed, discounted."""
    (state, *_rest), _test = states(big, None)
    now, total = state, torch.zeros(len(state))
    for k in range(40):
        now, cost = swing(now, -now[:, 1] / 8)
        total += 0.95**k * cost
    return (seen(state[1000:]), -total[1000:]), (seen(state[:1000]), -total[:1000])


TABLE = Task(incomes, ACCURACY._replace(margin=0.3, chance=76.0), cross_entropy, accuracy)
WATCHED = Task(ratings, ACCURACY._replace(margin=0.5, chance=50.0), cross_entropy, accuracy, inputs=lambda b: b[:2])
GRAPHS = Task(graphs, ACCURACY._replace(chance=100 / 3), cross_entropy, accuracy, inputs=lambda b: b[:2])
SETS = Task(sets, ERROR, squared, log_error)
Q = Task(states, RETURN, squared, squared, lambda b: seen(b[0]), q_loss, rolled)
ACTOR = Task(states, RETURN, squared, squared, lambda b: seen(b[0]), actor_loss, rolled)
VALUES = Task(known, ERROR, squared, log_error)
COLUMNS = 14
RATES = (3e-4, 1e-3, 3e-3)

ENTRIES = [
    Entry("table MLP", "table", lambda big: chain([COLUMNS, *[256 if big else 64] * 3, 2]), TABLE, (300, 1_500),
          (128, 512), RATES, adam(1e-4), schedule="constant"),
    Entry("table ResNet", "table", lambda big: TableResNet(COLUMNS, 256 if big else 48, 4 if big else 3), TABLE,
          (300, 1_500), (128, 512), RATES, adam(1e-4), schedule="constant"),
    Entry("recommendation by factors", "recommender", lambda big: Factors(256 if big else 64, 32 if big else 16),
          WATCHED, (500, 1_500), (256, 2048), (1e-3, 3e-3, 1e-2), schedule="constant"),
    Entry("graph convolutions", "graph", lambda big: GCN(64 if big else 32, 3), GRAPHS, (200, 1_200), (32, 128),
          (3e-3, 1e-2, 3e-2), adam(5e-4), "constant"),
    Entry("graph isomorphism network", "graph", lambda big: GIN(64 if big else 32, 4), GRAPHS, (150, 1_200), (32, 128),
          (1e-3, 3e-3, 1e-2), adam(), "constant"),
    Entry("deep set", "set", lambda big: DeepSet(128 if big else 48), SETS, (400, 2_500), (64, 256), RATES),
    Entry("Q-network", "value", lambda big: chain([3, *[256 if big else 64] * 2, 5]), Q, (500, 4_000), (128, 256),
          RATES, schedule="constant", clip=10.0, lagged=True),
    Entry("actor and critic", "policy", lambda big: ActorCritic(64), ACTOR, (150, 800), (64, 1024), RATES,
          schedule="constant", clip=0.5, gain=1.0),
    Entry("value network", "value", lambda big: chain([3, 64, 64, 64, 1], nn.Tanh), VALUES, (500, 3_000), (128, 512),
          RATES, schedule="constant", gain=1.0),
    Entry("feature tokens", "table", lambda big: FeatureTokens(COLUMNS, 64 if big else 24, 3 if big else 2), TABLE,
          (200, 1_200), (128, 512), (1e-4, 3e-4, 1e-3), adam(1e-5), schedule="constant"),
    Entry("wide and deep", "recommender", lambda big: WideAndDeep(256 if big else 64, 16), WATCHED, (500, 1_500),
          (256, 2048), (3e-4, 1e-3, 3e-3), schedule="constant"),
    Entry("table regression", "table", lambda big: chain([8, *[128 if big else 48] * 3, 1]), Task(prices, ERROR,
          squared, log_error), (400, 2_500), (128, 512), RATES, schedule="constant"),
    Entry("DenseSAGEConv", "graph", lambda big: Dense("DenseSAGEConv", 64, 3), GRAPHS, (150, 1_200), (32, 128),
          (1e-3, 3e-3, 1e-2), schedule="constant", package="torch_geometric"),
    Entry("DenseGCNConv", "graph", lambda big: Dense("DenseGCNConv", 64, 3), GRAPHS, (150, 1_200), (32, 128),
          (1e-3, 3e-3, 1e-2), schedule="constant", package="torch_geometric"),
    Entry("PointNet", "set", lambda big: PointNet(64 if big else 24), SETS, (300, 2_000), (64, 256), RATES),
    Entry("dueling Q-network", "value", lambda big: Dueling(128 if big else 48), Q, (500, 3_000), (128, 256), RATES,
          schedule="constant", lagged=True),
]  # fmt: skip
