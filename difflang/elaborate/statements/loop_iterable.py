"""What a loop or a comprehension iterates over, and iterables read side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Array, Items, Term, Tuple, YieldSteps, leaves, term_from_leaves
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, Tensor
from difflang.types.language_types import array_axes, drop_axes

INDEX_TYPE = Tensor(I32)


class LoopIterable(Struct, frozen=True):
    """An iterable: its length if that is a size, its run-time `limit`, the arrays it reads, and its items.

    A history iterates over the `steps` that made it, possibly `backwards`. A loop of run-time length that yields has a
    `capacity` for its items.
    """

    length: Dim | None
    limit: Array
    arrays: list[Value]
    item: Callable[[Array, list[Value]], Term]
    steps: YieldSteps | None = None
    backwards: bool = False
    capacity: Dim | None = None

    @property
    def row_count(self) -> Dim | None:
        """The number of rows in the arrays that a loop reads and in those that it yields."""
        return self.steps.capacity if self.steps is not None else self.capacity if self.length is None else self.length


def same_length(cx: ElabContext, a: LoopIterable, b: LoopIterable) -> bool:
    """Whether two iterables are known to have equal lengths: equal sizes, or the same steps of a loop."""
    if a.length is None or b.length is None:
        return a.steps is not None and a.steps is b.steps and a.backwards == b.backwards
    return cx.unifier.equal(a.length, b.length)


def zip_error(cx: ElabContext, first: LoopIterable, part: LoopIterable, span: Span) -> DifflangError:
    """The report of iterables that a loop cannot read side by side."""
    if first.steps is not None and first.steps is part.steps:
        message, label = "a loop reads the values of another loop in one direction", "these go in both directions"
        way = "use two loops; or give the loop that yields a known length, so that it makes an array"
        return cx.error("DL0330", message, span, label, way)
    if first.length is None and part.length is None:
        message, label = "`zip` must know that its arguments have the same length", "both are known only at run time"
        way = "yield both values in one loop: `yield (u, v)`"
        return cx.error("DL0330", message, span, label, way)
    lengths = ["one known only at run time" if p.length is None else str(p.length) for p in (first, part)]
    return cx.error("DL0330", "the arguments of `zip` must have the same length", span, " and ".join(lengths))


def zip_iterables(cx: ElabContext, parts: Sequence[LoopIterable], span: Span, *, counted: bool = False) -> LoopIterable:
    """Several iterables side by side, with the index in front if it is `counted`. Errors: DL0330."""
    first = parts[0]
    for part in parts[1:]:
        if not same_length(cx, first, part):
            raise zip_error(cx, first, part, span)

    def zip_item(index: Array, items: list[Value]) -> Term:
        found: list[Term] = [index] if counted else []
        rest = iter(items)
        for part in parts:
            found.append(part.item(index, [next(rest) for _ in part.arrays]))
        return Tuple(tuple(found))

    return replace(first, arrays=[a for p in parts for a in p.arrays], item=zip_item)


def item_iterable(cx: ElabContext, term: Items, span: Span) -> LoopIterable:
    """The items of an array of texts, records, enums or functions: all its leaves have the same first axis."""
    length, item = array_axes(term.type)[0], drop_axes(term.type, 1)
    return LoopIterable(
        length, cx.integer_array(length, span), leaves(term), lambda _, rows: term_from_leaves(item, rows)
    )
