"""How XLA is set up in a process of our own. As a library in somebody else's, nothing is set."""

from __future__ import annotations

import os
import sys

SMALL = 32_768  # bytes that the steps of a loop read and write
OPTIONS = f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={SMALL}"


def prepare_back_end() -> None:
    """Have XLA on the CPU make one kernel of a loop whose steps are little work, unless such options are set already.

    By itself it does so up to 1,024 bytes; beyond, each operation of a step is a call that takes as long as a thousand
    additions, and a gradient of a few numbers thirty times as long as their value. XLA takes this for a whole process
    only, when it is first used.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "jax" not in sys.modules and "xla_backend_extra_options" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {OPTIONS}".strip()
