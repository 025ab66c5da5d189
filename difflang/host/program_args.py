"""Program arguments: `arg("lr", default = 0.1)` in a program, `-- --lr 0.2` on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, Label, printable
from difflang.base.error_codes import nearest_word
from difflang.host.bindings import HostBindings
from difflang.host.builtins import BuiltinCall, RunningProgram, host_builtin
from difflang.host.values import HostValue
from difflang.ir.tensor_types import DType, Tensor, numpy_dtype
from difflang.numerics.decimal_numbers import nearest_floats
from difflang.types.language_types import LangType, TextType, is_one_text, show_type
from difflang.types.module_scope import ModuleScope, ProgramArgument
from difflang.types.type_errors import make_error

ARG_USAGE = '`arg("lr", default = 0.1)`, or `let lr: f64 = arg("lr")`'


def argument_type(host: HostBindings, given: BuiltinCall) -> LangType:
    """The declared type, or the type of the default. Errors: DL0319, DL0210."""
    given.check_arity(1, 1, ("default", "help"))
    name, help = given.text(0), given.text("help")
    if name is None or not name.isidentifier():
        raise given.usage_error(given.items[0][1], "the name must be a literal that is a valid identifier")
    default = given.named.get("default")
    if given.expected_type is not None:
        type = host.type_of(given.expected_type)
    elif default is not None:
        type = default[0].type
    else:
        way = f'`let {name}: f64 = arg("{name}")`, or give it a default'
        raise make_error("DL0319", f"`{name}` needs a type or a default", (given.span, ""), help=way)
    if not is_one_text(type) and not (isinstance(type, Tensor) and not type.shape and type.dtype.kind != "complex"):
        raise make_error("DL0319", "an argument of a program must be a real number, a bool or a text",
                      (given.span, f"this is {show_type(type)}"))  # fmt: skip
    written = default[1].text.partition("=")[2].strip() if default else None
    declare_argument(host.module, ProgramArgument(name, type, written, help or "", given.span))
    return type


def declare_argument(module: ModuleScope, found: ProgramArgument) -> None:
    """Errors: DL0210 for two declarations of one name that differ."""
    first = module.arguments.setdefault(found.name, found)
    if show_type(first.type) != show_type(found.type) or (first.default is None) != (found.default is None):
        message = f"the argument `{found.name}` of the program is declared twice, with different types or defaults"
        raise make_error("DL0210", message, (found.span, "declared again here"), (first.span, "first declared here"))


@host_builtin("arg", ARG_USAGE, argument_type, "default")
def arg(host: RunningProgram, given: BuiltinCall) -> HostValue:
    """The value from the command line, else the default."""
    name = given.text(0) or ""
    if name in host.program_args:
        found = host.module.arguments[name]
        return parse_argument(found, host.program_args[name])
    if "default" not in given.named:
        raise missing_argument_error(host.module.arguments[name])
    return given.named["default"][0]


def parse_argument(argument: ProgramArgument, text: str) -> HostValue:
    """Parse a text as the argument's type. Errors: DL1220."""
    type = argument.type
    if isinstance(type, TextType):
        return HostValue(TextType(text), ())
    assert isinstance(type, Tensor)
    try:
        number = parse_number(type.dtype, text)
    except (ValueError, OverflowError):
        labels = (Label(argument.span, f"this is {show_type(type)}"),)
        message = f"--{argument.name}: `{printable(text)[:60]}` is not a valid {show_type(type)}"
        raise DifflangError(Diagnostic("DL1220", message, labels)) from None
    return HostValue(type, (number,))


def parse_number(dtype: DType, text: str) -> Any:
    """Errors: ValueError, OverflowError."""
    if not text.isascii():  # digits of other scripts
        invalid_number(text)
    if dtype.kind == "bool":
        return np.bool_({"true": True, "false": False}[text] if text in ("true", "false") else invalid_number(text))
    target = numpy_dtype(dtype)
    if dtype.is_integer:
        info = np.iinfo(target)
        number = int(text)
        return target.type(number) if info.min <= number <= info.max else invalid_number(text)
    # A finite text that overflows the type is an error; `inf` and `nan` are meant.
    found = nearest_floats([text], np.array([float(text)]), target)[0]
    return found if np.isfinite(found) or text.strip("+- ").isalpha() else invalid_number(text)


def invalid_number(text: str) -> Any:
    raise ValueError(text)


def missing_argument_error(argument: ProgramArgument) -> DifflangError:
    way = f"write it after the file name: `-- --{argument.name} …`, or give it a default"
    message = f"the program needs --{argument.name}"
    return DifflangError(Diagnostic("DL1220", message, (Label(argument.span, "read here"),), (way,)))


# ---- The command line


def parse_command_line(words: Sequence[str], module: ModuleScope) -> Mapping[str, str]:
    """The texts after `--` by argument, checked against the program's declarations.

    `--lr 0.2` and `--lr=0.2` are the same, as are `--batch-size` and `--batch_size`. A boolean argument has the forms
    `--quiet` and `--no-quiet`. Errors: DL1220.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        # Python names have underscores, command lines have hyphens.
        argument, negated = find_argument(name.replace("-", "_"), word, module)
        if not equals and negated is not None:
            value = negated
        elif not equals and not rest:
            raise command_line_error(f"{word} needs a value")
        elif not equals:
            value = rest.pop(0)
        if argument.name in found:
            raise command_line_error(f"--{argument.name} is given twice")
        found[argument.name] = value
    for argument in module.arguments.values():
        if argument.name in found:
            parse_argument(argument, found[argument.name])
        elif argument.default is None:
            raise missing_argument_error(argument)
    return found


def find_argument(name: str, word: str, module: ModuleScope) -> tuple[ProgramArgument, str | None]:
    """The argument with this name, and its value if it stands without one. Errors: DL1220."""
    declared = module.arguments
    if word.startswith("--") and name in declared:
        return declared[name], "true" if is_flag(declared[name]) else None
    opposite = declared.get(name.removeprefix("no_"))
    if word.startswith("--no") and opposite is not None and is_flag(opposite):
        return opposite, "false"
    near = nearest_word(name, declared)
    ways = f"did you mean `--{near}`?" if near else declared_text([f"--{n}" for n in declared])
    raise command_line_error(f"the program has no argument `{printable(word)[:60]}`", ways)


def declared_text(names: Sequence[str]) -> str:
    return f"it has {', '.join(names)}" if names else "this program takes no arguments"


def is_flag(argument: ProgramArgument) -> bool:
    return isinstance(argument.type, Tensor) and argument.type.dtype.kind == "bool"


def command_line_error(message: str, *helps: str) -> DifflangError:
    return DifflangError(Diagnostic("DL1220", message, (), helps))


def usage_text(module: ModuleScope, file: str) -> str:
    """The help for a program's arguments, as `-- --help` shows it."""
    if not module.arguments:
        return f"{file} takes no arguments."
    rows = [
        (
            f"--{a.name} {show_type(a.type)}",
            printable(a.help),
            f"[{a.default}]" if a.default is not None else "(needed)",
        )
        for a in module.arguments.values()
    ]
    width = max(len(first) for first, _, _ in rows)
    lines = [f"  {first:<{width}}  {f'{help} {default}'.strip()}" for first, help, default in rows]
    return "\n".join([f"Usage: difflang run {file} -- [ARGUMENTS]", "", *lines])
