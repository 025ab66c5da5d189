"""Directional derivatives of a graph at a point, by forward mode, reverse mode and differences, in extended precision.

The gradient check uses them for a whole function and for each of its equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.ad.expand_derivatives import differentiate
from difflang.gradcheck.decision_replay import DOUBLE, ReplayMode, ReplayRun
from difflang.gradcheck.extended_precision import (
    EPSILON,
    Array,
    GraphWidening,
    align_history,
    cast,
    flatten_numbers,
    random_direction,
    step_along,
    wide_type,
)
from difflang.gradcheck.finite_differences import Row, Slopes, estimate_slopes
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph
from difflang.ir.tensor_types import Type
from difflang.ops.control.derivative_operators import jvp, vjp

Mask = tuple[bool, ...]
SHAKES = 4  # perturbed runs that measure the sensitivity to rounding
AMOUNT = 2.0**-24  # the relative perturbation
ROUNDING = 64  # at most so many roundings of the terms of a number may add up


def jvp_graph(graph: Graph, wrt: Mask) -> Graph:
    """params ++ tangents of those in `wrt` -> results ++ their tangents, as one derivative equation."""
    types = [p.type for p in graph.params]
    tangents = [t.tangent for t, w in zip(types, wrt, strict=True) if w and t.tangent is not None]
    return build_region([*types, *tangents], lambda *vs: jvp(*vs, regions=(graph,), wrt=wrt), graph.name)


def vjp_graph(graph: Graph, wrt: Mask) -> Graph:
    """params ++ cotangents of the results -> results ++ cotangents of the params in `wrt`, as one equation."""
    types = [p.type for p in graph.params]
    cotangents = [r.type.tangent for r in graph.results if r.type.tangent is not None]
    return build_region([*types, *cotangents], lambda *vs: vjp(*vs, regions=(graph,), wrt=wrt), graph.name)


def active_mask(types: Sequence[Type]) -> Mask:
    return tuple([t.tangent is not None for t in types])


def single_equation_graph(eqn: Eqn) -> Graph:
    """The graph of one equation."""
    return build_region(
        [v.type for v in eqn.operands], lambda *vs: vs[0].home.append(
            eqn.op, vs, tuple([r.type for r in eqn.results]), eqn.regions, span=eqn.span, **eqn.attrs
        )
    ) if eqn.operands else Graph((), (eqn,), eqn.results)  # fmt: skip


def cast_arguments(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """Wide arrays cast to the types of the graph's params."""
    return [cast(x, p.type) for x, p in zip(arrays, graph.params, strict=True)]


class PreciseRun(Struct, frozen=True, eq=False):
    """A graph interpreted in its own numbers, then in wide ones along the same path."""

    graph: Graph
    arrays: Sequence[Array]  # in the graph's own types
    exact: Sequence[Array]  # the same in wide numbers, perhaps with more digits
    native_results: list[Array]
    results: list[Array]
    path: list[list[Array]]
    widening: GraphWidening
    epsilon: float

    @classmethod
    def evaluate(
        cls, graph: Graph, exact: Sequence[Array], recorded_operands: dict[Eqn, list[list[Array]]] | None = None
    ) -> PreciseRun:
        exact = [cast(x, wide_type(p.type)) for x, p in zip(exact, graph.params, strict=True)]
        arrays = cast_arguments(graph, exact)
        # The run in the program's own numbers decides the path; the wide run follows it.
        first = ReplayRun()
        own = first(graph, *arrays)
        widening = GraphWidening()
        run = ReplayRun(first.decisions, origin=widening.origin, recorded_operands=recorded_operands)
        run.origin = widening.origin
        wide = widening.graph(graph)
        results = run(wide, *exact)
        return cls(graph, arrays, exact, own, results, run.decisions, widening, run.epsilon)

    def replay(self, arrays: Sequence[Array], mode: ReplayMode) -> list[Array]:
        run = ReplayRun(self.path, mode, self.widening.origin)
        return run(self.widening.graph(self.graph), *arrays)

    def flat_results(
        self, places: Sequence[int], like: Sequence[Array] | None = None, results: Sequence[Array] = ()
    ) -> Row:
        """The numbers of some results, with histories as long as those of `like`."""
        found = [(results or self.results)[i] for i in places]
        return flatten_numbers(
            found if like is None else [align_history(x, y) for x, y in zip(found, like, strict=True)]
        )

    def aligned_results(self, rng: np.random.Generator, like: Sequence[Array]) -> tuple[Row, Row]:
        """The numbers of all results, with histories as long as those of `like`, and their sensitivities."""
        places = range(len(self.results))
        return self.flat_results(places, like), self.sensitivities(rng, places, like)

    def all_sensitivities(self, rng: np.random.Generator) -> Row:
        return self.sensitivities(rng, range(len(self.results)))

    def sensitivities(
        self, rng: np.random.Generator, places: Sequence[int], like: Sequence[Array] | None = None
    ) -> Row:
        """The sensitivity of each number to relative errors in all intermediate values."""
        # Measured, not bounded: every value is perturbed at random, and the greatest change of several runs counts.
        exact = self.flat_results(places, like)
        found = np.abs(exact)
        for _ in range(SHAKES):
            shaken = self.replay(self.exact, ReplayMode(shake=rng, amount=AMOUNT))
            with np.errstate(all="ignore"):
                off = np.abs(self.flat_results(places, like, shaken) - exact) / AMOUNT
            found = np.where(np.isfinite(off), np.fmax(found, off), found)
        return np.where(np.isfinite(found), found, 0)


