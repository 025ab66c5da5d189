"""Operation counts of a function and its gradient, as formulas or at given sizes; there bytes and memory too.

The counts are of the optimized graph, op by op as each op declares its cost; data movement is free. XLA fuses
operations and adds none, so the two formulas compare well, but they are not times. Nothing is run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from difflang.ad.expand_derivatives import differentiate
from difflang.base.byte_sizes import format_bytes
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.base.wording import aligned_rows
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import elaborate_call
from difflang.elaborate.context import Session
from difflang.elaborate.recorded_types import RecordedTypes
from difflang.ir import symbolic_dims
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import TypeMismatch, Window
from difflang.ir.symbolic_dims import Dim, UnknownSize
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.print_effect import without_check_messages
from difflang.passes.pipelines import OPTIMIZE, PREPARE_KEEPING_LOOPS
from difflang.passes.substitute_dims import substitute_graph_dims
from difflang.plan.budget_search import NO_MESH, memory_limit, plan_memory
from difflang.sharding.local_equations import LocalEquations
from difflang.syntax import tree
from difflang.tools.derive.derive import DerivativeRequest, DeriveOptions
from difflang.tools.memory_report import on_each_device
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from difflang.types.type_errors import DeferCheck

MAX_TERMS = 6  # a longer formula is abbreviated
MAX_EQUATIONS = 2000  # a larger graph would make a hover wait
TYPICAL_SIZE = 100  # substituted for every size to compare two formulas


class Cost(Struct, frozen=True):
    """A number of operations or bytes. `per_step` marks loops of unknown length, of which one step is counted."""

    count: Dim
    per_step: bool = False

    def __str__(self) -> str:
        """A formula of the language; of a long one only the terms of the highest degree."""
        terms = symbolic_dims.polynomial_terms(self.count)
        if len(terms) > MAX_TERMS:
            degree = max(len(monomial) for monomial, _ in terms)
            terms = tuple([term for term in terms if len(term[0]) == degree][:MAX_TERMS])
        texts = [f"{count:,}" if not monomial else monomial_text(count, monomial) for monomial, count in terms]
        return " + ".join(texts or ["0"]).replace("+ -", "- ") + (" + …" if len(terms) < self.length else "")

    @property
    def length(self) -> int:
        return len(symbolic_dims.polynomial_terms(self.count))


def monomial_text(count: int, monomial: symbolic_dims.Monomial) -> str:
    """`2*n^3`."""
    powers = Counter(map(symbolic_dims.parenthesized_atom, monomial))
    texts = [name if power == 1 else f"{name}^{power}" for name, power in powers.items()]
    return "*".join([str(count)] * (count != 1) + texts)


def cost_formulas(checked: CheckedProgram, decl: tree.Fn, pause: Callable[[], None]) -> tuple[Cost, Cost] | None:
    """The costs of a function and of its gradient in the first parameter.

    None if they depend on more than its sizes, or the graph is large. Errors: what `pause` raises, at any step.
    """
    request = DerivativeRequest(checked, decl, DeriveOptions())
    session = Session(type_notes=RecordedTypes(Source("", ""), pause))
    try:
        module = checked.module
        request.arguments = request.symbolic_arguments()
        function = ClosureType(FnCode(decl, module), ())
        plain = symbolic_graph(elaborate_call(session, module, decl.name, function, request.arguments).graph)
        # Before differentiating, which takes longer than anything else here.
        if equation_count(plain) > MAX_EQUATIONS:
            return None
        pause()
        gradient = differentiate(symbolic_graph(request.derivative_graph(session).graph))
        pause()
        if equation_count(gradient) > MAX_EQUATIONS:
            return None
        return count_operations(OPTIMIZE(plain)), count_operations(OPTIMIZE(gradient))
    except (DifflangError, DeferCheck, TypeMismatch, UnknownSize):
        return None


def symbolic_graph(graph: Graph) -> Graph:
    return PREPARE_KEEPING_LOOPS(substitute_graph_dims(without_check_messages(graph), symbolic_dims.dim_name))


def equation_count(graph: Graph) -> int:
    return sum(len(inner.eqns) for inner in graphs_postorder(graph)[0])


def count_operations(
    graph: Graph, of_one: Callable[[Eqn], Dim] | None = None, devices: LocalEquations | None = None
) -> Cost:
    """The sum of `of_one` over the equations of a graph, its operations by default, with loops multiplied out.

    Of the branches of a conditional the most expensive counts. With `devices`, what each of them does is counted.
    """
    of_one = of_one or equation_operations
    done: dict[Graph, Cost] = {}
    for inner in graphs_postorder(graph)[0]:
        total, per_step = 0, False
        for eqn in inner.eqns:
            if eqn.regions:
                cost = region_cost(eqn, [done[region] for region in eqn.regions])
                cost = Cost(cost.count // devices.instances(eqn), cost.per_step) if devices is not None else cost
            else:
                cost = Cost(of_one(eqn if devices is None else devices.local(eqn)))
            total, per_step = total + cost.count, per_step or cost.per_step
        done[inner] = Cost(total, per_step)
    return done[graph]


def region_cost(eqn: Eqn, regions: list[Cost]) -> Cost:
    """The cost of an equation with regions: a loop runs all of them in each step, anything else runs one."""
    # Formulas are compared at one typical size: they have no order of their own.
    once = max(regions, key=lambda cost: at_typical_size(cost.count))
    if eqn.op.region_dataflow is None or not eqn.op.region_dataflow(eqn).repeats:
        return Cost(once.count, any(cost.per_step for cost in regions))
    step: Dim = 0
    for cost in regions:
        step = step + cost.count
    times: Dim | None = eqn.attrs["length"] if eqn.attrs.get("exact", True) else None
    return Cost(step * (1 if times is None else times), times is None or any(cost.per_step for cost in regions))


def at_typical_size(dim: Dim) -> int:
    found = symbolic_dims.substitute_dims(dim, lambda _: TYPICAL_SIZE)
    assert isinstance(found, int)
    return found


def equation_operations(eqn: Eqn) -> Dim:
    """The operations of an equation without regions: as its op declares; else one per element, none for a move."""
    op = eqn.op
    if op.cost is not None:
        count = op.cost(*[v.type for v in eqn.operands], **eqn.attrs)
        return count if isinstance(count, symbolic_dims.Poly) else int(count)  # NumPy may have multiplied it
    if "data movement" in op.traits or op.effect or not eqn.operands:
        return 0
    total: Dim = 0
    for result in eqn.results:
        elements: Dim = 1
        for size in result.type.shape if isinstance(result.type, Tensor) else ():
            elements = elements * size
        total = total + elements
    return total


def equation_bytes(eqn: Eqn) -> Dim:
    """The bytes that an equation without regions reads and writes, if it is not fused with others.

    An op that gathers from or scatters to an array touches only those elements.
    """
    op, results = eqn.op, sum(map(array_bytes, eqn.results))
    if op.effect or not eqn.operands:
        return 0
    # The first operand is the array that is indexed.
    rest = [array_bytes(v) for v in dict.fromkeys(eqn.operands[1:])]
    if "scatter" in op.traits:
        return sum(rest) + 2 * max(rest, default=0)
    if "gather" in op.traits or (isinstance(op.movement, Window) and op.movement.bounds(eqn) is not None):
        return sum(rest) + 2 * results
    return sum(map(array_bytes, dict.fromkeys(eqn.operands))) + results


def array_bytes(value: Value) -> int:
    """The bytes of an array with known sizes; a loop's residuals are counted where they are read and written."""
    return value.type.bytes if isinstance(value.type, Tensor) else 0


