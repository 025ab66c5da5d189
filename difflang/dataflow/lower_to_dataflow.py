"""Lowering of a graph to the nodes of the dataflow machine. Ops with regions say how by their `RegionRules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import NO_SPAN, Span
from difflang.dataflow.nodes import DataflowNode, DataflowProgram, Frame, Kind, Port
from difflang.ir.graph import Eqn, Graph, Value

# A run keeps a Python object of each; calls are inlined, so that small programs can become large.
MAX_NODES = 1_000_000
Placement = Mapping[Eqn, int]


def lower_to_dataflow(graph: Graph, placement: Placement | None = None, devices: int = 1) -> DataflowProgram:
    """The nodes of a graph whose sizes are numbers; each equation is on its device of `placement`, or on device 0.

    The order of nodes, and so their numbers, depend on the graph alone. Errors: DL1010 for too many nodes.
    """
    builder = NodeBuilder(placement or {})
    inputs = [builder.node("Input", what=p.hint) for p in graph.params]
    results = builder.graph(graph, [Port(n) for n in inputs])
    return DataflowProgram(builder.nodes, inputs, results, devices)


class NodeBuilder:
    """Makes nodes; what `RegionRules.dataflow_lower_rule` receives, see `ops.region_interface.DataflowLowering`."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.nodes: list[DataflowNode] = []
        self.frames = 0
        self.frame: Frame | None = None  # that nodes are made in
        self.device = 0
        self.span: Span = NO_SPAN
        self.pivot: Port | None = None  # fires where this region runs: what takes no input waits for it
        self.effects: Port | None = None  # fires after the last effect so far of this region

    def node(
        self, kind: Kind, *inputs: Port, what: str = "", outputs: int = 1, eqn: Eqn | None = None,
        function: Callable[..., Any] | None = None, controls: Sequence[Port] = (),
        constant: bool = False, loops: bool = False,
    ) -> DataflowNode:  # fmt: skip
        if len(self.nodes) == MAX_NODES:
            message = f"the program has more than {MAX_NODES:,} nodes on the dataflow machine, where calls are inlined"
            raise DifflangError(Diagnostic("DL1010", message, (), ("interpret it: `--engine interpret`",)))
        made = DataflowNode(
            len(self.nodes), kind, [*inputs, *controls], self.frame, self.device, what, outputs, eqn, function,
            len(controls), span=self.span, constant=constant, loops=loops,
        )  # fmt: skip
        self.nodes.append(made)
        return made

    def graph(self, graph: Graph, inputs: Sequence[Port]) -> list[Port]:
        """The ports of a region's results, computed in this place."""
        ports: dict[Value, Port] = dict(zip(graph.params, inputs, strict=True))
        outer = self.device, self.span
        for eqn in graph.eqns:
            self.device, self.span = self.placement.get(eqn, 0), eqn.span
            operands = [ports[v] for v in eqn.operands]
            rules = eqn.op.regions
            found = self.equation(eqn, operands) if rules is None else rules.dataflow_lower_rule(self, eqn, operands)
            ports.update(zip(eqn.results, found, strict=True))
        self.device, self.span = outer
        return [ports[r] for r in graph.results]

    def equation(self, eqn: Eqn, operands: Sequence[Port]) -> list[Port]:
        """A node for one equation. Effects fire in the order of the program, one after the other."""
        controls = [self.effects] if eqn.effectful and self.effects is not None else self.gate(operands)
        results = len(eqn.results)
        # The last output of an effect says that it has happened.
        made = self.node("Op", *operands, what=eqn.op.name, outputs=results + eqn.effectful, eqn=eqn, controls=controls)
        if eqn.effectful:
            self.effects = Port(made, results)
        return [Port(made, i) for i in range(results)]

    def compute(self, what: str, function: Callable[..., Any], *inputs: Port) -> Port:
        """A node of the machine's own, with one output."""
        return Port(self.node("Op", *inputs, what=what, function=function, controls=self.gate(inputs)))

    def compute_with_storage(self, what: str, function: Callable[..., Any], *inputs: Port) -> Port:
        made = self.compute(what, function, *inputs)
        made.node.uses_storage = True
        return made

    def gate(self, inputs: Sequence[Port]) -> list[Port]:
        """What else a node waits for: with no inputs, or only those that are there in every iteration of a frame, for
        the region around it to run."""
        return [self.pivot] if self.pivot is not None and all(p.node.constant for p in inputs) else []

    def only_here(self, value: Port) -> Port:
        """A value that is live only where the region around it runs, also if it is there in every iteration."""
        return self.compute("here", lambda x: x, value) if value.node.constant else value

    def unpack(self, packed: Port, count: int) -> list[Port]:
        """The items of a tuple that a node gives."""
        return [self.compute(f"item {i}", lambda items, i=i: items[i], packed) for i in range(count)]

    def start_of_effects(self) -> Port:
        if self.effects is None:
            self.effects = self.compute("start", tuple)
        return self.effects

    # ---- Branches

    def cond(self, predicate: Port, inputs: Sequence[Port], regions: Sequence[Graph]) -> list[Port]:
        """A branch: each input goes to one region by a Switch; a Merge of each result takes the one that ran."""
        predicate = self.only_here(predicate)
        effectful = any(r.effectful for r in regions)
        values = [*inputs, *([self.start_of_effects()] if effectful else [])]
        switches = [self.node("Switch", value, predicate, outputs=2) for value in values]
        chosen = self.node("Switch", predicate, predicate, outputs=2, what="pivot")
        outer, found = (self.pivot, self.effects), list[list[Port]]()
        for output, region in zip((1, 0), regions, strict=True):
            sides = [Port(n, output) for n in switches]
            self.pivot = Port(chosen, output)
            self.effects = sides.pop() if effectful else None
            results = self.graph(region, sides)
            found.append([*results, *([self.effects] if effectful and self.effects is not None else [])])
        self.pivot, self.effects = outer
        merged = [Port(self.node("Merge", one, other)) for one, other in zip(*found, strict=True)]
        if effectful:
            self.effects = merged.pop()
        return merged

    # ---- Loops

    def while_loop(
        self, fixed: Sequence[Port], start: Sequence[Port],
        go: Callable[[list[Port], list[Port]], Port], step: Callable[[list[Port], list[Port]], list[Port]],
        *, effectful: bool = False,
    ) -> list[Port]:  # fmt: skip
        """A loop in a frame of its own: the last values of what starts as `start`; `fixed` is there in every iteration.

        `go` and `step` receive the ports of both inside. There is at least one value that starts; the first one is
        what tells each iteration that it runs.
        """
        initial = [*start, *([self.start_of_effects()] if effectful else [])]
        outer = self.frame, self.pivot, self.effects
        self.frames += 1
        self.frame = Frame(self.frames, self.frame, self.span)
        constants = [Port(self.node("Enter", x, constant=True)) for x in fixed]
        heads = [self.node("Merge", Port(self.node("Enter", x)), loops=True) for x in initial]

        def inside(ports: list[Port]) -> list[Port]:
            """What a region receives, where it begins."""
            self.pivot = ports[0]
            self.effects = ports.pop() if effectful else None
            return ports

        goes = go(constants, inside([Port(n) for n in heads]))
        # Effects of the condition come before those of the step.
        tested = [Port(n) for n in heads]
        if effectful and self.effects is not None:
            tested[-1] = self.effects
        predicate = Port(self.node("LoopCond", goes))
        switches = [self.node("Switch", x, predicate, outputs=2) for x in tested]
        after = step(constants, inside([Port(n, 1) for n in switches]))
        if effectful and self.effects is not None:
            after = [*after, self.effects]
        for head, value in zip(heads, after, strict=True):
            head.inputs.append(Port(self.node("NextIteration", self.only_here(value))))
        exits = [Port(self.node("Exit", Port(n, 0))) for n in switches]
        self.frame, self.pivot, self.effects = outer
        if effectful:
            self.effects = exits.pop()
        return exits
