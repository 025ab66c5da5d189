"""The report of `difflang compare`: tables of the ways to a derivative, of sizes by order, and of errors by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from difflang.base.byte_sizes import format_bytes
from difflang.base.wording import aligned_rows
from difflang.tools.compare.difference_errors import DifferenceError, PointErrors
from difflang.tools.compare.expression_size import MAX_SIZE, OrderSize
from difflang.tools.cost import ProgramCost

PLURALS = {"run": "runs", "pass": "passes", "expression": "expressions"}


class DerivativeMethod(Struct, frozen=True):
    """One way to the derivative in all numbers of the parameters.

    `times` are its runs or passes, `operations` those of one of them, `in_all` of all, `memory` the bytes at its peak,
    `error` relative, with the best `step` of differences. What is unknown is None.
    """

    name: str
    times: int
    unit: str
    operations: int | None
    in_all: int | None
    memory: int | None = None
    error: float | None = None
    step: float | None = None


def repeated(name: str, times: int, unit: str, cost: ProgramCost, error: Sequence[float] = ()) -> DerivativeMethod:
    """A way that runs one program several times; `error` is that at its best, and the step there."""
    return DerivativeMethod(name, times, unit, cost.operations, times * cost.operations, cost.peak, *error)


class Comparison(Struct, frozen=True):
    """The ways to the derivative of a call. `orders` are of the derivative in the parameter `along`."""

    call: str
    value: str
    wrt: tuple[str, ...]
    ways: tuple[DerivativeMethod, ...]
    along: str
    orders: tuple[OrderSize, ...]
    errors: PointErrors
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as data: bytes and errors as numbers, and what is unknown as null."""
        return to_builtins(self)

    def __str__(self) -> str:
        head = f"{self.call} = {self.value}, differentiated in {', '.join(self.wrt)}"
        parts = [[head], self.way_table(), self.order_table(), self.step_table(), list(self.notes)]
        return "\n\n".join("\n".join(part) for part in parts if part)

    def way_table(self) -> list[str]:
        error = "error" if self.errors.absolute else "relative error"
        rows = [["", "takes", "operations", "in all", "memory", error, ""]]
        for way in self.ways:
            rows.append([
                way.name, f"{way.times:,} {way.unit if way.times == 1 else PLURALS[way.unit]}",
                size_text(way.operations), size_text(way.in_all),
                "" if way.memory is None else format_bytes(way.memory), error_text(way.error),
                "" if way.step is None else f"at h = {way.step:.0e}",
            ])  # fmt: skip
        return aligned_rows(rows, (0, 1, 6))

    def order_table(self) -> list[str]:
        rows = [[f"order in {self.along}", "nodes of the expression", "of the graph", "ratio"]]
        for row in self.orders:
            known = row.expression is not None and row.expression < MAX_SIZE and row.graph
            ratio = ratio_text((row.expression or 0) / row.graph) if known and row.graph else ""
            rows.append([str(row.order), size_text(row.expression), size_text(row.graph), ratio])
        without = ", ".join([str(row.order) for row in self.orders if row.why])
        whys = [f"no expression of order {without}: {row.why}" for row in self.orders if row.why]
        return [*aligned_rows(rows, (0,)), *whys[:1]]

    def step_table(self) -> list[str]:
        parts = ["truncation", "rounding"] if self.errors.extended else []
        rows = [["h", "one-sided", *parts, "central", *parts]]
        for row in self.errors.steps:
            cells = [error_cells(each)[: 1 + len(parts)] for each in (row.one_sided, row.central)]
            rows.append([f"{row.step:.0e}", *cells[0], *cells[1]])
        return aligned_rows(rows, (0,))


def size_text(size: int | None) -> str:
    """A count in full, or with its power of ten; empty for none."""
    if size is None:
        return ""
    if size >= MAX_SIZE:
        return f"over {float(MAX_SIZE):.0e}"
    return f"{size:,}" if size < 10**12 else f"{float(size):.2e}"


def ratio_text(ratio: float) -> str:
    return f"{ratio:,.1f}" if ratio < 10**6 else f"{ratio:.1e}"


def error_text(error: float | None) -> str:
    return "" if error is None else "0" if error == 0 else f"{error:.1e}"


def error_cells(error: DifferenceError) -> list[str]:
    return list(map(error_text, (error.total, error.truncation, error.rounding)))
