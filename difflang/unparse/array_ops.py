"""Unparse rules for array ops: constants, reshapes, slices, pads, reductions, sorting and FFTs."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.symbolic_dims import Dim, substitute_dims
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.arrays.reshard import ANY
from difflang.ops.arrays.shape_manipulation import element_count
from difflang.unparse.fragments import (
    ATOM,
    POSTFIX,
    CannotUnparse,
    Fragment,
    Shape,
    call_fragment,
    common_dtype,
    number_fragment,
    size_text,
    with_dtype,
    with_full_shape,
)
from difflang.unparse.unparser import Unparser, tensor_type, unparse_rule

LARGE_SIZE = 1000  # stands for a symbolic size: larger than the offsets in programs


@unparse_rule("const")
def const(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    return [number_fragment(eqn.attrs["value"], tensor_type(eqn.results[0]))]


@unparse_rule("dense")
def dense(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """An array literal as nested lists."""
    type = tensor_type(eqn.results[0])
    items = [number_fragment(x, type).text for x in eqn.attrs["data"]]
    for length in reversed([n for n in type.shape if isinstance(n, int)]):
        items = [f"[{', '.join(items[i : i + length])}]" for i in range(0, len(items), length or 1)]
    if len(items) != 1 or 0 in type.shape:
        raise CannotUnparse("an array constant without elements cannot be written")
    says = type.dtype in (BOOL, I32) or type.dtype.is_complex
    return [with_dtype(Fragment(items[0], ATOM, type.shape, type.dtype, says))]


@unparse_rule("iota")
def iota(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """0, 1, 2, ... along one axis, with new axes after it; the language broadcasts those before it."""
    type, axis = eqn.attrs["type"], eqn.attrs["axis"]
    text = f"iota({size_text(type.shape[axis])})"
    if type.dtype is not I32:
        text = f"{type.dtype}({text})"
    return [insert_new_axes(Fragment(text, POSTFIX, (type.shape[axis],), type.dtype), type, (axis,))]


@unparse_rule("reshard")
def reshard(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """A call; in a batch, where some axes are split as they come, the array itself."""
    x, splits = writer.words(eqn.operands[0]), eqn.attrs["splits"]
    if ANY in splits:
        return [x]
    entries = [f"@({', '.join(a)})" if a[1:] else f"@{a[0]}" if a else "_" for a in splits]
    type = tensor_type(eqn.results[0])
    whole = with_full_shape(x, type)
    return [call_fragment("reshard", whole, shape=type.shape, dtype=type.dtype, more=", ".join(entries))]


# ---- Shapes


def insert_new_axes(x: Fragment, type: Tensor, axes: Sequence[int]) -> Fragment:
    """An array with new axes of size 1 between and after its own, for broadcasting; none are needed before."""
    if list(axes) != sorted(axes):
        raise CannotUnparse("axes repeated in a different order")
    if not axes:
        return x
    subscripts = [".." if axis in axes else "newaxis" for axis in range(axes[0], type.rank)]
    shape = tuple([x.shape[list(axes).index(axis)] if axis in axes else 1 for axis in range(axes[0], type.rank)])
    if "newaxis" not in subscripts:
        return Fragment(x.text, x.level, shape, x.dtype, x.shows_dtype)
    return Fragment(f"{with_dtype(x).at(POSTFIX)}[{', '.join(subscripts)}]", POSTFIX, shape, x.dtype)


@unparse_rule("broadcast")
def broadcast(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """Only the new axes are written: the language broadcasts by itself."""
    (value,), type = eqn.operands, tensor_type(eqn.results[0])
    x = writer.words(value)
    missing = tensor_type(value).rank - len(x.shape)
    return [insert_new_axes(x, type, eqn.attrs["axes"][missing:])]


@unparse_rule("reshape")
def reshape(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (value,), shape = eqn.operands, eqn.attrs["shape"]
    old, x = tensor_type(value).shape, writer.words(value)
    if x.shape == ():
        return [x]
    x = with_full_shape(x, tensor_type(value))
    if (found := index_of_slice(x, old, shape)) is not None:
        return [found]
    subscripts = unit_axis_subscripts(old, shape)
    if subscripts is not None:
        return [Fragment(f"{x.at(POSTFIX)}[{', '.join(subscripts)}]", POSTFIX, shape, x.dtype)]
    return [call_fragment("reshape", x, shape=shape, dtype=x.dtype, more=f"[{', '.join(map(size_text, shape))}]")]


def index_of_slice(x: Fragment, old: Shape, shape: Shape) -> Fragment | None:
    """`a[i..i + 1]` reshaped to drop the axis of size 1, as `a[i]`."""
    if x.sliced_from is None:
        return None
    base, ranges = x.sliced_from
    kept: list[str] = []
    left = list(shape)
    for length, text in zip(old, ranges, strict=True):
        if left and left[0] == length:
            kept.append(text)
            left.pop(0)
        elif length == 1:
            kept.append(text.partition("..")[0] or "0")
        else:
            return None
    if left:
        return None
    return Fragment(f"{base}[{', '.join(trim_subscripts(kept))}]", POSTFIX, shape, x.dtype)


def trim_subscripts(ranges: Sequence[str]) -> list[str]:
    """Subscripts without trailing full ranges."""
    found = list(ranges)
    while len(found) > 1 and found[-1] == "..":
        found.pop()
    return found


def unit_axis_subscripts(old: Shape, new: Shape) -> list[str] | None:
    """The subscripts that remove and insert axes of size 1; None if the shapes differ in more."""
    found: list[str] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            found, i, j = [*found, ".."], i + 1, j + 1
        elif j < len(new) and new[j] == 1:
            found, j = [*found, "newaxis"], j + 1
        elif i < len(old) and old[i] == 1:
            found, i = [*found, "0"], i + 1
        else:
            return None
    return found


@unparse_rule("transpose")
def transpose(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (value,), perm = eqn.operands, eqn.attrs["perm"]
    x, shape = writer.full_shape(value), tensor_type(eqn.results[0]).shape
    plain = perm == tuple(reversed(range(len(perm))))
    return [call_fragment("transpose", x, shape=shape, dtype=x.dtype, more="" if plain else f"axes = {perm}")]


@unparse_rule("reverse")
def reverse(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x = writer.full_shape(value)
    return [
        call_fragment(
            "reverse", x, shape=x.shape, dtype=x.dtype, more="" if axes == (0,) else f"axis = {format_axes(axes)}"
        )
    ]


def format_axes(axes: Sequence[int]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"


@unparse_rule("concat")
def concat(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    axis, type = eqn.attrs["axis"], tensor_type(eqn.results[0])
    numbers = [writer.words(v) for v in eqn.operands]
    # Numbers joined into a vector are a list literal.
    single = axis == 0 and type.rank == 1 and all(tensor_type(v).shape == (1,) for v in eqn.operands)
    if single and all(w.shape == () for w in numbers):
        listed = ", ".join(w.text for w in common_dtype(numbers))
        return [Fragment(f"[{listed}]", ATOM, type.shape, type.dtype)]
    parts = [writer.full_shape(v) for v in eqn.operands]
    if len(parts) == 1:
        return parts
    return [call_fragment("concat", *parts, shape=type.shape, dtype=type.dtype, more=f"axis = {axis}" if axis else "")]


# ---- Slices and pads


@unparse_rule("slice")
def slice_op(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    (value,), at = eqn.operands, eqn.attrs
    x, shape = writer.full_shape(value), tensor_type(value).shape
    ranges = [range_text(*ends) for ends in zip(at["starts"], at["stops"], at["steps"], shape, strict=True)]
    return [sliced_fragment(x, ranges, tensor_type(eqn.results[0]).shape)]


def sliced_fragment(x: Fragment, ranges: Sequence[str], shape: Shape) -> Fragment:
    """A slice of an array; a number stays as it is."""
    if not ranges:
        return x
    base = x.at(POSTFIX)
    text = f"{base}[{', '.join(trim_subscripts(ranges))}]"
    return Fragment(text, POSTFIX, shape, x.dtype, sliced_from=(base, tuple(ranges)))


def range_text(start: Dim, stop: Dim, step: int, whole: Dim) -> str:
    first = "" if start == 0 and step == 1 else size_text(start)
    last = "" if stop == whole else size_text(stop)
    return f"{first}..{last}" + (f" by {step}" if step != 1 else "")


@unparse_rule("pad")
def pad(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    value, filler = eqn.operands
    how = tuple([eqn.attrs[part] for part in ("low", "high", "interior")])
    x = pad_fragment(writer, writer.full_shape(value), writer.words(filler), tensor_type(value).shape, how)
    return [Fragment(x.text, x.level, tensor_type(eqn.results[0]).shape, x.dtype)]


def pad_fragment(
    writer: Unparser, x: Fragment, filler: Fragment, shape: Shape, how: tuple[Shape, Shape, Sequence[int]]
) -> Fragment:
    """An array padded before, after and between its elements, by `how`; negative amounts are cropped."""
    low, high, interior = how
    if any(interior):
        wide = tuple([tuple([0 if is_negative_size(n) else n for n in side]) for side in (low, high)])
        spread = dilate_by_assignment(writer, x, filler, shape, wide[0], wide[1], interior)
        if not has_negative_pads(low, high):
            return spread
        left = tuple([tuple([n if is_negative_size(n) else 0 for n in side]) for side in (low, high)])
        return pad_fragment(writer, spread, filler, spread.shape, (left[0], left[1], (0,) * len(shape)))
    result = tuple([n + a + b for n, a, b in zip(shape, low, high, strict=True)])
    if has_negative_pads(low, high):
        x, low, high = crop_ends(x, shape, low, high)
    if not any((*low, *high)):
        return Fragment(x.text, POSTFIX if has_negative_pads(*how[:2]) else x.level, result, x.dtype)
    # The program may define a function `pad` of its own.
    if "pad" in writer.hidden:
        return dilate_by_assignment(writer, x, filler, x.shape, low, high, (0,) * len(shape))
    more = f"{format_sizes(low)}, {format_sizes(high)}"
    if filler.text not in ("0.0", "0"):
        more += f", {with_dtype(filler).text}"
    return call_fragment("pad", x, shape=result, dtype=x.dtype, more=more)


def is_negative_size(n: Dim) -> bool:
    """Whether an amount is negative; a symbolic one, whether it is so for large sizes."""
    at_large = substitute_dims(n, lambda _: LARGE_SIZE)
    return isinstance(at_large, int) and at_large < 0


def has_negative_pads(low: Shape, high: Shape) -> bool:
    return any(map(is_negative_size, (*low, *high)))


def crop_ends(x: Fragment, shape: Shape, low: Shape, high: Shape) -> tuple[Fragment, Shape, Shape]:
    """An array cropped at the ends with negative amounts, and the remaining amounts."""
    ranges = [
        range_text(-a if is_negative_size(a) else 0, n + b if is_negative_size(b) else n, 1, n)
        for a, b, n in zip(low, high, shape, strict=True)
    ]
    first, last = (tuple([0 if is_negative_size(n) else n for n in side]) for side in (low, high))
    return sliced_fragment(x, ranges, ()), first, last


def format_sizes(shape: Shape) -> str:
    return size_text(shape[0]) if len(shape) == 1 else f"[{', '.join(map(size_text, shape))}]"


def dilate_by_assignment(
    writer: Unparser, x: Fragment, filler: Fragment, old: Shape, low: Shape, high: Shape, steps: Sequence[int]
) -> Fragment:
    """An array with gaps between its elements: written into a larger one by an assignment with a step."""
    spread = [(n - 1) * (s + 1) + 1 if n != 0 else 0 for n, s in zip(old, steps, strict=True)]
    shape = tuple([a + n + b for a, n, b in zip(low, spread, high, strict=True)])
    text = writer.names.fresh("t")
    writer.emit(f"var {text} = {with_full_shape(filler, Tensor(x.dtype, shape)).text}", writer.at)
    ranges = [range_text(a, a + n, s + 1, whole) for a, n, s, whole in zip(low, spread, steps, shape, strict=True)]
    writer.emit(f"{text}[{', '.join(ranges)}] = {x.text}", writer.at)
    return Fragment(text, ATOM, shape, x.dtype)


# ---- Reductions


def call_with_axes(writer: Unparser, eqn: Eqn, function: str) -> list[Fragment]:
    """A call of a reduction with its axes."""
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x, result = writer.full_shape(value), tensor_type(eqn.results[0])
    if not axes:
        return [x]
    more = "" if len(axes) == tensor_type(value).rank else f"axis = {format_axes(axes)}"
    return [call_fragment(function, x, shape=result.shape, dtype=result.dtype, more=more)]


@unparse_rule("reduce_sum")
def reduce_sum(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """A sum; a sum of ones is written as their number."""
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x = writer.words(value)
    if x.text in ("1.0", "-1.0") and x.dtype.bits >= 32:
        many = element_count(tuple([tensor_type(value).shape[a] for a in axes]))
        return [number_fragment(many if x.text == "1.0" else -many, Tensor(x.dtype))]
    return call_with_axes(writer, eqn, "sum")


for _name in ("prod", "max", "min", "all", "any"):
    unparse_rule(f"reduce_{_name}")(lambda writer, eqn, name=_name: call_with_axes(writer, eqn, name))
unparse_rule("reduce_norm")(lambda writer, eqn: call_with_axes(writer, eqn, "norm"))


@unparse_rule("argmax", "argmin")
def argmax(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x, axis = writer.full_shape(eqn.operands[0]), eqn.attrs["axis"]
    more = "" if len(x.shape) == 1 else f"axis = {axis}"
    return [call_fragment(eqn.op.name, x, shape=tensor_type(eqn.results[0]).shape, dtype=I32, more=more)]


@unparse_rule("cumsum", "cumprod")
def cumulative(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    more = [f"axis = {eqn.attrs['axis']}"] + ["reverse = true"] * eqn.attrs["reverse"]
    return [same_shape_call(writer, eqn, ", ".join(more))]


@unparse_rule("recurrence")
def recurrence(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """z[k] = a[k] z[k - 1] + b[k] as a loop; only b[k] at the first index and where a new sequence begins."""
    axis, type = eqn.attrs["axis"], tensor_type(eqn.results[0])
    fresh, a, b = [axis_to_front(writer, v, axis) for v in eqn.operands]
    order = (*range(1, axis + 1), 0, *range(axis + 1, type.rank))
    back, length = eqn.attrs["reverse"], type.shape[axis]
    item = Tensor(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))
    z, i, kept = [writer.names.fresh(n) for n in ("z", "i", "saved")]
    writer.emit(f"var {z} = {with_full_shape(number_fragment(0, Tensor(type.dtype)), item).text}", eqn.span)
    over = f"reverse(iota({size_text(length)}))" if back else f"0..{size_text(length)}"
    first = size_text(length - 1) if back else "0"
    begins = f"{i} == {first}" if fresh.text == "false" else f"{fresh.text}[{i}] or {i} == {first}"
    step = f"{z} = where({begins}, {b.text}[{i}], {a.text}[{i}] * {z} + {b.text}[{i}])"
    writer.emit(f"let {kept} = for {i} in {over} {{\n{step}\nyield {z}\n}}", eqn.span)
    text = f"reverse({kept})" if back else kept
    if axis:
        text = f"transpose({text}, axes = {order})"
    return [Fragment(text, POSTFIX if back or axis else ATOM, type.shape, type.dtype)]


def axis_to_front(writer: Unparser, value: Value, axis: int) -> Fragment:
    """An operand as a name, with an axis moved to the front; the mask `false` as it is."""
    if writer.words(value).text == "false":
        return writer.words(value)
    x = writer.as_name(value, whole=True)
    if axis == 0:
        return x
    order = (axis, *[a for a in range(len(x.shape)) if a != axis])
    text = writer.names.fresh("t")
    writer.emit(f"let {text} = transpose({x.text}, axes = {order})", writer.at)
    return Fragment(text, ATOM, tuple([x.shape[a] for a in order]), x.dtype)


# ---- Sorting and FFTs


@unparse_rule("argsort")
def argsort(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    more = [f"axis = {eqn.attrs['axis']}"] + ["descending = true"] * eqn.attrs["descending"]
    return [same_shape_call(writer, eqn, ", ".join(more))]


def same_shape_call(writer: Unparser, eqn: Eqn, more: str) -> Fragment:
    x, type = writer.full_shape(eqn.operands[0]), tensor_type(eqn.results[0])
    return call_fragment(eqn.op.name, x, shape=type.shape, dtype=type.dtype, more=more)


@unparse_rule("fft")
def fft(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x, axes = writer.full_shape(eqn.operands[0]), eqn.attrs["axes"]
    name = "ifft" if eqn.attrs["inverse"] else "fft"
    return [call_fragment(name, x, shape=x.shape, dtype=x.dtype, more=f"axis = {format_axes(axes)}")]


@unparse_rule("rfft")
def rfft(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    return [same_shape_call(writer, eqn, f"axis = {eqn.attrs['axis']}")]


@unparse_rule("irfft")
def irfft(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    return [same_shape_call(writer, eqn, f"n = {size_text(eqn.attrs['size'])}, axis = {eqn.attrs['axis']}")]
