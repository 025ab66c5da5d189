"""The registry of host builtins: importing it imports every file that registers some."""

from __future__ import annotations

from difflang.host import plotting, program_args
from difflang.host.builtins import HOST_BUILTINS
from difflang.host.data import batches, read_values, text_codes, write_values

__all__ = [
    "HOST_BUILTINS",
    "batches",
    "plotting",
    "program_args",
    "read_values",
    "text_codes",
    "write_values",
]
