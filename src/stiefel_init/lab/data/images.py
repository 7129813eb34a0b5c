"""Images of the user's own: class folders, in a folder or in an archive; decoded once, and kept as bytes."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import StiefelError
from ..plugins import first_line
from ..progress import counted
from .dataset import TEST_SHARE, split_rows
from .table import DAMAGED, UNPACK

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")
TRAIN, TESTS = "train", ("test", "val", "valid", "validation")
"""Folders of a split; the second part has any of these names. Without them a fifth of each class tests."""
MOST_BYTES = 16 << 30
_IGNORED = ("thumbs.db", "desktop.ini", "__macosx")
_GREY = ("1", "L", "LA", "La")
_FORM = b"1"  # raised whenever the same files are decoded in another way


class Contents(NamedTuple):
    """What a folder or an archive holds, by names with slashes."""

    files: dict[str, bytes]
    folders: set[str]


def read(path: Path) -> tuple[Contents, str]:
    """What is in a folder or an archive, and a word that tells its content from any other."""
    try:
        if path.is_dir():
            return _folder(path)
        raw = path.read_bytes()
    except OSError as error:
        raise StiefelError(f"{error.filename or path} cannot be read ({error.strerror}).") from None
    return archive(raw, str(path)), _word([raw])


def _folder(path: Path) -> tuple[Contents, str]:
    files, folders = dict[str, bytes](), set[str]()
    for place, inside, names in os.walk(path, followlinks=True):
        inside.sort()
        here = Path(place).relative_to(path)
        folders |= {(here / name).as_posix() for name in inside}
        files |= {(here / name).as_posix(): Path(place, name).read_bytes() for name in sorted(names)}
    return Contents(files, folders), _word(part for name, raw in files.items() for part in (name.encode(), raw))


def _word(parts: Iterable[bytes]) -> str:
    content = hashlib.blake2b(_FORM, digest_size=8)
    for part in parts:
        content.update(len(part).to_bytes(8, "big") + part)
    return content.hexdigest()


def archive(raw: bytes, place: str) -> Contents:
    """What is in an archive; nothing of it is written anywhere."""
    try:
        contents = _zip(raw) if raw.startswith(b"PK") else _tar(raw, place)
    except StiefelError:
        raise
    except (*DAMAGED, tarfile.TarError) as error:
        reason = first_line(error) or type(error).__name__
        raise StiefelError(f"{place} is damaged, cut off or no archive ({reason}); pack it again.") from None
    for name in (*contents.files, *contents.folders):
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name.split("/")[0]:
            raise StiefelError(f"{place} holds {name}, a path that leads out of it; pack the images again.")
    return contents


def _zip(raw: bytes) -> Contents:
    with zipfile.ZipFile(io.BytesIO(raw)) as packed:
        names = packed.namelist()
        files = {name: packed.read(name) for name in names if not name.endswith("/")}
        return Contents(files, {name.rstrip("/") for name in names if name.endswith("/")})


def _tar(raw: bytes, place: str) -> Contents:
    for magic, unpack in UNPACK.items():
        if raw.startswith(magic):
            raw = unpack(raw)
    if raw[-512:].strip(b"\0"):  # one that is cut off between two files looks whole but for its end
        raise tarfile.ReadError("it does not end as an archive does")
    files, folders = dict[str, bytes](), set[str]()
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as packed:
        for member in packed:
            name = member.name.removeprefix("./")
            if member.isdir():
                folders.add(name)
            elif member.isfile():
                stream = packed.extractfile(member)
                files[name] = stream.read() if stream else b""
            else:
                raise StiefelError(f"{place} holds {name}, which is a link and no file; pack the images themselves.")
    return Contents(files, folders)


def decoded(contents: Contents, place: str) -> dict[str, np.ndarray]:
    """The images as arrays of shape (images, channels, height, width), with their classes by number."""
    from PIL import Image

    placed = _placed(contents, place)
    labels = {name: number for number, name in enumerate(sorted({label for _, label, _ in placed}))}
    files = {name: contents.files[name] for _, _, name in placed}
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        pixels = list(pool.map(lambda name: _pixels(name, files[name], place, len(files)), files))
    _check_alike(dict(zip(files, pixels)), place)
    x = np.stack(pixels)
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    y = np.array([labels[label] for _, label, _ in placed])
    tests = np.array([part != TRAIN for part, _, _ in placed])
    if tests.any():
        train, test = np.flatnonzero(~tests), np.flatnonzero(tests)
    else:
        train, test = split_rows(y, 0, stratified=True)
    parts = {"train": train, "test": test}
    return {f"{what}_{part}": array[rows] for part, rows in parts.items() for what, array in (("x", x), ("y", y))}


def _placed(contents: Contents, place: str) -> list[tuple[str, str, str]]:
    """Of each image (part, class, name), in this order; refuses classes that cannot be learned or tested."""
    names = {name: PurePosixPath(name).parts for name in contents.files if not _ignored(name)}
    folders = [PurePosixPath(name).parts for name in contents.folders if not _ignored(name)]
    if not names:
        raise StiefelError(f"{place} holds no images; give a folder or an archive with a folder of images a class.")
    while all(len(parts) > 2 for parts in names.values()) and len({parts[0] for parts in names.values()}) == 1:
        names = {name: parts[1:] for name, parts in names.items()}
        folders = [parts[1:] for parts in folders]
    tops = {parts[0] for parts in names.values()}
    split = TRAIN in tops and len(tops) == 2 and bool(tops & {*TESTS})
    least = 2 if split else 1
    for name, parts in names.items():
        if len(parts) <= least:
            where = "train/CLASS/ or test/CLASS/" if split else "CLASS/"
            raise StiefelError(f"{name} in {place} lies in no class; put every image into a folder {where}.")
    found = [(parts[0] if split else TRAIN, parts[least - 1], name) for name, parts in names.items()]
    counts = Counter((part, label) for part, label, _ in found)
    found_in = sorted({part for part, _ in counts})
    inside = {part: f" in {part}" if split else "" for part in (TRAIN, *TESTS)}
    for folder in sorted(each for each in folders if len(each) >= least):
        part, label = folder[0] if split else TRAIN, folder[least - 1]
        if not counts[part, label]:
            raise StiefelError(f"class {label} in {place} is empty{inside.get(part, '')}; add images or remove it.")
    classes = sorted({label for _, label, _ in found})
    for part, label in product(found_in, classes):
        count = counts[part, label]
        if not count:
            raise StiefelError(f"class {label} in {place} has no image{inside[part]}; add some to every part.")
        if part == TRAIN and count == 1:
            raise StiefelError(f"class {label} in {place} has a single image{inside[part]}; add some or remove it.")
    if len(classes) < 2:
        raise StiefelError(f"{place} has only the class {classes[0]}; classification needs at least two.")
    if not split and TEST_SHARE * len(found) <= len(classes) - 1:
        raise StiefelError(f"{place} has {len(found)} images of {len(classes)} classes, too few to test a fifth.")
    return sorted(found, key=lambda each: (each[0] != TRAIN, *each[1:]))


def _ignored(name: str) -> bool:
    """Whether a file is not the user's own, but left there by an operating system."""
    return any(part.startswith(".") or part.lower() in _IGNORED for part in PurePosixPath(name).parts)


