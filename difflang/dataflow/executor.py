"""The executor of one device: nodes fire on tokens, by iteration; a frame ends when no token is left in it.

A token is a value, or dead: what would have made it did not run. A node fires when the tokens of all its inputs are
there in one iteration; if one is dead, what it gives is dead. A Merge fires on the first live token.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from random import Random
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from difflang.base.diagnostics import InternalError
from difflang.dataflow.nodes import DataflowNode, Frame, Port
from difflang.dataflow.stack_storage import StackStorage
from difflang.ir.interpreter import TextSink, check_array, discard_text, evaluate_eqn

Tag = tuple[int, ...]
"""The number of the iteration in each frame around a token, the outermost first."""


class DataflowToken(NamedTuple):
    """A value or, if `dead`, none. `depth` counts the equations on the longest way to it: the span of a run."""

    value: Any
    dead: bool
    depth: int


class Network(Protocol):
    """How tokens go from device to device: by a key and the iteration."""

    def send(self, key: str, tag: Tag, device: int, token: DataflowToken) -> None: ...
    def receive(self, key: str, tag: Tag, deliver: Callable[[DataflowToken], None]) -> None: ...


class Firing(NamedTuple):
    """One node that fired: the tokens that it took and gave, and when, in seconds."""

    node: DataflowNode
    tag: Tag
    inputs: Sequence[DataflowToken]
    tokens: Sequence[DataflowToken]
    begin: float
    end: float


Observer = Callable[[Firing], None]
Report = dict[str, Any]


# Kinds whose tokens are emitted in the iteration where they fire.
LOCAL_KINDS = ("Op", "Switch", "Merge", "LoopCond")


class Iteration:
    """One iteration of one frame, or the program outside all frames: its tokens that wait, and what is under way."""

    __slots__ = ("frames", "number", "run", "tag", "under_way", "waiting")

    def __init__(self, run: FrameRun | None, number: int, tag: Tag) -> None:
        self.run, self.number, self.tag = run, number, tag
        self.under_way = 0  # tokens on their way here, Recvs that wait, and frames that were entered from here
        self.waiting: dict[DataflowNode, dict[int, DataflowToken]] = {}  # by input
        self.frames: dict[Frame, FrameRun] = {}


class FrameRun:
    """A frame that was entered, once."""

    __slots__ = ("constants", "dead", "deferred", "entered", "frame", "iterations", "newest", "oldest", "parent")

    def __init__(self, frame: Frame, parent: Iteration) -> None:
        self.frame, self.parent = frame, parent
        self.iterations = {0: Iteration(self, 0, (*parent.tag, 0))}
        self.oldest = self.newest = 0  # those under way
        self.entered, self.dead = 0, False
        self.constants: list[tuple[DataflowNode, DataflowToken]] = []
        self.deferred: list[tuple[DataflowNode, DataflowToken]] = []  # for the next iteration


class DeviceExecutor:
    """The nodes of one device, and their tokens.

    `parallel_iterations` bounds how many iterations of a frame are under way, `swap_above` the bytes of stacks in
    memory. With `order`, tokens arrive in random order. `observe` sees each node that fires. `text_sink` receives what
    is printed.
    """

    def __init__(
        self, number: int, nodes: Sequence[DataflowNode], wanted: Iterable[Port], network: Network, *,
        parallel_iterations: int = 32, swap_above: int | None = None, order: Random | None = None,
        observe: Observer | None = None, text_sink: TextSink = discard_text,
    ) -> None:  # fmt: skip
        self.number, self.nodes, self.network = number, nodes, network
        self.parallel_iterations, self.order, self.observe = parallel_iterations, order, observe
        self.text_sink, self.storage = text_sink, StackStorage(swap_above)
        self.results: dict[tuple[int, int], DataflowToken | None] = {(p.node.number, p.output): None for p in wanted}
        self.consumers: dict[tuple[int, int], list[tuple[DataflowNode, int]]] = defaultdict(list)
        self.enters: Counter[Frame] = Counter()
        for node in nodes:
            for slot, (source, index) in enumerate(node.inputs):
                self.consumers[source.number, index].append((node, slot))
            if node.kind == "Enter" and node.frame is not None:
                self.enters[node.frame] += 1
        self.queue: deque[tuple[DataflowNode, int, DataflowToken, Iteration]] = deque()
        self.root = Iteration(None, 0, ())
        self.expected: dict[int, tuple[str, Tag]] = {}  # what Recvs wait for
        self.ticket = count()
        self.fired: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        self.widths: Counter[int] = Counter()  # the equations at each depth
        self.computed: Counter[int] = Counter()  # how often the equation of each node was, by its number
        self.most_iterations = 0  # of one frame under way at once

    def start(self, inputs: Sequence[tuple[DataflowNode, Any]]) -> None:
        """Fire what waits for nothing: the inputs, and the constants outside all frames."""
        for node, array in inputs:
            self.emit(node, 0, DataflowToken(array, False, 0), self.root)
        for node in self.nodes:
            if not node.inputs and node.kind != "Input":
                self.fire(node, (), self.root)

    @property
    def idle(self) -> bool:
        """Whether no token is on its way, except from other devices."""
        return not self.queue

    @property
    def finished(self) -> bool:
        return self.root.under_way == 0

    def step(self) -> None:
        """Let one token arrive."""
        if self.order is not None:
            self.queue.rotate(self.order.randrange(len(self.queue)))
        node, slot, token, iteration = self.queue.popleft()
        self.arrive(node, slot, token, iteration)
        iteration.under_way -= 1
        if not iteration.under_way:
            self.end_iterations(iteration)

    def check_nothing_left(self) -> None:
        """Errors: InternalError if a token waits for others that did not come, or a result is missing."""
        if self.root.waiting or self.root.frames or any(t is None for t in self.results.values()):
            raise InternalError(f"device {self.number}: tokens are left at {list(self.root.waiting)[:3]}")

    def report(self) -> Report:
        """What happened here, as data: nodes that fired and those on a dead token, equations by depth and by node."""
        return {
            "fired": dict(self.fired), "dead": dict(self.dead), "widths": sorted(self.widths.items()),
            "computed": sorted(self.computed.items()),
            "most_iterations": self.most_iterations,
            "swapped": (self.storage.swapped_out, self.storage.swapped_in, self.storage.swapped_bytes),
        }  # fmt: skip

    # ---- Tokens

    def emit(self, node: DataflowNode, index: int, token: DataflowToken, iteration: Iteration) -> None:
        key = node.number, index
        if key in self.results and iteration is self.root:
            self.results[key] = token
        for consumer, slot in self.consumers.get(key, ()):
            iteration.under_way += 1
            self.queue.append((consumer, slot, token, iteration))

    def arrive(self, node: DataflowNode, slot: int, token: DataflowToken, iteration: Iteration) -> None:
        if node.loops or len(node.inputs) == 1:
            self.fire(node, (token,), iteration)
            return
        slots = iteration.waiting.setdefault(node, {})
        slots[slot] = token
        complete = len(slots) == len(node.inputs)
        if complete:
            del iteration.waiting[node]
        if node.kind == "Merge":
            if not token.dead or (complete and all(t.dead for t in slots.values())):
                self.fire(node, (token,), iteration)
        elif complete:
            self.fire(node, [slots[i] for i in range(len(slots))], iteration)

    def fire(self, node: DataflowNode, tokens: Sequence[DataflowToken], iteration: Iteration) -> None:
        begin = perf_counter() if self.observe is not None else 0.0
        dead = any(t.dead for t in tokens)
        depth = max([t.depth for t in tokens], default=0)
        self.fired[node.kind] += 1
        self.dead[node.kind] += dead
        given: Sequence[DataflowToken] = tokens[:1]
        match node.kind:
            case "Op":
                given = self.compute(node, tokens, dead, depth)
            case "Switch":
                given = self.switch(tokens, depth)
            case "Enter":
                self.enter(node, tokens[0], iteration)
            case "Exit":
                self.exit(node, tokens[0], iteration)
            case "NextIteration":
                if not dead and iteration.run is not None:
                    self.next_iteration(node, tokens[0], iteration.run, iteration.number + 1)
            case "Send":
                self.network.send(node.key, iteration.tag, node.target, tokens[0])
            case "Recv":
                self.receive(node, iteration)
            case _:
                pass
        if node.kind in LOCAL_KINDS:
            for index, token in enumerate(given):
                self.emit(node, index, token, iteration)
        # A Recv is observed when its token comes.
        if self.observe is not None and node.kind != "Recv":
            self.observe(Firing(node, iteration.tag, tokens, given, begin, perf_counter()))

    def compute(
        self, node: DataflowNode, tokens: Sequence[DataflowToken], dead: bool, depth: int
    ) -> list[DataflowToken]:
        """The tokens of an equation, or of what the machine computes itself."""
        if dead:
            return [DataflowToken(None, True, depth)] * node.outputs
        values = [t.value for t in tokens[: len(tokens) - node.controls]]
        if node.eqn is None:
            assert node.function is not None
            given = [self.storage, *values] if node.uses_storage else values
            return [DataflowToken(node.function(*given), False, depth)]
        self.widths[depth] += 1
        self.computed[node.number] += 1
        found = evaluate_eqn(node.eqn, values, text_sink=self.text_sink)
        checked = [check_array(x, r.type, node.what) for x, r in zip(found, node.eqn.results, strict=True)]
        effect = [()] * (node.outputs - len(checked))
        return [DataflowToken(x, False, depth + 1) for x in [*checked, *effect]]

    def switch(self, tokens: Sequence[DataflowToken], depth: int) -> list[DataflowToken]:
        value, predicate = tokens
        live = DataflowToken(value.value, False, depth)
        dead = DataflowToken(None, True, depth)
        if value.dead or predicate.dead:
            return [dead, dead]
        return [dead, live] if predicate.value else [live, dead]

    # ---- Frames

    def enter(self, node: DataflowNode, token: DataflowToken, parent: Iteration) -> None:
        assert node.frame is not None
        run = parent.frames.get(node.frame)
        if run is None:
            run = parent.frames[node.frame] = FrameRun(node.frame, parent)
            parent.under_way += 1
            self.most_iterations = max(self.most_iterations, 1)
        run.entered += 1
        run.dead |= token.dead
        if node.constant:
            run.constants.append((node, token))
        for iteration in list(run.iterations.values()) if node.constant else [run.iterations[0]]:
            self.emit(node, 0, token, iteration)
        if not run.iterations[0].under_way:
            self.end_iterations(run.iterations[0])

    def exit(self, node: DataflowNode, token: DataflowToken, iteration: Iteration) -> None:
        run = iteration.run
        assert run is not None
        # All iterations but the last give a dead token here. Of a frame that is dead as a whole one must come out.
        if not token.dead or run.dead:
            self.emit(node, 0, token, run.parent)

    def next_iteration(self, node: DataflowNode, token: DataflowToken, run: FrameRun, number: int) -> None:
        if number in run.iterations:
            self.emit(node, 0, token, run.iterations[number])
        else:
            run.deferred.append((node, token))
            self.begin_iteration(run)

    def begin_iteration(self, run: FrameRun) -> None:
        """Begin the iteration after the newest one, if tokens wait for it and not too many are under way."""
        if not run.deferred or run.newest + 1 - run.oldest >= self.parallel_iterations:
            return
        run.newest += 1
        iteration = run.iterations[run.newest] = Iteration(run, run.newest, (*run.parent.tag, run.newest))
        self.most_iterations = max(self.most_iterations, len(run.iterations))
        waiting, run.deferred = run.deferred, []
        for node, token in [*run.constants, *waiting]:
            self.emit(node, 0, token, iteration)

    def end_iterations(self, iteration: Iteration) -> None:
        """End the oldest iterations of a frame in which nothing is under way, and the frame after the last one."""
        run = iteration.run
        if run is None or run.entered < self.enters[run.frame]:
            return
        while (oldest := run.iterations.get(run.oldest)) is not None and not oldest.under_way:
            if oldest.waiting:
                raise InternalError(f"device {self.number}: tokens are left at {list(oldest.waiting)[:3]}")
            del run.iterations[run.oldest]
            run.oldest += 1
            self.begin_iteration(run)
        if not run.iterations:
            del run.parent.frames[run.frame]
            run.parent.under_way -= 1
            if not run.parent.under_way:
                self.end_iterations(run.parent)

    # ---- Other devices

    def receive(self, node: DataflowNode, iteration: Iteration) -> None:
        ticket = next(self.ticket)
        self.expected[ticket] = (node.key, iteration.tag)
        iteration.under_way += 1

        def deliver(token: DataflowToken) -> None:
            del self.expected[ticket]
            self.emit(node, 0, token, iteration)
            if self.observe is not None:
                now = perf_counter()
                self.observe(Firing(node, iteration.tag, (), (token,), now, now))
            iteration.under_way -= 1
            if not iteration.under_way:
                self.end_iterations(iteration)

        self.network.receive(node.key, iteration.tag, deliver)
