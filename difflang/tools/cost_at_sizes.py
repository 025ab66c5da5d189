"""What a function and its gradient take for arguments of certain sizes: operations, bytes, memory. Nothing is run.

All of it is counted in the compiler's own graph as it is lowered, or predicted from it. None of it is a time: XLA fuses
what stands here one by one, and how fast a machine is, is not known here.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from difflang.base.byte_sizes import format_bytes
from difflang.ir.graph import Graph, graphs_postorder
from difflang.plan.budget_search import memory_limit, plan_memory
from difflang.tools.cost import Cost, count_operations, equation_bytes


class ProgramCost(Struct, frozen=True):
    """What one program takes.

    `operations` are those on numbers, as each op declares them, one an element if it does not; `bytes` what they would
    read and write if none were fused. Of the ways of a branch the longest is counted. The rest is predicted of memory:
    `arguments`, `results`, the most that is there `between` them, and all together at the `peak`. `per_step`: of a loop
    whose length only the run knows one step is counted. `again`: what a loop keeps less of and computes again is not
    counted again.
    """

    operations: int
    bytes: int
    arguments: int
    results: int
    between: int
    peak: int
    per_step: bool = False
    again: bool = False


class CostReport(Struct, frozen=True):
    """What a function takes, and its gradient in `wrt`, if it has one; else `why` says why it has none."""

    title: str
    value: ProgramCost
    gradient: ProgramCost | None
    wrt: str
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the operations of the value the gradient takes, where there are any."""
        if self.gradient is None or not self.value.operations:
            return None
        return self.gradient.operations / self.value.operations

    def table(self) -> list[dict[str, Any]]:
        """A row of numbers for the value, and one for the gradient."""
        rows = {"value": self.value, f"gradient with respect to {self.wrt}": self.gradient}
        return [{"of": name, **asdict(of)} for name, of in rows.items() if of is not None]

    def to_json(self) -> dict[str, Any]:
        return {"what": self.title, "rows": self.table(), "ratio": self.ratio, "why_not": self.why or None}

    def __str__(self) -> str:
        head = ["", "operations", "bytes", "arguments", "results", "between", "at the peak"]
        rows = [head]
        for row in self.table():
            amounts = [format_bytes(row[name]) for name in ("bytes", "arguments", "results", "between", "peak")]
            rows.append([row["of"], f"{row['operations']:,}", *amounts])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]])
            for row in rows
        ]
        return "\n".join([f"{self.title}, as the compiler counts: without times, without fusion", *lines, *self.notes])

    @property
    def notes(self) -> list[str]:
        found = [e for e in (self.value, self.gradient) if e is not None]
        said = [f"no gradient{f' in {self.wrt}' * bool(self.wrt)}: {self.why}"] if self.why else []
        if any(e.per_step for e in found):
            said.append("for loops whose length is known only at run time, one step is counted")
        if any(e.again for e in found):
            said.append("recomputation in loops, which saves memory, is not counted")
        return said


def program_cost(graph: Graph) -> ProgramCost:
    """What a program takes, under the limit on memory that it has itself, if any. Errors: DL1012."""
    plan = plan_memory(graph, memory_limit(graph))
    operations, bytes, room = count_operations(plan.graph), count_operations(plan.graph, equation_bytes), plan.account
    again = any("keep" in eqn.attrs for inner in graphs_postorder(plan.graph)[0] for eqn in inner.eqns)
    memory = room.arguments, room.results, room.temporaries, room.peak
    return ProgramCost(as_integer(operations), as_integer(bytes), *memory, operations.per_step, again)


def as_integer(cost: Cost) -> int:
    assert isinstance(cost.count, int), "a graph that is lowered has no names of sizes"
    return cost.count
