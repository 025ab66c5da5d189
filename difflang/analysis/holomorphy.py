"""Holomorphy analysis: whether a complex derivative exists, as no step on a path from the params takes a conjugate.

Linearization gives the derivative over the reals, which every op has. It is multiplication by a complex number if that
holds for each step; the few ops that are linear only over the reals declare it (the trait "not holomorphic").
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.analysis.zero_derivatives import DependencyStep
from difflang.ir.graph import Eqn, Graph, Value

# The step where holomorphy was lost (None: before this region), or whether a holomorphic path leads to the value.
HolomorphicPath = DependencyStep | bool | None
SummaryKey = tuple[Graph, tuple[HolomorphicPath, ...]]


def find_nonholomorphic_steps(graph: Graph, inside: Sequence[bool]) -> list[DependencyStep | None]:
    """For each result, the step after which it is no holomorphic function of the params `inside`, if there is one.

    A value that the graph does not define, as while a definition is checked, depends on none of them.
    Cost: one walk; loops iterate until their carries are stable, and a shared region is walked once.
    """
    found = HolomorphyAnalysis().results(graph, tuple(inside))
    return [path if isinstance(path, DependencyStep) else None for path in found]


def join_paths(paths: Sequence[HolomorphicPath]) -> HolomorphicPath:
    """The path of a value computed from several: not holomorphic if one of them is not."""
    return next((p for p in paths if not isinstance(p, bool)), any(paths))


class HolomorphyAnalysis:
    """The analysis of a graph, with cached summaries of regions."""

    def __init__(self) -> None:
        self.summaries: dict[SummaryKey, tuple[HolomorphicPath, ...]] = {}

    def results(self, graph: Graph, inside: tuple[HolomorphicPath, ...]) -> tuple[HolomorphicPath, ...]:
        key = graph, inside
        if key not in self.summaries:
            at: dict[Value, HolomorphicPath] = dict(zip(graph.params, inside, strict=True))
            for eqn in graph.eqns:
                paths = [at.get(v, False) for v in eqn.operands]
                at.update(zip(eqn.results, self.transfer(eqn, paths), strict=True))
            self.summaries[key] = tuple([at.get(r, False) for r in graph.results])
        return self.summaries[key]

    def transfer(self, eqn: Eqn, paths: list[HolomorphicPath]) -> Sequence[HolomorphicPath]:
        """The paths to an equation's results."""
        path = join_paths(paths)
        if path is False or eqn.op.inactive:
            return [False] * len(eqn.results)
        if eqn.regions and "not holomorphic" not in eqn.op.traits:
            found = self.through_regions(eqn, paths)
        else:
            found = [DependencyStep(eqn) if "not holomorphic" in eqn.op.traits and path is True else path] * len(
                eqn.results
            )
        return [p if r.type.tangent is not None else False for p, r in zip(found, eqn.results, strict=True)]

    def region_results(self, eqn: Eqn, region: Graph, paths: Sequence[HolomorphicPath]) -> list[HolomorphicPath]:
        """The paths to a region's results."""
        # Inside, every step before the region is the same `None`, so that one summary serves all of them.
        before = join_paths(paths)
        found = self.results(region, tuple([None if isinstance(p, DependencyStep) else p for p in paths]))
        return [
            before if p is None else DependencyStep(eqn, inner=p) if isinstance(p, DependencyStep) else p for p in found
        ]

    def through_regions(self, eqn: Eqn, paths: list[HolomorphicPath]) -> Sequence[HolomorphicPath]:
        if eqn.op.region_dataflow is None:
            return self.through_function(eqn, paths)
        slots = eqn.op.region_dataflow(eqn).slots
        entering = [paths[s.operand] if s.operand is not None else False for s in slots]
        while True:
            inside: list[list[HolomorphicPath]] = [[False] * len(region.params) for region in eqn.regions]
            for slot, path in zip(slots, entering, strict=True):
                for params, place in zip(inside, slot.params, strict=False):
                    if place is not None:
                        params[place] = path
            found = [self.region_results(eqn, r, p) for r, p in zip(eqn.regions, inside, strict=True)]
            leaving = [
                join_paths(
                    [path, *[f[place] for f, place in zip(found, slot.returns, strict=False) if place is not None]]
                )
                for slot, path in zip(slots, entering, strict=True)
            ]
            if leaving == entering or not any(slot.params and slot.returns for slot in slots):
                outside = {slot.result: path for slot, path in zip(slots, leaving, strict=True)}
                return [outside.get(i, False) for i in range(len(eqn.results))]
            entering = leaving  # the carries of a loop enter its step with what they left it with

    def through_function(self, eqn: Eqn, paths: list[HolomorphicPath]) -> Sequence[HolomorphicPath]:
        """A derivative, a declared rule or a solve of the function in a region. Any other op loses holomorphy."""
        match eqn.op.name:
            # These regions have no slots: how operands map to params depends on the operator.
            case "jvp" | "jet":
                return self.through_derivative(eqn, paths)
            case "custom_derivative":
                return self.through_rule(eqn, paths)
            case "custom_linear_solve":
                return self.through_solution(eqn, paths)
            case _:
                return [DependencyStep(eqn)] * len(eqn.results)

    def through_derivative(self, eqn: Eqn, paths: list[HolomorphicPath]) -> Sequence[HolomorphicPath]:
        """A `jvp`: operands, then their tangents, to results, then theirs; a `jet` has several tangents of each."""
        (function,), wrt = eqn.regions, eqn.attrs["wrt"]
        values, tangents = paths[: len(function.params)], iter(paths[len(function.params) :])
        inside = tuple([join_paths([p, next(tangents)]) if w else p for p, w in zip(values, wrt, strict=True)])
        found = self.region_results(eqn, function, inside)
        moving = [p for p, r in zip(found, function.results, strict=True) if r.type.tangent is not None]
        return [*found, *moving * eqn.attrs.get("order", 1)]

    def through_rule(self, eqn: Eqn, paths: list[HolomorphicPath]) -> Sequence[HolomorphicPath]:
        """A function with a declared rule: the rule decides, not how the value is computed."""
        given = [p for p, w in zip(paths, eqn.attrs["wrt"], strict=True) if w]
        tangents = iter(self.region_results(eqn, eqn.regions[1], (*paths, *given))[len(eqn.results) :])
        return [next(tangents) if r.type.tangent is not None else False for r in eqn.results]

    def through_solution(self, eqn: Eqn, paths: list[HolomorphicPath]) -> Sequence[HolomorphicPath]:
        """The x with A x = b is as holomorphic as A x is in x and in the values that A depends on."""
        consts = eqn.attrs["consts"]
        found = self.region_results(
            eqn, eqn.regions[2], (*paths[:consts], *[join_paths(paths)] * (len(paths) - consts))
        )
        return [join_paths([*paths, *found])] * len(eqn.results)
