"""Taylor-mode AD (`jet`): truncated Taylor series of a graph along a curve, from the `jvp` rules of its ops.

A rule says y' = R(x', y, x), and R is a graph of further ops. So coefficient n of y is coefficient n - 1 of R, divided
by n, and R is itself evaluated on series, lazily, one coefficient at a time. `exp` reads its own lower coefficients,
`sin` and `cos` those of each other. Linear ops act on each coefficient, products convolve, and ops with regions take
and give all coefficients of the values that vary. See `docs/decisions/0014-taylor-series-from-jvp-rules.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from difflang.ad.linearize import find_operand_rule, jvp_terms, linear_terms
from difflang.ad.powers_of_roots import RootPower, powers_of_roots
from difflang.ad.series_composition import SeriesPowers
from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import FactoredForm, MaybeValue, Op
from difflang.ir.region_dataflow import RegionDataflow
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import Mask, Tangents, add_tangents, or_zeros
from difflang.ops.arrays.constants import const
from difflang.ops.elementwise.linear_arithmetic import mul
from difflang.ops.op_factories import full_like, tensor_type

Coefficient = Callable[[int], MaybeValue]
# For each value, which of its coefficients are present, from the first on; () for a constant.
CoefficientMasks = tuple[Mask, ...]
RuleKey = tuple[Op, tuple[object, ...], Mask, tuple[tuple[str, object], ...]]


class TaylorSeries:
    """The series of a value: its head (coefficient 0), and lazily computed further coefficients."""

    __slots__ = ("coefficient", "line", "terms")

    def __init__(self, head: Value, coefficient: Coefficient | None = None, *, line: bool = False) -> None:
        self.terms: list[MaybeValue] = [head]
        self.coefficient = coefficient
        self.line = line  # known to have no coefficient beyond the first

    @property
    def head(self) -> Value:
        head = self.terms[0]
        assert head is not None
        return head

    @property
    def constant(self) -> bool:
        return self.coefficient is None

    def __getitem__(self, n: int) -> MaybeValue:
        if self.coefficient is None:
            return self.terms[n] if n == 0 else None
        while len(self.terms) <= n:
            self.terms.append(self.coefficient(len(self.terms)))
        return self.terms[n]


class TaylorCache:
    """Caches, for one order, the graphs on coefficients and the graphs of derivative rules."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.graphs: dict[tuple[Graph, CoefficientMasks, CoefficientMasks], tuple[Graph, CoefficientMasks]] = {}
        self.rules: dict[RuleKey, Graph] = {}

    def graph(
        self, graph: Graph, param_masks: CoefficientMasks, force_active: CoefficientMasks = ()
    ) -> tuple[Graph, CoefficientMasks]:
        """A graph from the coefficients of its params to those of its results, and which ones the results have.

        `param_masks` says which coefficients the params have, `force_active` which ones the results must have. A result
        that varies has every coefficient that does not vanish; a constant one has its head alone.
        """
        key = graph, param_masks, force_active
        if key not in self.graphs:
            builder = Builder()
            xs: list[TaylorSeries] = []
            for param, present in zip(graph.params, param_masks, strict=True):
                head = builder.param(param.type, param.hint)
                rest = [builder.param(param.type, param.hint) if p else None for p in present]
                xs.append(series_from_terms([head, *rest]))
            ys = TaylorPropagation(self, builder).graph(graph, xs)
            least = force_active or ((),) * len(ys)
            found = tuple([self.present_coefficients(y, w) for y, w in zip(ys, least, strict=True)])
            results: list[Value] = []
            for y, present in zip(ys, found, strict=True):
                results += emit_coefficients(builder, y, present)
            self.graphs[key] = builder.finish(results, name=graph.name), found
        return self.graphs[key]

    def present_coefficients(self, y: TaylorSeries, least: Mask) -> Mask:
        """Which coefficients of a series are present, including the `least` ones."""
        own = () if y.constant else tuple([y[n] is not None for n in range(1, self.order + 1)])
        return union_masks(own, least)

    def rule(self, eqn: Eqn, active: Mask) -> Graph:
        """The `jvp` rule of a use of an op as a graph: the tangents present, the results, the operands -> tangents."""
        key = eqn.op, tuple([v.type for v in eqn.operands]), active, tuple(eqn.attrs.items())
        if key not in self.rules:
            builder = Builder(span=eqn.span)
            pairs = zip(eqn.operands, active, strict=True)
            dxs = [builder.param(v.type.tangent or v.type) if a else None for v, a in pairs]
            ys = tuple([builder.param(r.type) for r in eqn.results])
            xs = tuple([builder.param(v.type) for v in eqn.operands])
            dys = jvp_terms(eqn, ys, xs, dxs)
            self.rules[key] = builder.finish([or_zeros(builder, d, y.type) for d, y in zip(dys, ys, strict=True)])
        return self.rules[key]

    def product_form(self, eqn: Eqn) -> Graph:
        """A use of an op as an equal product."""
        assert isinstance(eqn.op.powers, FactoredForm)
        builder = Builder(span=eqn.span)
        xs = [builder.param(v.type) for v in eqn.operands]
        return builder.finish([eqn.op.powers.product(*xs, **eqn.attrs)])


