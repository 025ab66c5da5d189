"""Array comprehensions and reductions over them: emits `map` ops and infers extents from indexing."""

from __future__ import annotations

import math

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.dynamic_reductions import ACCUMULATION_OPS, InferredExtent, dynamic_reduction
from difflang.elaborate.expressions.map_equations import emit_map
from difflang.elaborate.expressions.names import bind_pattern
from difflang.elaborate.host_sizes import as_static_size
from difflang.elaborate.patterns.structured_arrays import is_structured_array, item_grid
from difflang.elaborate.statements.branches import BranchSide, elaborate_side, emit_cond
from difflang.elaborate.statements.iterables import as_iterable
from difflang.elaborate.statements.loop_iterable import LoopIterable
from difflang.elaborate.terms import Array, Closure, Items, RangeTerm, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, pattern_names
from difflang.types.dtype_variables import DTypeVar, prune_dtype
from difflang.types.function_code import BuiltinCode
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error

# The identity of each reduction: the value of an item that a filter drops.
REDUCTION_IDENTITIES: dict[str, float] = {
    "sum": 0,
    "prod": 1,
    "max": -math.inf,
    "min": math.inf,
    "any": False,
    "all": True,
}


class DynamicExtent(Exception):
    """The extent of an index is known only at run time; `span` is where it is written."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


@elaborates(tree.ArrayComprehension)
def elaborate_comprehension(cx: ElabContext, e: tree.ArrayComprehension) -> Walk[Term]:
    if e.comprehension.condition is not None:
        raise cx.error(
            "DL0331",
            "an array comprehension cannot have a filter",
            e.comprehension.condition.span,
            "",
            "filter inside a reduction: `sum(for i if p(i) => …)`, or choose with `where`",
        )
    try:
        return (yield map_iterator(cx, e.comprehension, 0, None, ask_host=True))
    except DynamicExtent as found:
        way = "make its length a `dim` parameter, reduce it as in `sum(for …)`, or use a loop that yields"
        raise cx.error("DL0305", "the length of an array must be known at compile time", found.span, "", way) from None


def reduction_argument(cx: ElabContext, e: tree.Comprehension, fn: Term) -> Walk[tuple[Term, int]]:
    """A comprehension as the argument of a reduction: its array, and the number of axes that it iterates over."""
    name = fn.code.name if isinstance(fn, Closure) and isinstance(fn.code, BuiltinCode) else ""
    if e.condition is not None and name not in REDUCTION_IDENTITIES:
        raise cx.error("DL0331", "only sum, prod, max, min, any and all accept a filter", e.condition.span)
    draws = cx.root.draw_count
    try:
        term = yield map_iterator(cx, e, 0, REDUCTION_IDENTITIES.get(name))
    except DynamicExtent as found:
        cx.root.draw_count = draws
        if name not in ACCUMULATION_OPS:
            way = "use a `for` loop, or iterate over a size and filter: `max(for j in 0..n if j < i => …)`"
            message = f"`{name or 'this function'}` cannot take a number of values known only at run time"
            raise cx.error("DL0305", message, found.span, "", way) from None
        # A map needs a static length; this becomes a loop with an accumulator.
        term = yield dynamic_reduction(cx, e, name)
        return Array(cx.emit("reshape", e.span, term.value, shape=(1, *term.tensor.shape))), 1
    return term, len(e.iterators)


def map_iterator(
    cx: ElabContext, e: tree.Comprehension, depth: int, identity: float | None, *, ask_host: bool = False
) -> Walk[Term]:
    """The map of one iterator, around those after it. With `ask_host`, host code reads the ends of ranges."""
    if depth == len(e.iterators):
        return (yield filtered_body(cx, e, identity))
    over = yield iterator_extent(cx, e, e.iterators[depth], ask_host=ask_host)

    def iterator_body(index: Array, rows: list[Value]) -> Walk[Term]:
        iterator = e.iterators[depth]
        bind_pattern(cx, iterator.pattern, over.item(index, rows), iterator.span, counts=True)
        return map_iterator(cx, e, depth + 1, identity, ask_host=ask_host)

    return (yield emit_map(cx, e.span, over, iterator_body))


def filtered_body(cx: ElabContext, e: tree.Comprehension, identity: float | None) -> Walk[Term]:
    """The body, or the reduction's identity where the filter is false."""
    if e.condition is None:
        return (yield elaborate(cx, e.body))
    condition = as_array(cx, (yield elaborate(cx, e.condition)), e.condition.span, "a filter")
    if not cx.unifier.same(condition.tensor, Tensor(BOOL)):
        raise cx.error("DL0313", "a filter must be a bool", e.condition.span, f"this is {show_type(condition.tensor)}")
    # A branch, not a select: the body may be undefined where the filter is false.
    then = yield elaborate_side(cx, lambda: elaborate(cx, e.body), [cx.failure_word], e.body.span)
    value = as_array(cx, then.value, e.body.span)
    with cx.nested_graph(e.span) as other:
        nothing = Array(emit_identity(other, value.tensor, identity))
    return emit_cond(cx, condition, then, BranchSide(other, nothing, [cx.failure], e.span), [cx.failure_word], e.span)


