"""The data structures of the dataflow machine: nodes, their output ports, the frames of loops, and whole programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from difflang.base.source import NO_SPAN, Span
from difflang.ir.graph import Eqn

Kind = Literal[
    "Input",
    "Op",  # fires when all inputs are there; dead if one is
    "Switch",  # value, predicate -> (if false, if true): the other one is dead
    "Merge",  # the first live token of its inputs
    "Enter",  # a value goes into the first iteration of a frame, or, if constant, into each one
    "Exit",  # a value leaves its frame
    "NextIteration",  # a value goes to the next iteration of its frame
    "LoopCond",  # the predicate of a frame
    "Send",  # a token goes to another device, under a key and the iteration
    "Recv",
]


class Frame(Struct, frozen=True, eq=False):
    """One loop in the program; each time that it is entered, its iterations have a life of their own."""

    number: int
    parent: Frame | None
    span: Span

    @property
    def depth(self) -> int:
        return 1 + (self.parent.depth if self.parent is not None else 0)

    def __repr__(self) -> str:
        return f"frame {self.number}"


class DataflowNode(Struct, eq=False):
    """One node. `inputs` end with the `controls` ports whose values do not matter, only that they are there.

    A node of an equation has `eqn`; one of the machine itself computes by `function`, and `what` says what it is.
    """

    number: int
    kind: Kind
    inputs: list[Port]
    frame: Frame | None
    device: int
    what: str = ""
    outputs: int = 1
    eqn: Eqn | None = None
    function: Callable[..., Any] | None = None
    controls: int = 0
    uses_storage: bool = False  # its function receives the `StackStorage` of the device first
    span: Span = NO_SPAN
    constant: bool = False  # an Enter whose value each iteration gets
    loops: bool = False  # a Merge at the head of a loop: of its inputs, each iteration gets one
    key: str = ""  # of a Send and its Recv
    target: int = 0  # the device that a Send goes to

    def __repr__(self) -> str:
        return f"{self.kind} {self.number}{f' ({self.what})' if self.what else ''}"

    @property
    def out_frame(self) -> Frame | None:
        """The frame that its outputs are in."""
        return self.frame.parent if self.kind == "Exit" and self.frame is not None else self.frame

    @property
    def is_work(self) -> bool:
        """Whether it computes an equation of the program."""
        return self.eqn is not None


class Port(NamedTuple):
    """One output of a node."""

    node: DataflowNode
    output: int = 0


class DataflowProgram(Struct, eq=False):
    """The nodes of a program, in the order in which they were made, its inputs, and the ports of its results."""

    nodes: list[DataflowNode]
    inputs: list[DataflowNode]
    results: list[Port]
    devices: int = 1

    def of_device(self, device: int) -> list[DataflowNode]:
        return [n for n in self.nodes if n.device == device]

    def counts(self) -> Counter[str]:
        """How many nodes of each kind there are."""
        return Counter(n.kind for n in self.nodes)

    def lines(self) -> Iterator[str]:
        """The text of the program, a line for each node."""
        for n in self.nodes:
            place = "".join([f"  {n.frame}" if n.frame else "", f"  device {n.device}" if self.devices > 1 else ""])
            inputs = [f"%{p.node.number}{f':{p.output}' if p.node.outputs > 1 else ''}" for p in n.inputs]
            cut = len(inputs) - n.controls
            given = ", ".join([*inputs[:cut], *[f"after {x}" for x in inputs[cut:]]])
            about = " ".join([x for x in (n.what, n.key and f"`{n.key}`", "constant" if n.constant else "") if x])
            line = f"  # line {n.span.position[0]}" if n.span is not NO_SPAN else ""
            yield f"%{n.number} = {n.kind}({given}){f' {about}' if about else ''}{place}{line}"
        results = ", ".join([f"%{p.node.number}{f':{p.output}' if p.node.outputs > 1 else ''}" for p in self.results])
        yield f"return {results}"

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"
