"""Pausing Python's cyclic garbage collector while a large structure is built.

Trees and graphs are many small objects that all stay alive. Scanning them repeatedly for cycles takes longer than
building them, and grows faster than they do.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Generator[None, None, None]:
    """No automatic collection inside the block; the previous setting is restored at the end."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
