"""The study of plasticity: its networks learn as PyTorch's would, each method does what it says, its page follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from paper.experiment import Options
from paper.results import Results
from paper.studies import continual, plasticity
from paper.studies.continual import Cell, Images, Networks
from paper.studies.plasticity import Plasticity
from torch import nn

from stiefel_init import check

RATE = 3e-3


def images() -> Images:
    """Positive noise with labels that it tells a little of."""
    x = torch.rand(62_000, continual.SIDE**2, generator=torch.Generator().manual_seed(0))
    return Images(x, (10 * x[:, :30].mean(1)).long() % 10)


def batch(seed: int, networks: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(1, continual.BATCH, continual.SIDE**2, generator=generator)
    y = torch.randint(10, (1, continual.BATCH), generator=generator)
    return x.expand(networks, -1, -1), y.expand(networks, -1)


def test_networks_of_several_methods_learn_as_adam_of_pytorch_teaches_one() -> None:
    networks = Networks([Cell("FIRE", RATE, 1.0, 1), Cell("L2", 2 * RATE, 0.1, 0), Cell("nothing", RATE, 0.0, 1)])
    weights = [each[2].clone() for each in networks.p]
    layers = [part for w in weights[::2] for part in (nn.Linear(w.shape[1], w.shape[0]), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, held in zip(model.parameters(), weights):
            parameter.copy_(held.reshape(parameter.shape))
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for step in range(5):
        x, y = batch(step, 3)
        right = networks.step(x, y)
        outputs = model(x[2])
        assert right[2] == (outputs.argmax(-1) == y[2]).float().mean()
        optimizer.zero_grad()
        nn.functional.cross_entropy(outputs, y[2]).backward()
        optimizer.step()
    for parameter, held in zip(model.parameters(), networks.p):
        torch.testing.assert_close(parameter.detach(), held[2].reshape(parameter.shape), atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(networks.p[0][0], networks.p[0][2])  # FIRE acts between tasks alone
    assert networks.p[0][1].norm() != networks.p[0][2].norm()


def after_steps(method: str, strength: float, steps: int = 3) -> tuple[Networks, list[torch.Tensor]]:
    networks = Networks([Cell(method, RATE, strength, 0)])
    for step in range(steps):
        networks.step(*batch(step))
    return networks, [each.clone() for each in networks.p]


def test_each_method_does_what_it_says() -> None:
    x, _ = batch(9)
    on_set, _ = after_steps("on the set", 0.0)
    assert all(check(w[0], tol=1e-4) for w in on_set.p[:-2:2])
    assert not check(on_set.p[-2][0])
    anew, _ = after_steps("start anew", 1.0)
    anew.between(3, x)
    assert all(torch.equal(a, b) for a, b in zip(anew.p, continual.fresh([0], 3)))
    fire, before = after_steps("FIRE", 1.0)
    fire.between(1, x)
    wide, tall = fire.p[0][0], before[1]
    torch.testing.assert_close(wide @ wide.mT, 32 / 196 * torch.eye(32), atol=1e-5, rtol=0)
    assert torch.equal(fire.p[1], tall)  # biases stay
    restored, before = after_steps("restore", 1.0)
    assert not any(check(w[0], tol=1e-4) for w in before[:-2:2])
    restored.between(1, x)
    assert all(check(w[0], tol=1e-4) for w in restored.p[:-2:2])
    assert not any(b.any() for b in restored.p[1::2])
    parseval, _ = after_steps("Parseval", 10.0, 200)
    free, _ = after_steps("nothing", 0.0, 200)
    apart = [float((n.p[2] @ n.p[2].mT - torch.eye(32)).norm()) for n in (parseval, free)]
    assert apart[0] < apart[1] / 3


@pytest.mark.parametrize(("method", "strength"), [("ReDo", 0.1), ("continual backprop", 0.01)])
def test_units_of_no_use_get_new_weights_and_none_behind_them(method: str, strength: float) -> None:
    networks = Networks([Cell(method, RATE, strength, 0), Cell("nothing", RATE, 0.0, 0)][:1])
    networks.p[3][0, 5] = -100.0  # a dead unit of the second layer
    before = networks.p[2][0, 5].clone()
    for step in range(150):
        networks.step(*batch(step))
    networks.between(1, batch(0)[0])
    assert networks.p[3][0, 5] > -1
    assert not torch.equal(networks.p[2][0, 5], before)


def rows(method: str, online: float, last: float) -> list[dict[str, Any]]:
    found = {
        "kind": "permuted MNIST",
        "method": method,
        "rate": RATE,
        "strength": 0.5,
        "end": 80.0,
        "forgotten": 3.0,
        "tasks": 30,
    }
    return [
        found | {"seed": seed, "online": online + 0.1 * seed, "first": 70.0, "last": last + 0.1 * seed, "ms": 0.1}
        for seed in range(5)
    ]


def test_the_page_says_who_loses_accuracy_and_who_is_behind() -> None:
    evidence = [row for method in plasticity.STRENGTHS for row in rows(method, 60.0, 60.0)]
    evidence = [row for row in evidence if row["method"] not in ("restore", "FIRE", "on the set")]
    evidence += rows("restore", 71.0, 70.0) + rows("FIRE", 72.0, 69.0) + rows("on the set", 77.0, 60.0)
    text = " ".join(Plasticity().section(evidence))
    assert "**restore** shows no loss of accuracy" in text
    assert "below that of the best rival, FIRE (-1.0 ± 0.0)" in text
    assert "**on the set** loses accuracy" in text
    assert "above that of the best rival, FIRE (+5.0 ± 0.0)" in text


def test_a_run_chooses_on_other_seeds_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plasticity, "STRENGTHS", {"nothing": (0.0,), "restore": (0.5,), "on the set": (0.0,)})
    monkeypatch.setattr(plasticity, "RATES", (1e-3, RATE))
    monkeypatch.setattr(plasticity, "KINDS", {"permuted MNIST": continual.KINDS["permuted MNIST"]})
    monkeypatch.setattr(continual, "STEPS", 3)
    monkeypatch.setattr(plasticity, "cost", lambda cells, images: 0.5)
    monkeypatch.setattr(Images, "of", lambda name, directory: images())
    Plasticity().run(Options(tmp_path, quick=True))
    found = Results(tmp_path).table("plasticity-quick")
    assert len(found) == 3 * 2 * 2 + 3 * 2
    best = plasticity.chosen(found, "permuted MNIST")
    assert {(row["method"], row["rate"]) for row in found if row["seed"] < 2} == {(m, r) for m, (r, _) in best.items()}
    text = (tmp_path / "plasticity-quick.csv").read_text()
    monkeypatch.setattr(plasticity, "train", None)
    Plasticity().run(Options(tmp_path, quick=True))
    assert (tmp_path / "plasticity-quick.csv").read_text() == text
