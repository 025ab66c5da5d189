"""Drops unneeded batch axes of contractions (`dot_general`), so that one large product replaces many small ones.

A batch of products that is summed afterwards is one product with a longer contraction. A factor that is constant along
a batch axis is one factor, and that axis of the other factor becomes rows. This occurs for attention heads, which are
summed, and for the cotangents of weights that a batch shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from msgspec import Struct, field

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import tensor_type
from difflang.passes.contractions.contraction_order import NamedAxesProduct, attr_axes_pair
from difflang.passes.contractions.contraction_plan import ContractionFactor, broadcast_factor, strip_broadcasts
from difflang.passes.contractions.sums_to_contractions import sum_terms
from difflang.passes.graph_levels import rewrite_each_graph
from difflang.passes.rules.reshapes_and_constants import int_tuple

Axes = tuple[int, ...]


def drop_batch_axes(graph: Graph) -> Graph:
    """Contractions with fewer batch axes, which may add in another order; dce drops the dead rest. Cost: linear."""
    return rewrite_each_graph(graph, drop_level)


def drop_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    return BatchAxisLevel(graph).rewritten() if any(map(has_batch_axes, graph.eqns)) else graph


def has_batch_axes(eqn: Eqn) -> bool:
    return eqn.op is dot_general and bool(eqn.attrs["batch"][0])


class BatchedTerm(Struct, frozen=True):
    """A contraction whose sum over batch axes is a contraction too."""

    dot: Eqn
    sum: NamedAxesProduct


class ReplacementEquations(Struct):
    """Equations that replace one; their params stand for values of its graph."""

    builder: Builder
    params: dict[Value, Value] = field(default_factory=dict)
    result: Value | None = None

    def param(self, value: Value) -> Value:
        made = self.builder.param(value.type, value.hint)
        self.params[made] = value
        return made


class BatchAxisLevel:
    """Rewrites one graph, whose regions have been rewritten already."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {r: e for e in graph.eqns for r in e.results}
        self.readers = Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]])
        self.eqns: list[Eqn] = []
        self.to: dict[Value, Value] = {}

    def rewritten(self) -> Graph:
        for eqn in self.graph.eqns:
            if eqn.op is reduce_sum and (terms := self.summable_terms(eqn)):
                self.replace(eqn, self.total(eqn, terms))
            elif has_batch_axes(eqn) and (alike := self.constant_factor(eqn)):
                self.replace(eqn, self.emit_unbatched(eqn, *alike))
            else:
                self.eqns.append(eqn.replace_operands(self.to))
        return self.graph.with_eqns(self.eqns).replace_results(self.to)

    def replace(self, eqn: Eqn, built: ReplacementEquations) -> None:
        """Append the built equations instead of an equation."""
        to = {p: self.to.get(v, v) for p, v in built.params.items()}
        self.eqns += [e.replace_operands(to) for e in built.builder.eqns]
        assert built.result is not None
        self.to[eqn.results[0]] = built.result

    # ---- A batch that is summed

    def summable_terms(self, eqn: Eqn) -> list[BatchedTerm | Value]:
        """The terms under a sum over axes, if all but one are contractions with those axes in their batch."""
        axes = int_tuple(eqn.attrs["axes"])
        found = [self.batched_term(v, axes) or v for v in sum_terms(eqn.operands[0], self.made, self.readers)]
        # One other term may remain: it is summed by itself and added.
        others = sum([isinstance(t, Value) for t in found])
        return found if axes and others <= 1 and others < len(found) else []

    def batched_term(self, value: Value, summed: Axes) -> BatchedTerm | None:
        places = tuple(range(tensor_type(value).rank))
        while (eqn := self.made.get(value)) is not None and self.readers[value] == 1:
            if has_batch_axes(eqn):
                product = NamedAxesProduct.of(eqn)
                named = dict(zip(places, product.result, strict=True))
                if not {named[a] for a in summed} <= {*product.result[: len(attr_axes_pair(eqn, "batch")[0])]}:
                    return None
                left = tuple([named[a] for a in sorted(named) if a not in summed])
                return BatchedTerm(eqn, NamedAxesProduct(product.lhs, product.rhs, left))
            if not isinstance(eqn.op.movement, AxisPermutation):
                return None
            order = eqn.op.movement.order(**eqn.attrs)
            places = tuple([places[order.index(a)] for a in range(len(order))])
            (value,) = eqn.operands
        return None

    def total(self, eqn: Eqn, terms: Sequence[BatchedTerm | Value]) -> ReplacementEquations:
        """The sum of contractions over batch axes as one without them."""
        built = ReplacementEquations(Builder(span=eqn.span))

        def sum_term(term: BatchedTerm | Value) -> Value:
            if isinstance(term, Value):
                return built.builder.one("reduce_sum", built.param(term), axes=eqn.attrs["axes"])
            return term.sum.emit(built.builder, *map(built.param, term.dot.operands))

        built.result = reduce(lambda a, b: a + b, map(sum_term, terms))
        return built

    # ---- A factor that is constant along a batch axis

    def constant_factor(self, eqn: Eqn) -> tuple[int, ContractionFactor] | None:
        """The factor that is constant along batch axes (its side), and its value before the broadcast."""
        for side, axes in enumerate(attr_axes_pair(eqn, "batch")):
            factor = strip_broadcasts(eqn.operands[side], self.made)
            if not set(axes) <= set(factor.axes):
                return side, factor
        return None

    def emit_unbatched(self, eqn: Eqn, side: int, factor: ContractionFactor) -> ReplacementEquations:
        """The contraction in which those axes of the other factor are rows instead."""
        built, product = ReplacementEquations(Builder(span=eqn.span)), NamedAxesProduct.of(eqn)
        batch, shape = attr_axes_pair(eqn, "batch")[side], tensor_type(eqn.operands[side]).shape
        kept = [a for a in range(len(shape)) if a in factor.axes or a not in batch]
        operands = [built.param(factor.value if i == side else v) for i, v in enumerate(eqn.operands)]
        names, axes = [product.lhs, product.rhs], factor.axes
        if len(kept) > len(axes):  # it is broadcast along other axes too
            inner = ContractionFactor(operands[side], tuple(map(kept.index, axes)))
            operands[side], axes = broadcast_factor(inner, tuple([shape[a] for a in kept])), tuple(kept)
        names[side] = tuple([names[side][a] for a in axes])
        built.result = NamedAxesProduct(names[0], names[1], product.result).emit(built.builder, *operands)
        return built
