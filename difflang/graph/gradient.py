"""The gradient as a function of graphs: from any values of a graph, towards any others, by the compiler's own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

import numpy as np

from difflang.ad.graph_gradient import GraphGradient, ShiftedGraph, SumCotangents, expand_in_place
from difflang.ad.graph_gradient import gradient as append_gradient
from difflang.analysis.zero_derivatives import find_dropped_derivatives
from difflang.base.diagnostics import InternalError
from difflang.base.errors import classify_errors
from difflang.base.source import NO_SPAN, Span, backward_span
from difflang.base.wording import count_of, with_article
from difflang.elaborate.reports.loss_messages import MAX_LABELS, loss_reason
from difflang.execution.check_failures import FAILURE_RESULTS
from difflang.graph.builder import GraphBuilder, require_function
from difflang.graph.computational_graph import Graph
from difflang.graph.edits import defining_graph
from difflang.graph.graph_errors import graph_error, verified
from difflang.graph.graph_passes import has_known_sizes
from difflang.graph.graph_view import Equation, GraphView, Value
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, graphs_postorder
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.graph import Value as IrValue
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import UnknownSize
from difflang.ir.tensor_types import DTYPES, FLOATS
from difflang.lower.capacity import is_unbounded
from difflang.ops.ad_interface import zeros

G = TypeVar("G", bound=Graph)
Unreachable = Literal["error", "zero"]
UNREACHABLE: tuple[Unreachable, ...] = ("error", "zero")
Aggregate = Callable[[GraphBuilder, list[Value]], Value]


def gradient(
    g: G,
    ys: Value | Sequence[Value],
    xs: Value | Sequence[Value],
    seeds: Sequence[Any] | None = None,
    *,
    unreachable: Unreachable = "error",
    aggregate: Aggregate | None = None,
    recompute: Callable[[Equation], bool] | None = None,
) -> G:
    """The graph with the derivative of `ys` towards each of `xs` as its outputs, in the types of `xs`.

    `ys` and `xs` are any values of the graph, intermediate ones too. The derivative is weighted by `seeds`, one for
    each of `ys`: a number, an array, a value of the graph, or a text, which names a new input. Without them each of
    `ys` is one real number, whose seed is 1. The values of `g` are values of the result too, so
    `d.with_outputs(loss, *d.outputs)` has the value beside its gradient.

    * `unreachable="zero"` gives zeros for one of `xs` on which no y depends, which is an error otherwise.
    * `aggregate(b, cotangents)` gives the sum of several cotangents of one value; `b` has every op as a method. By
      default they are added. Inside regions (loops, branches, calls) they always are.
    * `recompute(equation)` says of each equation whether its results are recomputed for the cotangents that need them,
      and not kept. Cotangents that meet where that happens are summed there first, and then with the others.

    Example: `dg.gradient(g, ys=g.outputs[0], xs=g["w"]).run(x, w)`.
    Errors: DL1250 for values that are not the graph's own; DL0401, DL0402 for values without a derivative, or without
    a seed; DL0404 for a seed of another type; DL0409 if no y depends on an x; DL0413 for a function of Python without
    a rule.
    """
    with classify_errors():
        if not isinstance(g, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error("DL1250", f"`gradient` takes a graph, not {with_article(type(g).__name__)}")
        if not isinstance(unreachable, str) or unreachable not in UNREACHABLE:  # pyright: ignore[reportUnnecessaryIsInstance]
            way = 'write `unreachable="error"` or `unreachable="zero"`'
            raise graph_error("DL1207", f"`unreachable` is not {unreachable!r:.40}", help=way)
        require_rules(g)
        start, merged = expand_in_place(g.ir)
        wanted, towards = own_values(g, ys, "ys"), own_values(g, xs, "xs")
        weighted = SeededGraph(g, start)
        cotangents = weighted.seeds(wanted, seeds)
        try:
            found = append_gradient(
                weighted.graph,
                [merged.get(y.ir, y.ir) for y in wanted],
                [merged.get(x.ir, x.ir) for x in towards],
                [merged.get(ct, ct) for ct in cotangents],
                sum_cotangents=None if aggregate is None else sum_function(aggregate),
                recomputed=set() if recompute is None else recomputed_values(start, recompute),
            )
        except (InternalError, TypeMismatch, UnknownSize) as fault:
            way = "give the sizes numbers: `g.with_sizes(n=3)`" if not has_known_sizes(start) else ""
            raise graph_error("DL1250", f"this graph has no gradient: {fault}", help=way) from fault
        require_limited(start, found.graph)
        if unreachable == "error":
            require_reached(weighted.graph, wanted, towards, found)
        outputs = found.graph.results[len(found.graph.results) - (FAILURE_RESULTS if g.can_fail else 0) :]
        return g.derive(verified(with_cotangents(found, towards, outputs)))


def require_rules(g: Graph) -> None:
    """Errors: DL1250 if functions had derivatives of their own, of which the graph knows nothing any more."""
    if g.dropped_rules:
        names = ", ".join([f"`{name}`" for name in g.dropped_rules])
        message = f"{names} had a derivative rule in the program, which this graph does not have any more"
        way = 'take the gradient of the graph as it was elaborated: `f.graph(…, stage="ir")`'
        raise graph_error("DL1250", message, help=way)


# ---- Which values


def own_values(g: Graph, values: Any, what: str) -> list[Value]:
    """The values as a list. Errors: DL1250 for anything but values of the graph; DL0401 if one has no derivative."""
    several = list(cast(Sequence[Any], values)) if isinstance(values, (list, tuple)) else [values]
    if not several:
        raise graph_error("DL1250", f"`{what}` is empty", help=f"name one value or more: `{what}=[…]`")
    for value in several:
        if not is_own(g, value):
            message = f"`%{value.name}: {value.type}` is a value of a region, which may run many times or never"
            way = 'take a value of the graph itself; `g.apply("inline")` makes the equations of calls its own'
            raise graph_error("DL1250", message, *at(value), help=way)
        if value.ir.type.tangent is None:
            kind = "a bool" if value.dtype == "bool" else "an integer"
            message = f"`%{value.name}` in `{what}` is {with_article(value.type)}: {kind} has no derivative"
            raise graph_error("DL0401", message, *at(value))
    return several


def is_own(g: Graph, value: Any) -> bool:
    """Whether a value is one of the graph itself, not of a region in it. Errors: DL1250 for anything else."""
    known = isinstance(value, Value) and g.defines(value.ir)
    return known or defining_graph(g.ir, value) is g.ir


def at(value: Value, text: str = "computed here") -> list[tuple[Span, str]]:
    return [] if value.span is None else [(value.span, text)]


class SeededGraph:
    """A graph, and the seeds of a gradient as values of it: constants and inputs are added."""

    def __init__(self, g: Graph, start: IrGraph) -> None:
        self.g, self.graph = g, start
        self.builder = GraphBuilder(Builder(span=backward_span(NO_SPAN)))

    def seeds(self, ys: Sequence[Value], seeds: Any) -> list[IrValue]:
        """A seed for each of `ys`. Errors: DL0402 for one that needs a seed; DL0404 for a wrong one."""
        given = cast(list[Any], list(seeds)) if isinstance(seeds, (list, tuple)) else [seeds] * len(ys)
        if seeds is not None and (not isinstance(seeds, (list, tuple)) or len(given) != len(ys)):
            way = "`seeds` is a list with one seed for each of `ys`"
            what = (
                count_of(len(given), "seed") if isinstance(seeds, (list, tuple)) else with_article(type(seeds).__name__)
            )
            raise graph_error("DL0404", f"`ys` has {count_of(len(ys), 'value')}, but `seeds` is {what}", help=way)
        inputs: list[IrValue] = []
        found = [self.seed(y, seed, inputs) for y, seed in zip(ys, given, strict=True)]
        eqns = (*self.graph.eqns, *self.builder.home.eqns)
        params = self.graph.params
        # Before the random key and the arrays of the file, which runs fill in.
        before = len(params) - self.g.filled_inputs
        params = (*params[:before], *inputs, *params[before:])
        self.graph = IrGraph(params, eqns, self.graph.results, self.graph.name)
        self.builder.home.release()
        return found

    def seed(self, y: Value, seed: Any, inputs: list[IrValue]) -> IrValue:
        if seed is None:
            if y.shape or DTYPES[y.dtype] not in FLOATS:
                way = 'pass `seeds`: a number fills an array, as in `seeds=[1.0]`; `seeds=["ct"]` makes an input `ct`'
                raise graph_error(
                    "DL0402", f"`%{y.name}` is {with_article(y.type)}, not one real number", *at(y), help=way
                )
            seed = 1.0
        if isinstance(seed, str):
            return self.input(y, seed, inputs)
        if isinstance(seed, Value):
            if not is_own(self.g, seed):
                raise graph_error("DL1250", f"the seed `%{seed.name}` is a value of a region, not of the graph itself")
            return self.of_type(seed, y)
        if isinstance(seed, (np.ndarray, np.generic)) or hasattr(seed, "__array__"):
            return self.of_type(self.builder.const(np.asarray(seed)), y)
        if isinstance(seed, bool) or not isinstance(seed, (int, float, complex)):
            way = "a seed is a number, an array of NumPy, a value of the graph, or the name of a new input"
            raise graph_error("DL0404", f"{with_article(type(seed).__name__)} is no seed of `%{y.name}`", help=way)
        return self.builder.const(seed, y).ir

    def of_type(self, seed: Value, y: Value) -> IrValue:
        if seed.type != y.type:
            message = f"the seed of `%{y.name}`, {with_article(y.type)}, is {with_article(seed.type)}"
            raise graph_error("DL0404", message, *at(y), help="neither sizes nor element types are converted")
        return seed.ir

    def input(self, y: Value, name: str, inputs: list[IrValue]) -> IrValue:
        if not name or name in [v.hint for v in (*self.graph.params, *inputs)]:
            message = f"the graph has an input `{name}`" if name else "an input has a name"
            raise graph_error("DL0404", message, help="a text among `seeds` names a new input")
        inputs.append(IrValue(y.ir.type, self.builder.home, name))
        return inputs[-1]


# ---- What the caller decides


def sum_function(aggregate: Aggregate) -> SumCotangents:
    """The caller's sum as a function of the IR. Errors: DL1250 for anything but a function that gives such a value."""
    require_function(aggregate, "`aggregate`")

    def total(home: Builder, cts: Sequence[IrValue]) -> IrValue:
        builder = GraphBuilder(home)
        found = aggregate(builder, [Value(ct, builder) for ct in cts])
        builder.closed = True
        if not isinstance(found, Value) or found.ir.type != cts[0].type:  # pyright: ignore[reportUnnecessaryIsInstance]
            what = with_article(found.type if isinstance(found, Value) else type(found).__name__)  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error(
                "DL1250", f"`aggregate` gives {what} as the sum of {len(cts)} values of type {cts[0].type}"
            )
        return builder.own(found)

    return total


