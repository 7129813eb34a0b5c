"""A user's images in class folders and archives, and CIFAR-10 in its files: read alike, or refused by name."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import assert_refused
from data_room import quiet
from laboratory import Cli, file_names, refused
from PIL import Image

from stiefel_init import StiefelError
from stiefel_init.lab import data
from stiefel_init.lab.data import formats, images, library
from stiefel_init.lab.data.catalog import CATALOG

pytestmark = pytest.mark.usefixtures("offline")
RNG = np.random.default_rng(0)
Tree = dict[str, bytes]


def picture(number: int = 0, *, size: tuple[int, int] = (4, 6), mode: str = "RGB", kind: str = "png") -> bytes:
    """An image of noise as a file."""
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(written, kind)
    return written.getvalue()


def tree(part: str = "", classes: Mapping[str, int] = {"cat": 6, "dog": 5}, **options: Any) -> Tree:
    """Class folders."""
    return {
        f"{part}{label}/{number}.png": picture(100 * place + number + 7 * len(part), **options)
        for place, (label, count) in enumerate(classes.items())
        for number in range(count)
    }


SPLIT = tree("train/") | tree("test/", {"cat": 1, "dog": 2})


def packed(files: Tree, path: Path) -> Path:
    """The files as a folder or an archive, whichever the path is named."""
    if not path.suffix:
        for name, raw in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(raw)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, raw in files.items():
                archive.writestr(name, raw)
    else:
        with tarfile.open(path, f"w:{path.suffix[1:].removeprefix('tar')}") as packing:  # type: ignore[call-overload]
            for name, raw in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(raw)
                packing.addfile(member, io.BytesIO(raw))
    return path


def pixels_of(raw: bytes) -> np.ndarray:
    """A row of a data set, from a file."""
    return np.asarray(Image.open(io.BytesIO(raw))).transpose(2, 0, 1).ravel()


@pytest.mark.parametrize("name", ["pets", "pets.zip", "pets.tar", "pets.tar.gz", "pets.tar.xz", "pets.tar.bz2"])
@pytest.mark.parametrize("top", ["", "pets/"])
def test_folders_and_archives_of_the_same_images_are_the_same_set(name: str, top: str, tmp_path: Path) -> None:
    junk = {"__MACOSX/._0.png": b"", ".DS_Store": b"", f"{top}train/cat/Thumbs.db": b""}
    files = dict(sorted(({top + each: raw for each, raw in SPLIT.items()} | junk).items(), reverse=True))
    found = data.from_images(packed(files, tmp_path / name))
    assert (found.name, found.classes, found.scale, found.image, found.train_rows) == ("pets", 2, 255.0, (3, 4, 6), 11)
    assert found.y.tolist() == [0] * 6 + [1] * 5 + [0, 1, 1]
    assert all(np.array_equal(row, pixels_of(raw)) for row, raw in zip(found.x, SPLIT.values(), strict=True))


def test_without_a_test_part_a_fifth_of_each_class_is_one(tmp_path: Path) -> None:
    found = data.from_images(packed(tree(classes={"a": 10, "b": 20, "c": 5}), tmp_path / "letters"))
    assert found.train_rows == 28
    assert np.bincount(found.y[28:]).tolist() == [2, 4, 1]
    assert len(np.unique(found.x, axis=0)) == 35
    parts = data.split(replace(found, validation=True), 3)
    assert parts.x_train.dtype == np.uint8
    assert (len(parts.x_train), len(parts.x_test)) == (22, 6)


def test_grey_images_have_one_channel_and_any_format_is_read(tmp_path: Path) -> None:
    others = {f"cat/more.{kind}": picture(1, mode="L", kind=kind) for kind in ("bmp", "jpeg", "webp")}
    others["cat/more.webp"] = picture(1, mode="L", kind="tiff")  # whatever it is called
    assert data.from_images(packed(tree(mode="L") | others, tmp_path / "grey")).image == (1, 4, 6)
    mixed = tree() | {"dog/pale.png": picture(1, mode="P")}
    assert data.from_images(packed(mixed, tmp_path / "colour")).image == (3, 4, 6)


def test_images_are_decoded_once_until_one_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = packed(tree(), tmp_path / "pets")
    first = data.from_images(folder)
    calls: list[Any] = []
    decode = images.decoded

    def decoded(*given: Any) -> Any:
        calls.append(given)
        return decode(*given)

    monkeypatch.setattr(images, "decoded", decoded)
    assert np.array_equal(data.from_images(folder).x, first.x)
    assert not calls
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    assert np.array_equal(data.from_images(folder).x, first.x), "a damaged cache is made anew"
    (folder / "dog" / "0.png").write_bytes(picture(77))
    assert not np.array_equal(data.from_images(folder).x, first.x)
    assert len(calls) == 2


PNG = picture()
BAD: dict[str, tuple[Tree, tuple[str, ...]]] = {
    "no image": (tree() | {"cat/notes.txt": b"hello"}, ("cat/notes.txt", "is not an image")),
    "an empty file": (tree() | {"cat/z.png": b""}, ("cat/z.png", "is not an image")),
    "cut off": (tree() | {"cat/z.png": picture(1)[:90]}, ("cat/z.png", "replace or remove")),
    "size": (
        tree() | {"dog/z.png": picture(1, size=(5, 6))},
        ("dog/z.png", "5 × 6", "11 others are 4 × 6", "one size"),
    ),
    "grey": (tree() | {"dog/z.png": picture(1, mode="L")}, ("dog/z.png", "is grey", "11 others are in colour")),
    "colour": (tree(mode="L") | {"dog/z.png": PNG}, ("dog/z.png", "is in colour", "11 others are grey")),
    "deep": (tree() | {"dog/z.png": picture(1, mode="I", kind="tiff")}, ("8 bits",)),
    "one of a class": (tree() | {"emu/0.png": PNG}, ("class emu", "a single image")),
    "one class": (tree(classes={"cat": 5}), ("only the class cat",)),
    "few": (tree(classes={"a": 2, "b": 2, "c": 2, "d": 2}), ("8 images of 4 classes",)),
    "no class": (tree() | {"z.png": PNG}, ("z.png", "lies in no class", "CLASS/")),
    "no class of a part": (SPLIT | {"train/z.png": PNG}, ("train/z.png", "train/CLASS/ or test/CLASS/")),
    "not in both": (SPLIT | {"test/emu/0.png": PNG}, ("class emu", "no image in train")),
    "nothing": ({".DS_Store": b""}, ("holds no images",)),
}


@pytest.mark.parametrize(("files", "words"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_named(files: Tree, words: tuple[str, ...], tmp_path: Path) -> None:
    path = packed(files, tmp_path / "mine")
    if not files.keys() - {".DS_Store"}:
        path.mkdir(exist_ok=True)
    assert_refused(lambda: data.from_images(path), [str(path), *words])
    assert not (tmp_path / "cache").exists()


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    folder = packed(tree(), tmp_path / "mine")
    (folder / "emu").mkdir()
    assert_refused(lambda: data.from_images(folder), ["class emu", "is empty"])


def link(path: Path) -> None:
    """A tar with a link in it."""
    with tarfile.open(path, "w") as packing:
        member = tarfile.TarInfo("cat/0.png")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packing.addfile(member)


def whole(path: Path) -> bytes:
    """A good archive, written there."""
    return packed(tree(), path).read_bytes()


DAMAGE: dict[str, tuple[str, Callable[[Path], Any], tuple[str, ...]]] = {
    "cut zip": ("a.zip", lambda p: p.write_bytes(whole(p)[:-40]), ("damaged, cut off or no archive",)),
    "damaged zip": ("a.zip", lambda p: p.write_bytes(whole(p).replace(b"IDAT", b"IDOT")), ("damaged",)),
    "cut between files": ("a.tar", lambda p: p.write_bytes(whole(p)[:1024]), ("does not end as an archive",)),
    "cut tar": ("a.tar", lambda p: p.write_bytes(whole(p)[:2000]), ("damaged",)),
    "cut xz": ("a.tar.xz", lambda p: p.write_bytes(whole(p)[:-40]), ("damaged",)),
    "cut gz": ("a.tar.gz", lambda p: p.write_bytes(whole(p)[:-40]), ("damaged",)),
    "no archive": ("a.tar", lambda p: p.write_text("hello"), ("damaged, cut off or no archive",)),
    "out of it": ("a.zip", lambda p: packed(tree() | {"cat/../../x.png": PNG}, p), ("cat/../../x.png", "leads out")),
    "absolute": ("a.tar", lambda p: packed(tree() | {"/x.png": PNG}, p), ("/x.png", "leads out")),
    "a drive": ("a.zip", lambda p: packed(tree() | {"C:\\x.png": PNG}, p), ("leads out",)),
    "a link": ("a.tar", link, ("cat/0.png", "is a link")),
    "not there": ("a.tar", lambda p: None, ("does not exist",)),
}


@pytest.mark.parametrize(("name", "spoil", "words"), DAMAGE.values(), ids=DAMAGE)
def test_a_bad_archive_is_one_sentence_and_nothing_is_written(
    name: str, spoil: Callable[[Path], Any], words: tuple[str, ...], tmp_path: Path, stiefel_init: Cli
) -> None:
    spoil(tmp_path / name)
    before = file_names(tmp_path)
    refused(stiefel_init("train", "--data", name, "--depth", "2", "--out", "study"), name, *words)
    assert file_names(tmp_path) == before


def test_options_for_tables_are_refused_and_a_zipped_table_is_still_one(tmp_path: Path, stiefel_init: Cli) -> None:
    packed(tree(), tmp_path / "pets.zip")
    refused(stiefel_init("train", "--data", "pets.zip", "--drop", "age"), "--drop", "whose classes are their folders")
    rows = "age,kind\n" + "1,a\n2,b\n" * 10
    packed({"table.csv": rows.encode()}, tmp_path / "table.zip")
    done = stiefel_init("train", "--data", "table.zip", "--target", "kind", "--scheme", "he", "--depth", "1",
                        "--epochs", "1", "--device", "cpu")  # fmt: skip
    assert done.code == 0
    refused(stiefel_init("train", "--data", str(tmp_path), "--target", "kind"), "is a directory")


# CIFAR-10's own files.

X, Y = RNG.integers(0, 256, (18, 3072), np.uint8), RNG.integers(0, 10, 18)
NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def batches() -> Tree:
    """The six files, with three images each."""
    return {name: old_pickle(X[3 * at : 3 * at + 3], Y[3 * at : 3 * at + 3]) for at, name in enumerate(NAMES)}


def old_pickle(x: np.ndarray, y: np.ndarray) -> bytes:
    """Images and labels as Python 2 pickled them, opcode by opcode."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def small(*values: int) -> bytes:
        return b"".join(b"M" + value.to_bytes(2, "little") for value in values)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + small(0, 1) + b"\x87R(" + small(3) + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xff" * 2 + small(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + small(0) + b"\x85" + text(b"b") + b"\x87R"
    array += b"(" + small(1) + small(*x.shape) + b"\x86" + dtype + b"\x89" + text(x.tobytes()) + b"tb"
    labels = b"](" + small(*y.tolist()) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


