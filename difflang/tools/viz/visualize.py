"""`difflang viz`: the graph of a function as a diagram, beside its gradient or the result of a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError
from difflang.dataflow.machine import Machine
from difflang.dataflow.nodes import DataflowProgram
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import symbolic_arguments
from difflang.elaborate.context import Session
from difflang.execution.engine import Engine
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import TypeMismatch
from difflang.ir.structural_equality import StructuralKeys, attrs_key
from difflang.ir.symbolic_dims import UnknownSize
from difflang.lower.capacity import INITIAL_CAPACITY, with_capacity
from difflang.lower.lowering_pipeline import INTERPRET, differentiate_graph, finalize_graph
from difflang.ops.control.print_effect import without_check_messages
from difflang.passes.name_hints import apply_name_hints
from difflang.passes.pipelines import OPTIMIZE_FOR_READING, OPTIMIZE_FULLY
from difflang.syntax import tree
from difflang.tools.derive.derive import may_depend_on_sizes
from difflang.tools.derive.simplify_for_reading import expand_with_names, let_names, with_symbolic_sizes
from difflang.tools.emit import elaborate_function, refuse_host_function, single_function
from difflang.tools.viz.diagram import MAX_EQUATIONS, Diagram, build_diagram
from difflang.types.type_errors import DeferCheck, make_error

USAGE = ("DL0201", "DL0322", "DL0401", "DL0403", "DL1207", "DL1210", "DL1220")
ADDED = {"": "as in the function", "new": "only in the gradient, or changed by it"}
GONE, MADE = {"gone": "removed", "some": "has different operands, or contains a change"}, {"new": "made"}


class VizOptions(Struct, frozen=True):
    """What to draw: the stage, the gradient in `wrt`, the effect of the pass `change`; with `all`, without folding."""

    stage: str = "optimized"
    wrt: str | None = None
    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    words: tuple[str, ...] = ()  # arguments of the program
    change: str | None = None
    all: bool = False
    machine: Machine = Machine()  # at stage `dataflow`


class VizResult(Struct, frozen=True):
    """The diagrams side by side, notes about them, and the function; or its program of the dataflow machine."""

    pictures: tuple[Diagram, ...]
    notes: tuple[str, ...]
    decl: tree.Fn
    program: DataflowProgram | None = None


def visualize(checked: CheckedProgram, path: Path | None, entry: str | None, options: VizOptions) -> VizResult:
    """The diagrams of a function of a file. Sizes without a value stay symbolic.

    Errors: DL0201 for an unknown entry, DL1207 and DL1210 for wrong argument types, or if a size needs a value.
    """
    load_values(checked, path, Engine("interpret"), options.words)
    decl = single_function(checked, entry, "viz")
    refuse_host_function(decl)
    arguments, names = symbolic_arguments(checked.module, decl, options.argument_specs)
    pipeline = VizPipeline(checked, decl, arguments, named=bool(names))
    notes: list[str] = []
    if options.stage == "dataflow":
        if names:
            raise open_sizes_error(decl, names, "the dataflow machine runs sizes that are numbers")
        graph = differentiate_graph(pipeline.graph(options.wrt))
        program = options.machine.program(finalize_graph(graph, pipeline=INTERPRET))
        return VizResult((), (), decl, program)
    with report_open_sizes(decl, names):
        by_pass = options.change is not None
        pictures = pass_diagrams(pipeline, options, notes) if by_pass else gradient_diagrams(pipeline, options)
    if any(p.folded() for p in pictures) and not options.all:
        notes.append(f"more than {MAX_EQUATIONS} equations: some are folded; --all shows every one")
    return VizResult(tuple(pictures), tuple(notes), decl)


@contextmanager
def report_open_sizes(decl: tree.Fn, names: Sequence[str]) -> Generator[None, None, None]:
    """Report what depends on symbolic sizes as a diagnostic. Errors: DL1210."""
    try:
        yield
    except (DeferCheck, TypeMismatch, UnknownSize, DifflangError) as error:
        if not names or not may_depend_on_sizes(error):
            raise
        raise open_sizes_error(decl, names, f"the computation of `{decl.name}` depends on its sizes") from None


def open_sizes_error(decl: tree.Fn, names: Sequence[str], message: str) -> DifflangError:
    specs = " ".join(f"--arg {n}=3" for n in names)
    return make_error("DL1210", message, (decl.name_span, ""), help=f"set them: `{specs}`")


class VizPipeline(Struct, frozen=True):
    """The compiler pipeline of one function; with symbolic sizes, the pipeline for reading."""

    checked: CheckedProgram
    decl: tree.Fn
    arguments: tuple[CallArgument, ...]
    named: bool

    def graph(self, wrt: str | None) -> Graph:
        """The elaborated function or its gradient, with the program's names for values. Errors: DL0403, DL04."""
        graph = elaborate_function(Session(), self.checked.module, self.decl, wrt, self.arguments).graph
        return apply_name_hints(graph, let_names(self.checked, graph))

    def derived(self, graph: Graph) -> Graph:
        return expand_with_names(graph, {}) if self.named else differentiate_graph(graph)

    def start(self, wrt: str | None) -> Graph:
        """The input of the optimization passes: without derivative equations."""
        graph = self.graph(wrt)
        if any(e.op.is_derivative for g in graphs_postorder(graph)[0] for e in g.eqns):
            return self.derived(graph)
        return (
            with_symbolic_sizes(graph) if self.named else with_capacity(without_check_messages(graph), INITIAL_CAPACITY)
        )

    def graph_at(self, stage: str, wrt: str | None) -> Graph:
        graph = self.graph(wrt)
        match stage:
            case "ir":
                return graph
            case "derived":
                return self.derived(graph)
            case _:
                return OPTIMIZE_FOR_READING(self.derived(graph)) if self.named else finalize_graph(graph)


