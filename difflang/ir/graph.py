"""The data structures of the IR: values, equations and graphs. A region is a graph inside an equation.

A `Graph` is params, equations in order and results; it is frozen and typed. Regions are closed: a body receives every
outside value as an operand. One value dominates another if it is defined on an earlier line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Label
from difflang.base.source import NO_SPAN, Span
from difflang.ir.tensor_types import Type

if TYPE_CHECKING:
    from difflang.ir.builder import Builder
    from difflang.ir.op import Op


class Value(Struct, eq=False):
    """A result of an equation or a param of a graph. `hint` is the user's name for it, `m.w`, or empty."""

    type: Final[Type]
    home: Final[Builder]
    hint: str = ""

    def __repr__(self) -> str:
        return f"<{self.hint or 'value'}: {self.type}>"

    def name_as_tangent_of(self, other: Value) -> None:
        """Take the name `d_x` if the other value is the user's `x` and this one has no name yet."""
        if other.hint and not self.hint:
            self.hint = other.hint if other.hint.startswith("d_") else f"d_{other.hint}"

    def __add__(self, other: Operand) -> Value:
        return apply_operator("add", self, other)

    def __radd__(self, other: complex) -> Value:
        return apply_operator("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return apply_operator("sub", self, other)

    def __rsub__(self, other: complex) -> Value:
        return apply_operator("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return apply_operator("mul", self, other)

    def __rmul__(self, other: complex) -> Value:
        return apply_operator("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return apply_operator("div", self, other)

    def __rtruediv__(self, other: complex) -> Value:
        return apply_operator("div", other, self)

    def __neg__(self) -> Value:
        return apply_operator("neg", self)


Values = tuple[Value, ...]
Operand = Value | complex


def apply_operator(name: str, *operands: Operand) -> Value:
    """Apply the op of that name; plain numbers become splat constants of the other operand's type."""
    values = [x for x in operands if isinstance(x, Value)]
    home, type = max([v.home for v in values], key=lambda builder: builder.depth), values[0].type
    return home.one(name, *[x if isinstance(x, Value) else home.const(x, type) for x in operands])


class ExternalObject:
    """An attribute that stands for an object outside the program, which no text can hold. Compared by identity."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"outside({self.name})"


# An attribute: hashable data known at compile time. Dtypes, dims and nested tuples are attributes too.
Attr = Any
Attrs = Mapping[str, Attr]


class Eqn(Struct, frozen=True, eq=False):
    """One use of an op: `results = op(operands, **attrs, regions)`."""

    op: Op
    operands: Values
    results: Values
    attrs: Attrs = {}
    regions: tuple[Graph, ...] = ()
    span: Span = NO_SPAN

    def __repr__(self) -> str:
        return f"<{self.op} at {self.span}>"

    @property
    def effectful(self) -> bool:
        """Whether it, or an equation in its regions, prints or can fail: it is never dropped, merged or reordered."""
        return bool(self.op.effect) or any(g.effectful for g in self.regions)

    def replace_operands(self, replacements: Mapping[Value, Value]) -> Eqn:
        """The same equation on other operands; itself if none is in `replacements`."""
        # Passes compare equations by identity to see what changed, so an unchanged one is returned, not copied.
        if replacements.keys().isdisjoint(self.operands):
            return self
        operands = tuple([replacements.get(v, v) for v in self.operands])
        return Eqn(self.op, operands, self.results, self.attrs, self.regions, self.span)

    def with_regions(self, regions: Iterable[Graph]) -> Eqn:
        """The same equation with other regions; itself if they are the same graphs."""
        new = tuple(regions)
        if new == self.regions:
            return self
        return Eqn(self.op, self.operands, self.results, self.attrs, new, self.span)


def with_eqn_span(error: DifflangError, eqn: Eqn) -> DifflangError:
    """The same error, at the equation's span, unless it already has a label."""
    if not eqn.span.is_known:
        return error
    label = (Label(eqn.span),)
    return DifflangError(*[d if d.labels else replace(d, labels=label) for d in error.diagnostics])


class Graph:
    """Params, equations in order, results. `name` is the function it came from, or empty."""

    # Compared and hashed by identity, so that passes can cache what they made of a shared graph.
    __slots__ = ("effectful", "eqns", "name", "params", "results")

    def __init__(self, params: Values, eqns: tuple[Eqn, ...], results: Values, name: str = "") -> None:
        self.params: Final = params
        self.eqns: Final = eqns
        self.results: Final = results
        self.name: Final = name
        self.effectful: Final = any([e.op.effect or (e.regions and e.effectful) for e in eqns])

    def __repr__(self) -> str:
        return f"<graph {self.name or 'without a name'}: {len(self.eqns)} equations>"

    @property
    def type(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        return tuple(p.type for p in self.params), tuple(r.type for r in self.results)

    def with_results(self, results: Iterable[Value]) -> Graph:
        return Graph(self.params, self.eqns, tuple(results), self.name)

    def with_eqns(self, eqns: Iterable[Eqn]) -> Graph:
        """The same graph with other equations; itself if they are the same ones."""
        new = tuple(eqns)
        if new == self.eqns:
            return self
        return Graph(self.params, new, self.results, self.name)

    def replace_results(self, replacements: Mapping[Value, Value]) -> Graph:
        """The same graph with other results; itself if none of its results is in `replacements`."""
        if replacements.keys().isdisjoint(self.results):
            return self
        return self.with_results([replacements.get(r, r) for r in self.results])

    def rename_values(self, to: Mapping[Value, Value]) -> Graph:
        """The same graph with other values for some, where they are defined and where they are read."""
        eqns: list[Eqn] = []
        for old in self.eqns:
            eqn = old.replace_operands(to)
            results = tuple([to.get(r, r) for r in eqn.results])
            eqns.append(Eqn(eqn.op, eqn.operands, results, eqn.attrs, eqn.regions, eqn.span))
        params = tuple([to.get(p, p) for p in self.params])
        return Graph(params, tuple(eqns), tuple([to.get(r, r) for r in self.results]), self.name)


def graphs_postorder(root: Graph) -> tuple[list[Graph], Counter[Graph]]:
    """Every graph inside `root` and itself, each after those that it uses; and how many regions each one is."""
    # An explicit stack: programs nest deeper than Python recurses.
    uses: Counter[Graph] = Counter()
    order: list[Graph] = []
    seen: set[Graph] = set()
    todo: list[tuple[Graph, bool]] = [(root, False)]
    while todo:
        graph, done = todo.pop()
        if done:
            order.append(graph)
        elif graph not in seen:
            seen.add(graph)
            todo.append((graph, True))
            if regions := [r for e in graph.eqns if e.regions for r in e.regions]:
                uses.update(regions)
                todo += [(r, False) for r in reversed(regions)]
    return order, uses


def rewrite_graphs(root: Graph, change: Callable[[Graph, Graph], Graph]) -> Graph:
    """`change(old, inside)` in the place of each graph `old`, where `inside` is that with its new regions.

    Cost: linear; a graph that is used many times is changed once.
    """
    done: dict[Graph, Graph] = {}
    for graph in graphs_postorder(root)[0]:
        eqns = [e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in graph.eqns]
        done[graph] = change(graph, graph.with_eqns(eqns))
    return done[root]


def nested_regions(graphs: Sequence[Graph], matches: Callable[[Eqn], bool]) -> set[Graph]:
    """The regions, at any depth, of the equations that `matches` accepts. `graphs` lists inner graphs first."""
    found: set[Graph] = set()
    for outer in reversed(graphs):
        for eqn in outer.eqns:
            if outer in found or matches(eqn):
                found.update(eqn.regions)
    return found
