"""The line profiler of `run --profile`: the time of a run by source line.

Each moment counts once: for compiling, for compiled code, or for the host. Compiled code is timed call by call, and its
time is divided among lines by XLA's profiler traces of some calls.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from difflang.base.diagnostics import printable
from difflang.base.source import Source, Span
from difflang.base.wording import count_of
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import TextSink, evaluate_instrumented

if TYPE_CHECKING:
    from difflang.runtime.compile import Executable
    from difflang.runtime.profiler_traces import ProfilerTraces

TimeKind = Literal["compile", "run", "host"]
LineKey = tuple[str, int]  # the name of a source, and a line of it
KINDS: tuple[TimeKind, ...] = ("run", "compile", "host")
ROWS, NOTES = 30, 5  # at most, of the table, and of each kind of note
START: LineKey = ("", 0)  # stands for no line


class ProfileRow(Struct, frozen=True):
    """The seconds of one line by kind, and its text."""

    line: LineKey
    seconds: Mapping[TimeKind, float]
    text: str

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class LineProfile:
    """The clock of one run. At any time it charges one line, for one kind of work."""

    def __init__(self) -> None:
        self.spent: dict[tuple[LineKey, TimeKind], float] = defaultdict(float)
        # Seconds of compiled programs, by program and calling line.
        self.ran: dict[tuple[str, LineKey], float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self.programs: dict[str, Executable] = {}
        self.sources: dict[str, Source] = {}
        self.here: tuple[LineKey, TimeKind] = (START, "host")
        self.since = time.perf_counter()
        self.traces: ProfilerTraces | None = None

    # ---- The clock

    def switch(self, to: tuple[LineKey, TimeKind]) -> tuple[LineKey, TimeKind]:
        """Charge another line or kind from now on; returns the previous one."""
        now = time.perf_counter()
        before, self.here = self.here, to
        self.spent[before] += now - self.since
        self.since = now
        return before

    @contextmanager
    def at(self, span: Span) -> Generator[None, None, None]:
        """A context whose time is charged to the host at a line."""
        before = self.switch((self.line(span), "host"))
        try:
            yield
        finally:
            self.switch(before)

    @contextmanager
    def doing(self, kind: TimeKind) -> Generator[None, None, None]:
        """A context whose time is charged to another kind at the same line."""
        before = self.switch((self.here[0], kind))
        try:
            yield
        finally:
            self.switch(before)

    def line(self, span: Span) -> LineKey:
        if not span.is_known:
            return self.here[0]
        self.sources.setdefault(span.source.name, span.source)
        return span.source.name, span.position[0]

    # ---- Programs

    def timed(self, graph: Graph, compile: Callable[[Graph], Executable]) -> TimedProgram:
        """A program whose calls are timed, compiled at once under a unique name, by which traces find it."""
        name = f"{graph.name or 'program'}_{len(self.programs)}"
        for eqn in graph.eqns:
            self.line(eqn.span)
        with self.doing("compile"):
            program = compile(Graph(graph.params, graph.eqns, graph.results, name))
            program.build()
        self.programs[name] = program
        return TimedProgram(self, name, program)

    def call(self, name: str, program: Executable, arrays: Sequence[Any]) -> list[Any]:
        if self.traces is None:
            from difflang.runtime.profiler_traces import ProfilerTraces

            self.traces = ProfilerTraces()
        with self.doing("run"):
            results, took = self.traces.call(name, program, arrays)
            self.since = time.perf_counter()  # the overhead of tracing is charged to nothing
        self.ran[name, self.here[0]] += took
        self.calls[name] += 1
        return results

    def interpreted(self, graph: Graph, says: TextSink) -> Callable[..., list[Any]]:
        """A program whose equations are timed one by one."""

        def program(*arrays: Any) -> list[Any]:
            def step(eqn: Eqn, go: Callable[[], list[Any]]) -> list[Any]:
                before = self.switch((self.line(eqn.span), "run"))
                try:
                    return go()
                finally:
                    self.switch(before)

            with self.doing("run"):
                return evaluate_instrumented(graph, arrays, step, says)

        return program

    # ---- The report

    def rows(self) -> list[ProfileRow]:
        """The lines on which time was spent, sorted by time."""
        self.switch(self.here)
        seconds: dict[LineKey, dict[TimeKind, float]] = defaultdict(lambda: defaultdict(float))
        for (line, kind), spent in self.spent.items():
            seconds[line][kind] += spent
        shares = self.shares()
        for (name, caller), spent in self.ran.items():
            for line, share in shares.get(name, {}).items():
                seconds[caller if line == START else line]["run"] += share * spent
            if not shares.get(name):
                seconds[caller]["run"] += spent
        rows = [ProfileRow(line, dict(spent), self.text(line)) for line, spent in seconds.items()]
        return sorted(rows, key=lambda row: (-row.total, row.line))

    def shares(self) -> dict[str, dict[LineKey, float]]:
        """For each program, the share of its time that each line takes; `START` is for no line."""
        if self.traces is None:
            return {}
        from difflang.runtime.profiler_traces import op_source_lines

        found: dict[str, dict[LineKey, float]] = {}
        for name, program in self.programs.items():
            ops, unknown = self.traces.ops.get(name, {}), self.traces.unattributed.get(name, 0.0)
            if not (whole := sum(ops.values()) + unknown):
                continue
            lines = op_source_lines(program.xla_executable.as_text()) if ops else {}
            parts: dict[LineKey, float] = defaultdict(float, {START: unknown / whole})
            for op, spent in ops.items():
                at = lines.get(op) or Counter({START: 1})
                for line, count in at.items():
                    parts[line] += spent / whole * count / sum(at.values())
            found[name] = dict(parts)
        return found

    def text(self, line: LineKey) -> str:
        source = self.sources.get(line[0])
        inside = source is not None and 0 < line[1] <= len(source.starts)
        return printable(source.line(line[1]).strip()) if source is not None and inside else ""

    def unattributed(self) -> dict[LineKey, float]:
        """Seconds of compiled code that no trace divides among lines, by the calling line."""
        found: dict[LineKey, float] = defaultdict(float)
        if self.traces is not None:
            for (name, caller), spent in self.ran.items():
                unknown = self.traces.unattributed.get(name, 0.0)
                seen = sum(self.traces.ops.get(name, {}).values())
                found[caller] += spent * (unknown / (unknown + seen) if unknown + seen else 1.0)
        whole = sum(self.ran.values())
        return {line: spent for line, spent in found.items() if spent >= max(whole / 100, 1e-3)}

    def notes(self) -> list[str]:
        """Notes on how the times were measured."""
        notes: list[str] = []
        if self.traces is not None:
            traced, calls = sum(self.traces.calls.values()), sum(self.calls.values())
            notes += [(f"run: {count_of(calls, 'call')} of compiled code, timed; XLA's trace of {traced} of them gives "
                       "the time of their lines,"),
                      "     dividing a fused operation equally among its lines"]  # fmt: skip
            notes += [f"     {note}" for note in self.bounds(self.traces)]
        return [*notes, "compile: checking with sizes, difflang's passes, and XLA or its cache",
                "host: reading, writing, printing, and arithmetic on single numbers"]  # fmt: skip

    def bounds(self, traces: ProfilerTraces) -> list[str]:
        """Notes on less exact times, and the reasons."""
        samples: Counter[LineKey] = Counter()
        for name, caller in self.ran:
            samples[caller] += traces.sampled[name]
        notes = [f"{line_text(line)}: more steps than a trace can hold; its lines are estimated from samples: {n}"
                 for line, n in samples.most_common(NOTES) if n]  # fmt: skip
        untold = sorted(self.unattributed().items(), key=lambda item: -item[1])[:NOTES]
        notes += [(f"{line_text(line)}: {format_seconds(spent)} cannot be divided among lines: no trace holds "
                   "everything that ran there")
                  for line, spent in untold]  # fmt: skip
        if traces.failed:
            notes.append(f"tracing stopped after this: {printable(traces.failed)}")
        return notes

    def to_json(self) -> dict[str, Any]:
        lines = [
            {"file": r.line[0], "line": r.line[1], "text": r.text, **{k: r.seconds.get(k, 0.0) for k in KINDS}}
            for r in self.rows()
        ]
        untold = [{"file": line[0], "line": line[1], "seconds": spent} for line, spent in self.unattributed().items()]
        whole = sum(r.total for r in self.rows())
        return {"seconds": whole, "lines": lines, "untold": untold, "notes": self.notes()}

    def __str__(self) -> str:
        rows = self.rows()
        whole = sum(r.total for r in rows) or 1.0
        table: list[tuple[str, ...]] = [("time", "share", *KINDS, "line", "")]
        for row in [r for r in rows if r.total >= whole / 10_000][:ROWS]:
            parts = [format_seconds(row.seconds[k]) if row.seconds.get(k, 0.0) >= 1e-6 else "" for k in KINDS]
            table.append(
                (format_seconds(row.total), f"{row.total / whole:.1%}", *parts, line_text(row.line), row.text[:60])
            )
        rest = sum(r.total for r in rows[len(table) - 1 :])
        widths = [max(len(row[i]) for row in table) for i in range(6)]
        lines: list[str] = []
        for row in table:
            numbers = [f"{cell:>{width}}" for cell, width in zip(row[:5], widths[:5], strict=True)]
            lines.append("  ".join([*numbers, f"{row[5]:<{widths[5]}}", row[6]]).rstrip())
        if len(rows) >= len(table):
            lines.append(f"{format_seconds(rest)} on {count_of(len(rows) - len(table) + 1, 'more line')}")
        return "\n".join([*lines, "", f"{format_seconds(whole)} in total", *self.notes()])


def line_text(line: LineKey) -> str:
    return f"{printable(line[0])}:{line[1]}" if line != START else "(no line)"


def format_seconds(seconds: float) -> str:
    """A time with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


class TimedProgram(Struct, frozen=True, eq=False):
    """A compiled program whose calls are timed by a profile."""

    profile: LineProfile
    name: str
    program: Executable

    def __call__(self, *arrays: Any) -> list[Any]:
        return self.profile.call(self.name, self.program, arrays)

    @property
    def notes(self) -> Any:
        return self.program.offload_warnings

    @property
    def memory_bytes(self) -> int:
        return self.program.memory_bytes

    @property
    def orders(self) -> bool:
        return self.program.orders

    @property
    def low_memory(self) -> bool:
        return self.program.low_memory
