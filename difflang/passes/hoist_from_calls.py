"""Call-invariant code motion: what all calls of a function compute from the same operands is computed once, before.

`jvp(f)` along two directions is two calls of one function, which share the point, and so all of the primal.
"""

from __future__ import annotations

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.call import call
from difflang.passes.hoist import enlarges_memory, invariant_equations, values_read_elsewhere, with_dependencies
from difflang.passes.inline import splice


def hoist_from_calls(graph: Graph) -> Graph:
    """Move equations that depend only on operands that all calls share out of a function, to before its first call.

    All of its calls must stand in one graph, so code does not grow. Cost: linear.
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
