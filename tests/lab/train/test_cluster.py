"""Studies on a Ray cluster: the rows of one process, whatever becomes of the nodes; and what can be wrong with one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from laboratory import MINE, TINY, Cli, keys_in, refused, small_cells, timeless

from stiefel_init import StiefelError
from stiefel_init.lab.train import cluster as ray_cluster
from stiefel_init.lab.train import record
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
    """A cluster on this machine whose head has one core; tests add nodes. One at a time: two starve each other's."""
    from ray.cluster_utils import Cluster

    lock = open(Path(tempfile.gettempdir()) / "stiefel-init-ray-tests", "w")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
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
    lock.close()


def deep_cells(count: int) -> list[Cell]:
    """Networks that take a moment, so that a node can be killed in the middle; in float32 every bit counts."""
    return [Cell("digits", scheme, 12, 32, seed=s, epochs=3) for s in range(count) for scheme in ("stiefel", "he")]


@pytest.mark.slow
def test_one_process_one_node_two_nodes_and_a_dead_one_give_the_same_rows(cluster: Any, tmp_path: Path) -> None:
    cells, killed = deep_cells(8), tmp_path / "killed"
    here = timeless(run(cells, device="cpu"))

    def kill_in_the_middle(node: Any) -> None:
        while not list(killed.glob("*.jsonl")):
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    with connected(ClusterSpec(None)), ThreadPoolExecutor(1) as pool:  # once for all three
        assert timeless(run(cells, on="ray", out=tmp_path / "one")) == here
        node = cluster.add_node(num_cpus=1)
        assert timeless(run(cells, on="ray", out=tmp_path / "two", most=3)) == here
        killing = pool.submit(kill_in_the_middle, node)
        assert timeless(run(cells, on="ray", out=killed, most=2, warn=lambda text: None)) == here
        killing.result()
        assert ray.is_initialized(), "a connection that was there before stays"
    for name in ("one", "two", "killed"):
        assert keys_in(tmp_path / name) == sorted(cell.key for cell in cells), "none lost, none doubled"


@pytest.mark.slow
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
    # Whether a node is gone or only a process, or neither since no stack ran just then, Ray says by chance.
    assert timeless(found) == timeless(run(cells, device="cpu"))
    assert keys_in(tmp_path) == sorted(cell.key for cell in cells)


@pytest.fixture
def harmful() -> Iterator[None]:
    """A scheme and an activation of a user's own; with harm 1 it raises, with 2 it ends its process."""

    @register
    @dataclass(frozen=True)
    class Harmful(Scheme):
        name = "harmful"
        entrywise = True
        harm: float = 0.0

        def draw(self, source: Source) -> Any:
            if self.harm == 1:
                raise ValueError("harmful, as intended")
            if self.harm == 2:
                os._exit(1)
            return 0.1 * source.normals(source.m, source.n)

    register_activation("test_square", lambda y, xp: y * abs(y), lambda y, xp: 2 * abs(y))
    yield
    forget("harmful")
    del _moments._REGISTRY["test_square"]


