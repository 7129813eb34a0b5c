"""Files are there as a whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from conftest import assert_refused, one_sentence
from laboratory import file_names, train_small

from stiefel_init import StiefelError
from stiefel_init.lab import files
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.page import write_page
from stiefel_init.lab.train import record as keep


def test_a_file_is_complete_and_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    replace_file, sync = os.replace, os.fsync

    def watch(source: Path, target: Path) -> None:
        assert len(keep._sound_lines(Path(source))) == 4
        assert not Path(target).exists()
        assert not Path(source).match("*.jsonl"), "no reader takes it for a record"
        events.append("rename")
        replace_file(source, target)

    def synced(file: int) -> None:
        events.append("sync")
        sync(file)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", watch)
    train_small(tmp_path, most=4)
    assert events == ["sync", "rename"]
    assert len(file_names(tmp_path)) == 1


def test_ctrl_c_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train_small(tmp_path)
    assert file_names(tmp_path) == []


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_full_disk_is_told_in_one_sentence_and_leaves_all_as_it_was(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, figure = files.write_whole(tmp_path / "table.csv", "old\n"), plots.figure(1)[0]

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, moment, full)
    for write in (
        lambda: files.write_whole(path, "new and longer\n"),
        lambda: plots.save(figure, path),
        lambda: write_page(path, "A page", "long", {}),
        lambda: train_small(path.parent),
    ):
        assert_refused(write, [str(path.parent), "could not be written (No space left on device)"])
    with pytest.raises(OSError, match="No space left"):
        files.replace(path, b"new")
    assert path.read_text() == "old\n"
    assert file_names(tmp_path) == ["table.csv"]


def test_a_directory_is_made_once_and_tried_for_writing(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    assert files.prepare(out) == files.prepare(out) == out
    assert file_names(out) == []
    (out / "file").write_text("mine")
    for directory in (out / "file", out / "file" / "below"):
        with pytest.raises(StiefelError) as error:
            files.prepare(directory)
        assert str(directory) in one_sentence(error)
    assert (out / "file").read_text() == "mine"
