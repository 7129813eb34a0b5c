"""The library behind the command line: `stiefel_init.lab`."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

import pytest
from laboratory import ROOT


def test_the_laboratory_offers_its_names_without_pictures() -> None:
    code = (
        "import sys, stiefel_init.lab as lab\n"
        "assert 'torch' not in sys.modules\n"
        "for name in lab.__all__: assert getattr(lab, name) is not None and name in dir(lab)\n"
        "from stiefel_init.lab import run\n"
        "assert callable(run)\n"
        "assert not {'matplotlib', 'pandas', 'typer'} & set(sys.modules)\n"
        "try: lab.nothing\n"
        "except AttributeError: print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_your_own_data_in_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_data.py"))
    out = capsys.readouterr().out
    score = {scheme: float(value) for scheme, value in re.findall(r"(\w+) +test accuracy \(%\) ([\d.]+)", out)}
    assert set(score) == {"stiefel", "he", "xavier"}
    assert score["stiefel"] > 60, "far above the 37 % of the largest class"
    assert re.search(r"^│50 +│ +[\d.]+ ± [\d.]+ +│ +[\d.]+ ± [\d.]+│", out, re.MULTILINE)
