"""Host builtins such as `print` and `clock`: one declaration each with usage, type check and implementation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.base.text_numbers import numbered_text
from difflang.elaborate.context import ElabContext
from difflang.host.bindings import HostBindings
from difflang.host.data.file_access import FileAccess
from difflang.host.expected_type import ExpectedType
from difflang.host.values import HostValue, format_value
from difflang.ir.tensor_types import F64, Tensor
from difflang.syntax import tree
from difflang.types.language_types import UNIT, LangType, TextType, TupleType, array_axes, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

if TYPE_CHECKING:
    from difflang.execution.engine import Engine

UNIT_VALUE = HostValue(UNIT, ())


class RunningProgram(Protocol):
    """What a host builtin may ask of the program that calls it."""

    module: ModuleScope
    access: FileAccess
    program_args: Mapping[str, str]
    pictures: list[Path]
    started: float

    @property
    def engine(self) -> Engine: ...

    def print_text(self, text: str) -> None: ...

    def wait_for_results(self) -> None: ...

    def current_context(self) -> ElabContext: ...

    def type_of(self, expected: ExpectedType) -> LangType: ...


class HostBuiltin(Struct, frozen=True, eq=False):
    """A host function. `check` gives a call's type from the argument types; `run` executes it."""

    name: str
    usage: str
    check: Callable[[HostBindings, BuiltinCall], LangType]
    run: Callable[[RunningProgram, BuiltinCall], HostValue]
    like_result: tuple[str, ...] = ()  # the options that have the type of the result


class BuiltinCall(Struct, frozen=True, eq=False):
    """A call: its arguments by position and by name, each with its span, and the expected type of its result."""

    call: tree.Node
    function: HostBuiltin
    items: tuple[tuple[HostValue, Span], ...]
    named: Mapping[str, tuple[HostValue, Span]]
    expected_type: ExpectedType | None

    @property
    def span(self) -> Span:
        return self.call.span

    def usage_error(self, span: Span | None = None, text: str = "") -> DifflangError:
        """The error for a call in the wrong form."""
        return make_error(
            "DL0319", f"usage of `{self.function.name}`: {self.function.usage}", (span or self.span, text)
        )

    def check_arity(self, least: int, most: int, options: tuple[str, ...] = ()) -> None:
        """Errors: DL0319 for a wrong number of arguments, or an unknown option."""
        if not least <= len(self.items) <= most:
            raise self.usage_error()
        for name, (_, span) in self.named.items():
            if name not in options:
                way, fixes = did_you_mean(name, options, span)
                way = way or f"usage: {self.function.usage}"
                raise make_error(
                    "DL0319", f"`{self.function.name}` has no parameter `{name}`", (span, ""), help=way, fixes=fixes
                )

    def text(self, place: int | str) -> str | None:
        """A text argument; None if it is absent or known only at run time. Errors: DL0319."""
        found = self.argument(place)
        if found is None:
            return None
        value, span = found
        if not isinstance(value.type, TextType) or array_axes(value.type):
            raise self.usage_error(span, f"this is {show_type(value.type)}, but a text is required")
        return value.type.value

    def texts(self, name: str) -> list[str | None] | None:
        """The texts of an option: one, a tuple or an array of them; None if it is absent or only the run knows them.

        Errors: DL0319.
        """
        if name not in self.named:
            return None
        value, span = self.named[name]
        if isinstance(value.type, TextType) and len(array_axes(value.type)) == 1:
            return None if value.leaves is None else [numbered_text(n) for n in value.array.tolist()]
        parts = value.type.items if isinstance(value.type, TupleType) else (value.type,)
        texts = [part.value for part in parts if isinstance(part, TextType) and not array_axes(part)]
        if len(texts) != len(parts):
            raise self.usage_error(span, f'write one text or several: `{name} = ("a", "b")`')
        return texts

    def argument(self, place: int | str) -> tuple[HostValue, Span] | None:
        if isinstance(place, str):
            return self.named.get(place)
        return self.items[place] if place < len(self.items) else None

    def flag(self, name: str) -> bool:
        """A boolean option. Errors: DL0319."""
        if name not in self.named:
            return False
        value, span = self.named[name]
        # While the program is checked, only a literal has a value.
        if not isinstance(value.type, Tensor) or value.type.shape or value.type.dtype.name != "bool":
            raise self.usage_error(span, f"this is {show_type(value.type)}, but a bool is required")
        return bool(value.number) if value.leaves is not None else value.static is True


HOST_BUILTINS: dict[str, HostBuiltin] = {}


def host_builtin(
    name: str, usage: str, check: Callable[[HostBindings, BuiltinCall], LangType], *like_result: str
) -> Any:
    """Decorator: registers the implementation of a host function."""

    def register(run: Callable[[RunningProgram, BuiltinCall], HostValue]) -> Any:
        HOST_BUILTINS[name] = HostBuiltin(name, usage, check, run, like_result)
        return run

    return register


# ---- `print`, `progress`, `clock`


def print_type(host: HostBindings, given: BuiltinCall) -> LangType:
    for _, span in given.named.values():
        raise make_error("DL0319", "`print` takes positional arguments only", (span, ""))
    return UNIT


@host_builtin("print", "`print(a, b)`", print_type)
def print_(host: RunningProgram, given: BuiltinCall) -> HostValue:
    """Print the values with a space between them."""
    host.print_text(" ".join([format_value(value, "", span) for value, span in given.items]))
    return UNIT_VALUE


def progress_type(_: HostBindings, given: BuiltinCall) -> LangType:
    raise make_error("DL0707", "`progress` can only be used in the header of a loop", (given.span, ""))


@host_builtin("progress", "`progress(0..n)`", progress_type)
def progress(host: RunningProgram, given: BuiltinCall) -> HostValue:
    """Never called: a loop handles `progress` in its head, the only place where it can stand."""
    raise AssertionError(host, given)


def clock_type(_: HostBindings, given: BuiltinCall) -> LangType:
    given.check_arity(0, 0)
    return Tensor(F64)


@host_builtin("clock", "`clock()`", clock_type)
def clock(host: RunningProgram, given: BuiltinCall) -> HostValue:
    """Seconds since the program began, measured after all earlier computations have finished."""
    host.wait_for_results()
    return HostValue(Tensor(F64), (np.float64(host.engine.group.agree(time.perf_counter() - host.started)),))
