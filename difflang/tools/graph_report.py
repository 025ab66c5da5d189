"""`difflang graph`: the size of a function's graph, its equations by op, and what of it is reverse mode alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from difflang.base.byte_sizes import format_bytes
from difflang.base.source import BackwardSpan
from difflang.base.wording import aligned_rows, count_of
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.execution.check_failures import FAILURE_RESULTS
from difflang.execution.engine import Engine
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import Tensor
from difflang.lower.lowering_pipeline import graph_at_stage
from difflang.tools.emit import EmitRequest, function_call, refuse_host_function, single_function

USAGE = ("DL0201", "DL0322", "DL0403", "DL1207", "DL1210", "DL1220")
MAX_INPUTS = 8  # more are only counted


class GraphOptions(Struct, frozen=True):
    """Options: argument types, the gradient's parameter, the stage of the compiler."""

    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    stage: str = "optimized"
    words: tuple[str, ...] = ()  # arguments of the program


class OpCount(Struct, frozen=True):
    """How many equations of an op there are, how many of them are reverse mode's, and the bytes of their results."""

    op: str
    count: int
    backward: int
    bytes: int


class GraphReport(Struct, frozen=True):
    """The size of a graph. Equations in regions count once, however often they run; histories count no bytes."""

    name: str
    stage: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    ops: tuple[OpCount, ...]
    kept: tuple[Value, ...]  # what reverse mode reads of the values before it

    @property
    def count(self) -> int:
        return sum([row.count for row in self.ops])

    @property
    def backward(self) -> int:
        return sum([row.backward for row in self.ops])

    def __str__(self) -> str:
        head = f"{self.name or 'the graph'}, {self.stage}: {count_of(self.count, 'equation')}"
        lines = [f"{head}, {self.backward} backward" if self.backward else head]
        named = ", ".join([f"{v.hint or 'input'}: {v.type}" for v in self.inputs[:MAX_INPUTS]])
        more = f", and {len(self.inputs) - MAX_INPUTS} more" if len(self.inputs) > MAX_INPUTS else ""
        lines.append(f"  inputs: {named or 'none'}{more}; {format_bytes(total_bytes(self.inputs))}")
        types = ", ".join([str(v.type) for v in self.outputs[:MAX_INPUTS]])
        more = f", and {len(self.outputs) - MAX_INPUTS} more" if len(self.outputs) > MAX_INPUTS else ""
        lines.append(f"  outputs: {types or 'none'}{more}; {format_bytes(total_bytes(self.outputs))}")
        if self.backward:
            arrays = [v for v in self.kept if isinstance(v.type, Tensor)]
            rest = len(self.kept) - len(arrays)
            more = f", and {count_of(rest, 'history', 'histories')}" if rest else ""
            kept = f"{count_of(len(arrays), 'array')}, {format_bytes(total_bytes(arrays))}{more}"
            lines.append(f"  kept for the backward equations: {kept}")
        rows = [["op", "equations", "forward", "backward", "results"]]
        for row in self.ops:
            counts = row.count, row.count - row.backward, row.backward
            rows.append([row.op, *map(str, counts), format_bytes(row.bytes)])
        return "\n".join([*lines, "", *aligned_rows(rows, (0,))])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "stage": self.stage, "equations": self.count, "backward": self.backward,
            "inputs": {v.hint or f"input {i}": str(v.type) for i, v in enumerate(self.inputs)},
            "outputs": [str(v.type) for v in self.outputs],
            "kept": {"values": len(self.kept), "bytes": total_bytes(self.kept)},
            "ops": [
                {"op": row.op, "equations": row.count, "backward": row.backward, "bytes": row.bytes} for row in self.ops
            ],
        }  # fmt: skip


def report_function(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: GraphOptions
) -> GraphReport:
    """The size of the graph of a function of a file, or of its gradient. Errors: as `emit`."""
    load_values(checked, path, Engine("interpret"), options.words)
    decl = single_function(checked, entry, "graph")
    refuse_host_function(decl)
    request = EmitRequest("ir", decl.name, options.argument_specs, options.wrt)
    call = function_call(checked, decl, request, Session())
    found = graph_at_stage(call.graph, options.stage)
    outputs = found.results[: len(found.results) - (FAILURE_RESULTS if call.fails else 0)]
    return report_graph(found, options.stage, outputs)


def report_graph(graph: Graph, stage: str, outputs: Sequence[Value]) -> GraphReport:
    """The size of a graph, of whose results some are outputs. Cost: linear; a graph that is used often counts once."""
    forward = forward_graphs(graph)
    counts, backward, taken = Counter[str](), Counter[str](), Counter[str]()
    for inner in graphs_postorder(graph)[0]:
        for eqn in inner.eqns:
            counts[eqn.op.name] += 1
            backward[eqn.op.name] += inner not in forward or is_backward(eqn)
            taken[eqn.op.name] += total_bytes(eqn.results)
    ops = [
        OpCount(op, n, backward[op], taken[op]) for op, n in sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    ]
    return GraphReport(graph.name, stage, graph.params, tuple(outputs), tuple(ops), tuple(kept_values(graph)))


def is_backward(eqn: Eqn) -> bool:
    return isinstance(eqn.span, BackwardSpan)


def forward_graphs(graph: Graph) -> set[Graph]:
    """The graph and its regions, but for those that only equations of reverse mode have."""
    found, todo = {graph}, [graph]
    while todo:
        new = {r for eqn in todo.pop().eqns if not is_backward(eqn) for r in eqn.regions} - found
        found |= new
        todo += new
    return found


def kept_values(graph: Graph) -> list[Value]:
    """The values that equations of reverse mode read of the others: constants and inputs do not count."""
    made = {r for eqn in graph.eqns if not is_backward(eqn) and eqn.operands for r in eqn.results}
    read = [v for eqn in graph.eqns if is_backward(eqn) for v in eqn.operands if v in made]
    return list(dict.fromkeys(read))


def total_bytes(values: Iterable[Value]) -> int:
    types = [v.type for v in values if isinstance(v.type, Tensor)]
    return sum([t.bytes for t in types if all([isinstance(n, int) for n in t.shape])])
