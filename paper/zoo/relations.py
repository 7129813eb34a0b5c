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

from ..networks import Net, chain, sized
from ..problems import held_out
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
    return held_out(2000, ids, numbers, y)


def _tables(size: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Embedding(200, size) for _ in range(3))


def factors(width: int, size: int) -> Net:
    """Embeddings of the ids and a bottom network of the numbers interact by products; a top network decides."""

    def rule(net: Any, ids: Tensor, numbers: Tensor) -> Tensor:
        dense = torch.relu(net.bottom(numbers))
        each = torch.stack([dense, *(table(ids[:, k]) for k, table in enumerate(net.tables))], 1)
        row, column = torch.triu_indices(4, 4, 1, device=ids.device)
        return net.top(torch.cat([dense, (each @ each.mT)[:, row, column]], 1))

    tables = _tables(size)
    for table in tables:
        nn.init.uniform_(table.weight, -math.sqrt(1 / 200), math.sqrt(1 / 200))
    return Net(rule, tables=tables, bottom=chain([4, width, size]), top=chain([size + 6, width, width, 2]))


def table_resnet(inputs: int, width: int, blocks: int) -> Net:
    """Residual blocks behind batch norms, for tables."""

    def rule(net: Any, x: Tensor) -> Tensor:
        x = net.read(x)
        for block in net.blocks:
            x = x + block(x)
        return net.head(x)

    read, inner = nn.Linear(inputs, width), [width, 2 * width, width]
    middle = nn.ModuleList(nn.Sequential(nn.BatchNorm1d(width), *chain(inner)) for _ in range(blocks))
    head = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))
    return Net(rule, read=read, blocks=middle, head=head)


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


