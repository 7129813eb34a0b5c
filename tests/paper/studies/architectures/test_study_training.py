"""The study of architectures: its networks and starts, and that a run is the training it says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from paper.experiment import Options
from paper.studies.architectures import Architectures
from paper.studies.architectures.catalogue import Network, networks
from paper.studies.architectures.initializations import INITIALIZATIONS, names_of
from paper.studies.architectures.networks import GPT, PlainCNN, Recurrent, ResNet20, mlp
from paper.studies.architectures.problems import QUARTERS, R2, Examples, Text, function
from paper.studies.architectures.runs import Manner, Runs, train_all
from paper.studies.architectures.training import TUNING, Job, Slot, model_of, schedule, train
from torch import Tensor, nn

from stiefel_init import StiefelError

CPU = torch.device("cpu")


def tiny(**changes: object) -> Network:
    """A network that is trained in a blink."""
    found = replace(networks(quick=True)["mlp3-1-regression"], steps=12, tune=12, batch=32)
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("quick", [True, False])
def test_every_network_takes_its_problem(quick: bool) -> None:
    for network in networks(quick=quick).values():
        with torch.device("meta"):
            model = network.make()
        size = sum(p.numel() for p in model.parameters())
        assert size > 100, network.name
        assert "ours" in network.starts
        assert all(high == 2 * low for low, high in zip(network.rates, network.rates[1:]))
    assert len({n.title for n in networks(quick=quick).values()}) == len(networks(quick=quick))


@pytest.mark.parametrize(
    ("model", "shape"),
    [(mlp(6, 3, 5), (8, 6)), (PlainCNN(8, channels=8), (4, 1, 8, 8))],
    ids=["mlp", "cnn"],
)
def test_looks_linear_is_linear_and_passes_everything_on(model: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    INITIALIZATIONS["looks-linear"].apply(model)
    model.double()
    x, y = torch.randn(2, *shape, dtype=torch.float64).unbind()
    with torch.no_grad():
        torch.testing.assert_close(model(-x), -model(x))
        torch.testing.assert_close(model(2 * x - y), 2 * model(x) - model(y))
    if isinstance(model, nn.Sequential):  # ‖Wx‖ = ‖x‖ through all layers but the last, which keeps some of it
        inner = model[:-1](x)
        half = inner.shape[1] // 2
        torch.testing.assert_close((inner[:, :half] - inner[:, half:]).norm(dim=1), x.norm(dim=1), rtol=1e-6, atol=0)


def test_gpt2s_start_has_its_deviations() -> None:
    torch.manual_seed(0)
    model = GPT(width=64, blocks=4, tokens=16)
    INITIALIZATIONS["gpt-2"].apply(model)
    deviations = {name: float(weight.detach().std()) for name, weight in model.named_parameters() if weight.ndim > 1}
    assert deviations["blocks.0.fc1.weight"] == pytest.approx(0.02, rel=0.03)
    for end in ("blocks.0.fc2.weight", "blocks.3.attention.proj.weight"):
        assert deviations[end] == pytest.approx(0.02 / math.sqrt(8), rel=0.05)


def test_the_identity_start() -> None:
    model = Recurrent("rnn")
    INITIALIZATIONS["identity"].apply(model)
    torch.testing.assert_close(model.get_parameter("recurrent.weight_hh_l0").detach(), torch.eye(128))
    assert float(model.get_parameter("recurrent.weight_ih_l0").detach().std()) < 0.0015


def test_the_mimetic_start_has_its_products() -> None:
    torch.manual_seed(0)
    model, width = GPT(width=64, blocks=2, tokens=16), 64
    INITIALIZATIONS["mimetic"].apply(model)
    for block in cast(Any, model.blocks):
        q, k, v = block.attention.qkv.weight.detach().view(3, 8, 8, width)
        noise = block.attention.proj.weight.detach() @ v.reshape(width, width) + 0.4 * torch.eye(width)
        assert float(noise.std()) == pytest.approx(0.4 / 8, rel=0.1)
        assert abs(float(noise.diagonal().mean())) < 5 * 0.05 / 8  # five deviations of a mean of 64
        for left, right in zip(q, k):
            torch.testing.assert_close(left @ left.T, right @ right.T, rtol=0, atol=1e-4)  # half of the product each
            values = torch.linalg.svdvals(left.T @ right)
            assert 1.0 < float(values[7]) < float(values[0]) < 0.7 * 3.1  # the largest 8 of a matrix of 64
            assert 0.05 < float((left.T @ right).diagonal().mean()) < 0.35  # near I, as far as 8 of 64 directions go
    image = networks(quick=True)["vit"].make()
    INITIALIZATIONS["mimetic"].apply(image)
    rows = image.get_parameter("position").detach()[0]
    torch.testing.assert_close(rows.square().sum(1), torch.full((16,), 16.0))  # half sines, half cosines
    near, far = rows[0] @ rows[1], rows[0] @ rows[15]
    assert near > far


def test_every_start_sets_every_weight_of_its_networks() -> None:
    for network in networks(quick=True).values():
        for start in names_of(network.kind):
            first, second = (model_of(network, Job(network.name, start, 1.0, seed)) for seed in (0, 1))
            again = model_of(network, Job(network.name, start, 1.0, 0))
            for (name, a), b, c in zip(first.named_parameters(), second.parameters(), again.parameters()):
                torch.testing.assert_close(a, c, rtol=0, atol=0)
                fixed = start in ("identity", "looks-linear") or a.ndim < 2 or 1 in a.shape[:2]  # one member
                assert fixed or not torch.equal(a, b), (network.name, start, name)


def plainly(network: Network, problem: Examples, job: Job) -> list[float]:
    """The same training as a user would write it."""
    torch.manual_seed(job.seed)
    model = network.make()
    INITIALIZATIONS[job.start].apply(model)
    generator = torch.Generator().manual_seed(job.seed)
    adam = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.0)
    per_epoch, scores = problem.size // network.batch, []
    for step in range(network.steps):
        if step % per_epoch == 0:
            order = torch.randperm(problem.size, generator=generator)
        rows = order[step % per_epoch * network.batch :][: network.batch]
        warm = min(1.0, (step + 1) / max(1, network.steps // 20))
        for group in adam.param_groups:
            group["lr"] = job.rate * warm * 0.5 * (1 + math.cos(math.pi * step / network.steps))
        adam.zero_grad()
        F.mse_loss(model(problem.x[rows])[:, 0], problem.y[rows]).backward()
        adam.step()
        if (step + 1) % (network.steps // 6) == 0:
            with torch.no_grad():
                wrong = ((model(problem.test_x)[:, 0] - problem.test_y) ** 2).mean()
            scores.append(float(1 - wrong / problem.test_y.var(correction=0)))
    return scores


def test_a_run_is_the_training_as_users_write_it() -> None:
    network, problem = tiny(steps=120), function(1, CPU, regression=True, rows=300)
    jobs = [Job(network.name, "he", 0.003, 0), Job(network.name, "ours", 0.002, 1)]
    waiting = list(jobs)
    ends = dict(train(network, problem, CPU, lambda: waiting.pop(0) if waiting else None, lambda steps: None))
    for job in jobs:  # the second one in a slot that the first one has used
        assert ends[job] == pytest.approx([max(score, 0) for score in plainly(network, problem, job)], abs=2e-3)
    assert ends[jobs[0]][-1] > 0.5


def test_the_schedule_warms_up_and_ends_at_nothing() -> None:
    rates = schedule(0.1, 200)
    assert float(rates[0]) == pytest.approx(0.01, rel=1e-3)
    assert int(rates.argmax()) in (9, 10)
    assert float(rates[-1]) < 1e-5


def test_a_slot_forgets_the_run_before() -> None:
    network = tiny(make=lambda: nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)))
    problem = function(1, CPU, regression=True, rows=200)
    slot = Slot(network, problem, CPU)
    first, other = Job(network.name, "torch", 0.01, 0), Job(network.name, "he", 0.5, 1)
    curves = []
    for job in (first, other, first):
        slot.begin(job)
        while not slot.over:
            slot.advance()
        curves.append(slot.result())
    assert curves[0] == curves[2]
    assert slot.job is None


def test_what_learns_nothing_is_stopped_halfway() -> None:
    network, problem = tiny(), function(1, CPU, regression=True, rows=200)
    jobs, steps = [Job(network.name, "he", 1e-12, 0)], [0]
    ends = list(train(network, problem, CPU, lambda: jobs.pop() if jobs else None, lambda taken: steps.append(taken)))
    assert ends[0][1] == [0.0, 0.0, 0.0]  # of six looks
    assert sum(steps) == network.steps  # the rest counts as done


def test_a_score_that_is_still_being_computed_is_not_read() -> None:
    """A run that is stopped halfway may have the next look queued; what is in that tensor then is anything."""
    network, problem = tiny(), function(1, CPU, regression=True, rows=200)
    slot = Slot(network, problem, CPU)
    slot.begin(Job(network.name, "he", 1e-12, 0))
    for _ in range(4):
        slot.advance()
    slot.scores[3] = torch.tensor(6106.0)
    slot.stream = cast(Any, object())  # as on a GPU
    slot.events = cast(Any, [SimpleNamespace(query=lambda done=done: done) for done in (True, True, True, False)])
    assert slot.finished()
    assert slot.result() == [0.0, 0.0, 0.0]


def test_a_diverged_network_has_the_score_of_chance() -> None:
    network, problem = tiny(metric=QUARTERS), function(1, CPU, regression=False, rows=200)
    network = replace(network, make=lambda: mlp(1, 4, 3))
    jobs = [Job(network.name, "he", 1e30, 0)]
    ((_, curve),) = train(network, problem, CPU, lambda: jobs.pop() if jobs else None, lambda steps: None)
    assert set(curve) <= {25.0, *[score for score in curve if score > 25]}
    assert all(math.isfinite(score) for score in curve)


def test_problems_hold_out_what_they_test() -> None:
    text = Text(CPU, tokens=32)
    inputs, targets = text.batch(torch.tensor([0, 7]))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert len(text.train) > 5 * len(text.test) > 1_000_000
    few = function(1000, CPU, regression=False, rows=100)
    assert few.x.shape == (100, 1000)
    assert torch.bincount(few.test_y).min() > 700
    assert R2.learnt(0.2)
    assert not R2.learnt(0.05)


def test_residual_blocks_end_in_what_they_say() -> None:
    """With the second convolutions at zero a block is the identity, so that the names in `starts` mean their ends."""
    model = ResNet20(normalized=False)
    x: Tensor = torch.rand(2, 16, 6, 6)
    block = model.blocks[0]
    nn.init.zeros_(block.conv2.weight)  # type: ignore[union-attr,arg-type]
    nn.init.zeros_(block.conv2.bias)  # type: ignore[union-attr,arg-type]
    torch.testing.assert_close(block(x), x)


def test_the_study_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny(steps=6, tune=6)
    module = "paper.studies.architectures"
    for place in (f"{module}.study.networks", f"{module}.runs.networks"):
        monkeypatch.setattr(place, lambda quick: {network.name: network})
    options = Options(tmp_path, seeds=2, quick=True, device="cpu")
    whole = Architectures().train(options)
    path = tmp_path / "architectures-quick.csv"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + len(whole)
    path.write_text("".join(lines[:4]) + lines[4][:10])  # a kill in the middle of a line
    again = Architectures().train(options)
    assert again == whole
    before = path.stat().st_mtime_ns
    assert Architectures().train(options) == whole
    assert path.stat().st_mtime_ns == before
    tuned = {job.start for job in whole if job.seed == TUNING}
    assert tuned == set(names_of("mlp"))


@pytest.mark.slow
def test_networks_in_processes_of_their_own_are_those_trained_here() -> None:
    """As on a GPU."""
    network = networks(quick=True)["mlp3-1-regression"]
    manner = Manner(quick=True, seeds=1, device=CPU, data=None, until=math.inf)
    done = {Job(network.name, start, rate, TUNING): (0.9,) for start in network.starts for rate in network.rates}
    steps: list[int] = []

    def ends(workers: int) -> dict[Job, list[float]]:
        runs: Runs = dict(done)
        found = {}
        for job, curve in train_all([network], runs, manner, lambda _, taken: steps.append(taken), workers):
            runs[job], found[job] = tuple(curve), curve
        return found

    apart = ends(2)
    assert sum(steps) == len(network.starts) * network.steps
    assert apart == ends(0)
    assert {job.seed for job in apart} == {0}


@pytest.mark.slow
def test_a_network_that_cannot_be_trained_is_named() -> None:
    manner = Manner(quick=True, seeds=1, device=CPU, data=None, until=math.inf)
    with pytest.raises(StiefelError, match=r"Training none failed \(KeyError: 'none'\); rerun: finished runs are kept"):
        list(train_all([tiny(name="none")], {}, manner, lambda *_: None, 1))
