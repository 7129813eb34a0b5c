"""Files of a user's own: imported with their neighbours, or refused in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import assert_refused
from laboratory import Cli, refused

from stiefel_init import schemes
from stiefel_init.lab.plugins import load_file


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_is_run_once_and_its_neighbours_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "a_neighbour_of_mine.py", "VALUE = 7\n")
    path = write(tmp_path, "a_file_of_mine.py", "from a_neighbour_of_mine import VALUE\nDOUBLE = 2 * VALUE\n")
    before = list(sys.path)
    assert load_file(path).DOUBLE == 14
    assert sys.path == before


BROKEN = {
    "an import": ("import nothing_like_this_one\n", "ModuleNotFoundError"),
    "words": ("raise ValueError('first line.\\nsecond line')\n", "ValueError (first line)"),
    "recursion": ("def f(): f()\nf()\n", "RecursionError"),
}


@pytest.mark.parametrize(("text", "words"), BROKEN.values(), ids=BROKEN)
def test_what_a_file_raises_is_told_in_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path, "broken_file_of_mine.py", text)
    before = list(sys.path)
    assert_refused(lambda: load_file(path), [f"{path} raised {words}"])
    assert sys.path == before


def test_what_is_no_python_file(tmp_path: Path, stiefel_init: Cli) -> None:
    (tmp_path / "folder.py").mkdir()
    write(tmp_path, "notes.txt", "mine")
    for name in ("nowhere.py", "folder.py", "notes.txt"):
        refused(stiefel_init("--plugin", name, "data", "list"), f"{name} is not a Python file")


SCHEME = """
from dataclasses import dataclass
from stiefel_init.schemes import Scheme, register

@register
@dataclass(frozen=True)
class Half(Scheme):
    name = "half-of-mine"
    entrywise = True
    std: float = 0.5

    def draw(self, source):
        return self.std * source.normals(source.m, source.n)
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["plain", "future"])
def test_a_file_may_hold_dataclasses_however_it_writes_annotations(future: str, tmp_path: Path) -> None:
    path = write(tmp_path, "scheme_file_of_mine.py", future + SCHEME)
    try:
        for _ in range(2):  # a file that is loaded again registers what it did
            load_file(path)
            assert str(schemes.get("half-of-mine 0.25")) == "half-of-mine 0.25"
    finally:
        schemes.forget("half-of-mine")


def test_a_file_named_like_a_library_does_not_stand_in_for_it(tmp_path: Path) -> None:
    import json

    path = write(tmp_path, "json.py", "MINE = 1\n")
    assert load_file(path).MINE == 1
    assert sys.modules["json"] is json
