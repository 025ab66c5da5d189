"""Invariant code motion: what is the same in every step leaves loops and maps, what all calls share a function."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph, Value, graphs_postorder
from difflang.ir.region_dataflow import RegionDataflow
from difflang.ir.tensor_types import History, Tensor, Type
from difflang.ops.ad_interface import always_iterates
from difflang.ops.control.call import call
from difflang.passes.inline import splice


def hoist(graph: Graph) -> Graph:
    """Move equations that depend only on consts out of the regions of loops and maps.

    Only equations without effects that surely terminate are moved, since the loop may run no step at all. One that
    only enlarges a value (a constant, a broadcast) is moved if others that move read it, but is not itself passed in.
    Cost: linear.
    """
    return Hoister(lambda eqn: True).graph(graph)


def hoist_from_nonempty_loops(graph: Graph) -> Graph:
    """The same for loops and maps that surely take a step: for a graph that is differentiated afterwards."""
    # A loop without steps contributes nothing to a derivative. A hoisted equation would contribute zero times a slope,
    # which may be infinite.
    return Hoister(always_iterates).graph(graph)


class Hoister:
    def __init__(self, leaves: Callable[[Eqn], bool]) -> None:
        self.may_leave = leaves  # whether equations may be moved out of this one
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        eqns: list[Eqn] = []
        for eqn in graph.eqns:
            if eqn.regions:
                inner = eqn.with_regions(map(self.graph, eqn.regions))
                eqns.append(hoist_from_eqn(inner, eqns) if self.may_leave(inner) else inner)
            else:
                eqns.append(eqn)
        return self.done.setdefault(graph, graph.with_eqns(eqns))


def hoist_from_eqn(eqn: Eqn, before: list[Eqn]) -> Eqn:
    """The equation with fewer equations in its regions; the moved ones are appended to `before`."""
    layout = eqn.op.region_dataflow(eqn) if eqn.op.region_dataflow else RegionDataflow(())
    if not layout.repeats:
        return eqn
    for number in range(len(eqn.regions)):
        eqn = hoist_from_region(eqn, number, before)
    return eqn


def hoist_from_region(eqn: Eqn, number: int, before: list[Eqn]) -> Eqn:
    assert eqn.op.region_dataflow is not None
    layout = eqn.op.region_dataflow(eqn)
    region = eqn.regions[number]
    fixed = {
        region.params[p]: eqn.operands[s.operand]
        for s in layout.slots
        if s.invariant and s.operand is not None and (p := s.params[number]) is not None
    }
    moving = [e for e in invariant_equations(region, fixed) if not enlarges_memory(e)]
    if not moving:
        return eqn
    crossing = values_read_elsewhere(region, moving)
    needed = with_dependencies(region, moving)
    body = Graph(tuple(fixed), tuple(needed), tuple(crossing))
    outside = splice(body, tuple(fixed.values()), before)
    gone = set(moving)
    rest = region.with_eqns([e for e in region.eqns if e not in gone])
    return add_consts(eqn, number, rest, crossing, outside)


def invariant_equations(region: Graph, fixed: dict[Value, Value]) -> list[Eqn]:
    """The loop-invariant equations that may be moved, in order."""
    known = set(fixed)
    found: list[Eqn] = []
    for eqn in region.eqns:
        if (
            all(v in known for v in eqn.operands)
            and not eqn.effectful
            and "pinned" not in eqn.op.traits
            and surely_terminates(eqn)
        ):
            known.update(eqn.results)
            found.append(eqn)
    return found


def surely_terminates(eqn: Eqn) -> bool:
    """Whether it holds no loop of unknown length."""
    if eqn.regions and eqn.attrs.get("length", 0) is None:
        return False
    return all(surely_terminates(inner) for region in eqn.regions for inner in region.eqns if inner.regions)


def enlarges_memory(eqn: Eqn) -> bool:
    """Whether its results take more memory than its operands, so that recomputing beats passing them in."""
    return sum(element_count(r.type) for r in eqn.results) > sum(element_count(v.type) for v in eqn.operands)


def element_count(type: Type) -> float:
    if isinstance(type, History):
        return float("inf")
    # A symbolic size counts as a large one: a broadcast along it enlarges memory.
    return float(prod(d if isinstance(d, int) else 1_000 for d in type.shape))


def values_read_elsewhere(region: Graph, moving: list[Eqn]) -> list[Value]:
    """The results of moving equations that the rest of the region reads."""
    gone = set(moving)
    made = {r for e in moving for r in e.results}
    reads = [v for e in region.eqns if e not in gone for v in e.operands]
    return list(dict.fromkeys(v for v in (*reads, *region.results) if v in made))


def with_dependencies(region: Graph, moving: list[Eqn]) -> list[Eqn]:
    """The moving equations and all that they depend on, in order."""
    need: set[Value] = set()
    kept: list[Eqn] = []
    gone = set(moving)
    for eqn in reversed(region.eqns):
        if eqn in gone or any(r in need for r in eqn.results):
            need.update(eqn.operands)
            kept.append(eqn)
    return kept[::-1]


def add_consts(eqn: Eqn, number: int, region: Graph, inside: list[Value], outside: list[Value]) -> Eqn:
    """The equation with more consts: operands `outside`, which are the params `inside` of region `number`."""
    assert eqn.op.region_dataflow is not None
    at = eqn.op.region_dataflow(eqn).new_consts_at
    assert at is not None
    home = Builder()
    regions: list[Graph] = []
    for i, g in enumerate(eqn.regions):
        new = inside if i == number else [Value(v.type, home, v.hint) for v in inside]
        old = region if i == number else g
        regions.append(Graph((*old.params[:at], *new, *old.params[at:]), old.eqns, old.results, old.name))
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    attrs: dict[str, Attr] = {**eqn.attrs, "consts": consts + len(inside)}
    operands = (*eqn.operands[:at], *outside, *eqn.operands[at:])
    return Eqn(eqn.op, operands, eqn.results, attrs, tuple(regions), eqn.span)


# ---- Functions


def hoist_from_calls(graph: Graph) -> Graph:
    """Move equations that depend only on operands that all calls share out of a function, to before its first call.

    `jvp(f)` along two directions is two calls of one function, which share the point, and so all of the primal. All of
    the calls must stand in one graph, so code does not grow. Cost: linear.
    """
    order, uses = graphs_postorder(graph)
    done: dict[Graph, Graph] = {}
    for inner in order:
        calls: dict[Graph, list[Eqn]] = {}
        for eqn in inner.eqns:
            if eqn.op is call:
                calls.setdefault(eqn.regions[0], []).append(eqn)
        shared = {g: SharedCalls(done[g], same) for g, same in calls.items() if 1 < len(same) == uses[g]}
        eqns: list[Eqn] = []
        for eqn in inner.eqns:
            if eqn.op is call and eqn.regions[0] in shared:
                eqns.append(shared[eqn.regions[0]].emit(eqn, eqns))
            else:
                eqns.append(eqn.with_regions([done[region] for region in eqn.regions]) if eqn.regions else eqn)
        done[inner] = inner.with_eqns(eqns)
    return done[graph]


class SharedCalls:
    """A function, and what leaves it: equations that read only operands which all of its calls share."""

    def __init__(self, body: Graph, calls: list[Eqn]) -> None:
        operands = zip(*[eqn.operands for eqn in calls], strict=True)
        fixed = {p: same[0] for p, same in zip(body.params, operands, strict=True) if len(set(same)) == 1}
        moving = [e for e in invariant_equations(body, fixed) if not enlarges_memory(e)]
        # A history is read where the loop that makes it stands, so a function with histories stays as it is.
        if not moving or not all([isinstance(r.type, Tensor) for e in body.eqns for r in e.results]):
            self.body, self.before = body, None
            return
        crossing = values_read_elsewhere(body, moving)
        self.before = Graph(tuple(fixed), tuple(with_dependencies(body, moving)), tuple(crossing))
        self.fixed = tuple(fixed.values())
        gone, home = set(moving), Builder()
        inside = {v: Value(v.type, home, v.hint) for v in crossing}
        rest = [e.replace_operands(inside) for e in body.eqns if e not in gone]
        params, results = (*body.params, *inside.values()), [inside.get(r, r) for r in body.results]
        self.body = Graph(params, tuple(rest), tuple(results), body.name)
        self.outside: list[Value] | None = None

    def emit(self, eqn: Eqn, eqns: list[Eqn]) -> Eqn:
        """A call of what is left of the function; before the first one, what left it is appended to `eqns`."""
        if self.before is None:
            return eqn.with_regions([self.body])
        if self.outside is None:
            self.outside = splice(self.before, self.fixed, eqns)
        return Eqn(eqn.op, (*eqn.operands, *self.outside), eqn.results, eqn.attrs, (self.body,), eqn.span)
