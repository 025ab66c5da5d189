"""The IR: a `Graph` is params, equations, results; frozen, typed, in order. A region is a graph inside an equation.

Regions are closed: what a body uses from outside arrives as an operand. Dominance is "defined on an earlier line".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from difflang.base.source import NOWHERE, Span
from difflang.ir.types import Type

if TYPE_CHECKING:
    from difflang.ir.builder import Builder
    from difflang.ir.op import Op


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A result of an equation or a param of a graph. `hint` is the user's name for it, `m.w`, or empty."""

    type: Type
    home: Builder
    hint: str = ""

    def __add__(self, other: Operand) -> Value:
        return operator("add", self, other)

    def __radd__(self, other: complex) -> Value:
        return operator("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return operator("sub", self, other)

    def __rsub__(self, other: complex) -> Value:
        return operator("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return operator("mul", self, other)

    def __rmul__(self, other: complex) -> Value:
        return operator("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return operator("div", self, other)

    def __rtruediv__(self, other: complex) -> Value:
        return operator("div", other, self)

    def __neg__(self) -> Value:
        return operator("neg", self)


Values = tuple[Value, ...]
Operand = Value | complex


def operator(name: str, *operands: Operand) -> Value:
    """Apply the op of that name; plain numbers become splat constants of the other operand's type."""
    from difflang.ir.op import OPS

    numbers = [i for i, x in enumerate(operands) if not isinstance(x, Value)]
    if not numbers:
        return OPS[name].one(*operands)  # pyright: ignore[reportArgumentType]  all of them are values
    like = next(x for x in operands if isinstance(x, Value))
    return OPS[name].one(*[x if isinstance(x, Value) else like.home.const(x, like.type) for x in operands])


# An attribute: hashable data known at compile time. Dtypes, dims and nested tuples are attributes too.
Attr = Any
Attrs = Mapping[str, Attr]


@dataclass(frozen=True, eq=False, slots=True)
class Eqn:
    """One use of an op: `results = op(operands, **attrs, regions)`."""

    op: Op
    operands: Values
    results: Values
    attrs: Attrs = field(default_factory=dict)
    regions: tuple[Graph, ...] = ()
    span: Span = NOWHERE

    @property
    def effectful(self) -> bool:
        """It, or something in its regions, prints or can fail: never dropped, merged or reordered."""
        return bool(self.op.effect) or any(g.effectful for g in self.regions)

    def renamed(self, to: Mapping[Value, Value]) -> Eqn:
        """The same equation on other operands; itself if none is in `to`."""
        if not any(v in to for v in self.operands):
            return self
        operands = tuple([to.get(v, v) for v in self.operands])
        return Eqn(self.op, operands, self.results, self.attrs, self.regions, self.span)

    def with_regions(self, regions: Iterable[Graph]) -> Eqn:
        """The same equation with other regions; itself if they are the same graphs."""
        new = tuple(regions)
        if all(a is b for a, b in zip(new, self.regions, strict=True)):
            return self
        return Eqn(self.op, self.operands, self.results, self.attrs, new, self.span)


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """Params, equations in order, results. `name` is the function it came from, or empty."""

    params: Values
    eqns: tuple[Eqn, ...]
    results: Values
    name: str = ""
    effectful: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "effectful", any(e.op.effect or (e.regions and e.effectful) for e in self.eqns))

    @property
    def type(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        return tuple(p.type for p in self.params), tuple(r.type for r in self.results)

    def with_results(self, results: Iterable[Value]) -> Graph:
        return replace(self, results=tuple(results))

    def with_eqns(self, eqns: Iterable[Eqn]) -> Graph:
        """The same graph with other equations; itself if they are the same ones."""
        new = tuple(eqns)
        if len(new) == len(self.eqns) and all(a is b for a, b in zip(new, self.eqns, strict=True)):
            return self
        return replace(self, eqns=new)

    def renamed_results(self, to: Mapping[Value, Value]) -> Graph:
        """The same graph giving other values; itself if none of its results is in `to`."""
        return self.with_results(to.get(r, r) for r in self.results) if any(r in to for r in self.results) else self
