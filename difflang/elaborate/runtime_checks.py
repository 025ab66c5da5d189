"""Checks that wait for the run: an index that nothing proves in range, an assertion.

A failure is a value: the number of a check and two numbers that it was about, zero while all is well. It travels as a
hidden variable through branches, loops, maps and calls and leaves the program beside its results. The first check that
fails writes it; nothing is clamped, and the host turns it into an error at the user's line. What usually runs computes
the number of the check only; the other two are asked for when it is not zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.check_sites import OVER_I32, UNDER_I32, CheckSite, IndexTarget
from difflang.base.source import Span
from difflang.elaborate.context import FAILURE_TYPES, FAILURE_WORD, ElabContext
from difflang.elaborate.terms import Array, Tuple, leaves
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, I32, I64, U32, U64, Tensor
from difflang.ops.op_factories import tensor_type
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import AxisSpread
from difflang.types.type_errors import DeferCheck


def check_index(cx: ElabContext, index: Array, size: Dim, span: Span, access: IndexTarget | None = None) -> Array:
    """The index as an i32, after a check of all its bits that it lies in `0 .. size - 1`; `into` what it goes.

    Without it where that is proved, or where the program says `@unchecked`.
    """
    if isinstance(size, AxisSpread):
        raise DeferCheck
    given = index
    if not cx.unifier.same(Tensor(index.tensor.dtype), Tensor(I32)):
        index = Array(cx.emit("truncate", span, given.value, dtype=I32))
    if is_proven_in_range(index, size) or is_unchecked(cx, span):
        return index
    cx.root.effects.add("fail")
    if cx.root.definition_only or 0 in index.tensor.shape or is_already_checked(cx, given, size):
        return index
    dtype = prune_dtype(given.tensor.dtype)
    bits = U64 if dtype in (I64, U64) else U32
    where = cx.emit("truncate", span, given.value, dtype=bits)  # what is negative is beyond every size
    bad = cx.emit("ge", span, where, cx.emit("const", span, value=size, type=Tensor(bits, index.tensor.shape)))
    worst, axes = index.value, tuple(range(index.tensor.rank))
    if axes:  # the greatest is found out when one of them is known to be bad: an `or` is faster
        bad = cx.emit("reduce_any", span, bad, axes=axes)
        where = cx.emit("reduce_max", span, where, axes=axes)
        worst = cx.emit("truncate", span, where, dtype=I32)
    if dtype in (U32, I64, U64):
        worst = clamp_to_i32(cx, cx.emit("truncate", span, where, dtype=dtype), span)
    record_failure(cx, bad, CheckSite(span, index_target=access), span, worst, cx.integer_array(size, span).value)
    return index


def clamp_to_i32(cx: ElabContext, index: Value, span: Span) -> Value:
    """The i32 next to an index of another type: the last one stands for all beyond it."""
    for name, end in (("min", OVER_I32), ("max", UNDER_I32)):
        if end > 0 or tensor_type(index).dtype is I64:
            index = cx.emit(name, span, index, cx.emit("const", span, value=end, type=index.type))
    return cx.emit("truncate", span, index, dtype=I32)


def emit_check(cx: ElabContext, condition: Array, message: str, span: Span) -> tuple[Value, int] | None:
    """A condition, one number or many, that must hold when the run comes by.

    Gives whether it does not and the number of the check, but not in a definition.
    """
    cx.root.effects.add("fail")
    if cx.root.definition_only:
        return None
    holds = condition.value
    if condition.tensor.shape:
        holds = cx.emit("reduce_all", span, holds, axes=tuple(range(condition.tensor.rank)))
    bad = cx.emit("logical_not", span, holds)
    return bad, record_failure(cx, bad, CheckSite(span, message), span)


def check_step_limit(cx: ElabContext, count: Value, span: Span) -> None:
    """The failure of a loop that took more steps than are allowed, if anybody asked for a limit."""
    most = cx.session.most_steps
    if most and not cx.root.definition_only:
        cx.root.effects.add("fail")
        over = cx.emit("gt", span, count, cx.emit("const", span, value=most, type=count.type))
        record_failure(cx, over, CheckSite(span, max_steps=most), span)


def is_already_checked(cx: ElabContext, index: Array, size: Dim) -> bool:
    """Whether this check has been made on every way here; it has from now on."""
    around: Builder | None = cx.builder
    while around is not None:
        if (around, index.value, size) in cx.root.checked_indices:
            return True
        around = around.outer
    cx.root.checked_indices.add((cx.builder, index.value, size))
    return False


def is_proven_in_range(index: Array, size: Dim) -> bool:
    if index.upper_bound is None:
        return False
    room = size - index.upper_bound
    return isinstance(room, int) and room >= 0


def is_unchecked(cx: ElabContext, span: Span) -> bool:
    """Whether this stands in a function or loop that says `@unchecked`. What is called from there is checked."""
    around = [s for s in cx.session.unchecked_spans if s.source is span.source]
    return any(s.start <= span.start and span.end <= s.end for s in around)


def record_failure(cx: ElabContext, bad: Value, site: CheckSite, span: Span, *numbers: Value) -> int:
    """Write the failure if `bad`, unless an earlier check has. Gives the number of the check."""
    number_of_check = cx.session.add_check_site(site)
    word = [cx.emit("const", span, value=number_of_check, type=FAILURE_WORD)]
    for number in numbers or (cx.emit("const", span, value=0, type=FAILURE_WORD),) * 2:
        word.append(number if number.type == FAILURE_WORD else cx.emit("truncate", span, number, dtype=I32))
    merge_failure(cx, bad, word, span)
    return number_of_check


def merge_failure(cx: ElabContext, happened: Value, word: Sequence[Value], span: Span) -> None:
    """The first failure stays."""
    old = leaves(cx.failure)
    if not cannot_have_failed(cx.failure):
        happened = cx.emit("logical_and", span, no_failure_value(cx, cx.failure, span), happened)
    cx.failure_word.term = Tuple(
        tuple(Array(cx.emit("select", span, happened, w, o)) for w, o in zip(word, old, strict=True))
    )


def cannot_have_failed(word: Tuple) -> bool:
    """Whether nothing can have failed so far."""
    site = word.items[0]
    return isinstance(site, Array) and site.static is not None


def no_failure_value(cx: ElabContext, word: Tuple, span: Span) -> Value:
    """No check has failed so far."""
    return cx.emit("eq", span, leaves(word)[0], cx.emit("const", span, value=0, type=FAILURE_WORD))


def and_no_failure(cx: ElabContext, condition: Array, span: Span) -> Value:
    """The condition, and no failure so far."""
    return cx.emit("logical_and", span, condition.value, no_failure_value(cx, cx.failure, span))


def absorb_failure(cx: ElabContext, word: Sequence[Value], span: Span) -> None:
    """Take over the failure of a call, a lane or a derivative."""
    if cannot_have_failed(cx.failure):
        cx.failure_word.term = Tuple(tuple(map(Array, word)))
    else:
        merge_failure(cx, cx.emit("const", span, value=True, type=Tensor(BOOL)), word, span)


def has_single_check(lane: Graph) -> bool:
    """Whether a lane's failure can only be that of one check: a choice between its number and none."""
    made = {r: e for e in lane.eqns for r in e.results}
    choice = made.get(lane.results[-len(FAILURE_TYPES)])
    sides = [made.get(v) for v in choice.operands[1:]] if choice is not None and choice.op.selects else []
    return len(sides) == 2 and all(e is not None and e.op.name == "const" for e in sides)