class NoSeriesError(DifflangError):
    """DL0412: an op without a series."""


def unsupported_series_error(eqn: Eqn) -> NoSeriesError:
    declared = eqn.op.declared_name(eqn)
    name = declared or eqn.op
    way = ("nest `jvp` or `f'`, which differentiate it to any order",)
    # Without regions it is an extern function of Python, which may have no derivative of higher order.
    if declared is not None and not eqn.regions:
        way = (f"write `{name}` in the language, or its rule and nest `f'`",)
    return NoSeriesError(Diagnostic("DL0412", f"`jet` has no series rule for `{name}`", (Label(eqn.span),), way))


def series_from_terms(terms: list[MaybeValue], *, line: bool = False) -> TaylorSeries:
    head = terms[0]
    assert head is not None
    return TaylorSeries(head, terms.__getitem__, line=line) if len(terms) > 1 else TaylorSeries(head)


def emit_coefficients(builder: Builder, y: TaylorSeries, present: Mask) -> list[Value]:
    """The head and the coefficients that are present, zero where they vanish."""
    type = y.head.type
    return [y.head, *[or_zeros(builder, y[n], type) for n, p in enumerate(present, 1) if p]]


def union_masks(a: Mask, b: Mask) -> Mask:
    return tuple([p or q for p, q in zip(a, b, strict=True)]) if a and b else a or b


