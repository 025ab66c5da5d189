"""Run-time checks: indices not proved in range, assertions, integer division by zero, step limits.

A failure is a value: the number of a check site and two numbers for its report, all zero without a failure. It is a
hidden variable that passes through branches, loops, maps and calls and is returned beside the results. The first check
that fails sets it; nothing is clamped, and the host turns it into an error at the user's line. The usual executable
computes only the check number; the other two are computed by a second run when it is not zero.
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
from difflang.ir.tensor_types import I32, I64, U32, U64, Tensor
from difflang.ops.arrays.constants import const
from difflang.ops.op_factories import tensor_type
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import AxisSpread
from difflang.types.type_errors import DeferCheck


def check_index(cx: ElabContext, index: Array, size: Dim, span: Span, access: IndexTarget | None = None) -> Array:
    """The index as an i32, after a check of all its bits that it lies in `0 .. size - 1`. `access` is for the report.

    There is no check where that is proved, or under `@unchecked`.
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
    # Unsigned comparison: a negative index is larger than every size.
    where = cx.emit("truncate", span, given.value, dtype=bits)
    bad = cx.emit("ge", span, where, cx.emit("const", span, value=size, type=Tensor(bits, index.tensor.shape)))
    worst, axes = index.value, tuple(range(index.tensor.rank))
    # The usual executable drops the maximum, which only the report needs: an `or` is faster.
    if axes:
        bad = cx.emit("reduce_any", span, bad, axes=axes)
        where = cx.emit("reduce_max", span, where, axes=axes)
        worst = cx.emit("truncate", span, where, dtype=I32)
    if dtype in (U32, I64, U64):
        worst = clamp_to_i32(cx, cx.emit("truncate", span, where, dtype=dtype), span)
    record_failure(cx, bad, CheckSite(span, index_target=access), span, worst, cx.integer_array(size, span).value)
    return index


def clamp_to_i32(cx: ElabContext, index: Value, span: Span) -> Value:
    """The index saturated to the range of i32, for the report."""
    for name, end in (("min", OVER_I32), ("max", UNDER_I32)):
        if end > 0 or tensor_type(index).dtype is I64:
            index = cx.emit(name, span, index, cx.emit("const", span, value=end, type=index.type))
    return cx.emit("truncate", span, index, dtype=I32)


def emit_check(cx: ElabContext, condition: Array, message: str, span: Span) -> tuple[Value, int] | None:
    """Emit a check of a condition, a scalar or an array. Returns whether it fails and the number of the check.

    In a definition it returns None.
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
    """Check the number of a loop's steps against the session's limit, if there is one."""
    most = cx.session.most_steps
    if most and not cx.root.definition_only:
        cx.root.effects.add("fail")
        over = cx.emit("gt", span, count, cx.emit("const", span, value=most, type=count.type))
        record_failure(cx, over, CheckSite(span, max_steps=most), span)


def is_already_checked(cx: ElabContext, index: Array, size: Dim) -> bool:
    """Whether this builder or an enclosing one has made the check already; records it if not."""
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
    margin = size - index.upper_bound
    return isinstance(margin, int) and margin >= 0


def is_unchecked(cx: ElabContext, span: Span) -> bool:
    """Whether a span is in a function or loop marked `@unchecked`. Functions called from there are checked."""
    around = [s for s in cx.session.unchecked_spans if s.source is span.source]
    return any(s.start <= span.start and span.end <= s.end for s in around)


def record_failure(cx: ElabContext, bad: Value, site: CheckSite, span: Span, *numbers: Value) -> int:
    """Set the failure if `bad`, unless an earlier check failed. Returns the number of the check."""
    number_of_check = cx.session.add_check_site(site)
    word = [cx.emit("const", span, value=number_of_check, type=FAILURE_WORD)]
    for number in numbers or (cx.emit("const", span, value=0, type=FAILURE_WORD),) * 2:
        word.append(number if number.type == FAILURE_WORD else cx.emit("truncate", span, number, dtype=I32))
    merge_failure(cx, bad, word, span)
    return number_of_check


def merge_failure(cx: ElabContext, happened: Value, word: Sequence[Value], span: Span) -> None:
    """Set the failure if it `happened`; an earlier failure is kept."""
    old = leaves(cx.failure)
    if not cannot_have_failed(cx.failure):
        # The first failure is the one that the user can act on.
        happened = cx.emit("logical_and", span, no_failure_value(cx, cx.failure, span), happened)
    cx.failure_word.term = Tuple(
        tuple(Array(cx.emit("select", span, happened, w, o)) for w, o in zip(word, old, strict=True))
    )


def cannot_have_failed(word: Tuple) -> bool:
    """Whether it is known statically that no check has failed so far."""
    site = word.items[0]
    return isinstance(site, Array) and site.static is not None


def no_failure_value(cx: ElabContext, word: Tuple, span: Span) -> Value:
    """The run-time flag that no check has failed so far."""
    return cx.emit("eq", span, leaves(word)[0], cx.emit("const", span, value=0, type=FAILURE_WORD))


def and_no_failure(cx: ElabContext, condition: Array, span: Span) -> Value:
    """The condition and the flag that no check has failed so far."""
    return cx.emit("logical_and", span, condition.value, no_failure_value(cx, cx.failure, span))


def absorb_failure(cx: ElabContext, word: Sequence[Value], span: Span) -> None:
    """Take over the failure of a call, a map or a derivative."""
    if cannot_have_failed(cx.failure):
        cx.failure_word.term = Tuple(tuple(map(Array, word)))
    else:
        # A word without failure is not taken over, so that all words of steps are merged alike: the first that fails.
        failed = cx.emit("ne", span, word[0], cx.emit("const", span, value=0, type=FAILURE_WORD))
        merge_failure(cx, failed, word, span)


def has_single_check(body: Graph) -> bool:
    """Whether a map body contains a single check, so that its failure is a select of two constants."""
    made = {r: e for e in body.eqns for r in e.results}
    choice = made.get(body.results[-len(FAILURE_TYPES)])
    sides = [made.get(v) for v in choice.operands[1:]] if choice is not None and "select" in choice.op.traits else []
    return len(sides) == 2 and all(e is not None and e.op is const for e in sides)


def absorb_map_failure(cx: ElabContext, words: Sequence[Value], span: Span, *, in_order: bool, one_check: bool) -> None:
    """Take over the failure of one item of a map: the first failing item if `in_order`, else any with the last check.

    With `one_check`, the check number is a plain maximum, which is faster than finding the item.
    """
    sites = words[0]
    assert isinstance(sites.type, Tensor)
    if sites.type.shape == (0,):
        return
    item = first_failed_item(cx, sites, span) if in_order else cx.emit("argmax", span, sites, axis=0)
    of_item = [cx.emit("dynamic_slice", span, w, item, sizes=(1,)) for w in words]
    site, *numbers = [cx.emit("reshape", span, n, shape=()) for n in of_item]
    any_item = not in_order or one_check
    absorb_failure(cx, [cx.emit("reduce_max", span, sites, axes=(0,)) if any_item else site, *numbers], span)


def first_failed_item(cx: ElabContext, sites: Value, span: Span) -> Value:
    """The index of the first failing item, or of the last item. As a minimum it is faster than an argmax."""
    assert isinstance(sites.type, Tensor)
    places = cx.emit("iota", span, type=sites.type, axis=0)
    well = cx.emit("eq", span, sites, cx.emit("const", span, value=0, type=sites.type))
    last = cx.emit("const", span, value=sites.type.shape[0] - 1, type=sites.type)
    return cx.emit("reduce_min", span, cx.emit("select", span, well, last, places), axes=(0,))
