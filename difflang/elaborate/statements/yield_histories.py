"""What loops yield, step by step: an array where each step of a known number yields, else a history.

A history is a sequence of a length that only the run knows. Loops of the same function read it, from either end, and
nothing else does. It has an item for each step of the loop that made it, and beside it, where not every step came to
its `yield`, whether that one did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.check_sites import Site
from difflang.base.source import Span
from difflang.elaborate.context import Context
from difflang.elaborate.patterns.sum_types import nothing
from difflang.elaborate.runtime_checks import fail
from difflang.elaborate.statements.desugar_jumps import Until
from difflang.elaborate.terms import Array, Past, Steps, Term, Tuple, leaves, rebuild, type_of
from difflang.ir.graph import Value
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.passes.dynamic_loop_outputs import ITEMS
from difflang.syntax import tree
from difflang.types.join_types import holds
from difflang.types.language_types import KeyType, LangType, RangeType, TupleType, leaf_types, mapped, show_type
from difflang.types.type_errors import mistake

if TYPE_CHECKING:
    from difflang.elaborate.statements.branches import Branch
    from difflang.elaborate.statements.iterables import Source

FLAG, INDEX = Tensor(BOOL), Tensor(I32)

# What a loop that reads a history calls its parts: names that no program has.
HERE, NUMBER = " here", " number"


# ---- Yielding


class Yielded(Struct, frozen=True):
    """What a step of a loop yields; `here` says whether it came to that, where not every step does."""

    value: Term
    here: Array | None = None


def add(cx: Context, found: Yielded, span: Span) -> None:
    """Note what the loop around yields. Errors: DL0501 outside a loop, DL0502 for a second one, DL0508 of a history."""
    leaves(found.value)
    collected = cx.loops[-1] if cx.loops else None
    if collected is None:
        way = "a comprehension has an item for each index" if cx.loops else ""
        raise cx.error("DL0501", "`yield` stands outside a loop", span, "", way)
    if collected:
        raise cx.error("DL0502", "a loop yields once a step", span, "a second `yield`", "yield a tuple")
    collected.append(found)


def with_yields(then: Branch, other: Branch) -> tuple[Branch, Branch]:
    """Both sides of a branch with what they yield beside their values: the side that yields nothing, anything."""
    both = all(side.yields and side.yields[0].here is None for side in (then, other))
    type = type_of((then.yields or other.yields)[0].value)

    def side(given: Branch) -> Branch:
        found = given.yields[0] if given.yields else Yielded(nothing(given.builder, type))
        here = found.here or Array(given.builder.const(bool(given.yields), FLAG))
        items = (given.value, found.value) if both else (given.value, found.value, here)
        return replace(given, value=Tuple(items), yields=())

    return side(then), side(other)


def taken_out(cx: Context, decided: Term, span: Span) -> Term:
    """The value of a branch that was decided so; what it yields is yielded."""
    assert isinstance(decided, Tuple)
    value, found, *here = decided.items
    flag = here[0] if here else None
    assert flag is None or isinstance(flag, Array)
    add(cx, Yielded(found, flag), span)
    return value


def collected(type: LangType, values: Sequence[Value], over: Source, steps: Steps | None, span: Span) -> Term:
    """The value of a loop that yields items of a type: arrays, or histories where it has `steps`. Errors: DL0313."""
    length = over.length
    if steps is not None:
        return histories(type, iter(values), steps, backwards=over.backwards)
    assert length is not None
    if holds(type, (KeyType, RangeType)):
        raise mistake("DL0313", "no array holds what this loop yields", (span, f"this is {show_type(type)}"))
    return rebuild(mapped(type, lambda t: Tensor(t.dtype, (length, *t.shape))), values)


def histories(type: LangType, values: Iterator[Value], steps: Steps, *, backwards: bool) -> Term:
    """A history, and of a tuple one for each of its items."""
    if isinstance(type, TupleType):
        return Tuple(tuple([histories(t, values, steps, backwards=backwards) for t in type.items]))
    return Past(type, tuple([next(values) for _ in leaf_types(type)]), steps, backwards)


# ---- A length that only the run knows


def within_room(cx: Context, e: tree.For | tree.While, over: Source) -> Source:
    """What a loop of any length goes through if it yields: so many steps as there is room for items."""
    room = Array(cx.emit("const", e.span, value=ITEMS, type=INDEX))
    limit = room if isinstance(e, tree.While) else Array(cx.emit("min", e.span, over.limit.value, room.value))
    return replace(over, limit=limit, room=ITEMS)


def check_room(cx: Context, count: Value, span: Span) -> None:
    """The failure of a loop that yields where there is no room for another item."""
    if not cx.root.definition:
        full = cx.emit("ge", span, count, cx.emit("const", span, value=ITEMS, type=INDEX))
        fail(cx, full, Site(span, room="items"), span)


# ---- Reading


def history_source(past: Past) -> Source:
    """How a loop goes through a history."""
    from difflang.elaborate.statements.iterables import Source

    return Source(
        None,
        Array(past.steps.count),
        list(past.values),
        lambda _, values: rebuild(past.type, values),
        past.steps,
        past.backwards,
    )


def over_steps(cx: Context, loop: tree.For, over: Source, steps: Steps) -> tuple[tree.For, Source]:
    """A loop through histories, and what it goes through, so that it passes by steps that yielded nothing.

    Where the items are had again as they are read, or are read from the end, no condition ends it: after a `break` the
    steps that are left do nothing.
    """
    item, here, last = over.item, steps.here, over.limit
    if isinstance(loop, Until) and (over.backwards or steps.room == ITEMS):
        loop = unless_stopped(loop)
    if here is not None:

        def counted(_: Array, values: list[Value]) -> Term:
            number = cx.scope.find(NUMBER)
            assert number is not None and isinstance(number.term, Array)
            cx.scope.bind(HERE, Array(values[-1]))
            return item(number.term, values[:-1])

        return where_here(loop), replace(over, arrays=[*over.arrays, here], item=counted)
    if not over.backwards:
        return loop, over

    def from_the_end(index: Array, values: list[Value]) -> Term:
        after = cx.emit("sub", loop.span, last.value, cx.integer(1, loop.span).value)
        return item(Array(cx.emit("sub", loop.span, after, index.value)), values)

    return loop, replace(over, item=from_the_end)


@lru_cache(maxsize=4096)
def where_here(loop: tree.For) -> tree.For:
    """The loop doing nothing where no item is, and counting those that are."""
    at = loop.body.span
    count = tree.Update(at, tree.Name(at, NUMBER), "+", tree.Int(at, 1), at)
    return replace(loop, body=only_if(tree.Name(at, HERE), tree.Block(at, (loop.body, count))))


@lru_cache(maxsize=4096)
def unless_stopped(loop: Until) -> tree.For:
    """The loop with steps that do nothing in the place of its end."""
    at = loop.body.span
    go_on = tree.Unary(at, "not", tree.Name(at, loop.stop))
    return tree.For(loop.span, loop.pattern, loop.iterable, only_if(go_on, loop.body), loop.attributes)


def only_if(condition: tree.Expr, body: tree.Block) -> tree.Block:
    return tree.Block(body.span, (tree.If(body.span, condition, body, None),))
