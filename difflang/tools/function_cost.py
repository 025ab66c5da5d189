"""`difflang cost`: operations, bytes and memory of a function of a file and of its gradient, counted and not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.execution.engine import Engine
from difflang.tools.cost import CostReport, ProgramCost, program_cost
from difflang.tools.emit import EmitRequest, function_call, refuse_host_function, single_function
from difflang.tools.memory_report import number_checks
from difflang.tools.trace_call import USAGE as USAGE


class CostOptions(Struct, frozen=True):
    """Options: argument types, the gradient's parameters, by default the first one."""

    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    words: tuple[str, ...] = ()  # arguments of the program
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])


def function_cost(checked: CheckedProgram, path: Path | None, entry: str | None, options: CostOptions) -> CostReport:
    """The cost of a function, and of its gradient if it has one.

    Errors: as `emit`; without a gradient the report says why, but with `wrt` that is an error.
    """
    load_values(checked, path, Engine("interpret"), options.words)
    decl = single_function(checked, entry, "cost")
    refuse_host_function(decl)

    def cost(wrt: str | None) -> ProgramCost:
        request = EmitRequest("ir", decl.name, options.argument_specs, wrt)
        call = function_call(checked, decl, request, Session(mesh=checked.session.mesh))
        return program_cost(number_checks(call, options.mesh), options.mesh)

    value = cost(None)
    wrt, gradient, why = (
        options.wrt if options.wrt is not None else decl.params[0].name if decl.params else None,
        None,
        "it takes no arguments",
    )
    if wrt is not None:
        try:
            gradient, why = cost(wrt), ""
        except DifflangError as error:
            if options.wrt is not None:
                raise
            why = error.diagnostics[0].message
    return CostReport(f"`{decl.name}`", value, gradient, wrt or "", why, options.mesh)