def _check_alike(pixels: dict[str, np.ndarray], place: str) -> None:
    """Refuse images that differ in size, or in whether they have colours."""
    kinds = {
        name: (f"{each.shape[0]} × {each.shape[1]}", "grey" if each.ndim == 2 else "in colour")
        for name, each in pixels.items()
    }
    for each, remedy in enumerate(("bring all images to one size", "convert them")):
        counts = Counter(kind[each] for kind in kinds.values())
        (usual, count), *others = counts.most_common()
        if others:
            odd = next(name for name, kind in kinds.items() if kind[each] != usual)
            told = f"{odd} in {place} is {kinds[odd][each]}, and {counted(count, 'other')}"
            raise StiefelError(f"{told} {'is' if count == 1 else 'are'} {usual}; {remedy}.")


def _pixels(name: str, raw: bytes, place: str, count: int) -> Any:
    """One of so many images as an array, (height, width) if it is grey, else (height, width, 3)."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.mode.startswith(("I", "F")):
                raise StiefelError(f"{name} in {place} has more than 8 bits a pixel; save it with 8.")
            mode = "L" if image.mode in _GREY else "RGB"
            if (total := count * image.width * image.height * len(mode)) > MOST_BYTES:
                raise StiefelError(f"{place} has {count:,} images of {total >> 30} GiB; make them smaller or fewer.")
            return np.asarray(image.convert(mode))
    except StiefelError:
        raise
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        reason = first_line(error)
        reason = "it is none" if "cannot identify" in reason else reason or type(error).__name__
        raise StiefelError(
            f"{name} in {place} is not an image that can be read ({reason}); replace or remove it."
        ) from None
