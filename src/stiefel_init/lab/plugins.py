"""The user's Python files: plugins, which register schemes, data sets and activations, and models to look at."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..core.errors import StiefelError

if TYPE_CHECKING:
    from torch import nn


def load_file(path: Path) -> ModuleType:
    """Import a Python file; its neighbours can be imported from it. What it raises is told in a sentence."""
    path = path.expanduser()
    if path.suffix != ".py" or not path.is_file():
        raise StiefelError(f"{path} is not a Python file; give the path of one.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(path.stem)
    if before is None or getattr(before, "__file__", None) == str(path):
        sys.modules[path.stem] = module  # where dataclasses look for the names in annotations
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except StiefelError:
        raise
    except Exception as error:  # whatever the user's file raises
        raise StiefelError(f"{path} raised {told(error)}; make it run by itself.") from error
    finally:
        sys.path.pop(0)
    return module


def load_named(place: str) -> Callable[[], object] | nn.Module:
    """The user's model at `place`, FILE.py:NAME, or the function that builds it."""
    from torch import nn

    name, separator, attribute = place.rpartition(":")
    path = Path(name)
    if not separator or not attribute or path.suffix != ".py":
        raise StiefelError(f"model={place!r} is not FILE.py:NAME; write for example path/to/file.py:build_model.")
    model = getattr(load_file(path), attribute, None)
    if model is None:
        raise StiefelError(f"{path} has no {attribute}; name a module or a function that builds one.")
    if not isinstance(model, nn.Module) and not callable(model):
        raise StiefelError(f"{place} is of type {type(model).__name__}; it must be, or build, a torch.nn.Module.")
    return model


def built(named: Callable[[], object] | nn.Module, place: str) -> nn.Module:
    """The user's model at `place`, or what the function there builds."""
    from torch import nn

    try:
        model = named if isinstance(named, nn.Module) else named()
    except Exception as error:  # whatever the user's function raises
        raise StiefelError(f"{place} raised {told(error)}; make it run without arguments.") from error
    if not isinstance(model, nn.Module):
        raise StiefelError(f"{place} is of type {type(model).__name__}; it must be, or build, a torch.nn.Module.")
    return model


def told(error: Exception) -> str:
    """An error of the user's own code in a few words: its type and its first line."""
    return f"{type(error).__name__} ({first_line(error)})"


def first_line(error: BaseException) -> str:
    """What an error says, for the middle of a sentence."""
    return (str(error).splitlines() or [""])[0].rstrip(".")
