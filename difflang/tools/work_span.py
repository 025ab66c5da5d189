"""Work and span of a run: the operations of each line, those on the longest chain, and what could run side by side.

The run is one on the dataflow machine, where an equation waits for its operands and for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from difflang.base.wording import aligned_rows, count_of
from difflang.dataflow.executor import Firing
from difflang.dataflow.partition import dataflow_program
from difflang.dataflow.run_dataflow import LineNames, RunOptions, RunStatistics, run_dataflow
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.execution.engine import Engine
from difflang.lower.lowering_pipeline import INTERPRET, finalize_graph
from difflang.tools.compare.compare import parameter_mask, pullback_graph
from difflang.tools.cost import Cost, as_integer, equation_operations
from difflang.tools.derive.derive import wrt_path
from difflang.tools.emit import parse_wrt, refuse_host_function, single_function
from difflang.tools.trace_call import USAGE as USAGE
from difflang.tools.trace_call import call_at_values, graph_without_checks

MAX_PHASES = 8
MAX_BESIDE = 3  # lines that a table names


class WorkSpanOptions(Struct, frozen=True):
    """Options: the values of the arguments, the gradient's parameter, the seed of a function that draws."""

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    seed: int = 0
    words: tuple[str, ...] = ()  # arguments of the program


class LineWork(Struct, frozen=True):
    """What a line does: equations and operations in a run, those operations that are on the longest chain, how many of
    its equations are ready at once, and the lines that are ready at the same steps, the most frequent ones first."""

    line: str
    equations: int
    operations: int
    critical: int
    at_once: int
    beside: tuple[str, ...]


