"""The rules in training as functions of numbers alone: no model is needed."""

from __future__ import annotations

from stiefel_init.health import AT_INITIALIZATION, IN_TRAINING, Judge, Row, Sample

HEALTHY = Row(layer="0", kind="Linear", update=1e-3, norm=1.0, weight_gradient=1.0)


def kinds(judge: Judge, step: int, loss: float, row: Row = HEALTHY) -> list[tuple[str, bool]]:
    """What is told of a sample."""
    return [(event.kind, event.recovered) for event in judge(Sample(step, (row,), loss, backward=True))]


def test_labels_that_turn_to_noise_make_the_loss_jump() -> None:
    judge = Judge()
    for step, loss in enumerate([2.0, 1.0, 0.5, 0.3, 0.3, 0.35]):
        assert kinds(judge, step, loss) == []
    assert kinds(judge, 6, 2.4) == []  # one batch may be odd
    assert kinds(judge, 7, 2.3) == [("loss jumps", False)]
    assert kinds(judge, 8, 0.3) == [("loss jumps", True)]


def test_rules_at_initialization_are_asked_until_the_loss_has_come_down() -> None:
    size = 10 * AT_INITIALIZATION["signal explodes"].threshold
    loud = HEALTHY._replace(samples=64, units=8, mean=0.0, std=1.0, post_mean=size, post_std=size, spread=size)
    assert kinds(Judge(), 0, 2.0, loud) == [("signal explodes", False)]
    judge = Judge()
    assert kinds(judge, 0, 2.0) == []
    assert kinds(judge, 1, 1.0, loud) == []


def test_what_must_last_is_not_told_at_once() -> None:
    judge, still = Judge(), HEALTHY._replace(update=0.0)
    assert IN_TRAINING["weights do not move"].lasting == 2
    assert kinds(judge, 0, 2.0, still) == []
    assert kinds(judge, 1, 2.0, still) == [("weights do not move", False)]
