"""The registry of ops, as it was before a test or a block of a document declared some."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def restored_ops() -> Iterator[None]:
    """Afterwards the registry holds the ops of the package; modules that declared others will be imported again."""
    try:
        yield
    finally:
        registry = sys.modules.get("difflang.graph.op_registry.declare_op")
        for name, declared in list(registry.DECLARED.items()) if registry is not None else ():
            del registry.DECLARED[name], registry.OPS[name]
            module = sys.modules.get(declared.op.module)
            if module is not None and not Path(module.__file__ or ROOT).is_relative_to(ROOT):
                del sys.modules[declared.op.module]
