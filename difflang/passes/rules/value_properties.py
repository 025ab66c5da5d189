"""Rewrite rules by properties of values: nonnegative, selected twice, flags, constant along an axis, bounded iotas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F32, F64, I32, DType, Tensor, numpy_dtype
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.elementwise.linear_arithmetic import mul
from difflang.ops.op_factories import tensor_type
from difflang.passes.rules.reshapes_and_constants import apply_op, const_like, int_tuple, on_ints, on_matrix, on_vector
from difflang.passes.rules.rewriter import GuardedRule, Replacement, Rewriter

FULL_FLOATS = (F32, F64)  # half floats are widened before they are squared
SEARCH_DEPTH = 4  # how many equations back a property is searched for


def is_nonnegative(to: Rewriter, value: Value, depth: int = SEARCH_DEPTH) -> bool:
    """Whether a value is provably not negative and not -0.0. It may be NaN."""
    eqn = to.makers.get(value)
    if eqn is None or depth == 0 or not tensor_type(value).dtype.is_float:
        return False
    if (number := to.number(value)) is not None:
        return isinstance(number, float) and number > 0
    is_square = eqn.op is mul and eqn.operands[0] is eqn.operands[1]
    if "nonnegative" in eqn.op.traits or is_square:
        return True
    # The sum of nothing is 0, the greatest of nothing is -Inf.
    if "keeps sign" not in eqn.op.traits or 0 in tensor_type(eqn.operands[0]).shape:
        return False
    return all([is_nonnegative(to, v, depth - 1) for v in eqn.operands])


def drop_positive_guard(to: Rewriter, eqn: Eqn) -> Replacement:
    """Drop the guard of a logarithm's derivative where its operand is not negative."""
    return eqn.operands if is_nonnegative(to, eqn.operands[0]) else None


def move_constant_last(to: Rewriter, eqn: Eqn) -> Replacement:
    """Put the constant last in sums and products: a canonical order, in which cse and rules see equal ones."""
    x, y = eqn.operands
    return None if to.maker(y, "const") is not None else to.emit(eqn, eqn.op.name, y, x)


def simplify_nested_select(to: Rewriter, eqn: Eqn) -> Replacement:
    """Drop a select inside another one by the same condition."""
    # `select(p, f(select(p, x, y), w), z)` observes `f` only where `p` holds, so the inner select is `x`. So for `z`.
    truth = eqn.operands[0]
    for side in (1, 2):
        inner = to.makers.get(eqn.operands[side])
        if inner is None or not inner.op.elementwise or "select" in inner.op.traits:
            continue
        operands = tuple([selected_side(to, v, truth, side) for v in inner.operands])
        if operands != inner.operands:
            sides = list(eqn.operands)
            (sides[side],) = to.emit(inner, inner.op.name, *operands, **inner.attrs)
            return to.emit(eqn, "select", *sides)
    return None


def selected_side(to: Rewriter, value: Value, truth: Value, side: int) -> Value:
    """A value, or that operand of it if it is a select by the same condition."""
    choice = to.maker(value, "select")
    return choice.operands[side] if choice is not None and choice.operands[0] is truth else value


