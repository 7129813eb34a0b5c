"""What trains well is left in peace: nothing is reported of plain and unusual programs, before training or in it."""

from __future__ import annotations

import healthy_kinds  # noqa: F401
import healthy_losses  # noqa: F401 - its programs are there once it is imported
import healthy_models  # noqa: F401
import pytest
import torch
from healthy import PROGRAMS

from stiefel_init.torch import diagnose, watch


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_reported_of_a_program_that_trains(name: str) -> None:
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    found = diagnose(program.model, *program.batch(0), loss=program.loss, optimizer=program.optimizer)
    assert [finding.sentence for finding in (*found.findings, *found.warnings)] == []
    with watch(program.model, every=3, report=lambda event: None) as seen:
        for loss in program.run():
            seen.step(loss)
    assert [str(event) for event in (*seen.events, *seen.open)] == []


def test_there_are_many_of_them() -> None:
    assert len(PROGRAMS) >= 95
