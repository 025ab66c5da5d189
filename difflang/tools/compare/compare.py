"""`difflang compare`: symbolic, numerical, forward and reverse differentiation of one function, side by side.

Each way has its operations and memory, as the compiler counts them, and its error at the point; the expression has its
size for each order, and differences their error for each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError
from difflang.base.wording import count_of
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.execution.engine import Engine
from difflang.gradcheck.decision_replay import ReplayRun, coarsest_precision
from difflang.gradcheck.directional_derivatives import GraphAtPoint, jvp_graph
from difflang.gradcheck.extended_precision import cast
from difflang.gradcheck.nan_provenance import check_finite, count_nonfinite
from difflang.gradcheck.trace_table import format_short
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import StepLimitExceeded
from difflang.ir.tensor_types import Tensor, Type
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.lower.lowering_pipeline import expand_keeping_rules, finalize_graph
from difflang.ops.control.derivative_operators import vjp
from difflang.tools.check_grad import matches_wrt
from difflang.tools.compare.comparison import Comparison, DerivativeMethod, repeated
from difflang.tools.compare.difference_errors import (
    MAX_OPERATIONS,
    PointErrors,
    count_operations_at,
    measure_errors,
)
from difflang.tools.compare.expression_size import (
    NoExpression,
    derivative_along_ones,
    expression_size,
    sizes_by_order,
)
from difflang.tools.cost import Cost, CostReport, as_integer, equation_operations, program_cost
from difflang.tools.derive.derive import wrt_path
from difflang.tools.derive.simplify_for_reading import simplify_graph
from difflang.tools.emit import parse_wrt, refuse_host_function, single_function
from difflang.tools.trace_call import CallAtValues, call_at_values, graph_without_checks
from difflang.types.type_errors import make_error

USAGE = ("DL0201", "DL0322", "DL0401", "DL0403", "DL0710", "DL1207", "DL1210", "DL1220")


class CompareOptions(Struct, frozen=True):
    """Options: the values of the arguments, the parameters, the highest order, the seed of a function that draws."""

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    order: int = 4
    seed: int = 0
    words: tuple[str, ...] = ()  # arguments of the program


def compare(checked: CheckedProgram, path: Path | None, entry: str | None, options: CompareOptions) -> Comparison:
    """The comparison for a function of a file at values given as texts.

    Errors: DL0201 for an unknown entry, DL1207 and DL1210 for values, DL0403 and DL0401 for parameters, DL0908 if the
    function or its derivative is not finite there, other DL09 if it fails.
    """
    decl = single_function(checked, entry, "compare")
    refuse_host_function(decl, "it has no derivative")
    captured = load_values(checked, path, Engine("interpret"), options.words)
    wrt = options.wrt.split(",") if options.wrt is not None else ()
    paths = [wrt_path(decl, parse_wrt(decl, each, checked.module)) for each in wrt]
    call = call_at_values(checked, decl, options.values, options.seed, captured.leaves, "--at ")
    graph = graph_without_checks(call.session, call.entry, call.arrays)
    mask = parameter_mask(call, graph, decl.name, paths)
    chosen = [p for p, w in enumerate(mask) if w and matches_wrt(graph.params[p].hint, paths[0] if paths else None)]
    return compare_graph(call, graph, decl.name, mask, chosen[0], options.order)


def parameter_mask(call: CallAtValues, graph: Graph, name: str, paths: Sequence[str]) -> tuple[bool, ...]:
    """The params of a graph that are differentiated. Errors: DL0401 if there are none, or nothing to differentiate."""
    hints = [p.hint if i < call.inputs and p.type.tangent is not None else None for i, p in enumerate(graph.params)]
    for path in paths:
        if not any(hint is not None and matches_wrt(hint, path) for hint in hints):
            raise make_error("DL0401", f"there is no real parameter `{path}` to differentiate with respect to")
    mask = tuple([h is not None and any(matches_wrt(h, p) for p in paths or (None,)) for h in hints])
    if not any(m and has_elements(p.type) for p, m in zip(graph.params, mask, strict=True)):
        raise make_error("DL0401", f"`{name}` takes no real numbers: there is nothing to differentiate with respect to")
    if not any(r.type.tangent is not None and has_elements(r.type) for r in graph.results):
        raise make_error("DL0401", f"`{name}` returns no real numbers: there is nothing to differentiate")
    return mask


def has_elements(type: Type) -> bool:
    return not isinstance(type, Tensor) or 0 not in type.shape


def compare_graph(
    call: CallAtValues, graph: Graph, name: str, wrt: tuple[bool, ...], along: int, order: int
) -> Comparison:
    """The comparison for an elaborated call; higher orders are those in the param `along`. Errors: as `compare`."""
    plain = expand_keeping_rules(graph)
    try:
        operations = count_operations_at(plain, call.arrays)
    except StepLimitExceeded:
        way = "compare it for fewer steps, or one step of it"
        raise make_error("DL1210", f"`{name}` takes more than {MAX_OPERATIONS:,} operations here", help=way) from None
    require_finite(plain, call.arrays, f"the value of `{name}`")
    at = GraphAtPoint(plain, call.arrays, wrt)
    ones = [np.ones_like(y) for y in at.values]
    require_finite(at.pull, [*at.exact, *ones], f"the derivative of `{name}`")
    errors = measure_errors(at, operations)
    hints = [p.hint for p, w in zip(graph.params, wrt, strict=True) if w]
    orders = tuple(sizes_by_order(graph, along, order))
    ways, notes = measure_ways(graph, wrt, call.entry.limit, errors)
    return Comparison(
        call.text, ", ".join(format_short(y) for y in at.primal.native_results), tuple(hints), ways,
        graph.params[along].hint, orders, errors, (*notes, *error_notes(errors, at)),
    )  # fmt: skip


def require_finite(graph: Graph, arrays: Sequence[Any], what: str) -> None:
    """Errors: DL0908 at the operation that makes a result NaN or infinite; DL1210 if no operation does."""
    own = [cast(x, p.type) for x, p in zip(arrays, graph.params, strict=True)]
    results = ReplayRun()(graph, *own)
    if count_nonfinite(results):
        check_finite(lambda: finalize_graph(graph), results, own)
        raise make_error("DL1210", f"{what} is not finite at these arguments", help="choose other ones")


def measure_ways(
    graph: Graph, wrt: tuple[bool, ...], limit: int, errors: PointErrors
) -> tuple[tuple[DerivativeMethod, ...], list[str]]:
    """Each way with its cost and error, and notes on the costs. Errors: DL1012."""
    n, m = errors.numbers, errors.results
    push = jvp_graph(graph, wrt)
    value, forward = program_cost(graph), program_cost(push.with_results(push.results[len(graph.results) :]))
    reverse = program_cost(pullback_graph(graph, wrt, limit, unit=m == 1))
    ways = (
        repeated("the function", 1, "run", value),
        symbolic_way(graph, [i for i, w in enumerate(wrt) if w]),
        repeated("one-sided differences", n + 1, "run", value, errors.best("one_sided") or ()),
        repeated("central differences", 2 * n, "run", value, errors.best("central") or ()),
        repeated("forward mode", n, "pass", forward, (errors.forward,)),
        repeated("reverse mode", m, "pass", reverse, (errors.reverse,)),
    )
    notes = CostReport("", value, reverse, "").notes
    if reverse.per_step:
        notes.append(f"memory of such loops is that of {INITIAL_CAPACITY.steps:,} steps")
    return ways, notes


def pullback_graph(graph: Graph, wrt: tuple[bool, ...], limit: int, *, unit: bool) -> Graph:
    """params ++ cotangents -> cotangents of the params in `wrt`, under a memory limit; `unit` cotangents are ones."""
    types = [p.type for p in graph.params]
    cotangents = [r.type.tangent for r in graph.results if r.type.tangent is not None]
    attrs = {"limit": limit} if limit else {}

    def pull(*xs: Value) -> tuple[Value, ...]:
        seeds = [xs[0].home.const(1.0, t) for t in cotangents] if unit else xs[len(types) :]
        return vjp(*xs[: len(types)], *seeds, regions=(graph,), wrt=wrt, **attrs)[len(graph.results) :]

    return build_region([*types, *([] if unit else cotangents)], pull, graph.name)


def symbolic_way(graph: Graph, places: Sequence[int]) -> DerivativeMethod:
    """One expression for each parameter and result, and the operations of all of them, written out."""
    results = sum(r.type.tangent is not None for r in graph.results)
    try:
        found = [simplify_graph(derivative_along_ones(graph, place), {}) for place in places]
        total = sum(expression_size(g, lambda eqn: as_integer(Cost(equation_operations(eqn)))) for g in found)
    except (NoExpression, DifflangError):
        total = None
    return DerivativeMethod("symbolic", len(places) * results, "expression", None, total)


def error_notes(errors: PointErrors, at: GraphAtPoint) -> list[str]:
    """What a reader of the expressions and of the errors has to know."""
    notes: list[str] = []
    if any(np.ndim(x) for x in at.select_wrt(at.exact)):
        notes.append("symbolic: an operation on a whole array is one node; in an array it is the derivative along ones")
    columns, rows = errors.compared
    if columns < errors.numbers or rows < errors.results:
        notes.append(
            f"errors are those at {columns} of {count_of(errors.numbers, 'number')} of the arguments, "
            f"{rows} of {count_of(errors.results, 'number')} of the results"
        )
    if not errors.extended:
        notes.append("no reference has more digits than this program, so truncation and rounding are not told apart")
    found = [errors.best("one_sided"), errors.best("central")]
    if any(best is None or best[0] > coarsest_precision(at.graph)[0] ** 0.25 for best in found):
        notes.append("no step comes near the derivative: there may be a kink, which `difflang check-grad` finds")
    return notes