class WorkSpan(Struct, frozen=True):
    """Work and span of one run. `widths` says how many equations could run at once, step by step; its sum is the work
    in equations, its length the span. `operations` and `critical` are the same in operations."""

    call: str
    widths: tuple[int, ...]
    operations: int
    critical: int
    lines: tuple[LineWork, ...]

    def __str__(self) -> str:
        work, span = sum(self.widths), len(self.widths)
        rows = [["line", "operations", "on the longest chain", "equations", "at once", "ready at the same time"]]
        rows += [
            [x.line, f"{x.operations:,}", f"{x.critical:,}", f"{x.equations:,}", f"{x.at_once:,}", shortened(x.beside)]
            for x in self.lines
        ]
        return "\n".join([
            self.call,
            f"work {count_of(self.operations, 'operation')} in {count_of(work, 'equation')}",
            f"span {count_of(self.critical, 'operation')}, {count_of(span, 'equation')} one after the other: "
            f"{work / max(span, 1):.1f} side by side on average, {max(self.widths, default=0):,} at most",
            "",
            *aligned_rows(rows, (0, 5)),
            "",
            *aligned_rows([["steps", "side by side", "at most"], *self.phases()], (0,)),
        ])  # fmt: skip

    def phases(self) -> list[list[str]]:
        """The width over time, in a few parts of the run."""
        size = -(-len(self.widths) // MAX_PHASES) or 1
        found: list[list[str]] = []
        for start in range(0, len(self.widths), size):
            part = self.widths[start : start + size]
            steps = f"{start + 1:,} to {start + len(part):,}" if len(part) > 1 else f"{start + 1:,}"
            found.append([steps, f"{sum(part) / len(part):.1f}", f"{max(part):,}"])
        return found

    def to_json(self) -> dict[str, Any]:
        lines = [
            {"line": x.line, "operations": x.operations, "critical": x.critical, "equations": x.equations,
             "at_once": x.at_once, "beside": x.beside}
            for x in self.lines
        ]  # fmt: skip
        return {
            "call": self.call, "operations": self.operations, "critical_operations": self.critical,
            "work": sum(self.widths), "span": len(self.widths), "widths": self.widths, "lines": lines,
        }  # fmt: skip


def work_span(checked: CheckedProgram, path: Path | None, entry: str | None, options: WorkSpanOptions) -> WorkSpan:
    """Work and span of a function of a file, or of its gradient for a cotangent of ones, at values given as texts.

    Errors: DL0201 for an unknown entry; DL1207 and DL1210 for invalid values; DL0401 and DL0403 for `wrt`; DL09 if the
    function fails.
    """
    decl = single_function(checked, entry, "cost")
    refuse_host_function(decl)
    captured = load_values(checked, path, Engine("interpret"), options.words)
    wrt = options.wrt.split(",") if options.wrt is not None else ()
    paths = [wrt_path(decl, parse_wrt(decl, each, checked.module)) for each in wrt]
    call = call_at_values(checked, decl, options.values, options.seed, captured.leaves, "--at ")
    graph, text = graph_without_checks(call.session, call.entry, call.arrays), call.text
    if paths:
        mask = parameter_mask(call, graph, decl.name, paths)
        graph = pullback_graph(graph, mask, call.entry.limit, unit=True)
        text = f"the gradient with respect to {options.wrt} of {text}"
    program = dataflow_program(finalize_graph(graph, pipeline=INTERPRET))
    chains = LongestChains(LineNames(node.span for node in program.nodes))
    _, found = run_dataflow(program, call.arrays, RunOptions(observe=chains))
    return report(text, found, chains)


def shortened(lines: tuple[str, ...]) -> str:
    """The first few lines, and how many more there are."""
    more = len(lines) - MAX_BESIDE
    return ", ".join(lines[:MAX_BESIDE]) + (f", and {more} more" if more > 0 else "")


class Chain(NamedTuple):
    """A value's longest chain of equations: the operations of all, those of the last one, its line, and the rest."""

    total: int
    operations: int
    line: str
    below: Chain | None


class LongestChains:
    """Sees each node that fires, and keeps for each token the longest chain of equations behind it, by operations."""

    def __init__(self, line_name: LineNames) -> None:
        self.line_name = line_name
        self.behind: dict[int, Chain | None] = {}  # by the token's identity: it is seen here before it is used
        self.longest: Chain | None = None
        self.operations = Counter[str]()
        self.steps = Counter[tuple[int, str]]()  # the equations of each step and line

    def __call__(self, firing: Firing) -> None:
        chains = [c for t in firing.inputs if (c := self.behind.get(id(t))) is not None]
        below = max(chains, key=lambda c: c.total, default=None)
        eqn = firing.node.eqn
        if eqn is not None and firing.tokens and not firing.tokens[0].dead:
            count, line = as_integer(Cost(equation_operations(eqn))), self.line_name(firing.node.span)
            below = Chain(count + (below.total if below is not None else 0), count, line, below)
            self.operations[line] += count
            self.steps[firing.tokens[0].depth - 1, line] += 1
            if self.longest is None or below.total > self.longest.total:
                self.longest = below
        for token in firing.tokens:
            self.behind[id(token)] = below

    def critical(self) -> Counter[str]:
        """The operations of each line on the longest chain of the run."""
        found, chain = Counter[str](), self.longest
        while chain is not None:
            found[chain.line] += chain.operations
            chain = chain.below
        return found


def report(text: str, found: RunStatistics, chains: LongestChains) -> WorkSpan:
    critical, at_once, together = chains.critical(), Counter[str](), dict[int, list[str]]()
    for (step, line), count in chains.steps.items():
        at_once[line] = max(at_once[line], count)
        together.setdefault(step, []).append(line)
    beside = {line: Counter[str]() for line in at_once}
    for lines in together.values():
        for line in lines:
            beside[line].update([other for other in lines if other != line])
    rows = [
        LineWork(
            line, count, chains.operations[line], critical[line], at_once[line],
            tuple([other for other, _ in beside[line].most_common()]),
        )
        for line, count in found.lines.items()
    ]  # fmt: skip
    rows.sort(key=lambda x: (-x.operations, -x.equations, x.line))
    return WorkSpan(text, found.widths, sum(chains.operations.values()), sum(critical.values()), tuple(rows))
