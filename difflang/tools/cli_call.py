"""A call on the command line: `run FILE:f --arg x=@train.npz:images --set lr=0.1`.

It becomes a block of source that is checked and run like a test. First come the arguments from files, each with the
type in the file's header, then the call. So every error in it is reported like one in a program.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram, check_block, find_function
from difflang.elaborate.mesh_axes import declared_layouts
from difflang.execution.engine import Engine
from difflang.host import program_args
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.host.builtins import BuiltinCall
from difflang.host.data.array_files import FORMAT_OF_SUFFIX, UNNAMED, StoredArrays
from difflang.host.data.file_access import FileAccess
from difflang.host.data.read_errors import report_read_errors
from difflang.host.data.read_values import ValueReader, read_contents
from difflang.host.data.state_dict import array_type_text
from difflang.host.expected_type import ExpectedType
from difflang.host.values import format_value
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.ops.arrays.reshard import split_type_text
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.tools.check_data import data_headers, has_generic_dtype
from difflang.tools.testing.isolated_blocks import IsolatedBlocks, run_statement
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import UNIT, SumType, TextType, VariantType, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import Unifier

ESCAPES = {"\\": "\\\\", '"': '\\"', "{": "\\{", "}": "\\}", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
HEADERLESS_FORMATS = ("csv", "json")  # formats without headers
USAGE_CODES = ("DL0201", "DL1207", "DL1210", "DL1220")


class CliCall(Struct, frozen=True):
    """A function and its arguments: each a text of the language, or `@FILE` or `@FILE:NAME`."""

    entry: str
    arguments: Mapping[str, str]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the call reads."""
        return tuple(
            [Path(split_file_spec(text)[0]).resolve() for text in self.arguments.values() if text.startswith("@")]
        )

    def block(self, module: ModuleScope) -> tree.Block:
        """The call as source. Errors: DL0201, DL1207, DL1210, DL07 for mistakes in the request."""
        decl = find_function(module, self.entry)
        self.refuse_unknown_args(decl)
        names = AnnotationResolver(Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics})
        lines: list[str] = []
        values: list[str] = []
        for param in decl.params:
            text = self.arguments.get(param.name)
            if text is None:
                if param.default is None:
                    raise missing_parameter_error(module, decl, param)
                continue
            if text.startswith("@"):
                name = fresh_name(param.name, module)
                lines.append(f"let {name}{load_clause(module, param, names, *split_file_spec(text))}")
                values.append(f"{param.name} = {name}")
            else:
                values.append(f"{param.name} = {expression_text(param.name, text)}")
        body = "\n".join([*lines, f"{decl.name}({', '.join(values)})"])
        start = 'test "the call" {\n'
        parsed = parse(Source("<command line>", f"{start}{body}\n}}\n"))
        if parsed.diagnostics:
            raise DifflangError(*parsed.diagnostics)
        (item,) = parsed.module.items
        assert isinstance(item, tree.Test)
        return item.body

    def refuse_unknown_args(self, decl: tree.Fn) -> None:
        """Errors: DL1207."""
        names = [p.name for p in decl.params]
        for name in self.arguments:
            if name not in names:
                message = f"`{decl.name}` has no parameter `{name}`"
                raise make_error("DL1207", message, (decl.name_span, ""), help=suggestion(name, names))


def missing_parameter_error(module: ModuleScope, decl: tree.Fn, param: tree.Param) -> DifflangError:
    value = shlex.quote(f"{param.name}={sample_value(module, param.type)}")
    ways = f"`--set {value}`, or `--arg {param.name}=@data.npz`"
    return make_error(
        "DL1207", f"`{decl.name}` is missing `{param.name}`", (param.span, "declared here"), help=f"add {ways}"
    )