class TaylorPropagation:
    """Computes the series of the values of one graph, in one builder."""

    def __init__(self, jets: TaylorCache, builder: Builder) -> None:
        self.jets, self.builder, self.order = jets, builder, jets.order
        # A use of an op on the same series is one series wherever rules emit it: this ties the recursion of `exp`.
        self.made: dict[object, list[TaylorSeries]] = {}
        self.powers: dict[TaylorSeries, SeriesPowers] = {}

    def graph(self, graph: Graph, xs: Sequence[TaylorSeries]) -> list[TaylorSeries]:
        """The series of a graph's results."""
        # The coefficients of each equation are computed before the next, so the lazy evaluation recurses only a little.
        return self.run(graph, xs, self.order)

    def run(self, graph: Graph, xs: Sequence[TaylorSeries], ahead: int) -> list[TaylorSeries]:
        env = dict(zip(graph.params, xs, strict=True))
        graph, powers = powers_of_roots(graph)
        for eqn in graph.eqns:
            self.builder.span = eqn.span
            ys = self.equation(eqn, [env[v] for v in eqn.operands])
            product = powers.get(eqn.results[0]) if powers and eqn.results else None
            if product is not None and not ys[0].constant:
                ys = self.root_power(ys, product, env)
            env.update(zip(eqn.results, ys, strict=True))
            for y in ys if ahead else ():
                y[ahead]
        return [env[r] for r in graph.results]

    def equation(self, eqn: Eqn, xs: list[TaylorSeries]) -> list[TaylorSeries]:
        """The series of an equation's results, cached by its op and operands."""
        key = eqn.op, tuple(map(id, xs)), tuple(eqn.attrs.items()), eqn.regions
        if eqn.op.effect or key not in self.made:
            self.made[key] = self.new_equation(eqn, xs)
        return self.made[key]

    def new_equation(self, eqn: Eqn, xs: list[TaylorSeries]) -> list[TaylorSeries]:
        op = eqn.op
        if op.is_derivative:
            raise InternalError(f"{op} must be expanded before it is differentiated")
        varying = not op.inactive and not all([x.constant for x in xs])
        if varying and op.region_dataflow is not None:
            return self.regions(eqn, op.region_dataflow(eqn), xs)
        # The rule of a declared derivative calls the function itself, without end.
        if varying and op.declared_name(eqn) is not None:
            raise unsupported_series_error(eqn)
        heads = self.builder.copy(eqn, tuple([x.head for x in xs]))
        if not varying or all(h.type.tangent is None for h in heads):
            return list(map(TaylorSeries, heads))
        # A directional op has a derivative with one operand more, and so on without end.
        rules = op.operand_rules
        if rules.directional and not xs[0].constant:
            raise unsupported_series_error(eqn)
        if rules.linear_in_each:
            return [TaylorSeries(heads[0], lambda n: self.convolved(eqn, xs, n))]
        linear = [find_operand_rule(rules.transpose or (), i) is not None for i in range(len(xs))]
        if rules.transpose and all([x.constant or by for x, by in zip(xs, linear, strict=True)]):
            straight = all([x.constant or x.line for x in xs])
            return self.joint_series(heads, lambda n: self.linear(eqn, heads, xs, n), line=straight)
        if op.elementwise and sum(linear) == 1 and xs[linear.index(True)] is not self.one(heads[0].type):
            return self.times(eqn, heads[0], xs, linear.index(True))
        varies = [i for i, x in enumerate(xs) if not x.constant]
        if isinstance(op.powers, FactoredForm) and len(varies) > 1:
            return self.as_product(eqn, heads[0], xs)
        if op.elementwise and len(varies) == 1 and not xs[varies[0]].line and self.rule_diverges(eqn, xs):
            return self.composed(eqn, heads[0], xs, varies[0])
        return self.by_rule(eqn, heads, xs)

    def one(self, type: Type) -> TaylorSeries:
        """The number 1, the same series each time."""
        attrs = {"value": 1.0, "type": type}
        return self.equation(Eqn(const, (), (Value(type, self.builder),), attrs), [])[0]

    def times(self, eqn: Eqn, head: Value, xs: list[TaylorSeries], i: int) -> list[TaylorSeries]:
        """An elementwise op that is linear in one operand, as a product of that operand and the op of 1."""
        # Its rule would read the op of that operand's derivative, then of the second derivative, without end.
        one = self.one(head.type)
        (factor,) = self.equation(eqn, [one if k == i else x for k, x in enumerate(xs)])
        product = Eqn(mul, (head, head), (head,), {}, (), eqn.span)
        return [TaylorSeries(head, lambda n: self.convolved(product, [xs[i], factor], n))]

    def rule_diverges(self, eqn: Eqn, xs: list[TaylorSeries]) -> bool:
        """Whether the rule uses the op with other attributes, so that it leads to ever new functions."""
        rule = self.jets.rule(eqn, tuple([not x.constant for x in xs]))
        return any(e.op is eqn.op and e.attrs != eqn.attrs for e in rule.eqns)

    def composed(self, eqn: Eqn, head: Value, xs: list[TaylorSeries], i: int) -> list[TaylorSeries]:
        """The op along a line, composed with the powers of the operand: its rule would add a series for every order."""
        x = xs[i]
        if x not in self.powers:
            self.powers[x] = SeriesPowers(self.builder, x.__getitem__, tensor_type(x.head), self.order)
        powers, straight = self.powers[x], self.unit_line(x)
        (f,) = self.equation(eqn, [straight if k == i else other for k, other in enumerate(xs)])
        return [TaylorSeries(head, lambda n: powers.weighted_sum(n, f.__getitem__))]

    def as_product(self, eqn: Eqn, head: Value, xs: list[TaylorSeries]) -> list[TaylorSeries]:
        """The op by its equal product."""
        return self.with_series_of(head, self.jets.product_form(eqn), xs)

    def root_power(
        self, ys: list[TaylorSeries], product: RootPower, env: dict[Value, TaylorSeries]
    ) -> list[TaylorSeries]:
        """The series of a power of a root; without the root, where the power is a multiple of its degree."""
        if product.power % product.degree:
            return ys
        xs = [env[v] for v in (*product.root.operands, *product.others)]
        return self.with_series_of(ys[0].head, product.without_root(), xs)

    def with_series_of(self, head: Value, equal: Graph, xs: Sequence[TaylorSeries]) -> list[TaylorSeries]:
        """A value with the further coefficients of an equal graph, which would round the value another time."""
        (found,) = self.run(equal, xs, 0)
        return [TaylorSeries(head, found.__getitem__)]

    def unit_line(self, x: TaylorSeries) -> TaylorSeries:
        """The line through a head in the direction 1."""
        key = ("line", id(x))
        if key not in self.made:
            self.made[key] = [TaylorSeries(x.head, lambda n: full_like(x.head, 1.0) if n == 1 else None, line=True)]
        return self.made[key][0]

    def joint_series(
        self, heads: Values, all_of: Callable[[int], list[MaybeValue]], *, line: bool = False
    ) -> list[TaylorSeries]:
        """The series of several results whose n-th coefficients are computed together."""
        found: dict[int, list[MaybeValue]] = {}

        def coefficient(i: int) -> Coefficient:
            def at(n: int) -> MaybeValue:
                if n not in found:
                    found[n] = all_of(n)
                return found[n][i]

            return at

        return [TaylorSeries(h, coefficient(i), line=line) for i, h in enumerate(heads)]

    def linear(self, eqn: Eqn, heads: Values, xs: list[TaylorSeries], n: int) -> list[MaybeValue]:
        """Coefficient n of a linear op: the op of the operands' coefficients n."""
        terms = tuple([x[n] for x in xs])
        if all(t is None for t in terms):
            return [None] * len(heads)
        operands = tuple([x.head for x in xs])
        if eqn.op.operand_rules.jvp is not None:
            return jvp_terms(eqn, heads, operands, terms)
        return linear_terms(eqn, operands, Tangents(self.builder, terms))

    def convolved(self, eqn: Eqn, xs: list[TaylorSeries], n: int) -> MaybeValue:
        """Coefficient n of a product: the convolution of the coefficients of the factors that vary."""
        # In a square, terms i and n - i are equal: each pair is computed once and doubled.
        square = eqn.op.elementwise and len(xs) == 2 and xs[0] is xs[1]
        total, twice = None, None
        for shares in bounded_compositions(n, [0 if x.constant else n for x in xs]):
            terms = [x[i] for x, i in zip(xs, shares, strict=True)]
            present = [t for t in terms if t is not None]
            if len(present) < len(terms) or (square and shares[0] > shares[1]):
                continue
            (term,) = self.builder.append(eqn.op, tuple(present), (eqn.results[0].type,), **eqn.attrs)
            if square and shares[0] < shares[1]:
                twice = add_tangents(twice, term)
            else:
                total = add_tangents(total, term)
        return total if twice is None else add_tangents(twice * 2.0, total)

    def by_rule(self, eqn: Eqn, heads: Values, xs: list[TaylorSeries]) -> list[TaylorSeries]:
        """Series by the op's rule: coefficient n of y is coefficient n - 1 of R(x', y, x), divided by n."""
        rates: list[TaylorSeries] = []

        def all_of(n: int) -> list[MaybeValue]:
            if not rates:
                active = tuple([not x.constant for x in xs])
                given = [*[self.rate(x) for x in xs if not x.constant], *ys, *xs]
                rates.extend(self.run(self.jets.rule(eqn, active), given, 0))
            self.builder.span = eqn.span
            found = [r[n - 1] for r in rates]
            return [f if f is None or n == 1 else f / float(n) for f in found]

        ys = self.joint_series(heads, all_of)  # the rule's graph reads them
        return ys

    def rate(self, x: TaylorSeries) -> TaylorSeries:
        """The series of the derivative: its coefficient n is n + 1 times coefficient n + 1."""
        key = ("rate", id(x))
        if key not in self.made:
            head = or_zeros(self.builder, x[1], x.head.type)

            def coefficient(n: int) -> MaybeValue:
                term = x[n + 1] if n < self.order else None
                return None if term is None else term * float(n + 1)

            self.made[key] = [TaylorSeries(head, coefficient)]
        return self.made[key][0]

    # ---- Ops with regions

    def regions(self, eqn: Eqn, layout: RegionDataflow, xs: list[TaylorSeries]) -> list[TaylorSeries]:
        """The same op on coefficients: they replace each value that varies, outside and inside the regions."""
        ins: dict[int, Mask] = {i: self.jets.present_coefficients(x, ()) for i, x in enumerate(xs)}
        # A fixed point: a carry must have on entry every coefficient that the step gives it.
        while True:
            graphs, outs = self.inside(eqn, layout, ins)
            grown = {
                s.operand: union_masks(ins[s.operand], outs[s.result])
                for s in layout.slots
                if s.operand is not None and s.result is not None
            }
            if all(ins[i] == p for i, p in grown.items()):
                break
            ins |= grown
        operands: list[Value] = []
        for i, x in enumerate(xs):
            operands += emit_coefficients(self.builder, x, ins[i])
        attrs = dict(eqn.attrs)
        for slot in layout.slots:
            if slot.counted and slot.operand is not None:
                attrs[slot.counted] = attrs[slot.counted] + sum(ins[slot.operand])
            elif slot.counted and slot.result is not None:
                attrs[slot.counted] = attrs[slot.counted] + sum(outs[slot.result])
        results = iter(self.builder.emit(eqn.op, operands, graphs, **attrs))
        return [self.read_series(results, outs.get(j, ())) for j in range(len(eqn.results))]

    def inside(
        self, eqn: Eqn, layout: RegionDataflow, ins: dict[int, Mask]
    ) -> tuple[tuple[Graph, ...], dict[int, Mask]]:
        """The regions on coefficients, and which of these the results have: those that any region gives."""
        given = [self.param_coefficients(k, g, layout, ins) for k, g in enumerate(eqn.regions)]
        returned: list[dict[int, int]] = []
        for k in range(len(eqn.regions)):
            places = [(s.returns[k], s.result) for s in layout.slots if s.returns and s.result is not None]
            returned.append({r: j for r, j in places if r is not None})
        outs = {s.result: ins[s.operand] if s.operand is not None else () for s in layout.slots if s.result is not None}
        for g, present, back in zip(eqn.regions, given, returned, strict=True):
            _, found = self.jets.graph(g, present)
            for r, j in back.items():
                outs[j] = union_masks(outs[j], found[r])
        wanted = [tuple([outs[b[r]] if r in b else () for r in range(len(g.results))])
                  for g, b in zip(eqn.regions, returned, strict=True)]  # fmt: skip
        triples = zip(eqn.regions, given, wanted, strict=True)
        return tuple([self.jets.graph(g, present, least)[0] for g, present, least in triples]), outs

    def param_coefficients(
        self, k: int, region: Graph, layout: RegionDataflow, ins: dict[int, Mask]
    ) -> CoefficientMasks:
        """Which coefficients of its params region k takes."""
        found: dict[int, Mask] = {}
        for s in layout.slots:
            place = s.params[k] if s.params else None
            if s.operand is not None and place is not None:
                found[place] = ins[s.operand]
        return tuple([found.get(p, ()) for p in range(len(region.params))])

    def read_series(self, results: Iterator[Value], present: Mask) -> TaylorSeries:
        """The next value with its coefficients."""
        return series_from_terms([next(results), *[next(results) if p else None for p in present]])


def bounded_compositions(n: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write n as a sum with one term for each bound in `most`."""
    for parts in product(*[range(m + 1) for m in most[:-1]]):
        last = n - sum(parts)
        if 0 <= last <= most[-1]:
            yield (*parts, last)


def jet(
    graph: Graph, builder: Builder, xs: Sequence[Value], dxs: Sequence[MaybeValue], order: int
) -> list[TaylorSeries]:
    """Emit a graph along the curve `xs + t dxs`: the series of its results up to `order`.

    Cost: quadratic in the order where rules lead back to themselves, as those of elementary functions do.
    Source: Griewank and Walther 2008, Evaluating Derivatives, chapter 13.
    """
    tower = TaylorPropagation(TaylorCache(order), builder)
    curves = [
        TaylorSeries(builder.capture(x))
        if d is None
        else series_from_terms([builder.capture(x), builder.capture(d), *[None] * order], line=True)
        for x, d in zip(xs, dxs, strict=True)
    ]
    return tower.graph(graph, curves)
