"""Rewrite rules for constants, and for reshapes, transposes, broadcasts and reverses that merge or do nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from difflang.ir.builder import build_region
from difflang.ir.graph import Attr, Attrs, Eqn, Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F32, F64, I32, DType, Tensor, Type, numpy_dtype
from difflang.ops.op_factories import tensor_type
from difflang.passes.rules.rewriter import GuardedRule, Replacement, Rewriter

# ---- Constants: only those filled with one number, and only by operations that every machine rounds alike


def canonicalize_constant(to: Rewriter, eqn: Eqn) -> Replacement:
    """Give a constant a number of the kind of its dtype: 1.0, not 1, for floats."""
    value, type = eqn.attrs["value"], eqn.attrs["type"]
    if not isinstance(type, Tensor) or not isinstance(value, (int, float, complex)):
        return None
    exact = number_in_dtype(value, type.dtype)
    if exact is None or exact.__class__ is value.__class__:
        return None
    return to.emit(eqn, "const", value=exact, type=type)


def number_in_dtype(value: complex, dtype: DType) -> complex | None:
    """A number converted to the kind of a dtype, or None if that would change it."""
    if dtype.kind == "complex":
        return complex(value)
    if isinstance(value, complex):
        return None
    if dtype.kind == "float":
        return float(value) if abs(value) <= 2**53 or isinstance(value, float) else None
    if dtype is BOOL:
        return bool(value) if value in (0, 1) else None
    return int(value) if float("-inf") < value < float("inf") and value == int(value) else None


def fold_constants(to: Rewriter, eqn: Eqn) -> Replacement:
    """Fold an elementwise operation on constants."""
    # One that makes NaN or infinity stays, so that `--check-nans` can report it.
    numbers = [to.number(v) for v in eqn.operands]
    if any(n is None for n in numbers) or any(tensor_type(v).dtype.kind == "complex" for v in eqn.operands):
        return None
    arrays = [np.full((), n, numpy_dtype(tensor_type(v).dtype)) for n, v in zip(numbers, eqn.operands, strict=True)]
    with np.errstate(all="ignore"):
        answer = np.asarray(eqn.op.reference(*arrays, **eqn.attrs))
    type = tensor_type(eqn.results[0])
    made = type.dtype.is_float and not np.isfinite(answer) and all(np.isfinite(a) for a in arrays)
    if type.dtype.kind == "complex" or made:
        return None
    value = bool(answer) if type.dtype is BOOL else float(answer) if type.dtype.is_float else int(answer)
    return to.emit(eqn, "const", value=value, type=type)


def fold_extremum(to: Rewriter, eqn: Eqn) -> Replacement:
    """Fold an extremum of constants, but for equal floats: of zeros of two signs engines keep different ones."""
    a, b = [to.number(v) for v in eqn.operands]
    return None if a == b and tensor_type(eqn.results[0]).dtype.is_float else fold_constants(to, eqn)


def fold_single_iota(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace an iota along an axis of size one by zeros: identity matrices of one row are such."""
    type, axis = eqn.attrs["type"], eqn.attrs["axis"]
    assert isinstance(type, Tensor)
    assert isinstance(axis, int)
    return to.emit(eqn, "const", value=0, type=type) if type.shape[axis] == 1 else None


FOLDABLE_OPS = tuple([op.name for op in OPS.values() if "correctly rounded" in op.traits])


def fold_moved_constant(to: Rewriter, eqn: Eqn) -> Replacement:
    """Fold a data movement of a constant array."""
    number = to.number(eqn.operands[0])
    return None if number is None else [to.const(eqn, number, eqn.results[0].type)]


# ---- No-ops, and reductions of broadcasts


def int_tuple(attr: Attr) -> tuple[int, ...]:
    assert isinstance(attr, tuple)
    return attr  # pyright: ignore[reportUnknownVariableType]


def zero_per_axis(x: Tensor) -> tuple[int, ...]:
    return (0,) * x.rank


NO_OP_CONDITIONS: dict[str, Callable[[Attrs, Tensor], bool]] = {
    "reshape": lambda attrs, x: attrs["shape"] == x.shape,
    "broadcast": lambda attrs, x: attrs["shape"] == x.shape,
    "transpose": lambda attrs, x: attrs["perm"] == tuple(range(x.rank)),
    "reverse": lambda attrs, x: attrs["axes"] == (),
    "slice": lambda attrs, x: (
        (attrs["starts"], attrs["stops"], attrs["steps"]) == (zero_per_axis(x), x.shape, (1,) * x.rank)
    ),
    "pad": lambda attrs, x: attrs["low"] == attrs["high"] == attrs["interior"] == zero_per_axis(x),
    "convert": lambda attrs, x: attrs["dtype"] is x.dtype,
    "truncate": lambda attrs, x: attrs["dtype"] is x.dtype,
    "integer_pow": lambda attrs, x: attrs["n"] == 1,
}


