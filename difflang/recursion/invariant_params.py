"""Which arguments of functions that call each other are the same in every call: what a closure captured, an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.control.recursive_call import recur
from difflang.recursion.basic_blocks import GroupFunction

ParamIndex = tuple[int, int]  # a function, and which of its params
ParamFacts = dict[
    ParamIndex, Value | None
]  # the value that it always is, `None` if it changes; unknown as long as nobody calls


def find_invariant_params(
    members: Mapping[int, GroupFunction], first: int, given: list[Value]
) -> dict[ParamIndex, Value]:
    """The params of a group that always are one of the values `given` to the `first` function from outside.

    Cost: linear in the group, at most once for each param that turns out to change.
    """
    facts: ParamFacts = {(first, i): value for i, value in enumerate(given)}
    todo, reached = [first], {first}
    while todo:
        caller = todo.pop()
        known = {p: facts.get((caller, i)) for i, p in enumerate(members[caller].graph.params)}
        for eqn, passed in group_calls(members[caller].graph, known):
            callee = eqn.attrs["function"]
            new = changed_facts(facts, callee, passed[: len(members[callee].call_params)])
            if new or callee not in reached:
                facts.update(new)
                reached.add(callee)
                todo.append(callee)
    return {param: value for param, value in facts.items() if value is not None}


def changed_facts(facts: ParamFacts, function: int, passed: list[Value | None]) -> ParamFacts:
    """What one more call changes in what is known of a function's params."""
    found = {
        (function, i): value if facts.get((function, i), value) is value else None for i, value in enumerate(passed)
    }
    return {param: value for param, value in found.items() if param not in facts or facts[param] is not value}


def group_calls(graph: Graph, known: Mapping[Value, Value | None]) -> Iterator[tuple[Eqn, list[Value | None]]]:
    """The calls within the group, also those in regions, and what is known of their operands."""
    todo = [(graph, known)]
    while todo:
        at, known = todo.pop()
        for eqn in at.eqns:
            if eqn.op is recur:
                yield eqn, [known.get(v) for v in eqn.operands]
            if not eqn.regions or eqn.op.region_dataflow is None:
                continue
            fixed = [(s.operand, s.params) for s in eqn.op.region_dataflow(eqn).slots if s.invariant]
            for k, region in enumerate(eqn.regions):
                inside: dict[Value, Value | None] = {}
                for operand, params in fixed:
                    place = params[k] if params else None
                    if operand is not None and place is not None:
                        inside[region.params[place]] = known.get(eqn.operands[operand])
                todo.append((region, inside))
