"""What the body of a loop writes into arrays: told from the syntax, and noted while the body is walked.

Where a loop only writes into an array, nothing that its steps compute depends on what was written before. So its writes
can be noted, and done after all steps: `scatters` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.arrays.indexed_assignment import fitted
from difflang.elaborate.arrays.indexing import Subscripts, settled_index, wanting
from difflang.elaborate.context import Context
from difflang.elaborate.expressions.operators import array, broadcast_shape, broadcast_to
from difflang.elaborate.reports.operand_mismatches import no_conversion
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.tensor_types import I64
from difflang.ops.op_factories import known, tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import assigned, free_names, mentions, nodes
from difflang.types.dtype_variables import pruned
from difflang.types.unify import unified

JUMPS = (tree.Break, tree.Continue, tree.Return)
WRITES = {"=": "=", "+": "+", "-": "+", "*": "*", "max": "max", "min": "min"}


class InTurn(Exception):
    """This loop is better run step by step after all."""


class Kind(Struct, frozen=True):
    """How a loop writes into an array: by which operation, and with how many indices."""

    op: str
    indices: int


class Site(Struct, frozen=True):
    """A write: one array of positions for each axis that is indexed, and what goes there, their axes first."""

    positions: tuple[Array, ...]
    update: Array


class Log(Struct, frozen=True, eq=False):
    """What a loop writes into one array, which is `base` before it."""

    kind: Kind
    base: Array
    sites: list[Site] = field(default_factory=list[Site])

    @property
    def item(self) -> tuple[int, ...]:
        """The shape of what stands at one position."""
        return tuple(map(known, self.base.tensor.shape[self.kind.indices :]))

    def add(self, written: Term) -> None:
        """Note what `together` made of several writes."""
        assert isinstance(written, Tuple)
        *positions, update = [item for item in written.items if isinstance(item, Array)]
        self.sites.append(Site(tuple(positions), update))


# ---- Recognizing


@lru_cache(maxsize=4096)
def writers(loop: tree.For) -> dict[str, Kind]:
    """The variables from outside that a loop writes into and does nothing else with; none if there are others too.

    Cost: one walk over the body, and one over each loop in it.
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
        elif isinstance(stmt, tree.If) and not mentioned(names, stmt.condition):
            todo += [stmt.then] if stmt.orelse is None else [stmt.then, stmt.orelse]
        elif isinstance(stmt, tree.Block):
            todo += stmt.stmts
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
    """Whether a loop runs to its end, and gives nothing but what it assigns."""
    strategies = [a for a in loop.attributes if a.name != "unchecked"] if type(loop) is tree.For else [loop]
    if strategies or mentions(loop.body, (tree.Yield,)) is not None:
        return False
    return not any(isinstance(n, JUMPS) for n in nodes(loop.body))


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
    if subs.mask is not None:
        raise InTurn
    parts = subs.axes[: log.kind.indices]
    if len(subs.parts) != len(subs.axes) or any(p.size is not None for p in parts):
        raise InTurn
    found = [p.where if p.where is not None else p.start for p in parts]
    positions = [settled_index(p) for p in found if p is not None]
    lead = broadcast_shape(cx, positions, (), subs.span)
    shape = (*lead, *subs.base.tensor.shape[len(parts) :])
    update = fitted(cx, change, shape, span, subs)
    log.sites.append(Site(tuple([broadcast_to(cx, p, lead, subs.span) for p in positions]), update))


# ---- Putting together


def together(cx: Context, log: Log, sites: Sequence[Site], span: Span) -> Tuple:
    """Writes in their order as one: positions one after the other, and what goes there."""
    columns: list[list[Value]] = [[] for _ in range(log.kind.indices + 1)]
    for site in sites:
        size = prod(map(known, site.positions[0].tensor.shape))
        for column, index in zip(columns, site.positions, strict=False):
            column.append(cx.emit("reshape", span, index.value, shape=(size,)))
        columns[-1].append(cx.emit("reshape", span, site.update.value, shape=(size, *log.item)))
    columns[:-1] = of_one_type(cx, columns[:-1], span)
    return Tuple(tuple([Array(c[0] if len(c) == 1 else cx.emit("concat", span, *c, axis=0)) for c in columns]))


def of_one_type(cx: Context, columns: list[list[Value]], span: Span) -> list[list[Value]]:
    """Positions of one integer type."""
    if len({pruned(tensor(v).dtype) for column in columns for v in column}) == 1:
        return columns
    return [[cx.emit("truncate", span, v, dtype=I64) for v in column] for column in columns]


def since(cx: Context, marks: Sequence[int], span: Span) -> list[tuple[Log, Tuple]]:
    """What was noted since each log was so long, taken out of the logs."""
    found: list[tuple[Log, Tuple]] = []
    for log, mark in zip(cx.logs.values(), marks, strict=True):
        new = log.sites[mark:]
        del log.sites[mark:]
        if new:
            found.append((log, together(cx, log, new, span)))
    return found


def nowhere(builder: Builder, written: Tuple) -> Tuple:
    """Writes like these that go nowhere: out of range nothing is written."""
    *positions, update = [item for item in written.items if isinstance(item, Array)]
    at = [Array(builder.const(-1, p.value.type)) for p in positions]
    return Tuple((*at, Array(builder.const(0, update.value.type))))