def drop_no_op(to: Rewriter, eqn: Eqn) -> Replacement:
    """Drop an operation that leaves every element as it is."""
    x = eqn.operands[0]
    return [x] if NO_OP_CONDITIONS[eqn.op.name](eqn.attrs, tensor_type(x)) else None


def drop_single_concat(to: Rewriter, eqn: Eqn) -> Replacement:
    return [eqn.operands[0]] if len(eqn.operands) == 1 else None


def concat_to_broadcast(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace the concatenation of one part of size 1 with itself by a broadcast."""
    first, axis = eqn.operands[0], eqn.attrs["axis"]
    assert isinstance(axis, int)
    if tensor_type(first).shape[axis] != 1 or any(part is not first for part in eqn.operands):
        return None
    type = tensor_type(eqn.results[0])
    return to.emit(eqn, "broadcast", first, shape=type.shape, axes=tuple(range(type.rank)))


def any_before_broadcast(to: Rewriter, eqn: Eqn) -> Replacement:
    """Compute `reduce_any` before a broadcast, unless the broadcast is along an empty axis."""
    inner = to.maker(eqn.operands[0], "broadcast")
    if inner is None:
        return None
    gone, kept = int_tuple(eqn.attrs["axes"]), int_tuple(inner.attrs["axes"])
    if gone == () or 0 in [tensor_type(eqn.operands[0]).shape[a] for a in gone]:
        return None
    (truths,), within = inner.operands, tuple([i for i, a in enumerate(kept) if a in gone])
    if within:
        (truths,) = to.emit(eqn, "reduce_any", truths, axes=within)
    axes = tuple([a - sum([g < a for g in gone]) for a in kept if a not in gone])
    return to.emit(eqn, "broadcast", truths, shape=tensor_type(eqn.results[0]).shape, axes=axes)


def fold_empty_sum(to: Rewriter, eqn: Eqn) -> Replacement:
    """Fold the sum of an empty array to 0."""
    return [to.const(eqn, 0, eqn.results[0].type)] if 0 in tensor_type(eqn.operands[0]).shape else None


def drop_empty_reduction(to: Rewriter, eqn: Eqn) -> Replacement:
    """Drop a product over no axes."""
    # There is no such rule for a sum, as that of -0.0 alone is 0.0, nor for a maximum, whose derivative at NaN is NaN.
    return [eqn.operands[0]] if eqn.attrs["axes"] == () else None


def at_most_zero(sizes: Sequence[Any]) -> bool:
    """Whether all are numbers, not names, and none is above 0."""
    return all(isinstance(n, int) and n <= 0 for n in sizes)


def crop_to_slice(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a padding that only removes elements by a slice."""
    x, low, high = tensor_type(eqn.operands[0]), int_tuple(eqn.attrs["low"]), int_tuple(eqn.attrs["high"])
    if eqn.attrs["interior"] != zero_per_axis(x) or not at_most_zero((*low, *high)):
        return None
    stops = tuple([n + h for n, h in zip(x.shape, high, strict=True)])
    return to.emit(eqn, "slice", eqn.operands[0], starts=tuple([-n for n in low]), stops=stops, steps=(1,) * x.rank)


# ---- Pairs of data movements


def merge_transposes(to: Rewriter, eqn: Eqn) -> Replacement:
    inner = to.maker(eqn.operands[0], "transpose")
    if inner is None:
        return None
    first = int_tuple(inner.attrs["perm"])
    return to.emit(eqn, "transpose", inner.operands[0], perm=tuple([first[i] for i in int_tuple(eqn.attrs["perm"])]))


def merge_reshapes(to: Rewriter, eqn: Eqn) -> Replacement:
    inner = to.maker(eqn.operands[0], "reshape")
    return None if inner is None else to.emit(eqn, "reshape", inner.operands[0], shape=eqn.attrs["shape"])


def merge_broadcasts(to: Rewriter, eqn: Eqn) -> Replacement:
    inner = to.maker(eqn.operands[0], "broadcast")
    if inner is None:
        return None
    outer = int_tuple(eqn.attrs["axes"])
    axes = tuple([outer[i] for i in int_tuple(inner.attrs["axes"])])
    return to.emit(eqn, "broadcast", inner.operands[0], shape=eqn.attrs["shape"], axes=axes)


def skip_reshape_in_broadcast(to: Rewriter, eqn: Eqn) -> Replacement:
    """Drop a reshape that only adds axes of size 1 before a broadcast."""
    inner = to.maker(eqn.operands[0], "reshape")
    if inner is None:
        return None
    shape, places = list(tensor_type(inner.operands[0]).shape), []
    for place, size in enumerate(tensor_type(eqn.operands[0]).shape):
        if len(places) < len(shape) and size == shape[len(places)]:
            places.append(place)
        elif size != 1:
            return None
    if len(places) < len(shape):
        return None
    axes = int_tuple(eqn.attrs["axes"])
    return to.emit(eqn, "broadcast", inner.operands[0], shape=eqn.attrs["shape"], axes=tuple([axes[p] for p in places]))


def merge_reverses(to: Rewriter, eqn: Eqn) -> Replacement:
    inner = to.maker(eqn.operands[0], "reverse")
    if inner is None:
        return None
    once = set(int_tuple(inner.attrs["axes"])) ^ set(int_tuple(eqn.attrs["axes"]))
    return to.emit(eqn, "reverse", inner.operands[0], axes=tuple(sorted(once)))


# ---- Sample programs and the table of rules


def sample_program(*types: Type) -> Callable[[Callable[..., Value]], Callable[[], Graph]]:
    return lambda f: lambda: build_region(types, lambda *xs: [f(*xs)])


MATRIX, VECTOR, INTS = Tensor(F32, (2, 3)), Tensor(F64, (3,)), Tensor(I32, (3,))
on_matrix, on_vector, on_ints = sample_program(MATRIX), sample_program(VECTOR), sample_program(INTS)
on_bools = sample_program(Tensor(BOOL, (3,)))


def apply_op(name: str, *operands: Value, **attrs: Attr) -> Value:
    return OPS[name].one(*operands, **attrs)


def sample_reshape(x: Value) -> Value:
    return apply_op("reshape", x, shape=(2, 1, 3))


def broadcast_to(x: Value, shape: tuple[int, ...], *axes: int) -> Value:
    return apply_op("broadcast", x, shape=shape, axes=axes)


def const_like(x: Value, value: complex, type: Type | None = None) -> Value:
    return x.home.const(value, x.type if type is None else type)


def one(x: Value) -> Value:
    return const_like(x, 1.0, Tensor(F32))


RESHAPE_AND_CONSTANT_RULES = (
    GuardedRule(
        ("const",),
        canonicalize_constant,
        (on_vector(lambda x: const_like(x, 1)), on_ints(lambda x: const_like(x, 2.0))),
    ),
    GuardedRule(
        ("iota",), fold_single_iota, (on_vector(lambda x: x.home.one("iota", type=Tensor(I32, (1, 3)), axis=0)),)
    ),
    GuardedRule(
        FOLDABLE_OPS,
        fold_constants,
        (
            on_vector(lambda x: const_like(x, 0.1) + const_like(x, -0.2)),
            on_vector(lambda x: const_like(x, -1.0) / const_like(x, float("inf"))),
            on_matrix(lambda x: const_like(x, 0.1) * const_like(x, 0.1)),
            on_ints(lambda x: const_like(x, 2**31 - 1) + const_like(x, 1)),
            on_vector(lambda x: apply_op("lt", const_like(x, 0.5), const_like(x, float("nan")))),
            on_vector(lambda x: apply_op("truncate", const_like(x, 1e300), dtype=I32)),
            on_vector(lambda x: apply_op("convert", const_like(x, 0.1), dtype=F32)),
            on_vector(lambda x: -const_like(x, 0.0)),
        ),
        operand_guard=(0, "const"),
    ),
    GuardedRule(
        ("max", "min"),
        fold_extremum,
        (
            on_ints(lambda x: apply_op("max", const_like(x, 3), const_like(x, 0))),
            on_ints(lambda x: apply_op("min", const_like(x, 0), const_like(x, 0))),
            on_vector(lambda x: apply_op("min", const_like(x, 0.5), const_like(x, -0.0))),
        ),
        operand_guard=(0, "const"),
    ),
    GuardedRule(
        ("reshape", "broadcast", "transpose", "reverse", "slice"),
        fold_moved_constant,
        (
            on_matrix(lambda x: apply_op("reshape", const_like(x, -0.0), shape=(6,))),
            on_matrix(lambda x: apply_op("broadcast", const_like(x, 2.0), shape=(2, 4, 3), axes=(0, 2))),
            on_matrix(lambda x: apply_op("slice", const_like(x, 2.0), starts=(0, 1), stops=(1, 1), steps=(1, 1))),
        ),
        operand_guard=(0, "const"),
    ),
    GuardedRule(
        tuple(NO_OP_CONDITIONS),
        drop_no_op,
        (
            on_matrix(lambda x: apply_op("reshape", x, shape=(2, 3))),
            on_matrix(lambda x: apply_op("broadcast", x, shape=(2, 3), axes=(0, 1))),
            on_matrix(lambda x: apply_op("transpose", x, perm=(0, 1))),
            on_matrix(lambda x: apply_op("reverse", x, axes=())),
            on_matrix(lambda x: apply_op("slice", x, starts=(0, 0), stops=(2, 3), steps=(1, 1))),
            on_matrix(lambda x: apply_op("pad", x, one(x), low=(0, 0), high=(0, 0), interior=(0, 0))),
            on_matrix(lambda x: apply_op("convert", x, dtype=F32)),
            on_ints(lambda x: apply_op("truncate", x, dtype=I32)),
            on_matrix(lambda x: apply_op("integer_pow", x, n=1)),
        ),
    ),
    GuardedRule(
        ("pad",),
        crop_to_slice,
        (on_matrix(lambda x: apply_op("pad", x, one(x), low=(0, -1), high=(-1, 0), interior=(0, 0))),),
    ),
    GuardedRule(("concat",), drop_single_concat, (on_matrix(lambda x: apply_op("concat", x, axis=1)),)),
    GuardedRule(
        ("concat",),
        concat_to_broadcast,
        (
            on_matrix(lambda x: apply_op("concat", *[sample_reshape(x)] * 2, axis=1)),
            on_bools(lambda p: apply_op("concat", *[apply_op("reshape", p, shape=(3, 1))] * 3, axis=1)),
        ),
    ),
    GuardedRule(
        ("reduce_any",),
        any_before_broadcast,
        (
            on_bools(lambda p: apply_op("reduce_any", broadcast_to(p, (2, 3, 4), 1), axes=(2,))),
            on_bools(lambda p: apply_op("reduce_any", broadcast_to(p, (2, 3, 4), 1), axes=(0, 2))),
            on_bools(lambda p: apply_op("reduce_any", broadcast_to(p, (2, 3, 4), 1), axes=(1, 2))),
        ),
        operand_guard=(0, "broadcast"),
    ),
    GuardedRule(
        ("reduce_sum",),
        fold_empty_sum,
        (sample_program(Tensor(F64, (0, 3)))(lambda x: apply_op("reduce_sum", x, axes=(0,))),),
    ),
    GuardedRule(
        ("reduce_prod",),
        drop_empty_reduction,
        (on_matrix(lambda x: apply_op("reduce_prod", x, axes=())),),
    ),
    GuardedRule(
        ("transpose",),
        merge_transposes,
        (
            sample_program(Tensor(F32, (2, 3, 4)))(
                lambda x: apply_op("transpose", apply_op("transpose", x, perm=(2, 0, 1)), perm=(0, 2, 1))
            ),
        ),
        operand_guard=(0, "transpose"),
    ),
    GuardedRule(
        ("reshape",),
        merge_reshapes,
        (on_matrix(lambda x: apply_op("reshape", apply_op("reshape", x, shape=(6,)), shape=(3, 2))),),
        operand_guard=(0, "reshape"),
    ),
    GuardedRule(
        ("broadcast",),
        merge_broadcasts,
        (
            on_vector(
                lambda x: apply_op(
                    "broadcast", apply_op("broadcast", x, shape=(1, 3), axes=(1,)), shape=(4, 5, 3), axes=(0, 2)
                )
            ),
        ),
        operand_guard=(0, "broadcast"),
    ),
    GuardedRule(
        ("broadcast",),
        skip_reshape_in_broadcast,
        (on_matrix(lambda x: apply_op("broadcast", sample_reshape(x), shape=(4, 2, 5, 3), axes=(1, 2, 3))),),
        operand_guard=(0, "reshape"),
    ),
    GuardedRule(
        ("reverse",),
        merge_reverses,
        (on_matrix(lambda x: apply_op("reverse", apply_op("reverse", x, axes=(0, 1)), axes=(1,))),),
        operand_guard=(0, "reverse"),
    ),
)
