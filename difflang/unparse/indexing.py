"""Unparse rules for indexing: dynamic slices, updates, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.unparse.array_ops import sliced_fragment, trim_subscripts
from difflang.unparse.fragments import (
    AND,
    ATOM,
    COMPARE,
    POSTFIX,
    SUM,
    CannotUnparse,
    Fragment,
    Shape,
    call_fragment,
    infix,
    number_fragment,
    size_factor,
    size_text,
    sizes_text,
    with_dtype,
    with_full_shape,
)
from difflang.unparse.unparser import Unparser, tensor_type, unparse_rule


def scalar_index(writer: Unparser, value: Value) -> Fragment:
    """A scalar index as an i32, as the language requires."""
    found = with_dtype(writer.words(value))
    return found if found.dtype is I32 else call_fragment("i32", found, shape=found.shape, dtype=I32)


@unparse_rule("dynamic_slice")
def dynamic_slice(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    value, *starts = eqn.operands
    x = writer.full_shape(value)
    if not x.is_atomic:
        x = writer.as_name(value, whole=True)
    ranges = window_ranges(writer, starts, eqn.attrs["sizes"], tensor_type(value).shape)
    writer.unchecked[0] = True
    return [sliced_fragment(x, ranges, tensor_type(eqn.results[0]).shape)]


def window_ranges(writer: Unparser, starts: Sequence[Value], sizes: Shape, whole: Shape) -> list[str]:
    found: list[str] = []
    for start, length, all_of_it in zip(starts, sizes, whole, strict=True):
        if length == all_of_it:
            found.append("..")
            continue
        words = scalar_index(writer, start)
        begin = words if words.is_atomic else writer.emit_let(start, words, writer.at)
        text = begin.at(SUM)
        found.append(f"{text}..{text} + {size_factor(length)}")
    return found


@unparse_rule("dynamic_update")
def dynamic_update(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    value, new, *starts = eqn.operands
    type = tensor_type(value)
    if not starts:
        return [writer.full_shape(new)]
    ranges = window_ranges(writer, starts, tensor_type(new).shape, type.shape)
    change = writer.words(new)
    # A number is assigned to a whole range; a range of size 1 is written as an index.
    if change.shape == ():
        ones = [n == 1 and ".." in r and r != ".." for n, r in zip(tensor_type(new).shape, ranges, strict=True)]
        ranges = [r.partition("..")[0] if one else r for one, r in zip(ones, ranges, strict=True)]
    else:
        change = writer.full_shape(new)
    text = mutable_copy(writer, eqn, value)
    writer.unchecked[0] = True
    writer.emit(f"{text}[{', '.join(trim_subscripts(ranges))}] = {change.text}", eqn.span)
    return [Fragment(text, ATOM, type.shape, type.dtype)]


def mutable_copy(writer: Unparser, eqn: Eqn, value: Value) -> str:
    """A variable that holds a copy of the value, to be updated."""
    text = writer.names.fresh(writer.user_name(eqn.results[0]) or "t")
    writer.emit(f"var {text} = {writer.full_shape(value).text}", eqn.span)
    return text


# ---- Gathers and scatters


@unparse_rule("gather")
def gather(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """`x[i, j]`, transposed if needed."""
    # In the language the axes of the indices are where the indices are written; in the graph they come first.
    value, *indices = eqn.operands
    axes, type = eqn.attrs["axes"], tensor_type(eqn.results[0])
    x = writer.full_shape(value)
    where = [integer_index(writer.full_shape(i)) for i in indices]
    rank, before = tensor_type(indices[0]).rank, leading_axes(axes)
    if covers_first_axis(where, axes, x.shape):
        return [Fragment(x.text, x.level, type.shape, type.dtype)]
    writer.unchecked[0] = True
    text = f"{x.at(POSTFIX)}[{', '.join(trim_subscripts(gather_subscripts(where, axes, len(x.shape))))}]"
    if rank and before:
        order = (*range(before, before + rank), *range(before), *range(before + rank, type.rank))
        text = f"transpose({text}, axes = {order})"
    return [Fragment(text, POSTFIX, type.shape, type.dtype)]


def covers_first_axis(where: Sequence[Fragment], axes: Sequence[int], shape: Shape) -> bool:
    """Whether the indices are all those of the first axis in order."""
    return tuple(axes) == (0,) and where[0].text == f"iota({shape[0]})"


def integer_index(x: Fragment) -> Fragment:
    """An index array as i32, as the language requires."""
    return x if x.dtype is I32 else call_fragment("i32", x, shape=x.shape, dtype=I32)


def leading_axes(axes: Sequence[int]) -> int:
    """The number of axes before the indexed ones. Errors: CannotUnparse if these are not adjacent."""
    if list(axes) != list(range(axes[0], axes[0] + len(axes))):
        raise CannotUnparse("positions along axes that are not adjacent")
    return axes[0]


def gather_subscripts(where: Sequence[Fragment], axes: Sequence[int], rank: int) -> list[str]:
    """Subscripts with the indices at their axes, and full ranges elsewhere."""
    subscripts = [".."] * rank
    for axis, place in zip(axes, where, strict=True):
        subscripts[axis] = place.text
    return subscripts


def scatter_into_zeros(writer: Unparser, eqn: Eqn, subscripts: str, change: Fragment, type: Tensor) -> Fragment:
    """An array of zeros into which `change` is added at the subscripts."""
    writer.unchecked[0] = True
    text = writer.names.fresh(writer.user_name(eqn.results[0]) or "t")
    zero = number_fragment(0, Tensor(type.dtype))
    writer.emit(f"var {text} = {with_full_shape(zero, type).text}", eqn.span)
    writer.emit(f"{text}[{subscripts}] += {change.text}", eqn.span)
    return Fragment(text, ATOM, type.shape, type.dtype)


UPDATES = {"scatter": "=", "scatter_add": "+=", "scatter_max": "max=", "scatter_min": "min="}


@unparse_rule(*UPDATES)
def scatter(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    value, new, *indices = eqn.operands
    axes, type = eqn.attrs["axes"], tensor_type(value)
    rank, before = tensor_type(indices[0]).rank, leading_axes(axes)
    where = [integer_index(writer.full_shape(i)) for i in indices]
    change = writer.words(new)
    if rank and before:
        order = (*range(rank, rank + before), *range(rank), *range(rank + before, tensor_type(new).rank))
        change = call_fragment("transpose", writer.full_shape(new), shape=(), dtype=type.dtype, more=f"axes = {order}")
    elif change.shape:
        change = writer.full_shape(new)
    if covers_first_axis(where, axes, type.shape) and eqn.op.name == "scatter_add":
        old = writer.words(value)
        blank = old.text in ("0.0", "0")
        return [writer.full_shape(new) if blank else infix("+", SUM, old, writer.words(new))]
    text = mutable_copy(writer, eqn, value)
    writer.unchecked[0] = True
    subscripts = trim_subscripts(gather_subscripts(where, axes, type.rank))
    writer.emit(f"{text}[{', '.join(subscripts)}] {UPDATES[eqn.op.name]} {change.text}", eqn.span)
    return [Fragment(text, ATOM, type.shape, type.dtype)]


@unparse_rule("scatter_mul")
def scatter_product(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """A product of writes, as a loop over them."""
    # Several writes may have the same index, where `*=` on an index array would keep only one of them.
    value, new, *indices = eqn.operands
    axes, type = eqn.attrs["axes"], tensor_type(value)
    rank, before = tensor_type(indices[0]).rank, leading_axes(axes)
    if rank != 1 or before:
        raise CannotUnparse("a product of writes to positions with several axes")
    places = [integer_index(writer.as_name(i, whole=True)) for i in indices]
    factors = writer.as_name(new, whole=True)
    text, step = mutable_copy(writer, eqn, value), writer.names.fresh("i")
    writer.unchecked[0] = True
    at = trim_subscripts(
        gather_subscripts([Fragment(f"{p.at(POSTFIX)}[{step}]", POSTFIX, (), I32) for p in places], axes, type.rank)
    )
    length = size_text(tensor_type(new).shape[0])
    writer.emit(f"for {step} in 0..{length} {{\n{text}[{', '.join(at)}] *= {factors.text}[{step}]\n}}")
    writer.names.used.discard(step)
    return [Fragment(text, ATOM, type.shape, type.dtype)]


@unparse_rule("last_writes")
def last_writer(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """Each write stores its ordinal at its index with `max`; the write whose ordinal stays was the last."""
    return [winning_writes(writer, eqn, eqn.operands, eqn.attrs["sizes"], "max=", None)]


@unparse_rule("first_claims")
def first_claims(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """Each claim stores its ordinal at its index with `min`; the claim whose ordinal stays was the first."""
    claims, *indices = eqn.operands
    if len(eqn.attrs["axes"]) != len(eqn.attrs["shape"]):
        raise CannotUnparse("the choice among several writes of whole rows cannot be written in the language")
    return [winning_writes(writer, eqn, indices, eqn.attrs["shape"], "min=", writer.as_name(claims, whole=True))]


def winning_writes(
    writer: Unparser, eqn: Eqn, indices: Sequence[Value], sizes: Shape, better: str, claims: Fragment | None
) -> Fragment:
    """For each write, whether its ordinal is the one that stays at its index."""
    shape = tensor_type(eqn.results[0]).shape
    count = 1
    for n in shape:
        count = n * count
    none = "-1" if claims is None else size_text(count)
    order = writer.names.fresh("order")
    ordinals = f"iota({size_text(count)})"
    whole = ordinals if len(shape) == 1 else f"reshape({ordinals}, [{sizes_text(shape)}])"
    writer.emit(f"let {order} = {whole if claims is None else f'where({claims.text}, {whole}, {none})'}", eqn.span)
    text = writer.names.fresh("t")
    writer.emit(f"var {text} = fill({sizes_text(sizes)}, {none})", eqn.span)
    at = ", ".join([integer_index(writer.full_shape(i)).text for i in indices])
    writer.unchecked[0] = True
    writer.emit(f"{text}[{at}] {better} {order}", eqn.span)
    found = f"{text}[{at}] == {order}"
    found = found if claims is None else f"{claims.at(COMPARE)} and {found}"
    return Fragment(found, COMPARE if claims is None else AND, shape, BOOL)
