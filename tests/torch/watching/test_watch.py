"""What `watch` measures is right, changes nothing, and costs nothing between samples."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from trained import batch, network, train

from stiefel_init import StiefelError
from stiefel_init.health import Row, Sample
from stiefel_init.torch import diagnose, initialize_, watch
from stiefel_init.torch.observe.observer import Seen
from stiefel_init.torch.observe.statistics import _KEPT, _STACK, Signal, read
from stiefel_init.torch.watching.history import KEEP, History
from stiefel_init.torch.watching.weights import Spectra

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit is deprecated, and used
    SCRIPTED: Any = torch.jit.script(nn.Linear(2, 2))


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_a_watched_training_is_the_training_without() -> None:
    """Bit for bit, dropout included."""
    results = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(16, 4))
        initialize_(model, seed=0)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        seen = watch(model, 2) if watched else None
        torch.manual_seed(1)
        for step in range(7):
            x, y = batch(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if seen is not None:
                seen.step(loss)
        if seen is not None:
            seen.close()
            assert seen.samples == 4
        assert hooks(model) == 0
        results.append([parameter.detach().clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_hooks_are_on_in_sampled_steps_only() -> None:
    model = network()
    seen = watch(model, 3)
    counts = []
    for _ in range(7):
        counts.append(hooks(model) > 0)
        seen.step()
    assert counts == [True, False, False, True, False, False, True]
    seen.close()
    assert hooks(model) == 0


@pytest.mark.parametrize("way", ["optimizer", "by hand", "skipped"])
def test_the_update_is_what_the_step_moved(way: str) -> None:
    """Where an optimizer tells when it steps, no weight is copied before: activations take the memory until then."""
    model = network()
    weights = [layer.weight for layer in model if isinstance(layer, nn.Linear)]
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watch(model, 1) as seen:
        for step in range(3):
            optimizer.zero_grad()
            x, y = batch(step)
            F.cross_entropy(model(x), y).backward()
            assert seen._sampler is not None
            assert (seen._sampler._moves is None) is (step > 0 and way != "by hand")
            before = [weight.detach().clone() for weight in weights]
            if way == "by hand":
                with torch.no_grad():
                    for weight in weights:
                        assert weight.grad is not None
                        weight -= 0.05 * weight.grad
            elif way == "optimizer" or step == 0:
                optimizer.step()
            seen.step()
    rows = [row for row in seen.history.records() if row["step"] == 2]
    for row, old, weight in zip(rows, before, weights, strict=True):
        move = weight.detach() - old
        moved = float(move.norm() / old.norm())
        assert (moved > 0) is (way != "skipped")
        assert row["update"] == pytest.approx(moved, rel=1e-4)
        if moved:
            inward = -float((move * old).sum() / move.norm() / old.norm())
            assert row["inward"] == pytest.approx(inward, abs=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (7, 3), (64, 64), (600, 700)])
def test_singular_value_and_distance_of_any_shape(shape: tuple[int, int]) -> None:
    """The power method goes on from sample to sample; the distance of wide weights is estimated, to 5 %."""
    torch.manual_seed(0)
    layer = nn.Linear(shape[1], shape[0])
    spectra = Spectra()
    for _ in range(60):
        sizes, apart, _ = read(spectra.measure([layer]))
        found, distances = spectra.facts(sizes, apart)
    facts = *found[layer], distances[layer]
    weight = layer.weight.detach().double()
    wide = weight if shape[0] <= shape[1] else weight.mT
    gram = wide @ wide.mT - torch.eye(len(wide))
    level = wide.sum(1) / math.sqrt(wide.shape[1]) - 1 / math.sqrt(len(wide))
    distance = float((gram.square().sum() / len(wide) + level.square().sum()).sqrt())
    assert facts[0] == pytest.approx(float(weight.norm()) / math.sqrt(shape[0]), rel=1e-5)
    assert facts[1] == pytest.approx(float(torch.linalg.matrix_norm(weight, 2)), rel=0.01)
    assert facts[2] == pytest.approx(distance, rel=0.05 if min(shape) > 512 else 1e-4)


def test_members_have_no_distance_from_the_set() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8))
    initialize_(model, "stiefel", seed=0)
    spectra = Spectra()
    sizes, apart, _ = read(spectra.measure([model[0], model[3]]))
    distances = spectra.facts(sizes, apart)[1]
    assert len(distances) == 2
    assert max(distances.values()) < 1e-5


def test_history_gets_coarser_instead_of_longer() -> None:
    history = History()
    for step in range(3 * KEEP):
        history.add(Sample(step, (Row(layer="a", kind="Linear", update=float(step)),)))
        assert len(history) <= KEEP
    assert history.steps[-1] == 3 * KEEP - 1
    assert history.grid("update")[0].tolist() == [float(step) for step in history.steps]
    assert max(b - a for a, b in zip(history.steps, history.steps[1:])) <= 8


class Residual(nn.Module):
    """Outputs that no activation follows, in the middle and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.head = nn.Linear(16, 256), nn.Linear(256, 16), nn.Linear(16, 4096)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.down(self.up(x).relu())
        return self.head(x + self.down(self.up(x)).tanh())


