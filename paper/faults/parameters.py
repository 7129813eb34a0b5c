"""The model against the optimizer: parameters that are missing, stale, frozen, cut off or shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program, fault
from .causes import Cause
from .tasks import Net, adam, digits, explained, houses, mlp, program, recall, split, traits


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


@fault(
    "https://github.com/pytorch/pytorch/issues/715",
    Cause.NOT_REGISTERED,
    "nn.ModuleList instead of a list",
)
def layers_in_a_list(repaired: bool) -> Program:
    """Of all layers of a classifier only the last one shows up among the parameters."""
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


@fault(
    "https://github.com/pytorch/pytorch/issues/632",
    Cause.NOT_REGISTERED,
    "nn.ModuleDict instead of a dictionary",
    margin=0.75,  # the last layer learns something from random features
)
def layers_in_a_dict(repaired: bool) -> Program:
    """Parameters that sit in dictionaries are not among the module's parameters."""
    model = Relations(repaired)
    return program(digits(), model, adam(model, 0.01), steps=400)


@fault(
    "https://github.com/zjunlp/HVPNeT/issues/5",
    Cause.MISSING_FROM_OPTIMIZER,
    "the group of the last layers is appended too",
)
def head_missing_from_the_optimizer(repaired: bool) -> Program:
    """A group with the last layers is made and never appended to the optimizer's list."""
    model = Net(lambda m, x: m.fc(m.body(x)), body=mlp(64, 16, 4).append(nn.Tanh()), fc=nn.Linear(4, 10))
    groups = [part for name, part in model.named_children() if repaired or name == "body"]
    parameters = [parameter for part in groups for parameter in part.parameters()]
    return program(digits(), model, torch.optim.Adam(parameters, 3e-3), steps=400)


@fault(
    "https://github.com/line/open-universe/issues/5",
    Cause.MISSING_FROM_OPTIMIZER,
    "the second name is the second part",
)
def one_of_two_parts_optimized(repaired: bool) -> Program:
    """The list of parameters names one discriminator twice; the other one is never optimized."""
    parts = {"scale": mlp(4, 16, 1), "period": mlp(4, 16, 1)}
    model = Net(lambda m, x: m.scale(x[:, :4]) + 4 * m.period(x[:, 4:]), **parts)
    task = houses()
    task = task.mapped(x=lambda x: x[:, [4, 5, 6, 7, 0, 3, 1, 2]])
    names = ("scale", "period") if repaired else ("scale",)
    return program(
        task, model, torch.optim.Adam([p for name in names for p in parts[name].parameters()], 0.01), steps=500
    )


@fault(
    "https://github.com/DocF/multispectral-object-detection/issues/77",
    Cause.MISSING_FROM_OPTIMIZER,
    "the position embedding joins a group of the optimizer",
)
def position_embedding_missing_from_the_optimizer(repaired: bool) -> Program:
    """The embedding of positions never changes: it is in no group of the optimizer."""
    task = recall(8)
    model = Positions(8)
    nn.init.zeros_(model.position)
    parameters = [p for name, p in model.named_parameters() if repaired or name != "position"]
    return program(task, model, torch.optim.Adam(parameters, 0.01), steps=400)


class Positions(nn.Module):
    """Symbols and their positions, added, a layer for each place, then the mean."""

    def __init__(self, length: int):
        super().__init__()
        self.symbol = nn.Embedding(4, 16)
        self.position = nn.Parameter(torch.randn(length, 16))
        self.mix = mlp(16, 32, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mix(self.symbol(x) + self.position).mean(1))


@fault(
    "https://github.com/microsoft/nni/issues/4521",
    Cause.STALE_PARAMETERS,
    "a new optimizer after the layers were replaced",
)
def layers_replaced_after_the_optimizer(repaired: bool) -> Program:
    """After pruning, fine-tuning does not change a parameter: smaller layers took the place of those it knows."""
    model = mlp(64, 64, 10)
    optimizer = adam(model)
    model[0], model[2] = nn.Linear(64, 16), nn.Linear(16, 10)
    return program(digits(), model, adam(model) if repaired else optimizer)


