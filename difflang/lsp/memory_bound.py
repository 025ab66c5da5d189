"""The bound on the server's memory, so that no document can fill the machine's. Only Linux keeps such a bound."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def bound_memory(limit: int) -> None:
    """Let the process use so many bytes more than it uses now. Beyond that, Python raises MemoryError."""
    if sys.platform == "linux":
        import resource

        # What libraries reserve at their start grows with the number of cores, and does not count.
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = used + limit
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


def unbound_memory(process: int) -> None:
    """Remove the bound from a process that this one has started."""
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.prlimit(process, resource.RLIMIT_DATA, (hard, hard))
