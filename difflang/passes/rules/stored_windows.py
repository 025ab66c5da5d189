"""Rewrite rules for windows: reads of what was just written, and windows that are all of an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update, gather
from difflang.ops.elementwise.linear_arithmetic import neg
from difflang.passes.rules.reshapes_and_constants import const_like
from difflang.passes.rules.rewriter import GuardedRule, Replacement, Rewriter


def forward_stored_window(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a read of the window that was written last by what was written."""
    array, *starts = eqn.operands
    write = to.makers[array]
    _, update, *places = write.operands
    # Both windows are moved inside alike, since they have one size.
    return [update] if starts == places and update.type == eqn.results[0].type else None


def whole_window(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a read of a window that is all of the array by the array, and a write of one by what is written."""
    # Such a window is moved to the beginning of the array wherever it should start.
    x, written = eqn.operands[0], eqn.operands[1] if eqn.op is dynamic_update else eqn.results[0]
    if written.type != x.type:
        return None
    return [x] if eqn.op is dynamic_slice else [written]


def fold_read_of_constant(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a read of an array filled with one number by that number."""
    number = to.number(eqn.operands[0])
    return None if number is None else [to.const(eqn, number, eqn.results[0].type)]


def sample_window(program: Callable[[Value, Value], Value]) -> Callable[[], Graph]:
    """A program of an array and a position."""
    return lambda: build_region([Tensor(F64, (2, 3)), Tensor(I32)], lambda x, i: [program(x, i)])


def sample_store() -> Graph:
    """A write and a read of the same window."""

    def program(x: Value, update: Value, row: Value, column: Value) -> Sequence[Value]:
        return [dynamic_slice.one(dynamic_update.one(x, update, row, column), row, column, sizes=(1, 2))]

    return build_region([Tensor(F64, (2, 3)), Tensor(F64, (1, 2)), Tensor(I32), Tensor(I32)], program)


STORED_WINDOW_RULES = (
    GuardedRule(
        ("dynamic_slice", "dynamic_update"),
        whole_window,
        (
            sample_window(lambda x, i: dynamic_slice.one(x, i, i, sizes=(2, 3))),
            sample_window(lambda x, i: dynamic_update.one(x, neg.one(x), i, i)),
        ),
    ),
    GuardedRule(
        ("dynamic_slice", "gather"),
        fold_read_of_constant,
        (
            sample_window(lambda x, i: dynamic_slice.one(const_like(x, 2.5), i, i, sizes=(1, 3))),
            sample_window(lambda x, i: gather.one(const_like(x, 2.5), i, axes=(1,))),
        ),
        operand_guard=(0, "const"),
    ),
    GuardedRule(("dynamic_slice",), forward_stored_window, (sample_store,), operand_guard=(0, "dynamic_update")),
)
