"""The catalogue of reported faults: its table, its programs, and that they hold."""

import inspect
import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from paper.faults import FAULTS, half, judge, score

from stiefel_init.health import AT_INITIALIZATION, IN_TRAINING

KINDS = (
    "outputs", "parameters", "modes", "loop", "mixing", "architecture", "data", "numerics", "epochs", "sequences",
    "targets", "players", "preparation", "steps", "layers", "of_the_data", "of_the_model", "of_the_training",
)  # fmt: skip


LOOKS = score.FIRST_LOOK, score.SECOND_LOOK, score.THIRD_LOOK, score.FOURTH_LOOK, score.FIFTH_LOOK


def test_every_report_is_told_and_stands_alone() -> None:
    for fault in FAULTS.values():
        assert fault.source.startswith("https://"), fault.name
        assert all((fault.report, fault.cause, fault.repair)), fault.name
        assert fault.why or (fault.reach, fault.margin) == (0.6, 0.6), (
            f"{fault.name} has its own criterion and no reason"
        )
    assert len({fault.source for fault in FAULTS.values()}) == len(FAULTS) >= 90


@pytest.mark.parametrize("kind", KINDS)
def test_every_program_has_its_row(kind: str) -> None:
    module = import_module(f"paper.faults.{kind}")
    programs = {
        name.replace("_", "-")
        for name, build in inspect.getmembers(module, inspect.isfunction)
        if build.__module__ == module.__name__ and list(inspect.signature(build).parameters) == ["repaired"]
    }
    assert programs == {fault.name for fault in FAULTS.values() if fault.kind == kind}


def test_the_fresh_set_is_none_of_those_that_were_looked_at() -> None:
    for look, record in enumerate(LOOKS, 1):
        assert {FAULTS[row["name"]].look for row in json.loads(record.read_text())} == {look}
    assert [sum(fault.look == look for fault in FAULTS.values()) for look in (3, 4, 5)] == [44, 40, 42]


@pytest.mark.parametrize("kind", KINDS)
def test_both_halves_have_faults_of_each_class(kind: str) -> None:
    assert {half(fault.name) for fault in FAULTS.values() if fault.kind == kind} == {"choose", "score"}


@pytest.mark.parametrize("name", FAULTS)
def test_both_programs_start_and_repeat(name: str) -> None:
    for repaired in (False, True):
        program, again = (FAULTS[name].make(repaired, 3) for _ in range(2))
        assert torch.equal(program.inputs, again.inputs) or program.inputs.isnan().any()
        pairs = zip(program.model.parameters(), again.model.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
        assert program.loss(program.model(program.inputs), program.targets).dim() == 0


def test_the_hook_sees_each_step_and_does_not_change_the_score() -> None:
    seen: list[int] = []
    make = FAULTS["no-step"].make
    assert make(True, 0).train(lambda step, loss: seen.append(step)) == make(True, 0).train(None)
    assert seen == list(range(300))


def test_a_fault_that_does_no_harm_does_not_hold() -> None:
    fault = FAULTS["no-step"]
    assert judge(fault, (0,)).holds
    assert not judge(replace(fault, make=lambda repaired, seed: fault.make(True, seed)), (0,)).holds
    assert not judge(replace(fault, make=lambda repaired, seed: fault.make(False, seed)), (0,)).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_holds_with_three_seeds(name: str) -> None:
    verdict = judge(FAULTS[name])
    assert verdict.holds, verdict


def test_a_row_says_what_is_reported_of_a_fault_and_of_its_twin() -> None:
    row = score.examine("softmax-before-cross-entropy", seeds=(0,))
    assert row["said"] == [["probabilities as logits/loss"]]
    assert (row["twin"], row["found"], row["named"], row["repaired"], row["alarm"]) == ([[]], True, True, True, False)


def test_what_reports_state_are_causes_of_the_catalogue() -> None:
    causes = {fault.cause for fault in FAULTS.values()}
    stated = {cause for several in score.STATES.values() for cause in several}
    assert stated <= causes
    known = {*AT_INITIALIZATION, *IN_TRAINING, "evaluated in training mode", *score.SAID}
    assert {kind.partition("/")[0] for kind in score.STATES} - known == {"inputs are not finite"}
