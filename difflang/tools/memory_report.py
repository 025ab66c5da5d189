"""`difflang memory`: the memory of a function or its gradient, by line and over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from difflang.base.byte_sizes import format_bytes
from difflang.base.source import NO_SPAN, line_numbers
from difflang.base.wording import aligned_rows
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import ElaboratedCall
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.execution.check_failures import with_check_number
from difflang.execution.engine import Engine
from difflang.host.optional_packages import import_optional
from difflang.ir.graph import Graph
from difflang.ir.interpreter import discard_text
from difflang.lower.capacity import INITIAL_CAPACITY, capacities_used, describe_capacity
from difflang.plan.budget_errors import source_lines
from difflang.plan.budget_search import NO_MESH, MemoryPlan, memory_limit, plan_memory
from difflang.plan.compile_within_limit import compile_within_limit, with_kernel_order
from difflang.syntax import tree
from difflang.tools.emit import EmitRequest, function_call, refuse_host_function, single_function
from difflang.types.type_errors import make_error

if TYPE_CHECKING:
    from difflang.lower.buffer_assignment import Buffer, BufferAssignment
    from difflang.lower.jaxpr_reader import SourceLine

USAGE = ("DL0201", "DL0322", "DL0403", "DL0710", "DL1207", "DL1210", "DL1220")
MAX_TEXT = 110  # cells of a source line in the table


class MemoryOptions(Struct, frozen=True):
    """Options: argument types, the gradient's parameter, a limit in bytes, and whether to compare with XLA."""

    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    budget: int = 0
    compiled: bool = False
    words: tuple[str, ...] = ()  # arguments of the program
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])


class MemoryLine(Struct, frozen=True):
    """A source line: its live bytes at the program's peak and at most, with and without planning."""

    position: SourceLine | None
    text: str
    at_peak: int
    most: int
    unplanned: int

    def to_json(self) -> dict[str, Any]:
        source, line = self.position or (None, None)
        return {
            "source": source, "line": line, "text": self.text, "at_the_peak": self.at_peak, "most": self.most,
            "before_planning": self.unplanned,
        }  # fmt: skip


class MemoryReport(Struct, frozen=True):
    """The memory of a program. `measured` is XLA's own figure, if requested.

    `memory_ordered`: XLA was given its order of least memory. `capacities` are those of the first compilation, for what
    only a run knows.
    """

    what: str
    limit: int
    plan: MemoryPlan
    lines: tuple[MemoryLine, ...]
    measured: int | None
    capacities: Mapping[str, int]
    memory_ordered: bool = False
    mesh: Mapping[str, int] = NO_MESH

    @property
    def account(self) -> BufferAssignment:
        return self.plan.account

    def __str__(self) -> str:
        account, before = self.account, self.plan.unplanned
        head = [f"{self.what}: {format_bytes(account.peak)} at the peak{on_each_device(self.mesh)}"]
        if account is not before:
            head[0] += f", {format_bytes(before.peak)} before planning"
        parts = ("arguments", account.arguments), ("results", account.results), ("between them", account.temporaries)
        head.append("  " + ", ".join(f"{name} {format_bytes(n)}" for name, n in parts))
        if self.capacities:
            head.append(
                f"  with capacity for {describe_capacity(self.capacities)}; a run that needs more uses more memory"
            )
        if self.limit:
            kept = ", which XLA obeys" if self.measured is not None and account.peak > self.limit else ""
            head.append(f"  limit {format_bytes(self.limit)}{kept}" + (": kept greedily" if self.plan.greedy else ""))
        head += [
            f"  {text}" + (f", {n} times" if n > 1 else "") for text, n in Counter(choice_lines(self.plan)).items()
        ]
        if self.measured is not None:
            off = account.peak / max(1, self.measured) - 1
            order = " in its order of least memory" if self.memory_ordered else ""
            than = f"the prediction was {abs(off):.1%} {'higher' if off > 0 else 'lower'}"
            head.append(f"  XLA takes {format_bytes(self.measured)}{order}; {than}")
        return "\n".join([*head, "", *self.table()])

    def table(self) -> list[str]:
        rows = [["line", "at the peak", "at most", "before", ""]]
        numbers = line_numbers([line.position for line in self.lines], "-")
        for number, line in zip(numbers, self.lines, strict=True):
            amounts = [format_bytes(n) for n in (line.at_peak, line.most, line.unplanned)]
            rows.append([number, *amounts, line.text[:MAX_TEXT]])
        return aligned_rows(rows, (4,))

    def to_json(self) -> dict[str, Any]:
        account, before = self.account, self.plan.unplanned
        return {
            "what": self.what, "mesh": dict(self.mesh) or None, "limit": self.limit or None, "peak": account.peak,
            "arguments": account.arguments,
            "results": account.results, "between": account.temporaries, "measured": self.measured,
            "least_memory_order": self.memory_ordered,
            "room": dict(self.capacities), "before_planning": {"peak": before.peak, "course": before.usage_over_time()},
            "plan": [
                {"line": c.span.position[0], "of": "loop" if c.loop else "code", "slots": c.slots or None,
                 "kept": c.policy.residuals, "last": c.policy.last or None} for c in self.plan.choices
            ],
            "greedy": self.plan.greedy, "course": account.usage_over_time(),
            "lines": [line.to_json() for line in self.lines],
        }  # fmt: skip


