"""`difflang trace` and `f.trace(...)`: a step-by-step evaluation of a call with tangents and adjoints."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.source import Source
from difflang.dataflow.executor import Firing
from difflang.dataflow.machine import Machine
from difflang.dataflow.timeline import chrome_trace, in_order, token_lines
from difflang.driver.capacity_for_call import with_fitted_capacity
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import declared_arguments
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import Session
from difflang.execution.check_failures import DETAIL_RESULTS, explain_failure
from difflang.execution.engine import Engine
from difflang.execution.random_keys import seed_to_key
from difflang.gradcheck.trace_table import Trace, build_trace, format_short
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import DTYPES, Tensor, numpy_dtype
from difflang.lower.capacity import INITIAL_CAPACITY, with_capacity
from difflang.lower.lowering_pipeline import INTERPRET, finalize_graph
from difflang.ops.control.print_effect import without_prints
from difflang.passes.dce import dce
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import mentioned_names
from difflang.tools.check_grad import matches_wrt
from difflang.tools.emit import parse_wrt, refuse_host_function, single_function
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType, SumType
from difflang.types.module_scope import GlobalName
from difflang.types.type_errors import make_error

USAGE = ("DL0201", "DL0322", "DL0401", "DL0403", "DL1207", "DL1210", "DL1220")
ROWS = 100
COLUMNS = 4  # the most tangent columns shown by default


class TraceOptions(Struct, frozen=True):
    """Options: the values of the arguments, the parameter for tangent columns, the most rows."""

    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    rows: int = ROWS
    seed: int = 0
    words: tuple[str, ...] = ()  # arguments of the program
    machine: Machine | None = None  # to trace the tokens of


class TokenTrace(Struct, frozen=True):
    """The nodes that fired in a run on the dataflow machine, in order, at most `rows` of them as text."""

    call: str
    firings: tuple[Firing, ...]
    rows: int

    def __str__(self) -> str:
        lines = list(token_lines(self.firings[: self.rows]))
        more = len(self.firings) - len(lines)
        return "\n".join([self.call, *lines, *([f"… and {more:,} more: --rows {len(self.firings)}"] if more else [])])

    def to_json(self) -> Any:
        return {"call": self.call, **json.loads(chrome_trace(self.firings))}


def trace_function(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: TraceOptions
) -> Trace | TokenTrace:
    """The trace of a function of a file at values given as text; with a machine, that of its tokens.

    Errors: DL0201 for an unknown entry; DL1207 and DL1210 for invalid values; DL09 if it fails.
    """
    decl = single_function(checked, entry, "trace")
    refuse_host_function(decl, "it has no derivative")
    captured = load_values(checked, path, Engine("interpret"), options.words)
    return trace_declaration(checked, decl, options, captured.leaves)


def trace_declaration(
    checked: CheckedProgram, decl: tree.Fn, options: TraceOptions, leaves: Callable[[GlobalName], Sequence[Any]]
) -> Trace | TokenTrace:
    """The trace of a function, given the values of its file. Errors: as `trace_function`."""
    call = call_at_values(checked, decl, options.arguments, options.seed, leaves)
    if options.wrt is not None:
        parse_wrt(decl, options.wrt, checked.module)
    if options.machine is None:
        return trace_entry(call.session, call.text, call.entry, call.arrays, call.inputs, options)
    graph = graph_without_checks(call.session, call.entry, call.arrays)
    firings: list[Firing] = []
    options.machine.observe = firings.append
    options.machine.evaluate(finalize_graph(graph, pipeline=INTERPRET), *call.arrays)
    return TokenTrace(call.text, tuple(in_order(firings)), options.rows)


class CallAtValues(Struct, frozen=True):
    """An elaborated call and the values of its params: of `inputs` arguments, then its random key, then of the file."""

    session: Session
    text: str
    entry: ElaboratedCall
    arrays: Sequence[Any]
    inputs: int


def call_at_values(
    checked: CheckedProgram,
    decl: tree.Fn,
    texts: Mapping[str, str],
    seed: int,
    leaves: Callable[[GlobalName], Sequence[Any]],
    option: str = "",
) -> CallAtValues:
    """The call of a function at values given as texts by name; `option` stands before a name in messages.

    Errors: DL1207 for a name that is unknown or missing, DL1210 for what is no value.
    """
    given, session = dict(texts), Session()
    # An enum's value is a variant in source form; a record's sizes are given by its type.
    declared = {p.name: checked.module.records.get(element_type_name(p)) for p in decl.params}
    single = {p.name for p in decl.params if is_one_enum(p.type, declared[p.name])}
    enums = {name: given.pop(name, "") for name in declared if name in single}
    records = {name: given.pop(name) for name, kind in declared.items() if kind is not None and name in given}
    values = {name: parse_value(name, text, option) for name, text in given.items()}
    specs = {p.name: type_from_value(p, values[p.name]) for p in decl.params if p.name in values}
    sizes = {n: str(v) for n, v in values.items() if n not in specs and "." not in n and np.ndim(v) == 0}
    known = {n: t for n, t in specs.items() if t}
    for p in decl.params:
        if p.type is not None and p.default is None and p.name not in {*values, *records} and has_open_size(p, sizes):
            raise missing_value_error(p.name, option)
    arguments = declared_arguments(checked.module, decl, {**known, **sizes, **records}, option=option)
    arguments = [parse_variant(a, enums[a.name], values, option) if a.name in enums else a for a in arguments]
    entry = elaborate_call(session, checked.module, decl.name, ClosureType(FnCode(decl, checked.module), ()), arguments)
    constants = [np.asarray(x) for name in entry.globals for x in leaves(name)]
    params = entry.graph.params[: len(entry.graph.params) - len(constants) - entry.random]
    taken = {*(p.hint for p in params), *(a.name for a in arguments if a.size is not None), *sizes}
    refuse_unknown_names(decl, values, taken)
    arrays = [to_param_array(p.hint, p.type, values, option) for p in params]
    arrays += [np.asarray(seed_to_key(seed))] if entry.random else []
    call = ", ".join(f"{n} = {format_short(np.asarray(v))}" for n, v in values.items())
    return CallAtValues(session, f"{decl.name}({call})", entry, [*arrays, *constants], len(params))


def graph_without_checks(session: Session, entry: ElaboratedCall, arrays: Sequence[Any]) -> Graph:
    """The graph of a call that does not fail, without its checks and prints. Errors: DL09 if it fails."""
    entry = with_fitted_capacity(session, entry, arrays)
    if entry.fails and (site := int(evaluate(finalize_graph(entry.graph), *arrays)[-1 - DETAIL_RESULTS])):
        raise explain_failure(session, site, entry.graph, Engine("interpret").explaining(), arrays)
    graph = with_capacity(without_prints(entry.graph), INITIAL_CAPACITY)
    return dce(graph.with_results(graph.results[: -1 - DETAIL_RESULTS])) if entry.fails else graph


def trace_entry(
    session: Session, call: str, entry: ElaboratedCall, arrays: Sequence[Any], inputs: int, options: TraceOptions
) -> Trace:
    """The trace of an elaborated call, whose first arrays are its arguments. Errors: DL09, DL0401, DL1222."""
    graph = graph_without_checks(session, entry, arrays)
    # Constants of the file have no tangent column.
    moves = [i < inputs and p.type.tangent is not None for i, p in enumerate(graph.params)]
    asked = [i for i, p in enumerate(graph.params) if moves[i] and matches_wrt(p.hint, options.wrt)]
    if options.wrt is not None and not asked:
        raise make_error("DL0401", f"there is no real parameter `{options.wrt}` to differentiate with respect to")
    scalar = [i for i in asked if np.ndim(arrays[i]) == 0]
    # Too many columns are unreadable: show none unless one is requested.
    columns = asked if options.wrt is not None else scalar if len(scalar) <= COLUMNS else []
    return build_trace(graph, arrays, moves, call, options.rows, columns)


def parse_value(name: str, text: str, option: str) -> Any:
    """Parse a number, `true`, `false`, or a nested list of these. Errors: DL1210."""
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        array = np.asarray(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        array = None
    if array is None or array.dtype.kind not in "biufc":
        way = f"write `{option}{name}=2.5` or `{option}{name}='[1.0, 2.0]'`; a complex number is `1+2j`"
        raise make_error("DL1210", f"`{text:.40}` is not a number or an array of numbers, as `{name}` needs", help=way)
    return array.item() if array.ndim == 0 else array


def has_open_size(param: tree.Param, sizes: Mapping[str, str]) -> bool:
    """Whether an argument is an array with an unknown size that its value would determine."""
    written = param.type
    return (
        isinstance(written, tree.TypeApply)
        and ".".join(written.path) in DTYPES
        and not mentioned_names(written) - DTYPES.keys() <= sizes.keys()
    )


def is_one_enum(written: tree.TypeExpr | None, decl: tree.Record | tree.Enum | None) -> bool:
    """Whether an argument is an enum and no array of enums, whose tags and fields are given as arrays."""
    array = isinstance(written, tree.TypeArray) or (isinstance(written, tree.TypeApply) and decl and not decl.generics)
    return isinstance(decl, tree.Enum) and not array


def missing_value_error(name: str, option: str) -> DifflangError:
    return make_error("DL1207", f"there is no value of `{name}`", help=f"add `{option}{name}=…`")


def parse_variant(argument: CallArgument, text: str, values: dict[str, Any], option: str) -> CallArgument:
    """An enum argument with the variant that is written, such as `Disk(2.0)`; its fields are added to `values`.

    Errors: DL1210 if the enum has no such variant.
    """
    assert isinstance(argument.type, SumType)
    items = parse(Source("<command line>", f"let value = {text}\n")).module.items if text else ()
    found = items[0].value if len(items) == 1 and isinstance(items[0], tree.Let) else None
    args, head = (found.args, found.fn) if isinstance(found, tree.Call) else ((), found)
    type = next((v for v in argument.type.variants if isinstance(head, tree.Name) and v.name == head.id), None)
    names = [a.name or place for a, place in zip(args, type.names if type else (), strict=False)]
    if type is None or len(names) < len(args) or sorted(names) != sorted(type.names):
        said = (
            f"`{text}` is not a valid value of `{argument.name}`" if text else f"there is no value of `{argument.name}`"
        )
        ways = [f"{v.name}({', '.join(v.names)})" if v.names else v.name for v in argument.type.variants]
        raise make_error("DL1210", said, help=f"write `{option}{argument.name}=…`, as {' or '.join(ways)}")
    for name, arg in zip(names, args, strict=True):
        values[f"{argument.name}.{type.name}.{name}"] = parse_value(
            f"{argument.name}.{name}", arg.value.span.text, option
        )
    return replace(argument, type=type)


def element_type_name(param: tree.Param) -> str:
    return param.type.span.text.partition("[")[0].strip() if param.type is not None else ""


def type_from_value(param: tree.Param, value: Any) -> str:
    """The type of a parameter from its value; empty if the declaration is complete."""
    if is_dim(param.type):
        return str(value)
    shape = list(np.shape(value))
    written = element_type_name(param)
    if not shape and written in DTYPES:
        return ""
    return (written if written in DTYPES else "f64") + (str(shape) if shape else "")


def refuse_unknown_names(decl: tree.Fn, values: Mapping[str, Any], taken: set[str]) -> None:
    """Errors: DL1207."""
    for name in values:
        if name not in taken:
            way = suggestion(name, sorted(taken))
            raise make_error("DL1207", f"`{decl.name}` has no parameter `{name}`", help=way)


def to_param_array(hint: str, type: Any, values: Mapping[str, Any], option: str) -> Any:
    """A value converted to its parameter's type. Errors: DL1207 if it is missing, DL1210 if it does not convert."""
    if hint not in values:
        raise missing_value_error(hint, option)
    assert isinstance(type, Tensor)
    given = np.asarray(values[hint])
    if given.dtype.kind == "c" and type.dtype.kind != "complex":
        raise make_error("DL1210", f"`{hint}` is {type}, but {format_short(given)} is not")
    array = given.astype(numpy_dtype(type.dtype))
    if given.shape != type.shape:
        raise make_error("DL1210", f"`{hint}` is {type}, but a value of shape {list(given.shape)} was given")
    if type.tangent is None and not np.array_equal(array, given):
        raise make_error("DL1210", f"`{hint}` is {type}, but {format_short(given)} is not")
    return array
