"""Reductions over a run-time number of items, `sum(for i in 0..k => …)`: loops that carry an accumulator.

They are `sum`, `prod`, `any` and `all`. `max` and `min` are not here: their derivative is shared by all ties, which a
running value cannot know, so a program writes that loop itself.
"""

from __future__ import annotations

from functools import lru_cache

from difflang.elaborate.context import ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.statements.loops import loop_expression
from difflang.elaborate.statements.regions import drop_static
from difflang.elaborate.terms import UNIT_TERM, Array, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import literal_dtype
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error

ACCUMULATOR = " total"  # it begins with a space, so no program can use it

# The op and the initial value of each reduction.
ACCUMULATION_OPS: dict[str, tuple[str, float]] = {
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "any": ("logical_or", False),
    "all": ("logical_and", True),
}


class AccumulateStatement(tree.Assign, frozen=True, eq=False):
    """The statement that adds a value to the accumulator."""

    name: str


class InferredExtent(tree.Int, frozen=True, eq=False):
    """The end of a range for an index whose extent follows from the axes that it indexes."""

    iterator: tree.Iterator
    comprehension: tree.Comprehension


class AccumulatorShapeError(Exception):
    """The reduced values have this shape, unlike the accumulator's initial value."""

    def __init__(self, shape: tuple[Dim, ...]) -> None:
        super().__init__(shape)
        self.shape = shape


def dynamic_reduction(cx: ElabContext, e: tree.Comprehension, name: str) -> Walk[Array]:
    """The reduction of a comprehension as a loop."""
    op, start = ACCUMULATION_OPS[name]
    # The first try assumes scalars; the loop's body then tells the shape, and the second try fits.
    shape: tuple[Dim, ...] = ()
    draws, word = cx.root.draw_count, cx.failure_word.term
    while True:
        dtype = BOOL if op.startswith("logical") else literal_dtype(0, cx.module.default_float)
        first = Array(cx.emit("const", e.span, value=start, type=Tensor(dtype, shape)))
        try:
            with cx.child_scope() as scope:
                scope.bind(ACCUMULATOR, first, mutable=True)
                yield loop_expression(cx, comprehension_as_loops(e, name))
                found = scope.names[ACCUMULATOR].term
        except AccumulatorShapeError as other:
            shape, cx.root.draw_count, cx.failure_word.term = other.shape, draws, word
            continue
        assert isinstance(found, Array)
        return found


@lru_cache(maxsize=4096)
def comprehension_as_loops(e: tree.Comprehension, name: str) -> tree.For:
    """Nested `for` loops, one for each iterator, around the accumulation."""
    body = tree.Block(
        e.body.span, (AccumulateStatement(e.body.span, tree.Name(e.body.span, ACCUMULATOR), e.body, name),)
    )
    if e.condition is not None:
        body = tree.Block(e.span, (tree.If(e.span, e.condition, body, None),))
    loop: tree.For | None = None
    for iterator in reversed(e.iterators):
        if loop is not None:
            body = tree.Block(e.span, (loop,))
        over = iterator.source or InferredExtent(iterator.span, 0, iterator, e)
        loop = tree.For(e.span, iterator.pattern, over, body, ())
    assert loop is not None
    return loop


@elaborates(AccumulateStatement)
def accumulate(cx: ElabContext, e: AccumulateStatement) -> Walk[Term]:
    cx.loop_yields.append(None)
    try:
        with cx.child_scope() as scope:
            scope.outer_is_read_only = True
            value = as_array(cx, (yield elaborate(cx, e.value)), e.value.span, "the reduced value")
    finally:
        cx.loop_yields.pop()
    binding = cx.scope.find(ACCUMULATOR)
    assert binding is not None and isinstance(binding.term, Array)
    op, _ = ACCUMULATION_OPS[e.name]
    if op.startswith("logical") and not cx.unifier.same(Tensor(value.tensor.dtype), Tensor(BOOL)):
        found = f"this is {show_type(value.tensor)}"
        raise make_error("DL0311", f"`{e.name}` takes bool", (e.value.span, found), help="compare it")
    if value.tensor.shape != binding.term.tensor.shape:
        raise AccumulatorShapeError(value.tensor.shape)
    binding.term = drop_static(elementwise(cx, op, e.span, (binding.term, value)))
    return UNIT_TERM