def sample_value(module: ModuleScope, type: tree.TypeExpr | None) -> str:
    """A value of a declared type, as text for a help."""
    match type:
        case tree.TypeTuple(items=items):
            return f"({', '.join(sample_value(module, t) for t in items)})"
        case tree.TypeArray(item=item, axes=axes):
            return sample_array(sample_value(module, item), axes)
        case tree.TypeName(path=path) | tree.TypeApply(path=path):
            decl = module.records.get(".".join(path))
            if decl is not None:
                made = decl.variants[0] if isinstance(decl, tree.Enum) else decl
                fields = ", ".join(f"{f.name} = {sample_value(module, f.type)}" for f in made.fields)
                one = f"{made.name}({fields})" if fields or isinstance(made, tree.Record) else made.name
                return sample_array(one, type.args) if isinstance(type, tree.TypeApply) and not decl.generics else one
            number = {"bool": "true", "str": '"text"', "dim": "3", "key": "key(0)"}.get(
                path[-1], "1" if path[-1] in DTYPES and DTYPES[path[-1]].is_integer else "1.0"
            )
            return sample_array(number, type.args) if isinstance(type, tree.TypeApply) else number
        case tree.TypeFn():
            return "…"
        case _:
            return "1.0"


def sample_array(item: str, axes: Sequence[tree.TypeExpr | tree.AnyShape]) -> str:
    """An array of that item, with few of them along each axis."""
    for size in reversed(axes):
        count = size.value if isinstance(size, tree.TypeInt) and size.value <= 4 else 2
        item = f"[{', '.join([item] * count)}]"
    return item


def fresh_name(name: str, module: ModuleScope) -> str:
    """A name for an argument that the file does not use."""
    while name in module.declared or name in module.fns or name in module.imported or name in module.modules:
        name += "_"
    return name


def expression_text(name: str, text: str) -> str:
    """A text that parses as one expression. Errors: DL1210."""
    parsed = parse(Source("<command line>", f"let value = {text}\n"))
    items = parsed.module.items
    if parsed.diagnostics or len(items) != 1 or not isinstance(items[0], tree.Let):
        message = f"`{text}` is not a value for `{name}`"
        raise make_error("DL1210", message, help='write `0.1`, `[1.0, 2.0]` or `"text"`, or `@FILE` for a file')
    # Only the expression: a comment after it would swallow the rest of the call.
    return items[0].value.span.text


# ---- Files


def split_file_spec(text: str) -> tuple[str, str | None]:
    """Split `@FILE:NAME` in two; if a file has the whole name, it is that file."""
    whole = text.removeprefix("@")
    file, colon, member = whole.rpartition(":")
    if not colon or not file or os.path.exists(whole) or any(c in member for c in "/\\"):
        return whole, None
    return file, member


def load_clause(
    module: ModuleScope, param: tree.Param, names: AnnotationResolver, file: str, member: str | None
) -> str:
    """`: TYPE = load("FILE", "NAME")` with the file's type. Errors: DL0701, DL0703 to DL0708, DL1210."""
    suffix = Path(file).suffix
    if suffix not in FORMAT_OF_SUFFIX:
        raise make_error("DL0708", f"the suffix of a file name gives its format: `{file}` has none",
                      help=f"the formats are {', '.join(FORMAT_OF_SUFFIX)}")  # fmt: skip
    path = Path(file).resolve()
    reader = next((f for f in ("load", f"read_{FORMAT_OF_SUFFIX[suffix]}") if f not in module.declared), None)
    if reader is None:
        raise make_error("DL1210", "`load` is another function in this file", help="rename that function")
    holds = {} if FORMAT_OF_SUFFIX[suffix] in HEADERLESS_FORMATS else data_headers(path, file)
    # By default the array has the name of its parameter.
    if member is None and len(holds) > 1 and isinstance(holds.get(param.name), np.ndarray):
        member = param.name
    try:
        type = declared_type_text(module, param, names, path, file, holds, member)
    except DeferCheck:  # the element type depends on this call
        type = stored_type_text(module, param, suffix, holds, member)
    arguments = ", ".join(string_literal(x) for x in (str(path), member) if x is not None)
    return f": {type} = {reader}({arguments})"


