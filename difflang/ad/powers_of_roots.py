"""Powers of roots: `norm(x)^2` has the derivative of `sum(x^2)`, also where the norm itself has none.

At 0 the rule of a root gives 0, Inf or NaN, whatever the power is. So a product that has a root as often as its degree
or more (`norm(x)^2`, `abs(x) * abs(x)`, `sqrt(s)^3`, `3.0 * hypot(x, y)^2`) is differentiated as a power of what is
under the root: of `r^m` with `r^d = s` the derivative is `(m / d) r^(m - d) ds`. The value stays as it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.elementwise.nonlinear_arithmetic import integer_pow
from difflang.passes.cse import cse

MAX_FACTORS = 8  # of a product; longer ones are taken as they are


class RootPower(Struct, frozen=True):
    """A product: a power of a root, with at least its degree, times other factors."""

    root: Eqn
    power: int
    others: Sequence[Value]

    @property
    def degree(self) -> int:
        assert self.root.op.root is not None
        return self.root.op.root.degree

    def radicand(self) -> Graph:
        """What is under the root, as a function of its operands."""
        return build_region([v.type for v in self.root.operands], lambda *xs: [self.radicand_of(*xs)])

    def without_root(self) -> Graph:
        """The whole product as a function of the operands of the root and the other factors."""
        types = [v.type for v in (*self.root.operands, *self.others)]
        count = len(self.root.operands)

        def product(*xs: Value) -> list[Value]:
            found = integer_pow.one(self.radicand_of(*xs[:count]), n=self.power // self.degree)
            for other in xs[count:]:
                found = found * other
            return [found]

        return build_region(types, product)

    def radicand_of(self, *xs: Value) -> Value:
        root = self.root.op.root
        assert root is not None
        found = root.radicand(*xs, **self.root.attrs)
        if root.domain is None or self.power > root.degree:
            return found  # a higher power has the radicand itself as a factor of its slope
        return found * root.domain(*xs)


def roots_and_products(graph: Graph) -> tuple[Graph, dict[Value, Eqn]]:
    """The graph with equal roots merged, and its roots and the products that may contain them, by their results."""
    if not any([e.op.root is not None for e in graph.eqns]):
        return graph, {}
    # Each `norm(x)` of `norm(x) * norm(x)` is a value of its own until then.
    graph = cse(graph)
    return graph, {e.results[0]: e for e in graph.eqns if e.op.root is not None or e.op.factors is not None}


def power_of_root(eqn: Eqn, makers: dict[Value, Eqn]) -> RootPower | None:
    """The result of a product as a power of a root times other factors, if it is one.

    It is no longer taken apart then where it is a factor itself.
    """
    if eqn.op.factors is None:
        return None
    factors = factors_of(eqn, makers)
    for factor in factors if len(factors) > 1 else ():
        root = makers.get(factor)
        if root is None or root.op.root is None:
            continue
        power = factors.count(factor)
        if power >= root.op.root.degree:
            makers.pop(eqn.results[0])
            return RootPower(root, power, [f for f in factors if f is not factor])
    return None


def factors_of(eqn: Eqn, makers: dict[Value, Eqn]) -> list[Value]:
    """The factors of a product, each as often as it occurs; the result itself if it is no product of a few."""
    if eqn.op.factors is None or not (factors := eqn.op.factors(eqn)):
        return [eqn.results[0]]
    found: list[Value] = []
    for factor in factors:
        made = makers.get(factor)
        found += [factor] if made is None else factors_of(made, makers)
        if len(found) > MAX_FACTORS:
            return [eqn.results[0]]
    return found
