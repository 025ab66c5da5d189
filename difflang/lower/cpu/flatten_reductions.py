"""Sums over all elements of a product are taken over one axis, for XLA on the CPU.

It has vector code for a long axis; over several short ones it adds number after number, and it takes a reshape of what
is summed back. So the factors are made one row each, which costs nothing: their elements stay where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor

MIN_ELEMENTS = 256  # elements; of fewer the sum is done before a second kernel has begun
COPYING_OPS = ("broadcast", "transpose", "slice", "pad", "concat", "reverse")  # a row of these would be made in full


def flatten_reductions(eqns: Sequence[Eqn], results: Sequence[Value]) -> Sequence[Eqn]:
    """The same equations, each sum over all axes of a product that nobody else reads over one axis.

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
    """Whether a sum goes over all axes, of which there are several, and many elements."""
    type = total.operands[0].type
    if not isinstance(type, Tensor) or type.rank < 2 or total.attrs["axes"] != tuple(range(type.rank)):
        return False
    return prod([n for n in type.shape if isinstance(n, int)]) >= MIN_ELEMENTS


def flatten_sum(product: Eqn, total: Eqn) -> list[Eqn]:
    """The product of the factors as rows, and its sum."""
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
