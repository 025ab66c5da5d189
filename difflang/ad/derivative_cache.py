"""The cache through which region rules linearize and transpose: each graph once for each set of active params."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ad import linearize as forward
from difflang.ad import taylor as series
from difflang.ad import transpose as backward
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import MaybeValue
from difflang.ops.ad_interface import (
    Cotangents,
    CotangentSum,
    JvpGraph,
    LinearizedGraph,
    Mask,
    MaybeValues,
    TransposedGraph,
    or_zeros,
    spread_by_mask,
)
from difflang.ops.loop.residual_selection import trim_residuals
from difflang.passes.dce import live_equations


class DerivativeCache:
    """Caches derivatives by graph identity, so a function called many times is differentiated once."""

    __slots__ = ("jvps", "lean", "linearized", "reused", "total", "transposed")

    def __init__(self, *, often: bool = False) -> None:
        self.total: CotangentSum | None = None
        # Whether a tangent graph runs many times: then it recomputes nothing, and everything it reads is a residual.
        self.reused = often
        self.lean: dict[tuple[Graph, Mask], LinearizedGraph] = {}
        self.linearized: dict[tuple[Graph, Mask, Mask], LinearizedGraph] = {}
        self.jvps: dict[tuple[Graph, Mask, Mask], JvpGraph] = {}
        self.transposed: dict[tuple[Graph, Mask, Cotangents, Cotangents], TransposedGraph] = {}

    def linearize(self, graph: Graph, active: Mask, force_active: Mask = ()) -> LinearizedGraph:
        """Primal and tangent in the `active` params; the `force_active` results get a tangent even if it is zero."""
        key = graph, active, force_active
        if key not in self.linearized:
            if force_active:
                plain = self.linearize(graph, active)
                found = (
                    forward.instantiate_tangents(plain, force_active)
                    if adds_active(force_active, plain.active)
                    else plain
                )
            else:
                found = forward.linearize(self, graph, active)
            self.linearized[key] = found
        return self.linearized[key]

    def linearize_lean(self, graph: Graph, active: Mask) -> LinearizedGraph:
        """The same where the tangent runs once: it recomputes what it can from fewer residuals."""
        if self.reused:
            return self.linearize(graph, active)
        key = graph, active
        if key not in self.lean:
            self.lean[key] = trim_residuals(self.linearize(graph, active))
        return self.lean[key]

    def jvp(self, graph: Graph, active: Mask, force_active: Mask = ()) -> JvpGraph:
        """Primal and tangent in one graph; the `force_active` results get a tangent even if it is zero."""
        key = graph, active, force_active
        if key not in self.jvps:
            if force_active:
                plain = self.jvp(graph, active)
                found = (
                    forward.instantiate_jvp_tangents(plain, force_active)
                    if adds_active(force_active, plain.active)
                    else plain
                )
            else:
                found = forward.jvp(self, graph, active)
            self.jvps[key] = found
        return self.jvps[key]

    def transpose(self, graph: Graph, linear: Mask, arriving: Cotangents, at_least: Cotangents = ()) -> TransposedGraph:
        """The transpose of a graph that is linear in its `linear` params, from the `arriving` cotangents.

        Those of the linear params are `at_least` what is asked: zeros if need be, with choices that hold everywhere.
        """
        key = graph, linear, arriving, at_least
        if key not in self.transposed:
            if at_least:
                plain = self.transpose(graph, linear, arriving)
                pairs = zip(plain.cotangents, at_least, linear, strict=True)
                leaving = tuple([max(ct, least) if is_linear else ct for ct, least, is_linear in pairs])
                enough = leaving == plain.cotangents
                found = plain if enough else backward.instantiate_cotangents(graph, plain, leaving)
            else:
                found = backward.transpose(self, graph, linear, arriving)
            self.transposed[key] = found
        return self.transposed[key]

    def push(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues
    ) -> tuple[list[Value], list[MaybeValue]]:
        """Emit a graph and its tangent in `builder`; returns the results and their tangents."""
        return forward.pushforward(self, graph, builder, xs, builder, dxs)

    def pull(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], wrt: Mask, cts: MaybeValues
    ) -> tuple[list[Value], list[MaybeValue]]:
        """Emit a graph and the transpose of its tangent; returns the results and the cotangents of the params."""
        # The tangent graph is transposed in place: the values that it captures are the builder's own.
        tangent = Builder(outer=builder)
        dxs = forward.tangent_params(tangent, graph.params, wrt)
        ys, dys = forward.pushforward(self, graph, builder, xs, tangent, dxs)
        pairs = [(tangent.capture(d), ct) for d, ct in zip(dys, cts, strict=True) if d is not None]
        eqns, _ = live_equations(tangent.eqns, [d for d, _ in pairs])
        env = {inside: outside for outside, inside in tangent.captures.items()}
        tangent.release()
        found = backward.pullback(self, eqns, builder, env, {d for d in dxs if d is not None}, pairs)
        return ys, [None if d is None else found.take(d) for d in dxs]

    def jet(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues, order: int, *, nests: bool = False
    ) -> list[list[Value]]:
        """Emit a graph along the line `xs + t dxs`: the Taylor coefficients of each result up to `order`.

        With `nests`, nested tangents give them where an op has no series. Errors: DL0412 without `nests`.
        """
        before = len(builder.eqns)
        try:
            found = series.jet(graph, builder, xs, dxs, order)
        except series.NoSeriesError:
            if not nests:
                raise
            del builder.eqns[before:]
            return self.nested_tangents(graph, builder, xs, dxs, order)
        return [series.emit_coefficients(builder, y, (True,) * order) for y in found]

    def nested_tangents(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues, order: int
    ) -> list[list[Value]]:
        """The same by a tangent of a tangent, and so on. Cost: doubles with each order."""
        given, types = [d for d in dxs if d is not None], [r.type for r in graph.results]
        moving = [i for i, type in enumerate(types) if type.tangent is not None]
        line = graph
        for n in range(1, order + 1):
            inner = Builder()
            points = [inner.param(v.type, v.hint) for v in (*graph.params, *given)]
            steps = spread_by_mask(points[len(xs) :], tuple([d is not None for d in dxs]))
            inputs = points[: len(line.params)]  # with the steps, from the second tangent on
            ys, dys = self.push(line, inner, inputs, [*steps, *[None] * (len(inputs) - len(xs))])
            last = [dys[i] for i in moving] if n == 1 else dys[-len(moving) :]
            terms = [or_zeros(inner, d, types[i]) for i, d in zip(moving, last, strict=True)]
            line = inner.finish([*ys, *[t if n == 1 else t / float(n) for t in terms]], name=graph.name)
        results = builder.inline(line, *xs, *given)
        found = [[y] for y in results[: len(types)]]
        for place, i in enumerate(moving):
            found[i] += results[len(types) + place :: len(moving)]
        return found


def adds_active(wanted: Mask, active: Mask) -> bool:
    return any(w and not a for w, a in zip(wanted, active, strict=True))
