"""`assert_initialized`: build a model in memory full of NaN, plainly and from the meta device, and see what is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..core.errors import StiefelError
from .auditing import Audit, Row, audit
from .inputs import check_module

FALSE_ALARM_DEVIATIONS = 8.0
"""Standard errors by which a size may differ between two builds; 1e-15 of a normal distribution lies beyond."""


def assert_initialized(make_model: Callable[[], nn.Module], *, meta: bool = False) -> Audit:
    """Assert that every parameter of a model is initialized, and none equal to another by accident.

    The model is built in memory that holds NaN wherever nobody wrote, so that what happens to be zero on a fresh
    machine is found too. One line in a project's tests:

        def test_model_is_initialized():
            assert_initialized(lambda: MyModel(config))

    Args:
        make_model: Builds the model; a class without arguments will do.
        meta: Build it a second time on the meta device, give it memory, and let it initialize itself, by its
            `initialize_weights` or `init_weights`, or else by the `reset_parameters` of its modules: what is then left
            without values, or has another size than plainly built, is an alarm too.

    Returns:
        The audit, without alarms; it prints as a table.

    Raises:
        AssertionError: with one line for each parameter that looks wrong.
        StiefelError: for something that does not build a module.

    >>> print(len(assert_initialized(lambda: nn.Linear(3, 4), meta=True).rows))
    2
    """
    audited = audit_built(make_model, meta=meta)
    if audited.alarms:
        lines = [f"{row.name} {row.shape}: {row.alarm}" for row in audited.alarms]
        raise AssertionError("\n".join([f"{len(lines)} of {len(audited.rows)} parameters look wrong:", *lines]))
    return audited


def audit_built(make_model: Callable[[], nn.Module], *, meta: bool = False) -> Audit:
    """The audit that `assert_initialized` judges, as a table with its alarms."""
    if not callable(make_model) or isinstance(make_model, nn.Module):
        raise StiefelError(f"make_model is a {type(make_model).__name__}; give a function that builds the model.")
    with _poisoned():
        model, again = _built(make_model), _built(make_model)
        audited = audit(model)
        fixed = _fixed(model, again)
        # What every build has alike somebody wrote there: neither zeros nor equal values are an accident.
        audited = Audit(tuple(row._replace(alarm="") if row.name in fixed else row for row in audited))
        if meta:
            with torch.device("meta"):
                hollow = _built(make_model)
            audited = _compared(audited, model, again, _initialize_itself(hollow), fixed)
    return audited


def _built(make_model: Callable[[], nn.Module]) -> nn.Module:
    model = make_model()
    check_module(model, "make_model")
    return model


def _fixed(model: nn.Module, again: nn.Module) -> set[str]:
    """The parameters that two builds have alike; none where a build seeds itself, so that all are."""
    second = dict(again.named_parameters())
    alike = {name for name, values in model.named_parameters() if torch.equal(values, second[name])}
    random = {name for name, values in model.named_parameters() if values.numel() > 1 and values.min() < values.max()}
    return set() if random <= alike else alike


@contextmanager
def _poisoned() -> Iterator[None]:
    """Memory that is not written to holds NaN."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def _initialize_itself(model: nn.Module) -> nn.Module:
    """Memory for a model on the meta device, and values as its author gives them."""
    model.to_empty(device="cpu")
    for part in (*model.modules(), *model.parameters()):
        part.__dict__.pop("_is_hf_initialized", None)  # the mark of transformers, which the meta build has set
    for name in ("initialize_weights", "init_weights"):
        if callable(initialize := getattr(model, name, None)):
            initialize()
            return model
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    return model


def _compared(audited: Audit, plain: nn.Module, again: nn.Module, other: nn.Module, fixed: set[str]) -> Audit:
    """The audit with alarms where a second build, from the meta device, holds something else."""
    rows = {row.name: row for row in audited}
    twins = dict(other.named_parameters())
    for name, values in plain.named_parameters():
        row = rows.setdefault(name, Row(name, tuple(values.shape), "parametrized"))
        if not row.alarm:
            rows[name] = row._replace(alarm=_differs(values, twins[name], name in fixed))
    second, third = dict(again.named_buffers()), dict(other.named_buffers())
    for name, buffer in plain.named_buffers():
        random, built = not torch.equal(buffer, second[name]), third[name]
        same = buffer.shape == built.shape and torch.allclose(buffer, built, equal_nan=True)
        if not (bool(torch.isfinite(built).all()) if random else same):
            rows[name] = Row(name, tuple(buffer.shape), "buffer", "another value when built on the meta device")
    return Audit(tuple(rows.values()))


def _differs(plain: Tensor, other: Tensor, fixed: bool) -> str:
    x, y = plain.detach().double(), other.detach().double()
    if x.shape != y.shape:
        return f"shape {tuple(y.shape)} when built on the meta device"
    if not bool(torch.isfinite(y).all()):
        return "left without values when built on the meta device"
    if not x.numel():
        return ""
    # A size is known to 1/√(2k) of itself from k normal entries; to less from any lighter-tailed distribution.
    first, second = float(x.square().mean().sqrt()), float(y.square().mean().sqrt())
    allowed = 1e-6 if fixed else FALSE_ALARM_DEVIATIONS / math.sqrt(x.numel())
    if abs(first - second) <= allowed * max(first, second):
        return ""
    return f"size {second:.3g} when built on the meta device, {first:.3g} plainly"
