"""`difflang memory`: what a function, or its gradient, needs in memory, line by line and in its course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from difflang.base.byte_sizes import human
from difflang.base.source import NOWHERE, line_numbers
from difflang.driver.check_and_run import Checked, loaded
from difflang.execution.engine import Engine
from difflang.host.optional_packages import needed
from difflang.ir.graph import Graph
from difflang.lower.capacity import LITTLE, asked, in_words
from difflang.plan.budget_errors import lines_of
from difflang.plan.budget_search import Plan, limit_of, planned
from difflang.plan.compile_within_limit import as_ordered, fitted
from difflang.syntax import tree
from difflang.tools.emit import Wanted, entries, graph_of
from difflang.types.type_errors import mistake

if TYPE_CHECKING:
    from difflang.lower.buffer_assignment import Account, Buffer
    from difflang.lower.jaxpr_reader import Place

USAGE = ("DL0201", "DL0322", "DL0403", "DL0710", "DL1207", "DL1210", "DL1220")
SHOWN = 110  # cells of a line of the program


class Options(Struct, frozen=True):
    """What is asked: of arguments of these types, the gradient in `wrt`, in so many bytes; compare with XLA's own."""

    told: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    budget: int = 0
    compiled: bool = False
    words: tuple[str, ...] = ()  # arguments of the program


class Line(Struct, frozen=True):
    """A line of the program: how much is there for it when most is there, and at most, as planned and before."""

    place: Place | None
    text: str
    at_the_peak: int
    most: int
    before: int

    def to_json(self) -> dict[str, Any]:
        source, line = self.place or (None, None)
        return {
            "source": source, "line": line, "text": self.text, "at_the_peak": self.at_the_peak, "most": self.most,
            "before_planning": self.before,
        }  # fmt: skip


class Report(Struct, frozen=True):
    """What a program needs in memory. `measured` is what XLA says of it, if it was asked.

    Whether XLA was told its order of least memory is `spared`.
    `room`: for how much of what only a run knows, as it is compiled at first.
    """

    what: str
    limit: int
    plan: Plan
    lines: tuple[Line, ...]
    measured: int | None
    room: Mapping[str, int]
    spared: bool = False

    @property
    def account(self) -> Account:
        return self.plan.account

    def __str__(self) -> str:
        account, before = self.account, self.plan.before
        head = [f"{self.what}: {human(account.peak)} when most is there"]
        if account is not before:
            head[0] += f", {human(before.peak)} before planning"
        parts = ("arguments", account.arguments), ("results", account.results), ("between them", account.between)
        head.append("  " + ", ".join(f"{name} {human(n)}" for name, n in parts))
        if self.room:
            head.append(f"  with room for {in_words(self.room)}; a run that needs more takes more")
        if self.limit:
            kept = ", which XLA keeps to" if self.measured is not None and account.peak > self.limit else ""
            head.append(f"  limit {human(self.limit)}{kept}" + (": kept greedily" if self.plan.greedy else ""))
        head += [f"  {text}" + (f", {n} times" if n > 1 else "") for text, n in Counter(said(self.plan)).items()]
        if self.measured is not None:
            off = account.peak / max(1, self.measured) - 1
            order = " in its order of least memory" if self.spared else ""
            head.append(f"  XLA takes {human(self.measured)}{order} ({off:+.1%} predicted)")
        return "\n".join([*head, "", *self.table()])

    def table(self) -> list[str]:
        rows = [["line", "at the peak", "at most", "before", ""]]
        numbers = line_numbers([line.place for line in self.lines], "-")
        for number, line in zip(numbers, self.lines, strict=True):
            rows.append([number, *[human(n) for n in (line.at_the_peak, line.most, line.before)], line.text])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join([*[c.rjust(w) for c, w in zip(row[:4], widths, strict=False)], row[4][:SHOWN]]).rstrip()
                for row in rows]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        account, before = self.account, self.plan.before
        return {
            "what": self.what, "limit": self.limit or None, "peak": account.peak, "arguments": account.arguments,
            "results": account.results, "between": account.between, "measured": self.measured,
            "least_memory_order": self.spared,
            "room": dict(self.room), "before_planning": {"peak": before.peak, "course": before.course()},
            "plan": [
                {"line": c.span.position[0], "of": "loop" if c.loop else "code", "slots": c.slots or None,
                 "kept": c.way.kept, "last": c.way.last or None} for c in self.plan.choices
            ],
            "greedy": self.plan.greedy, "course": account.course(), "lines": [line.to_json() for line in self.lines],
        }  # fmt: skip


def memory(checked: Checked, path: Path | None, entry: str | None, options: Options) -> Report:
    """What a function of a file needs. Errors: as `emit`; DL1012 where it does not fit."""
    loaded(checked, path, Engine("interpret"), options.words)
    decls = [d for d in entries(checked, entry) if not d.host or entry is not None]
    if len(decls) != 1:
        names = ", ".join(d.name for d in decls) or "none"
        raise mistake("DL0201", "one function is looked at at a time", help=f"say FILE:NAME; it has {names}")
    return memory_of(checked, decls[0], options)


