"""`difflang check-grad` and `f.check_grad(...)`: checks a function's gradient at random or given arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Span
from difflang.driver.capacity_for_call import with_fitted_capacity
from difflang.driver.checked_program import CheckedProgram, select_functions
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.execution.check_failures import DETAIL_RESULTS, explain_failure
from difflang.execution.engine import Engine
from difflang.gradcheck.engine_comparison import CheckPipeline
from difflang.gradcheck.gradient_check import check_gradient
from difflang.gradcheck.report import GradcheckReport
from difflang.ir.interpreter import StepLimitExceeded, discard_text, evaluate_with_limit
from difflang.lower.lowering_pipeline import expand_keeping_rules, finalize_graph
from difflang.ops.control.print_effect import without_prints
from difflang.passes.dce import dce
from difflang.syntax import tree
from difflang.tools import random_arguments
from difflang.tools.emit import parse_wrt, refuse_host_function
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from difflang.types.module_scope import GlobalName, ModuleScope
from difflang.types.type_errors import make_error

# Operations of one run at random arguments, and how many runs may exceed them: about ten seconds in all.
MAX_OPERATIONS, MAX_ENDLESS_RUNS = 1_000_000, 2
# Mistakes in the request.
USAGE_CODES = ("DL0201", "DL0322", "DL0401", "DL0403", "DL1207", "DL1210", "DL1220")
# When all functions are checked, one with these is skipped.
SKIPPABLE_CODES = ("DL03", "DL0401", "DL09", "DL12")


class CheckGradOptions(Struct, frozen=True):
    """Options of a gradient check, from Python or the command line. Errors: DL1207 for a number out of range."""

    order: int = 1
    directions: int = 3
    seed: int = 0
    wrt: str | None = None
    compiled: bool = True
    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    words: tuple[str, ...] = ()  # arguments of the program
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])  # that compiled programs run on

    def __post_init__(self) -> None:
        require_integer("order", self.order, 1, 3)
        require_integer("directions", self.directions, 1)
        require_integer("seed", self.seed, 0, 2**64 - 1)


def require_integer(name: str, given: object, least: int, most: int | None = None) -> None:
    """Require an integer option within limits. Errors: DL1207."""
    if isinstance(given, int) and not isinstance(given, bool) and least <= given and (most is None or given <= most):
        return
    limits = f"from {least} to {most}" if most is not None else f"from {least} on"
    raise make_error("DL1207", f"`{name}` must be an integer {limits}, but {given!r} was given")


def check_grad_of_all(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: CheckGradOptions
) -> tuple[list[GradcheckReport], list[Diagnostic]]:
    """Check the gradients of one function or of all; warnings say why functions were skipped.

    Errors: as `check_grad`; DL0201 for an unknown entry; DL0401 if there is no function.
    """
    found: list[GradcheckReport] = []
    left: list[Diagnostic] = []
    decls = select_functions(checked, entry)
    if not decls:
        way = "put the code to differentiate into a `fn`"
        raise make_error("DL0401", "this file contains no function to differentiate", help=way)
    for decl in decls:
        try:
            found.append(check_grad(checked, path, decl, options))
        except DifflangError as error:
            if entry is not None or not error.diagnostics[0].code.startswith(SKIPPABLE_CODES):
                raise
            left += [replace(d, severity="warning") for d in error.diagnostics]
    if not found and left:
        raise DifflangError(*[replace(d, severity="error") for d in left])
    return found, left


def check_grad(checked: CheckedProgram, path: Path | None, decl: tree.Fn, options: CheckGradOptions) -> GradcheckReport:
    """Check the gradient of a function of a file at random arguments.

    Errors: DL1210 if arguments cannot be drawn, DL0401 if there is nothing to differentiate, DL09 if the function fails
    for all drawn arguments.
    """
    refuse_host_function(decl, "it has no derivative")
    captured = load_values(checked, path, Engine("interpret"), options.words)
    return check_grad_with_globals(checked, decl, options, captured.leaves)


def check_grad_with_globals(
    checked: CheckedProgram, decl: tree.Fn, options: CheckGradOptions, leaves: Callable[[GlobalName], Sequence[Any]]
) -> GradcheckReport:
    """Check the gradient of a function, given the values of its file. Errors: as `check_grad`."""
    refuse_host_function(decl, "it has no derivative")
    session = Session(mesh=options.mesh)
    entry, arguments = elaborate_first_choice(session, checked, decl, options.argument_specs)
    constants = [np.asarray(x) for name in entry.globals for x in leaves(name)]
    arrays = find_finite_arguments(session, decl, entry, arguments, constants, options.seed)
    entry = with_fitted_capacity(session, entry, arrays)
    if options.wrt is not None:
        first, *rest = parse_wrt(decl, options.wrt, checked.module)
        name = decl.params[first].name if isinstance(first, int) else first
        options = replace(options, wrt=".".join([name, *map(str, rest)]))
    text = f"{random_arguments.arguments_text(arguments)}, seed {options.seed}" if arguments else f"seed {options.seed}"
    return run_gradient_check(
        checked.module, decl.name, entry, arrays, len(entry.graph.params) - len(constants), options, text
    )


def elaborate_first_choice(
    session: Session, checked: CheckedProgram, decl: tree.Fn, specs: Mapping[str, str]
) -> tuple[ElaboratedCall, tuple[CallArgument, ...]]:
    """Elaborate the function for the first choice of sizes that type-checks."""
    first: DifflangError | None = None
    type = ClosureType(FnCode(decl, checked.module), ())
    for arguments in random_arguments.argument_choices(checked.module, decl, specs):
        try:
            return elaborate_call(session, checked.module, decl.name, type, arguments), arguments
        except DifflangError as error:
            first = first or error
    assert first is not None
    raise first


class EndlessRuns(DifflangError):
    """A function that takes too many operations at all arguments drawn."""


def find_finite_arguments(
    session: Session,
    decl: tree.Fn,
    entry: ElaboratedCall,
    arguments: Sequence[CallArgument],
    constants: Sequence[Any],
    seed: int,
    most: int | None = None,
) -> list[Any]:
    """Random arguments at which the function is finite after at most `most` operations. Errors: DL09, DL1210."""
    most = most or MAX_OPERATIONS
    rng = np.random.default_rng(seed)
    graph = finalize_graph(entry.graph)
    failure = make_error("DL1210", "its value is never finite")
    endless = 0
    for drawing in random_arguments.sampling_attempts(rng):
        arrays = [
            *random_arguments.sample_arguments(rng, arguments, drawing),
            *([random_arguments.sample_key(rng)] if entry.random else []),
            *constants,
        ]
        try:
            sized = with_fitted_capacity(session, entry, arrays, most).graph
            results = evaluate_with_limit(most, graph if sized is entry.graph else finalize_graph(sized), *arrays)
        except StepLimitExceeded:
            failure = EndlessRuns(*make_error("DL1210", f"it does not finish within {most:,} operations").diagnostics)
            endless += 1
            if endless == MAX_ENDLESS_RUNS:
                break
            continue
        if entry.fails and (site := int(results[-1 - DETAIL_RESULTS])):
            failure = explain_failure(session, site, sized, Engine("interpret").explaining(), arrays)
        elif all(np.isfinite(y).all() for y in map(np.asarray, results) if y.dtype.kind in "fc"):
            return arrays
    if failure.diagnostics[0].code.startswith("DL09"):
        raise failure
    raise type(failure)(*random_arguments.undrawable_error(decl, failure).diagnostics)


def run_gradient_check(
    module: ModuleScope,
    name: str,
    entry: ElaboratedCall,
    arrays: Sequence[Any],
    arguments: int,
    options: CheckGradOptions,
    text: str = "",
) -> GradcheckReport:
    """Check an elaborated call at arrays; its first params are the leaves of the arguments."""
    # Each engine would print again, and a failure's results have no derivative.
    graph = without_prints(entry.graph)
    graph = dce(graph.with_results(graph.results[: -1 - DETAIL_RESULTS])) if entry.fails else graph
    wrt = tuple(matches_wrt(p.hint, options.wrt) and i < arguments and p.type.tangent is not None
                for i, p in enumerate(graph.params))  # fmt: skip
    if not any(wrt):
        what = f"there is no real parameter `{options.wrt}`" if options.wrt else f"`{name}` has no real parameters"
        raise make_error("DL0401", f"{what}: there is nothing to differentiate with respect to")
    if all(r.type.tangent is None for r in graph.results):
        raise make_error("DL0401", f"`{name}` returns no real numbers: there is nothing to differentiate")
    return check_gradient(
        graph, arrays, wrt, name=name, pipeline=make_pipelines(options), order=options.order,
        directions=options.directions, seed=options.seed, drawn=text,
        rules=declared_derivatives(module),
    )  # fmt: skip


def declared_derivatives(module: ModuleScope) -> dict[str, Span]:
    """The spans of derivatives that the program declares, by function: rules, and Python functions with their own."""
    found: dict[str, Span] = {}
    # Imports first, so that the program's own declarations win.
    for m in reversed(module.transitive_imports()):
        found |= {name: m.fns[name].name_span for name in m.externs}
        found |= {name: rule.name_span for name, rule in m.rules.items()}
    return found


def matches_wrt(hint: str, wrt: str | None) -> bool:
    return wrt is None or hint == wrt or hint.startswith(f"{wrt}.")


def make_pipelines(options: CheckGradOptions) -> CheckPipeline:
    if not options.compiled:
        return CheckPipeline(expand_keeping_rules, finalize_graph)
    engine = Engine(mesh=tuple(options.mesh.items()))
    finish = partial(finalize_graph, pipeline=engine.pipeline)
    return CheckPipeline(expand_keeping_rules, finish, partial(engine.compiled, says=discard_text))
