"""Peephole rewrites for XLA on the CPU: full sums, and `tanh` with its derivative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.ops.elementwise.elementary_functions import sech2, tanh
from difflang.ops.elementwise.value_and_derivative import slopes_sharing_work, tanh_and_slope

# ---- Full sums are flattened to one axis
# XLA vectorizes a sum over one long axis; over several short ones it adds scalars, and it undoes a reshape of the sum's
# operand. So the factors are reshaped instead, which costs nothing: their elements stay where they are.

# With fewer elements the sum is done before a second kernel has begun.
MIN_SUMMED_ELEMENTS = 256
# A flattened result of these would be materialized.
COPYING_OPS = ("broadcast", "transpose", "slice", "pad", "concat", "reverse")


def flatten_reductions(eqns: Sequence[Eqn], results: Sequence[Value]) -> Sequence[Eqn]:
    """The same equations, where each full sum of a product with no other reader runs over one axis.

    Cost: one walk.
    """
    makers = {e.results[0]: e for e in eqns if e.op.name in ("mul", "integer_pow")}
    sums = [e for e in eqns if e.op.name == "reduce_sum" and e.operands[0] in makers and is_full_reduction(e)]
    if not sums:
        return eqns
    readers = Counter([*results, *[v for e in eqns for v in e.operands]])
    spread = {r for e in eqns if e.op.name in COPYING_OPS for r in e.results}
    rows: dict[Eqn, list[Eqn]] = {}
    for total in sums:
        product = makers[total.operands[0]]
        if readers[product.results[0]] == 1 and not spread.intersection(product.operands):
            rows[product] = []
            rows[total] = flatten_sum(product, total)
    return [step for eqn in eqns for step in rows.get(eqn, [eqn])]


def is_full_reduction(total: Eqn) -> bool:
    """Whether a sum reduces all axes, of which there are several, and enough elements."""
    type = total.operands[0].type
    if not isinstance(type, Tensor) or type.rank < 2 or total.attrs["axes"] != tuple(range(type.rank)):
        return False
    return prod([n for n in type.shape if isinstance(n, int)]) >= MIN_SUMMED_ELEMENTS


def flatten_sum(product: Eqn, total: Eqn) -> list[Eqn]:
    """The product of the flattened factors, and its sum."""
    made: list[Eqn] = []
    rows = {v: flatten_operand(v, product, made) for v in dict.fromkeys(product.operands)}
    terms = flat_value_like(product.results[0])
    made.append(Eqn(product.op, tuple([rows[v] for v in product.operands]), (terms,), product.attrs, (), product.span))
    made.append(Eqn(total.op, (terms,), total.results, {**total.attrs, "axes": (0,)}, (), total.span))
    return made


def flatten_operand(value: Value, product: Eqn, made: list[Eqn]) -> Value:
    result = flat_value_like(value)
    assert isinstance(result.type, Tensor)
    made.append(Eqn(OPS["reshape"], (value,), (result,), {"shape": result.type.shape}, (), product.span))
    return result


def flat_value_like(value: Value) -> Value:
    assert isinstance(value.type, Tensor)
    return Value(value.type.reshaped(prod([n for n in value.type.shape if isinstance(n, int)])), value.home)


# ---- `tanh` and its derivative are one op, in loops


def fuse_tanh_derivative(eqns: Sequence[Eqn]) -> Sequence[Eqn]:
    """The same equations, with each `tanh` and `sech2` of one argument fused. Cost: two walks."""
    # Only in loops: elsewhere XLA may compute each in the kernel that reads it, whereas a shared exponential would be
    # stored.
    slopes = {e.operands[0]: e for e in slopes_sharing_work(eqns) if e.op is sech2}
    if not slopes:
        return eqns
    pairs: dict[Eqn, Eqn] = {}
    for eqn in eqns:
        slope = slopes.pop(eqn.operands[0], None) if eqn.op is tanh else None
        if slope is not None:
            results = (*eqn.results, *slope.results)
            pairs[eqn] = pairs[slope] = Eqn(tanh_and_slope, eqn.operands, results, {}, (), eqn.span)
    return list(dict.fromkeys([pairs.get(eqn, eqn) for eqn in eqns]))
