"""Reads XLA's profiler traces: the time of each operation of a compiled program, and the source lines it comes from."""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

import jax
from jax.profiler import ProfileData
from msgspec import Struct

from difflang.lower.source_locations import FRAME_NAME
from difflang.runtime.compile import Executable
from difflang.runtime.trace_sampling import TARGET_TRACE_BYTES, TraceSampler

SourceLine = tuple[str, int]  # the name of a source, and a line of it
MIN_TRACED_SECONDS, MAX_TRACED_CALLS = 0.5, 20  # a program is traced for so long, or so many calls
MAX_OPS_PER_FULL_TRACE = 50_000  # a call with more operations is sampled, not traced as a whole
MAX_TRACE_BYTES = 4 * TARGET_TRACE_BYTES  # of the traces of a program: some 40,000 operations
CONTAINER_OPS = {"while", "conditional", "call"}  # operations that run others
FREE_IN_FUSION_OPS = {"bitcast", "parameter", "constant", "get-tuple-element", "tuple", "copy"}
# The parts of XLA's HLO text that are read. XLA prints a computation after those that it uses.
TABLES = re.compile(r"^(\d+) (?:\"(.*)\"|\{(.*)\})$")
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*? ([a-z][\w\-]*)\(([^)]*)\)")
NAME = re.compile(r"%([\w.\-]+)")
HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
COMPUTATION_REFERENCE = re.compile(r"\b(?:body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
ZERO_COST_OPS = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast"}
FRAME = re.compile(r"stack_frame_id=(\d+)")
CALLS_OF = re.compile(r"calls=%?([\w.\-]+)")


class ProfilerTraces:
    """Traces calls of programs, each program until it was traced for long enough."""

    def __init__(self) -> None:
        # All by the name of a program.
        self.seconds: dict[str, float] = defaultdict(float)  # in traced calls
        self.calls: Counter[str] = Counter()
        self.ops: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # seconds of each operation
        self.unattributed: dict[str, float] = defaultdict(float)  # seconds without a known operation
        self.bytes: Counter[str] = Counter()  # of its traces
        self.sampled: Counter[str] = Counter()  # samples of a program that is not traced as a whole
        self.steps: dict[str, float] = {}  # operations that a call runs
        self.modules: dict[str, str] = {}  # XLA's name of the program
        self.failed = ""  # why tracing has stopped

    def call(self, name: str, program: Executable, arrays: Sequence[Any]) -> tuple[list[Any], float]:
        """The computed results of a call, and its time."""
        if not self.should_trace(name):
            return timed_call(program, arrays)
        if name not in self.steps:
            text = program.xla_executable.as_text()
            self.steps[name], self.modules[name] = max_op_count(text), hlo_module_name(text)
        with TraceSampler(periodic=self.steps[name] > MAX_OPS_PER_FULL_TRACE) as sampling:
            results, took = timed_call(program, arrays)
        self.failed = sampling.failed
        self.seconds[name] += took
        self.calls[name] += 1
        self.add(name, sampling, took)
        return results, took

    def should_trace(self, name: str) -> bool:
        little = (
            self.seconds[name] < MIN_TRACED_SECONDS
            and self.calls[name] < MAX_TRACED_CALLS
            and self.bytes[name] < MAX_TRACE_BYTES
        )
        return little and not self.failed

    def add(self, name: str, sampling: TraceSampler, took: float) -> None:
        """Add the samples of a call; each one stands for the time from its beginning to that of the next."""
        samples = sampling.samples
        ends = [sample.begin for sample in samples[1:]] + [took]
        self.bytes[name] += sum(len(sample.trace) for sample in samples)
        self.sampled[name] += len(samples) if any(sample.end < took for sample in samples) else 0
        if not samples:
            self.unattributed[name] += took
        for sample, end in zip(samples, ends, strict=True):
            found, lasted = op_seconds(sample.trace, self.modules[name])
            known = end - sample.begin
            if sample.end < took:  # the trace leaves out operations at both edges of a sample
                known *= min(lasted / (sample.end - sample.begin), 1.0)
            whole = sum(found.values())
            for op, spent in found.items():
                self.ops[name][op] += spent / whole * known
            self.unattributed[name] += end - sample.begin - (known if whole else 0.0)


def timed_call(program: Executable, arrays: Sequence[Any]) -> tuple[list[Any], float]:
    start = time.perf_counter()
    results = jax.block_until_ready(program(*arrays))
    return results, time.perf_counter() - start


def op_seconds(trace: bytes, module: str) -> tuple[dict[str, float], float]:
    """The time of each operation of a program in a trace, and the time from the first start to the last end."""
    with warnings.catch_warnings():
        # Python 3.13 warns of a class that JAX 0.12 makes at its first use; as an error that would end the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        threads = op_events(ProfileData.from_serialized_xspace(trace), module)
    begin = min((event[0] for events in threads for event in events), default=0.0)
    end = max((event[1] for events in threads for event in events), default=0.0)
    return {op: spent / 1e9 for op, spent in wall_time(threads).items()}, (end - begin) / 1e9


OpEvent = tuple[float, float, str]  # start, end, operation


def op_events(data: Any, module: str) -> list[list[OpEvent]]:
    """For each thread, the operations of a program that it ran, with times in nanoseconds."""
    threads: list[list[OpEvent]] = []
    for line in [line for plane in data.planes for line in plane.lines]:
        here: list[OpEvent] = []
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats and stats.get("hlo_module", module) == module:
                start = float(event.start_ns)
                here.append((start, start + event.duration_ns, str(stats["hlo_op"])))
        threads.append(here)
    return threads


def wall_time(threads: Iterable[Sequence[OpEvent]]) -> dict[str, float]:
    """The wall time of each operation: every moment is shared equally by the innermost operations of all threads."""
    # A container that only waits, as a loop for its body on another thread, counts only where nothing else runs.
    edges = sorted(
        (at, -sign, number, thread, op)
        for thread, events in enumerate(threads)
        for number, (start, end, op) in enumerate(sorted(events, key=lambda e: (e[0], -e[1])))
        for at, sign in ((start, 1), (end, -1))
        if end > start
    )
    found: dict[str, float] = defaultdict(float)
    stacks: dict[int, dict[int, str]] = defaultdict(dict)
    before = 0.0
    for at, sign, number, thread, op in edges:
        tops = [next(reversed(stack.values())) for stack in stacks.values() if stack] if at > before else []
        busy = [o for o in tops if o.partition(".")[0] not in CONTAINER_OPS] or tops
        for each in busy:
            found[each] += (at - before) / len(busy)
        before = at
        if sign < 0:
            stacks[thread][number] = op
        else:
            stacks[thread].pop(number)
    return found


# ---- From operations to lines


def hlo_module_name(text: str) -> str:
    """XLA's name of the program with this text."""
    return text.partition(",")[0].removeprefix("HloModule ").split()[0]


def max_op_count(text: str) -> float:
    """The most operations that a call of this program can run, infinity if that depends on the data."""
    found: dict[str, float] = defaultdict(float)  # by computation, each after those that it uses
    computation = ""
    for row in text.splitlines():
        if (head := HEAD.match(row)) is not None:
            computation = head[1]
            found[computation] = 0.0
        elif (made := INSTRUCTION.match(row)) is not None:
            found[computation] += row_op_count(made[2], row, found)
    return found.get(computation, inf)


def row_op_count(opcode: str, row: str, found: Mapping[str, float]) -> float:
    if opcode in ZERO_COST_OPS:
        return 0.0
    if opcode == "custom-call" and "callback" in row:
        return inf  # a Python callback may do anything
    if opcode not in CONTAINER_OPS:
        return 1.0
    branches = BRANCHES.search(row)
    parts = (
        [part.strip().removeprefix("%") for part in branches[1].split(",")]
        if branches
        else COMPUTATION_REFERENCE.findall(row)
    )
    once = sum(found.get(part, inf) for part in parts)
    if opcode != "while":
        return 1.0 + once
    trips = TRIPS.search(row)
    return 1.0 + (int(trips[1]) + 1) * once if trips else inf


class HloInstruction(Struct, frozen=True):
    """One row of a program as XLA prints it."""

    opcode: str
    line: SourceLine | None
    reads: tuple[str, ...]
    calls: str  # the computation that it runs


def op_source_lines(text: str) -> dict[str, Counter[SourceLine]]:
    """The source lines of each operation; of a fusion, those of all operations in it."""
    # An operation without a position gets that of the operations that read it, or else of those that it reads.
    rows, inside = parse_hlo_instructions(text)
    found: dict[str, Counter[SourceLine]] = {}
    for name, row in rows.items():
        parts = [rows[i] for i in inside.get(row.calls, ())] if row.opcode == "fusion" else []
        lines = [part.line for part in parts if part.line is not None and part.opcode not in FREE_IN_FUSION_OPS]
        found[name] = Counter(lines or ([row.line] if row.line is not None else []))
    for name in reversed(rows):
        for read in rows[name].reads:
            if not found.get(read, True):
                found[read] = found[name]
    for name, row in rows.items():
        found[name] = found[name] or next((found[r] for r in row.reads if found.get(r)), found[name])
    return found


def parse_hlo_instructions(text: str) -> tuple[dict[str, HloInstruction], dict[str, list[str]]]:
    """All operations by name, each after those that it reads, and the operations of each computation."""
    frames, rows, inside, computation = (
        parse_stack_frames(text),
        dict[str, HloInstruction](),
        defaultdict[str, list[str]](list),
        "",
    )
    for text_row in text.splitlines():
        if (made := INSTRUCTION.match(text_row)) is not None:
            frame, calls = FRAME.search(text_row), CALLS_OF.search(text_row)
            line = frames.get(int(frame[1])) if frame else None
            rows[made[1]] = HloInstruction(made[2], line, tuple(NAME.findall(made[3])), calls[1] if calls else "")
            inside[computation].append(made[1])
        elif (head := HEAD.match(text_row)) is not None:
            computation = head[1]
    return rows, inside


def parse_stack_frames(text: str) -> dict[int, SourceLine]:
    """The source line of each stack frame that has one."""
    tables: dict[str, dict[int, Any]] = defaultdict(dict)
    title = ""
    for row in text.splitlines():
        if row in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            title = row
        elif title and (found := TABLES.match(row)) is not None:
            fields = dict(part.split("=", 1) for part in (found[3] or "").split() if "=" in part)
            tables[title][int(found[1])] = fields if found[2] is None else found[2]
        elif row and title:
            title = ""
    # Lowering runs each equation in a function of this name, whose line is the equation's source line.
    ours = {n for n, name in tables["FunctionNames"].items() if name == FRAME_NAME}
    lines: dict[int, SourceLine] = {}
    for number in tables["StackFrames"]:
        line = frame_source_line(number, tables, ours)
        if line is not None:
            lines[number] = line
    return lines


def frame_source_line(number: int, tables: Mapping[str, Mapping[int, Any]], ours: set[int]) -> SourceLine | None:
    """The innermost source line of a frame, following its parents."""
    seen: set[int] = set()
    while number in tables["StackFrames"] and number not in seen:
        seen.add(number)
        frame = tables["StackFrames"][number]
        place = tables["FileLocations"].get(int(frame.get("file_location_id", 0)), {})
        if int(place.get("function_name_id", 0)) in ours:
            name = tables["FileNames"].get(int(place.get("file_name_id", 0)), "")
            return str(name), int(place.get("line", 0))
        number = int(frame.get("parent_frame_id", 0))
    return None
