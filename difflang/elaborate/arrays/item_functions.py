"""Built-ins that rearrange axes, for arrays of records, enums and functions: `reverse(ps)`, `where(mask, ps, qs)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.arrays.indexing import replace_leading_axes
from difflang.elaborate.calls.builtin_registry import PARAMETERS, BuiltinArgs
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.patterns.structured_arrays import is_structured_array, item_grid
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.terms import Array, Items, Term, Tuple, leaves, term_from_leaves, type_of
from difflang.types.join_types import least_common_type
from difflang.types.language_types import LangType, add_axes, add_tags, array_axes, drop_axes, leaf_types, show_type
from difflang.types.type_errors import make_error

SpannedTerm = tuple[Term, Span]
BuiltinBody = Callable[[ElabContext, CallArgs, str], Term]


def over_items(*, flattens: bool = False, new_axis: bool = False) -> Callable[[BuiltinBody], BuiltinBody]:
    """Extends a built-in that rearranges the axes of arrays to arrays of records, enums and functions, leaf by leaf.

    One that `flattens` an array without an `axis` needs one where items have several; `new_axis` makes one more.
    """

    def extend(function: BuiltinBody) -> BuiltinBody:
        @wraps(function)
        def applied(cx: ElabContext, args: CallArgs, name: str) -> Term:
            every = takes_any_number(name)
            given = (*args.items, *args.named.values()) if every else [BuiltinArgs(cx, args, name).by_name["x"]]
            if not any(is_structured_array(t) for t, _ in given):
                return function(cx, args, name)
            args = by_position(cx, args, name)
            rank = next(len(array_axes(t.type)) for t, _ in given if isinstance(t, Items) and array_axes(t.type))
            axis = item_axis(cx, args, name, rank, flattens=flattens, more=new_axis)
            return rearranged(cx, replace(args, named={"axis": axis}), name, function)

        return applied

    return extend


def item_axis(cx: ElabContext, args: CallArgs, name: str, rank: int, *, flattens: bool, more: bool) -> SpannedTerm:
    """The requested axis of an array of items, 0 without one, counted from the front. Errors: DL0335."""
    given = args.named.get("axis")
    axes = "its only axis is 0" if rank + more == 1 else f"axes are 0 to {rank + more - 1}"
    if given is None:
        if flattens and rank > 1:
            raise cx.error("DL0335", f"`{name}` works along one axis", args.span, "", f"name it, `axis = 0`: {axes}")
        return cx.integer_array(0, args.span), args.span
    term, span = given
    numbers = [cx.static(t, span, "`axis`") for t in (term.items if isinstance(term, Tuple) else (term,))]
    found = [n + rank + more if isinstance(n, int) and n < 0 else n for n in numbers]
    if not all(isinstance(n, int) and 0 <= n < rank + more for n in found):
        message = f"this axis does not exist: the array has {count_of(rank, 'axis', 'axes')}"
        raise cx.error("DL0335", message, span, axes)
    terms = [cx.integer_array(n, span) for n in found if isinstance(n, int)]
    return (Tuple(tuple(terms)) if isinstance(term, Tuple) else terms[0]), span


def takes_any_number(name: str) -> bool:
    """Whether a built-in takes any number of arrays; others take one, `x`, before their further parameters."""
    return PARAMETERS[name].startswith("..")


def by_position(cx: ElabContext, args: CallArgs, name: str) -> CallArgs:
    """The arguments by position, and the axis by name. Errors: DL0319 for another name."""
    if takes_any_number(name):
        if set(args.named) - {"axis"}:
            raise cx.error("DL0319", f"usage of `{name}`: `{name}(x, y, axis = 0)` with arrays", args.span)
        return args
    took = dict(BuiltinArgs(cx, args, name).by_name)
    axis = {"axis": took.pop("axis")} if "axis" in took else {}
    return replace(args, items=[took.pop("x"), *took.values()], named=axis)


def rearranged(cx: ElabContext, args: CallArgs, name: str, function: BuiltinBody) -> Term:
    """The built-in applied to each leaf of its arrays of items, which get one type."""
    places = range(len(args.items) if takes_any_number(name) else 1)
    whole = alike(cx, [args.items[i] for i in places])
    columns = [leaves(t) or [item_grid(cx, t, args.span).value] for t in whole if isinstance(t, Items)]
    found: list[Term] = []
    for column in zip(*columns, strict=True):
        items = list(args.items)
        for i, leaf in zip(places, column, strict=True):
            items[i] = Array(leaf, items=type_of(items[i][0])), items[i][1]
        found.append(function(cx, replace(args, items=items), name))
    type = type_of(whole[0])
    if not isinstance(found[0], Tuple):
        return items_of_leaves(type, found)
    parts = zip(*[t.items for t in found if isinstance(t, Tuple)], strict=True)
    return Tuple(tuple([items_of_leaves(type, part) for part in parts]))


def items_of_leaves(type: LangType, found: Sequence[Term]) -> Term:
    """The array of items from its rearranged leaves."""
    arrays = [t for t in found if isinstance(t, Array)]
    rank, types = len(array_axes(type)), leaf_types(type)
    further = types[0].rank - rank if types else 0
    lead = arrays[0].tensor.shape[: arrays[0].tensor.rank - further]
    return term_from_leaves(replace_leading_axes(type, rank, lead), [a.value for a in arrays])


def alike(cx: ElabContext, given: Sequence[SpannedTerm]) -> list[Term]:
    """Arrays of items, all of the least common type of their items. Errors: DL0317 if there is none."""
    (first, at), *rest = given
    rank = len(array_axes(type_of(first)))
    item = drop_axes(type_of(first), rank)
    for term, span in rest:
        other = type_of(term)
        both = least_common_type(cx.unifier, item, drop_axes(other, rank)) if len(array_axes(other)) == rank else None
        if both is None:
            labels = (span, f"this is {show_type(other)}"), (at, f"this is {show_type(type_of(first))}")
            raise make_error("DL0317", "the items of an array must have one type", *labels)
        item = both
    item = add_tags(item)
    return [widen_to_type(cx.builder, t, add_axes(item, array_axes(type_of(t)))) for t, _ in given]


def select_items(cx: ElabContext, condition: SpannedTerm, x: SpannedTerm, y: SpannedTerm, span: Span) -> Term:
    """`where(mask, ps, qs)`: the items of one array or the other. Errors: DL0310 for a mask of another shape."""
    first, second = alike(cx, [x, y])
    mask = as_array(cx, *condition)
    axes = array_axes(type_of(first))
    if mask.tensor.shape not in ((), axes) and not cx.unifier.same(replace(mask.tensor, shape=axes), mask.tensor):
        shown = f"this is {show_type(mask.tensor)}, and the items have shape [{', '.join(map(str, axes))}]"
        raise cx.error("DL0310", "`where` takes one condition for each item, or one for all", condition[1], shown)
    found: list[Term] = []
    for a, b in zip(leaves(first), leaves(second), strict=True):
        here = mask
        if mask.tensor.shape:
            shape = (*axes, *[1] * (Array(a).tensor.rank - len(axes)))
            here = Array(cx.emit("reshape", span, mask.value, shape=shape))
        sides = Array(a, items=type_of(first)), Array(b, items=type_of(second))
        found.append(elementwise(cx, "select", span, (here, *sides), (condition[1], x[1], y[1])))
    return items_of_leaves(type_of(first), found) if found else first
