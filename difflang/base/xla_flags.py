"""The flag of XLA that is set for the whole process, when the package is imported."""

from __future__ import annotations

import os

# XLA's default is 1,024 bytes. Beyond it each operation of a step is a call that takes as long as a thousand additions,
# and the gradient of a few numbers takes thirty times as long as their value.
SMALL_LOOP_BYTES = 32_768  # bytes that one step of a loop reads and writes
BACKEND_OPTIONS = "xla_backend_extra_options"
SMALL_LOOP_FLAG = f"--{BACKEND_OPTIONS}=xla_cpu_small_while_loop_byte_threshold={SMALL_LOOP_BYTES}"


def set_xla_flags() -> None:
    """Have XLA on the CPU compile a loop with small steps into one kernel, unless such options are set already.

    XLA reads its flags once per process, when JAX first asks for devices; afterwards this has no effect. As an option
    of one compilation it does not exist. If the variable names a file of flags, nothing is added.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if BACKEND_OPTIONS not in flags and flags[:2] in ("", "--"):
        os.environ["XLA_FLAGS"] = f"{flags} {SMALL_LOOP_FLAG}".strip()
