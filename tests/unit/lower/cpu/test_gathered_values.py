"""What a gather reads many times is stored, if it is expensive."""

from __future__ import annotations

import numpy as np

from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.lower.cpu.outlining import OutlinedSegment
from difflang.lower.cpu.split_fusion_chains import cut_after, stored_before_gathers
from difflang.ops.arrays.constants import array_constant

PLACES = np.arange(8000).reshape(10, 800) * 7 % 100


def gathered_sums(levels: int) -> Graph:
    """Sums of gathered sums of gathered sums."""
    home = Builder()
    x = home.param(Tensor(F64, (10, 800)))
    for _ in range(levels):
        sums = OPS["reduce_sum"].one(x, axes=(0,))
        at = array_constant(home, PLACES.astype(np.int32), Tensor(I32, PLACES.shape))
        x = OPS["gather"].one(sums, at, axes=(0,))
    return home.finish([x])


def sums_of(graph: Graph) -> set[Value]:
    return {e.results[0] for e in graph.eqns if e.op.name == "reduce_sum"}


def test_sums_that_are_read_often_are_stored() -> None:
    graph = gathered_sums(3)
    assert stored_before_gathers(graph) == sums_of(graph)
    segments = [s for s in cut_after(graph, sums_of(graph)) if isinstance(s, OutlinedSegment)]
    assert [len(s.results) for s in segments] == [1, 1, 1]


def test_params_are_stored_anyway() -> None:
    home = Builder()
    x = home.param(Tensor(F64, (100,)))
    at = array_constant(home, PLACES.astype(np.int32), Tensor(I32, PLACES.shape))
    assert not stored_before_gathers(home.finish([OPS["gather"].one(x, at, axes=(0,))]))
