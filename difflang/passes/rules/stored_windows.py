"""Rewrite rules for reads of what was just written: the value itself, without the array."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update
from difflang.passes.rules.rewriter import GuardedRule, Replacement, Rewriter


def forward_stored_window(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a read of the window that was written last by what was written."""
    array, *starts = eqn.operands
    write = to.makers[array]
    _, update, *places = write.operands
    # Both windows are moved inside alike, since they have one size.
    return [update] if starts == places and update.type == eqn.results[0].type else None


def sample_store() -> Graph:
    """A write and a read of the same window."""

    def program(x: Value, update: Value, row: Value, column: Value) -> Sequence[Value]:
        return [dynamic_slice.one(dynamic_update.one(x, update, row, column), row, column, sizes=(1, 2))]

    return build_region([Tensor(F64, (2, 3)), Tensor(F64, (1, 2)), Tensor(I32), Tensor(I32)], program)


STORED_WINDOW_RULES = (
    GuardedRule(("dynamic_slice",), forward_stored_window, (sample_store,), operand_guard=(0, "dynamic_update")),
)