def recomputed_values(graph: IrGraph, recompute: Callable[[Equation], bool]) -> set[IrValue]:
    """The results of the equations that the caller recomputes. Errors: DL1250 for an answer that is no bool."""
    if not callable(recompute):
        way = 'write `recompute=lambda equation: equation.op == "tanh"`'
        raise graph_error("DL1250", "`recompute` is a function of an equation", help=way)
    found: set[IrValue] = set()
    view = GraphView(graph)
    for equation in view.equations:
        answer = recompute(equation)
        if not isinstance(answer, (bool, np.bool_)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error("DL1250", f"`recompute` gives True or False, not {with_article(type(answer).__name__)}")
        if answer:
            found.update(equation.ir.results)
    return found


# ---- Cotangents that are zero


def with_cotangents(found: GraphGradient, xs: Sequence[Value], others: Sequence[IrValue]) -> IrGraph:
    """The graph with the cotangents as its results, before others; those that are missing are zeros."""
    builder = Builder(span=backward_span(NO_SPAN))
    zero: dict[Value, IrValue] = {}
    for x, ct in zip(xs, found.cotangents, strict=True):
        if ct is None and x not in zero:
            zero[x] = zeros(builder, x.ir.type)
    cts = [zero[x] if ct is None else ct for x, ct in zip(xs, found.cotangents, strict=True)]
    graph = found.graph
    return IrGraph(graph.params, (*graph.eqns, *builder.eqns), (*cts, *others), graph.name)


def require_limited(before: IrGraph, after: IrGraph) -> None:
    """Errors: DL1250 if a loop without a limit stores something for every step that it could take."""
    known = set(before.eqns)
    for graph in graphs_postorder(after)[0]:
        for eqn in graph.eqns:
            if eqn not in known and any([is_unbounded(r.type) for r in eqn.results]):
                message = (
                    "the gradient stores something for each step of a loop, and this graph does not limit their number"
                )
                way = 'take the gradient of the graph as it was elaborated: `f.graph(…, stage="ir")`'
                raise graph_error("DL1250", message, (eqn.span, "this loop"), help=way)


def require_reached(graph: IrGraph, ys: Sequence[Value], xs: Sequence[Value], found: GraphGradient) -> None:
    """Errors: DL0409 for the first of `xs` that has no cotangent, with the lines where its paths end."""
    missing = next((x for x, ct in zip(xs, found.cotangents, strict=True) if ct is None), None)
    if missing is None:
        return
    shifted = ShiftedGraph(graph, [missing.ir])
    moved = next(i for i, p in enumerate(shifted.graph.params) if p in shifted.origin)
    whole = shifted.graph.with_results([shifted.read(y.ir) for y in ys])
    steps = dict.fromkeys([s.path[-1] for lost in find_dropped_derivatives(whole, 1 << moved) for s in lost])
    which = f"`%{ys[0].name}`" if len(ys) == 1 else "each of `ys`"
    way = 'if 0 is intended: `unreachable="zero"`'
    if steps:
        labels = [(eqn.span, loss_reason(eqn)) for eqn in steps][:MAX_LABELS]
        message = f"the derivative of {which} with respect to `%{missing.name}` is 0: no path carries it there"
        ops = ", ".join(dict.fromkeys([f"`{eqn.op}`" for eqn in steps]))
        raise graph_error("DL0409", f"{message}, because of {ops}", *labels, help=way)
    last = last_readers(graph, missing.ir)
    labels = [(eqn.span, "a path from it ends here") for eqn in last] or at(missing)
    which = f"{which} does not depend" if len(ys) == 1 else "none of `ys` depends"
    raise graph_error("DL0409", f"{which} on `%{missing.name}`: the derivative is 0", *labels, help=way)


def last_readers(graph: IrGraph, x: IrValue) -> list[Eqn]:
    """The equations that a value leads to, and that lead nowhere themselves."""
    known = {x}
    readers: list[Eqn] = []
    for eqn in graph.eqns:
        if not known.isdisjoint(eqn.operands):
            readers = [r for r in readers if set(r.results).isdisjoint(eqn.operands)]
            readers.append(eqn)
            known.update(eqn.results)
    return readers