class DirectionalDerivative(Struct, frozen=True):
    """The derivative of a graph along one tangent, and against one cotangent, in wide numbers."""

    tangents: list[Array]
    cotangents: list[Array]
    push: PreciseRun
    pull: PreciseRun
    slopes: Slopes
    forward: Row
    forward_size: Row
    reverse: Row
    reverse_size: Row
    values: Row  # all results of the graph by itself
    mode_values: tuple[Row, Row]  # the same from forward and reverse mode
    value_size: Row

    @property
    def product(self) -> tuple[float, float, float]:
        """<ct, J dx>, <Jᵀ ct, dx>, and a bound on their difference by rounding."""
        ct, dx = flatten_numbers(self.cotangents), flatten_numbers(self.tangents)
        with np.errstate(all="ignore"):
            size = np.sum(np.abs(ct) * self.forward_size) + np.sum(np.abs(dx) * self.reverse_size)
            return float(np.sum(ct * self.forward)), float(np.sum(self.reverse * dx)), self.rounding * float(size)

    @property
    def rounding(self) -> float:
        """The allowed error relative to the size of terms: that of f64, or of coarser references."""
        return ROUNDING * max(DOUBLE, self.push.epsilon, self.pull.epsilon)

    @property
    def at_kink(self) -> bool:
        """Whether there is a kink along this direction."""
        s = self.slopes
        return s.crossed is not None or bool(np.any(s.kinked | (~np.isfinite(s.values) & np.isfinite(s.results))))

    @property
    def size(self) -> Row:
        """The size of the terms of the derivative and the results; tangents are as large as the arguments."""
        return np.maximum(self.forward_size, self.slopes.sizes)

    @property
    def allowed(self) -> Row:
        """The allowed error of forward mode: that of the differences, and the rounding of f64 constants in rules."""
        return 16 * self.slopes.errors + self.rounding * self.forward_size


class GraphAtPoint:
    """A graph without derivative equations at wide arguments, differentiated in the params in `wrt`."""

    def __init__(self, graph: Graph, exact: Sequence[Array], wrt: Mask) -> None:
        self.graph, self.wrt = graph, wrt
        self.met: dict[Eqn, list[list[Array]]] = {}
        self.primal = PreciseRun.evaluate(graph, exact, self.met)
        self.exact = self.primal.exact
        self.size: Row | None = None
        self.moving = [i for i, r in enumerate(graph.results) if r.type.tangent is not None]
        self.push, self.pull = differentiate(jvp_graph(graph, wrt)), differentiate(vjp_graph(graph, wrt))

    def select_wrt(self, items: Sequence[Any]) -> list[Any]:
        return [x for x, w in zip(items, self.wrt, strict=True) if w]

    @cached_property
    def values(self) -> list[Array]:
        return [self.primal.results[i] for i in self.moving]

    def results_along(self, tangents: Sequence[Array], t: float, watch: bool) -> Row:
        """The results at a step of size t along the tangents."""
        rest = iter(tangents)
        arrays = [step_along(x, next(rest), t) if w else x for x, w in zip(self.exact, self.wrt, strict=True)]
        results = self.primal.replay(arrays, ReplayMode(watch=watch, keep_stops=True))
        return flatten_numbers([results[i] for i in self.moving])

    def random_derivative(self, rng: np.random.Generator) -> DirectionalDerivative:
        """The derivative along a random direction. Errors: InternalError if a rule cannot be applied."""
        return self.derivative_along([random_direction(rng, x) for x in self.select_wrt(self.exact)], rng)

    def derivative_along(self, tangents: list[Array], rng: np.random.Generator) -> DirectionalDerivative:
        """The derivative along tangents of the params in `wrt`, against a random cotangent. Errors: InternalError."""
        cotangents = [normalize_direction(random_direction(rng, y), y) for y in self.values]
        push = PreciseRun.evaluate(self.push, [*self.exact, *tangents])
        pull = PreciseRun.evaluate(self.pull, [*self.exact, *cotangents])
        if self.size is None:  # the same for all directions
            self.size = self.primal.sensitivities(rng, self.moving)
        found = estimate_slopes(
            lambda t, watch: self.results_along(tangents, t, watch), self.size, max(self.primal.epsilon, EPSILON)
        )
        values = flatten_numbers(self.primal.results)
        n = len(values)
        forward, forward_size = push.aligned_results(rng, [*self.primal.results, *self.values])
        reverse, reverse_size = pull.aligned_results(rng, [*self.primal.results, *self.select_wrt(self.exact)])
        return DirectionalDerivative(
            tangents, cotangents, push, pull, found, forward[n:], forward_size[n:], reverse[n:], reverse_size[n:],
            values, (forward[:n], reverse[:n]), np.maximum(forward_size[:n], reverse_size[:n]),
        )  # fmt: skip


def normalize_direction(direction: Array, like: Array) -> Array:
    """The direction scaled to size one, as a cotangent should be whatever the size of the result."""
    if isinstance(direction, list):
        return [normalize_direction(d, x) for d, x in zip(direction, like, strict=True)]
    size = np.max(np.abs(direction), initial=0)
    return direction / size if size > 0 else direction
