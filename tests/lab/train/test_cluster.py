"""Studies on a Ray cluster: the rows of one process, whatever becomes of the nodes; and what can be wrong with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laboratory import MINE, TINY, Cli, refused, small_cells

from stiefel_init import StiefelError
from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train import dispatch, record
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.cluster import ClusterSpec, connected
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import run
from stiefel_init.schemes import Scheme, Source, forget, register
from stiefel_init.theory import moments as _moments
from stiefel_init.theory import register_activation

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray's own sockets and processes
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # where a test before has imported JAX
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster on this machine whose head has one core; tests add nodes."""
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=arguments)
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = made.address
    yield made
    if before is None:
        del os.environ["RAY_ADDRESS"]
    else:
        os.environ["RAY_ADDRESS"] = before
    made.shutdown()


def deep_cells(count: int) -> list[Cell]:
    """Networks that take a moment, so that a node can be killed in the middle; in float32 every bit counts."""
    return [Cell("digits", scheme, 12, 32, seed=s, epochs=3) for s in range(count) for scheme in ("stiefel", "he")]


def timeless(records: list[Record]) -> list[Record]:
    return [replace(record, seconds=0.0, environment={}) for record in records]


def lines(out: Path) -> list[str]:
    """The cells of all lines of all files."""
    found = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(Cell.from_dict(values).key for values in found)


def test_one_process_one_node_two_nodes_and_a_dead_one_give_the_same_rows(cluster: Any, tmp_path: Path) -> None:
    cells = deep_cells(8)
    here = timeless(run(cells, device="cpu"))
    with connected(ClusterSpec(None)):  # once for all three
        _on_nodes(cluster, cells, here, tmp_path)
        assert ray.is_initialized(), "a connection that was there before stays"


def _on_nodes(cluster: Any, cells: list[Cell], here: list[Record], tmp_path: Path) -> None:
    assert timeless(run(cells, on="ray", out=tmp_path / "one")) == here
    node = cluster.add_node(num_cpus=1)
    assert timeless(run(cells, on="ray", out=tmp_path / "two", most=3)) == here

    killed = tmp_path / "killed"

    def kill_in_the_middle() -> None:
        while not list(killed.glob("*.jsonl")):
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    told: list[str] = []
    assert timeless(run(cells, on="ray", out=killed, most=2, warn=told.append)) == here
    killer.join()
    assert any("is gone; its networks go to the others." in text for text in told)
    for name in ("one", "two", "killed"):
        assert lines(tmp_path / name) == sorted(cell.key for cell in cells), "none lost, none doubled"


def test_when_all_nodes_die_the_next_one_goes_on(cluster: Any, tmp_path: Path) -> None:
    cells, on = deep_cells(4), "ray?cores=2"  # the head has only one
    node = cluster.add_node(num_cpus=2)
    with connected(ClusterSpec(None)), ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, cells, on=on, out=tmp_path, most=1, warn=lambda text: None)
        while not running.done() and not list(tmp_path.glob("*.jsonl")):
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)
        node = cluster.add_node(num_cpus=2)
        found = running.result()
    cluster.remove_node(node, allow_graceful=False)
    assert timeless(found) == timeless(run(cells, device="cpu"))
    assert lines(tmp_path) == sorted(cell.key for cell in cells)


def test_what_was_registered_here_travels_and_a_cell_that_raises_is_named(cluster: Any, tmp_path: Path) -> None:
    @register
    @dataclass(frozen=True)
    class Poisoned(Scheme):
        name = "poisoned"
        entrywise = True
        harm: float = 0.0

        def draw(self, source: Source) -> Any:
            if self.harm:
                raise ValueError("poisoned, as intended")
            return 0.1 * source.normals(source.m, source.n)

    register_activation("test_square", lambda y, xp: y * abs(y), lambda y, xp: 2 * abs(y))
    try:
        sound = small_cells(5, scheme="poisoned", activation="test_square")
        bad = replace(sound[2], seed=9, scheme="poisoned 1")
        cells = [*sound[:3], bad, *sound[3:]]
        with pytest.raises(
            StiefelError, match=r"1 network could not be trained: mine poisoned 1.* seed 9 \(ValueError"
        ):
            run(cells, on="ray", datasets=MINE, out=tmp_path, most=6)
        assert lines(tmp_path) == sorted(cell.key for cell in sound)
        assert timeless(run(sound, datasets=MINE, out=tmp_path)) == timeless(run(sound, datasets=MINE))
    finally:
        forget("poisoned")
        del _moments._REGISTRY["test_square"]


