"""Logs of what a loop writes into arrays that it never reads, carried out after all steps: see `scatter_loops`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.effects import LoggedWrite, WriteLog
from difflang.elaborate.terms import Array, Tuple
from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.tensor_types import I64
from difflang.ops.op_factories import static_size, tensor_type
from difflang.syntax import tree
from difflang.types.dtype_variables import prune_dtype


class NotScatterable(Exception):
    """The loop must run step by step after all."""


def log_for_target(cx: ElabContext, target: tree.Expr) -> WriteLog | None:
    """The log of the array that is the target of a write, if it has one."""
    if not cx.write_logs or not isinstance(target, tree.Index) or not isinstance(target.base, tree.Name):
        return None
    binding = cx.scope.find(target.base.id)
    return cx.write_logs.get(binding) if binding is not None else None


def concatenate_logged_writes(cx: ElabContext, log: WriteLog, sites: Sequence[LoggedWrite], span: Span) -> Tuple:
    """Concatenate writes, in order, into one: flat positions and their updates."""
    columns: list[list[Value]] = [[] for _ in range(log.kind.index_count + 1)]
    for site in sites:
        size = prod(map(static_size, site.positions[0].tensor.shape))
        for column, index in zip(columns, site.positions, strict=False):
            column.append(cx.emit("reshape", span, index.value, shape=(size,)))
        columns[-1].append(cx.emit("reshape", span, site.update.value, shape=(size, *log.item_shape)))
    columns[:-1] = unify_index_types(cx, columns[:-1], span)
    return Tuple(tuple([Array(c[0] if len(c) == 1 else cx.emit("concat", span, *c, axis=0)) for c in columns]))


def unify_index_types(cx: ElabContext, columns: list[list[Value]], span: Span) -> list[list[Value]]:
    """Positions converted to one integer type."""
    if len({prune_dtype(tensor_type(v).dtype) for column in columns for v in column}) == 1:
        return columns
    return [[cx.emit("truncate", span, v, dtype=I64) for v in column] for column in columns]


def take_writes_since(cx: ElabContext, marks: Sequence[int], span: Span) -> list[tuple[WriteLog, Tuple]]:
    """Remove the writes logged since each log had the length in `marks`, merged for each log."""
    found: list[tuple[WriteLog, Tuple]] = []
    for log, mark in zip(cx.write_logs.values(), marks, strict=True):
        new = log.writes[mark:]
        del log.writes[mark:]
        if new:
            found.append((log, concatenate_logged_writes(cx, log, new, span)))
    return found


def out_of_range_writes(builder: Builder, written: Tuple) -> Tuple:
    """Writes of the same shapes at position -1, which a scatter drops as out of range."""
    *positions, update = [item for item in written.items if isinstance(item, Array)]
    at = [Array(builder.const(-1, p.value.type)) for p in positions]
    return Tuple((*at, Array(builder.const(0, update.value.type))))
