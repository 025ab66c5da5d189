"""`difflang export`: exports one function of a file as an artifact, or as StableHLO alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from difflang.driver.check_and_run import CheckedProgram, load_values
from difflang.driver.elaborate_call import elaborate_call
from difflang.driver.type_specs import declared_arguments
from difflang.elaborate.context import Session
from difflang.tools.derive.derive import single_function
from difflang.tools.emit import parse_wrt
from difflang.tools.export.export_function import (
    DEFAULT_PLATFORMS,
    ExportedFunction,
    artifact_contents,
    save_artifact,
    stablehlo_bytes,
    write_export,
)
from difflang.types.function_code import DerivativeCode, FnCode
from difflang.types.language_types import ClosureType
from difflang.types.type_errors import make_error

USAGE_CODES = ("DL0201", "DL0403", "DL0601", "DL1207", "DL1210", "DL1220")  # mistakes in the command


class ExportOptions(Struct, frozen=True):
    """Options: argument types, the gradient's parameters, platforms; or StableHLO alone for one platform."""

    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    platforms: tuple[str, ...] = DEFAULT_PLATFORMS
    stablehlo: str | None = None
    source: bool = True
    program_args: tuple[str, ...] = ()


def export_function(made: ExportedFunction, out: Path, options: ExportOptions) -> None:
    """Write a function atomically. Errors: DL0710, DL0801, DL1240."""
    if options.stablehlo is None:
        return save_artifact(out, made, options.platforms, source=options.source)
    contents = artifact_contents(made)
    if contents.constants:
        message = f"`{made.name}` reads values of the file, which StableHLO alone does not hold"
        raise make_error("DL1240", message, help="make them parameters, or export an artifact, which holds them")
    return write_export(out, stablehlo_bytes(contents, options.stablehlo, as_text=out.suffix == ".mlir"))


def elaborate_export(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: ExportOptions
) -> ExportedFunction:
    """Elaborate the function for the given argument types. Errors: DL0201, DL0403, DL1207, DL1210."""
    decl = single_function(checked, entry)
    if decl.host:
        raise make_error("DL0322", f"`{decl.name}` is a host function: it is run, not compiled", (decl.name_span, ""))
    session, captured = Session(), load_values(checked, path, words=options.program_args)
    type, name = ClosureType(FnCode(decl, checked.module), ()), decl.name
    if options.wrt is not None:
        wrt = tuple([parse_wrt(decl, w, checked.module) for w in options.wrt.split(",")])
        type, name = ClosureType(DerivativeCode("grad", wrt), (type,)), f"grad_{name}"
    arguments = declared_arguments(checked.module, decl, options.argument_specs)
    made = elaborate_call(session, checked.module, name, type, arguments)
    declared = {p.name: (p.type.span.text if p.type is not None else "", p.span) for p in decl.params}
    constants = [np.asarray(leaf) for each in made.globals for leaf in captured.leaves(each)]
    about = name, decl.doc or "", path.stem if path is not None else "<stdin>"
    return ExportedFunction(*about, made, arguments, declared, session, checked.session.deterministic, constants)
