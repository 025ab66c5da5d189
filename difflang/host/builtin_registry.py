"""All functions of the host, by name: each file registers its own."""

from __future__ import annotations

from difflang.host import plotting, program_args
from difflang.host.builtins import HOSTED
from difflang.host.data import read_values, write_values

__all__ = [
    "HOSTED",
    "plotting",
    "program_args",
    "read_values",
    "write_values",
]
