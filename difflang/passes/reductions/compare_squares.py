"""Norms that are only compared with numbers: their squares are compared, which need neither a root nor a second sum.

Another reader of the norm would see it on the other side of the number: the compiler may round the terms of two sums
differently, and `if norm(x) <= 1.0 { acos(norm(x)) }` counts on one. So equal norms must be one value before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import DType, numpy_dtype
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.euclidean_norm import reduce_norm
from difflang.ops.op_factories import tensor_type
from difflang.passes.graph_levels import EquationEmitter, replace_equations, rewrite_each_graph
from difflang.passes.rules.value_properties import FULL_FLOATS, bound_of_squares

COMPARISONS = ("lt", "le", "gt", "ge")


def compare_squares(graph: Graph) -> Graph:
    """Compare the sums of squares, not the norms, where nothing else reads these. Cost: linear."""
    return rewrite_each_graph(graph, compare_level)


def compare_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    norms = {e.results[0]: e for e in graph.eqns if e.op is reduce_norm}
    if not norms:
        return graph
    numbers = {e.results[0]: e.attrs["value"] for e in graph.eqns if e.op is const}
    emitters, read = dict[Eqn, EquationEmitter](), set(graph.results)
    for eqn in graph.eqns:
        norm = norms.get(eqn.operands[0]) if eqn.op.name in COMPARISONS else None
        number = numbers.get(eqn.operands[1]) if norm is not None else None
        if (
            norm is not None
            and isinstance(number, (int, float))
            and is_usual(number, tensor_type(norm.results[0]).dtype)
        ):
            emitters[eqn] = partial(emit_comparison, eqn, norm, number)
        else:
            read.update(eqn.operands)
    return replace_equations(graph, {e: emit for e, emit in emitters.items() if e.operands[0] not in read})


def is_usual(number: float, dtype: DType) -> bool:
    """Whether the squares of norms about as large as a number neither overflow nor lose digits.

    Where a norm is not the root of the sum of squares, both are above or both are below such a number.
    """
    if dtype not in FULL_FLOATS:
        return False
    limits = np.finfo(numpy_dtype(dtype))
    # Squares below `tiny / eps` lose digits; 2^20 is the root of how many of them may be added.
    return bool(np.sqrt(limits.tiny / limits.eps) * 2**20 < number < np.sqrt(limits.max) / 2**20)


def emit_comparison(eqn: Eqn, norm: Eqn, number: float, builder: Builder, env: Mapping[Value, Value]) -> list[Value]:
    x, type = env[norm.operands[0]], tensor_type(norm.results[0])
    total = builder.one("reduce_sum", builder.one("mul", x, x), axes=norm.attrs["axes"])
    bound = builder.const(bound_of_squares(eqn.op.name, number, type.dtype), type)
    return [builder.one(eqn.op.name, total, bound)]
