"""The model against the optimizer: parameters that are missing, stale, frozen, cut off or shared."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import Net, accuracy, adam, digits, explained, houses, mlp, program, recall, split, traits


class Stack(nn.Module):
    """Hidden layers in a container of the caller's choice, then a classifier."""

    def __init__(self, hidden: list[nn.Module] | nn.ModuleList, classes: int = 10):
        super().__init__()
        self.hidden = hidden
        self.classifier = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = layer(x)
        return self.classifier(x)


def layers_in_a_list(repaired: bool) -> Program:
    hidden = [nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4), nn.ReLU()]
    return program(digits(), Stack(nn.ModuleList(hidden) if repaired else list(hidden)), steps=600)


class Relations(nn.Module):
    """One layer for each relation, kept in a dictionary."""

    def __init__(self, registered: bool):
        super().__init__()
        layers: dict[str, nn.Module] = {str(number): nn.Sequential(nn.Linear(64, 1), nn.Tanh()) for number in range(6)}
        self.layers = nn.ModuleDict(layers) if registered else layers
        self.out = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([layer(x) for layer in self.layers.values()], 1))


def layers_in_a_dict(repaired: bool) -> Program:
    model = Relations(repaired)
    return program(digits(), model, adam(model, 0.01), steps=400)


def head_missing_from_the_optimizer(repaired: bool) -> Program:
    model = Net(lambda m, x: m.fc(m.body(x)), body=mlp(64, 16, 4).append(nn.Tanh()), fc=nn.Linear(4, 10))
    groups = [part for name, part in model.named_children() if repaired or name == "body"]
    parameters = [parameter for part in groups for parameter in part.parameters()]
    return program(digits(), model, torch.optim.Adam(parameters, 3e-3), steps=400)


def one_of_two_parts_optimized(repaired: bool) -> Program:
    parts = {"scale": mlp(4, 16, 1), "period": mlp(4, 16, 1)}
    model = Net(lambda m, x: m.scale(x[:, :4]) + 4 * m.period(x[:, 4:]), **parts)
    task = houses()
    task = task.mapped(x=lambda x: x[:, [4, 5, 6, 7, 0, 3, 1, 2]])
    names = ("scale", "period") if repaired else ("scale",)
    return program(
        task, model, torch.optim.Adam([p for name in names for p in parts[name].parameters()], 0.01), steps=500
    )


def layers_replaced_after_the_optimizer(repaired: bool) -> Program:
    model = mlp(64, 64, 10)
    optimizer = adam(model)
    model[0], model[2] = nn.Linear(64, 16), nn.Linear(16, 10)
    return program(digits(), model, adam(model) if repaired else optimizer)


def weights_assigned_after_the_optimizer(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.out(m.rnn(m.embed(x))[0][:, -1]),
        embed=nn.Embedding(4, 8),
        rnn=nn.GRU(8, 16, batch_first=True),
        out=nn.Linear(16, 4),
    )
    optimizer = adam(model, 0.01)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().clone()))
    return program(recall(6), model, adam(model, 0.01) if repaired else optimizer)


def trainers_of_encoder_and_decoder_exchanged(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.decoder(m.encoder(x)), encoder=mlp(64, 32, 6).append(nn.Tanh()), decoder=nn.Linear(6, 10)
    )
    nn.init.orthogonal_(model.get_parameter("decoder.weight"), 3.0)
    encoder, decoder = model.children()
    trainer = adam(encoder if repaired else decoder, 0.01)  # the phase that is meant for the encoder
    return program(digits(), model, trainer, steps=400)


def first_optimizer_stepped_twice(repaired: bool) -> Program:
    task = digits()
    model = Net(lambda m, x: m.second(m.first(x)), first=mlp(64, 16, 4).append(nn.Tanh()), second=nn.Linear(4, 10))
    first, second = (adam(part, 0.01) for part in model.children())

    def step(x: Tensor, y: Tensor) -> Tensor:
        model.zero_grad()
        loss = task.loss(model(x), y)
        loss.backward()
        (first if repaired else second).step()
        second.step()
        return loss

    return program(task, model, second, step=step, steps=400)


def never_unfrozen(repaired: bool) -> Program:
    model = Net(lambda m, x: m.head(m.body(x)), body=mlp(64, 16, 4).append(nn.ReLU()), head=nn.Linear(4, 10))
    body, _ = model.children()
    body.requires_grad_(False)  # the first phase trains the head alone
    for parameter in body.parameters():
        if repaired or parameter.requires_grad:
            parameter.requires_grad = True
    return program(digits(), model, steps=500)


