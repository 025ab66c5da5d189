"""Bounds analysis of computed indices: an index is a loop's index plus a size, or has a known upper bound.

A number known to be in `0 .. upper_bound - 1` needs no check where it indexes an axis of that size. The rules here
propagate such bounds through arithmetic. They need sizes that are numbers, as in everything that is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from difflang.elaborate.terms import Array
from difflang.ir.tensor_types import I32
from difflang.types.dtype_variables import prune_dtype

I32_LIMIT = 2**31  # every i32 is below it


def propagate_bounds(name: str, arrays: Sequence[Array], result: Array) -> Array:
    """The result of an elementwise operation, with its bound as an index if one follows."""
    if name in ("add", "sub"):
        result = shift_loop_index(name, arrays, result)
    if result.upper_bound is not None or name not in BOUND_RULES or prune_dtype(result.tensor.dtype) is not I32:
        return result
    # A bound past the i32 range proves nothing: the computation may have wrapped around.
    most = BOUND_RULES[name](*arrays)
    return replace(result, upper_bound=most + 1) if most is not None and 0 <= most < I32_LIMIT else result


def shift_loop_index(name: str, arrays: Sequence[Array], result: Array) -> Array:
    """A loop's index plus or minus a size, recorded as an offset from that index."""
    a, b = arrays
    if name == "add" and a.index_of_loop is None:
        a, b = b, a
    if a.index_of_loop is None or isinstance(b.static, (bool, float)) or b.static is None:
        return result
    offset = a.index_offset + b.static if name == "add" else a.index_offset - b.static
    below = a.index_of_loop.length + offset if isinstance(offset, int) and offset >= 0 else None
    return Array(result.value, upper_bound=below, index_of_loop=a.index_of_loop, index_offset=offset)


def upper_bound(x: Array) -> int | None:
    """The largest possible value of a number that is known not to be negative, or None if there is no known bound."""
    if isinstance(x.static, int) and not isinstance(x.static, bool):
        return x.static if x.static >= 0 else None
    return x.upper_bound - 1 if isinstance(x.upper_bound, int) and x.upper_bound > 0 else None


def monotone_bound(combine: Callable[..., int]) -> Callable[..., int | None]:
    """The bound rule of an operation that grows with each operand."""

    def bound_rule(*arrays: Array) -> int | None:
        each = [upper_bound(x) for x in arrays]
        numbers = [n for n in each if n is not None]
        return combine(*numbers) if len(numbers) == len(each) else None

    return bound_rule


def difference_bound(x: Array, y: Array) -> int | None:
    """A bound for `x - y` where `x` is constant and `y` is at most `x`."""
    taken = upper_bound(y)
    return x.static if isinstance(x.static, int) and taken is not None and taken <= x.static else None


def remainder_bound(_: Array, y: Array) -> int | None:
    return y.static - 1 if isinstance(y.static, int) and y.static > 0 else None


def quotient_bound(x: Array, y: Array) -> int | None:
    whole = upper_bound(x)
    return whole // y.static if whole is not None and isinstance(y.static, int) and y.static > 0 else None


def clamp_bound(low: Array, _: Array, high: Array) -> int | None:
    ends = low.static, high.static
    return ends[1] if isinstance(ends[0], int) and isinstance(ends[1], int) and 0 <= ends[0] <= ends[1] else None


BOUND_RULES: dict[str, Callable[..., int | None]] = {
    "add": monotone_bound(lambda x, y: x + y),
    "mul": monotone_bound(lambda x, y: x * y),
    "min": monotone_bound(min),
    "max": monotone_bound(max),
    "select": lambda _, x, y: monotone_bound(max)(x, y),
    "sub": difference_bound,
    "rem": remainder_bound,
    "floor_div": quotient_bound,
    "clamp": clamp_bound,
}
