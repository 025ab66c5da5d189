"""Norms that are only compared with numbers: their squares are compared, which need neither a root nor a second sum.

Another reader of the norm would see it on the other side of the number: the compiler may round the terms of two sums
differently, and `if norm(x) <= 1.0 { acos(norm(x)) }` counts on one. So where any norm of such an array is read
otherwise, in this graph or in a region, all stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import DType, numpy_dtype
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.euclidean_norm import reduce_norm
from difflang.ops.op_factories import tensor_type
from difflang.passes.graph_levels import replace_equations, rewrite_each_graph
from difflang.passes.rules.value_properties import FULL_FLOATS, bound_of_squares

COMPARISONS = ("lt", "le", "gt", "ge")
Compared = dict[Eqn, tuple[Eqn, float]]  # comparisons, each of a norm with a number


def compare_squares(graph: Graph) -> Graph:
    """Compare the sums of squares, not the norms, where nothing else may read these. Cost: linear."""
    graphs, _ = graphs_postorder(graph)
    others = {kind_of(e) for g in graphs for e in norms_read(g, compared_norms(g))}

    def compare_level(graph: Graph) -> Graph:
        emitters = {
            eqn: partial(emit_comparison, eqn, norm, number)
            for eqn, (norm, number) in compared_norms(graph).items()
            if kind_of(norm) not in others
        }
        return replace_equations(graph, emitters)

    return rewrite_each_graph(graph, compare_level) if any([compared_norms(g) for g in graphs]) else graph


def compared_norms(graph: Graph) -> Compared:
    """The comparisons of norms with numbers."""
    norms = {e.results[0]: e for e in graph.eqns if e.op is reduce_norm}
    numbers = {e.results[0]: e.attrs["value"] for e in graph.eqns if e.op is const} if norms else {}
    found: Compared = {}
    for eqn in graph.eqns if norms else ():
        norm = norms.get(eqn.operands[0]) if eqn.op.name in COMPARISONS else None
        number = numbers.get(eqn.operands[1]) if norm is not None else None
        if (
            norm is not None
            and isinstance(number, (int, float))
            and is_usual(number, tensor_type(norm.results[0]).dtype)
        ):
            found[eqn] = norm, number
    return found


def norms_read(graph: Graph, compared: Compared) -> list[Eqn]:
    """The norms that something else than these comparisons reads."""
    read = {v for e in graph.eqns if e not in compared for v in e.operands} | set(graph.results)
    return [e for e in graph.eqns if e.op is reduce_norm and e.results[0] in read]


def kind_of(norm: Eqn) -> tuple[object, object]:
    """What norms have in common that may be of one array: regions name it anew."""
    return norm.operands[0].type, norm.attrs["axes"]


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
