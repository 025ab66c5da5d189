"""The size of a derivative as one expression, which shares nothing, beside that of its graph, which shares all.

Sizes are counted by arithmetic on the graph: those of an equation follow from those of its operands. No expression is
built, as they grow exponentially. Loops are unrolled in the same way, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.region_dataflow import RegionSlot
from difflang.ops.control.derivative_operators import jvp
from difflang.tools.derive.simplify_for_reading import simplify_graph

MAX_SIZE = 10**100  # a larger one is not told from it
MAX_EQUATIONS = 300_000  # of one graph with its loops unrolled: a second
MAX_NODES = 5_000  # of a graph: the next order would take long

TOO_LONG = f"its loops, unrolled, have over {MAX_EQUATIONS:,} operations"

Size = int | list[int]  # of what a loop gives step by step, the size of each item


class NoExpression(Exception):
    """A graph whose results cannot be written as expressions."""


class OrderSize(Struct, frozen=True):
    """The derivative of one order: the nodes of its expressions, and of its graph; without it, why there is none."""

    order: int
    expression: int | None
    graph: int | None
    why: str | None = None


def sizes_by_order(graph: Graph, place: int, highest: int) -> Iterator[OrderSize]:
    """The sizes of the function and of its derivatives in one param, up to a highest order.

    Of an array param it is the derivative along an array of ones. The last one may say why it and the next are missing.
    """
    order = 0
    try:
        for order in range(highest + 1):
            # Simplified it would have lost the rules that a program declares for its derivative.
            graph = derivative_along_ones(graph, place) if order else graph
            current = simplify_graph(graph, {})
            nodes = graph_nodes(current)
            try:
                yield OrderSize(order, expression_size(current), nodes)
            except NoExpression as error:
                yield OrderSize(order, None, nodes, str(error))
            if nodes > MAX_NODES and order < highest:
                yield OrderSize(order + 1, None, None, f"the graph of the order before has over {MAX_NODES:,} nodes")
                return
    except DifflangError as error:
        yield OrderSize(order, None, None, error.diagnostics[0].message)


def derivative_along_ones(graph: Graph, place: int) -> Graph:
    """The derivative of a graph in one param, an array along an array of ones, as one equation."""
    types = [p.type for p in graph.params]
    wrt = tuple([i == place for i in range(len(types))])

    def tangents(*xs: Value) -> tuple[Value, ...]:
        tangent = graph.params[place].type.tangent
        assert tangent is not None
        return jvp(*xs, xs[0].home.const(1.0, tangent), regions=(graph,), wrt=wrt)[len(graph.results) :]

    return build_region(types, tangents, graph.name)


def graph_nodes(graph: Graph) -> int:
    """How many operations, constants and arguments a graph has, each counted once; a loop counts one step."""
    inner = graphs_postorder(graph)[0]
    read = {v for g in inner for e in g.eqns for v in e.operands} | set(graph.results)
    return sum(len(g.eqns) for g in inner) + sum(p in read for p in graph.params)


def expression_size(graph: Graph, weigh: Callable[[Eqn], int] | None = None) -> int:
    """How many operations, constants and arguments the results have as expressions, or what all of these weigh.

    Errors: NoExpression.
    """
    sizes = ExpressionSizes(weigh)
    return sum(map(sizes.whole, sizes.graph(graph, [sizes.node] * len(graph.params))))


class ExpressionSizes:
    """Computes the sizes of values, which is what each equation weighs, by default one, and its operands' sizes."""

    def __init__(self, weigh: Callable[[Eqn], int] | None = None) -> None:
        self.weigh: Callable[[Eqn], int] = weigh or (lambda eqn: 1)
        self.node = 0 if weigh else 1  # of an argument, a branch, an index
        self.left = MAX_EQUATIONS

    def graph(self, graph: Graph, sizes: Sequence[Size]) -> list[Size]:
        """The sizes of a graph's results from those of its params. Errors: NoExpression."""
        env = dict(zip(graph.params, sizes, strict=True))
        for eqn in graph.eqns:
            self.left -= 1
            if self.left < 0:
                raise NoExpression(TOO_LONG)
            env.update(zip(eqn.results, self.equation(eqn, [env[v] for v in eqn.operands]), strict=True))
        return [env[r] for r in graph.results]

    def whole(self, size: Size) -> int:
        return min(MAX_SIZE, size if isinstance(size, int) else self.node + sum(size))

    def item(self, size: Size, position: int) -> int:
        return size[position] if isinstance(size, list) else min(MAX_SIZE, self.node + size)

    def equation(self, eqn: Eqn, operands: list[Size]) -> list[Size]:
        if not eqn.regions or eqn.op.region_dataflow is None:
            inside = [s for r in eqn.regions for s in self.graph(r, [self.node] * len(r.params))]
            size = min(MAX_SIZE, self.weigh(eqn) + sum(map(self.whole, [*operands, *inside])))
            return [size] * len(eqn.results)
        layout = eqn.op.region_dataflow(eqn)
        if layout.repeats and any(is_carry(s) for s in layout.slots):
            return self.unrolled(eqn, layout.slots, operands)
        return self.run_once(eqn, layout.slots, operands, together=layout.repeats)

    def run_once(self, eqn: Eqn, slots: Sequence[RegionSlot], operands: list[Size], *, together: bool) -> list[Size]:
        """Branches, of which all are written; a call, of which only the body is; a comprehension, written once."""
        held = {s.operand for s in slots}
        free = [self.whole(x) for i, x in enumerate(operands) if i not in held]
        totals = [sum(free) + (self.node if free or together else 0)] * len(eqn.results)
        for number, region in enumerate(eqn.regions):
            found = self.graph(region, self.params(region, number, slots, operands, 0))
            for slot in slots:
                at = slot.returns[number] if slot.returns else None
                if slot.result is not None and at is not None:
                    totals[slot.result] = min(MAX_SIZE, totals[slot.result] + self.whole(found[at]))
        return list(totals)

    def params(
        self, region: Graph, number: int, slots: Sequence[RegionSlot], operands: list[Size], position: int
    ) -> list[Size]:
        """The sizes of a region's params: what moves in, as it is or item by item; else a number, as a counter is."""
        sizes: list[Size] = [self.node] * len(region.params)
        for slot in slots:
            at = slot.params[number] if slot.params else None
            if slot.operand is not None and at is not None:
                size = operands[slot.operand]
                sizes[at] = size if slot.invariant or is_carry(slot) else self.item(size, position)
        return sizes

    def unrolled(self, eqn: Eqn, slots: Sequence[RegionSlot], operands: list[Size]) -> list[Size]:
        """A loop, step by step. Errors: NoExpression if the data decide how many steps it takes."""
        length = eqn.attrs["length"]
        if not eqn.attrs.get("exact", True) or not isinstance(length, int):
            raise NoExpression(f"{loop_text(eqn.span)} takes as many steps as its data say: it cannot be unrolled")
        if length > self.left:
            raise NoExpression(TOO_LONG)
        step, state = eqn.regions[0], list(operands)
        results: list[Size] = [[0] * length if slot_of(slots, i) else self.node for i in range(len(eqn.results))]
        for position in reversed(range(length)) if eqn.attrs.get("reverse") else range(length):
            found = self.graph(step, self.params(step, 0, slots, state, position))
            for slot in slots:
                if not slot.returns or slot.returns[0] is None:
                    continue
                if slot.operand is not None:
                    state[slot.operand] = found[slot.returns[0]]
                elif slot.result is not None:
                    column = results[slot.result]
                    assert isinstance(column, list)
                    column[position] = self.whole(found[slot.returns[0]])
        for slot in slots:
            if is_carry(slot) and slot.operand is not None and slot.result is not None:
                results[slot.result] = state[slot.operand]
        return results


def is_carry(slot: RegionSlot) -> bool:
    """Whether a step returns it to the next one."""
    return slot.operand is not None and bool(slot.returns)


def slot_of(slots: Sequence[RegionSlot], result: int) -> RegionSlot | None:
    return next((s for s in slots if s.result == result), None)


def loop_text(span: Span) -> str:
    return f"the loop or recursion at {span.source.name}:{span.position[0]}" if span else "a loop"
