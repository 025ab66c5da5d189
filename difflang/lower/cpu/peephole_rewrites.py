"""Quotients of large arrays that several equations read are computed for each of them, on the CPU.

XLA's fusion there takes no costly operation into a kernel that has readers in two, and a sum that leads to one is kept
out as well: a shared quotient breaks a chain of elementwise steps in several kernels, each of which goes through memory
and begins again at the arguments. A division costs less. `-(-x / y)` is `x / y` to the last bit, and XLA does not see
that it is the same.

Source: InstructionFusion::ComputeGloballyUnfusible of OpenXLA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, F64, Tensor
from difflang.ops.elementwise.elementary_functions import exp, sech2, tanh
from difflang.ops.elementwise.powers_and_logs import exp_sub
from difflang.ops.elementwise.value_and_derivative import slopes_sharing_work, tanh_and_slope
from difflang.ops.elementwise.vectorized_exp import vectorized_exp, vectorized_exp_sub

MIN_DUPLICATED_ELEMENTS = 1 << 15  # elements; of fewer, one more kernel costs little


def duplicate_quotients(eqns: Sequence[Eqn]) -> Sequence[Eqn]:
    """The same equations, each elementwise reader of a large quotient but the first with a quotient of its own."""
    quotients = {e.results[0]: e for e in eqns if e.op.name == "div" and is_large(e.results[0])}
    if not quotients:
        return eqns
    found: list[Eqn] = []
    read: set[Value] = set()
    for eqn in eqns:
        own: dict[Value, Value] = {}
        for value in dict.fromkeys(eqn.operands) if eqn.op.elementwise else ():
            if value in read:
                own[value] = emit_duplicate(quotients[value], found)
            elif value in quotients:
                read.add(value)
        found.append(eqn.replace_operands(own) if own else eqn)
    return found


def emit_duplicate(quotient: Eqn, to: list[Eqn]) -> Value:
    """The quotient once more, in a way that XLA takes for another."""
    x, y = quotient.operands
    for name, operands in (("neg", [x]), ("div", [None, y]), ("neg", [None])):
        result = Value(quotient.results[0].type, x.home)
        reads = tuple([to[-1].results[0] if v is None else v for v in operands])
        to.append(Eqn(OPS[name], reads, (result,), {}, (), quotient.span))
    return to[-1].results[0]


def is_large(value: Value) -> bool:
    shape = value.type.shape if isinstance(value.type, Tensor) else ()
    return prod([n for n in shape if isinstance(n, int)]) >= MIN_DUPLICATED_ELEMENTS


MIN_SUMMED_ELEMENTS = 256  # elements; of fewer the sum is done before a second kernel has begun
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
    return prod([n for n in type.shape if isinstance(n, int)]) >= MIN_SUMMED_ELEMENTS


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


SMALL_EXP_OPS = {exp: vectorized_exp, exp_sub: vectorized_exp_sub}
UNROLLED_SIZES = range(9, 33)  # last axes that XLA unrolls
VECTOR_WIDTH = 8  # numbers that it goes through at once
MAX_BYTES = 4096  # bytes: of more, XLA would have two threads share a kernel that is over before both have begun


def use_small_exp(eqns: Sequence[Eqn], results: Sequence[Value]) -> Sequence[Eqn]:
    """The same equations, exponentials of few numbers as ops of their own. Cost: linear."""
    wanted = {e for e in eqns if e.op in SMALL_EXP_OPS and is_scalarized(e)}
    if not wanted:
        return eqns
    readers = Counter([v for e in eqns for v in e.operands] + list(results))
    read_on = {v for e in eqns if e.op.elementwise for v in e.operands}
    found: list[Eqn] = []
    follows: set[Value] = set()  # what is made number by number of an exponential that is written out
    for eqn in eqns:
        after = not follows.isdisjoint(eqn.operands)
        if eqn in wanted and not after and (readers[eqn.results[0]] == 1 or eqn.results[0] not in read_on):
            eqn, after = Eqn(SMALL_EXP_OPS[eqn.op], eqn.operands, eqn.results, {}, (), eqn.span), True
        if after and eqn.op.elementwise:
            follows.update(eqn.results)
        found.append(eqn)
    return found


def is_scalarized(eqn: Eqn) -> bool:
    """Whether XLA asks for these exponentials one after the other."""
    type = eqn.results[0].type
    assert isinstance(type, Tensor)
    *others, last = type.shape or (1,)
    if type.dtype not in (F32, F64) or last not in UNROLLED_SIZES or type.bytes > MAX_BYTES:
        return False
    return not others or (type.dtype is F64 and (eqn.op is exp_sub or last % VECTOR_WIDTH > 0))


def fuse_tanh_derivative(eqns: Sequence[Eqn]) -> Sequence[Eqn]:
    """The same equations, those joined that are made together. Cost: two walks."""
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
