"""Functions that share their work are computed at once, on the CPU: a sine and a cosine, and `tanh` and its slope.

The latter only in loops: elsewhere XLA may make each where it is read, without writing it down; an exponential that
both read is an array. Sines and cosines are worth that.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ops.elementwise import sech2, tanh
from difflang.ops.sin_and_cos import fits, sin_and_cos
from difflang.ops.with_slope import beside, tanh_and_slope

BRANCHES = 16  # each takes some 50 ms to compile


def paired(eqns: Sequence[Eqn], inside: bool) -> Sequence[Eqn]:
    """The same equations, those joined that are made together, `inside` a loop or not. Cost: two walks."""
    eqns = circular(eqns, inside)
    slopes = {e.operands[0]: e for e in beside(eqns) if e.op is sech2} if inside else {}
    if not slopes:
        return eqns
    pairs: dict[Eqn, Eqn] = {}
    for eqn in eqns:
        slope = slopes.pop(eqn.operands[0], None) if eqn.op is tanh else None
        if slope is not None:
            results = (*eqn.results, *slope.results)
            pairs[eqn] = pairs[slope] = Eqn(tanh_and_slope, eqn.operands, results, {}, (), eqn.span)
    return list(dict.fromkeys([pairs.get(eqn, eqn) for eqn in eqns]))


def circular(eqns: Sequence[Eqn], inside: bool) -> Sequence[Eqn]:
    """Sines and cosines of many numbers by polynomials, those of one argument at once. Where XLA would have to compile
    more than `BRANCHES` of them they stay what they are.
    """
    found: dict[Value, dict[str, Eqn]] = {}
    for eqn in [e for e in eqns if fits(e, inside)]:
        found.setdefault(eqn.operands[0], {}).setdefault(eqn.op.name, eqn)
    to: dict[Eqn, Eqn] = {}
    for same in found.values() if len(found) <= BRANCHES else ():
        first = next(iter(same.values()))
        results = tuple([r for e in same.values() for r in e.results])
        joined = Eqn(sin_and_cos, first.operands, results, {"gives": tuple(same)}, (), first.span)
        to.update(dict.fromkeys(same.values(), joined))
    return list(dict.fromkeys([to.get(eqn, eqn) for eqn in eqns])) if to else eqns
