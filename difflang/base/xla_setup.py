"""How XLA is set up in a process of our own. As a library in somebody else's, nothing is set."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import warnings
from pathlib import Path

from difflang.base.package_data import cache_folder

SMALL_LOOP_BYTES = 32_768  # bytes that the steps of a loop read and write
SMALL_LOOP_FLAG = f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={SMALL_LOOP_BYTES}"


def set_xla_flags() -> None:
    """Have XLA on the CPU make one kernel of a loop whose steps are little work, unless such options are set already.

    By itself it does so up to 1,024 bytes; beyond, each operation of a step is a call that takes as long as a thousand
    additions, and a gradient of a few numbers thirty times as long as their value. XLA takes this for a whole process
    only, when it is first used.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "jax" not in sys.modules and "xla_backend_extra_options" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {SMALL_LOOP_FLAG}".strip()


CACHE_DIR_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
MAX_CACHE_AGE = 30 * 86_400.0  # seconds after which a compiled program is compiled anew
MAX_CACHE_BYTES = 1 << 30  # bytes of compiled programs that are kept


def enable_compile_cache() -> None:
    """Have JAX keep what it compiles in the user's cache folder, unless the user has chosen one for all of JAX.

    JAX knows a program by its text after all our passes, its options, the versions and the device, so nothing that we
    change is missed. It does not ask which instructions the CPU has: each kind has a folder of its own, since a home
    may be shared. Where the folder cannot be written to, all is compiled as if there were none.
    """
    if "jax" in sys.modules or CACHE_DIR_VARIABLE in os.environ:
        return
    cache = cache_folder() / f"xla-{cpu_fingerprint()}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        evict_old_programs(cache)
    except OSError:
        return
    if os.access(cache, os.W_OK):
        os.environ[CACHE_DIR_VARIABLE] = str(cache)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        # A file that another process is writing, or was stopped at, is one that is not there.
        warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def cpu_fingerprint() -> str:
    """A word for the model and the instructions of this machine's processor."""
    told = platform.machine() + os.environ.get("PROCESSOR_IDENTIFIER", "")
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
        told += "".join(line for line in first.splitlines() if line.startswith(("model name", "flags", "Features")))
    except OSError:
        pass  # not Linux: what the system says is all there is to know
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def evict_old_programs(kept: Path) -> None:
    """Remove what was compiled long ago, and the oldest where all is too much: looked at once a day."""
    stamp, now = kept / "cleared", time.time()
    if stamp.exists() and now - stamp.stat().st_mtime < MAX_CACHE_AGE / 30:
        return
    stamp.touch()
    left = MAX_CACHE_BYTES
    for age, size, file in sorted((now - s.st_mtime, s.st_size, f) for f in kept.iterdir() for s in [f.stat()]):
        left -= size
        if age > MAX_CACHE_AGE or left < 0:
            file.unlink(missing_ok=True)
