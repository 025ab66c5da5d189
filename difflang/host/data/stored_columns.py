"""Columns of tables that stay in their file: read when they are used, by `batches` a few rows at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.ir.graph import Graph


class ColumnInFile(Struct, eq=False):
    """The values of a column in a file, in blocks of rows that are read together.

    `read_block` gives the values of a block. A column that is used as a whole is read once and kept.
    """

    dtype: np.dtype
    starts: tuple[int, ...]  # the first row of each block, then the number of rows
    read_block: Callable[[int], np.ndarray]
    whole: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int]:
        return (self.starts[-1],)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The values of some rows, which are not kept. Errors: DL0701, DL0703, DL0704."""
        if self.whole is not None:
            return self.whole[start:stop]
        found = np.empty(stop - start, self.dtype)
        block = bisect_right(self.starts, start) - 1
        while start < stop:
            first, after = self.starts[block : block + 2]
            end = min(after, stop)
            found[start - stop + len(found) : end - stop + len(found)] = self.read_block(block)[
                start - first : end - first
            ]
            start, block = end, block + 1
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.whole is None:
            self.whole = self.rows(0, self.starts[-1])
        return np.array(self.whole, dtype, copy=copy)

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self)[index]


def read_columns(graph: Graph, arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a graph, with the columns read that it uses, and zeros in place of others."""
    if not any(isinstance(x, ColumnInFile) for x in arguments):
        return arguments
    used = {v for eqn in graph.eqns for v in eqn.operands}

    def read(param: Any, argument: Any) -> Any:
        if not isinstance(argument, ColumnInFile):
            return argument
        return np.asarray(argument) if param in used else np.broadcast_to(np.zeros((), argument.dtype), argument.shape)

    return [read(*pair) for pair in zip(graph.params, arguments, strict=True)]
