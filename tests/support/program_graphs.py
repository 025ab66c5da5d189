"""Graphs of random programs, and where they are run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from difflang.driver.elaborate_call import CallArgument, elaborate_call
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.lower.capacity import Capacity, with_capacity
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from support.language import checked
from support.random_programs import HEADER, random_program

ARGUMENTS = [CallArgument(n, Tensor(F64)) for n in "xyz"] + [CallArgument("k", Tensor(I32))]
ROOM = Capacity(16, 512)  # functions that call themselves: what these programs need


@dataclass(frozen=True, slots=True)
class Point:
    """Where a program is run, and directions."""

    xs: list[float]
    k: int
    dxs: list[float]

    @property
    def arrays(self) -> list[Any]:
        return [*map(np.float64, self.xs), np.int32(self.k)]


def point(seed: int) -> Point:
    rng = np.random.default_rng(seed)
    return Point(list(rng.uniform(-1.2, 1.2, 3)), int(rng.integers(0, 5)), list(rng.normal(size=3)))


def graph_of(source: str, name: str = "f", path: Path | None = None) -> Graph:
    found = checked(source, path)
    function = ClosureType(FnCode(found.module.fns[name], found.module), ())
    return with_capacity(elaborate_call(found.session, found.module, name, function, ARGUMENTS).graph, ROOM)


@lru_cache(maxsize=4)
def graph(seed: int) -> Graph:
    return graph_of(HEADER + random_program(seed))
