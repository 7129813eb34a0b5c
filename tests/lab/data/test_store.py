"""The cache: verified whenever it is read, mended, and never half-written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import one_sentence
from data_room import quiet, same, write_idx

from stiefel_init import StiefelError
from stiefel_init.lab import data
from stiefel_init.lab.data import formats, sources

pytestmark = pytest.mark.usefixtures("offline")


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
    with pytest.raises(StiefelError) as error:
        data.get("mnist", log=quiet)
    assert "mnist.npz cannot be written (No space left on device)" in one_sentence(error)
    log: list[str] = []
    assert same(data.load("mnist", log=log.append), tiny)
    assert "fetched, but not cached" in log[-1]
    assert list(sources.cache_path("mnist").parent.iterdir()) == []


@pytest.mark.usefixtures("online")
def test_a_cache_that_is_a_file(tiny: formats.Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / "file"))
    assert same(data.load("mnist", log=quiet), tiny)
    with pytest.raises(StiefelError) as error:
        data.get("mnist", log=quiet)
    assert "STIEFEL_INIT_CACHE" in one_sentence(error)


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
