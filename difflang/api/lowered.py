"""A function lowered for XLA: its text, and the program that it compiles to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difflang.driver.elaborate_call import ElaboratedCall
from difflang.ir.graph import Graph
from difflang.runtime.compile import compile_lowered


class Lowered:
    """A program for XLA, before it is compiled. `graph` is what it was lowered from."""

    def __init__(self, graph: Graph, program: Any, entry: ElaboratedCall) -> None:
        self.graph, self.entry, self._program = graph, entry, program

    def as_text(self, debug_info: bool = False) -> str:
        """StableHLO; with `debug_info`, each operation says where in the source it comes from."""
        return self._program.as_text(debug_info=debug_info)

    def compile(self, options: dict[str, Any] | None = None) -> Callable[..., Any]:
        """JAX's compiled program. It takes the leaves of the arguments, and gives those of the results."""
        return compile_lowered(self._program, self.graph, options or {})
