"""Loops whose body only writes into arrays, `for i in 0..n { h[bin[i]] += w[i] }`: all at once instead of in turn.

Nothing that such a body computes depends on what was written before. So every step is a lane of a map, which gives the
positions and what goes there, and one scatter writes it, in the order of the steps. Loops inside the body that do only
the same are part of it. Where the writes of all steps together would take much more room than what they are made of,
the loop stays a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from difflang.base.source import Span
from difflang.check.types import pruned
from difflang.check.unify import unified
from difflang.elaborate.calls import bind_pattern
from difflang.elaborate.comprehension import mapping
from difflang.elaborate.context import Binding, Context, walk
from difflang.elaborate.indexing import (
    SCATTERS,
    Part,
    Subscripts,
    combined,
    fitted,
    read,
    settled_index,
    wanting,
    whole,
    written,
)
from difflang.elaborate.mismatches import no_conversion
from difflang.elaborate.names import assigned, free_names, nodes
from difflang.elaborate.operators import array, broadcast_shape, broadcast_to
from difflang.elaborate.sources import Source
from difflang.elaborate.terms import UNIT_TERM, Array, Term, Tuple
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value
from difflang.ir.types import COMPLEXES, I64, Tensor
from difflang.ops.families import known, tensor
from difflang.syntax import tree

ROOM = 2**24  # so many numbers are little, whatever they are made of
MORE = 4  # so many times what the loop reads is not much more

JUMPS = (tree.Yield, tree.Break, tree.Continue, tree.Return)
WRITES = {"=": "=", "+": "+", "-": "+", "*": "*", "max": "max", "min": "min"}


class InTurn(Exception):
    """This loop is better run step by step after all."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a loop writes into an array: by which operation, and with how many indices."""

    op: str
    indices: int


@dataclass(frozen=True, slots=True)
class Site:
    """A write in a body: one array of positions for each axis that is indexed, and what goes there."""

    positions: tuple[Array, ...]
    update: Array


@dataclass(frozen=True, eq=False, slots=True)
class Log:
    """What a body writes into one array."""

    kind: Kind
    sites: list[Site] = field(default_factory=list[Site])


# ---- Recognizing


@lru_cache(maxsize=4096)
def writers(loop: tree.For) -> dict[str, Kind]:
    """The variables from outside that a loop writes into and does nothing else with; none if there are others too.

    Cost: one walk over the body.
    """
    names = outer_names(loop)
    kinds: dict[str, Kind] = {}
    todo: list[tree.Node] = [loop]
    while todo:
        stmt = todo.pop()
        if names.isdisjoint(free_names(stmt)):
            continue
        if isinstance(stmt, tree.For):
            if not simple(stmt) or not names.issuperset(outer_names(stmt)) or mentioned(names, stmt.iterable):
                return {}
            todo += stmt.body.stmts
        elif (found := written_by(stmt)) is None:
            return {}
        else:
            name, kind, read = found
            if mentioned(names, *read) or kinds.setdefault(name, kind) != kind:
                return {}
    return kinds if kinds.keys() == names else {}


def mentioned(names: set[str], *parts: tree.Node) -> bool:
    return any(not names.isdisjoint(free_names(part)) for part in parts)


def simple(loop: tree.For) -> bool:
    return type(loop) is tree.For and not loop.attributes and not any(isinstance(n, JUMPS) for n in nodes(loop.body))


def outer_names(loop: tree.For) -> set[str]:
    """What a loop assigns and does not bind."""
    bound = {n.name for n in nodes(loop) if isinstance(n, (tree.NamePattern, tree.Fn))}
    return set(assigned(loop.body)) - bound


def written_by(stmt: tree.Node) -> tuple[str, Kind, tuple[tree.Node, ...]] | None:
    """What a statement writes items of, how, and what it reads for that, if it does nothing else."""
    if not isinstance(stmt, (tree.Assign, tree.Update)):
        return None
    op, target = WRITES.get(stmt.op if isinstance(stmt, tree.Update) else "="), stmt.target
    if op is None or not isinstance(target, tree.Index) or not isinstance(target.base, tree.Name):
        return None
    if any(isinstance(s, (tree.Slice, tree.Range, tree.Dots)) for s in target.subscripts):
        return None
    return target.base.id, Kind(op, len(target.subscripts)), (*target.subscripts, stmt.value)


def logs_for(cx: Context, loop: tree.For, over: Source, variables: Sequence[Binding]) -> dict[Binding, Log]:
    """A log for each array that the loop writes into; none where it is to run step by step."""
    if cx.root.definition or not isinstance(over.length, int) or not simple(loop):
        return {}
    kinds = writers(loop)
    logs = {b: Log(kinds[b.name]) for b in variables if b.name in kinds and takes(b.term, kinds[b.name])}
    return logs if len(logs) == len(variables) else {}


def takes(term: object, kind: Kind) -> bool:
    if not isinstance(term, Array) or term.tensor.rank < kind.indices:
        return False
    return kind.op in ("=", "+") or pruned(term.tensor.dtype) not in COMPLEXES


# ---- Logging


def logged(cx: Context, target: tree.Expr) -> Log | None:
    """The log that a write to items of an array goes to, if it goes to one."""
    if not cx.logs or not isinstance(target, tree.Index) or not isinstance(target.base, tree.Name):
        return None
    binding = cx.scope.find(target.base.id)
    return cx.logs.get(binding) if binding is not None else None


