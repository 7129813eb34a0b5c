"""Players: networks trained against or beside others, by rewards, or by distances."""

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

from .catalogue import Program
from .tasks import Net, accuracy, adam, digits, mlp, program, split


def same_mean(outputs: Tensor, targets: Tensor) -> float:
    """How much nearer than zero the mean of the outputs is to that of the targets."""
    return float(1 - (outputs.mean(0) - targets.mean(0)).square().sum() / targets.mean(0).square().sum())


def generator_helps_the_critic(repaired: bool) -> Program:
    generator, critic = mlp(4, 32, 2), mlp(2, 32, 1)

    def loss(fakes: Tensor, _: Tensor) -> Tensor:
        return critic(fakes).mean() * (-1 if repaired else 1)

    real = torch.tensor([2.0, -1.0]) + 0.5 * torch.randn(2000, 2)
    task = split(torch.randn(2000, 4), real, loss, same_mean)
    optimizer, opponent = (torch.optim.RMSprop(part.parameters(), 0.005) for part in (generator, critic))

    def step(noise: Tensor, y: Tensor) -> Tensor:
        opponent.zero_grad()
        (critic(generator(noise).detach()).mean() - critic(y).mean()).backward()
        opponent.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.1, 0.1)
        optimizer.zero_grad()
        value = loss(generator(noise), y)
        value.backward()
        optimizer.step()
        return value

    return program(task, generator, optimizer, step=step, steps=600)


def index_of_the_best_action(repaired: bool) -> Program:
    places, rows = 12, 4000
    here, goal, action = (torch.randint(most, (rows,)) for most in (places, places, 2))
    there = (here + 2 * action - 1).clamp(0, places - 1)
    done = (there == goal).float()

    def seen(place: Tensor) -> Tensor:
        return torch.cat([F.one_hot(place, places), F.one_hot(goal, places)], 1).float()

    model = mlp(2 * places, 64, 2)
    slow = copy.deepcopy(model)
    optimizer = adam(model)

    def loss(values: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            later = slow(y[:, 3:])
        best = later.amax(1) if repaired else later.argmax(1).float()
        target = y[:, 1] + 0.9 * (1 - y[:, 1]) * best
        return F.mse_loss(values.gather(1, y[:, :1].long())[:, 0], target)

    def step(x: Tensor, y: Tensor) -> Tensor:
        slow.load_state_dict(model.state_dict())
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    right = torch.where(here == goal, -1.0, (goal > here).float())
    y = torch.cat([action[:, None], done[:, None], right[:, None], seen(there)], 1)
    task = split(seen(here), y, loss, lambda o, y: accuracy(o, y[:, 2]))
    return program(task, model, optimizer, step=step, steps=1500)


def critic_moved_by_the_policy(repaired: bool) -> Program:
    x = torch.randn(3000, 8)
    y = (x @ torch.randn(8, 16) > 0).float()  # sixteen decisions, paid by the share of right ones

    def loss(o: Tensor, y: Tensor) -> Tensor:
        policy, value = o[:, :16], o[:, 16]
        action = (torch.rand_like(policy) < policy.sigmoid()).float()
        advantage = (action == y).float().mean(1) - value
        chosen = -F.binary_cross_entropy_with_logits(policy, action, reduction="none").sum(1)
        return advantage.square().mean() - ((advantage.detach() if repaired else advantage) * chosen).mean()

    task = split(x, y, loss, lambda o, y: 2 * float(((o[:, :16] > 0) == (y > 0)).float().mean()) - 1)
    model = Net(lambda m, x: torch.cat([m.policy(x), m.value(x)], 1), policy=mlp(8, 32, 16), value=mlp(8, 32, 1))
    return program(task, model, adam(model, 0.01), steps=1000)


def embeddings_collapse(repaired: bool) -> Program:
    def loss(o: Tensor, y: Tensor) -> Tensor:
        distances = (o[:, None] - o[None]).square().sum(2)
        same = y[:, None] == y[None]
        hardest = (distances * same).amax(1) - distances.masked_fill(same, torch.inf).amin(1)
        return (hardest + 1).relu().mean()

    task = digits()
    model = mlp(64, 64, 16)

    def predict(x: Tensor) -> Tensor:
        known = model(task.x)
        middles = torch.stack([known[task.y == label].mean(0) for label in range(10)])
        return -torch.cdist(model(x), middles)

    return program(task, model, adam(model, 0.001 if repaired else 0.1), loss=loss, steps=400, predict=predict)