def memory_of(checked: Checked, decl: tree.Fn, options: Options) -> Report:
    """What a function needs, the values of its file being there. Errors: as `memory`."""
    if decl.host:
        raise mistake("DL0322", f"`{decl.name}` is a host function: it is run, not compiled", (decl.name_span, ""))
    graph = graph_of(checked, decl, Wanted("ir", decl.name, options.told, options.wrt))
    what = f"the gradient of `{decl.name}` in `{options.wrt}`" if options.wrt else f"`{decl.name}`"
    return reported(graph, what, options.budget, compiled=options.compiled)


def reported(graph: Graph, what: str, budget: int = 0, *, compiled: bool = False) -> Report:
    """What a program needs, called `what`, under a limit. Errors: DL1012 where it does not fit, DL1207 for a limit
    where no derivative is taken.
    """
    limit = limit_of(graph, budget)
    if budget and not limit:
        help = "for its gradient, say in which parameter: `--wrt`, in Python `wrt`"
        raise mistake("DL1207", f"a limit is for derivatives in reverse, and {what} takes none", help=help)
    plan, measured, spared = with_xla(graph, limit) if compiled else (planned(graph, limit), None, False)
    texts = {place: span.text for place, span in lines_of(graph).items()}
    return Report(what, limit, plan, lines(plan, texts), measured, asked(graph, LITTLE), spared)


def with_xla(graph: Graph, limit: int) -> tuple[Plan, int, bool]:
    """The plan that keeps to the limit when it is compiled, what XLA takes, and whether so ordered as takes least."""
    from difflang.runtime.compile import compile

    plan, made = fitted(graph, limit, LITTLE, compile)
    return as_ordered(plan, sparing=made.sparing), made.bytes, made.sparing


def said(plan: Plan) -> list[str]:
    """The choices of a plan, each as a line."""
    places = [(c, f"{c.span.source.name}:{c.span.position[0]}") for c in plan.choices]
    return [f"the loop at {place} {c}" if c.loop else f"the code around {place} {c}" for c, place in places]


# ------------------------------------------------------------------------------------------------ by line


def lines(plan: Plan, texts: Mapping[Place, str]) -> tuple[Line, ...]:
    """The lines of a program in order; what belongs to none of them comes last."""
    peak = by_line(plan.account.at_the_peak(), texts)
    most, before = at_most(plan.account, texts), at_most(plan.before, texts)
    kinds = {"argument": "arguments", "result": "results", "between": "(no line)"}
    keys: dict[Place | str, str] = {**{p: texts[p] for p in sorted(texts)}, **kinds}
    return tuple([
        Line(k if isinstance(k, tuple) else None, text, peak.get(k, 0), most.get(k, 0), before.get(k, 0))
        for k, text in keys.items()
        if k in most or k in before
    ])  # fmt: skip


def key_of(b: Buffer, texts: Mapping[Place, str]) -> Place | str:
    if b.role != "between":
        return b.role
    return b.place if b.place is not None and b.place in texts else "between"


def by_line(buffers: list[Buffer], texts: Mapping[Place, str]) -> dict[Place | str, int]:
    found: dict[Place | str, int] = {}
    for b in buffers:
        key = key_of(b, texts)
        found[key] = found.get(key, 0) + b.bytes
    return found


def at_most(account: Account, texts: Mapping[Place, str]) -> dict[Place | str, int]:
    """The most that is there for each line at any moment."""
    changes: dict[Place | str, dict[int, int]] = {}
    for b in account.buffers:
        if b.role == "between" and b in account.lent:
            continue
        change = changes.setdefault(key_of(b, texts), {})
        change[b.first] = change.get(b.first, 0) + b.bytes
        change[b.last + 1] = change.get(b.last + 1, 0) - b.bytes
    return {key: max(accumulate([n for _, n in sorted(change.items())])) for key, change in changes.items()}


# ------------------------------------------------------------------------------------------------ a picture


def save(report: Report, path: Path) -> None:
    """The course of what is there, as planned and before, as svg, png or pdf. Errors: DL0709, DL0710."""
    figure = needed("matplotlib.figure", NOWHERE).Figure(figsize=(8, 4), layout="tight")
    needed("matplotlib.backends.backend_agg", NOWHERE).FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    account, before = report.account, report.plan.before
    always = account.arguments + account.results
    for drawn, label in {before: "before planning", account: "as planned"}.items():
        heights = [(always + n) / 2**20 for n in drawn.course()]
        axes.step([i / max(1, len(heights) - 1) for i in range(len(heights))], heights, where="post", label=label)
    if account is not before:
        axes.legend()
    if report.limit:
        axes.axhline(report.limit / 2**20, linestyle=":", color="gray")
    axes.set(xlabel="course", ylabel="MiB", title=report.what, ylim=(0, None), xticks=[])
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise mistake("DL0710", f"cannot write {path}: {error}", help="name a file ending in .svg or .png") from None
