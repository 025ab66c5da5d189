"""Rewrites that look at attributes: moves of elements that undo each other or do nothing, and constants folded.

Only splat constants are folded, never arrays, and only by operations that every machine rounds alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from difflang.ir.builder import region
from difflang.ir.graph import Attr, Attrs, Eqn, Graph, Value
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F32, F64, I32, DType, Tensor, Type
from difflang.passes.simplify import Guarded, Rewriter, tensor

Found = Sequence[Value] | None


# ------------------------------------------------------------------------------------------------- constants


def canonical(to: Rewriter, eqn: Eqn) -> Found:
    """A constant holds a number of the kind of its type: 1.0, not 1, in floats."""
    value, type = eqn.attrs["value"], eqn.attrs["type"]
    if not isinstance(type, Tensor) or not isinstance(value, (int, float, complex)):
        return None
    exact = number_as(value, type.dtype)
    if exact is None or exact.__class__ is value.__class__:
        return None
    return to.emit(eqn, "const", value=exact, type=type)


def number_as(value: complex, dtype: DType) -> complex | None:
    """A number in the kind of a dtype, or None if it is not one of those."""
    if dtype.kind == "complex":
        return complex(value)
    if isinstance(value, complex):
        return None
    if dtype.kind == "float":
        return float(value) if abs(value) <= 2**53 or isinstance(value, float) else None
    if dtype is BOOL:
        return bool(value) if value in (0, 1) else None
    return int(value) if float("-inf") < value < float("inf") and value == int(value) else None


def folded(to: Rewriter, eqn: Eqn) -> Found:
    """An elementwise operation on constants is a constant; one that makes NaN or infinity stays, and can be found."""
    numbers = [to.number(v) for v in eqn.operands]
    if any(n is None for n in numbers) or any(tensor(v).dtype.kind == "complex" for v in eqn.operands):
        return None
    arrays = [np.full((), n, numpy_dtype(tensor(v).dtype)) for n, v in zip(numbers, eqn.operands, strict=True)]
    with np.errstate(all="ignore"):
        answer = np.asarray(eqn.op.reference(*arrays, **eqn.attrs))
    type = tensor(eqn.results[0])
    made = type.dtype.is_float and not np.isfinite(answer) and all(np.isfinite(a) for a in arrays)
    if type.dtype.kind == "complex" or made:
        return None
    value = bool(answer) if type.dtype is BOOL else float(answer) if type.dtype.is_float else int(answer)
    return to.emit(eqn, "const", value=value, type=type)


FOLDED = (
    "add", "sub", "mul", "div", "neg", "abs", "sign", "max", "min", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_not", "convert", "truncate",
)  # fmt: skip


def moved_constant(to: Rewriter, eqn: Eqn) -> Found:
    """The elements of a constant, moved, are a constant of another shape."""
    number = to.number(eqn.operands[0])
    return None if number is None else [to.const(eqn, number, eqn.results[0].type)]


# ------------------------------------------------------------------------------------- moves that do nothing


def ints(attr: Attr) -> tuple[int, ...]:
    assert isinstance(attr, tuple)
    return attr  # pyright: ignore[reportUnknownVariableType]


def zeros(x: Tensor) -> tuple[int, ...]:
    return (0,) * x.rank


UNMOVED: dict[str, Callable[[Attrs, Tensor], bool]] = {
    "reshape": lambda attrs, x: attrs["shape"] == x.shape,
    "broadcast": lambda attrs, x: attrs["shape"] == x.shape,
    "transpose": lambda attrs, x: attrs["perm"] == tuple(range(x.rank)),
    "reverse": lambda attrs, x: attrs["axes"] == (),
    "slice": lambda attrs, x: (attrs["starts"], attrs["stops"], attrs["steps"]) == (zeros(x), x.shape, (1,) * x.rank),
    "pad": lambda attrs, x: attrs["low"] == attrs["high"] == attrs["interior"] == zeros(x),
    "convert": lambda attrs, x: attrs["dtype"] is x.dtype,
    "truncate": lambda attrs, x: attrs["dtype"] is x.dtype,
    "integer_pow": lambda attrs, x: attrs["n"] == 1,
}


def unmoved(to: Rewriter, eqn: Eqn) -> Found:
    """A move that leaves every element where it is."""
    x = eqn.operands[0]
    return [x] if UNMOVED[eqn.op.name](eqn.attrs, tensor(x)) else None


def concat_of_one(to: Rewriter, eqn: Eqn) -> Found:
    return [eqn.operands[0]] if len(eqn.operands) == 1 else None


def concat_of_equals(to: Rewriter, eqn: Eqn) -> Found:
    """One piece of size 1 several times."""
    first, axis = eqn.operands[0], eqn.attrs["axis"]
    assert isinstance(axis, int)
    if tensor(first).shape[axis] != 1 or any(part is not first for part in eqn.operands):
        return None
    type = tensor(eqn.results[0])
    return to.emit(eqn, "broadcast", first, shape=type.shape, axes=tuple(range(type.rank)))


def any_of_broadcast(to: Rewriter, eqn: Eqn) -> Found:
    """Copies of truths: one of them holds if one of the truths does, and if there is a copy."""
    inner = to.maker(eqn.operands[0], "broadcast")
    if inner is None:
        return None
    gone, kept = ints(eqn.attrs["axes"]), ints(inner.attrs["axes"])
    if gone == () or 0 in [tensor(eqn.operands[0]).shape[a] for a in gone]:
        return None
    (truths,), within = inner.operands, tuple([i for i, a in enumerate(kept) if a in gone])
    if within:
        (truths,) = to.emit(eqn, "reduce_any", truths, axes=within)
    axes = tuple([a - sum([g < a for g in gone]) for a in kept if a not in gone])
    return to.emit(eqn, "broadcast", truths, shape=tensor(eqn.results[0]).shape, axes=axes)


def sum_of_nothing(to: Rewriter, eqn: Eqn) -> Found:
    """0, whatever the slope of what would be summed."""
    return [to.const(eqn, 0, eqn.results[0].type)] if 0 in tensor(eqn.operands[0]).shape else None


def reduced_nothing(to: Rewriter, eqn: Eqn) -> Found:
    """Not a sum, as that of -0.0 alone is 0.0; not a maximum, whose derivative at NaN is NaN."""
    return [eqn.operands[0]] if eqn.attrs["axes"] == () else None


# --------------------------------------------------------------------------------------- two moves are one


def transposed_twice(to: Rewriter, eqn: Eqn) -> Found:
    inner = to.maker(eqn.operands[0], "transpose")
    if inner is None:
        return None
    first = ints(inner.attrs["perm"])
    return to.emit(eqn, "transpose", inner.operands[0], perm=tuple([first[i] for i in ints(eqn.attrs["perm"])]))


def reshaped_twice(to: Rewriter, eqn: Eqn) -> Found:
    inner = to.maker(eqn.operands[0], "reshape")
    return None if inner is None else to.emit(eqn, "reshape", inner.operands[0], shape=eqn.attrs["shape"])


def broadcast_twice(to: Rewriter, eqn: Eqn) -> Found:
    inner = to.maker(eqn.operands[0], "broadcast")
    if inner is None:
        return None
    outer = ints(eqn.attrs["axes"])
    axes = tuple([outer[i] for i in ints(inner.attrs["axes"])])
    return to.emit(eqn, "broadcast", inner.operands[0], shape=eqn.attrs["shape"], axes=axes)


def broadcast_of_reshape(to: Rewriter, eqn: Eqn) -> Found:
    """New axes of size 1 need not be made before there are more of them."""
    inner = to.maker(eqn.operands[0], "reshape")
    if inner is None:
        return None
    shape, places = list(tensor(inner.operands[0]).shape), []
    for place, size in enumerate(tensor(eqn.operands[0]).shape):
        if len(places) < len(shape) and size == shape[len(places)]:
            places.append(place)
        elif size != 1:
            return None
    if len(places) < len(shape):
        return None
    axes = ints(eqn.attrs["axes"])
    return to.emit(eqn, "broadcast", inner.operands[0], shape=eqn.attrs["shape"], axes=tuple([axes[p] for p in places]))


def reversed_twice(to: Rewriter, eqn: Eqn) -> Found:
    inner = to.maker(eqn.operands[0], "reverse")
    if inner is None:
        return None
    once = set(ints(inner.attrs["axes"])) ^ set(ints(eqn.attrs["axes"]))
    return to.emit(eqn, "reverse", inner.operands[0], axes=tuple(sorted(once)))


# -------------------------------------------------------------------------------------------------- the table


def program(*types: Type) -> Callable[[Callable[..., Value]], Callable[[], Graph]]:
    return lambda f: lambda: region(types, lambda *xs: [f(*xs)])


MATRIX, VECTOR, INTS = Tensor(F32, (2, 3)), Tensor(F64, (3,)), Tensor(I32, (3,))
on_matrix, on_vector, on_ints = program(MATRIX), program(VECTOR), program(INTS)
on_truths = program(Tensor(BOOL, (3,)))


def apply(name: str, *operands: Value, **attrs: Attr) -> Value:
    return OPS[name].one(*operands, **attrs)


def wider(x: Value) -> Value:
    return apply("reshape", x, shape=(2, 1, 3))


def spread(x: Value, shape: tuple[int, ...], *axes: int) -> Value:
    return apply("broadcast", x, shape=shape, axes=axes)


def filled(x: Value, value: complex, type: Type | None = None) -> Value:
    return x.home.const(value, x.type if type is None else type)


SHAPES = (
    Guarded(("const",), canonical, (on_vector(lambda x: filled(x, 1)), on_ints(lambda x: filled(x, 2.0)))),
    Guarded(
        FOLDED,
        folded,
        (
            on_vector(lambda x: filled(x, 0.1) + filled(x, -0.2)),
            on_vector(lambda x: filled(x, -1.0) / filled(x, float("inf"))),
            on_matrix(lambda x: filled(x, 0.1) * filled(x, 0.1)),
            on_ints(lambda x: filled(x, 2**31 - 1) + filled(x, 1)),
            on_vector(lambda x: apply("lt", filled(x, 0.5), filled(x, float("nan")))),
            on_vector(lambda x: apply("truncate", filled(x, 1e300), dtype=I32)),
            on_vector(lambda x: apply("convert", filled(x, 0.1), dtype=F32)),
            on_vector(lambda x: -filled(x, 0.0)),
        ),
        need=(0, "const"),
    ),
    Guarded(
        ("reshape", "broadcast", "transpose", "reverse", "slice"),
        moved_constant,
        (
            on_matrix(lambda x: apply("reshape", filled(x, -0.0), shape=(6,))),
            on_matrix(lambda x: apply("broadcast", filled(x, 2.0), shape=(2, 4, 3), axes=(0, 2))),
            on_matrix(lambda x: apply("slice", filled(x, 2.0), starts=(0, 1), stops=(1, 1), steps=(1, 1))),
        ),
        need=(0, "const"),
    ),
    Guarded(
        tuple(UNMOVED),
        unmoved,
        (
            on_matrix(lambda x: apply("reshape", x, shape=(2, 3))),
            on_matrix(lambda x: apply("broadcast", x, shape=(2, 3), axes=(0, 1))),
            on_matrix(lambda x: apply("transpose", x, perm=(0, 1))),
            on_matrix(lambda x: apply("reverse", x, axes=())),
            on_matrix(lambda x: apply("slice", x, starts=(0, 0), stops=(2, 3), steps=(1, 1))),
            on_matrix(lambda x: apply("pad", x, filled(x, 1.0, Tensor(F32)), low=(0, 0), high=(0, 0), interior=(0, 0))),
            on_matrix(lambda x: apply("convert", x, dtype=F32)),
            on_ints(lambda x: apply("truncate", x, dtype=I32)),
            on_matrix(lambda x: apply("integer_pow", x, n=1)),
        ),
    ),
    Guarded(("concat",), concat_of_one, (on_matrix(lambda x: apply("concat", x, axis=1)),)),
    Guarded(
        ("concat",),
        concat_of_equals,
        (
            on_matrix(lambda x: apply("concat", *[wider(x)] * 2, axis=1)),
            on_truths(lambda p: apply("concat", *[apply("reshape", p, shape=(3, 1))] * 3, axis=1)),
        ),
    ),
    Guarded(
        ("reduce_any",),
        any_of_broadcast,
        (
            on_truths(lambda p: apply("reduce_any", spread(p, (2, 3, 4), 1), axes=(2,))),
            on_truths(lambda p: apply("reduce_any", spread(p, (2, 3, 4), 1), axes=(0, 2))),
            on_truths(lambda p: apply("reduce_any", spread(p, (2, 3, 4), 1), axes=(1, 2))),
        ),
        need=(0, "broadcast"),
    ),
    Guarded(
        ("reduce_sum",),
        sum_of_nothing,
        (program(Tensor(F64, (0, 3)))(lambda x: apply("reduce_sum", x, axes=(0,))),),
    ),
    Guarded(
        ("reduce_prod",),
        reduced_nothing,
        (on_matrix(lambda x: apply("reduce_prod", x, axes=())),),
    ),
    Guarded(
        ("transpose",),
        transposed_twice,
        (
            program(Tensor(F32, (2, 3, 4)))(
                lambda x: apply("transpose", apply("transpose", x, perm=(2, 0, 1)), perm=(0, 2, 1))
            ),
        ),
        need=(0, "transpose"),
    ),
    Guarded(
        ("reshape",),
        reshaped_twice,
        (on_matrix(lambda x: apply("reshape", apply("reshape", x, shape=(6,)), shape=(3, 2))),),
        need=(0, "reshape"),
    ),
    Guarded(
        ("broadcast",),
        broadcast_twice,
        (
            on_vector(
                lambda x: apply(
                    "broadcast", apply("broadcast", x, shape=(1, 3), axes=(1,)), shape=(4, 5, 3), axes=(0, 2)
                )
            ),
        ),
        need=(0, "broadcast"),
    ),
    Guarded(
        ("broadcast",),
        broadcast_of_reshape,
        (on_matrix(lambda x: apply("broadcast", wider(x), shape=(4, 2, 5, 3), axes=(1, 2, 3))),),
        need=(0, "reshape"),
    ),
    Guarded(
        ("reverse",),
        reversed_twice,
        (on_matrix(lambda x: apply("reverse", apply("reverse", x, axes=(0, 1)), axes=(1,))),),
        need=(0, "reverse"),
    ),
)
