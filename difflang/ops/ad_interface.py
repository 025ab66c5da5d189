"""What ops with regions share with `ad`: linearized and transposed graphs, residuals, and sums and zeros of tangents.

The derivative rules of such an op (`EquationRules`) are functions of an `Ad`, which differentiates its regions:

* `linearize(ad, eqn, xs, dxs) -> (ys, dys)` emits the primal equation where `xs` live and the tangent equation in
  `dxs.builder`; absent tangents are `None`;
* `jvp`, alike, emits both as one equation, where primal and tangent are in one graph;
* `transpose(ad, eqn, at) -> ct_operands` emits the transpose of a linear equation; see `TransposeRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, MaybeValue, Op, TypeSolver
from difflang.ir.tensor_types import BOOL, History, Tensor, Type

Mask = tuple[bool, ...]
MaybeValues = Sequence[MaybeValue]


class Cotangent(IntEnum):
    """What is known of a cotangent before it is computed. Each says more than the one before it."""

    ABSENT = 0  # structurally zero
    PRESENT = 1
    CHOSEN = 2  # it comes with its choice: a mask outside which it is exactly zero


Cotangents = tuple[Cotangent, ...]


class Tangents(Struct, frozen=True):
    """The tangents of an equation's operands, `None` where absent, and the builder that computes with them."""

    builder: Builder
    values: tuple[MaybeValue, ...]

    @property
    def active(self) -> Mask:
        return tuple([v is not None for v in self.values])

    @property
    def present(self) -> list[Value]:
        return [v for v in self.values if v is not None]


class TransposeRequest(Struct, frozen=True):
    """The inputs for transposing a linear equation, and where the choices of outgoing cotangents are recorded."""

    builder: Builder  # computes the cotangents
    cts: MaybeValues  # of the results, `None` where absent
    linear: Mask  # of the operands
    nonlinear: MaybeValues  # the operands that are not linear
    # For some cotangents the mask (choice) outside which they are exactly zero.
    choices: dict[Value, Value]

    @property
    def ct_choices(self) -> list[MaybeValue]:
        """The choices of the incoming cotangents."""
        return choices_of(self.cts, self.choices)

    @property
    def arriving(self) -> Cotangents:
        """The incoming cotangents."""
        return classify_cotangents(presence_mask(self.cts), presence_mask(self.ct_choices))


class LinearizedGraph(Struct, frozen=True):
    """A graph split into primal and tangent. The residuals are exactly the primal values the tangent graph reads."""

    primal: Graph  # params -> results ++ those residuals that are no params
    tangent: Graph  # residuals ++ tangents of the active params -> tangents of the active results
    residuals: Values  # as the primal graph sees them
    active: Mask  # one a result

    @property
    def made(self) -> Values:
        """The residuals that the primal graph computes; the others are its params, which are at hand as operands."""
        return self.primal.results[len(self.active) :]

    @property
    def residual_params(self) -> Values:
        return self.tangent.params[: len(self.residuals)]

    @property
    def tangent_params(self) -> Values:
        return self.tangent.params[len(self.residuals) :]


class JvpGraph(Struct, frozen=True):
    """A graph that computes its results and their tangents together."""

    graph: Graph  # params ++ tangents of the active params -> results ++ tangents of the active results
    active: Mask  # one a result


class TransposedGraph(Struct, frozen=True):
    """The transpose of a linear graph."""

    # Maps nonlinear params ++ present cotangents ++ their choices to cotangents of the active params ++ their choices.
    graph: Graph
    cotangents: Cotangents  # one a param

    @property
    def active(self) -> Mask:
        return tuple([c is not Cotangent.ABSENT for c in self.cotangents])

    @property
    def chosen(self) -> Mask:
        return tuple([c is Cotangent.CHOSEN for c in self.cotangents])

    @property
    def without_choices(self) -> Graph:
        """The graph without the choices among its results."""
        return self.graph.with_results(self.graph.results[: sum(self.active)])


class CotangentSum(Struct, frozen=True):
    """How several cotangents of one value are summed: `sum(builder, cotangents)`, for the tangents in `tangents`."""

    tangents: set[Value]
    sum: Callable[[Builder, Sequence[Value]], Value]