def flag_max_to_any(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace the maximum of flags, which are a positive number or 0, by a select on `reduce_any`."""
    chosen = to.maker(eqn.operands[0], "select")
    if chosen is None or 0 in tensor_type(eqn.operands[0]).shape:
        return None
    truth, there, elsewhere = chosen.operands
    number = to.number(there)
    if not isinstance(number, int) or number <= 0 or to.number(elsewhere) != 0:
        return None
    type = eqn.results[0].type
    some = to.emit(eqn, "reduce_any", truth, axes=int_tuple(eqn.attrs["axes"]))[0]
    return to.emit(eqn, "select", some, to.const(eqn, number, type), to.const(eqn, 0, type))


def delay_broadcast(to: Rewriter, eqn: Eqn) -> Replacement:
    """Compute an elementwise op before the broadcast of its operands, not after it."""
    if not all_broadcast_or_constant(to, eqn.operands):
        return None
    shape = tensor_type(eqn.results[0]).shape
    spreads = [to.maker(v, "broadcast") for v in eqn.operands]
    axes = tuple(sorted({a for s in spreads if s is not None for a in int_tuple(s.attrs["axes"])}))
    if all(size == 1 or a in axes for a, size in enumerate(shape)):
        return None
    inner, operands = tuple([shape[a] for a in axes]), list[Value]()
    for operand, made in zip(eqn.operands, spreads, strict=True):
        if made is None:
            number = to.number(operand)
            assert number is not None
            operands.append(to.const(eqn, number, Tensor(tensor_type(operand).dtype, inner)))
        else:
            places = tuple([axes.index(a) for a in int_tuple(made.attrs["axes"])])
            operands += to.emit(made, "broadcast", made.operands[0], shape=inner, axes=places)
    (once,) = to.emit(eqn, eqn.op.name, *operands, **eqn.attrs)
    return to.emit(eqn, "broadcast", once, shape=shape, axes=axes)


def all_broadcast_or_constant(to: Rewriter, operands: Sequence[Value]) -> bool:
    """Whether all operands are broadcasts or known numbers, and at least one is a broadcast."""
    found = False
    for operand in operands:
        made = to.makers.get(operand)
        if made is None:
            return False
        if made.op is broadcast:
            found = True
        elif to.number(operand) is None:
            return False
    return found


def drop_iota_clamp(to: Rewriter, eqn: Eqn) -> Replacement:
    """Drop the clamp of an iota whose values lie within the bounds."""
    low, counted, high = eqn.operands
    iota, least, most = to.maker(counted, "iota"), to.number(low), to.number(high)
    if iota is None or least is None or most is None or isinstance(least, complex) or isinstance(most, complex):
        return None
    size = tensor_type(counted).shape[iota.attrs["axis"]]
    return [counted] if isinstance(size, int) and least <= 0 and most >= size - 1 else None


def reduce_before_broadcast(to: Rewriter, eqn: Eqn) -> Replacement:
    """Compute a maximum, minimum, any or all before a broadcast, for types without a derivative."""
    made, summed = to.maker(eqn.operands[0], "broadcast"), int_tuple(eqn.attrs["axes"])
    x = tensor_type(eqn.operands[0])
    if made is None or x.dtype.differentiable or any(x.shape[a] == 0 for a in summed):
        return None
    axes = int_tuple(made.attrs["axes"])
    if all(a in axes for a in summed):
        return None
    inner = tuple([i for i, a in enumerate(axes) if a in summed])
    (once,) = to.emit(eqn, eqn.op.name, made.operands[0], axes=inner) if inner else (made.operands[0],)
    left = [a for a in range(x.rank) if a not in summed]
    places = tuple([left.index(a) for a in axes if a not in summed])
    return to.emit(eqn, "broadcast", once, shape=tensor_type(eqn.results[0]).shape, axes=places)


def compare_squared_root(to: Rewriter, eqn: Eqn) -> Replacement:
    """Compare what is not negative with the square of a number, not its square root with the number."""
    (x,), number = to.makers[eqn.operands[0]].operands, to.number(eqn.operands[1])
    type = tensor_type(x)
    if type.dtype not in FULL_FLOATS or not isinstance(number, (int, float)) or not is_nonnegative(to, x):
        return None
    limits = np.finfo(numpy_dtype(type.dtype))
    if number <= 0 or not limits.tiny < number * number < limits.max:
        return None
    return to.emit(eqn, eqn.op.name, x, to.const(eqn, bound_of_squares(eqn.op.name, number, type.dtype), type))


def bound_of_squares(comparison: str, number: float, dtype: DType) -> float:
    """With what to compare a value so that its root compares so with a positive number, to the last bit: roots are
    rounded, so that several squares have one root.
    """
    limit = numpy_dtype(dtype).type(number)
    upward = comparison in ("gt", "le")  # to the greatest square whose root is the number, or to the least one
    bound, end = limit * limit, limit.dtype.type(np.inf if upward else 0)
    reaches = np.less_equal if upward else np.greater_equal
    while not reaches(np.sqrt(bound), limit):
        bound = np.nextafter(bound, limit.dtype.type(0 if upward else np.inf))
    while reaches(np.sqrt(further := np.nextafter(bound, end)), limit):
        bound = further
    return float(bound)


# ---- Sample programs and the table of rules


def sample_squares(x: Value) -> Value:
    return apply_op("reduce_sum", x * x + const_like(x, 1.0), axes=(1,))


def sample_flags(p: Value) -> Value:
    type = Tensor(I32, (2, 3))
    return apply_op("reduce_max", apply_op("select", p, const_like(p, 7, type), const_like(p, 0, type)), axes=(0,))


def sample_nested_select(x: Value, name: str, *others: Value, side: int = 2) -> Value:
    truth, zero = apply_op("le", x, const_like(x, 0.0)), const_like(x, 0.0)
    pair = (lambda y: (zero, y)) if side == 2 else (lambda y: (y, zero))
    return apply_op("select", truth, *pair(apply_op(name, apply_op("select", truth, *pair(x)), *others)))


def sample_broadcast(x: Value, *axes: int) -> Value:
    return apply_op("broadcast", x, shape=(3, 3, 3), axes=axes)


def sample_clamped_iota(low: int, high: int, axis: int) -> Graph:
    type = Tensor(I32, (2, 3))

    def body(x: Value) -> list[Value]:
        iota = x.home.one("iota", type=type, axis=axis)
        return [apply_op("clamp", const_like(iota, low), iota, const_like(iota, high))]

    return build_region([type], body)


ELEMENTWISE_OPS = tuple([name for name, op in OPS.items() if op.elementwise])


def sample_compared_root(x: Value, name: str, number: float) -> Value:
    root = apply_op("sqrt", x * x)
    return apply_op(name, root, const_like(root, number))


VALUE_PROPERTY_RULES = (
    GuardedRule(
        ("lt", "le", "gt", "ge"),
        compare_squared_root,
        (
            on_vector(lambda x: sample_compared_root(x, "le", 0.1)),
            on_vector(lambda x: sample_compared_root(x, "ge", 3.0)),
        ),
        operand_guard=(0, "sqrt"),
    ),
    GuardedRule(
        ("positive",),
        drop_positive_guard,
        (
            on_matrix(lambda x: apply_op("positive", sample_squares(x))),
            on_vector(lambda x: apply_op("positive", apply_op("exp", x))),
            on_vector(lambda x: apply_op("positive", apply_op("abs", x))),
        ),
    ),
    GuardedRule(
        ("add", "mul"),
        move_constant_last,
        (on_vector(lambda x: const_like(x, 2.0) + x), on_ints(lambda x: const_like(x, 2) * x)),
        operand_guard=(0, "const"),
    ),
    GuardedRule(
        ("select",),
        simplify_nested_select,
        (
            on_vector(lambda x: sample_nested_select(x, "mul", x)),
            on_vector(lambda x: sample_nested_select(x, "exp", side=1)),
        ),
    ),
    GuardedRule(
        ("reduce_max",),
        flag_max_to_any,
        (lambda: build_region([Tensor(BOOL, (2, 3))], lambda p: [sample_flags(p)]),),
        operand_guard=(0, "select"),
    ),
    GuardedRule(
        ELEMENTWISE_OPS,
        delay_broadcast,
        (
            on_vector(lambda x: apply_op("exp", sample_broadcast(x, 1))),
            on_vector(lambda x: sample_broadcast(x, 1) * sample_broadcast(x, 2)),
            on_vector(lambda x: sample_broadcast(x, 1) / const_like(x, 3.0, Tensor(F64, (3, 3, 3)))),
            on_ints(
                lambda x: apply_op(
                    "select", sample_broadcast(apply_op("lt", x, const_like(x, 2)), 0), *[sample_broadcast(x, 2)] * 2
                )
            ),
        ),
    ),
    GuardedRule(
        ("clamp",),
        drop_iota_clamp,
        (
            lambda: sample_clamped_iota(0, 1, axis=0),
            lambda: sample_clamped_iota(-3, 2, axis=1),
            lambda: sample_clamped_iota(0, 7, axis=1),
        ),
        operand_guard=(1, "iota"),
    ),
    GuardedRule(
        ("reduce_any", "reduce_all", "reduce_max", "reduce_min"),
        reduce_before_broadcast,
        (
            on_ints(lambda x: apply_op("reduce_max", sample_broadcast(x, 1), axes=(0, 1))),
            on_ints(lambda x: apply_op("reduce_min", sample_broadcast(x, 2), axes=(0,))),
            on_ints(
                lambda x: apply_op(
                    "reduce_any", sample_broadcast(apply_op("lt", x, const_like(x, 2)), 1), axes=(0, 1, 2)
                )
            ),
        ),
        operand_guard=(0, "broadcast"),
    ),
)
