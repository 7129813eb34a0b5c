"""How loss, targets, optimizer and modes fit the model: each fault by itself is named, and a plain setup is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose, initialize_
from stiefel_init.torch.learning import can_learn

CLASSES = torch.arange(64) % 3
NUMBERS = torch.linspace(-2, 2, 64)
X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)) + CLASSES[:, None] + NUMBERS[:, None]


def mlp(outputs: int = 3, *end: nn.Module) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, outputs), *end)
    initialize_(model, "he", seed=0)
    return model


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 8)]
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers[0](x).relu())


class Inside(nn.Module):
    """A network with something done to its hidden units; and with rows of this length in its head."""

    def __init__(self, act: Callable[[Tensor], Tensor], length: float = 0.0) -> None:
        super().__init__()
        self.stem, self.head, self.act = nn.Linear(8, 16), nn.Linear(16, 3, bias=not length), act
        if length:
            self.head.weight.data = length * F.normalize(self.head.weight.data, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.stem(x)))


class Keeps(Inside):
    def __init__(self) -> None:
        super().__init__(torch.relu)
        self.state = torch.zeros(16)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.stem(x).relu() + self.state
        self.state = hidden.detach().mean(0)
        return self.head(hidden)


def of_probabilities(p: Tensor, y: Tensor) -> Tensor:
    return -(F.one_hot(y, 3) * p.log()).sum(1).mean()


def swapped(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy(targets, outputs)


def overlap(o: Tensor, y: Tensor) -> Tensor:
    return 2 * (o.sigmoid() * y).sum() / (o.sigmoid().sum() + y.sum())


def clamped(o: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy(o.clamp(1e-6, 1 - 1e-6), y)


def of_rows(o: Tensor, y: Tensor) -> Tensor:
    return -(y * o.log_softmax(1)).sum(1).mean()


def by_hand(p: Tensor, y: Tensor) -> Tensor:
    p = p.clamp(1e-6, 1 - 1e-6)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


class Forgets(Inside):
    """Throws an activation away, or adds a tensor to itself, or does not use a layer."""

    def __init__(self, how: str) -> None:
        super().__init__(torch.relu)
        self.other, self.how = nn.Linear(16, 16), how

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.stem(x)
        block = self.other(hidden.relu())
        if self.how == "activation":
            hidden.tanh()
        elif self.how == "sum":
            hidden = block + block
        else:
            hidden = hidden.relu() + 0
        return self.head(hidden + block if self.how == "activation" else hidden)


REPORTS: list[tuple[str, nn.Module, Any, Any]] = [
    ("probabilities as logits", mlp(3, nn.Softmax(-1)), CLASSES, F.cross_entropy),
    ("no log-probabilities", mlp(), CLASSES, F.nll_loss),
    ("softmax over one", mlp(1, nn.Softmax(-1)), (NUMBERS > 0).float()[:, None], F.binary_cross_entropy),
    ("softmax over the wrong axis", mlp(3, nn.Softmax(0)), CLASSES, of_probabilities),
    ("softmax for several labels", mlp(), (torch.arange(192).reshape(64, 3) % 2).float(), F.cross_entropy),
    ("outputs and targets broadcast", mlp(1), NUMBERS, lambda o, y: (o - y).square().mean()),
    ("targets out of reach", mlp(1, nn.ReLU(), nn.Flatten(0)), NUMBERS, F.mse_loss),
    ("scores are bounded", mlp(3, nn.ReLU()), CLASSES, F.cross_entropy),
    ("scores are bounded", mlp(3, nn.Tanh()), CLASSES, F.cross_entropy),
    ("no log-probabilities", mlp(), CLASSES, lambda o, y: F.nll_loss(o.clamp(1e-6, 1).log(), y)),
    ("no log-probabilities", mlp(1, nn.Flatten(0)), (NUMBERS > 0).float(), clamped),
    ("loss has no slope", mlp(), CLASSES, lambda o, y: F.cross_entropy(o.round(), y)),
    ("labels start at one", mlp(2), F.one_hot(CLASSES % 2 + 1, 3)[:, :2].float(), of_rows),
    ("outputs miss their targets", mlp(), CLASSES, lambda o, y: F.cross_entropy(o.roll(1, 0), y)),
    (
        "outputs miss their targets",
        mlp(1, nn.Flatten(0)),
        (NUMBERS > 0).float(),
        lambda o, y: (1 - o * y).relu().mean(),
    ),
    ("loss prefers the opposite", mlp(), CLASSES, lambda o, y: -F.cross_entropy(o, y) + 9),
    ("loss prefers the opposite", mlp(1, nn.Flatten(0)), (NUMBERS > 0).float(), overlap),
    ("a view moves an axis", mlp(), CLASSES, lambda o, y: F.cross_entropy(o.reshape(3, 64).T, y)),
    ("no log-probabilities", mlp(3, nn.Softmax(-1)), CLASSES, lambda p, y: -p[torch.arange(64), y].mean()),
    ("arguments are swapped", mlp(), F.one_hot(CLASSES, 3).float(), lambda o, y: -(o * y.log_softmax(1)).sum(1).mean()),
    ("targets out of range", mlp(1, nn.Sigmoid(), nn.Flatten(0)), 9 * NUMBERS.abs(), by_hand),
    ("targets out of range", mlp(1, nn.Flatten(0)), NUMBERS.sign(), F.binary_cross_entropy_with_logits),
    ("a class is ignored", mlp(), CLASSES, lambda o, y: F.cross_entropy(o, y, ignore_index=0)),
    ("one class is rare", mlp(2), (torch.arange(64) == 5).long(), F.cross_entropy),
    ("targets are all equal", mlp(2), torch.zeros(64, dtype=torch.long), F.cross_entropy),
    ("labels start at one", mlp(4), CLASSES + 1, F.cross_entropy),
    ("loss is a sum", mlp(1, nn.Flatten(0)), NUMBERS, nn.MSELoss(reduction="sum")),
    ("arguments are swapped", mlp(1, nn.Sigmoid(), nn.Flatten(0)), (NUMBERS > 0).float(), swapped),
    ("outputs are normalized", mlp(1, nn.BatchNorm1d(1), nn.Flatten(0)), NUMBERS, F.mse_loss),
    ("layers are not registered", Listed(), CLASSES, F.cross_entropy),
    ("gradient is cut off", Inside(lambda h: h.detach().relu()), CLASSES, F.cross_entropy),
    ("softmax in a hidden layer", Inside(lambda h: h.softmax(-1)), CLASSES, F.cross_entropy),
    ("activations follow each other", Inside(lambda h: h.sigmoid().sigmoid()), CLASSES, F.cross_entropy),
    ("dropout stays on", Inside(lambda h: F.dropout(h.relu())), CLASSES, F.cross_entropy),
    ("examples mix", Inside(lambda h: h.relu() - h.mean(0)), CLASSES, F.cross_entropy),
    ("model remembers", Keeps(), CLASSES, F.cross_entropy),
    ("statistics are not kept", mlp(16, nn.BatchNorm1d(16, momentum=0.99), nn.Linear(16, 3)), CLASSES, F.cross_entropy),
    ("statistics are not kept", mlp(16, nn.BatchNorm1d(16, momentum=0.0), nn.Linear(16, 3)), CLASSES, F.cross_entropy),
    ("one number is normalized", mlp(1, nn.LayerNorm(1), nn.Flatten(0)), NUMBERS, F.mse_loss),
    ("an activation is thrown away", Forgets("activation"), CLASSES, F.cross_entropy),
    ("a tensor is added to itself", Forgets("sum"), CLASSES, F.cross_entropy),
    ("gradient is cut off", Forgets("layer"), CLASSES, F.cross_entropy),
    ("examples contradict each other", Inside(torch.relu), CLASSES.roll(1), F.cross_entropy),
    ("layer is too narrow", mlp(1, nn.ReLU(), nn.Linear(1, 3)), CLASSES, F.cross_entropy),
]


@pytest.mark.parametrize(("kind", "model", "targets", "loss"), REPORTS, ids=[report[0] for report in REPORTS])
def test_a_fault_is_named(kind: str, model: nn.Module, targets: Tensor, loss: Any) -> None:
    found = diagnose(model, X[:4].repeat(16, 1) if "contradict" in kind else X, targets, loss=loss)
    assert kind in [finding.kind for finding in found.findings], found.verdict
    assert all(finding.advice for finding in found.findings if finding.kind == kind)


@pytest.mark.parametrize(
    ("model", "targets", "loss"),
    [
        (mlp(), CLASSES, F.cross_entropy),
        (mlp(3, nn.LogSoftmax(-1)), CLASSES, F.nll_loss),
        (mlp(1, nn.Sigmoid(), nn.Flatten(0)), (NUMBERS > 0).float(), F.binary_cross_entropy),
        (mlp(1, nn.Flatten(0)), (NUMBERS > 0).float(), F.binary_cross_entropy_with_logits),
        (mlp(), F.one_hot(CLASSES).float(), F.cross_entropy),
        (mlp(1), NUMBERS[:, None], F.mse_loss),
        (mlp(1, nn.Tanh(), nn.Flatten(0)), NUMBERS / 3, F.mse_loss),
        (mlp(16, nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)), CLASSES, F.cross_entropy),
        (nn.Sequential(nn.Unflatten(1, (8, 1)), nn.LSTM(1, 8, batch_first=True)), CLASSES, None),
    ],
    ids=[
        "logits",
        "log-probabilities",
        "probabilities",
        "one logit",
        "soft targets",
        "column",
        "tanh",
        "modes",
        "LSTM",
    ],
)
def test_a_plain_setup_is_not(model: nn.Module, targets: Tensor, loss: Any) -> None:
    if loss is None:
        loss = lambda outputs, y: F.cross_entropy(outputs[0][:, -1, :3], y)  # noqa: E731
    optimizer = torch.optim.Adam(model.parameters())
    found = diagnose(model, X, targets, loss=loss, optimizer=optimizer)
    of_setup = {"loss", "optimizer", "mode", "mixing", "architecture"}
    assert [f.sentence for f in (*found.findings, *found.warnings) if f.cause in of_setup] == []


def test_everything_masked_and_other_breaks_are_named() -> None:
    mask = torch.zeros(64, 8).index_fill_(0, torch.tensor([3]), -torch.inf)
    cases: dict[str, tuple[nn.Module, Any]] = {
        "everything is masked": (Inside(lambda h: (h[:, :8] + mask).softmax(1).repeat(1, 2)), F.cross_entropy),
        "slope is infinite": (
            mlp(),
            lambda o, y: F.cross_entropy(o, y) + (o - o.detach()).square().sum(1).sqrt().mean(),
        ),
        "division by zero": (mlp(), lambda o, y: F.cross_entropy(o, y) / (o - o.detach()).sum()),
        "exponentials overflow": (mlp(), lambda o, y: -(e := (200 * o).exp()).div(e.sum(1, True)).log()[:, 0].mean()),
        "a logarithm breaks": (mlp(), lambda o, y: -(o - o.detach()).abs().log().mean()),
    }
    for kind, (model, loss) in cases.items():
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = diagnose(model, X, CLASSES, loss=loss, optimizer=optimizer)
        assert kind in [finding.kind for finding in found.findings], (kind, found.verdict)


def of_size(scale: float, h: Tensor) -> Tensor:
    return h * (scale * (h + 1)).square().mean(1, keepdim=True).rsqrt()


def test_half_precision_that_overflows() -> None:
    for scale, is_found in ((300.0, True), (0.3, False)):
        model = Inside(partial(of_size, scale)).half()
        found = diagnose(model, X.half(), CLASSES, loss=lambda o, y: F.cross_entropy(o.float(), y))
        assert ("numbers overflow" in [finding.kind for finding in found.findings]) == is_found


def test_the_repair_that_lets_a_copy_learn_is_the_cause() -> None:
    def kinds(make: Any) -> list[str]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
        return [f.kind for f in diagnose(model, X, CLASSES, optimizer=make(model.parameters())).findings]

    sgd, adam = torch.optim.SGD, torch.optim.Adam
    assert kinds(lambda p: adam(p, 1e-2)) == []
    assert kinds(lambda p: adam(p, 1e-6)) == ["rate is much too low"]
    assert kinds(lambda p: sgd(p, 10.0)) == ["rate is too high"]
    assert kinds(lambda p: sgd(p, 0.5, weight_decay=0.5)) == ["weight decay is too strong"]
    assert kinds(lambda p: adam(p, 1e-2, eps=1.0)) == ["epsilon is too large"]
    assert kinds(lambda p: sgd(p, 0.1, maximize=True)) == ["optimizer learns nothing"]
    assert kinds(lambda p: sgd(p, 0.0)) == ["rate is zero"]
    groups: Any = [{"params": [*(model := mlp())[0].parameters()], "lr": 0.0}, {"params": [*model[2].parameters()]}]
    found = diagnose(model, X, CLASSES, optimizer=sgd(groups, 0.1))
    assert "rate is zero" in [finding.kind for finding in found.findings]
    half = mlp().bfloat16()
    found = diagnose(half, X.bfloat16(), CLASSES, loss=lambda o, y: F.cross_entropy(o.float(), y), optimizer=sgd(
        half.parameters(), 1e-4))  # fmt: skip
    assert "steps are rounded away" in [finding.kind for finding in found.findings]
    half = mlp().half()
    found = diagnose(half, X.half(), CLASSES, loss=lambda o, y: F.cross_entropy(o.float(), y), optimizer=adam(
        half.parameters()))  # fmt: skip
    assert "epsilon underflows" in [finding.kind for finding in found.findings]


def test_a_batch_that_no_copy_learns() -> None:
    class Same(Inside):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sign() * (x[:, :1] > 9))

    model = Same(torch.relu)
    found = diagnose(model, X, CLASSES, optimizer=torch.optim.Adam(model.parameters(), 1e-2))
    assert found.findings
    assert found.tried is not None
    assert found.tried.at_last is not None


def test_what_no_model_can_learn_is_not_asked_of_it() -> None:
    """Few states with chance in their targets, and a linear map of few directions."""
    states, low = torch.eye(8)[torch.arange(64) % 4], nn.Sequential(nn.Linear(8, 2), nn.Linear(2, 8))
    noise = torch.randn(64, 1, generator=torch.Generator().manual_seed(1))
    rewards = (torch.arange(64) % 4)[:, None] + noise
    for model, x, y in ((mlp(1), states, rewards), (low, X, X), (nn.Linear(8, 1), X, noise)):
        found = diagnose(model, x, y, loss=F.mse_loss, optimizer=torch.optim.Adam(model.parameters(), 1e-2))
        assert [finding.kind for finding in found.findings] == []


def test_targets_that_the_loss_does_not_read_are_no_targets() -> None:
    model = mlp(2)
    found = diagnose(model, X, torch.zeros(64), loss=lambda o, _: (o.mean(0) - 1).square().sum())
    assert found.healthy


def test_one_example_stands_out() -> None:
    inputs = torch.cat([X[:-1], 1000 * X[-1:]])
    assert "an example stands out" in [finding.kind for finding in diagnose(mlp(), inputs, CLASSES).findings]


def test_normalizations_that_were_trained_may_be_frozen() -> None:
    for trained in (False, True):
        model = modal(True)
        model(X) if trained else None
        model[1].eval()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = diagnose(model, X, CLASSES, optimizer=optimizer)
        assert ("model is in evaluation mode" in [finding.kind for finding in found.findings]) is not trained


def cooled(temperature: float, o: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(o / temperature, y)


def test_a_loss_that_no_outputs_lower() -> None:
    for cold, is_found in ((1e4, True), (1.0, False)):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        found = diagnose(model, X, CLASSES, loss=partial(cooled, cold), optimizer=optimizer)
        assert ("loss has no range" in [finding.kind for finding in found.findings]) == is_found


def test_what_holds_a_copy_back_is_taken_from_it() -> None:
    def of(dropped: float, scale: float = 1.0) -> list[str]:
        torch.manual_seed(0)
        layers = (part for _ in range(6) for part in (nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()))
        model = nn.Sequential(*layers, nn.Dropout(dropped), nn.Linear(8, 3))
        for norm in (module for module in model if isinstance(module, nn.LayerNorm)):
            nn.init.constant_(norm.weight, scale)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return [finding.kind for finding in diagnose(model, X, X[:, :3].argmax(1), optimizer=optimizer).findings]

    assert of(0.0) == []
    assert "dropout holds it back" in of(0.97)


def test_the_optimizer_holds_other_parameters_or_too_few() -> None:
    model, other = mlp(), mlp()
    kinds = [
        [f.kind for f in diagnose(model, X, CLASSES, optimizer=optimizer).findings]
        for optimizer in (
            torch.optim.SGD(other.parameters(), 0.1),
            torch.optim.SGD(model[0].parameters(), 0.1),
            torch.optim.SGD(model.parameters(), 0.1, momentum=0.999),
            torch.optim.SGD(model.parameters(), 0.1),
        )
    ]
    expected = ["optimizer holds other parameters", "parameters are not optimized", "momentum is too large"]
    assert kinds == [[kind] for kind in expected] + [[]]


def test_nothing_is_learned_where_everything_is_frozen() -> None:
    model = mlp().requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert [f.kind for f in diagnose(model, X, CLASSES, optimizer=optimizer).findings] == ["everything is frozen"]


def padded(ends: int) -> Tensor:
    """Classes in rows of eight, of which some end with `ends`."""
    y = torch.randint(1, 3, (64, 8), generator=torch.Generator().manual_seed(0))
    lengths = torch.arange(64) % 5 + 2
    return torch.where(torch.arange(8) < lengths[:, None], y, ends)


def by_token(ignored: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda o, y: F.cross_entropy(o.unflatten(1, (8, 3)).flatten(0, 1), y.flatten(), ignore_index=ignored)


class Attends(nn.Module):
    """Attention to eight numbers, with scores of this size."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.score, self.head, self.size = nn.Linear(8, 8), nn.Linear(8, 3), size
        nn.init.orthogonal_(self.score.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.size * self.score(x)).softmax(-1) * x)