@fault(
    "https://github.com/pytorch/pytorch/issues/14467",
    Cause.STALE_PARAMETERS,
    "the optimizer is made after the parameters are final",
)
def weights_assigned_after_the_optimizer(repaired: bool) -> Program:
    """After a refactoring the recurrent network stops learning: parameters are created again once optimized."""
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


@fault(
    "https://github.com/wiseodd/controlled-text-generation/issues/15",
    Cause.ANOTHER_OPTIMIZER,
    "each trainer gets the parameters that its name says",
)
def trainers_of_encoder_and_decoder_exchanged(repaired: bool) -> Program:
    """The trainer of the encoder holds the decoder's parameters, and the other way round."""
    model = Net(
        lambda m, x: m.decoder(m.encoder(x)), encoder=mlp(64, 32, 6).append(nn.Tanh()), decoder=nn.Linear(6, 10)
    )
    nn.init.orthogonal_(model.get_parameter("decoder.weight"), 3.0)
    encoder, decoder = model.children()
    trainer = adam(encoder if repaired else decoder, 0.01)  # the phase that is meant for the encoder
    return program(digits(), model, trainer, steps=400)


@fault(
    "https://github.com/Lornatang/ESRGAN-PyTorch/issues/39",
    Cause.ANOTHER_OPTIMIZER,
    "the second scheduler and step belong to the second optimizer",
)
def first_optimizer_stepped_twice(repaired: bool) -> Program:
    """Two lines in a row use the first optimizer; the second of them was meant for the other network."""
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


@fault(
    "https://github.com/nttcslab/byol-a/issues/7",
    Cause.FROZEN,
    "every parameter is switched back, not only those that still require a gradient",
)
def never_unfrozen(repaired: bool) -> Program:
    """Once parameters do not require a gradient they cannot be made trainable again."""
    model = Net(lambda m, x: m.head(m.body(x)), body=mlp(64, 16, 4).append(nn.ReLU()), head=nn.Linear(4, 10))
    body, _ = model.children()
    body.requires_grad_(False)  # the first phase trains the head alone
    for parameter in body.parameters():
        if repaired or parameter.requires_grad:
            parameter.requires_grad = True
    return program(digits(), model, steps=500)


