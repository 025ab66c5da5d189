"""Outputs of loops whose number of items is known only at run time: arrays of capacity `items`, turned into histories.

A history takes no memory of its own: its loop runs again where it is read. That needs each loop that reads it,
derivatives included, to be in the graph of the loop that makes it. Elsewhere the capacity gets a number. If it is too
small the program fails a check, and the caller runs it with a greater capacity.
"""

from __future__ import annotations

from typing import Any

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import OPS
from difflang.ir.tensor_types import I32, History, Tensor, Type
from difflang.ops.arrays.constants import const
from difflang.passes.substitute_dims import capacity_dim

ITEM_CAPACITY = capacity_dim("items")
INDEX = Tensor(I32)
UNLIMITED_STEPS = -1  # the limit of a loop that only its condition ends


def arrays_to_histories(graph: Graph) -> Graph | None:
    """The graph with histories in place of arrays of capacity `items`, and no bound on the steps of their loops.

    A graph without such arrays is returned as it is. None if an equation on such an array has no equal on histories.
    Cost: linear.
    """
    graphs, _ = graphs_postorder(graph)
    if not any(has_capacity_axis(t) for g in graphs for t in graph_value_types(g)):
        return graph
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        found = HistoryRewriter(inner, done).graph()
        if found is None:
            return None
        done[inner] = found
    return done[graph]


def graph_value_types(graph: Graph) -> list[Type]:
    return [v.type for v in (*graph.params, *[r for e in graph.eqns for r in e.results])]


def has_capacity_axis(type: Type) -> bool:
    return has_capacity_axis(type.item) if isinstance(type, History) else ITEM_CAPACITY in type.shape


def history_type(type: Type) -> Type:
    """The history type of an array type of that capacity, also for nested histories."""
    if isinstance(type, History):
        inner = history_type(type.item)
        return type if inner is type.item else History(inner)
    if ITEM_CAPACITY not in type.shape:
        return type
    return History(history_type(Tensor(type.dtype, type.shape[1:])))


class HistoryRewriter:
    """Rewrites one graph, whose regions have been rewritten already."""

    def __init__(self, graph: Graph, done: dict[Graph, Graph]) -> None:
        self.old, self.done = graph, done
        self.to: dict[Value, Value] = {}
        self.capacities: set[Value] = set()  # constants that hold the capacity
        self.eqns: list[Eqn] = []

    def graph(self) -> Graph | None:
        params = tuple(map(self.there, self.old.params))
        if not all(map(self.rewrite, self.old.eqns)):
            return None
        eqns, results = tuple(self.eqns), tuple([self.to.get(r, r) for r in self.old.results])
        same = params == self.old.params and results == self.old.results
        if same and len(eqns) == len(self.old.eqns) and all(a is b for a, b in zip(eqns, self.old.eqns, strict=True)):
            return self.old
        return Graph(params, eqns, results, self.old.name)

    def there(self, value: Value) -> Value:
        """The rewritten value."""
        type = history_type(value.type)
        return value if type is value.type else self.to.setdefault(value, Value(type, value.home, value.hint))

    def rewrite(self, eqn: Eqn) -> bool:
        """Append the equation on histories; False if there is none."""
        # Elaboration uses the capacity in four ways only: as a constant, as the length of a loop, in a comparison, and
        # as the size of arrays. Anything else cannot be rewritten.
        op, are_capacities = eqn.op.name, [v in self.capacities for v in eqn.operands]
        new = eqn.replace_operands(self.to)
        new = new.with_regions([self.done[r] for r in eqn.regions]) if eqn.regions else new
        if op == "const" and eqn.attrs["value"] == ITEM_CAPACITY:
            self.capacities.update(eqn.results)
        elif op == "loop" and eqn.attrs["length"] == ITEM_CAPACITY:
            self.drop_step_bound(eqn, new, are_capacities[0])
        elif any(are_capacities):
            return self.fold_capacity_test(eqn, new)
        elif any(has_capacity_axis(v.type) for v in (*eqn.operands, *eqn.results)):
            return self.rewrite_on_histories(eqn, new)
        else:
            self.eqns.append(new)
        return True

    def drop_step_bound(self, eqn: Eqn, new: Eqn, only_capacity: bool) -> None:
        """Append the loop without the capacity as its bound."""
        # If its limit was the capacity itself, now only the condition ends it.
        attrs = {k: v for k, v in eqn.attrs.items() if k != "history_outputs"}
        limit = self.number(UNLIMITED_STEPS, INDEX, eqn) if only_capacity else new.operands[0]
        self.put(eqn, new, attrs={**attrs, "length": None}, operands=(limit, *new.operands[1:]))

    def fold_capacity_test(self, eqn: Eqn, new: Eqn) -> bool:
        """Fold a comparison with the capacity: it is never reached, and any number of steps is below it."""
        match eqn.op.name, eqn.results:
            case "ge", (result,):
                self.to[result] = self.number(False, result.type, eqn)
            case "min", (result,):
                self.to[result] = new.operands[0]
            case _:
                return False
        return True

    def rewrite_on_histories(self, eqn: Eqn, new: Eqn) -> bool:
        """Append an equation with regions, a zero or a sum on histories; False for any other."""
        op = eqn.op.name
        if eqn.regions:
            self.put(eqn, new)
        elif op == "const" and eqn.attrs["value"] == 0:
            self.put(eqn, new, op="empty_history", attrs={"type": history_type(eqn.results[0].type)})
        elif op in ("add", "logical_or"):
            self.put(eqn, new, op="add_history")
        else:
            return False
        return True

    def put(
        self, eqn: Eqn, new: Eqn, *, op: str = "", attrs: Any = None, operands: tuple[Value, ...] | None = None
    ) -> None:
        results = tuple(map(self.there, eqn.results))
        self.eqns.append(Eqn(
            OPS[op] if op else eqn.op, new.operands if operands is None else operands, results,
            eqn.attrs if attrs is None else attrs, new.regions, eqn.span,
        ))  # fmt: skip

    def number(self, value: int, type: Type, eqn: Eqn) -> Value:
        made = Value(type, eqn.results[0].home)
        self.eqns.append(Eqn(const, (), (made,), {"value": value, "type": type}, (), eqn.span))
        return made