def gradient_diagrams(pipeline: VizPipeline, options: VizOptions) -> list[Diagram]:
    """The function, and beside it its gradient with the added equations highlighted."""
    most = None if options.all else MAX_EQUATIONS
    plain = pipeline.graph_at(options.stage, None)
    first = build_diagram(plain, pipeline.decl.name, max_equations=most)
    if options.wrt is None:
        return [first]
    gradient = pipeline.graph_at(options.stage, options.wrt)
    added = highlight_equations(gradient, shared_equations(gradient, plain), "new")
    title = f"gradient of {pipeline.decl.name} with respect to {options.wrt}"
    return [first, build_diagram(gradient, title, added, max_equations=most, legend=ADDED)]


def pass_diagrams(pipeline: VizPipeline, options: VizOptions, notes: list[str]) -> list[Diagram]:
    """The graph before and after the first time that a pass changes it."""
    most, name = None if options.all else MAX_EQUATIONS, options.change
    start = pipeline.start(options.wrt)
    changing: list[str] = []
    for each, before, after in (OPTIMIZE_FOR_READING if pipeline.named else OPTIMIZE_FULLY).trace(start):
        # The first step of the pass that changes something; passes run several times.
        gone, made = highlight_diff(before, after, "gone"), highlight_diff(after, before, "new")
        if after is before or not (gone or made):
            continue
        changing.append(each.name)
        if each.name == name:
            return [
                build_diagram(before, f"before {name}", gone, max_equations=most, legend=GONE),
                build_diagram(after, f"after {name}", made, max_equations=most, legend=MADE),
            ]
    here = ", ".join(dict.fromkeys(changing)) or "none"
    notes.append(f"{name} changes nothing here; these passes do: {here}")
    return [build_diagram(start, pipeline.decl.name, max_equations=most)]


def highlight_diff(graph: Graph, other: Graph, mark: str) -> dict[Eqn, str]:
    """Marks for equations of one graph that the other lacks, and for those that differ in operands or regions only."""
    same = shared_equations(graph, other)
    return highlight_equations(graph, same, mark) | dict.fromkeys(similar_equations(graph, other, same), "some")


