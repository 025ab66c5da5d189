"""What ops with regions share with `ad`: the shape of linearized and transposed graphs, and sums and zeros of tangents.

The derivative rules of such an op are functions of an `Ad`, which differentiates its regions:

* `linearize(ad, eqn, xs, dxs) -> (ys, dys)` emits the primal equation where `xs` live and the tangent equation in
  `dxs.builder`; absent tangents are `None`;
* `jvp_region`, alike, emits both as one equation, where primal and tangent are in one graph;
* `transpose_region(ad, eqn, at) -> ct_operands` emits the transpose of a linear equation; see `TransposeRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, MaybeValue, TypeSolver
from difflang.ir.tensor_types import BOOL, History, Tensor, Type

Mask = tuple[bool, ...]
MaybeValues = Sequence[MaybeValue]


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
    """What a linear equation is turned round with. `choices` learns of the cotangents that leave."""

    builder: Builder  # in which the cotangents are computed
    cts: MaybeValues  # of the results, `None` where absent
    linear: Mask  # of the operands
    nonlinear: MaybeValues  # the operands that are not linear
    choices: dict[Value, Value]  # of some cotangents where they are not zero by a choice

    @property
    def ct_choices(self) -> list[MaybeValue]:
        """The choices of the cotangents that arrive."""
        return choices_of(self.cts, self.choices)


class LinearizedGraph(Struct, frozen=True):
    """A graph split in two. The residuals are exactly the primal values that the tangent graph reads."""

    primal: Graph  # params -> results ++ those residuals that are no params
    tangent: Graph  # residuals ++ tangents of the active params -> tangents of the active results
    residuals: Values  # as the primal graph sees them
    active: Mask  # one a result

    @property
    def made(self) -> Values:
        """The residuals that the primal graph computes; the others are its params, so operands, and at hand."""
        return self.primal.results[len(self.active) :]

    @property
    def residual_params(self) -> Values:
        return self.tangent.params[: len(self.residuals)]

    @property
    def tangent_params(self) -> Values:
        return self.tangent.params[len(self.residuals) :]


class JvpGraph(Struct, frozen=True):
    """A graph with its tangent in one."""

    graph: Graph  # params ++ tangents of the active params -> results ++ tangents of the active results
    active: Mask  # one a result


class TransposedGraph(Struct, frozen=True):
    """A linear graph turned round."""

    graph: Graph  # params not linear ++ cotangents present ++ choices given -> cotangents of active params ++ choices
    active: Mask  # one a param
    chosen: Mask  # which of these cotangents has a choice: is exactly zero but where that holds

    @property
    def cotangents(self) -> Graph:
        """The graph without the choices that it gives."""
        return self.graph.with_results(self.graph.results[: sum(self.active)])


class Ad(Protocol):
    """Differentiates regions. `wanted` results (params) are active whatever flows to them, with zeros if need be."""

    def linearize(self, graph: Graph, active: Mask, force_active: Mask = ()) -> LinearizedGraph: ...
    def linearize_lean(self, graph: Graph, active: Mask) -> LinearizedGraph: ...
    def jvp(self, graph: Graph, active: Mask, force_active: Mask = ()) -> JvpGraph: ...
    def transpose(
        self,
        graph: Graph,
        linear: Mask,
        present: Mask,
        force_active: Mask = (),
        *,
        has_choice: Mask = (),
        force_choice: Mask = (),
    ) -> TransposedGraph: ...

    def push(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues
    ) -> tuple[Sequence[Value], MaybeValues]: ...

    def pull(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], wrt: Mask, cts: MaybeValues
    ) -> tuple[Sequence[Value], MaybeValues]: ...

    def jet(
        self, graph: Graph, builder: Builder, xs: Sequence[Value], dxs: MaybeValues, order: int
    ) -> Sequence[Sequence[Value]]: ...


def zeros(builder: Builder, type: Type) -> Value:
    """The zero of a type; for a history the empty one, which is zero of every length."""
    if isinstance(type, History):
        return builder.one("empty_history", type=type)
    return builder.const(False if type.dtype is BOOL else 0.0 if type.dtype.differentiable else 0, type)


def choice_type(type: Type) -> Type:
    """The type of a choice beside a cotangent: a truth for each of its numbers."""
    return History(choice_type(type.item)) if isinstance(type, History) else Tensor(BOOL, type.shape)


def or_choices(x: Value, y: Value) -> Value:
    """Where one of two choices holds."""
    return OPS["add_history" if isinstance(x.type, History) else "logical_or"].one(x, y)


def or_zeros(builder: Builder, value: MaybeValue, type: Type) -> Value:
    return zeros(builder, type) if value is None else value


def add_tangents(x: MaybeValue, y: MaybeValue) -> MaybeValue:
    """The sum of two tangents; one that is absent stays a structural zero."""
    if x is None or y is None:
        return y if x is None else x
    home = x.home if x.home.depth >= y.home.depth else y.home
    op = OPS["add_history" if isinstance(x.type, History) else "add"]
    (total,) = home.append(
        op, (home.capture(x), home.capture(y)), (x.type,)
    )  # of one type: their places have checked that
    return total


def require_same_types(same: TypeSolver, what: str, have: Sequence[Type], want: Sequence[Type]) -> None:
    """What a region takes is what it is given."""
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
    """Where each cotangent is not zero by a choice, `None` where that is not known."""
    return [None if ct is None else choices.get(ct) for ct in cts]


def unpack_cotangents(
    outs: Sequence[Value], active: Mask, chosen: Mask, choices: dict[Value, Value]
) -> list[MaybeValue]:
    """The cotangents among what a transposed region gave; the choices after them are noted."""
    count = sum(active)
    cts = spread_by_mask(outs[:count], active)
    for ct, choice in zip(cts, spread_by_mask(outs[count:], chosen), strict=True):
        if ct is not None and choice is not None:
            choices[ct] = choice
    return cts


def and_masks(mask: Mask, other: Mask) -> Mask:
    return tuple([a and b for a, b in zip(mask, other, strict=True)])


def restrict_choices(back: TransposedGraph, kept: Mask) -> TransposedGraph:
    """The same with the choices of these params only."""
    chosen = and_masks(back.chosen, kept)
    if chosen == back.chosen:
        return back
    count = sum(back.active)
    choices = present_values(
        [c if k else None for c, k in zip(spread_by_mask(back.graph.results[count:], back.chosen), kept, strict=True)]
    )
    return replace(back, graph=back.graph.with_results([*back.graph.results[:count], *choices]), chosen=chosen)


def nonlinear_operands(known: MaybeValues, linear: Iterable[bool]) -> list[Value]:
    """The operands that are not linear: all of them have a value."""
    found: list[Value] = []
    for value, is_linear in zip(known, linear, strict=True):
        if is_linear:
            continue
        if value is None:
            raise InternalError("an operand is neither linear nor known")
        found.append(value)
    return found


def with_signature(graph: Graph, params: Iterable[Value], results: Iterable[Value] | None = None) -> Graph:
    """The same equations with params (and results) in another order, or more params, which nothing reads."""
    return Graph(tuple(params), graph.eqns, graph.results if results is None else tuple(results), graph.name)


def unread_params(values: Iterable[Value]) -> list[Value]:
    """Params of the same types that nothing reads."""
    return [Value(v.type, v.home) for v in values]


class ResidualSources(Struct, frozen=True):
    """The residuals of a region that runs many times, by where the tangent gets them."""

    fixed: dict[Value, Value]  # the same every time: computed once, outside
    read: dict[Value, Value]  # an item of a sequence that is there already
    made: Values  # the rest: the primal must give them, one each time

    def tangent_params(self, lin: LinearizedGraph, of: Iterable[Value]) -> list[Value]:
        param = dict(zip(lin.residuals, lin.residual_params, strict=True))
        return [param[r] for r in of]


def always_iterates(eqn: Eqn) -> bool:
    """Whether a loop or map takes all of a number of steps that is known and not zero."""
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
    """Say where each residual comes from. Those computed from consts alone are computed again in `home`, once.

    Only equations without regions are, since they surely end, and only where the region `surely` runs: outside, what
    it never computes would have a slope, which may be infinite.
    """
    maker = {r: e for e in (invariant_eqns(lin.primal, consts) if surely else ()) for r in e.results}
    wanted = [r for r in lin.residuals if r in maker]
    needed: set[Value] = set(wanted)
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
    """The equations without regions or effects that read nothing but consts and one another."""
    known = set(consts)
    found: list[Eqn] = []
    for eqn in graph.eqns:
        if not eqn.regions and not eqn.op.effect and known.issuperset(eqn.operands):
            known.update(eqn.results)
            found.append(eqn)
    return found


def residual_operands(lin: LinearizedGraph, xs: Sequence[Value], made: Iterable[Value]) -> list[Value]:
    """Where the residuals are outside: operands `xs` of the region, or what its primal gives for those it made."""
    outside = {**dict(zip(lin.primal.params, xs, strict=True)), **dict(zip(lin.made, made, strict=True))}
    return [outside[r] for r in lin.residuals]