def emit_identity(builder: Builder, type: Tensor, identity: float | None) -> Value:
    """The identity of a reduction; an infinite one is the least or the greatest number of an integer type."""
    assert identity is not None
    dtype = prune_dtype(type.dtype)
    if math.isfinite(identity) or (dtype.is_float and not isinstance(dtype, DTypeVar)):
        return builder.one("const", value=identity, type=type)
    # The type may not be known yet, as that of literals: the reduction of nothing knows its identity in each.
    empty = builder.one("const", value=0, type=Tensor(type.dtype, (0, *type.shape)))
    return builder.one("reduce_max" if identity < 0 else "reduce_min", empty, axes=(0,))


# ---- Extents


def iterator_extent(
    cx: ElabContext, e: tree.Comprehension, iterator: tree.Iterator, *, ask_host: bool = False
) -> Walk[LoopIterable]:
    """What an iterator iterates over: its source, or the extent of the axes that its variable indexes."""
    if iterator.source is not None:
        term = yield elaborate(cx, iterator.source)
        if ask_host and isinstance(term, RangeTerm):
            term = RangeTerm(as_static_size(cx, term.start), as_static_size(cx, term.stop), term.step)
        over = as_iterable(cx, term, iterator.source.span)
        if over.length is None:
            raise DynamicExtent(iterator.source.span)
        return over
    names = pattern_names(iterator.pattern)
    if len(names) != 1 or not isinstance(iterator.pattern, tree.NamePattern):
        raise cx.error(
            "DL0325",
            "this comprehension does not say what it iterates over",
            iterator.span,
            "",
            "write `for (x, y) in zip(xs, ys)`",
        )
    found: list[tuple[Dim, Span]] = []
    for part in all_nodes(e):
        if isinstance(part, tree.Index):
            size = yield indexed_axis_size(cx, part, names[0])
            found += [size] if size is not None else []
    if not found:
        raise cx.error(
            "DL0325",
            f"the range of `{names[0]}` is not known",
            iterator.span,
            "no array is indexed by it alone",
            f"write `for {names[0]} in 0..n`",
        )
    length, where = found[0]
    for other, at in found[1:]:
        if not cx.unifier.equal(length, other):
            raise make_error(
                "DL0324",
                f"`{names[0]}` indexes axes of different sizes",
                (at, f"{other} here"),
                (where, f"{length} here"),
            )
    return LoopIterable(length, cx.integer_array(length, iterator.span), [], lambda index, _: index)


def indexed_axis_size(cx: ElabContext, e: tree.Index, name: str) -> Walk[tuple[Dim, Span] | None]:
    """The size of the axis that a name indexes in `e`, if the array is known outside the comprehension."""
    place = next((i for i, s in enumerate(e.subscripts) if isinstance(s, tree.Name) and s.id == name), None)
    if place is None:
        return None
    before = [s for s in e.subscripts[:place] if not (isinstance(s, tree.Name) and s.id == "newaxis")]
    before_word, draws = cx.failure_word.term, cx.root.draw_count
    try:
        # Only the shape is needed: the graph is discarded, with its checks and draws.
        with cx.nested_graph(e.span):
            cx.scope.outer_is_read_only = True
            base = yield elaborate(cx, e.base)
    except (DifflangError, AlreadyReported):
        return None  # bound inside the body: other arrays determine the extent
    finally:
        cx.failure_word.term, cx.root.draw_count = before_word, draws
    if isinstance(base, Items) and is_structured_array(base):
        base = item_grid(cx, base, e.span)
    if not isinstance(base, Array):
        return None
    shape = base.tensor.shape
    from_the_end = any(isinstance(s, tree.Dots) for s in before)
    place = len(shape) - (len(e.subscripts) - place) if from_the_end else len(before)
    return (shape[place], e.subscripts[-1].span.to(e.span)) if 0 <= place < len(shape) else None


@elaborates(InferredExtent)
def infer_extent(cx: ElabContext, e: InferredExtent) -> Walk[Term]:
    over = yield iterator_extent(cx, e.comprehension, e.iterator)
    return RangeTerm(cx.integer_array(0, e.span), over.limit, None)
