"""Checks that wait for the run: an index that nothing proves in range, an assertion.

A failure is a value: a word of three numbers, zero while all is well, that travels as a hidden variable through
branches, loops, maps and calls and leaves the program beside its results. The first check that fails writes it; nothing
is clamped, and the host turns the word into an error at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass

from difflang.base.source import Span
from difflang.check.annotations import Undecided
from difflang.check.types import Spread
from difflang.elaborate.context import WORD_TYPE, Context
from difflang.elaborate.operators import elementwise
from difflang.elaborate.terms import Array
from difflang.ir.dims import Dim
from difflang.ir.graph import Value
from difflang.ir.types import BOOL, I32, Tensor


@dataclass(frozen=True, slots=True)
class Site:
    """A check in the program: where it stands, and what failing it means."""

    span: Span
    message: str = ""  # none for an index: the numbers in the word are what is said of it


def check_index(cx: Context, index: Array, size: Dim, span: Span) -> Array:
    """The index, after a check that it lies in `0 .. size - 1` where nothing proves it."""
    if isinstance(size, Spread):
        raise Undecided
    cx.unifier.same(Tensor(index.tensor.dtype), Tensor(I32))
    if proved(index, size):
        return index
    cx.root.effects.add("fail")
    if cx.root.definition:
        return index
    limit = cx.integer(size, span)
    low = elementwise(cx, "lt", span, (index, cx.integer(0, span)))
    high = elementwise(cx, "ge", span, (index, limit))
    bad = elementwise(cx, "logical_or", span, (low, high))
    worst = index
    assert isinstance(bad, Array)
    if index.tensor.shape:
        axes = tuple(range(index.tensor.rank))
        worst_at = cx.emit("select", span, bad.value, index.value, cx.emit("const", span, value=0, type=index.tensor))
        extremes = [cx.emit(f"reduce_{which}", span, worst_at, axes=axes) for which in ("min", "max")]
        negative = cx.emit("lt", span, extremes[0], cx.emit("const", span, value=0, type=Tensor(I32)))
        worst = Array(cx.emit("select", span, negative, *extremes))
        bad = Array(cx.emit("reduce_any", span, bad.value, axes=axes))
    fail(cx, bad.value, Site(span), span, worst.value, limit.value)
    return index


def check(cx: Context, condition: Array, message: str, span: Span) -> None:
    """A condition, one number or many, that must hold when the run comes by."""
    cx.root.effects.add("fail")
    if cx.root.definition:
        return
    holds = condition.value
    if condition.tensor.shape:
        holds = cx.emit("reduce_all", span, holds, axes=tuple(range(condition.tensor.rank)))
    fail(cx, cx.emit("logical_not", span, holds), Site(span, message), span)


def proved(index: Array, size: Dim) -> bool:
    if index.below is None:
        return False
    room = size - index.below
    return isinstance(room, int) and room >= 0


def fail(cx: Context, bad: Value, site: Site, span: Span, *numbers: Value) -> None:
    """Write the word if `bad`, unless an earlier check has."""
    number = cx.session.site(site)
    parts = [cx.emit("const", span, value=number, type=Tensor(I32, (1,)))]
    for operand in numbers or (cx.emit("const", span, value=0, type=Tensor(I32)),) * 2:
        if operand.type != Tensor(I32):
            operand = cx.emit("truncate", span, operand, dtype=I32)
        parts.append(cx.emit("reshape", span, operand, shape=(1,)))
    new = cx.emit("concat", span, *parts, axis=0)
    merge(cx, cx.emit("broadcast", span, bad, shape=(3,), axes=()), new, span)


def merge(cx: Context, happened: Value, word: Value, span: Span) -> None:
    """The first failure stays."""
    old, take = cx.failure, happened
    if old.static is None:
        clear = cx.emit("eq", span, old.value, cx.emit("const", span, value=0, type=WORD_TYPE))
        all_clear = cx.emit("broadcast", span, cx.emit("reduce_all", span, clear, axes=(0,)), shape=(3,), axes=())
        take = cx.emit("logical_and", span, all_clear, happened)
    cx.word.term = Array(cx.emit("select", span, take, word, old.value))


def absorb(cx: Context, word: Value, span: Span) -> None:
    """Take over the word of a call, a lane or a derivative."""
    if cx.failure.static is not None:
        cx.word.term = Array(word)
    else:
        merge(cx, cx.emit("const", span, value=True, type=Tensor(BOOL, (3,))), word, span)


def absorb_lanes(cx: Context, words: Value, span: Span) -> None:
    """The word of the first lane that failed."""
    assert isinstance(words.type, Tensor)
    lanes = words.type.shape[0]
    if lanes == 0:
        return
    zero = cx.emit("const", span, value=0, type=words.type)
    failed = cx.emit("reduce_any", span, cx.emit("ne", span, words, zero), axes=(1,))
    first = cx.emit("argmax", span, cx.emit("truncate", span, failed, dtype=I32), axis=0)
    origin = cx.emit("const", span, value=0, type=Tensor(I32))
    word = cx.emit("dynamic_slice", span, words, first, origin, sizes=(1, 3))
    absorb(cx, cx.emit("reshape", span, word, shape=(3,)), span)
