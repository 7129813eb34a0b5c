"""`watch` for trainers: `LightningWatch`, `TransformersWatch` and `KerasWatch`.

Each takes the arguments of `watch` but for the model, and has the `Watch` as `.watch` once training has begun. A
trainer's package is imported when its callback is asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = ["KerasWatch", "LightningWatch", "TransformersWatch"]  # noqa: F822 - by __getattr__

_WHERE = {"LightningWatch": "_lightning", "TransformersWatch": "_transformers", "KerasWatch": "_keras"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".watching.{_WHERE[name]}", __package__), name)
