"""Recursions that never end are refused: they would be loops of which XLA takes for granted that they end.

It leaves out a loop whose results no step changes, and gives what they were before it: 0, for a function that gives
what it gives itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from difflang.elaborate.context import FAILURE_TYPES
from difflang.elaborate.elaborated_graphs import FunctionInstance
from difflang.elaborate.functions_in_progress import PendingFunction
from difflang.ir.graph import Eqn, Graph
from difflang.ir.op import OPS
from difflang.ops.control.recursive_call import recur
from difflang.types.type_errors import make_error

COND, CALL = OPS["cond"], OPS["call"]


def reject_infinite_recursion(group: Sequence[PendingFunction]) -> None:
    """Refuse functions that call each other whatever they are given, and one that calls itself with what it was given.

    The latter goes the way that led to the call again, but not if any of them draws or prints. A check that fails ends
    either: where there are any, none is refused. Errors: DL0504.
    Cost: linear, for each function that turns out to have an end.
    """
    made = {m.number: m.instance for m in group if m.instance is not None}
    name = {m.number: m.code.decl.name for m in group}
    if any(["fail" in i.effects for i in made.values()]):
        return
    if calls := never_ending_calls(made):
        (number, call), *others = calls.items()
        raise make_error(
            "DL0504",
            f"`{name[number]}` never gives a value: whatever it is given, it is called again",
            (call.span, "every way through it leads to such a call"),
            *[(c.span, f"and `{name[n]}` does the same here") for n, c in others],
            help="let an `if` end it, with a value that no call gives",
        )
    if any([i.effects or i.random for i in made.values()]):
        return
    for number, instance in made.items():
        if (call := identical_self_call(instance.graph, number)) is not None:
            raise make_error(
                "DL0504",
                f"`{name[number]}` is called again with what it was given: that never ends",
                (call.span, "with the same as before"),
                help="give it something else, and let an `if` see the end by it",
            )


def never_ending_calls(made: Mapping[int, FunctionInstance]) -> dict[int, Eqn]:
    """The functions that always call one that does so too, with such a call."""
    calls = {n: found for n, i in made.items() if (found := unavoidable_call(i.graph, made))}
    while ended := [n for n in calls if unavoidable_call(made[n].graph, calls) is None]:
        for number in ended:
            del calls[number]
    return {n: found for n in calls if (found := unavoidable_call(made[n].graph, calls))}


def unavoidable_call(graph: Graph, functions: Collection[int]) -> Eqn | None:
    """A call of one of those functions that is on every way through a graph."""
    for eqn in graph.eqns:
        if eqn.op is recur and eqn.attrs["function"] in functions:
            return eqn
        if eqn.op in (COND, CALL) and all(found := [unavoidable_call(r, functions) for r in eqn.regions]):
            return found[0]
    return None


def identical_self_call(graph: Graph, function: int) -> Eqn | None:
    """A call of a function with its own parameters, in its graph."""
    todo = [(graph, {v: i for i, v in enumerate(graph.params)})]  # which values are which of them
    while todo:
        part, same = todo.pop()
        for eqn in part.eqns:
            if eqn.op is recur and eqn.attrs["function"] == function:
                given = eqn.operands[: len(eqn.operands) - (len(FAILURE_TYPES) if eqn.attrs["word"] else 0)]
                if all([same.get(v) == i for i, v in enumerate(given)]):
                    return eqn
            elif eqn.op in (COND, CALL):
                passed = [same.get(v) for v in eqn.operands[eqn.op is COND :]]
                for region in eqn.regions:
                    known = {p: i for p, i in zip(region.params, passed, strict=True) if i is not None}
                    todo.append((region, known))
    return None
