"""Branches on the CPU to polynomial sines and cosines when all arguments are small, with the library's as fallback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from difflang.ir.graph import Attrs, Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, Tensor, Type
from difflang.ops.elementwise.vectorized_sincos import MAX_ARGUMENT, is_worth_vectorizing, sin_and_cos
from difflang.ops.op_factories import tensor_type
from difflang.passes.measured_rewrites import LEFT_OUT

# Distinct arguments per graph: each branch takes some 50 ms to compile.
MAX_BRANCHES = 16


def branch_on_small_arguments(eqns: Sequence[Eqn], in_loop: bool) -> tuple[Sequence[Eqn], list[Graph]]:
    """The same equations, with the sines and cosines of each argument in one branch, where the first of them stood, and
    the regions in which they stay the library's.

    Where XLA would have to compile sines of more than `MAX_BRANCHES` arguments nothing changes. Cost: linear.
    """
    of: dict[Value, list[Eqn]] = defaultdict(list)
    for eqn in eqns:
        if is_worth_vectorizing(eqn, in_loop):
            of[eqn.operands[0]].append(eqn)
    if not 0 < len(of) <= MAX_BRANCHES or "branch_on_small_arguments" in LEFT_OUT:
        return eqns, []
    first = {same[0]: branch(value, same) for value, same in of.items()}
    sines = {eqn for same in of.values() for eqn in same}
    steps = [step for eqn in eqns for step in (first.get(eqn, ()) if eqn in sines else (eqn,))]
    return steps, [choice.regions[1] for *_, choice in first.values()]


def branch(x: Value, same: Sequence[Eqn]) -> list[Eqn]:
    """The test whether all elements of an argument are near 0, and the conditional on it."""
    type, found = tensor_type(x), list[Eqn]()

    def emit(name: str, operands: Values, type: Type, attrs: Attrs | None = None) -> Value:
        result = Value(type, x.home)
        found.append(Eqn(OPS[name], operands, (result,), attrs or {}, (), same[0].span))
        return result

    size = emit("abs", (x,), type)
    limit = emit("const", (), type, {"value": MAX_ARGUMENT[type.dtype], "type": type})
    near = emit("lt", (size, limit), Tensor(BOOL, type.shape))
    all_near = emit("reduce_all", (near,), Tensor(BOOL), {"axes": tuple(range(type.rank))})
    results = tuple([e.results[0] for e in same])
    gives = tuple([e.op.name for e in same])
    polynomials = Eqn(sin_and_cos, (x,), results, {"gives": gives}, (), same[0].span)
    regions = Graph((x,), (polynomials,), results), Graph((x,), tuple(same), results)
    return [*found, Eqn(OPS["cond"], (all_near, x), results, {}, regions, same[0].span)]
