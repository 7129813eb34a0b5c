"""Outputs against loss and targets."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program, fault
from .causes import Cause
from .tasks import Net, adam, cancer, digits, houses, mlp, program, rare, raw_digits, sentences, sgd, traits


@fault(
    "https://github.com/illiterate/BertClassifier/issues/2",
    Cause.PROBABILITIES_AS_LOGITS,
    "the model returns its scores without softmax",
)
def softmax_before_cross_entropy(repaired: bool) -> Program:
    """The loss falls very slowly and predictions lean to the largest class."""
    model = mlp(64, 32, 10)
    return program(digits(), model if repaired else model.append(nn.Softmax(dim=1)), sgd(model), steps=200)


@fault(
    "https://github.com/bkitano/llama-from-scratch/issues/5",
    Cause.PROBABILITIES_AS_LOGITS,
    "cross-entropy gets the linear layer's output",
)
def softmax_in_a_language_model(repaired: bool) -> Program:
    """A first language model whose logits went through softmax: its loss stays far above what one table would reach."""
    model = mlp(16, 32, 40)
    model.insert(0, nn.Embedding(40, 16))
    return program(sentences(40), model if repaired else model.append(nn.Softmax(dim=-1)), sgd(model, 0.3), steps=250)


@fault(
    "https://github.com/yudi-mars/daisyRec/pull/15",
    Cause.PROBABILITIES_AS_LOGITS,
    "the sigmoid before the loss of logits is gone",
)
def sigmoid_before_bce_with_logits(repaired: bool) -> Program:
    """The loss does not converge: after a second sigmoid no score is below one half."""
    model = mlp(30, 16, 1)
    return program(cancer(), model if repaired else model.append(nn.Sigmoid()), sgd(model), steps=200)


@fault(
    "https://github.com/avBuffer/UNet3plus_pth/issues/23",
    Cause.PROBABILITIES_AS_LOGITS,
    "the network returns the last map without a sigmoid",
)
def double_sigmoid_for_masks(repaired: bool) -> Program:
    """A segmentation network ends in a sigmoid and its loss applies another: the loss does not decrease."""
    task = digits(images=True)
    task = replace(
        task.mapped(y=lambda y: y[:, None].float()), y=(task.x > 0).float(), test_y=(task.test_x > 0).float()
    )
    task = replace(task, loss=F.binary_cross_entropy_with_logits, score=_masks)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    return program(task, model if repaired else model.append(nn.Sigmoid()), sgd(model), steps=150)


def _masks(outputs: Tensor, targets: Tensor) -> float:
    """Pixels that are right, above the larger class."""
    most = max(float(targets.mean()), 1 - float(targets.mean()))
    return (float(((outputs > 0) == (targets > 0.5)).float().mean()) - most) / (1 - most)


@fault(
    "https://github.com/eriklindernoren/PyTorch-YOLOv3/issues/108",
    Cause.PROBABILITIES_AS_LOGITS,
    "class scores go to cross-entropy without a sigmoid",
)
def sigmoid_before_cross_entropy(repaired: bool) -> Program:
    """The class loss never comes near zero, not even with a single image as training set."""
    model = mlp(64, 32, 10)
    return program(digits(), model if repaired else model.append(nn.Sigmoid()), sgd(model, 0.03), steps=120)


@fault(
    "https://github.com/AnubhavGupta3377/Text-Classification-Models-Pytorch/issues/9",
    Cause.NOT_LOG_PROBABILITIES,
    "log-softmax instead of softmax before the negative log-likelihood",
)
def probabilities_into_nll(repaired: bool) -> Program:
    """The loss is negative at all times."""
    model = mlp(64, 32, 10).append(nn.LogSoftmax(dim=1) if repaired else nn.Softmax(dim=1))
    return program(digits(), model, sgd(model, 0.05), loss=F.nll_loss, steps=200)


@fault(
    "https://github.com/yanx27/Pointnet_Pointnet2_pytorch/issues/30",
    Cause.NOT_LOG_PROBABILITIES,
    "log-softmax before the negative log-likelihood",
)
def scores_into_nll(repaired: bool) -> Program:
    """The label loss becomes negative and keeps falling: raw scores went where log-probabilities belong."""
    model = mlp(64, 32, 10)
    return program(digits(), model.append(nn.LogSoftmax(dim=1)) if repaired else model, loss=F.nll_loss)


@fault(
    "https://github.com/sebastian-hofstaetter/matchmaker/issues/18",
    Cause.NOT_LOG_PROBABILITIES,
    "log-softmax of the student's scores",
)
def student_without_log(repaired: bool) -> Program:
    """The student of a distillation learns little: the divergence got its probabilities instead of their logarithms."""
    task = digits()
    soft = replace(task, y=F.one_hot(task.y, 10).float() * 0.9 + 0.01)

    def loss(scores: Tensor, teacher: Tensor) -> Tensor:
        student = scores.log_softmax(-1) if repaired else scores.softmax(-1)
        return F.kl_div(student, teacher, reduction="batchmean")

    model = mlp(64, 32, 10)
    return program(soft, model, sgd(model, 0.05), loss=loss, steps=200)


@fault(
    "https://github.com/keras-team/keras/issues/126",
    Cause.SOFTMAX_OVER_ONE,
    "a sigmoid for the single unit",
)
def softmax_over_one_unit(repaired: bool) -> Program:
    """The loss does not improve and every probability is exactly one."""
    model = mlp(30, 16, 1).append(nn.Sigmoid() if repaired else nn.Softmax(dim=1))
    return program(cancer(), model, loss=F.binary_cross_entropy, predict=lambda x: model(x) - 0.5)


@fault(
    "https://github.com/DEEP-PolyU/KEQA_WSDM19/issues/2",
    Cause.SOFTMAX_OVER_ONE,
    "softmax over the positions instead of the axis of length one",
)
def attention_over_one_score(repaired: bool) -> Program:
    """Every attention weight is 1: softmax ran over the one score of each position."""
    x = torch.randn(2000, 12, 8)
    x[:, :, 0] = 6 * F.one_hot(torch.randint(12, (2000,)), 12)  # the position to look at
    y = x[torch.arange(2000), x[:, :, 0].argmax(1), 1:2]
    task = replace(houses(2000), x=x[:1600], y=y[:1600], test_x=x[1600:], test_y=y[1600:])
    axis = 1 if repaired else 2
    model = Net(
        lambda m, x: (m.score(x).softmax(axis) * m.value(x)).sum(1), score=nn.Linear(8, 1), value=nn.Linear(8, 1)
    )
    return program(task, model, adam(model, 0.02))


@fault(
    "https://github.com/open-mmlab/mmpretrain/issues/783",
    Cause.EXCLUSIVE_LOSS_FOR_MANY_LABELS,
    "a sigmoid and binary cross-entropy for each label",
)
def softmax_for_many_labels(repaired: bool) -> Program:
    """Images that carry several labels were trained with softmax cross-entropy; answers are often wrong."""
    task, model = traits(), mlp(64, 32, 5)
    return program(
        task,
        model,
        loss=task.loss
        if repaired
        else lambda scores, y: F.cross_entropy(scores, y / y.sum(1, keepdim=True).clamp_min(1)),
        predict=model if repaired else lambda x: model(x).softmax(1) - 0.5,
    )


@fault(
    "https://github.com/jsboige/CoursIA/pull/926",
    Cause.BROADCAST_IN_LOSS,
    "targets get the predictions' shape",
)
def targets_broadcast_against_predictions(repaired: bool) -> Program:
    """A warning about sizes (64,) and (64, 1), and none of 96 runs of four networks beats the baseline."""
    task = houses()
    task = task if repaired else replace(task, y=task.y[:, 0])
    return program(task, mlp(8, 32, 32, 1), loss=lambda o, y: (o - y).square().mean())


@fault(
    "https://github.com/deepset-ai/FARM/issues/229",
    Cause.BROADCAST_IN_LOSS,
    "predictions keep their last axis",
)
def predictions_squeezed_against_labels(repaired: bool) -> Program:
    """The head of a regression squeezes its output, the labels stay (32, 1), and the loss stays high."""
    model = mlp(8, 32, 32, 1)
    return program(houses(), model if repaired else model.append(nn.Flatten(0)), loss=lambda o, y: (o - y).abs().mean())


@fault(
    "https://github.com/ProteomicsML/ProteomicsML/pull/203",
    Cause.BOUNDED_END,
    "the last layer is linear",
)
def relu_at_the_end_of_a_regressor(repaired: bool) -> Program:
    """The network returns 0 for every peptide of the validation set."""
    model = mlp(8, 32, 32, 1)
    nn.init.constant_(model[-1].bias, -1.0)  # the unlucky draw that the reporter met
    return program(houses(), model if repaired else model.append(nn.ReLU()))


@fault(
    "https://github.com/UC-IIC2613/Syllabus/issues/208",
    Cause.BOUNDED_END,
    "no activation after the last layer",
)
def tanh_at_the_end_of_a_regressor(repaired: bool) -> Program:
    """With tanh the network does not train unless the activation of the last layer is taken away."""
    task = houses().mapped(y=lambda y: 10 * y + 20)
    model = mlp(8, 32, 32, 1, act=nn.Tanh)
    return program(task, model if repaired else model.append(nn.Tanh()), adam(model, 0.02), steps=400)


@fault(
    "https://github.com/fastai/fastai/pull/965",
    Cause.BOUNDED_END,
    "logits without a rectifier",
    margin=0.9,  # classes whose logit starts dead are lost, the others are learned
)
def relu_on_logits(repaired: bool) -> Program:
    """A rectifier after the last layer: without it accuracy rises by a tenth."""
    model = mlp(64, 16, 10)
    return program(digits(), model if repaired else model.append(nn.ReLU()), adam(model, 0.03))


@fault(
    "https://github.com/lukas-blecher/LaTeX-OCR/issues/305",
    Cause.PADDING_IN_LOSS,
    "ignore_index is the index of padding",
)
def padding_counted_in_the_loss(repaired: bool) -> Program:
    """Cross-entropy ignores index -100 while padding is index 0: most of the loss is about padding."""
    task = sentences()
    keep = torch.arange(12) < 1  # the rest of each row is padding
    task = replace(task, x=task.x * keep, y=(task.y + 1) * keep, test_y=torch.where(keep, task.test_y + 1, -100))
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 13))

    def loss(o: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(o.flatten(0, 1), y.flatten(), ignore_index=0 if repaired else -100)

    return program(task, model, sgd(model, 0.4), loss=loss, steps=80)


@fault(
    "https://github.com/lucidrains/DALLE-pytorch/issues/57",
    Cause.CLASS_IGNORED,
    "an index that is no class is ignored",
)
def real_class_ignored(repaired: bool) -> Program:
    """With ignore_index = 0 for padding, codes whose number is 0 would be ignored too."""
    task = cancer().mapped(y=lambda y: y[:, 0].long())
    model = mlp(30, 16, 2)
    return program(task, model, loss=lambda o, y: F.cross_entropy(o, y, ignore_index=-100 if repaired else 0))


@fault(
    "https://github.com/abhuse/polyloss-pytorch/issues/5",
    Cause.RARE_CLASS,
    "weights inverse to the classes' frequencies",
    reach=0.3,  # the classes overlap
)
def rare_class(repaired: bool) -> Program:
    """All predictions on validation data are the majority class."""
    task, model = rare(), mlp(10, 8, 2)
    weight = 1 / task.y.bincount(minlength=2) if repaired else None
    return program(task, model, loss=lambda o, y: F.cross_entropy(o, y, weight))


@fault(
    "https://github.com/amanshenoy/multilogue-net/issues/21",
    Cause.RARE_CLASS,
    "the weights of both classes are exchanged",
    reach=0.3,  # as above
)
def class_weights_inverted(repaired: bool) -> Program:
    """The frequent label has the larger weight in the loss."""
    task, model = rare(0.2), mlp(10, 8, 2)
    counts = task.y.bincount(minlength=2).float()
    return program(
        task, model, loss=lambda o, y: F.cross_entropy(o, y, 1 / counts if repaired else counts / counts.sum())
    )


@fault(
    "https://github.com/MontaEllis/Pytorch-Medical-Segmentation/issues/8",
    Cause.TARGETS_OUT_OF_RANGE,
    "masks are divided by 255",
)
def masks_of_255(repaired: bool) -> Program:
    """The value of binary cross-entropy is negative: labels are read from images and are not 0 and 1."""
    task = cancer()
    model = mlp(30, 16, 1)
    return program(task if repaired else replace(task, y=255 * task.y), model, sgd(model))


@fault(
    "https://github.com/atomistic-machine-learning/schnetpack/issues/336",
    Cause.TARGETS_UNSCALED,
    "mean and deviation of the targets are taken out",
)
def targets_unscaled(repaired: bool) -> Program:
    """The loss falls from 400 million to 60 million and is still enormous."""
    task = houses()
    return program(task if repaired else task.mapped(y=lambda y: 20000 * y + 50000), mlp(8, 32, 32, 1))


@fault(
    "https://github.com/rasmusbergpalm/DeepLearnToolbox/issues/118",
    Cause.TARGETS_UNSCALED,
    "the targets are centred",
)
def targets_far_from_zero(repaired: bool) -> Program:
    """Regression works when the targets are centred and not when 1000 is added to them."""
    task = houses()
    model = mlp(8, 32, 32, 1)
    return program(task if repaired else task.mapped(y=lambda y: y + 1000), model, sgd(model, 0.005, 0.9), steps=400)


@fault(
    "https://github.com/aymericdamien/TensorFlow-Examples/issues/383",
    Cause.LOGARITHM_OF_ZERO,
    "the loss computes the logarithm of softmax in one",
)
def logarithm_of_zero(repaired: bool) -> Program:
    """After some iterations the loss is NaN: a hand-written cross-entropy met a probability of 0."""
    task = raw_digits()
    model = nn.Sequential(nn.Linear(64, 10))

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        chosen = F.one_hot(y, 10)
        logs = scores.log_softmax(1) if repaired else scores.softmax(1).log()
        return -(chosen * logs).sum(1).mean()

    return program(task, model, sgd(model, 0.01), loss=loss)


@fault(
    "https://github.com/jax-ml/jax/pull/3113",
    Cause.SUM_OVER_BATCH,
    "the mean over the samples",
)
def loss_summed_over_the_batch(repaired: bool) -> Program:
    """The loss is a sum over samples: gradients explode for larger batches."""
    model = mlp(64, 32, 10)
    reduction = "mean" if repaired else "sum"
    return program(digits(), model, sgd(model), loss=lambda o, y: F.cross_entropy(o, y, reduction=reduction), size=256)


@fault(
    "https://github.com/kyle-dorman/bayesian-neural-network-blogpost/issues/12",
    Cause.ARGUMENTS_SWAPPED,
    "targets and predictions in the order that the function expects",
)
def loss_with_arguments_swapped(repaired: bool) -> Program:
    """The loss becomes negative: the function takes targets first and got predictions first."""
    task = digits()
    task = replace(task, y=F.one_hot(task.y, 10).float())

    def categorical(target: Tensor, logits: Tensor) -> Tensor:
        return -(target * logits.log_softmax(1)).sum(1).mean()

    model = mlp(64, 32, 10)
    return program(task, model, loss=lambda o, y: categorical(y, o) if repaired else categorical(o, y))