def wide_and_deep(width: int, size: int) -> Net:
    """Embeddings and numbers, through ReLU layers of shrinking widths, beside a linear part."""

    def rule(net: Any, ids: Tensor, numbers: Tensor) -> Tensor:
        known = [table(ids[:, k]) for k, table in enumerate(net.tables)]
        return net.wide(numbers) + net.deep(torch.cat([*known, numbers], 1))

    deep = [3 * size + 4, width, width // 2, width // 4, 2]
    return Net(rule, tables=_tables(size), wide=nn.Linear(4, 2), deep=chain(deep))


def prices(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Eight columns of uneven distributions, standardized, and a price that depends on them in a bent way."""
    generator, rows = torch.Generator().manual_seed(4), 40_000 if big else 6_000
    x = torch.randn(rows, 8, generator=generator)
    price = torch.exp(0.5 * x[:, 0] - 0.3 * x[:, 1].abs()) + (x[:, 2] * x[:, 3]).relu() + torch.sin(2 * x[:, 4])
    x = torch.cat([x[:, :4].exp(), x[:, 4:]], 1)
    x, y = (x - x.mean(0)) / x.std(0), price + 0.2 * torch.randn(rows, generator=generator)
    return held_out(1000, x, y)


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
    return held_out(500, x, edges, kind)


def gcn(width: int, layers: int) -> Net:
    """Linear layers between averages over neighbours, Glorot's weights; the mean over nodes decides."""

    def rule(net: Any, x: Tensor, edges: Tensor) -> Tensor:
        edges = edges + torch.eye(edges.shape[1], device=x.device)
        root = edges.sum(2, keepdim=True).rsqrt()
        for layer, bias in zip(net.layers, net.biases):
            x = torch.relu((root * edges * root.mT) @ layer(x) + bias)
        return net.out(x.mean(1))

    linear = nn.ModuleList(nn.Linear(width if k else 8, width, bias=False) for k in range(layers))
    biases, out = nn.ParameterList(torch.zeros(width) for _ in range(layers)), nn.Linear(width, 3)
    for layer in linear:
        nn.init.xavier_uniform_(layer.weight)
    return Net(rule, layers=linear, biases=biases, out=out)


def gin(width: int, layers: int) -> Net:
    """A small network with batch norm of the sum over neighbours; sums over nodes decide."""

    def rule(net: Any, x: Tensor, edges: Tensor) -> Tensor:
        for each, norm in zip(net.nets, net.norms):
            x = torch.relu(norm(each(x + edges @ x).flatten(0, 1)).view(*x.shape[:2], -1))
        return net.out(x.sum(1))

    nets = nn.ModuleList(chain([width if k else 8, width, width]) for k in range(layers))
    norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
    return Net(rule, nets=nets, norms=norms, out=nn.Linear(width, 3))


def dense(kind: str, width: int, layers: int) -> Net:
    """Dense graph layers of torch_geometric with ReLU between them; the mean over nodes decides."""
    import torch_geometric.nn

    def rule(net: Any, x: Tensor, edges: Tensor) -> Tensor:
        for layer in net.layers:
            x = torch.relu(layer(x, edges))
        return net.out(x.mean(1))

    layer = getattr(torch_geometric.nn, kind)
    made = nn.ModuleList(layer(width if k else 8, width) for k in range(layers))
    return Net(rule, layers=made, out=nn.Linear(width, 3))


def pointnet(width: int) -> Net:
    """Layers with batch norm on every point, the largest of each feature, and layers with batch norm."""
    sizes = [3, width, width, 4 * width]
    each = [part for n, m in pairwise(sizes) for part in (nn.Conv1d(n, m, 1), nn.BatchNorm1d(m), nn.ReLU())]
    whole = nn.Sequential(nn.Linear(4 * width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))
    return Net(lambda net, x: net.whole(net.each(x.mT).amax(2)), each=nn.Sequential(*each), whole=whole)


def deep_set(width: int) -> Net:
    """A network of each point, the sum, and a network of the sum."""
    each, whole = chain([3, width, width, width], nn.ELU), chain([width, width, width, 1], nn.ELU)
    return Net(lambda net, x: net.whole(net.each(x).sum(1)), each=each, whole=whole)


def sets(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Sets of ten points, and the logarithm of the volume that they span: of the determinant of their covariance."""
    generator, rows = torch.Generator().manual_seed(2), 50_000 if big else 5_000
    turn = torch.randn(rows, 3, 3, generator=generator)
    x = torch.randn(rows, 10, 3, generator=generator) @ turn
    away = x - x.mean(1, keepdim=True)
    y = (away.mT @ away / 10 + 1e-3 * torch.eye(3)).logdet()
    return held_out(1000, x, y)


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
    train, test = held_out(500, state, choice, cost, after)
    return train, tuple(each[:200] for each in test)


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


def dueling(width: int) -> Net:
    """What a state is worth, and what each action adds to that, from a common body."""

    def rule(net: Any, x: Tensor) -> Tensor:
        y = torch.relu(net.body(x))
        gains = net.gains(y)
        return net.value(y) + gains - gains.mean(1, keepdim=True)

    body, value, gains = (chain(sizes) for sizes in ([3, width, width], [width, width, 1], [width, width, 5]))
    return Net(rule, body=body, value=value, gains=gains)


def actor_critic(width: int) -> Net:
    """Two tanh networks, orthogonal times √2, the policy's last layer of 0.01."""
    nets: dict[str, Any] = {name: chain([3, width, width, 1], nn.Tanh) for name in ("actor", "critic")}
    for net, last in zip(nets.values(), (0.01, 1.0)):
        for layer in net[::2]:
            nn.init.orthogonal_(layer.weight, last if layer is net[-1] else math.sqrt(2))
            nn.init.zeros_(layer.bias)
    deviation = nn.Parameter(torch.full((1,), -0.5))
    return Net(lambda net, x: (net.actor(x), net.critic(x)[..., 0]), **nets, log_deviation=deviation)


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
    return held_out(1000, seen(state), -total)


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
    Entry("table ResNet", "table", sized(table_resnet, COLUMNS, (48, 256), (3, 4)), TABLE, (300, 1_500), (128, 512),
          RATES, adam(1e-4), schedule="constant"),
    Entry("recommendation by factors", "recommender", sized(factors, (64, 256), (16, 32)), WATCHED, (500, 1_500),
          (256, 2048), (1e-3, 3e-3, 1e-2), schedule="constant"),
    Entry("graph convolutions", "graph", sized(gcn, (32, 64), 3), GRAPHS, (200, 1_200), (32, 128), (3e-3, 1e-2, 3e-2),
          adam(5e-4), "constant"),
    Entry("graph isomorphism network", "graph", sized(gin, (32, 64), 4), GRAPHS, (150, 1_200), (32, 128),
          (1e-3, 3e-3, 1e-2), adam(), "constant"),
    Entry("deep set", "set", sized(deep_set, (48, 128)), SETS, (400, 2_500), (64, 256), RATES),
    Entry("Q-network", "value", lambda big: chain([3, *[256 if big else 64] * 2, 5]), Q, (500, 4_000), (128, 256),
          RATES, schedule="constant", clip=10.0, lagged=True),
    Entry("actor and critic", "policy", sized(actor_critic, 64), ACTOR, (150, 800), (64, 1024), RATES,
          schedule="constant", clip=0.5, gain=1.0),
    Entry("value network", "value", sized(chain, [3, 64, 64, 64, 1], nn.Tanh), VALUES, (500, 3_000), (128, 512), RATES,
          schedule="constant", gain=1.0),
    Entry("feature tokens", "table", sized(FeatureTokens, COLUMNS, (24, 64), (2, 3)), TABLE, (200, 1_200), (128, 512),
          (1e-4, 3e-4, 1e-3), adam(1e-5), schedule="constant"),
    Entry("wide and deep", "recommender", sized(wide_and_deep, (64, 256), 16), WATCHED, (500, 1_500), (256, 2048),
          (3e-4, 1e-3, 3e-3), schedule="constant"),
    Entry("table regression", "table", lambda big: chain([8, *[128 if big else 48] * 3, 1]),
          Task(prices, ERROR, squared, log_error), (400, 2_500), (128, 512), RATES, schedule="constant"),
    *(Entry(kind, "graph", sized(dense, kind, 64, 3), GRAPHS, (150, 1_200), (32, 128), (1e-3, 3e-3, 1e-2),
            schedule="constant", package="torch_geometric") for kind in ("DenseSAGEConv", "DenseGCNConv")),
    Entry("PointNet", "set", sized(pointnet, (24, 64)), SETS, (300, 2_000), (64, 256), RATES),
    Entry("dueling Q-network", "value", sized(dueling, (48, 128)), Q, (500, 3_000), (128, 256), RATES,
          schedule="constant", lagged=True),
]  # fmt: skip
