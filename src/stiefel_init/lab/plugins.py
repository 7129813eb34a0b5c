"""Plugins: the user's Python files; what they register is then available by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ..core.errors import StiefelError


def load_file(path: Path) -> ModuleType:
    """Import a Python file; its neighbours can be imported from it.

    Raises:
        StiefelError: if it is not a file, or raises anything.
    """
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
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise StiefelError(f"{path} raised {type(error).__name__} ({reason}); make it run by itself.") from error
    finally:
        sys.path.pop(0)
    return module
