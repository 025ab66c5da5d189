"""A function and its slope are computed at once where they share their work, in loops and on the CPU.

Outside of loops XLA may make each where it is read, without writing it down; an exponential that both read is an array.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn
from difflang.ops.elementwise import tanh
from difflang.ops.with_slope import beside, tanh_and_slope


def paired(eqns: Sequence[Eqn]) -> Sequence[Eqn]:
    """The same equations, each slope that goes with a function made together with it. Cost: one walk."""
    slopes = {e.operands[0]: e for e in beside(eqns)}
    if not slopes:
        return eqns
    pairs: dict[Eqn, Eqn] = {}
    for eqn in eqns:
        slope = slopes.pop(eqn.operands[0], None) if eqn.op is tanh else None
        if slope is not None:
            results = (*eqn.results, *slope.results)
            pairs[eqn] = pairs[slope] = Eqn(tanh_and_slope, eqn.operands, results, {}, (), eqn.span)
    return list(dict.fromkeys([pairs.get(eqn, eqn) for eqn in eqns]))
