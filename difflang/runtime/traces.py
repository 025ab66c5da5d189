"""Which operation of a compiled program takes how long: XLA's own trace of some calls, and the lines they come from."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData
from msgspec import Struct

from difflang.lower.locations import CALLED
from difflang.runtime.compile import Executable

Line = tuple[str, int]  # the name of a text, and a line of it
ENOUGH, CALLS = 0.5, 20  # seconds, and calls, of one program that are traced
LONGEST = 5.0  # seconds of one trace, which is held in memory
HOLDS = {"while", "conditional", "call"}  # operations that are others
MOVES = {"bitcast", "parameter", "constant", "get-tuple-element", "tuple", "copy"}  # what costs nothing in a fusion
TABLES = re.compile(r"^(\d+) (?:\"(.*)\"|\{(.*)\})$")
MADE = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*? ([a-z][\w\-]*)\(([^)]*)\)")
NAME = re.compile(r"%([\w.\-]+)")
HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
FRAME = re.compile(r"stack_frame_id=(\d+)")
CALLS_OF = re.compile(r"calls=%?([\w.\-]+)")


class Traces:
    """Traces of calls, taken until each program was traced for long enough."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)  # of each program, while it was traced
        self.calls: Counter[str] = Counter()
        self.ops: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # nanoseconds of each operation
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.began = 0.0

    def call(self, name: str, program: Executable, arrays: Sequence[Any]) -> tuple[list[Any], float]:
        """The results of a call, which is over then, and how long it took."""
        if self.folder is None and self.wants(name):
            self.start()
        start = time.perf_counter()
        results = jax.block_until_ready(program(*arrays))
        took = time.perf_counter() - start
        if self.folder is not None:
            self.seconds[name] += took
            self.calls[name] += 1
            if not any(map(self.wants, self.seconds)) or start + took - self.began > LONGEST:
                self.stop()
        return results, took

    def wants(self, name: str) -> bool:
        return self.seconds[name] < ENOUGH and self.calls[name] < CALLS

    def start(self) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        self.folder, self.began = tempfile.TemporaryDirectory(prefix="difflang-"), time.perf_counter()
        jax.profiler.start_trace(self.folder.name, profiler_options=options)

    def stop(self) -> None:
        """End a trace that is being taken, and read it."""
        if self.folder is None:
            return
        folder, self.folder = self.folder, None
        with folder:
            jax.profiler.stop_trace()
            for path in Path(folder.name).rglob("*.xplane.pb"):
                for module, ops in shares(ProfileData.from_serialized_xspace(path.read_bytes())).items():
                    for op, spent in ops.items():
                        self.ops[module][op] += spent


Event = tuple[float, float, str]  # from, to, operation


def shares(data: Any) -> dict[str, dict[str, float]]:
    """The nanoseconds of each operation of each module."""
    events: dict[str, list[list[Event]]] = defaultdict(list)
    for line in [line for plane in data.planes for line in plane.lines]:
        here: dict[str, list[Event]] = defaultdict(list)
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                start = float(event.start_ns)
                here[str(stats.get("hlo_module", ""))].append((start, start + event.duration_ns, str(stats["hlo_op"])))
        for module, found in here.items():
            events[module].append(found)
    return {module: wall_time(threads) for module, threads in events.items()}


def wall_time(threads: Iterable[Sequence[Event]]) -> dict[str, float]:
    """Each moment given to the operations at work in it: to the innermost of each thread, in equal parts.

    What only waits for others, a loop for its body on another thread, gets what nobody else does.
    """
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
        busy = [o for o in tops if o.partition(".")[0] not in HOLDS] or tops
        for each in busy:
            found[each] += (at - before) / len(busy)
        before = at
        if sign < 0:
            stacks[thread][number] = op
        else:
            stacks[thread].pop(number)
    return found


# ---- From operations to lines


def module_of(text: str) -> str:
    """What XLA calls the program whose text this is."""
    return text.partition(",")[0].removeprefix("HloModule ").split()[0]


class Instruction(Struct, frozen=True):
    """One row of a program as XLA prints it."""

    opcode: str
    line: Line | None
    reads: tuple[str, ...]
    calls: str  # the computation that it does


def lines_of(text: str) -> dict[str, Counter[Line]]:
    """The lines that each operation comes from: of one that holds several, one for each of them.

    An operation of which XLA does not say it comes from where those do that read it, or that it reads.
    """
    rows, inside = instructions_of(text)
    found: dict[str, Counter[Line]] = {}
    for name, row in rows.items():
        parts = [rows[i] for i in inside.get(row.calls, ())] if row.opcode == "fusion" else []
        lines = [part.line for part in parts if part.line is not None and part.opcode not in MOVES]
        found[name] = Counter(lines or ([row.line] if row.line is not None else []))
    for name in reversed(rows):
        for read in rows[name].reads:
            if not found.get(read, True):
                found[read] = found[name]
    for name, row in rows.items():
        found[name] = found[name] or next((found[r] for r in row.reads if found.get(r)), found[name])
    return found


def instructions_of(text: str) -> tuple[dict[str, Instruction], dict[str, list[str]]]:
    """Every operation by its name, each after those that it reads, and which of them each computation holds."""
    frames, rows, inside, computation = frames_of(text), dict[str, Instruction](), defaultdict[str, list[str]](list), ""
    for written in text.splitlines():
        if (made := MADE.match(written)) is not None:
            frame, calls = FRAME.search(written), CALLS_OF.search(written)
            line = frames.get(int(frame[1])) if frame else None
            rows[made[1]] = Instruction(made[2], line, tuple(NAME.findall(made[3])), calls[1] if calls else "")
            inside[computation].append(made[1])
        elif (head := HEAD.match(written)) is not None:
            computation = head[1]
    return rows, inside


def frames_of(text: str) -> dict[int, Line]:
    """The line of the program for each stack frame that has one."""
    tables: dict[str, dict[int, Any]] = defaultdict(dict)
    title = ""
    for row in text.splitlines():
        if row in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            title = row
        elif title and (found := TABLES.match(row)) is not None:
            told = dict(part.split("=", 1) for part in (found[3] or "").split() if "=" in part)
            tables[title][int(found[1])] = told if found[2] is None else found[2]
        elif row and title:
            title = ""
    ours = {n for n, name in tables["FunctionNames"].items() if name == CALLED}
    lines: dict[int, Line] = {}
    for number in tables["StackFrames"]:
        line = line_at(number, tables, ours)
        if line is not None:
            lines[number] = line
    return lines


def line_at(number: int, tables: Mapping[str, Mapping[int, Any]], ours: set[int]) -> Line | None:
    """The innermost line of the program that a frame stands in."""
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