class Mixed(nn.Module):
    """Eighty layers of one shape: every third without an activation, and one GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(80))

    def forward(self, x: Tensor) -> Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(x) if at % 3 == 1 else F.gelu(layer(x)) if at == 5 else layer(x).relu()
        return x


@pytest.mark.parametrize("mixed", [False, True])
def test_the_figures_are_those_of_diagnose(mixed: bool) -> None:
    """Layers of one shape are measured in stacks, with ReLU and without, and told apart."""
    model = Mixed() if mixed else network()
    initialize_(model, "he" if mixed else None, seed=0)
    x, y = (torch.randn(128, 64), torch.randint(4, (128,))) if mixed else batch()
    expected = diagnose(model, x, y).layers
    with watch(model, 1) as seen:
        F.cross_entropy(model(x), y).backward()
        seen.step()
    rows = seen.history.records()
    if mixed:
        assert [row["activation"] for row in rows[:6]] == ["relu", None, "relu", "relu", None, "gelu"]
    for row, layer in zip(rows, expected, strict=True):
        pairs = {
            "mean": layer.pre_mean, "std": layer.pre_std, "post_mean": layer.post_mean, "post_std": layer.post_std,
            "spread": layer.spread, "distinct": layer.distinct, "gradient": layer.gradient,
            "weight_gradient": layer.weight_gradient, "active": math.nan if layer.active is None else layer.active,
            "dead": math.nan if layer.dead is None else layer.dead / layer.units,
        }  # fmt: skip
        assert row["layer"] == layer.layer
        for name, value in pairs.items():
            assert row[name] == pytest.approx(value, rel=1e-4, abs=1e-6 * layer.pre_std, nan_ok=True), name


def test_few_samples_are_kept_at_a_time() -> None:
    signal, layers = Signal(200, 128), [Seen("", nn.Identity(), 1, -1, 2, None, None) for _ in range(200)]
    for at, layer in enumerate(layers):
        signal.add(layer, torch.randn(128, 64), relu=True)
        kept = sum(len(stack) * 128 * 64 for stack in (*signal._full, *signal._stacks.values()))
        assert kept <= (_STACK if at < 100 else _KEPT)
        assert at >= 100 or kept == 128 * 64 * ((at + 1) % (_STACK // (128 * 64)))


@pytest.mark.parametrize("batch_size", [64, 512])
def test_a_sampled_forward_pass_keeps_nothing_alive(batch_size: int) -> None:
    """Of what the layers put out, just as much is alive after the forward pass as without a watch."""
    model = Residual()
    outputs: list[StorageWeakRef] = []
    for layer in model.children():
        layer.register_forward_hook(lambda *call: outputs.append(StorageWeakRef(call[-1].untyped_storage())))

    def gone() -> list[bool]:
        outputs.clear()
        loss = model(torch.randn(batch_size, 16)).sum()
        assert loss.requires_grad
        return [output.expired() for output in outputs]

    plain = gone()
    assert plain[-1]  # the head
    with watch(model, 1) as seen:
        assert gone() == plain
        seen.step()
    assert [row["units"] for row in seen.history.records()] == [256, 16, 4096]


def test_repeated_calls_and_evaluation_between_steps_do_not_count() -> None:
    model = network()
    seen = watch(model, 1)
    with torch.no_grad():
        model(torch.full((64, 16), 1e6))
    x, y = batch()
    F.cross_entropy(model(x) + model(1e6 * x), y).backward()
    seen.step(1.0)
    seen.close()
    assert len(seen.history.records()) == 5
    assert seen.history.records()[0]["std"] < 10


def test_layers_that_come_later_are_seen() -> None:
    model = network()

    def grow(optimizer: torch.optim.Optimizer) -> None:
        model.append(nn.ReLU())
        model.append(nn.Linear(4, 4))

    seen, events = train(model, 40, at=15, change=grow)
    assert {row["layer"] for row in seen.history.records() if row["step"] == 30} == {"0", "2", "4", "6", "8", "10"}
    assert [(e.kind, e.layer) for e in events if e.kind == "layer is frozen"] == [("layer is frozen", "10")]


def test_layers_that_go_are_not_missed() -> None:
    """Also where they go between the beginning of a sampled step and its forward pass."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, 1) as seen:
        for step in range(4):
            if step == 2:
                del model[-1]
            x, _ = batch(step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            seen.step()
    assert not seen.events
    counts = [sum(row["step"] == step for row in seen.history.records()) for step in range(4)]
    assert counts == [5, 5, 4, 4]


def test_steps_without_a_backward_pass_are_told(caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    with watch(model, 1) as seen:
        for step in range(3):
            model(batch(step)[0])
            seen.step()
    assert [event.kind for event in seen.events] == ["no backward pass"]
    assert "no gradient reaches any weight: call loss.backward()" in caplog.text
    assert not seen.healthy


def test_a_training_never_stops_because_of_us(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks inside, the steps go on; after three failures watching ends."""

    def broken(*args: Any) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(Spectra, "measure", broken)
    seen, _ = train(network(), 40, 5)
    assert seen.steps == 40
    assert seen.samples == 0
    assert not seen.running
    assert len(caplog.records) == 3
    assert caplog.records[-1].message.endswith("(RuntimeError: no memory left); watching ends, training goes on.")


def test_an_error_of_the_model_is_the_users(caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    seen = watch(model, 1)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.ones(2, 3))
    x, y = batch()
    F.cross_entropy(model(x), y).backward()  # as in a loop that skips bad batches
    seen.step()
    seen.close()
    assert seen.history.records()[0]["gradient"] > 0
    assert not caplog.records


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("text", {}, "model is a str; give a torch.nn.Module"),
        (nn.ReLU(), {}, "ReLU has no layer with weights"),
        (nn.Linear(2, 2), {"every": 0}, "every=0 is not a number of steps"),
        (nn.Linear(2, 2), {"report": "mail"}, "report='mail' is unknown"),
        (nn.Linear(2, 2), {"to": "a.txt"}, "ends in neither .html nor .jsonl"),
        (nn.Linear(2, 2), {"to": 3}, "to has a int"),
        (SCRIPTED, {}, "is a TorchScript module; watch the model before scripting it"),
        (nn.Linear(2, 2), {"to": "/no/such/place/a.html"}, "cannot be written"),
    ],
)
def test_bad_input_gets_one_sentence(model: Any, options: Any, sentence: str) -> None:
    with pytest.raises(StiefelError, match=sentence):
        watch(model, **options)


def test_a_model_is_watched_once() -> None:
    model = network()
    first = watch(model)
    with pytest.raises(StiefelError, match="is being watched already"):
        watch(nn.DataParallel(model))
    first.close()
    watch(model).close()


def test_events_go_to_warnings_log_or_a_function(caplog: pytest.LogCaptureFixture) -> None:
    x, y = batch()
    for report in ("warn", "log", lambda event: 1 / 0):
        model = network()
        with watch(model, 1, report=report) as seen, caplog.at_level(logging.WARNING):
            F.cross_entropy(model(1e4 * x), y).backward()
            if report == "warn":
                with pytest.warns(UserWarning, match=r"step 0: the inputs have a size of .*: standardize them"):
                    seen.step()
            else:
                seen.step()
    assert [record.message[:29] for record in caplog.records] == [
        "step 0: the inputs have a siz",
        "report raised ZeroDivisionErr",
    ]


def test_a_loss_that_does_not_fall_is_not_called_healthy() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    initialize_(model, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(0)
    with watch(model, every=1, report=lambda event: None) as seen:
        for step in range(25):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.randn(2048, 16)), torch.randint(4, (2048,)))  # nothing to learn
            loss.backward()
            optimizer.step()
            seen.step(loss)
            assert ("nothing was learned" in str(seen)) == (step >= 19)
    assert seen.healthy
    assert seen.verdict[0].startswith("Nothing is broken, but nothing was learned: the loss went from ")


def test_the_verdict_tells_the_loss() -> None:
    seen, events = train(network(), 60)
    assert events == []
    assert seen.healthy
    assert seen.verdict[0].startswith("The training is healthy: the loss went from ")
    assert "6 of 60 steps sampled." in str(seen)
    assert "0 samples" in repr(watch(network()))
