"""Turns loops that only write into arrays, `for i in 0..n { h[bin[i]] += w[i] }`, into a map and a scatter.

The map computes the positions and updates of all steps, and one scatter applies them in the order of the steps. Nested
loops of the same kind become part of it. If all updates together need much more memory than the loop's inputs, the loop
stays a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from difflang.base.source import Span
from difflang.elaborate.arrays.indexing import read_indexed
from difflang.elaborate.arrays.subscripts import SubscriptPart, Subscripts, full_axis
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.effects import WriteKind, WriteLog
from difflang.elaborate.expressions.map_equations import emit_map
from difflang.elaborate.expressions.names import bind_pattern
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.statements.assignment_targets import SCATTER_OPS, assign_indexed, combine_update
from difflang.elaborate.statements.loop_iterable import LoopIterable
from difflang.elaborate.statements.write_logs import NotScatterable, concatenate_logged_writes
from difflang.elaborate.terms import UNIT_TERM, Array, Term, Tuple
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import COMPLEXES, Tensor
from difflang.ops.op_factories import static_size, tensor_type
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, assigned_names, find_node, mentioned_names
from difflang.types.dtype_variables import prune_dtype

MAX_SCATTER_NUMBERS = 2**24  # intermediates up to this many numbers are always accepted
MAX_SCATTER_RATIO = 4  # larger ones may be this many times the loop's inputs


JUMPS = (tree.Break, tree.Continue, tree.Return)


WRITE_OPS = {"=": "=", "+": "+", "-": "+", "*": "*", "max": "max", "min": "min"}


def write_logs(
    cx: ElabContext, loop: tree.For, over: LoopIterable, variables: Sequence[LocalBinding]
) -> dict[LocalBinding, WriteLog]:
    """A write log for each array of the loop; none if it must run step by step."""
    if cx.root.definition_only or not isinstance(over.length, int) or not is_simple_loop(loop):
        return {}
    # All or nothing: one variable that is read or carried makes the order of steps matter.
    kinds = write_only_arrays(loop)
    if writes_by_counters(loop):
        return {}
    logs = {b: WriteLog(kinds[b.name], b.term) for b in variables if isinstance(b.term, Array) and b.name in kinds}
    return logs if len(logs) == len(variables) and all(map(is_scatterable, logs.values())) else {}


def is_scatterable(log: WriteLog) -> bool:
    """Whether the array has enough axes, and a scatter exists for its element type."""
    base = log.base.tensor
    return base.rank >= log.kind.index_count and (
        log.kind.op not in ("max", "min") or prune_dtype(base.dtype) not in COMPLEXES
    )


def loop_as_scatter(cx: ElabContext, e: tree.For, over: LoopIterable, logs: dict[LocalBinding, WriteLog]) -> Walk[Term]:
    """The loop as a map and one scatter for each array; inside another scatter loop, its writes join that loop's log.

    Errors: NotScatterable where it must run step by step.
    """
    around, cx.write_logs = cx.write_logs, logs
    counters: list[Array] = []
    length = over.length
    assert isinstance(length, int)

    def refuse_large(body: Graph, consts: int) -> None:
        if not fits_in_memory(body, consts, length):
            raise NotScatterable

    def step_writes(index: Array, rows: list[Value]) -> Walk[Term]:
        counters.append(index)
        bind_pattern(cx, e.pattern, over.item(index, rows), e.iterable.span, counts=True)
        yield elaborate(cx, e.body)
        return Tuple(
            tuple([concatenate_logged_writes(cx, log, log.writes, e.span) for log in logs.values() if log.writes])
        )

    try:
        found = yield emit_map(cx, e.span, over, step_writes, in_order=True, check_body=refuse_large)
    finally:
        cx.write_logs = around
    assert isinstance(found, Tuple)
    # An array may have no writes, e.g. if a static condition removed them.
    busy = [(binding, log) for binding, log in logs.items() if log.writes]
    for (binding, log), every_step in zip(busy, found.items, strict=True):
        if binding in around:
            around[binding].add(every_step)
        else:
            binding.term = array_after_loop(cx, log, counters[0], every_step, e.span)
    return UNIT_TERM


def fits_in_memory(body: Graph, consts: int, length: int) -> bool:
    """Whether a step's largest intermediate, for all steps at once, is small or comparable to what they read."""
    largest = max([number_count(r) for eqn in body.eqns for r in eqn.results], default=0)
    shared, own = (sum(map(number_count, values)) for values in (body.params[:consts], body.params[consts:]))
    return length * largest <= max(MAX_SCATTER_NUMBERS, MAX_SCATTER_RATIO * (shared + length * own))