class Ad(Protocol):
    """Differentiates regions. Results in `force_active` are active in any case, with zeros if need be.

    A transpose takes the `arriving` cotangents of the results; those of the params are `at_least` what is asked.
    """

    total: CotangentSum | None  # where cotangents are not just added

    def linearize(self, graph: Graph, active: Mask, force_active: Mask = ()) -> LinearizedGraph: ...
    def linearize_lean(self, graph: Graph, active: Mask) -> LinearizedGraph: ...
    def jvp(self, graph: Graph, active: Mask, force_active: Mask = ()) -> JvpGraph: ...
    def transpose(
        self, graph: Graph, linear: Mask, arriving: Cotangents, at_least: Cotangents = ()
    ) -> TransposedGraph: ...

    def push(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues
    ) -> tuple[Sequence[Value], MaybeValues]: ...

    def pull(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], wrt: Mask, cts: MaybeValues
    ) -> tuple[Sequence[Value], MaybeValues]: ...

    def jet(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues, order: int, *, nests: bool = False
    ) -> Sequence[Sequence[Value]]: ...


def zeros(builder: Builder, type: Type) -> Value:
    """The zero of a type; for a history the empty one, which is zero of every length."""
    if isinstance(type, History):
        return builder.one("empty_history", type=type)
    return builder.const(False if type.dtype is BOOL else 0.0 if type.dtype.differentiable else 0, type)


def choice_type(type: Type) -> Type:
    """The type of a cotangent's choice: one boolean per number."""
    return History(choice_type(type.item)) if isinstance(type, History) else Tensor(BOOL, type.shape)


def or_choices(x: Value, y: Value) -> Value:
    """Where at least one of two choices holds."""
    return OPS["add_history" if isinstance(x.type, History) else "logical_or"].one(x, y)


def or_zeros(builder: Builder, value: MaybeValue, type: Type) -> Value:
    return zeros(builder, type) if value is None else value


def addition(type: Type) -> Op:
    """The op that adds two values of a type."""
    return OPS["add_history" if isinstance(type, History) else "add"]


def add_tangents(x: MaybeValue, y: MaybeValue) -> MaybeValue:
    """The sum of two tangents; an absent one stays a structural zero."""
    if x is None or y is None:
        return y if x is None else x
    home = x.home if x.home.depth >= y.home.depth else y.home
    op = addition(x.type)
    # The operands have one type, which their equations have checked.
    (total,) = home.append(op, (home.capture(x), home.capture(y)), (x.type,))
    return total


def require_same_types(same: TypeSolver, what: str, have: Sequence[Type], want: Sequence[Type]) -> None:
    """Require that a region's params have the types of the values it is passed."""
    same.require(len(have) == len(want), "{}: {} values for {} params", what, len(have), len(want))
    for x, y in zip(have, want, strict=True):
        while isinstance(x, History) and isinstance(y, History):
            x, y = x.item, y.item
        if isinstance(x, History) or isinstance(y, History):
            same.require(False, "{}: {} is not {}", what, x, y)
        elif x != y:
            same.dtype(x, y)
            same.shape(x, y)


def spread_by_mask(values: Iterable[Value], mask: Iterable[bool]) -> list[MaybeValue]:
    """The values where the mask holds, `None` elsewhere."""
    rest = iter(values)
    return [next(rest) if m else None for m in mask]


def presence_mask(values: MaybeValues) -> Mask:
    return tuple([v is not None for v in values])


def present_values(values: MaybeValues) -> list[Value]:
    return [v for v in values if v is not None]


def choices_of(cts: MaybeValues, choices: Mapping[Value, Value]) -> list[MaybeValue]:
    """The choice of each cotangent, `None` where it has none."""
    return [None if ct is None else choices.get(ct) for ct in cts]


def classify_cotangents(present: Sequence[bool], chosen: Sequence[bool] = ()) -> Cotangents:
    """Which cotangents are present, and which of these have a choice: none by default."""
    pairs = zip(present, chosen or (False,) * len(present), strict=True)
    return tuple([Cotangent.CHOSEN if p and c else Cotangent.PRESENT if p else Cotangent.ABSENT for p, c in pairs])


def unpack_cotangents(outs: Sequence[Value], of: TransposedGraph, choices: dict[Value, Value]) -> list[MaybeValue]:
    """The cotangents among a transposed region's results; the choices after them are recorded in `choices`."""
    count = sum(of.active)
    cts = spread_by_mask(outs[:count], of.active)
    for ct, choice in zip(cts, spread_by_mask(outs[count:], of.chosen), strict=True):
        if ct is not None and choice is not None:
            choices[ct] = choice
    return cts