def on_each_device(mesh: Mapping[str, int]) -> str:
    """What a figure is of, if there is a mesh."""
    return f" on each device of {', '.join([f'{name} = {size}' for name, size in mesh.items()])}" if mesh else ""


def report_memory(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: MemoryOptions
) -> MemoryReport:
    """The memory of a function of a file. Errors: as `emit`; DL1012 if the limit is exceeded."""
    load_values(checked, path, Engine("interpret"), options.words)
    return function_memory(checked, single_function(checked, entry, "memory"), options)


def function_memory(checked: CheckedProgram, decl: tree.Fn, options: MemoryOptions) -> MemoryReport:
    """The memory of a function, given the values of its file. Errors: as `report_memory`."""
    refuse_host_function(decl)
    request = EmitRequest("ir", decl.name, options.argument_specs, options.wrt)
    graph = number_checks(function_call(checked, decl, request, Session(mesh=checked.session.mesh)), options.mesh)
    what = f"the gradient of `{decl.name}` with respect to `{options.wrt}`" if options.wrt else f"`{decl.name}`"
    return graph_memory(graph, what, options.budget, compiled=options.compiled, mesh=options.mesh)


def number_checks(call: ElaboratedCall, mesh: Mapping[str, int]) -> Graph:
    """The graph of a call; on a mesh without the details of failures, which only a second run computes."""
    return with_check_number(call.graph) if mesh and call.fails else call.graph


def graph_memory(
    graph: Graph, what: str, budget: int = 0, *, compiled: bool = False, mesh: Mapping[str, int] = NO_MESH
) -> MemoryReport:
    """The memory of a program, named `what` in messages, under a limit; on a `mesh`, that of each device.

    Errors: DL1012 if the limit is exceeded, DL1207 for a limit without a derivative.
    """
    limit = memory_limit(graph, budget)
    if budget and not limit:
        help = "for its gradient, name the parameter: `--wrt`, in Python `wrt`"
        raise make_error("DL1207", f"a limit applies to reverse-mode derivatives, but {what} has none", help=help)
    plan, measured, ordered = (
        plan_with_xla(graph, limit, mesh) if compiled else (plan_memory(graph, limit, mesh=mesh), None, False)
    )
    texts = {place: span.text for place, span in source_lines(graph).items()}
    return MemoryReport(
        what,
        limit,
        plan,
        memory_lines(plan, texts),
        measured,
        capacities_used(graph, INITIAL_CAPACITY),
        ordered,
        mesh,
    )


