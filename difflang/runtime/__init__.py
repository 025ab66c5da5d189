"""Graph to machine. Like the package itself, the room offers at its threshold what a person looks for here, and
imports it when it is asked for: `difflang.runtime.load(path)` is a function out of an artifact.
"""

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
