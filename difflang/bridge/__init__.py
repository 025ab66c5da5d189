"""Bridges to libraries around JAX: flax modules, training with optax, parameters in files, orbax checkpoints.

Each module is imported on first access: `difflang.bridge.flax`, `difflang.bridge.train`, `difflang.bridge.files`,
`difflang.bridge.orbax`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

MODULES = ("files", "flax", "nested", "orbax", "train")


def __getattr__(name: str) -> ModuleType:
    if name not in MODULES:
        raise AttributeError(f"module 'difflang.bridge' has no attribute {name!r}")
    return import_module(f"difflang.bridge.{name}")
