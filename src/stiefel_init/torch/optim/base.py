"""What the optimizers share: the groups on the set and off it, the checks before anything is changed, the state."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from ...core import validate
from ...core.errors import StiefelError
from ..initialize.sharded import check_placements, is_sharded, whole
from ..initialize.wrappers import unwrapped
from ..sampling import tensors
from . import large
from .nearest import nearest
from .stack import Batch, Stack, Update, any_reading, of_model, reading_in_set, stacks, write

Params = nn.Module | Iterable[Any]
Strays = tuple[list[tuple[Tensor, Tensor, Tensor]], int]
"""Parameters, the members that they are to be projected to and how far these are; of how many matrices."""


class StiefelOptimizer(torch.optim.Optimizer, ABC):
    """An optimizer that keeps the matrices of its groups with `on_set=True` in the set."""

    moments: ClassVar[tuple[str, ...]]
    """The state of a matrix beside its number of steps."""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self._stacks: dict[int, list[Stack]] = {}
        self._versions: dict[int, int] = {}
        self._uncorrected = 0  # steps since large matrices have been pulled back to the set
        self._check_options(defaults)
        readings: dict[int, tuple[Batch, ...]] = {}
        if isinstance(params, nn.Module):
            params, readings = of_model(unwrapped(params))
        listed = items_of(params)
        if not listed:
            raise StiefelError("params is empty; give a model, or parameters of one.")
        groups = listed if isinstance(listed[0], dict) else [{"params": listed}]
        prepared, strays = self._prepare(groups, defaults, readings)
        super().__init__(prepared, defaults)
        _project(strays)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as the constructor takes them.

        Args:
            param_group: With `params`, and the options that differ from the optimizer's own.
        """
        if "matrices" in param_group:  # the constructor has prepared it
            super().add_param_group(param_group)
            return
        prepared, strays = self._prepare([param_group], self.defaults, {})
        for group in prepared:
            super().add_param_group(group)
        _project(strays)

    def _prepare(
        self, groups: list[Any], defaults: dict[str, Any], readings: dict[int, tuple[Batch, ...]]
    ) -> tuple[list[dict[str, Any]], Strays]:
        """The groups, each either on the set or not; and what is to be projected first."""
        prepared: list[dict[str, Any]] = []
        strays: list[tuple[Tensor, Tensor, Tensor]] = []
        chosen = 0
        seen = {id(parameter) for group in getattr(self, "param_groups", ()) for parameter in group["params"]}
        for group in groups:
            if not isinstance(group, dict) or "params" not in group:
                raise StiefelError(f"a group is {type(group).__name__}; give dicts with params, or parameters alone.")
            self._check_options(defaults | group)
            flag = group.get("on_set")
            if flag is not None and not isinstance(flag, bool):
                raise StiefelError(f"on_set={flag!r} is not a choice; give True, False or None.")
            parts: dict[bool, list[tuple[Any, Batch | None]]] = {True: [], False: []}
            for item in items_of(group["params"]):
                tensor = tensor_of(item)
                _check_parameter(tensor)
                if id(tensor) in seen:
                    raise StiefelError(f"{_named(tensor)} is given twice; put it into one group.")
                seen.add(id(tensor))
                batch = None
                if flag:
                    batch = _reading(tensor, group.get("batch_dims", 0))
                    chosen += batch[0]
                    if math.prod(batch) and reading_in_set(tensor, [batch]) is None:
                        strays.append((tensor, *nearest(whole(tensor).reshape(batch), _named(tensor))))
                elif flag is None and tensor.requires_grad:
                    batch = reading_in_set(tensor, readings.get(id(tensor), any_reading(tuple(tensor.shape))))
                parts[batch is not None].append((item, batch))
            for on_set, pairs in parts.items():
                if pairs or on_set is flag:
                    part = {"params": [item for item, _ in pairs], "matrices": [batch for _, batch in pairs]}
                    own = {} if on_set or "free_lr" not in defaults else {"lr": defaults["free_lr"]}
                    prepared.append(own | group | part | {"on_set": on_set})
        return prepared, (strays, chosen)

    def _check_options(self, options: dict[str, Any]) -> None:
        """Refuse options out of their range."""
        for name in ("lr", "free_lr", "eps", "weight_decay"):
            if name in options and not (isinstance(options[name], Tensor) and options[name].is_cuda):
                validate.number(name, options[name], at_least=0, hint="give a number ≥ 0")
        for value in options.get("betas", ()):
            validate.decay("betas", value)
        validate.decay("momentum", options.get("momentum", 0))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: Computes the loss and its gradients anew, once, before the update.

        Returns:
            What the closure returned.

        Raises:
            StiefelError: for a sparse gradient, and for weights on the set that were changed since the last step and
                have no nearest member; nothing is then updated.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.layout != torch.strided:
                    raise StiefelError(
                        f"{_named(parameter)} has a gradient of layout "
                        f"{parameter.grad.layout}; make it dense, for example with Embedding(sparse=False)."
                    )
        self._check_changed()
        for number, group in enumerate(self.param_groups):
            if group["on_set"]:
                if number not in self._stacks or not self.state:
                    self._stacks[number] = stacks(group, self.state, self.moments)
                for stack in self._stacks[number]:
                    stack.step(self._update(group))
            else:
                given = [parameter for parameter in group["params"] if parameter.grad is not None]
                if given:
                    self._free_step(group, given)
        self._note_versions()
        self._uncorrected = (self._uncorrected + 1) % large.EVERY
        return loss

    def _rotated_large(self, weights: Tensor, turn: Tensor) -> Tensor:
        capturing = torch.cuda.is_current_stream_capturing()  # what is replayed is corrected each time
        return large.rotate(weights, turn, corrected=self._uncorrected == 0 or capturing)

    def _check_changed(self) -> None:
        """Refuse weights on the set that were changed from outside into what no step can pull back.

        torch counts the changes of a tensor in place; only where it has counted others than ours is a weight looked at.
        """
        if torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            return  # where nothing can be looked at
        if self._counted() == self._versions:
            return
        self._uncorrected = 0
        for group in self.param_groups:
            for parameter, batch in zip(group["params"], group["matrices"]) if group["on_set"] else ():
                noted = self._versions.get(id(parameter), parameter._version)
                looked = noted != parameter._version and not is_sharded(parameter) and math.prod(batch)
                if looked and reading_in_set(parameter, [batch]) is None:
                    nearest(whole(parameter).reshape(batch), f"{_named(parameter)}, changed since the last step,")

    def _note_versions(self) -> None:
        if not torch.compiler.is_compiling():
            self._versions = self._counted()

    def _counted(self) -> dict[int, int]:
        """How often torch has counted a change of each parameter on the set."""
        groups = [group["params"] for group in self.param_groups if group["on_set"]]
        return {id(parameter): parameter._version for group in groups for parameter in group}

    @abstractmethod
    def _update(self, group: dict[str, Any]) -> Update:
        """The update of a group on the set, as `Stack.step` takes it."""

    def _free_step(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """The ordinary update of parameters that have a gradient: torch's AdamW.

        Its steps are counted on the device, so that it can be captured in a graph.
        """
        for parameter in parameters:
            kept = self.state[parameter]
            if "step" not in kept:
                kept["step"] = torch.zeros((), device=parameter.device)
                kept["exp_avg"], kept["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        firsts, seconds, steps = (
            [self.state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        (beta1, beta2), options = group["betas"], {key: group[key] for key in ("lr", "weight_decay", "eps")}
        adam(
            local(parameters), local(p.grad for p in parameters), local(firsts), local(seconds), [], steps,
            fused=fusible(parameters), foreach=False, capturable=parameters[0].is_cuda, amsgrad=False, maximize=False,
            decoupled_weight_decay=True, beta1=beta1, beta2=beta2, **options,
        )  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state that `state_dict` returned.

        Args:
            state_dict: Of an optimizer of this kind over the same parameters.
        """
        super().load_state_dict(state_dict)
        self._stacks = {}
        # torch rounds the state to the parameter's dtype; that of matrices on the set is in float32 or better.
        for saved, group in zip(state_dict["param_groups"], self.param_groups):
            for number, parameter in zip(saved["params"], group["params"]):
                if group["on_set"] and parameter.dtype not in tensors.WORKING and number in state_dict["state"]:
                    for name, value in state_dict["state"][number].items():
                        self.state[parameter][name] = value.detach().to(parameter.device, copy=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._stacks, self._versions, self._uncorrected = {}, {}, 0


def _named(tensor: Tensor) -> str:
    return f"a parameter of shape {tuple(tensor.shape)}"


def _check_parameter(tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise StiefelError(f"params holds a {type(tensor).__name__}; give tensors, or pairs of a name and a tensor.")
    if not tensor.is_floating_point():
        raise StiefelError(f"a parameter has dtype {tensor.dtype}; give parameters of real floats.")
    if not tensor.is_leaf:
        raise StiefelError(f"a tensor of shape {tuple(tensor.shape)} is computed from others; give its parameters.")


def _reading(tensor: Tensor, batch_dims: Any) -> Batch:
    """The matrices of a parameter that is to be on the set."""
    if (trouble := None if is_sharded(tensor) else tensors.flaw(tensor)) is not None:
        raise StiefelError(f"a parameter with on_set=True {trouble}.")
    if is_sharded(tensor):
        check_placements("a parameter with on_set=True", tensor)
    if tensor.is_meta:
        raise StiefelError("a parameter with on_set=True is on the meta device; materialize the model first.")
    if not 0 <= validate.size("batch_dims", batch_dims) <= tensor.ndim - 2:
        raise StiefelError(
            f"a parameter with on_set=True has shape {tuple(tensor.shape)} and batch_dims={batch_dims}, which leaves "
            "no matrix; give weights of two or more dimensions, and put the others into a group with on_set=False."
        )
    shape = tensor.shape
    return math.prod(shape[:batch_dims]), shape[batch_dims], math.prod(shape[batch_dims + 1 :])


def _project(strays: Strays) -> None:
    """Project them, and say so."""
    moved, chosen = strays
    for tensor, members, _ in moved:
        write([tensor], [members])
    if moved:
        furthest = max(float(distances.max()) for _, _, distances in moved)
        warnings.warn(
            f"{sum(len(members) for _, members, _ in moved)} of {chosen} matrices with on_set=True were not in the set "
            f"and are now their nearest members, up to {furthest:.2g} away (Frobenius norm).",
            stacklevel=4,
        )


def items_of(params: Any) -> list[Any]:
    """A group's parameters as a list, each a tensor or, as torch allows, a pair of its name and itself."""
    return [params] if isinstance(params, Tensor) else list(params)


def tensor_of(item: Any) -> Any:
    """The tensor of such an item."""
    return item[1] if isinstance(item, tuple) and len(item) == 2 else item


def local(tensors: Iterable[Any]) -> list[Tensor]:
    """The part of each DTensor that this rank has: an entrywise update needs no other."""
    return [tensor.to_local() if is_sharded(tensor) else tensor for tensor in tensors]


def fusible(parameters: list[Tensor]) -> bool:
    """Whether torch's fused updates can be used."""
    return all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)
