"""Partition of a program over devices: an edge between two becomes a Send and a Recv.

A device that takes part in a loop of another one has a control loop, which gets the predicate of each iteration and so
starts the Recvs of that iteration. What a loop has as constants enters on each device once.
"""

from __future__ import annotations

from difflang.dataflow.lower_to_dataflow import Placement, lower_to_dataflow
from difflang.dataflow.nodes import DataflowNode, DataflowProgram, Frame, Kind, Port
from difflang.ir.graph import Graph


def dataflow_program(graph: Graph, placement: Placement | None = None, devices: int = 1) -> DataflowProgram:
    """The program of a graph on devices, with its results on device 0. Errors: those of `lower_to_dataflow`."""
    program = lower_to_dataflow(graph, placement, devices)
    return program if devices == 1 else Partition(program).whole()


class Partition:
    """Adds the nodes of communication to a program, which it changes."""

    def __init__(self, program: DataflowProgram) -> None:
        self.program, self.nodes = program, program.nodes
        self.received: dict[tuple[int, int, int], Port] = {}  # by port and device
        self.entered: dict[tuple[int, int], Port] = {}  # constants of a loop, by node and device
        self.triggers: dict[tuple[Frame, int], Port] = {}  # what fires in each iteration of a frame on a device
        self.predicates = {n.frame: n for n in self.nodes if n.kind == "LoopCond" and n.frame is not None}
        for node in self.nodes:
            # The first head of a loop was made first.
            if node.loops and node.frame is not None:
                self.triggers.setdefault((node.frame, node.device), Port(node))

    def whole(self) -> DataflowProgram:
        for node in list(self.nodes):
            node.inputs = [self.on_device(p, node.device) for p in node.inputs]
        self.program.results = [self.on_device(p, 0) for p in self.program.results]
        return self.program

    def add(
        self, kind: Kind, inputs: list[Port], frame: Frame | None, device: int, source: DataflowNode, what: str
    ) -> DataflowNode:
        made = DataflowNode(len(self.nodes), kind, inputs, frame, device, what, span=source.span)
        self.nodes.append(made)
        return made

    def on_device(self, port: Port, device: int) -> Port:
        """The same value on a device."""
        node, index = port
        if node.device == device:
            return port
        if node.constant:
            if (node.number, device) not in self.entered:
                given = self.on_device(node.inputs[0], device)
                enter = self.add("Enter", [given], node.frame, device, node, node.what)
                enter.constant = True
                self.entered[node.number, device] = Port(enter)
            return self.entered[node.number, device]
        if (node.number, index, device) not in self.received:
            trigger = self.trigger(node.out_frame, device)
            # The trigger of a control loop receives the predicate itself.
            if (node.number, index, device) not in self.received:
                self.receive(port, device, trigger)
        return self.received[node.number, index, device]

    def receive(self, port: Port, device: int, trigger: Port | None) -> Port:
        node, index = port
        send = self.add("Send", [port], node.out_frame, node.device, node, "")
        recv = self.add("Recv", [trigger] if trigger else [], node.out_frame, device, node, "")
        send.key = recv.key = f"{node.number}:{index}>{device}"
        send.outputs, send.target = 0, device
        self.received[node.number, index, device] = Port(recv)
        return Port(recv)

    def trigger(self, frame: Frame | None, device: int) -> Port | None:
        """What fires in each iteration of a frame on a device; None outside all frames, where a Recv starts at once."""
        if frame is None:
            return None
        if (frame, device) not in self.triggers:
            self.triggers[frame, device] = self.control_loop(frame, device)
        return self.triggers[frame, device]

    def control_loop(self, frame: Frame, device: int) -> Port:
        """A loop that only goes on as long as the loop itself does, on another device."""
        predicate = self.predicates[frame]
        outer = self.trigger(frame.parent, device)
        start = self.add("Op", [outer] if outer else [], frame.parent, device, predicate, "control")
        start.function, start.controls = tuple, len(start.inputs)
        enter = self.add("Enter", [Port(start)], frame, device, predicate, "control")
        head = self.add("Merge", [Port(enter)], frame, device, predicate, "control")
        head.loops = True
        again = self.receive(Port(predicate), device, Port(head))
        switch = self.add("Switch", [Port(head), again], frame, device, predicate, "control")
        switch.outputs = 2
        head.inputs.append(Port(self.add("NextIteration", [Port(switch, 1)], frame, device, predicate, "control")))
        return Port(head)
