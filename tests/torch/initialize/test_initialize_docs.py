"""docs/initialize.md and recipe.md: their code runs, the plan is what is printed, the numbers are what comes out."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

from stiefel_init.recipe.layers import Conv
from stiefel_init.torch import initialize_

PAGES = [Path(__file__).parents[3] / "docs" / name for name in ("initialize.md", "recipe.md")]
TEXT = "".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch.compile's own
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_of_the_docs_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun would run it with one process, which matters to the block that joins processes."""
    if "init_process_group" in block and not torch.distributed.is_gloo_available():
        pytest.skip("needs gloo")
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    exec(compile(block, "initialize.md", "exec"), {})


def test_the_plan_in_the_docs_is_what_the_first_block_prints(capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[0], {})
    (shown, *_) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert capsys.readouterr().out == shown


def photographs() -> Tensor:
    """The two photographs of scikit-learn, quartered in size and cut into 120 images of 3 × 16 × 16 pixels."""
    pixels = torch.from_numpy(np.stack(load_sample_images().images)[:, :384]).permute(0, 3, 1, 2) / 255
    small = nn.functional.avg_pool2d(pixels, 4)
    return small.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 16, 16)


def feature_maps(scheme: str, conv: Conv, factor: float) -> list[float]:
    """After 1, 5 and 20 layers: mean, norm and contrast of the feature maps over those of the images; seeds 0 to 2."""
    x = photographs()
    rows = []
    for seed in range(3):
        layers = [nn.Conv2d(32 if depth else 3, 32, 3, padding=1) for depth in range(20)]
        initialize_(nn.Sequential(*layers), scheme, conv=conv, seed=seed)
        h, row = x, []
        for depth, layer in enumerate(layers, 1):
            h = torch.relu(factor * layer(h)).detach()
            if depth in (1, 5, 20):
                contrast = [(y - y.mean((2, 3), keepdim=True)).norm() for y in (h, x)]
                row += [h.mean() / x.mean() * math.sqrt(32 / 3), h.norm() / x.norm(), contrast[0] / contrast[1]]
        rows.append([float(value) for value in row])
    return list(np.mean(rows, 0))


def test_the_numbers_of_the_docs_are_what_comes_out() -> None:
    cases: dict[str, tuple[str, Conv, float]] = {
        "`delta`": ("stiefel", "delta", 1),
        "`flatten`": ("stiefel", "flatten", 1),
        "flatten, not scaled": ("stiefel", "flatten", 3),
        "`he`": ("he", "delta", 1),
        "`orthogonal`, `delta`": ("orthogonal", "delta", 1),
    }
    table = re.findall(r"^\| ([^|]+?) +\|((?: [\d.e+]+ / [\d.e+]+ / [\d.e+]+ +\|){3})$", TEXT, re.MULTILINE)
    assert [label for label, _ in table] == list(cases)
    for label, numbers in table:
        written = [number for cell in numbers.strip("| ").split("|") for number in cell.split("/")]
        computed = [f"{value:.2g}" for value in feature_maps(*cases[label])]
        assert [float(number) for number in written] == [float(number) for number in computed], (label, computed)
