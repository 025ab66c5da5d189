"""Python's cyclic garbage collector, out of the way while something large is built.

Trees and graphs are many small objects that all stay alive; looking through them again and again for cycles to free
takes longer than building them, and grows faster than they do.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Generator[None, None, None]:
    """No automatic collection inside; as it was before at the end."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
