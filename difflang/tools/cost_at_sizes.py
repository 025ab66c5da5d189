"""The cost of a function and its gradient at given sizes: operations, bytes and predicted memory. Nothing is run.

Everything is counted or predicted on the compiler's graph as it is lowered. None of it is a time: XLA fuses
operations, and the speed of the machine is not known here.
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
    """The cost of one program.

    `operations` are counted as each op declares them, by default one per element; `bytes` is the traffic without
    fusion. Of the branches of a conditional the most expensive counts. The rest is predicted memory: `arguments`,
    `results`, the most in use `between` them, and the total at the `peak`. With `per_step`, one step is counted of
    loops whose length is known only at run time. With `rematerializes`, loops rematerialize values, and that
    recomputation is not counted.
    """

    operations: int
    bytes: int
    arguments: int
    results: int
    between: int
    peak: int
    per_step: bool = False
    rematerializes: bool = False


class CostReport(Struct, frozen=True):
    """The cost of a function, and of its gradient in `wrt` if it has one; else `why` says why not."""

    title: str
    value: ProgramCost
    gradient: ProgramCost | None
    wrt: str
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the operations of the value the gradient takes; None without operations."""
        if self.gradient is None or not self.value.operations:
            return None
        return self.gradient.operations / self.value.operations

    def table(self) -> list[dict[str, Any]]:
        """One row of numbers for the value, and one for the gradient."""
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
        said = [f"no gradient{f' with respect to {self.wrt}' * bool(self.wrt)}: {self.why}"] if self.why else []
        if any(e.per_step for e in found):
            said.append("for loops whose length is known only at run time, one step is counted")
        if any(e.rematerializes for e in found):
            said.append("recomputation in loops, which saves memory, is not counted")
        return said


def program_cost(graph: Graph) -> ProgramCost:
    """The cost of a program, under its own memory limit if it has one. Errors: DL1012."""
    plan = plan_memory(graph, memory_limit(graph))
    operations, bytes = count_operations(plan.graph), count_operations(plan.graph, equation_bytes)
    # The planner marks loops that keep less than all residuals.
    rematerializes = any("keep" in eqn.attrs for inner in graphs_postorder(plan.graph)[0] for eqn in inner.eqns)
    account = plan.account
    memory = account.arguments, account.results, account.temporaries, account.peak
    return ProgramCost(as_integer(operations), as_integer(bytes), *memory, operations.per_step, rematerializes)


def as_integer(cost: Cost) -> int:
    assert isinstance(cost.count, int), "a graph that is lowered has no names of sizes"
    return cost.count
