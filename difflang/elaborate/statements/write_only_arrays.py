"""Finds arrays that a loop only writes into, and logs those writes while its body is elaborated.

If a loop never reads the array, its steps do not depend on earlier writes. So the writes can be logged and carried out
after all steps: see `scatter_loops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.arrays.indexing import Subscripts, default_index_dtype, padded_shape
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import as_array, broadcast_shape, broadcast_to
from difflang.elaborate.reports.operand_mismatches import dtype_mismatch_error
from difflang.elaborate.statements.assignment_targets import broadcast_to_target
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.tensor_types import I64
from difflang.ops.op_factories import static_size, tensor_type
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, assigned_names, find_node, mentioned_names
from difflang.types.dtype_variables import prune_dtype
from difflang.types.unify import unify_dtypes

JUMPS = (tree.Break, tree.Continue, tree.Return)
WRITE_OPS = {"=": "=", "+": "+", "-": "+", "*": "*", "max": "max", "min": "min"}


class NotScatterable(Exception):
    """The loop must run step by step after all."""


class WriteKind(Struct, frozen=True):
    """The operation by which a loop writes into an array, and the number of indices."""

    op: str
    index_count: int


class LoggedWrite(Struct, frozen=True):
    """A write: positions for each indexed axis, and the update, whose leading axes are those of the positions."""

    positions: tuple[Array, ...]
    update: Array


class WriteLog(Struct, frozen=True, eq=False):
    """The writes of a loop into one array; `base` is its value before the loop."""

    kind: WriteKind
    base: Array
    writes: list[LoggedWrite] = field(default_factory=list[LoggedWrite])

    @property
    def item_shape(self) -> tuple[int, ...]:
        """The shape of the element at one position."""
        return tuple(map(static_size, self.base.tensor.shape[self.kind.index_count :]))

    def add(self, written: Term) -> None:
        """Log several writes that `concatenate_logged_writes` combined."""
        assert isinstance(written, Tuple)
        *positions, update = [item for item in written.items if isinstance(item, Array)]
        self.writes.append(LoggedWrite(tuple(positions), update))


# ---- Recognizing write-only arrays


@lru_cache(maxsize=4096)
def write_only_arrays(loop: tree.For) -> dict[str, WriteKind]:
    """The outer variables that a loop only writes into; none if it assigns others too.

    Cost: one walk over the body, and one over each loop in it.
    """
    names = outer_names(loop)
    kinds: dict[str, WriteKind] = {}
    todo: list[tree.Node] = [loop]
    while todo:
        stmt = todo.pop()
        if names.isdisjoint(mentioned_names(stmt)):
            continue
        if isinstance(stmt, tree.For):
            if (
                not is_simple_loop(stmt)
                or not names.issuperset(outer_names(stmt))
                or mentions_any(names, stmt.iterable)
            ):
                return {}
            todo += stmt.body.stmts
        elif isinstance(stmt, tree.If) and not mentions_any(names, stmt.condition):
            todo += [stmt.then] if stmt.orelse is None else [stmt.then, stmt.orelse]
        elif isinstance(stmt, tree.Block):
            todo += stmt.stmts
        elif (found := write_of_statement(stmt)) is None:
            return {}
        else:
            name, kind, read = found
            if mentions_any(names, *read) or kinds.setdefault(name, kind) != kind:
                return {}
    return kinds if kinds.keys() == names else {}


def mentions_any(names: set[str], *parts: tree.Node) -> bool:
    return any(not names.isdisjoint(mentioned_names(part)) for part in parts)


def is_simple_loop(loop: tree.For) -> bool:
    """Whether a loop has no jumps, yields nothing and has no strategy decorator."""
    strategies = [a for a in loop.attributes if a.name != "unchecked"] if type(loop) is tree.For else [loop]
    if strategies or find_node(loop.body, (tree.Yield,)) is not None:
        return False
    return not any(isinstance(n, JUMPS) for n in all_nodes(loop.body))


def outer_names(loop: tree.For) -> set[str]:
    """The outer variables that a loop assigns."""
    bound = {n.name for n in all_nodes(loop) if isinstance(n, (tree.NamePattern, tree.Fn))}
    return set(assigned_names(loop.body)) - bound


def write_of_statement(stmt: tree.Node) -> tuple[str, WriteKind, tuple[tree.Node, ...]] | None:
    """The variable, kind and operands of a statement that only writes an element of an array; None for others."""
    if not isinstance(stmt, (tree.Assign, tree.Update)):
        return None
    op, target = WRITE_OPS.get(stmt.op if isinstance(stmt, tree.Update) else "="), stmt.target
    if op is None or not isinstance(target, tree.Index) or not isinstance(target.base, tree.Name):
        return None
    if any(isinstance(s, (tree.Slice, tree.Range, tree.Dots)) for s in target.subscripts):
        return None
    return target.base.id, WriteKind(op, len(target.subscripts)), (*target.subscripts, stmt.value)


# ---- Logging


def log_for_target(cx: ElabContext, target: tree.Expr) -> WriteLog | None:
    """The log of the array that is the target of a write, if it has one."""
    if not cx.write_logs or not isinstance(target, tree.Index) or not isinstance(target.base, tree.Name):
        return None
    binding = cx.scope.find(target.base.id)
    return cx.write_logs.get(binding) if binding is not None else None


def log_write(cx: ElabContext, log: WriteLog, subs: Subscripts, value: Term, span: Span) -> None:
    """Log a write."""
    change = as_array(cx, value, span)
    if not unify_dtypes(subs.base.tensor.dtype, change.tensor.dtype):
        raise dtype_mismatch_error("assignment", span, [subs.base, change], (subs.base_span, span))
    # The array is too small for any write: a check fails first, or this never runs.
    if padded_shape(subs) is not None:
        return
    if subs.mask is not None:
        raise NotScatterable
    parts = subs.axes[: log.kind.index_count]
    if len(subs.parts) != len(subs.axes) or any(p.size is not None for p in parts):
        raise NotScatterable
    found = [p.where if p.where is not None else p.start for p in parts]
    positions = [default_index_dtype(p) for p in found if p is not None]
    lead = broadcast_shape(cx, positions, (), subs.span)
    shape = (*lead, *subs.base.tensor.shape[len(parts) :])
    update = broadcast_to_target(cx, change, shape, span, subs)
    log.writes.append(LoggedWrite(tuple([broadcast_to(cx, p, lead, subs.span) for p in positions]), update))


# ---- Merging writes


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