@pytest.mark.parametrize("archived", [False, True])
def test_cifar_in_each_of_its_forms(archived: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"cifar-10-batches-py/{name}": raw for name, raw in batches().items()}
    if archived:
        name, readme = "cifar-10-python.tar.gz", {"cifar-10-batches-py/readme.html": b"<a>"}
        files = {name: packed(files | readme, tmp_path / name).read_bytes()}
    packed(files, tmp_path / "room")
    assert_refused(lambda: data.load("cifar10", directory=tmp_path / "room", log=quiet), ["its sum is", "good copy"])
    sums = {name: hashlib.md5(raw).hexdigest() for name, raw in files.items()}
    known = CATALOG["cifar10"]
    forms = tuple(replace(each, sums=sums) if each.files.keys() == sums.keys() else each for each in known.forms)
    monkeypatch.setattr(library, "CATALOG", {"cifar10": replace(known, forms=forms)})
    found = data.load("cifar10", directory=tmp_path / "room", log=quiet)
    assert np.array_equal(found.x, X)
    assert found.y.tolist() == Y.tolist()
    assert (found.train_rows, found.image) == (15, (3, 32, 32))
    assert np.array_equal(data.load("cifar10", log=quiet).x, X), "from the cache"


class Evil:
    """What a pickle must not run."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("/tmp/evil"),)


def test_a_pickle_of_anything_but_arrays_is_not_run() -> None:
    raw = pickle.dumps({b"data": X, b"labels": Evil()}, protocol=4)
    with pytest.raises(formats.UnreadableError, match="which is no array"):
        formats.cifar({"data_batch_1": raw})


def test_the_small_copies_of_cifar_are_a_set_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cifar10").mkdir()
    path = packed({f"cifar10/{name}": raw for name, raw in SPLIT.items()}, tmp_path / "cifar10" / "cifar10-jpeg.tar.xz")
    known = CATALOG["cifar10-jpeg"]
    sums = {"cifar10/cifar10-jpeg.tar.xz": hashlib.sha256(path.read_bytes()).hexdigest()}
    form = replace(known.forms[0], sums=sums)
    monkeypatch.setattr(library, "CATALOG", {"cifar10-jpeg": replace(known, forms=(form,))})
    found = data.load("cifar10-jpeg", directory=tmp_path, log=quiet)
    assert (found.x.shape, found.train_rows) == ((14, 72), 11)
    assert data.where("cifar10-jpeg", directory=tmp_path) == str(path)


def test_what_cannot_be_fetched_says_which_files_to_bring(tmp_path: Path) -> None:
    with pytest.raises(StiefelError) as error:
        data.load("cifar10", directory=tmp_path, log=quiet)
    for word in ("cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz"):
        assert word in str(error.value)