def declared_type_text(
    module: ModuleScope,
    param: tree.Param,
    names: AnnotationResolver,
    path: Path,
    file: str,
    holds: StoredArrays,
    member: str | None,
) -> str:
    """The declared type with the file's sizes. Errors: DL0701, DL0703 to DL0706; DeferCheck."""
    written = param.type
    if written is None or has_generic_dtype(written, names):
        raise DeferCheck
    type = replace(names, bound=dict(names.bound), rigid=True).type(written)
    given = BuiltinCall(param, HOST_BUILTINS["load"], (), {}, ExpectedType(written, names=names))
    with report_read_errors(file, given.span):
        if not holds:
            holds = read_contents(path, file, FORMAT_OF_SUFFIX[path.suffix], type, given)
        found = (
            ValueReader(given, file, type, f"--arg {param.name}=@{file}:{{}}")
            .value_in(names, module.records.get, holds, member)
            .type
        )
    if isinstance(found, TextType):
        return "str"
    if isinstance(found, Tensor) and (layout := declared_layouts(module, written, found)[0]) is not None:
        return split_type_text(found, layout[0])
    return written.span.text if isinstance(found, (VariantType, SumType)) else show_type(found)


def stored_type_text(
    module: ModuleScope, param: tree.Param, suffix: str, holds: StoredArrays, member: str | None
) -> str:
    """The type of the requested array in the file. Errors: DL1210."""
    alone = next(iter(holds)) if len(holds) == 1 else UNNAMED
    found = holds.get(member if member is not None else alone)
    if isinstance(found, np.ndarray):
        return array_type_text(found)
    if member is not None and holds:
        way = suggestion(member, holds, f"it has {', '.join(list(holds)[:12])}")
        raise make_error("DL0706", f"the file has no array `{member}`", (param.span, ""), help=way)
    if suffix == ".csv":
        return f"{module.default_float}[rows, columns]"
    ways = f"it has {', '.join(list(holds)[:12])}: choose one, `--arg {param.name}=@FILE:NAME`" if holds else ""
    raise make_error("DL1210", f"the file does not say which array is `{param.name}`", (param.span, ""), help=ways)


def string_literal(text: str) -> str:
    """A string literal of the language for this text."""
    return '"' + "".join(ESCAPES.get(c, c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text) + '"'


# ---- Running


def split_arguments(
    module: ModuleScope, entry: str | None, values: Mapping[str, str], data: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The arguments of the function, and those of the program as words. Errors: DL1207, DL1210."""
    names = {p.name for p in module.fns[entry].params} if entry in module.fns else set[str]()
    words: list[str] = []
    given = dict(data)
    for name, text in values.items():
        if name in given:
            raise make_error("DL1207", f"`{name}` is given twice")
        if name not in names and name in module.arguments:
            words.append(f"--{name}={text}")
        elif entry is None:
            way = suggestion(name, module.arguments, program_args.declared_text([*module.arguments]))
            raise make_error("DL1220", f"the program has no argument `{name}`", help=way)
        else:
            given[name] = text
    return given, words


def run_call(
    checked: CheckedProgram,
    call: CliCall,
    engine: Engine,
    access: FileAccess,
    seed: int,
    write: Callable[[str], None],
    warn: Callable[[list[Diagnostic]], None],
    words: Sequence[str],
) -> None:
    """Check the call against the file, run it, and write its result. Errors: DifflangError."""
    block = call.block(checked.module)
    check_block(checked, block)
    arguments = program_args.parse_command_line(words, checked.module)
    # Naming a file in the call allows reading it, wherever it is.
    access = FileAccess(access.folder, (*access.allowed, *call.files))
    blocks = IsolatedBlocks(checked, engine, access, seed, arguments, warn)
    with blocks.open_block(checked.items, block, write) as runner:
        for stmt in block.stmts:
            last = stmt is block.stmts[-1]
            found = run_statement(runner, stmt, last=last)
            if last and found.type != UNIT:
                runner.print_text(format_value(found))
