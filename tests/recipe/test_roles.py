"""The parts that layers play, from flows written by hand."""

from __future__ import annotations

import pytest

from stiefel_init.recipe.roles import Roles, of_flow
from stiefel_init.recipe.trace import INPUT, Flow, Signal

GIVEN = Signal(frozenset({INPUT}))


def layer(flow: Flow, name: str, signal: Signal) -> Signal:
    made = flow.call("linear", [signal], [name])
    assert made is not None
    return made


def relu(flow: Flow, signal: Signal) -> Signal:
    made = flow.call("relu", [signal], [])
    assert made is not None
    return made


def roles(flow: Flow, *returned: Signal) -> Roles:
    flow.returned = list(returned)
    return of_flow(flow, None, None, "by hand")


@pytest.mark.parametrize("rectified", [False, True])
def test_what_is_returned_and_read_is_a_code_unless_it_is_rectified_as_well(rectified: bool) -> None:
    flow = Flow()
    code = layer(flow, "code", relu(flow, layer(flow, "in", GIVEN)))
    made = layer(flow, "out", layer(flow, "decoder", relu(flow, code) if rectified else code))
    assert roles(flow, made, code)["code"].makes_code is not rectified


def test_a_layer_that_one_reader_rectifies_makes_no_code() -> None:
    flow = Flow()
    middle = layer(flow, "middle", relu(flow, layer(flow, "in", GIVEN)))
    first, second = layer(flow, "a", middle), layer(flow, "b", relu(flow, middle))
    both = flow.call("add", [relu(flow, first), relu(flow, second)], [])
    assert both is not None
    assert not roles(flow, layer(flow, "out", both))["middle"].makes_code


class Counted(str):
    """A name that counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        Counted.looked_up += 1
        return super().__hash__()


def _look_ups(layers: int, residual: bool) -> int:
    flow, signal = Flow(), relu(Flow(), layer(Flow(), Counted("in"), GIVEN))
    for number in range(layers):
        made = layer(flow, Counted(f"layer{number}"), signal)
        total = flow.call("add", [signal, made], []) if residual else made
        assert total is not None
        signal = total
    signal = layer(flow, Counted("out"), signal)
    Counted.looked_up = 0
    roles(flow, signal)
    return Counted.looked_up


@pytest.mark.parametrize("residual", [False, True])
def test_work_grows_with_the_number_of_layers_and_not_with_its_square(residual: bool) -> None:
    assert _look_ups(400, residual) < 2.5 * _look_ups(200, residual)