def highlight_equations(graph: Graph, without: Iterable[Eqn], mark: str) -> dict[Eqn, str]:
    """A mark for each equation at any depth, except some. An equation that only contains exceptions has none itself."""
    left = set(without)
    return {e: mark for g in graphs_postorder(graph)[0] for e in g.eqns if e not in left}


# ---- What two graphs share


def shared_equations(graph: Graph, other: Graph) -> set[Eqn]:
    """The equations of `graph`, at any depth, for which `other` has one that computes the same of the same parameters.

    Each equation has at most one counterpart. If regions differ, their equations are compared with those of the next
    equation in `other` with the same op and source position.
    Cost: linear; a graph that is used several times is compared at its first use.
    """
    found: set[Eqn] = set()
    numbers = GraphNumbering()
    seen: set[Graph] = set()
    todo = [(graph, other)]
    while todo:
        one, two = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        mine, theirs = numbers.of(one), numbers.of(two)
        own, left = set(mine), Counter(theirs)
        waiting: dict[Hashable, list[Eqn]] = {}
        for eqn, number in zip(two.eqns, theirs, strict=True):
            if eqn.regions and number not in own:
                waiting.setdefault(equation_position(eqn), []).append(eqn)
        for eqn, number in zip(one.eqns, mine, strict=True):
            # Each equation of the other graph is used once.
            if left[number]:
                left[number] -= 1
                found.add(eqn)
                found |= nested_equations(eqn, seen)
            # The equation differs, but perhaps only in one of its regions.
            elif eqn.regions and (like := waiting.get(equation_position(eqn))):
                todo += zip(eqn.regions, like.pop(0).regions, strict=False)
    return found


def similar_equations(graph: Graph, other: Graph, known: set[Eqn]) -> set[Eqn]:
    """The equations of `graph` outside `known` that differ from one in `other` by operands only: same op, same
    position.
    """
    left = Counter(equation_kind(e) for g in graphs_postorder(other)[0] for e in g.eqns)
    rest = [e for g in graphs_postorder(graph)[0] for e in g.eqns]
    left.subtract(equation_kind(e) for e in rest if e in known)
    found: set[Eqn] = set()
    for eqn in rest:
        if eqn not in known and left[equation_kind(eqn)] > 0:
            left[equation_kind(eqn)] -= 1
            found.add(eqn)
    return found


def equation_kind(eqn: Eqn) -> Hashable:
    return *equation_position(eqn), tuple([r.type for r in eqn.results])


def equation_position(eqn: Eqn) -> tuple[Hashable, ...]:
    return eqn.op.name, len(eqn.regions), eqn.span.source, eqn.span.start, eqn.span.end


def nested_equations(eqn: Eqn, seen: set[Graph]) -> set[Eqn]:
    """Every equation in the regions of one."""
    found: set[Eqn] = set()
    todo = list(eqn.regions)
    while todo:
        graph = todo.pop()
        if graph not in seen:
            seen.add(graph)
            found.update(graph.eqns)
            todo += [r for e in graph.eqns for r in e.regions]
    return found


class GraphNumbering:
    """Value numbering across graphs: equations that compute the same of equally named params get the same number."""

    def __init__(self) -> None:
        self.keys = StructuralKeys()
        self.numbers: dict[Hashable, int] = {}

    def of(self, graph: Graph) -> list[int]:
        """The number of each equation."""
        values: dict[Value, Hashable] = dict(zip(graph.params, param_keys(graph.params), strict=True))
        found: list[int] = []
        for eqn in graph.eqns:
            regions = tuple([self.keys.graph_key(r) for r in eqn.regions])
            operands = tuple([values.get(v) for v in eqn.operands])
            key = (eqn.op.name, attrs_key(eqn.attrs), operands, regions)
            number = self.numbers.setdefault(key, len(self.numbers))
            values.update({r: (number, i) for i, r in enumerate(eqn.results)})
            found.append(number)
        return found


def param_keys(params: Sequence[Value]) -> list[Hashable]:
    """Keys for the parameters: their names, or their positions if names are missing or repeated."""
    count = Counter(p.hint for p in params)
    return [p.hint if p.hint and count[p.hint] == 1 else i for i, p in enumerate(params)]