def and_masks(mask: Mask, other: Mask) -> Mask:
    return tuple([a and b for a, b in zip(mask, other, strict=True)])


def restrict_choices(back: TransposedGraph, kept: Mask) -> TransposedGraph:
    """The same graph with the choices of these params only."""
    chosen = and_masks(back.chosen, kept)
    if chosen == back.chosen:
        return back
    count = sum(back.active)
    choices = present_values(
        [c if k else None for c, k in zip(spread_by_mask(back.graph.results[count:], back.chosen), kept, strict=True)]
    )
    return TransposedGraph(
        back.graph.with_results([*back.graph.results[:count], *choices]), classify_cotangents(back.active, chosen)
    )


def nonlinear_operands(known: MaybeValues, linear: Iterable[bool]) -> list[Value]:
    """The operands that are not linear; each must have a value."""
    found: list[Value] = []
    for value, is_linear in zip(known, linear, strict=True):
        if is_linear:
            continue
        if value is None:
            raise InternalError("an operand is neither linear nor known")
        found.append(value)
    return found


def with_signature(graph: Graph, params: Iterable[Value], results: Iterable[Value] | None = None) -> Graph:
    """The same equations with reordered or additional params, and with other results."""
    return Graph(tuple(params), graph.eqns, graph.results if results is None else tuple(results), graph.name)


def unread_params(values: Iterable[Value]) -> list[Value]:
    """Params of the same types that nothing reads."""
    return [Value(v.type, v.home) for v in values]


class ResidualSources(Struct, frozen=True):
    """The residuals of a region that runs many times, by where the tangent gets them."""

    fixed: dict[Value, Value]  # loop-invariant: computed once, outside
    read: dict[Value, Value]  # an item of an existing sequence
    made: Values  # the others: the primal must return them, one per step

    def tangent_params(self, lin: LinearizedGraph, of: Iterable[Value]) -> list[Value]:
        param = dict(zip(lin.residuals, lin.residual_params, strict=True))
        return [param[r] for r in of]


def always_iterates(eqn: Eqn) -> bool:
    """Whether a loop or map runs a known, nonzero number of steps."""
    length = eqn.attrs.get("length")
    return isinstance(length, int) and length > 0 and eqn.attrs.get("exact") is not False


def classify_residuals(
    lin: LinearizedGraph,
    home: Builder,
    consts: Mapping[Value, Value],
    items: Mapping[Value, Value],
    *,
    skip: Value | None = None,
    surely: bool,
) -> ResidualSources:
    """Classify each residual by its source. Those that depend on consts alone are recomputed in `home`, once."""
    # Equations with regions may not end. If the region may not run at all, hoisted equations could get infinite
    # derivatives that the region itself never computes.
    maker = {r: e for e in (invariant_eqns(lin.primal, consts) if surely else ()) for r in e.results}
    hoisted = [r for r in lin.residuals if r in maker]
    needed: set[Value] = set(hoisted)
    for eqn in reversed(list(dict.fromkeys(maker.values()))):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
    env = dict(consts)
    for eqn in dict.fromkeys(maker.values()):
        if not needed.isdisjoint(eqn.results):
            env.update(zip(eqn.results, home.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
    fixed = {r: env[r] for r in lin.residuals if r in env}
    read = {r: items[r] for r in lin.residuals if r in items}
    made = tuple([r for r in lin.residuals if r not in fixed and r not in read and r is not skip])
    return ResidualSources(fixed, read, made)


def invariant_eqns(graph: Graph, consts: Iterable[Value]) -> list[Eqn]:
    """The equations without regions or effects that depend on consts alone."""
    known = set(consts)
    found: list[Eqn] = []
    for eqn in graph.eqns:
        if not eqn.regions and not eqn.op.effect and known.issuperset(eqn.operands):
            known.update(eqn.results)
            found.append(eqn)
    return found


def residual_operands(lin: LinearizedGraph, xs: Sequence[Value], made: Iterable[Value]) -> list[Value]:
    """The residuals outside the region: its operands `xs`, or the primal's results for those it computed."""
    outside = {**dict(zip(lin.primal.params, xs, strict=True)), **dict(zip(lin.made, made, strict=True))}
    return [outside[r] for r in lin.residuals]