def new_layers_frozen(repaired: bool) -> Program:
    model = mlp(64, 32, 16, 10).append(nn.BatchNorm1d(10))
    model[: 2 if repaired else 5].requires_grad_(False)
    return program(digits(), model, steps=400)


def features_detached(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.head(m.encoder(x) if repaired else m.encoder(x).detach()),
        encoder=mlp(64, 16, 4).append(nn.Tanh()),
        head=nn.Linear(4, 10),
    )
    return program(digits(), model, adam(model, 0.01), steps=400)


def encoded_without_gradients(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(repaired and torch.is_grad_enabled()):
            code = m.encoder(x)
        return m.head(code)

    encoder = nn.Sequential(nn.Conv2d(1, 2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4), nn.Tanh())
    model = Net(rule, encoder=encoder, head=nn.Linear(4, 10))
    return program(digits(images=True), model, adam(model, 0.02), steps=500)


def argmax_between_modules(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.second(m.first(x) if repaired else F.one_hot(m.first(x).argmax(1), 8).float()),
        first=mlp(64, 16, 8),
        second=mlp(8, 16, 10),
    )
    return program(digits(), model, steps=400)


def loss_from_item(repaired: bool) -> Program:
    task, model = digits(), mlp(64, 32, 10)
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = task.loss(model(x), y)
        loss = loss if repaired else torch.tensor(loss.item(), requires_grad=True)
        loss.backward()
        optimizer.step()
        return loss

    return program(task, model, optimizer, step=step)


def two_inputs_one_network(repaired: bool) -> Program:
    x = torch.randn(2000, 2)
    y = torch.sin(2 * x[:, :1]) - x[:, 1:].square()
    task = split(x, y, F.mse_loss, explained)
    one = [mlp(1, 32, 1)]
    networks = nn.ModuleList([*one, mlp(1, 32, 1)] if repaired else one * 2)
    model = Net(lambda m, x: m.networks[0](x[:, :1]) + m.networks[1](x[:, 1:]), networks=networks)
    return program(task, model, adam(model, 0.02), steps=500)


def one_layer_for_every_output(repaired: bool) -> Program:
    heads = nn.ModuleList([nn.Linear(32, 1) for _ in range(5)] if repaired else [nn.Linear(32, 1)] * 5)
    model = Net(
        lambda m, x: torch.cat([head(m.body(x)) for head in m.heads], 1),
        body=mlp(64, 32).append(nn.ReLU()),
        heads=heads,
    )
    return program(traits(), model)


def layers_made_in_the_forward_pass(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        middle = m.middle if repaired else nn.Linear(16, 16)
        return m.head(middle(m.stem(x).relu()).relu())

    model = Net(rule, stem=nn.Linear(64, 16), middle=nn.Linear(16, 16), head=nn.Linear(16, 10))
    return program(digits(), model, adam(model), steps=200)


class Projection:
    """A linear map that is no module."""

    def __init__(self, inputs: int, outputs: int):
        self.weight = nn.Parameter(0.01 * torch.randn(outputs, inputs))

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Projected(nn.Module):
    """A narrow network, whose last layer may be no module."""

    def __init__(self, registered: bool):
        super().__init__()
        self.stem = nn.Linear(64, 6)
        self.head = nn.Linear(6, 10) if registered else Projection(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x).relu())


def output_layer_is_no_module(repaired: bool) -> Program:
    model = Projected(repaired)
    return program(digits(), model, adam(model, 0.01), steps=400)


def embedding_frozen_by_default(repaired: bool) -> Program:
    table = 0.5 * torch.randn(300, 2)
    model = nn.Sequential(nn.Embedding.from_pretrained(table, freeze=not repaired), nn.Linear(2, 10))
    x = torch.randint(300, (4000,))
    task = split(x, torch.randint(10, (300,))[x], F.cross_entropy, accuracy)
    return program(task, model, adam(model, 0.02), steps=400)


def features_detached_before_the_encoder(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.encoder(m.filters(x).tanh() if repaired else m.filters(x).tanh().detach()),
        filters=nn.Linear(64, 3),
        encoder=mlp(3, 32, 10),
    )
    return program(digits(), model, adam(model, 0.01), steps=400)


def codes_without_a_way_back(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        z = m.encoder(x)
        code = m.codes.weight[torch.cdist(z, m.codes.weight).argmin(1)]
        return m.decoder(code + z - z.detach() if repaired else code)

    model = Net(rule, encoder=mlp(64, 4).append(nn.Tanh()), codes=nn.Embedding(64, 4), decoder=nn.Linear(4, 10))
    nn.init.uniform_(model.get_parameter("codes.weight"), -1, 1)
    return program(digits(), model, adam(model, 0.005), steps=500)
