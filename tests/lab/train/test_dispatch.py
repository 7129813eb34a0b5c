"""The queue of a study: how large a stack is, what comes back, and when a slow slot is left alone."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stiefel_init import StiefelError
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.cluster import ClusterSpec, Kind, Node
from stiefel_init.lab.train.dispatch import Dispatch, Queue

LIMITS: dict[Kind, int] = {"cpu": 12, "cuda": 100}


def cells(count: int, **options: Any) -> list[Cell]:
    return [Cell("none", depth=2, seed=seed, **options) for seed in range(count)]


def queue(*piles: list[Cell]) -> Queue:
    return Queue([deque(pile) for pile in piles], lambda cell: float(cell.depth), LIMITS)


@pytest.mark.parametrize(
    ("count", "kind", "slots", "sizes"),
    [
        (1, "cpu", 4, [1]),
        (100, "cpu", 1, [12] * 7 + [8, 4, 2, 1, 1]),  # no larger than is fast, and evened out at the end
        (8, "cpu", 2, [2, 2, 1, 1, 1, 1]),
        (250, "cuda", 1, [100, 100, 50]),
        (8, "cuda", 8, [1] * 8),  # a network for each GPU
    ],
)
def test_stacks_are_large_while_there_is_much_and_even_at_the_end(
    count: int, kind: Kind, slots: int, sizes: list[int]
) -> None:
    waiting, taken = queue(cells(count)), list[list[Cell]]()
    while waiting.count:
        taken.append(waiting.take(kind, slots))
    assert [len(stack) for stack in taken] == sizes
    assert [cell for stack in taken for cell in stack] == cells(count)


def test_the_longest_training_comes_first_and_piles_are_not_mixed() -> None:
    short, long = cells(3), [replace(cell, depth=9) for cell in cells(3)]
    waiting = queue(short, long)
    assert waiting.work == 3 * 2 + 3 * 9
    taken = [waiting.take("cuda", 1) for _ in range(2)]
    assert taken == [long, short]
    assert (waiting.count, waiting.work) == (0, 0)


def test_what_was_lost_comes_back_in_its_place_and_what_failed_is_tried_first() -> None:
    waiting = queue(cells(8))
    stack = waiting.take("cuda", 2)
    assert len(stack) == 4
    waiting.put_back(stack)
    assert waiting.count == 8
    assert waiting.take("cuda", 1) == cells(8)
    waiting.put_back(cells(8)[4:])
    waiting.try_as(cells(8)[2:4], cells(8)[:2])
    assert waiting.count == 8
    assert [waiting.take("cuda", 1) for _ in range(3)] == [cells(8)[:2], cells(8)[2:4], cells(8)[4:]]
    assert waiting.count == 0


def test_a_slow_slot_gets_nothing_that_the_others_would_have_done_before_it() -> None:
    kinds: dict[str, Kind] = {"a": "cpu", "b": "cuda"}
    nodes = {name: Node(name, name, kind, 0, 1, 1, slots=1) for name, kind in kinds.items()}
    cluster: Any = SimpleNamespace(nodes=nodes, ray=SimpleNamespace(remote=lambda work: work))
    dispatch = Dispatch(cluster, queue(cells(60)), lambda study, identities, slot: ([], []), None, print)
    assert not dispatch._too_slow("cpu"), "nobody knows yet"
    dispatch._speed = {"cpu": 1.0, "cuda": 49.0}
    assert not dispatch._too_slow("cpu"), "120 units of work at 50 a second, against 2 for one network"
    dispatch.queue.take("cuda", 3)
    assert dispatch.queue.work == 80
    assert dispatch._too_slow("cpu"), "80 at 50 a second, against 2"
    assert not dispatch._too_slow("cuda")


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
