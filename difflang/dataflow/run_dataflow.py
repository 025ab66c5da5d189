"""Runs of a graph on the dataflow machine, all devices in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Self

import numpy as np
from msgspec import Struct, field

from difflang.base.diagnostics import InternalError
from difflang.base.source import Span
from difflang.dataflow.executor import DataflowToken, DeviceExecutor, Observer, Report, Tag
from difflang.dataflow.nodes import DataflowProgram
from difflang.dataflow.stack_storage import in_memory
from difflang.ir.interpreter import TextSink, discard_text


class RunOptions(Struct, frozen=True):
    """How a program runs: iterations of one frame that may be under way at once; the bytes of stacks that each device
    holds in memory; `seed`: tokens arrive in random order; `observe` sees each node that fires."""

    parallel_iterations: int = 32
    swap_above: int | None = None
    seed: int | None = None
    observe: Observer | None = None
    text_sink: TextSink = discard_text


class RunStatistics(Struct, frozen=True):
    """What happened in a run, over all devices.

    `fired` and `dead` count nodes by kind that fired, and those of them on a dead token. `work` is the number of
    equations that were computed, `span` how many of them follow each other on the longest way, `widths` how many could
    run side by side, step by step; `lines` counts the equations of each line, as `model.dfl:3`.
    `most_iterations` of one frame were under way at once. `swapped_out` values of stacks went to a file and
    `swapped_in` reads brought one back; `swapped_bytes` of files were in use.
    """

    fired: Counter[str]
    dead: Counter[str]
    widths: tuple[int, ...]
    lines: Counter[str]
    most_iterations: int
    swapped_out: int = 0
    swapped_in: int = 0
    swapped_bytes: int = 0

    @classmethod
    def of(cls, program: DataflowProgram, reports: Sequence[Report]) -> Self:
        """Those of all devices together, from what each one reports."""
        fired, dead, widths, lines = Counter[str](), Counter[str](), Counter[int](), Counter[str]()
        nodes = {node.number: node for node in program.nodes}
        names = LineNames(node.span for node in program.nodes)
        for report in reports:
            fired.update(report["fired"])
            dead.update(report["dead"])
            widths.update(dict(report["widths"]))
            for number, count in report["computed"]:
                lines[names(nodes[number].span)] += count
        most = max(report["most_iterations"] for report in reports)
        swapped = [sum(counts) for counts in zip(*[report["swapped"] for report in reports], strict=True)]
        return cls(+fired, +dead, tuple([widths[i] for i in range(len(widths))]), lines, most, *swapped)

    @property
    def work(self) -> int:
        return sum(self.widths)

    @property
    def span(self) -> int:
        return len(self.widths)


class RunTotals(Struct):
    """What happened in all runs of a program: their sums, and the largest of what is counted at once."""

    runs: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    work: int = 0
    span: int = 0
    widest: int = 0
    most_iterations: int = 0
    swapped_out: int = 0
    swapped_in: int = 0
    swapped_bytes: int = 0

    def add(self, run: RunStatistics) -> None:
        """Count one more run."""
        self.runs += 1
        for total, counted in ((self.fired, run.fired), (self.dead, run.dead), (self.lines, run.lines)):
            total.update(counted)
        self.work += run.work
        self.span += run.span
        self.swapped_out += run.swapped_out
        self.swapped_in += run.swapped_in
        self.widest = max([self.widest, *run.widths])
        self.most_iterations = max(self.most_iterations, run.most_iterations)
        self.swapped_bytes = max(self.swapped_bytes, run.swapped_bytes)


class LineNames:
    """Names lines as `model.dfl:3`, by the last part of the file's name if no other file of these spans has it."""

    def __init__(self, spans: Iterable[Span]) -> None:
        sources = {span.source.name for span in spans if span.is_known}
        shared = Counter(Path(name).name for name in sources)
        self.files = {name: last if shared[last := Path(name).name] == 1 else name for name in sources}

    def __call__(self, span: Span) -> str:
        return f"{self.files[span.source.name]}:{span.position[0]}" if span.is_known else "no line"


class LocalNetwork:
    """Tokens between devices of one process."""

    def __init__(self) -> None:
        self.arrived: dict[tuple[str, Tag], DataflowToken] = {}
        self.waiting: dict[tuple[str, Tag], Callable[[DataflowToken], None]] = {}

    def send(self, key: str, tag: Tag, device: int, token: DataflowToken) -> None:
        if (key, tag) in self.waiting:
            self.waiting.pop((key, tag))(token)
        else:
            self.arrived[key, tag] = token

    def receive(self, key: str, tag: Tag, deliver: Callable[[DataflowToken], None]) -> None:
        if (key, tag) in self.arrived:
            deliver(self.arrived.pop((key, tag)))
        else:
            self.waiting[key, tag] = deliver


def run_dataflow(
    program: DataflowProgram, arrays: Sequence[Any], options: RunOptions | None = None
) -> tuple[list[Any], RunStatistics]:
    """The program's results on NumPy arrays, and what happened. The devices take turns.

    Errors: InternalError if devices wait for tokens that none of them sends, or tokens are left.
    """
    options = options or RunOptions()
    network, order = LocalNetwork(), None if options.seed is None else Random(options.seed)
    devices = [
        DeviceExecutor(
            number,
            program.of_device(number),
            [p for p in program.results if p.node.device == number],
            network,
            parallel_iterations=options.parallel_iterations,
            swap_above=options.swap_above,
            order=order,
            observe=options.observe,
            text_sink=options.text_sink,
        )
        for number in range(program.devices)
    ]
    given = list(zip(program.inputs, map(np.asarray, arrays), strict=True))
    with np.errstate(all="ignore"):
        for device in devices:
            device.start([(node, x) for node, x in given if node.device == device.number])
        while busy := [d for d in devices if not d.idle]:
            for device in busy:
                device.step()
    if waiting := [key for d in devices for key, _ in d.expected.values()]:
        raise InternalError(f"devices wait for tokens that nobody sends: {', '.join(waiting[:3])}")
    if network.arrived:
        raise InternalError(f"tokens were sent that nobody receives: {', '.join(k for k, _ in network.arrived)}")
    for device in devices:
        device.check_nothing_left()
    return collect_results(program, devices), RunStatistics.of(program, [d.report() for d in devices])


def collect_results(program: DataflowProgram, devices: Sequence[DeviceExecutor]) -> list[Any]:
    found = {port: token for d in devices for port, token in d.results.items()}
    tokens = [found[p.node.number, p.output] for p in program.results]
    return [in_memory(t.value) for t in tokens if t is not None]
