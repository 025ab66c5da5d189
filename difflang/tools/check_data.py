"""`check --data`: checks from a data file's headers alone whether the file fits a program.

It is compared with every call that reads the file, as a run would do, or with a function's parameters by name. Sizes
shared by several arrays must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.driver.checked_program import CheckedProgram, select_functions
from difflang.driver.elaborate_call import elaborate_call
from difflang.driver.type_specs import declared_arguments, parse_type
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import Session
from difflang.host.builtins import BuiltinCall
from difflang.host.data.array_files import FORMAT_OF_SUFFIX
from difflang.host.data.array_headers import read_headers
from difflang.host.data.opened_tables import ROW_BLOCKS, open_columns
from difflang.host.data.read_errors import BROKEN, report_read_errors
from difflang.host.data.read_values import ARRAY_READ_BUILTINS, OPEN_BUILTINS, FileRead, ValueReader, check_table
from difflang.host.data.state_dict import StateDictLoader, array_type_text
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.annotations import AnnotationResolver, size_names
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType, LangType, RecordType, SumType, TupleType, VariantType, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import Unifier

CHECKED_BUILTINS = (*ARRAY_READ_BUILTINS, *OPEN_BUILTINS, "read_parquet", "read_arrow")
NESTED_TYPES = (RecordType, TupleType, VariantType, SumType)


def check_data_file(
    checked: CheckedProgram, path: Path | None, entry: str | None, data: Path, name: str
) -> list[DifflangError]:
    """The mismatches. Errors: DL0701 for a file that cannot be read, DL1207 if nothing reads it."""
    if entry is None and (reads := reads_of_file(checked, path, data)):
        return check_reads(reads, data, name)
    holds = data_headers(data, name)
    decls = functions_taking(checked, entry, holds, name)
    return [error for decl in decls for error in check_function(checked, decl, holds, name)]


def data_headers(data: Path, name: str) -> Mapping[str, Any]:
    """Errors: DL0701."""
    try:
        return read_headers(data)
    except FileNotFoundError:
        raise make_error("DL0701", f"cannot read `{name}`: there is no such file") from None
    except BROKEN as error:
        why = str(error).splitlines()[0] if str(error) else "it is damaged"
        raise make_error("DL0701", f"cannot read `{name}`: {why}") from None


# ---- Calls that read the file


def reads_of_file(checked: CheckedProgram, path: Path | None, data: Path) -> list[FileRead]:
    """The calls that read arrays or a table of this file, each once."""
    folder, target = path.parent if path is not None else Path.cwd(), data.resolve()
    found: dict[tree.Node, FileRead] = {}
    for read in checked.reads:
        name = read.given.text(0) if read.given.function.name in CHECKED_BUILTINS else None
        if name is not None and (folder / name).resolve() == target:
            found.setdefault(read.given.call, read)
    return list(found.values())


def check_reads(reads: Sequence[FileRead], data: Path, name: str) -> list[DifflangError]:
    """The mismatches at the calls that read a file; a size name is one size within a function or the file."""
    errors: list[DifflangError] = []
    scopes: dict[tuple[ModuleScope, tree.Fn | None], AnnotationResolver] = {}
    for read in reads:
        # One scope per function: a size name is shared by its reads only.
        names = scopes.setdefault((read.module, read.decl), AnnotationResolver(Unifier(), read.module.records.get))
        names.bound |= {n: size for n, size in read.known.items() if n not in names.bound}
        expected = read.given.expected_type
        assert expected is not None
        given = replace(read.given, expected_type=replace(expected, names=names))
        try:
            type = replace(names, bound=dict(names.bound), rigid=True).type(expected.annotation)
            holds = read_holds(given, type, data, name)
            ValueReader(given, name, type).value_in(names, read.module.records.get, holds, given.text(1))
        except DeferCheck:
            continue
        except DifflangError as error:
            errors.append(error)
    return errors


def read_holds(given: BuiltinCall, type: LangType, data: Path, name: str) -> Mapping[str, Any]:
    """The arrays of a file, or the columns that a call declares, without their data. Errors: DL0701, DL0704, DL0706."""
    format = FORMAT_OF_SUFFIX.get(data.suffix, "")
    if format not in ROW_BLOCKS:
        return data_headers(data, name)
    assert given.expected_type is not None
    declared = given.expected_type.annotation.span
    with report_read_errors(name, given.span):
        return open_columns(format, data, name, check_table(given, type, declared), given.span, declared)


# ---- Functions whose arguments the file holds


def functions_taking(checked: CheckedProgram, entry: str | None, holds: Mapping[str, Any], name: str) -> list[tree.Fn]:
    """The requested function, or all functions with parameters that the file holds. Errors: DL0201, DL1207."""
    decls = select_functions(checked, entry)
    roots = {n.partition(".")[0] for n in holds}
    found = [d for d in decls if roots & {p.name for p in d.params}]
    if not found:
        arrays = ", ".join(list(holds)[:12])
        message = f"the program does not read this file, and no function takes the arrays of `{name}`"
        message = message if entry is None else f"`{entry}` has no parameters that `{name}` holds"
        way = f"it contains {arrays or 'nothing'}: parameters are matched by these names"
        raise make_error("DL1207", message, help=way)
    return found


def check_function(checked: CheckedProgram, decl: tree.Fn, holds: Mapping[str, Any], name: str) -> list[DifflangError]:
    """The mismatches between a function's parameters and the arrays with their names, one by one and together."""
    module = checked.module
    names = AnnotationResolver(Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics})
    specs: dict[str, str] = {}
    errors: list[DifflangError] = []
    sources: dict[str, str] = {}  # the parameter that determines each size
    for param in decl.params:
        inside = {n: x for n, x in holds.items() if n == param.name or n.startswith(f"{param.name}.")}
        if not inside or param.type is None or is_dim(param.type):
            continue
        try:
            array = inside.get(param.name)
            if has_generic_dtype(param.type, names):
                specs |= {param.name: array_type_text(array)} if isinstance(array, np.ndarray) else {}
                continue
            specs[param.name] = show_type(stored_type(param, module, names, inside, name, sources))
            sources |= {n: param.name for n in names.bound if n not in sources}
        except DeferCheck:
            continue
        except DifflangError as error:
            errors.append(error)
    if not errors and len(specs) == len([p for p in decl.params if p.default is None]) and not decl.host:
        try:
            for text in specs.values():
                parse_type(text, module)
        except DifflangError:  # a text or a variant has no type specification
            return errors
        try:
            arguments = declared_arguments(module, decl, specs)
            elaborate_call(Session(), module, decl.name, ClosureType(FnCode(decl, module), ()), arguments)
        except DifflangError as error:
            errors.append(error)
    return errors