def plan_with_xla(graph: Graph, limit: int, mesh: Mapping[str, int]) -> tuple[MemoryPlan, int, bool]:
    """The plan that meets the limit when compiled, XLA's memory, and whether its order of least memory was used.

    Errors: DL0601 for fewer devices than the mesh has.
    """
    make = partial(Engine(mesh=tuple(mesh.items())).compiled, says=discard_text)
    plan, made = compile_within_limit(graph, limit, INITIAL_CAPACITY, make, mesh=mesh)
    return with_kernel_order(plan, sparing=made.low_memory), made.memory_bytes, made.low_memory


def choice_lines(plan: MemoryPlan) -> list[str]:
    """The choices of a plan, one line each."""
    places = [(c, f"{c.span.source.name}:{c.span.position[0]}") for c in plan.choices]
    return [f"the loop at {place} {c}" if c.loop else f"the code around {place} {c}" for c, place in places]


# ---- Memory by line


def memory_lines(plan: MemoryPlan, texts: Mapping[SourceLine, str]) -> tuple[MemoryLine, ...]:
    """The lines of a program in order, then the memory that belongs to no line."""
    peak = bytes_by_line(plan.account.live_at_peak(), texts)
    most, before = peak_by_line(plan.account, texts), peak_by_line(plan.unplanned, texts)
    kinds = {"argument": "arguments", "result": "results", "between": "(no line)"}
    keys: dict[SourceLine | str, str] = {**{p: texts[p] for p in sorted(texts)}, **kinds}
    return tuple([
        MemoryLine(k if isinstance(k, tuple) else None, text, peak.get(k, 0), most.get(k, 0), before.get(k, 0))
        for k, text in keys.items()
        if k in most or k in before
    ])  # fmt: skip


def line_key(b: Buffer, texts: Mapping[SourceLine, str]) -> SourceLine | str:
    if b.role != "between":
        return b.role
    return b.source_line if b.source_line is not None and b.source_line in texts else "between"


def bytes_by_line(buffers: list[Buffer], texts: Mapping[SourceLine, str]) -> dict[SourceLine | str, int]:
    found: dict[SourceLine | str, int] = {}
    for b in buffers:
        key = line_key(b, texts)
        found[key] = found.get(key, 0) + b.bytes
    return found


def peak_by_line(account: BufferAssignment, texts: Mapping[SourceLine, str]) -> dict[SourceLine | str, int]:
    """The most live bytes of each line at any time."""
    changes: dict[SourceLine | str, dict[int, int]] = {}
    for b in account.buffers:
        if b.role == "between" and b in account.lent:
            continue
        change = changes.setdefault(line_key(b, texts), {})
        change[b.first] = change.get(b.first, 0) + b.bytes
        # Prefix sums of these changes give the live bytes at each time.
        change[b.last + 1] = change.get(b.last + 1, 0) - b.bytes
    return {key: max(accumulate([n for _, n in sorted(change.items())])) for key, change in changes.items()}


# ---- The plot


def save_plot(report: MemoryReport, path: Path) -> None:
    """Plot memory over time, planned and unplanned, as svg, png or pdf. Errors: DL0709, DL0710."""
    figure = import_optional("matplotlib.figure", NO_SPAN).Figure(figsize=(8, 4), layout="tight")
    import_optional("matplotlib.backends.backend_agg", NO_SPAN).FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    account, before = report.account, report.plan.unplanned
    # Arguments and results are live throughout.
    always = account.arguments + account.results
    for drawn, label in {before: "before planning", account: "as planned"}.items():
        heights = [(always + n) / 2**20 for n in drawn.usage_over_time()]
        axes.step([i / max(1, len(heights) - 1) for i in range(len(heights))], heights, where="post", label=label)
    if account is not before:
        axes.legend()
    if report.limit:
        axes.axhline(report.limit / 2**20, linestyle=":", color="gray")
    axes.set(xlabel="course", ylabel="MiB", title=report.what, ylim=(0, None), xticks=[])
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise make_error(
            "DL0710", f"cannot write {path}: {error}", help="the file name must end with .svg or .png"
        ) from None
