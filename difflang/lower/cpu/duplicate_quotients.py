"""Quotients of large arrays that several equations read are computed for each of them, on the CPU.

XLA's fusion there takes no costly operation into a kernel that has readers in two, and a sum that leads to one is kept
out as well: a shared quotient breaks a chain of elementwise steps in several kernels, each of which goes through memory
and begins again at the arguments. A division costs less. `-(-x / y)` is `x / y` to the last bit, and XLA does not see
that it is the same.

Source: InstructionFusion::ComputeGloballyUnfusible of OpenXLA.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor

MIN_ELEMENTS = 1 << 15  # elements; of fewer, one more kernel costs little


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
    return prod([n for n in shape if isinstance(n, int)]) >= MIN_ELEMENTS