def absorb_map_failure(cx: ElabContext, words: Sequence[Value], span: Span, *, in_order: bool, one_check: bool) -> None:
    """The failure of one of the lanes that failed: of the last check among theirs, or `in_order` of the first lane.

    Of `one_check` alone it is enough to know whether any lane failed, which is faster than to find the lane.
    """
    sites = words[0]
    assert isinstance(sites.type, Tensor)
    if sites.type.shape == (0,):
        return
    lane = first_failed_item(cx, sites, span) if in_order else cx.emit("argmax", span, sites, axis=0)
    of_lane = [cx.emit("dynamic_slice", span, w, lane, sizes=(1,)) for w in words]
    site, *numbers = [cx.emit("reshape", span, n, shape=()) for n in of_lane]
    any_lane = not in_order or one_check
    absorb_failure(cx, [cx.emit("reduce_max", span, sites, axes=(0,)) if any_lane else site, *numbers], span)


def first_failed_item(cx: ElabContext, sites: Value, span: Span) -> Value:
    """The first lane that failed, or the last lane: a minimum, which is faster to find than a position."""
    assert isinstance(sites.type, Tensor)
    places = cx.emit("iota", span, type=sites.type, axis=0)
    well = cx.emit("eq", span, sites, cx.emit("const", span, value=0, type=sites.type))
    last = cx.emit("const", span, value=sites.type.shape[0] - 1, type=sites.type)
    return cx.emit("reduce_min", span, cx.emit("select", span, well, last, places), axes=(0,))