def has_generic_dtype(written: tree.TypeExpr, names: AnnotationResolver) -> bool:
    """Whether a type mentions element types that each call decides."""
    applied = [n.path[0] for n in all_nodes(written) if isinstance(n, (tree.TypeApply, tree.TypeName))]
    return not names.generics.keys().isdisjoint(applied)


def stored_type(
    param: tree.Param,
    module: ModuleScope,
    names: AnnotationResolver,
    inside: Mapping[str, Any],
    name: str,
    sources: Mapping[str, str],
) -> Any:
    """The type of an argument as the file holds it. Errors: DL0704 to DL0706."""
    assert param.type is not None
    array, span = inside.get(param.name), param.type.span
    known = sizes_text(names, param.type, sources)
    parts = {n.removeprefix(f"{param.name}."): x for n, x in inside.items()}
    type = replace(names, bound=dict(names.bound), rigid=True).type(param.type)
    if isinstance(array, np.ndarray):
        parts = {"": array}
        if isinstance(type, NESTED_TYPES):
            message = f"`{name}` contains {array_type_text(array)} for `{param.name}`, not {show_type(type)}"
            raise make_error("DL0704", message, (span, "declared here"))
    value = StateDictLoader(name, parts, span, span, root=param.name, known=known).value(type, module.records.get)
    if not names.match(param.type, value.type):
        raise make_error("DL0705", f"`{name}` contains {show_type(value.type)} for `{param.name}`",
                      (span, f"declared {span.text}{known}"))  # fmt: skip
    return value.type


def sizes_text(names: AnnotationResolver, written: tree.TypeExpr, sources: Mapping[str, str]) -> str:
    """The known sizes in a type and the parameters that determine them, as text for a message."""
    known = [n for n in size_names(written, names) if isinstance(names.bound.get(n), int)]
    sizes = [f"{n} is {names.bound[n]}" + (f" by `{sources[n]}`" if n in sources else "") for n in known]
    return f", where {', '.join(sizes)}" if sizes else ""
