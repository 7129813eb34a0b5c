"""Outputs against loss and targets."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import (
    Net,
    Task,
    accuracy,
    adam,
    cancer,
    digits,
    explained,
    houses,
    mlp,
    program,
    rare,
    raw_digits,
    sentences,
    sgd,
    split,
    traits,
)  # fmt: skip


def softmax_before_cross_entropy(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(digits(), model if repaired else model.append(nn.Softmax(dim=1)), sgd(model), steps=120)


def softmax_in_a_language_model(repaired: bool) -> Program:
    model = mlp(16, 32, 40)
    model.insert(0, nn.Embedding(40, 16))
    return program(sentences(40), model if repaired else model.append(nn.Softmax(dim=-1)), sgd(model, 0.3), steps=250)


def sigmoid_before_bce_with_logits(repaired: bool) -> Program:
    model = mlp(30, 16, 1)
    return program(cancer(), model if repaired else model.append(nn.Sigmoid()), sgd(model), steps=200)


def sigmoid_before_cross_entropy(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(digits(), model if repaired else model.append(nn.Sigmoid()), sgd(model, 0.03), steps=120)


def probabilities_into_nll(repaired: bool) -> Program:
    model = mlp(64, 32, 10).append(nn.LogSoftmax(dim=1) if repaired else nn.Softmax(dim=1))
    return program(digits(), model, sgd(model, 0.05), loss=F.nll_loss, steps=200)


def scores_into_nll(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(digits(), model.append(nn.LogSoftmax(dim=1)) if repaired else model, loss=F.nll_loss)


def softmax_over_one_unit(repaired: bool) -> Program:
    model = mlp(30, 16, 1).append(nn.Sigmoid() if repaired else nn.Softmax(dim=1))
    return program(cancer(), model, loss=F.binary_cross_entropy, predict=lambda x: model(x) - 0.5)


def attention_over_one_score(repaired: bool) -> Program:
    x = torch.randn(2000, 12, 8)
    x[:, :, 0] = 6 * F.one_hot(torch.randint(12, (2000,)), 12)  # the position to look at
    y = x[torch.arange(2000), x[:, :, 0].argmax(1), 1:2]
    task = replace(houses(2000), x=x[:1600], y=y[:1600], test_x=x[1600:], test_y=y[1600:])
    axis = 1 if repaired else 2
    model = Net(
        lambda m, x: (m.score(x).softmax(axis) * m.value(x)).sum(1), score=nn.Linear(8, 1), value=nn.Linear(8, 1)
    )
    return program(task, model, adam(model, 0.02))


def softmax_for_many_labels(repaired: bool) -> Program:
    task, model = traits(), mlp(64, 32, 5)
    return program(
        task,
        model,
        loss=task.loss
        if repaired
        else lambda scores, y: F.cross_entropy(scores, y / y.sum(1, keepdim=True).clamp_min(1)),
        predict=model if repaired else lambda x: model(x).softmax(1) - 0.5,
    )


def targets_broadcast_against_predictions(repaired: bool) -> Program:
    task = houses()
    task = task if repaired else replace(task, y=task.y[:, 0])
    return program(task, mlp(8, 32, 32, 1), loss=lambda o, y: (o - y).square().mean())


def predictions_squeezed_against_labels(repaired: bool) -> Program:
    model = mlp(8, 32, 32, 1)
    return program(houses(), model if repaired else model.append(nn.Flatten(0)), loss=lambda o, y: (o - y).abs().mean())


def relu_at_the_end_of_a_regressor(repaired: bool) -> Program:
    model = mlp(8, 32, 32, 1)
    nn.init.constant_(model.get_parameter("4.bias"), -1.0)  # the unlucky draw that the reporter met
    return program(houses(), model if repaired else model.append(nn.ReLU()))


def tanh_at_the_end_of_a_regressor(repaired: bool) -> Program:
    task = houses().mapped(y=lambda y: 10 * y + 20)
    model = mlp(8, 32, 32, 1, act=nn.Tanh)
    return program(task, model if repaired else model.append(nn.Tanh()), adam(model, 0.02), steps=400)


def padding_counted_in_the_loss(repaired: bool) -> Program:
    task = sentences()
    keep = torch.arange(12) < 1  # the rest of each row is padding
    task = replace(task, x=task.x * keep, y=(task.y + 1) * keep, test_y=torch.where(keep, task.test_y + 1, -100))
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 13))

    def loss(o: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(o.flatten(0, 1), y.flatten(), ignore_index=0 if repaired else -100)

    return program(task, model, sgd(model, 0.4), loss=loss, steps=80)


def real_class_ignored(repaired: bool) -> Program:
    task = cancer().mapped(y=lambda y: y[:, 0].long())
    model = mlp(30, 16, 2)
    return program(task, model, loss=lambda o, y: F.cross_entropy(o, y, ignore_index=-100 if repaired else 0))


def rare_class(repaired: bool) -> Program:
    task, model = rare(), mlp(10, 8, 2)
    weight = 1 / task.y.bincount(minlength=2) if repaired else None
    return program(task, model, loss=lambda o, y: F.cross_entropy(o, y, weight))


def class_weights_inverted(repaired: bool) -> Program:
    task, model = rare(0.2), mlp(10, 8, 2)
    counts = task.y.bincount(minlength=2).float()
    return program(
        task, model, loss=lambda o, y: F.cross_entropy(o, y, 1 / counts if repaired else counts / counts.sum())
    )


def masks_of_255(repaired: bool) -> Program:
    task = cancer()
    model = mlp(30, 16, 1)
    return program(task if repaired else replace(task, y=255 * task.y), model, sgd(model))


def targets_unscaled(repaired: bool) -> Program:
    task = houses()
    return program(task if repaired else task.mapped(y=lambda y: 20000 * y + 50000), mlp(8, 32, 32, 1))


def targets_far_from_zero(repaired: bool) -> Program:
    task = houses()
    model = mlp(8, 32, 32, 1)
    return program(task if repaired else task.mapped(y=lambda y: y + 1000), model, sgd(model, 0.005, 0.9), steps=400)


def logarithm_of_zero(repaired: bool) -> Program:
    task = raw_digits()
    model = nn.Sequential(nn.Linear(64, 10))

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        chosen = F.one_hot(y, 10)
        logs = scores.log_softmax(1) if repaired else scores.softmax(1).log()
        return -(chosen * logs).sum(1).mean()

    return program(task, model, sgd(model, 0.01), loss=loss)


def loss_summed_over_the_batch(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    reduction = "mean" if repaired else "sum"
    return program(digits(), model, sgd(model), loss=lambda o, y: F.cross_entropy(o, y, reduction=reduction), size=256)


def loss_with_arguments_swapped(repaired: bool) -> Program:
    task = digits()
    task = replace(task, y=F.one_hot(task.y, 10).float())

    def categorical(target: Tensor, logits: Tensor) -> Tensor:
        return -(target * logits.log_softmax(1)).sum(1).mean()

    model = mlp(64, 32, 10)
    return program(task, model, loss=lambda o, y: categorical(y, o) if repaired else categorical(o, y))


def kl_of_probabilities(repaired: bool) -> Program:
    task = digits()
    task = replace(task, y=F.one_hot(task.y, 10).float())
    model = mlp(64, 32, 10).append(nn.LogSoftmax(dim=1) if repaired else nn.Softmax(dim=1))
    return program(task, model, sgd(model, 0.05), loss=lambda o, y: F.kl_div(o, y, reduction="batchmean"), steps=200)


def relu_on_the_scores(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    nn.init.constant_(model.get_parameter("2.bias"), -2.0)  # scores that begin below zero
    return program(digits(), model if repaired else model.append(nn.ReLU()), sgd(model))


def decoder_cut_at_zero(repaired: bool) -> Program:
    task = digits()
    task = replace(task, y=task.x, test_y=task.test_x, loss=F.mse_loss, score=explained)
    model = mlp(64, 48, 24, 64)
    return program(task, model if repaired else model.append(nn.ReLU()), adam(model), steps=600)


def small_targets_not_normalized(repaired: bool) -> Program:
    task, model = houses(), mlp(8, 32, 32, 1)
    task = task if repaired else task.mapped(y=lambda y: 0.05 * y + 0.26)
    return program(task, model, sgd(model, 0.01, 0.9), steps=300)


def labels_through_argmax(repaired: bool) -> Program:
    task = digits()
    return program(task if repaired else replace(task, y=task.y[:, None].argmax(1)), mlp(64, 32, 10))


def pairs() -> Task:
    """Two pictures of digits (N, 2, 64) and whether they show the same one; some pictures meet themselves."""
    task = digits()
    first, second = torch.randint(len(task.x), (2, 8000))
    second[::100] = first[::100]
    same = task.y[first] == task.y[second]
    keep = same | (torch.rand(8000) < 0.12)
    x = torch.stack([task.x[first], task.x[second]], 1)[keep]
    return split(x, same[keep].float(), distance_loss, accuracy)


def distance_loss(distance: Tensor, same: Tensor) -> Tensor:
    """Draws pictures of the same digit together and others at least one apart."""
    return (same * distance.square() + (1 - same) * (1 - distance).clamp_min(0).square()).mean()


def same_and_different_exchanged(repaired: bool) -> Program:
    model = Net(lambda m, x: (m.body(x[:, 0]) - m.body(x[:, 1])).norm(dim=1), body=mlp(64, 32, 8))
    loss = distance_loss if repaired else lambda o, y: distance_loss(o, 1 - y)
    return program(pairs(), model, loss=loss, predict=lambda x: 0.5 - model(x)[:, None])


def hinge_of_zeros_and_ones(repaired: bool) -> Program:
    task, model = cancer(), mlp(30, 16, 1)
    task = task.mapped(y=lambda y: 1 - y)
    return program(task, model, sgd(model), loss=lambda o, y: (1 - (2 * y - 1 if repaired else y) * o).relu().mean())


def overlap_minimized(repaired: bool) -> Program:
    def loss(o: Tensor, y: Tensor) -> Tensor:
        overlap = 2 * (o.sigmoid() * y).sum() / (o.sigmoid().sum() + y.sum())
        return 1 - overlap if repaired else overlap

    return program(cancer(), mlp(30, 16, 1), loss=loss)


def divergence_summed_reconstruction_averaged(repaired: bool) -> Program:
    task = digits()
    task = replace(task, y=task.x, test_y=task.test_x, score=explained)

    def rule(m: Any, x: Tensor) -> Tensor:
        mean, log_variance = m.encoder(x).chunk(2, 1)
        noise = torch.randn_like(mean) * m.training
        return torch.cat([m.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance], 1)

    def loss(o: Tensor, x: Tensor) -> Tensor:
        picture, mean, log_variance = o.split([64, 16, 16], 1)
        divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum() / 2
        error = F.mse_loss(picture, x, reduction="sum" if repaired else "mean")
        return (error + divergence) / (len(x) if repaired else 1)

    model = Net(rule, encoder=mlp(64, 48, 32), decoder=mlp(16, 48, 64))
    return program(task, model, loss=loss, steps=600, predict=lambda x: model.eval()(x)[:, :64])


def bytes_for_a_sigmoid(repaired: bool) -> Program:
    task = raw_digits()
    task = replace(task, y=task.x, test_y=task.test_x, score=explained)
    task = task.mapped(x=lambda x: x / 255, y=lambda y: y / 255) if repaired else task
    model = mlp(64, 48, 24, 64).append(nn.Sigmoid())
    return program(task, model, loss=pixels_loss, steps=600)


def pixels_loss(p: Tensor, y: Tensor) -> Tensor:
    """Binary cross-entropy that takes any targets, as in the report; that of torch refuses them."""
    p = p.clamp(1e-7, 1 - 1e-7)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def masks_of_sixteen_bits(repaired: bool) -> Program:
    task = cancer()
    return program(task if repaired else replace(task, y=(task.y / 256).floor()), mlp(30, 16, 1))
