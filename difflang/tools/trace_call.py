"""`difflang trace` and `f.trace(...)`: a call evaluated step by step, with tangents and adjoints."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest
from difflang.base.source import Source
from difflang.driver.capacity_for_call import with_enough_room
from difflang.driver.check_and_run import Checked, loaded
from difflang.driver.elaborate_call import Argument, Entry, elaborated
from difflang.driver.type_specs import declared_arguments
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import Session
from difflang.execution.check_failures import NUMBERS, explain
from difflang.execution.engine import Engine
from difflang.execution.random_keys import seed_words
from difflang.gradcheck.trace_table import Trace, short, traced
from difflang.ir.interpreter import evaluate, numpy_dtype
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.lower.capacity import LITTLE, with_room
from difflang.lower.lowering_pipeline import finished
from difflang.ops.control.print_effect import silent
from difflang.passes.dce import dce
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import free_names
from difflang.tools.check_grad import host_function_has_none, wanted
from difflang.tools.emit import entries, place
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType, SumType
from difflang.types.module_scope import Global, Module
from difflang.types.type_errors import mistake

USAGE = ("DL0201", "DL0322", "DL0401", "DL0403", "DL1207", "DL1210", "DL1220")
ROWS = 100
COLUMNS = 4  # of tangents, if nobody says which


class Options(Struct, frozen=True):
    """What is asked: a call with these values, columns of tangents in `wrt`, at most so many rows."""

    given: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    rows: int = ROWS
    seed: int = 0
    words: tuple[str, ...] = ()  # arguments of the program


def trace(checked: Checked, path: Path | None, entry: str | None, options: Options) -> Trace:
    """The trace of a function of a file at values written as text.

    Errors: DL0201 for an unknown entry; DL1207 and DL1210 for values that it does not take; DL09 where it fails.
    """
    decls = [d for d in entries(checked, entry) if not d.host or entry is not None]
    if len(decls) != 1:
        names = ", ".join(d.name for d in decls) or "none"
        raise mistake("DL0201", "one function is traced at a time", help=f"say FILE:NAME; it has {names}")
    (decl,) = decls
    host_function_has_none(decl)
    captured = loaded(checked, path, Engine("interpret"), options.words)
    return trace_of(checked, decl, options, captured.leaves)


def trace_of(checked: Checked, decl: tree.Fn, options: Options, leaves: Callable[[Global], Sequence[Any]]) -> Trace:
    """The same, the values of its file being there."""
    given, session = dict(options.given), Session()
    enums = {p.name: given.pop(p.name, "") for p in decl.params if is_enum(checked.module, p)}
    records = {p.name: given.pop(p.name) for p in decl.params if p.name in given and is_record(checked.module, p)}
    values = {name: value_of(name, text) for name, text in given.items()}
    told = {p.name: told_by(p, values[p.name]) for p in decl.params if p.name in values}
    sizes = {n: str(v) for n, v in values.items() if n not in told and "." not in n and np.ndim(v) == 0}
    known = {n: t for n, t in told.items() if t}
    for p in decl.params:
        if p.type is not None and p.default is None and p.name not in {*values, *records} and open_array(p, sizes):
            raise no_value(p.name)
    arguments = declared_arguments(checked.module, decl, {**known, **sizes, **records}, option="")
    arguments = [with_variant(a, enums[a.name], values) if a.name in enums else a for a in arguments]
    entry = elaborated(session, checked.module, decl.name, ClosureType(FnCode(decl, checked.module), ()), arguments)
    constants = [np.asarray(x) for name in entry.globals for x in leaves(name)]
    params = entry.graph.params[: len(entry.graph.params) - len(constants) - entry.random]
    taken = {*(p.hint for p in params), *(a.name for a in arguments if a.size is not None), *sizes}
    refuse_unknown(decl, values, taken)
    arrays = [array_of(p.hint, p.type, values) for p in params]
    if options.wrt is not None:
        place(decl, options.wrt, checked.module)
    arrays += [np.asarray(seed_words(options.seed))] if entry.random else []
    call = ", ".join(f"{n} = {short(np.asarray(v))}" for n, v in values.items())
    return of_entry(session, f"{decl.name}({call})", entry, [*arrays, *constants], len(params), options)


def of_entry(session: Session, call: str, entry: Entry, arrays: Sequence[Any], inputs: int, options: Options) -> Trace:
    """The trace of an elaborated call, whose first arrays are its arguments. Errors: DL09, DL0401, DL1222."""
    entry = with_enough_room(session, entry, arrays)
    if entry.fails and (site := int(evaluate(finished(entry.graph), *arrays)[-1 - NUMBERS])):
        raise explain(session, site, entry.graph, Engine("interpret").explaining(), arrays)
    graph = with_room(silent(entry.graph), LITTLE)
    graph = dce(graph.with_results(graph.results[: -1 - NUMBERS])) if entry.fails else graph
    moves = [i < inputs and p.type.tangent is not None for i, p in enumerate(graph.params)]
    asked = [i for i, p in enumerate(graph.params) if moves[i] and wanted(p.hint, options.wrt)]
    if options.wrt is not None and not asked:
        raise mistake("DL0401", f"there is no real number `{options.wrt}`: there is nothing to differentiate in")
    scalar = [i for i in asked if np.ndim(arrays[i]) == 0]
    columns = asked if options.wrt is not None else scalar if len(scalar) <= COLUMNS else []
    return traced(graph, arrays, moves, call, options.rows, columns)


def value_of(name: str, text: str) -> Any:
    """A number, `true`, `false`, or a list of such in a list. Errors: DL1210."""
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        array = np.asarray(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        array = None
    if array is None or array.dtype.kind not in "biufc":
        raise mistake("DL1210", f"`{text:.40}` for `{name}` is no number, and no array of numbers",
                      help=f"write `{name}=2.5` or `{name}='[1.0, 2.0]'`")  # fmt: skip
    return array.item() if array.ndim == 0 else array


def open_array(param: tree.Param, sizes: Mapping[str, str]) -> bool:
    """Whether an argument is an array with a size that is not told, which its value would tell."""
    written = param.type
    return (
        isinstance(written, tree.TypeApply)
        and ".".join(written.path) in DTYPES
        and not free_names(written) - DTYPES.keys() <= sizes.keys()
    )


def no_value(name: str) -> DifflangError:
    return mistake("DL1207", f"there is no value of `{name}`", help=f"add `{name}=…`")


def is_record(module: Module, param: tree.Param) -> bool:
    """Of a record `NAME=TYPE` says the sizes, if they are not told; its fields are given one by one."""
    return element_of(param) in module.records


def is_enum(module: Module, param: tree.Param) -> bool:
    return isinstance(module.records.get(element_of(param)), tree.Enum)


def with_variant(argument: Argument, text: str, values: dict[str, Any]) -> Argument:
    """An argument that is an enum as the variant that is written, `Disk(2.0)`; its fields join the values.

    Errors: DL1210 where it is none of the enum's.
    """
    assert isinstance(argument.type, SumType)
    items = parse(Source("<command line>", f"let value = {text}\n")).module.items if text else ()
    found = items[0].value if len(items) == 1 and isinstance(items[0], tree.Let) else None
    args, head = (found.args, found.fn) if isinstance(found, tree.Call) else ((), found)
    type = next((v for v in argument.type.variants if isinstance(head, tree.Name) and v.name == head.id), None)
    names = [a.name or place for a, place in zip(args, type.names if type else (), strict=False)]
    if type is None or len(names) < len(args) or sorted(names) != sorted(type.names):
        said = (
            f"`{text}` is none of what `{argument.name}` may be" if text else f"there is no value of `{argument.name}`"
        )
        ways = [f"{v.name}({', '.join(v.names)})" if v.names else v.name for v in argument.type.variants]
        raise mistake("DL1210", said, help=f"write `{argument.name}=…`, as {' or '.join(ways)}")
    for name, arg in zip(names, args, strict=True):
        values[f"{argument.name}.{type.name}.{name}"] = value_of(f"{argument.name}.{name}", arg.value.span.text)
    return replace(argument, type=type)


def element_of(param: tree.Param) -> str:
    return param.type.span.text.partition("[")[0].strip() if param.type is not None else ""


def told_by(param: tree.Param, value: Any) -> str:
    """The type that a value tells of a parameter; nothing where the declaration says all."""
    if is_dim(param.type):
        return str(value)
    shape = list(np.shape(value))
    written = element_of(param)
    if not shape and written in DTYPES:
        return ""
    return (written if written in DTYPES else "f64") + (str(shape) if shape else "")


def refuse_unknown(decl: tree.Fn, values: Mapping[str, Any], taken: set[str]) -> None:
    """Errors: DL1207."""
    for name in values:
        if name not in taken:
            near = nearest(name, sorted(taken))
            raise mistake("DL1207", f"`{decl.name}` has no parameter `{name}`",
                          help=f"did you mean `{near}`?" if near else f"it has {', '.join(sorted(taken))}")  # fmt: skip


def array_of(hint: str, type: Any, values: Mapping[str, Any]) -> Any:
    """A value as its parameter takes it. Errors: DL1207 for one that is missing, DL1210 for one of another type."""
    if hint not in values:
        raise no_value(hint)
    assert isinstance(type, Tensor)
    given = np.asarray(values[hint])
    array = given.astype(numpy_dtype(type.dtype))
    if given.shape != type.shape:
        raise mistake("DL1210", f"`{hint}` is {type}, and a value of shape {list(given.shape)} is given")
    if type.tangent is None and not np.array_equal(array, given):
        raise mistake("DL1210", f"`{hint}` is {type}, and {short(given)} is none")
    return array