@pytest.mark.slow
@pytest.mark.usefixtures("harmful")
def test_what_was_registered_here_travels_and_networks_that_cannot_be_trained_are_named(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "TRIES", 1)
    sound, told = small_cells(5, scheme="harmful", activation="test_square"), list[str]()
    raising, deadly = (replace(sound[2], seed=9 - harm, scheme=f"harmful {harm}") for harm in (1, 2))
    with pytest.raises(StiefelError, match="2 networks could not be trained") as error:
        run([*sound[:3], raising, deadly, *sound[3:]], on="ray", datasets=MINE, out=tmp_path, most=6, warn=told.append)
    assert "mine harmful 1 depth 2 seed 8 (ValueError: harmful, as intended)" in str(error.value)
    assert "mine harmful 2 depth 2 seed 7 (it lost its process)" in str(error.value)
    assert keys_in(tmp_path) == sorted(cell.key for cell in sound)
    assert any(text.endswith("networks lost its process; trying half as many at once.") for text in told)
    assert timeless(run(sound, datasets=MINE, out=tmp_path)) == timeless(run(sound, datasets=MINE))


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_rest_follows(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, write = small_cells(8), record.write

    def interrupted(folder: Path, records: list[Record]) -> Path:
        path = write(folder, records)
        if len(keys_in(folder)) == 4:
            raise KeyboardInterrupt
        return path

    monkeypatch.setattr(record, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(cells, on="ray", datasets=MINE, out=tmp_path, most=2)
    monkeypatch.undo()
    assert len(keys_in(tmp_path)) == 4
    assert not ray.is_initialized()
    found = run(cells, on="ray", datasets=MINE, out=tmp_path, most=2)
    assert [record.cell for record in found] == cells
    assert keys_in(tmp_path) == sorted(cell.key for cell in cells)


def test_the_command_line_on_a_cluster(cluster: Any, stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("train", *TINY, "--on", "ray", "--out", "here")
    assert done.code == 0, done.err
    assert len(keys_in(tmp_path / "here")) == 8
    refused(stiefel_init("train", *TINY, "--on", "ray", "--device", "cuda"), "no node of the cluster offers a GPU")


# What can be wrong.


@pytest.mark.parametrize(
    ("on", "spec"),
    [
        ("local", None),
        ("ray", ClusterSpec(None)),
        ("ray?gpus=0.25&cores=2", ClusterSpec(None, 0.25, 2)),
        ("ray://head.example:10001?cores=4", ClusterSpec("ray://head.example:10001", 1.0, 4)),
    ],
)
def test_clusters_and_what_a_stack_takes_of_them(on: str, spec: ClusterSpec | None) -> None:
    assert ClusterSpec.of(on) == spec


@pytest.mark.parametrize("options", ["gpus=0", "gpus=2", "gpus=x", "cores=0", "cores=1.5", "gpus", "nodes=3"])
def test_what_no_stack_takes(options: str) -> None:
    with pytest.raises(StiefelError, match="asks for what no stack takes"):
        ClusterSpec.of(f"ray?{options}")


@pytest.mark.parametrize("on", ["", "rays", "ray:", "ray://", "ray://host", "ray://host:", "http://host:1"])
def test_a_place_that_is_none(on: str, stiefel_init: Cli) -> None:
    refused(stiefel_init("train", *TINY, "--on", on), f"on={on!r} is not a place to train")


def test_no_cluster_at_the_address(stiefel_init: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for on, address in (("ray://127.0.0.1:9", None), ("ray", "127.0.0.1:9")):
        if address is not None:
            monkeypatch.setenv("RAY_ADDRESS", address)
        done = stiefel_init("reproduce", "table1", "--quick", "--on", on)
        refused(done, "No Ray cluster answers at", "127.0.0.1:9", "ray start --head")


WRONG: dict[str, tuple[int, dict[str, str]]] = {
    "cannot import stiefel-init": (0, {"__init__.py": "raise ImportError('no such package')"}),
    "has stiefel-init 0.0.1": (
        0,
        {
            "__init__.py": "__version__ = '0.0.1'",
            "lab/__init__.py": "",
            "lab/train/__init__.py": "",
            "lab/train/source.py": "def source_hash():\n    return 'another one'",
        },
    ),
    "offers a GPU, but its PyTorch sees none": (1, {}),
}
"""What is said of a node with so many GPUs and these files of the package."""


@pytest.mark.slow
@pytest.mark.parametrize("sentence", WRONG)
def test_a_node_with_another_package_or_none_or_no_gpu(cluster: Any, sentence: str, tmp_path: Path) -> None:
    gpus, package = WRONG[sentence]
    for name, text in package.items():
        path = tmp_path / "stiefel_init" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    node = cluster.add_node(num_cpus=2, num_gpus=gpus, env_vars={"PYTHONPATH": str(tmp_path)} if package else {})
    try:
        with pytest.raises(StiefelError, match=sentence):
            run(small_cells(1), on="ray?cores=2", datasets=MINE)  # the head has one
    finally:
        cluster.remove_node(node, allow_graceful=False)


def test_no_ray_installed(stiefel_init: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(stiefel_init("train", *TINY, "--on", "ray"), "needs Ray; run: pip install 'stiefel-init[ray]'")


def test_nothing_imports_ray_unless_asked() -> None:
    code = "import sys; from stiefel_init.lab import run, cli; run([], out=None); sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