# ---- At given sizes, on the graph as it is lowered


class ProgramCost(Struct, frozen=True):
    """The cost of one program.

    `operations` are counted as each op declares them, by default one per element; `bytes` is the traffic without
    fusion. Of the branches of a conditional the most expensive counts. The rest is predicted memory: `arguments`,
    `results`, the most in use `between` them, and the total at the `peak`. With `per_step`, one step is counted of
    loops whose length is known only at run time. With `rematerializes`, loops rematerialize values, and that
    recomputation is not counted.
    """

    operations: int
    bytes: int
    arguments: int
    results: int
    between: int
    peak: int
    per_step: bool = False
    rematerializes: bool = False


class CostReport(Struct, frozen=True):
    """The cost of a function, and of its gradient in `wrt` if it has one; else `why` says why not."""

    title: str
    value: ProgramCost
    gradient: ProgramCost | None
    wrt: str
    why: str = ""
    mesh: Mapping[str, int] = NO_MESH

    @property
    def ratio(self) -> float | None:
        """How many times the operations of the value the gradient takes; None without operations."""
        if self.gradient is None or not self.value.operations:
            return None
        return self.gradient.operations / self.value.operations

    def table(self) -> list[dict[str, Any]]:
        """One row of numbers for the value, and one for the gradient."""
        rows = {"value": self.value, f"gradient with respect to {self.wrt}": self.gradient}
        return [{"of": name, **asdict(of)} for name, of in rows.items() if of is not None]

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.title,
            "mesh": dict(self.mesh) or None,
            "rows": self.table(),
            "ratio": self.ratio,
            "why_not": self.why or None,
        }

    def __str__(self) -> str:
        rows = [["", "operations", "bytes", "arguments", "results", "between", "at the peak"]]
        for row in self.table():
            amounts = [format_bytes(row[name]) for name in ("bytes", "arguments", "results", "between", "peak")]
            rows.append([row["of"], f"{row['operations']:,}", *amounts])
        head = f"{self.title}{on_each_device(self.mesh)}, as the compiler counts: without times, without fusion"
        return "\n".join([head, *aligned_rows(rows, (0,)), *self.notes])

    @property
    def notes(self) -> list[str]:
        found = [e for e in (self.value, self.gradient) if e is not None]
        said = [f"no gradient{f' with respect to {self.wrt}' * bool(self.wrt)}: {self.why}"] if self.why else []
        if any(e.per_step for e in found):
            said.append("for loops whose length is known only at run time, one step is counted")
        if any(e.rematerializes for e in found):
            said.append("recomputation in loops, which saves memory, is not counted")
        return said


def program_cost(graph: Graph, mesh: Mapping[str, int] = NO_MESH) -> ProgramCost:
    """The cost of a program, under its own memory limit if it has one; on a `mesh`, that of each device.

    Errors: DL1012.
    """
    plan = plan_memory(graph, memory_limit(graph), mesh=mesh)
    devices = LocalEquations(plan.graph, mesh) if mesh else None
    operations = count_operations(plan.graph, devices=devices)
    bytes = count_operations(plan.graph, equation_bytes, devices)
    # The planner marks loops that keep less than all residuals.
    rematerializes = any("keep" in eqn.attrs for inner in graphs_postorder(plan.graph)[0] for eqn in inner.eqns)
    account = plan.account
    memory = account.arguments, account.results, account.temporaries, account.peak
    return ProgramCost(as_integer(operations), as_integer(bytes), *memory, operations.per_step, rematerializes)


def as_integer(cost: Cost) -> int:
    assert isinstance(cost.count, int), "a graph that is lowered has no names of sizes"
    return cost.count
