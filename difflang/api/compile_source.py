"""Functions from source text: `compile`, and the decorator `@define` for a program in a docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from difflang.api import ExternBindings, Function, Module, loads
from difflang.api.externs import is_extern
from difflang.base.errors import classify_errors
from difflang.types.type_errors import make_error

QUOTES = re.compile(r"[a-zA-Z]*(?:\"{3}|'{3}|\"|')")


def compile(source: str, entry: str | None = None, *, externs: ExternBindings | None = None) -> Function:
    """A function of a text: its only one, or `entry`. `externs` are as for `load`.

    Errors: ParseError, CheckError; ArgumentError if there is no such function, or several and no `entry`.
    """
    return select_function(loads(source, externs=externs), entry)


def select_function(module: Module, entry: str | None) -> Function:
    functions = [name for name in module if isinstance(f := module[name], Function) and not is_extern(f.function_type)]
    if entry is None and len(functions) == 1:
        (entry,) = functions
    with classify_errors():
        if entry not in functions:
            has = f"it has {', '.join(functions)}" if functions else "it has none"
            message = (
                f"there is no function `{entry}` in this text" if entry else "it is not clear which function to compile"
            )
            raise make_error("DL1207", message, help=has)
    found = module[entry]
    assert isinstance(found, Function)
    return found


def define(function: Callable[..., Any]) -> Function:
    """A decorator: the function of the same name in the docstring, which is a program. Reports point into the .py file.

    The Python function itself is never called; its parameters are for readers and editors.

    Errors: those of `compile`; ArgumentError for a function without a docstring.
    """
    text = getattr(function, "__doc__", None)
    if (not inspect.isroutine(function) and not hasattr(function, "__wrapped__")) or not text:
        with classify_errors():
            raise make_error("DL1207", "`define` takes a function with a program in its docstring",
                          help="`difflang.compile(text)` takes a program by itself")  # fmt: skip
    return select_function(loads(*docstring_source(function, text)), function.__name__)


def docstring_source(function: Callable[..., Any], text: str) -> tuple[str, str, tuple[str, int] | None]:
    """The docstring with its indentation in the file, the function's name, the file, and the line where it begins."""
    name, function = function.__qualname__, inspect.unwrap(function)
    try:
        # Columns in reports need the position of the docstring in its file, including its opening quotes.
        lines, first = inspect.getsourcelines(function)
        indent = len(lines[0]) - len(lines[0].lstrip())
        (parsed,) = ast.parse("".join(line[indent:] for line in lines)).body
    except (OSError, TypeError, ValueError, SyntaxError):  # typed in a session, or generated
        return text, name, None
    if not isinstance(parsed, (ast.FunctionDef, ast.AsyncFunctionDef)) or ast.get_docstring(parsed) is None:
        return text, name, None  # a docstring assigned later
    statement = parsed.body[0]
    quotes = QUOTES.match(lines[statement.lineno - 1], indent + statement.col_offset)
    column = quotes.end() if quotes else 0
    file = inspect.getsourcefile(function) or "<string>"
    return " " * column + text, name, (file, first + statement.lineno - 1)
