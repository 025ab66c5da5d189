"""Fuses `tanh` with its derivative for XLA on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn
from difflang.ops.elementwise.elementary_functions import sech2, tanh
from difflang.ops.elementwise.value_and_derivative import slopes_sharing_work, tanh_and_slope


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