def several(shared: bool) -> nn.Sequential:
    layer = nn.Linear(16, 16)
    return nn.Sequential(nn.Linear(8, 16), layer, nn.ReLU(), layer if shared else nn.Linear(16, 16), nn.Linear(16, 3))


def modal(training: bool, of_batch: bool = True) -> nn.Sequential:
    norm = nn.BatchNorm1d(16) if of_batch else nn.GroupNorm(4, 16)
    return nn.Sequential(
        nn.Linear(8, 16), norm.train(training), nn.Unflatten(1, (4, 4)), nn.Flatten(), nn.Linear(16, 3)
    )


class Maps(nn.Module):
    """Batch normalization of one example's map."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(1, 4, 3), norm, nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x[:, None])).relu().flatten(1))


TWINS: list[tuple[str, nn.Module, Any, Any, nn.Module, Any]] = [
    # kind, model, targets, loss, and the twin's model and loss
    ("padding counts", mlp(24), padded(0), by_token(-100), mlp(24), by_token(0)),
    ("attention is saturated", Attends(100.0), CLASSES, F.cross_entropy, Attends(1.0), F.cross_entropy),
    ("outputs are dropped", mlp(3, nn.Dropout(0.5)), CLASSES, F.cross_entropy, mlp(), F.cross_entropy),
    ("one layer stands several times", several(True), CLASSES, F.cross_entropy, several(False), F.cross_entropy),
    ("model is in evaluation mode", modal(False), CLASSES, F.cross_entropy, modal(True), F.cross_entropy),
    ("batch of one", Maps(nn.BatchNorm1d(4)), CLASSES[:1], F.cross_entropy, Maps(nn.GroupNorm(2, 4)), F.cross_entropy),
]


@pytest.mark.parametrize(("kind", "model", "targets", "loss", "twin", "right"), TWINS, ids=[row[0] for row in TWINS])
def test_a_fault_is_named_and_its_twin_is_silent(
    kind: str, model: nn.Module, targets: Tensor, loss: Any, twin: nn.Module, right: Any
) -> None:
    for one, of in ((model, loss), (twin, right)):
        optimizer = torch.optim.SGD(one.parameters(), 0.1)
        found = diagnose(one, X[: len(targets)], targets, loss=of, optimizer=optimizer)
        kinds = [finding.kind for finding in (*found.findings, *found.warnings)]
        assert (kind in kinds) == (one is model), found.verdict


def test_what_was_measured_is_silent_where_a_copy_learns_the_batch() -> None:
    """Targets of an odd size, and a rate with which they are learned, or are not."""
    model, targets = mlp(1, nn.Flatten(0)), 30 * NUMBERS + 20
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = {}
    for rate in (0.03, 1e-5):
        found = diagnose(model, X, targets, loss=F.mse_loss, optimizer=torch.optim.Adam(model.parameters(), rate))
        kinds[rate] = {finding.kind for finding in (*found.findings, *found.warnings)}
        assert found.learns == (rate == 0.03)
        assert len(found.trial) <= 61
    assert kinds[0.03] == set()
    assert "targets are large" in kinds[1e-5]
    assert {finding.kind for finding in diagnose(model, X, targets, loss=F.mse_loss).warnings} >= {"targets are large"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_can_learn_says_why_a_model_cannot() -> None:
    can_learn(mlp(), X, CLASSES)
    with pytest.raises(AssertionError, match=r"steps on one batch\..*"):
        can_learn(mlp(3, nn.Softmax(0)), X, CLASSES, steps=20)


def test_the_causal_mask_is_missed_in_a_language_model() -> None:
    class Model(nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.embed, self.head, self.causal = nn.Embedding(9, 16), nn.Linear(16, 9), causal
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embed(tokens)
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.head(x + self.attention(x, x, x, attn_mask=mask if self.causal else None)[0])

    text = torch.randint(9, (16, 13), generator=torch.Generator().manual_seed(0))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    for causal in (True, False):
        found = diagnose(Model(causal), text[:, :-1], text[:, 1:], loss=loss)
        assert ("later inputs leak" in [finding.kind for finding in found.findings]) is not causal


def test_an_optimizer_with_a_closure_and_sparse_gradients_are_no_obstacle() -> None:
    model = mlp()
    found = diagnose(model, X, CLASSES, optimizer=torch.optim.LBFGS(model.parameters()))
    assert found.healthy
    assert all(layer.update is None for layer in found.layers)
    tokens = torch.randint(10, (64, 5), generator=torch.Generator().manual_seed(0))
    sparse = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(20, 3))
    assert all(layer.weight_gradient for layer in diagnose(sparse, tokens, CLASSES).layers)


def test_a_healthy_report_says_nothing_that_must_be_done() -> None:
    lstm = nn.LSTM(8, 16, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (20, 8)), lstm)
    initialize_(model, seed=0)
    x = torch.randn(64, 160, generator=torch.Generator().manual_seed(0))
    found = diagnose(model, x, CLASSES, loss=lambda o, y: F.cross_entropy(o[0][:, -1, :3], y))
    assert found.healthy
    assert found.warnings
    assert not any(sentence.startswith("What to do") for sentence in found.verdict)


def test_several_optimizers_share_the_parameters() -> None:
    model = mlp()
    both = [torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.Adam(model[2].parameters())]
    found = diagnose(model, X, CLASSES, optimizer=both)
    assert found.healthy
    assert all(layer.update for layer in found.layers)
    assert [f.kind for f in diagnose(model, X, CLASSES, optimizer=both[:1]).findings] == [
        "parameters are not optimized"
    ]
    can_learn(model, X, CLASSES, optimizer=both)
    with pytest.raises(StiefelError, match="optimizer is a str"):
        diagnose(model, X, CLASSES, optimizer=["adam"])  # type: ignore[list-item]