def number_count(value: Value) -> int:
    return prod(map(static_size, tensor_type(value).shape)) if isinstance(value.type, Tensor) else 0


def array_after_loop(cx: ElabContext, log: WriteLog, counter: Array, every_step: Term, span: Span) -> Array:
    """The array after all steps: by a block update if step i writes item i plus an offset, else by a scatter."""
    whole_loop = WriteLog(log.kind, log.base)
    whole_loop.add(every_step)
    (site,) = whole_loop.writes
    size = static_size(site.update.tensor.shape[0])
    # A block update fuses, and its transpose is a slice; a scatter is slower.
    start = contiguous_block_start(log, counter, size)
    if start is not None:
        rows = Array(cx.emit("reshape", span, site.update.value, shape=(size, *log.item_shape)))
        result = update_block(cx, log, start, size, rows, span)
    else:
        *places, update = concatenate_logged_writes(cx, log, [site], span).items
        operands = [x for x in (log.base, update, *places) if isinstance(x, Array)]
        result = cx.emit_op(SCATTER_OPS[log.kind.op], span, *operands, axes=tuple(range(log.kind.index_count)))
    return Array(result.value, origin=log.base.origin)


def contiguous_block_start(log: WriteLog, counter: Array, length: int) -> int | None:
    """The start of the contiguous block that the steps write, or None."""
    if len(log.writes) > 1 or log.kind.index_count > 1:
        return None
    (index,) = log.writes[0].positions
    start, last = index.index_offset, static_size(log.base.tensor.shape[0]) - length
    if index.index_of_loop is None or index.index_of_loop is not counter.index_of_loop or not isinstance(start, int):
        return None
    return start if 0 <= start <= last else None


def update_block(cx: ElabContext, log: WriteLog, start: int, length: int, rows: Array, span: Span) -> Array:
    base, op = log.base, log.kind.op
    parts = (
        SubscriptPart(cx.integer_array(start, span), length),
        *[full_axis(cx, d, span) for d in base.tensor.shape[1:]],
    )
    subs = Subscripts(base, parts, span, span)
    return assign_indexed(
        cx, subs, rows if op == "=" else combine_update(cx, op, read_indexed(cx, subs), rows, span), span
    )


# ---- Recognizing arrays that a loop only writes into


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


@lru_cache(maxsize=4096)
def writes_by_counters(loop: tree.For) -> bool:
    """Whether loops within loops write each array once, at their counters or at places that do not change in the loop.

    Then they are a map and a reduction, without a scatter: `passes/loops/loops_to_maps`.
    """
    nodes = all_nodes(loop)
    writes = [w for w in map(write_of_statement, nodes) if w is not None]
    names = [name for name, _, _ in writes]
    if not writes or len(names) > len(set(names)):
        return False
    bound = {n.name for n in nodes if isinstance(n, (tree.NamePattern, tree.Fn))}
    loops = [n for n in nodes if isinstance(n, tree.For)]
    counters = {n.pattern.name for n in loops if isinstance(n.pattern, tree.NamePattern) and is_plain_range(n.iterable)}
    for _, kind, read in writes:
        moving = [s for s in read[:-1] if not bound.isdisjoint(mentioned_names(s))]
        found = {s.id for s in moving if isinstance(s, tree.Name)} & counters
        if kind.op not in ("=", "+") or len(found) < len(moving):
            return False
        if kind.index_count == 1 and moving and len(loops) == 1:
            return False  # one block of the array changes in any case
    return True


def is_plain_range(iterable: tree.Expr) -> bool:
    return isinstance(iterable, tree.Range) and iterable.step is None


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
