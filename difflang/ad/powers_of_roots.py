"""Powers of roots: `norm(x)^2` has the derivative of `sum(x^2)`, also where the norm itself has none.

At 0 the rule of a root gives 0, Inf or NaN, whatever the power is. So a product that has a root as often as its degree
or more (`norm(x)^2`, `abs(x) * abs(x)`, `sqrt(s)^3`, `3.0 * hypot(x, y)^2`) is differentiated as a power of what is
under the root: of `r^m` with `r^d = s` the derivative is `(m / d) r^(m - d) ds`. The value stays as it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import Factors, Root
from difflang.ops.elementwise.nonlinear_arithmetic import integer_pow
from difflang.passes.cse import cse

# A product of more factors, or of higher powers, is taken as it is.
MAX_FACTORS = 8
MAX_POWER = 1024


class RootPower(Struct, frozen=True):
    """A product: a power of a root, with at least its degree, times powers of other factors."""

    root: Eqn
    power: int
    others: Mapping[Value, int]

    @property
    def degree(self) -> int:
        assert isinstance(self.root.op.powers, Root)
        return self.root.op.powers.degree

    def radicand(self) -> Graph:
        """What is under the root, as a function of its operands."""
        return build_region([v.type for v in self.root.operands], lambda *xs: [self.radicand_of(*xs)])

    def without_root(self) -> Graph:
        """The whole product as a function of the operands of the root and the other factors."""
        types = [v.type for v in (*self.root.operands, *self.others)]
        count = len(self.root.operands)

        def product(*xs: Value) -> list[Value]:
            found = integer_pow.one(self.radicand_of(*xs[:count]), n=self.power // self.degree)
            for other, n in zip(xs[count:], self.others.values(), strict=True):
                found = found * to_power(other, n)
            return [found]

        return build_region(types, product)

    def radicand_of(self, *xs: Value) -> Value:
        root = self.root.op.powers
        assert isinstance(root, Root)
        found = root.radicand(*xs, **self.root.attrs)
        if root.domain is None or self.power > root.degree:
            return found  # a higher power has the radicand itself as a factor of its slope
        return found * root.domain(*xs)


def to_power(x: Value, n: int) -> Value:
    return x if n == 1 else integer_pow.one(x, n=n)


class FactorSearch:
    """The roots and products of a graph, found in the order of its equations."""

    def __init__(self) -> None:
        self.roots: dict[Value, Eqn] = {}
        self.products: dict[Value, Mapping[Value, int]] = {}  # of others than powers of roots
        self.powers: dict[Value, RootPower] = {}

    def add(self, eqn: Eqn) -> None:
        if isinstance(eqn.op.powers, Root):
            self.roots[eqn.results[0]] = eqn
        if not isinstance(eqn.op.powers, Factors):
            return
        counts: dict[Value, int] = {}
        for operand, n in eqn.op.powers.of(eqn):
            for factor, k in self.products.get(operand, {operand: 1}).items():
                counts[factor] = counts.get(factor, 0) + n * k
        if not counts or len(counts) > MAX_FACTORS or max(counts.values()) > MAX_POWER:
            return
        if (power := self.power_of_root(counts)) is not None:
            self.powers[eqn.results[0]] = power
        else:
            self.products[eqn.results[0]] = counts

    def power_of_root(self, counts: Mapping[Value, int]) -> RootPower | None:
        """A product of several factors that have the same root, if together they have it as often as its degree."""
        for root in dict.fromkeys([r for f in counts if (r := self.root_of(f)) is not None]):
            sharing = [f for f in counts if self.root_of(f) is root]
            power = sum([counts[f] * self.powers[f].power if f in self.powers else counts[f] for f in sharing])
            # A single factor that is a power of a root has the right derivative itself.
            enough = isinstance(root.op.powers, Root) and root.op.powers.degree <= power <= MAX_POWER
            if enough and sum([counts[f] for f in sharing]) > 1:
                return RootPower(root, power, self.others(counts, sharing))
        return None

    def root_of(self, factor: Value) -> Eqn | None:
        return self.powers[factor].root if factor in self.powers else self.roots.get(factor)

    def others(self, counts: Mapping[Value, int], sharing: list[Value]) -> Mapping[Value, int]:
        """The factors that do not have the root, those of its powers included."""
        found = {f: n for f, n in counts.items() if f not in sharing}
        for power in sharing:
            for other, n in self.powers[power].others.items() if power in self.powers else ():
                found[other] = found.get(other, 0) + n * counts[power]
        return found


def powers_of_roots(graph: Graph) -> tuple[Graph, Mapping[Value, RootPower]]:
    """The graph with equal roots merged, and the results in it that are powers of roots.

    Cost: linear in the number of equations.
    """
    if not any([isinstance(e.op.powers, Root) for e in graph.eqns]):
        return graph, {}
    # Each `norm(x)` of `norm(x) * norm(x)` is a value of its own until then.
    graph, search = cse(graph), FactorSearch()
    for eqn in graph.eqns:
        search.add(eqn)
    return graph, search.powers
