"""Where the fused engine goes, and what it says of what it cannot train."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_training import DEVICE, images

from stiefel_init import StiefelError
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.fused import FusedEngine, agrees_with_graph
from stiefel_init.lab.train.graph import GraphEngine
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import pick_engine


@pytest.mark.parametrize(
    ("major", "shared", "narrow", "tf32", "wide"),
    [(7, 64, *[False] * 3), (8, 99, True, False, False), (8, 163, True, True, False), (9, 227, *[True] * 3)],
)
def test_the_fused_engine_goes_where_its_kernels_can_run(
    major: int, shared: int, narrow: bool, tf32: bool, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(major=major, shared_memory_per_block_optin=shared << 10)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    cuda = torch.device("cuda")
    problem = images(50, classes=10)
    assert FusedEngine.suits(Cell("none", width=64), problem, cuda) is narrow
    assert FusedEngine.suits(Cell("none", width=64, precision="tf32"), problem, cuda) is tf32
    assert FusedEngine.suits(Cell("none", width=128), problem, cuda) is wide
    assert not FusedEngine.suits(Cell("none", width=129), problem, cuda)
    assert not FusedEngine.suits(Cell("none", width=64), problem, torch.device("cpu"))
    for cell, suits in ((Cell("none", width=64), narrow), (Cell("none", width=128), wide)):
        assert pick_engine("auto", cell, problem, cuda) is (FusedEngine if suits else GraphEngine)


def test_the_fused_engine_says_what_it_cannot_train() -> None:
    problem = images(17)
    widths: tuple[Any, ...] = ((5, 6), 129)
    for width in widths:
        cell = Cell("none", depth=2, width=width)
        assert FusedEngine.refuses(cell, problem) is not None
        with pytest.raises(StiefelError, match="engine='graph'"):
            pick_engine("fused", cell, problem, DEVICE)
        assert pick_engine("graph", cell, problem, DEVICE) is GraphEngine
    assert FusedEngine.refuses(Cell("none", depth=2, width=128), problem) is None
    with pytest.raises(StiefelError, match="engine='fast' is not known"):
        run([Cell("wine", depth=2, width=5)], device="cpu", engine="fast")  # type: ignore[arg-type]


def test_kernels_that_nobody_compared_on_a_card_are_tried_there_first(capsys: pytest.CaptureFixture[str]) -> None:
    """They are taken if a step is that of the graph engine, and neither if it differs nor if they do not compile."""

    class Wrong(GraphEngine):
        def epoch(self, *given: Any) -> Any:
            self.stack.parameters.flat.add_(0.1)
            return super().epoch(*given)

    class Broken(GraphEngine):
        def epoch(self, *given: Any) -> Any:
            raise RuntimeError("no such instruction")

    cpu = torch.device("cpu")
    assert agrees_with_graph(FusedEngine, "tanh", DEVICE)
    assert not agrees_with_graph(Wrong, "tanh", cpu)
    assert not capsys.readouterr().err
    assert not agrees_with_graph(Broken, "tanh", cpu)
    assert "No kernel for tanh on cpu (RuntimeError); its networks train slower." in capsys.readouterr().err
