"""The graph builder: appends equations one at a time. A nested builder captures the values it uses from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from difflang.base.diagnostics import InternalError
from difflang.base.source import NO_SPAN, Span
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, STRICT_SOLVER, Op, TypeSolver, result_types
from difflang.ir.tensor_types import Type


class Builder:
    """A graph under construction.

    A value of the `outer` builder (or of one further out) that is used here becomes a param of the finished graph.
    `captures` maps each such value, as `outer` sees it, to its param, in order of first use.
    """

    __slots__ = ("captures", "depth", "eqns", "outer", "params", "solver", "span")

    def __init__(self, outer: Builder | None = None, span: Span = NO_SPAN, solver: TypeSolver = STRICT_SOLVER) -> None:
        self.outer = outer
        # How the types of operands are compared: strictly in a graph, by unification while a definition is checked.
        self.solver: TypeSolver = solver if outer is None else outer.solver
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.params: list[Value] = []
        self.eqns: list[Eqn] = []
        self.captures: dict[Value, Value] = {}
        self.span = span  # the source position of equations emitted from now on

    def param(self, type: Type, hint: str = "") -> Value:
        value = Value(type, self, hint)
        self.params.append(value)
        return value

    def capture(self, value: Value) -> Value:
        """The value as this builder sees it: its own, or the param through which it is captured."""
        if value.home is self:
            return value
        if self.outer is None:
            raise InternalError(f"a {value.type} ({value.hint or 'unnamed'}) does not belong to this graph")
        outside = self.outer.capture(value)
        if outside not in self.captures:
            self.captures[outside] = Value(value.type, self, value.hint)
        return self.captures[outside]

    def emit(
        self,
        op: Op,
        operands: Sequence[Value],
        regions: tuple[Graph, ...] = (),
        *,
        span: Span | None = None,
        hints: Sequence[str] = (),
        **attrs: Any,
    ) -> Values:
        """Append an equation and return its results. Errors: TypeMismatch if the op rejects the operands."""
        owned = tuple([v if v.home is self else self.capture(v) for v in operands])
        types = result_types(op, [v.type for v in owned], regions, attrs, self.solver)
        return self.append(op, owned, types, regions, span=span, hints=hints, **attrs)

    def append(
        self,
        op: Op,
        operands: Values,
        types: tuple[Type, ...],
        regions: tuple[Graph, ...] = (),
        *,
        span: Span | None = None,
        hints: Sequence[str] = (),
        **attrs: Any,
    ) -> Values:
        """Append an equation whose result types are known already, on operands of this builder."""
        # `tuple([...])`, here and all over the package: faster than `tuple` of a generator.
        if hints:
            results = tuple([Value(t, self, h) for t, h in zip(types, hints, strict=True)])
        else:
            results = tuple([Value(t, self) for t in types])
        self.eqns.append(Eqn(op, operands, results, attrs, regions, self.span if span is None else span))
        return results

    def one(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """Emit the op of that name, which has one result."""
        (result,) = self.emit(OPS[name], operands, **attrs)
        return result

    def const(self, value: complex, type: Type) -> Value:
        """An array filled with one number (or an empty history)."""
        return self.one("const", value=value, type=type)

    def inline(self, graph: Graph, *args: Value) -> list[Value]:
        """Copy a graph's equations here with its params replaced by `args`; returns its results."""
        env = dict(zip(graph.params, map(self.capture, args), strict=True))
        for eqn in graph.eqns:
            results = self.copy(eqn, tuple([env[v] for v in eqn.operands]))
            env.update(zip(eqn.results, results, strict=True))
        return [env[r] for r in graph.results]

    def copy(self, eqn: Eqn, operands: Values, span: Span | None = None) -> Values:
        """The same equation on other operands of this builder, maybe at another position."""
        # The operands have the same types as before, so the type rule is not run again.
        results = tuple([Value(r.type, self, r.hint) for r in eqn.results])
        self.eqns.append(Eqn(eqn.op, operands, results, eqn.attrs, eqn.regions, eqn.span if span is None else span))
        return results

    def finish(self, results: Iterable[Value], params: Iterable[Value] | None = None, name: str = "") -> Graph:
        """The finished graph. Captured values come after the params, unless `params` gives the whole list in order."""
        owned = tuple(map(self.capture, results))
        order = (*self.params, *self.captures.values()) if params is None else params
        graph = Graph(tuple(order), tuple(self.eqns), owned, name)
        self.release()
        return graph

    def release(self) -> None:
        """Drop the references to everything that was built."""
        # Values refer to their builder: this breaks the reference cycle, which would wait for the garbage collector.
        self.params, self.eqns, self.captures = [], [], {}


def build_region(types: Iterable[Type], body: Callable[..., Iterable[Value]], name: str = "") -> Graph:
    """A closed graph from a Python function over its params."""
    builder = Builder()
    params = [builder.param(t) for t in types]
    return builder.finish(body(*params), name=name)