def test_a_cell_that_ends_its_process_is_given_up(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register
    @dataclass(frozen=True)
    class Deadly(Scheme):
        name = "deadly"
        entrywise = True

        def draw(self, source: Source) -> Any:
            os._exit(1)

    monkeypatch.setattr(dispatch, "TRIES", 1)
    try:
        sound, told = small_cells(3), list[str]()
        cells = [*small_cells(1, scheme="deadly"), *sound]
        with pytest.raises(StiefelError, match=r"mine deadly depth 2 seed 0 \(it lost its process\)"):
            run(cells, on="ray", datasets=MINE, out=tmp_path, most=2, warn=told.append)
        assert lines(tmp_path) == sorted(cell.key for cell in sound)
        assert told == ["A stack of 2 networks lost its process; trying half as many at once."]
    finally:
        forget("deadly")


def test_ctrl_c_keeps_what_is_done_and_the_rest_follows(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, write = small_cells(8), record.write

    def interrupted(folder: Path, records: list[Record]) -> Path:
        path = write(folder, records)
        if len(lines(folder)) == 4:
            raise KeyboardInterrupt
        return path

    monkeypatch.setattr(record, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(cells, on="ray", datasets=MINE, out=tmp_path, most=2)
    monkeypatch.undo()
    assert len(lines(tmp_path)) == 4
    assert not ray.is_initialized()
    found = run(cells, on="ray", datasets=MINE, out=tmp_path, most=2)
    assert [record.cell for record in found] == cells
    assert lines(tmp_path) == sorted(cell.key for cell in cells)


def test_the_command_line_on_a_cluster(cluster: Any, stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("train", *TINY, "--on", "ray", "--out", "here")
    assert done.code == 0, done.err
    assert len(lines(tmp_path / "here")) == 8
    refused(stiefel_init("train", *TINY, "--on", "ray", "--device", "cuda"), "no node of the cluster offers a GPU")
    refused(stiefel_init("train", *TINY, "--on", "ray", "--dry-run"), "--dry-run")


# What can be wrong.


@pytest.mark.parametrize("on", ["", "rays", "ray:", "ray://", "ray://host", "ray://host:", "http://host:1"])
def test_a_place_that_is_none(on: str, stiefel_init: Cli) -> None:
    refused(stiefel_init("train", *TINY, "--on", on), f"on={on!r} is not a place to train")


@pytest.mark.parametrize("options", ["gpus=0", "gpus=2", "gpus=x", "cores=0", "cores=1.5", "gpus", "nodes=3"])
def test_options_of_a_place_that_are_none(options: str) -> None:
    with pytest.raises(StiefelError, match="asks for what no stack takes"):
        ClusterSpec.of(f"ray?{options}")


def test_no_cluster_at_the_address(stiefel_init: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for on, address in (("ray://127.0.0.1:9", None), ("ray", "127.0.0.1:9")):
        if address is not None:
            monkeypatch.setenv("RAY_ADDRESS", address)
        done = stiefel_init("reproduce", "table1", "--quick", "--on", on)
        refused(done, "No Ray cluster answers at", "127.0.0.1:9", "ray start --head")


def test_another_version_of_ray(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "1.0.0")
    with pytest.raises(StiefelError, match="another version of Ray or Python"):
        run(small_cells(1), on="ray", datasets=MINE)


OTHER = {
    "cannot import stiefel-init": {"__init__.py": "raise ImportError('no such package')"},
    "has stiefel-init 0.0.1": {
        "__init__.py": "__version__ = '0.0.1'",
        "lab/__init__.py": "",
        "lab/train/__init__.py": "",
        "lab/train/source.py": "def source_hash():\n    return 'another one'",
    },
}


@pytest.mark.parametrize("sentence", OTHER)
def test_a_node_with_another_package_or_none(cluster: Any, sentence: str, tmp_path: Path) -> None:
    for name, text in OTHER[sentence].items():
        path = tmp_path / "stiefel_init" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    node = cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})
    try:
        with pytest.raises(StiefelError, match=sentence):
            run(small_cells(1), on="ray", datasets=MINE)
    finally:
        cluster.remove_node(node, allow_graceful=False)


def test_a_gpu_that_pytorch_does_not_see(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1, num_gpus=1)
    try:
        with pytest.raises(StiefelError, match="offers a GPU, but its PyTorch sees none"):
            run(small_cells(1), on="ray", datasets=MINE)
    finally:
        cluster.remove_node(node, allow_graceful=False)


def test_data_larger_than_an_object_store(cluster: Any) -> None:
    x = np.zeros((14, 1 << 20))
    big = Dataset("big", "classification", x, np.arange(14) % 2, 2, train_rows=12)
    with pytest.raises(StiefelError, match=r"The data sets take 117 MB, but the object store of node .* holds 105 MB"):
        run([Cell("big", depth=1, width=2, epochs=1)], on="ray", datasets={"big": big})


def test_no_ray_installed(stiefel_init: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(stiefel_init("train", *TINY, "--on", "ray"), "needs Ray; run: pip install 'stiefel-init[ray]'")


def test_nothing_imports_ray_unless_asked() -> None:
    code = "import sys; from stiefel_init.lab import run, cli; run([], out=None); sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
