"""Compiling and running graphs with JAX. `difflang.runtime.load(path)` loads a function from an artifact, lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    load: Callable[[str | Path], Any]

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name != "load":
        raise AttributeError(f"module 'difflang.runtime' has no attribute {name!r}")
    return import_module("difflang.artifact").load
