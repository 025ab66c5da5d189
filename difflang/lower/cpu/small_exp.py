"""Exponentials of few numbers are written out in steps of loops, on the CPU, where XLA asks for one after the other.

It unrolls the loop over a short last axis, and what is unrolled stays so where the axis is all there is, several arrays
are read, or it is no whole number of vectors: each of 16 numbers takes 4 ns in f64 and 2.4 in f32, each of 16 by 16
differences of f64 1.7, where in a long vector it takes 1.2 and 0.25.

What is written out reads its argument four times, and XLA may make that again for each, and a quotient again for each
reader that it fuses it with. So an exponential stays as it is where it follows on another number by number, and where
one of several readers goes on number by number, as in the gradient of a `softmax`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import F32, F64, Tensor
from difflang.ops.elementwise.elementary_functions import exp
from difflang.ops.elementwise.powers_and_logs import exp_sub
from difflang.ops.elementwise.vectorized_exp import vectorized_exp, vectorized_exp_sub

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
