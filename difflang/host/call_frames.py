"""Calls of `host fn`s: the stack frame of a call, and matching arguments to parameters."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.host.expected_type import ExpectedType
from difflang.host.values import HostValue
from difflang.ir.symbolic_dims import Dim
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.type_errors import make_error
from difflang.types.type_resolver import TypeBinding


class HostFrame(Struct, eq=False):
    """A running `host fn`: the names of its signature, its loops and, during checking, its returned values."""

    decl: tree.Fn | None
    names: AnnotationResolver | None = None
    loops: list[list[HostValue] | None] = field(default_factory=list[list[HostValue] | None])
    returned: list[HostValue] = field(default_factory=list[HostValue])
    # During checking: how many of the enclosing branches and loops may not be taken.
    open_branches: int = 0

    @property
    def expected_result(self) -> ExpectedType | None:
        """The declared type of its result."""
        if self.decl is None or self.decl.result is None:
            return None
        names = replace(self.names, bound=dict(self.names.bound)) if self.names is not None else None
        return ExpectedType(self.decl.result, f"the result of `{self.decl.name}`", names)


def match_arguments(e: tree.Node, args: tuple[tree.Arg, ...], decl: tree.Fn) -> dict[str, tree.Expr]:
    """The arguments of a call by parameter name. Errors: DL0319."""
    names = [p.name for p in decl.params]
    declared = (decl.name_span, f"it takes {', '.join(names) or 'none'}")
    given: dict[str, tree.Expr] = {}
    for place, arg in enumerate(args):
        if arg.name is None and place >= len(names):
            raise make_error(
                "DL0319",
                f"`{decl.name}` takes {count_of(len(names), 'argument')}",
                (arg.span, "this argument is one too many"),
                declared,
            )
        name = arg.name or names[place]
        if name not in names:
            raise make_error("DL0319", f"`{decl.name}` has no parameter `{name}`", (arg.span, ""), declared)
        if name in given:
            raise make_error("DL0319", f"`{name}` is given twice", (arg.span, "again"), declared)
        given[name] = arg.value  # type: ignore[assignment]
    # Report all missing arguments at once.
    missing = [p.name for p in decl.params if p.name not in given and p.default is None]
    if missing:
        some = ", ".join(f"`{m}`" for m in missing)
        raise make_error("DL0319", f"`{decl.name}` is missing {some}", (e.span, ""), declared)
    return given


def check_size_argument(decl: tree.Fn, param: tree.Param, size: Dim | None, bound: TypeBinding, at: Span) -> None:
    """Check a number that is a size, if it is known, against the arrays of the call. Errors: DL0303, DL0304."""
    labels = (at, f"this is {size}"), (param.span, "declared here")
    if isinstance(size, int) and size < 0:
        raise make_error("DL0303", f"`{param.name}` of `{decl.name}` is a size: it cannot be negative", *labels)
    if isinstance(size, int) and isinstance(bound, int) and size != bound:
        raise make_error("DL0304", f"`{param.name}` of `{decl.name}` is {bound} by another argument", *labels)


def single_argument(e: tree.Expr, usage: str) -> tree.Expr:
    """The only argument of a call that takes one, by position. Errors: DL0319."""
    args = e.args if isinstance(e, tree.Call) else ()
    if len(args) != 1 or args[0].name is not None or isinstance(args[0].value, tree.Comprehension):
        raise make_error("DL0319", usage, (e.span, ""))
    return args[0].value


def host_call_error(decl: tree.Fn, at: Span, deriving: bool) -> DifflangError:
    """The error for a host call in compiled code: DL0322."""
    what = "it has no derivative" if deriving else "compiled functions cannot call it"
    way = "declare it with `fn`, if it does no input or output"
    way = way if deriving else "call it from host statements, in a loop with `yield` if necessary"
    message = f"`{decl.name}` is a host function: {what}"
    return make_error("DL0322", message, (at, ""), (decl.name_span, "declared with `host fn`"), help=way)
