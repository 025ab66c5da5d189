"""The examples that have a twin, loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import difflang
from twins import EXAMPLES, source


def entry(name: str, swap: tuple[str, str]) -> Any:
    """The function of an example that its twin's `loss` is, in another float dtype."""
    program = difflang.loads(source(name, swap=swap), name=name, paths=[EXAMPLES])
    return getattr(program, getattr(import_module(f"twins.{name}"), "ENTRY", "loss"))
