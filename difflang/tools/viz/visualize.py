"""`difflang viz`: the typed graph of a function as a picture, beside that of its gradient, or of what a pass did."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError
from difflang.driver.check_and_run import Checked, loaded
from difflang.driver.elaborate_call import Argument, elaborated
from difflang.driver.type_specs import open_arguments
from difflang.elaborate.context import Session
from difflang.execution.engine import Engine
from difflang.ir.graph import Eqn, Graph, inner_first
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import UnknownSize
from difflang.lower.capacity import LITTLE, with_room
from difflang.lower.lowering_pipeline import STAGES, derived, finished
from difflang.ops.control.print_effect import printing
from difflang.passes.name_hints import hinted
from difflang.passes.pipelines import PASSES, readable, whole_steps
from difflang.syntax import tree
from difflang.tools.derive.derive import OPEN, the_one
from difflang.tools.derive.simplify_for_reading import derived_by_name, names_of_lets, with_names
from difflang.tools.emit import place
from difflang.tools.viz.diagram import FEW, Picture, picture
from difflang.tools.viz.graph_diff import alike, shared
from difflang.types.function_code import DerivativeCode, FnCode
from difflang.types.language_types import ClosureType
from difflang.types.type_errors import Undecided, mistake

USAGE = ("DL0201", "DL0322", "DL0401", "DL0403", "DL1207", "DL1210", "DL1220")
ADDED = {"": "as in the function", "new": "only in the gradient, or changed by it"}
GONE, MADE = {"gone": "removed", "some": "takes something else, or holds a change"}, {"new": "made"}


class Options(Struct, frozen=True):
    """What to draw: at which stage, beside the gradient in `wrt`, what the pass `change` does; all, however much."""

    stage: str = "optimized"
    wrt: str | None = None
    told: Mapping[str, str] = field(default_factory=dict[str, str])
    words: tuple[str, ...] = ()  # arguments of the program
    change: str | None = None
    all: bool = False


class Drawn(Struct, frozen=True):
    """The pictures, side by side; what is to be said about them; the function that they are of."""

    pictures: tuple[Picture, ...]
    notes: tuple[str, ...]
    decl: tree.Fn


def viz(checked: Checked, path: Path | None, entry: str | None, options: Options) -> Drawn:
    """The pictures of a function of a file. Sizes that nobody tells keep their names.

    Errors: DL0201 for an unknown entry, DL1207 and DL1210 for what is told wrongly, or where a size has to be told.
    """
    loaded(checked, path, Engine("interpret"), options.words)
    decl = the_one(checked, entry)
    if decl.host:
        raise mistake("DL0322", f"`{decl.name}` is a host function: it is run, not compiled", (decl.name_span, ""))
    arguments, names = open_arguments(checked.module, decl, options.told)
    road = Road(checked, decl, arguments, named=bool(names))
    notes: list[str] = []
    with told_sizes(decl, names):
        pictures = changes(road, options, notes) if options.change is not None else sides(road, options)
    if any(p.folded() for p in pictures) and not options.all:
        notes.append(f"more than {FEW} equations: some are folded; --all shows each")
    return Drawn(tuple(pictures), tuple(notes), decl)


@contextmanager
def told_sizes(decl: tree.Fn, names: Sequence[str]) -> Generator[None, None, None]:
    """What names of sizes leave open, as a diagnostic. Errors: DL1210."""
    try:
        yield
    except (Undecided, TypeMismatch, UnknownSize, DifflangError) as error:
        wrong = {d.code for d in error.diagnostics} - OPEN if isinstance(error, DifflangError) else set[str]()
        if not names or wrong:
            raise
        told = " ".join(f"--arg {n}=3" for n in names)
        message = f"what `{decl.name}` computes depends on its sizes"
        raise mistake("DL1210", message, (decl.name_span, ""), help=f"tell them: `{told}`") from None


class Road(Struct, frozen=True):
    """The way of one function to what is compiled; of sizes that are names, to what reads best."""

    checked: Checked
    decl: tree.Fn
    arguments: tuple[Argument, ...]
    named: bool

    def graph(self, wrt: str | None) -> Graph:
        """The function or its gradient as elaborated, values called as in the program. Errors: DL0403, DL04."""
        decl = self.decl
        type, name = ClosureType(FnCode(decl, self.checked.module), ()), decl.name
        if wrt is not None:
            places = tuple([place(decl, each, self.checked.module) for each in wrt.split(",")])
            type, name = ClosureType(DerivativeCode("grad", places), (type,)), f"grad_{name}"
        graph = elaborated(Session(), self.checked.module, name, type, self.arguments).graph
        return hinted(graph, names_of_lets(self.checked, graph))

    def derived(self, graph: Graph) -> Graph:
        return derived_by_name(graph, {}) if self.named else derived(graph)

    def start(self, wrt: str | None) -> Graph:
        """Where the passes begin that make a program smaller: without derivative equations."""
        graph = self.graph(wrt)
        if any(e.op.expand for g in inner_first(graph)[0] for e in g.eqns):
            return self.derived(graph)
        return with_names(graph) if self.named else with_room(printing(graph), LITTLE)

    def at(self, stage: str, wrt: str | None) -> Graph:
        graph = self.graph(wrt)
        match stage:
            case "ir":
                return graph
            case "derived":
                return self.derived(graph)
            case _:
                return readable(self.derived(graph)) if self.named else finished(graph)


def sides(road: Road, options: Options) -> list[Picture]:
    """The function, and beside it its gradient: what it adds is marked."""
    most = None if options.all else FEW
    plain = road.at(options.stage, None)
    first = picture(plain, road.decl.name, most=most)
    if options.wrt is None:
        return [first]
    gradient = road.at(options.stage, options.wrt)
    added = marked(gradient, shared(gradient, plain), "new")
    title = f"gradient of {road.decl.name} in {options.wrt}"
    return [first, picture(gradient, title, added, most=most, legend=ADDED)]


def changes(road: Road, options: Options, notes: list[str]) -> list[Picture]:
    """The graph before a pass first changes it, and after that."""
    most, name = None if options.all else FEW, options.change
    start = road.start(options.wrt)
    changing: list[str] = []
    for each, before, after in whole_steps(start, read=road.named):
        gone, made = held_against(before, after, "gone"), held_against(after, before, "new")
        if after is before or not (gone or made):
            continue
        changing.append(each)
        if each == name:
            return [
                picture(before, f"before {name}", gone, most=most, legend=GONE),
                picture(after, f"after {name}", made, most=most, legend=MADE),
            ]
    here = ", ".join(dict.fromkeys(changing)) or "none"
    notes.append(f"{name} changes nothing here; these do: {here}")
    return [picture(start, road.decl.name, most=most)]


def held_against(graph: Graph, other: Graph, mark: str) -> dict[Eqn, str]:
    """What is in one graph and not in the other, and what is in both and differs in what it takes or holds."""
    same = shared(graph, other)
    return marked(graph, same, mark) | dict.fromkeys(alike(graph, other, same), "some")


def marked(graph: Graph, without: Iterable[Eqn], mark: str) -> dict[Eqn, str]:
    """A mark for each equation, at any depth, but for some. What holds only such has none itself."""
    left = set(without)
    return {e: mark for g in inner_first(graph)[0] for e in g.eqns if e not in left}


__all__ = ["PASSES", "STAGES", "USAGE", "Drawn", "Options", "viz"]