def note(cx: Context, log: Log, subs: Subscripts, value: Term, span: Span) -> None:
    """Note a write. Where nothing can be there to write to, a check fails or nobody comes by."""
    change = array(cx, value, span)
    if not unified(subs.base.tensor.dtype, change.tensor.dtype):
        raise no_conversion(cx, "assignment", span, [subs.base, change], (subs.base_span, span))
    if wanting(subs) is not None:
        return
    parts = subs.axes[: log.kind.indices]
    if len(subs.parts) != len(subs.axes) or any(p.size is not None for p in parts):
        raise InTurn
    found = [p.where if p.where is not None else p.start for p in parts]
    positions = [settled_index(p) for p in found if p is not None]
    lead = broadcast_shape(cx, positions, (), subs.span)
    shape = (*lead, *subs.base.tensor.shape[len(parts) :])
    update = fitted(cx, change, shape, span, subs)
    log.sites.append(Site(tuple([broadcast_to(cx, p, lead, subs.span) for p in positions]), update))


# ---- Writing


def at_once(cx: Context, e: tree.For, over: Source, logs: dict[Binding, Log]) -> Walk[Term]:
    """The loop as a map and a scatter for each array; in a loop that is one already, more of what that writes.

    Errors: InTurn where it is better run step by step.
    """
    around, cx.logs = cx.logs, logs
    lanes: list[Array] = []
    length = over.length
    assert isinstance(length, int)

    def refuse(lane: Graph, consts: int) -> None:
        if not fits(lane, consts, length):
            raise InTurn

    def body(index: Array, rows: list[Value]) -> Walk[Term]:
        lanes.append(index)
        bind_pattern(cx, e.pattern, over.item(index, rows), e.iterable.span)
        yield walk(cx, e.body)
        return Tuple(tuple([together(cx, b, log, e.span) for b, log in logs.items() if log.sites]))

    try:
        found = yield mapping(cx, e.span, over, body, in_order=True, refuse=refuse)
    finally:
        cx.logs = around
    assert isinstance(found, Tuple)
    busy = [(b, log) for b, log in logs.items() if log.sites]
    for (binding, log), term in zip(busy, found.items, strict=True):
        *positions, update = items(term)
        if binding in around:
            around[binding].sites.append(Site(tuple(positions), update))
        else:
            binding.term = after(cx, binding, log, lanes[0], Site(tuple(positions), update), e.span)
    return UNIT_TERM


def fits(lane: Graph, consts: int, length: int) -> bool:
    """Whether the largest that a step makes, for all steps at once, is little or not much more than what they read."""
    largest = max([numbers(r) for eqn in lane.eqns for r in eqn.results], default=0)
    shared, own = (sum(map(numbers, values)) for values in (lane.params[:consts], lane.params[consts:]))
    return length * largest <= max(ROOM, MORE * (shared + length * own))


def numbers(value: Value) -> int:
    return prod(map(known, tensor(value).shape)) if isinstance(value.type, Tensor) else 0


def items(term: Term) -> list[Array]:
    assert isinstance(term, Tuple)
    return [item for item in term.items if isinstance(item, Array)]


def based(binding: Binding) -> Array:
    assert isinstance(binding.term, Array)
    return binding.term


def together(cx: Context, binding: Binding, log: Log, span: Span) -> Tuple:
    """What a step writes into one array, in its order: positions one after the other, and what goes there."""
    rest = based(binding).tensor.shape[log.kind.indices :]
    columns: list[list[Value]] = [[] for _ in range(log.kind.indices + 1)]
    for site in log.sites:
        size = prod(map(known, site.positions[0].tensor.shape))
        for column, index in zip(columns, site.positions, strict=False):
            column.append(cx.emit("reshape", span, index.value, shape=(size,)))
        columns[-1].append(cx.emit("reshape", span, site.update.value, shape=(size, *rest)))
    columns[:-1] = alike(cx, columns[:-1], span)
    return Tuple(tuple([Array(c[0] if len(c) == 1 else cx.emit("concat", span, *c, axis=0)) for c in columns]))


def alike(cx: Context, columns: list[list[Value]], span: Span) -> list[list[Value]]:
    """Positions of one integer type."""
    if len({pruned(tensor(v).dtype) for column in columns for v in column}) == 1:
        return columns
    return [[cx.emit("truncate", span, v, dtype=I64) for v in column] for column in columns]


def after(cx: Context, binding: Binding, log: Log, lane: Array, all_of_it: Site, span: Span) -> Array:
    """The array after all steps. Where step i writes the item at i plus a size, a block of it has changed."""
    base, op, count = based(binding), log.kind.op, log.kind.indices
    rest = base.tensor.shape[count:]
    length = known(all_of_it.update.tensor.shape[0])
    if (start := block(log, lane, base, length)) is not None:
        rows = Array(cx.emit("reshape", span, all_of_it.update.value, shape=(length, *rest)))
        parts = (Part(cx.integer(start, span), length), *[whole(cx, d, span) for d in rest])
        subs = Subscripts(base, parts, span, span)
        new = rows if op == "=" else combined(cx, op, read(cx, subs), rows, span)
        result = written(cx, subs, new, span)
    else:
        size = length * known(all_of_it.update.tensor.shape[1])
        places = [cx.emit("reshape", span, p.value, shape=(size,)) for p in all_of_it.positions]
        update = cx.emit("reshape", span, all_of_it.update.value, shape=(size, *rest))
        operands = (base, Array(update), *map(Array, places))
        result = cx.op(SCATTERS[op], span, *operands, axes=tuple(range(count)))
    return Array(result.value, origin=base.origin)


def block(log: Log, lane: Array, base: Array, length: int) -> int | None:
    """Where the block begins that the steps write item by item, if they do."""
    if len(log.sites) > 1 or log.kind.indices > 1:
        return None
    (index,) = log.sites[0].positions
    size, start = known(base.tensor.shape[0]), index.offset
    inside = isinstance(start, int) and 0 <= start <= size - length
    return start if index.lane is not None and index.lane is lane.lane and inside and isinstance(start, int) else None
