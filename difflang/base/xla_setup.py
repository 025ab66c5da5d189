"""The persistent compile cache, set up in the command line's own process.

When the package is a library in another program, there is none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path

from difflang.base.private_cache import private_subfolder

CACHE_DIR_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
MAX_CACHE_AGE = 30 * 86_400.0  # seconds after which a cached program is removed
MAX_CACHE_BYTES = 1 << 30  # total size of the cached programs
ENABLED_FOLDERS: list[Path] = []  # the folder of the cache, if there is to be one


def enable_compile_cache() -> None:
    """Have JAX cache what it compiles in the user's cache folder, unless the user has chosen a folder for JAX.

    JAX keys a program by its text after all our passes, its options, the versions and the device, so a change of ours
    never hits a stale entry. The key lacks the CPU's instruction set, and a home may be shared, so each kind of CPU has
    a folder of its own. If the folder cannot be used, everything is compiled without a cache. `runtime` gives
    the folder to JAX.
    """
    if "jax" in sys.modules or CACHE_DIR_VARIABLE in os.environ:
        return
    with suppress(OSError):
        folder = private_subfolder(f"xla-{cpu_fingerprint()}")
        evict_old_programs(folder)
        if os.access(folder, os.W_OK):
            ENABLED_FOLDERS.append(folder)


def cpu_fingerprint() -> str:
    """A hash of the model and the instruction set of this machine's processor."""
    text = platform.machine() + os.environ.get("PROCESSOR_IDENTIFIER", "")
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
        text += "".join(line for line in first.splitlines() if line.startswith(("model name", "flags", "Features")))
    except OSError:
        pass  # not Linux: the platform's own description must do
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def evict_old_programs(kept: Path) -> None:
    """Once a day, remove programs compiled long ago, and the oldest ones while the cache is too large."""
    stamp, now = kept / "cleared", time.time()
    if stamp.exists() and now - stamp.stat().st_mtime < MAX_CACHE_AGE / 30:
        return
    stamp.touch()
    left = MAX_CACHE_BYTES
    for age, size, file in sorted((now - s.st_mtime, s.st_size, f) for f in kept.iterdir() for s in [f.stat()]):
        left -= size
        if age > MAX_CACHE_AGE or left < 0:
            file.unlink(missing_ok=True)
