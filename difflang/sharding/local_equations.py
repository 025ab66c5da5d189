"""The equations of a graph as each device of a mesh runs them: on its parts of the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import Split
from difflang.sharding.entry_splits import entry_splits
from difflang.sharding.mesh_splits import MeshSplits
from difflang.sharding.region_splits import whole_split


class LocalEquations:
    """How a finished graph is split over a mesh, if its params are as the program declares."""

    def __init__(self, graph: Graph, mesh: Mapping[str, int]) -> None:
        self.splits = MeshSplits(mesh)
        declared = zip(graph.params, entry_splits(graph), strict=True)
        self.splits.of_graph(graph, [split or whole_split(p.type) for p, split in declared])

    def local(self, eqn: Eqn) -> Eqn:
        """An equation without regions, with the types that it has on each device; its attributes stay."""
        results = self.splits.results.get(eqn)
        if results is None:
            return eqn
        operands = self.splits.taken.get(eqn, [whole_split(v.type) for v in eqn.operands])
        return Eqn(eqn.op, self.parts(eqn.operands, operands), self.parts(eqn.results, results), eqn.attrs)

    def parts(self, values: Sequence[Value], splits: Sequence[Split]) -> tuple[Value, ...]:
        return tuple(
            [
                Value(self.splits.local_type(v.type, split), v.home) if isinstance(v.type, Tensor) else v
                for v, split in zip(values, splits, strict=True)
            ]
        )

    def instances(self, eqn: Eqn) -> int:
        """Over how many devices the instances of an equation's regions are split."""
        return self.splits.parts(self.splits.lanes.get(eqn, ()))