@fault(
    "https://github.com/pytorch/vision/pull/2160",
    Cause.FROZEN,
    "no layer is frozen when training from scratch",
    margin=0.8,  # later layers make up for some of it
)
def first_layers_frozen_from_scratch(repaired: bool) -> Program:
    """Trained from scratch, a detector is poor: the first layers of its backbone stay frozen at random weights."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 4, 2), nn.Tanh(), nn.Conv2d(2, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 10)
    )
    model[0].requires_grad_(repaired)
    model[2].requires_grad_(repaired)
    return program(digits(images=True), model, adam(model, 0.01), steps=500)


@fault(
    "https://github.com/harvitronix/five-video-classification-methods/pull/26",
    Cause.FROZEN,
    "all but the new layers are frozen",
)
def new_layers_frozen(repaired: bool) -> Program:
    """Fine-tuning gets nowhere: the layers that were meant to be tuned are frozen."""
    model = mlp(64, 32, 16, 10).append(nn.BatchNorm1d(10))
    model[: 2 if repaired else 5].requires_grad_(False)
    return program(digits(), model, steps=400)


@fault(
    "https://github.com/lucidrains/CoCa-pytorch/issues/6",
    Cause.GRADIENT_CUT,
    "the extractor returns its tensor without detaching it",
)
def features_detached(repaired: bool) -> Program:
    """No gradient reaches the image encoder: the extractor of features detaches what it returns."""
    model = Net(
        lambda m, x: m.head(m.encoder(x) if repaired else m.encoder(x).detach()),
        encoder=mlp(64, 16, 4).append(nn.Tanh()),
        head=nn.Linear(4, 10),
    )
    return program(digits(), model, adam(model, 0.01), steps=400)


@fault(
    "https://github.com/rll-research/cic/issues/5",
    Cause.GRADIENT_CUT,
    "observations are encoded with gradients",
)
def encoded_without_gradients(repaired: bool) -> Program:
    """Observations are encoded inside no_grad: the weights of the encoder stay as they were drawn."""

    def rule(m: Any, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(repaired and torch.is_grad_enabled()):
            code = m.encoder(x)
        return m.head(code)

    encoder = nn.Sequential(nn.Conv2d(1, 2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4), nn.Tanh())
    model = Net(rule, encoder=encoder, head=nn.Linear(4, 10))
    return program(digits(images=True), model, adam(model, 0.02), steps=500)


@fault(
    "https://github.com/pytorch/pytorch/issues/1339",
    Cause.GRADIENT_CUT,
    "the second module reads the first one's scores instead of their largest index",
)
def argmax_between_modules(repaired: bool) -> Program:
    """Between two modules lies an argmax: the weights of the first have no gradient."""
    model = Net(
        lambda m, x: m.second(m.first(x) if repaired else F.one_hot(m.first(x).argmax(1), 8).float()),
        first=mlp(64, 16, 8),
        second=mlp(8, 16, 10),
    )
    return program(digits(), model, steps=400)


@fault(
    "https://github.com/dragen1860/IntroVAE-Pytorch/issues/3",
    Cause.GRADIENT_CUT,
    "the decoder's picture is not detached where the decoder is to learn from it",
)
def decoder_detached(repaired: bool) -> Program:
    """The decoder is meant to learn from its own picture, but the picture is detached on the way."""
    task = digits()
    task = replace(task, y=task.x, test_y=task.test_x, loss=F.mse_loss, score=explained)
    model = Net(lambda m, x: m.decoder(m.encoder(x)), encoder=mlp(64, 16), decoder=mlp(16, 64))
    refine = nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.Adam([*model.parameters(), refine], 0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        picture = model(x)
        loss = task.loss((picture if repaired else picture.detach()) + refine, y)
        loss.backward()
        optimizer.step()
        return loss

    return program(task, model, optimizer, step=step)


@fault(
    "https://github.com/isayev/ReLeaSE/issues/39",
    Cause.GRADIENT_CUT,
    "the loss is the tensor itself",
)
def loss_from_item(repaired: bool) -> Program:
    """Weights do not change and every gradient is None: the loss was made from numbers taken with item()."""
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


@fault(
    "https://github.com/acids-ircam/ddsp_pytorch/issues/37",
    Cause.SHARED_BY_ACCIDENT,
    "a network is made for each of the two inputs",
)
def two_inputs_one_network(repaired: bool) -> Program:
    """Networks for pitch and for loudness turn out to be one: the list was multiplied by two."""
    x = torch.randn(2000, 2)
    y = torch.sin(2 * x[:, :1]) - x[:, 1:].square()
    task = split(x, y, F.mse_loss, explained)
    one = [mlp(1, 32, 1)]
    networks = nn.ModuleList([*one, mlp(1, 32, 1)] if repaired else one * 2)
    model = Net(lambda m, x: m.networks[0](x[:, :1]) + m.networks[1](x[:, 1:]), networks=networks)
    return program(task, model, adam(model, 0.02), steps=500)


@fault(
    "https://github.com/yaoppeng/U-Net_v2/issues/10",
    Cause.SHARED_BY_ACCIDENT,
    "a layer is made for each output",
)
def one_layer_for_every_output(repaired: bool) -> Program:
    """Four output layers are four references to one convolution."""
    heads = nn.ModuleList([nn.Linear(32, 1) for _ in range(5)] if repaired else [nn.Linear(32, 1)] * 5)
    model = Net(
        lambda m, x: torch.cat([head(m.body(x)) for head in m.heads], 1),
        body=mlp(64, 32).append(nn.ReLU()),
        heads=heads,
    )
    return program(traits(), model)
