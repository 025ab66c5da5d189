"""Resolves what a derivative is taken with respect to: parameters by name or position, and paths of fields."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.source import NO_SPAN, Span
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.calls.signatures import default_value
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Closure, Term
from difflang.elaborate.trampoline import Walk
from difflang.syntax import tree
from difflang.types.function_code import DerivativeCode, FnCode, Wrt
from difflang.types.language_types import LangType, RecordType
from difflang.types.module_scope import ModuleScope

WrtPath = tuple[int, tuple[str, ...]]  # a parameter, and a path of fields in it


def positional_arguments(cx: ElabContext, f: Term, args: CallArgs, count: int = 0) -> Walk[CallArgs]:
    """The arguments by position, at least the first `count` of them; omitted ones take their defaults."""
    names, (code, defaults) = parameter_names(f), parameter_defaults(f)
    items = list(args.items)
    last = max([count, *[names.index(name) + 1 for name in args.named if name in names]])
    by_name = 0
    for name in names[len(items) : last]:
        if name in args.named:
            items.append(args.named[name])
            by_name += 1
        elif code is not None and name in defaults:
            items.append(((yield default_value(cx, code, defaults[name])), defaults[name].span))
        else:
            break
    if by_name != len(args.named):
        raise cx.error(
            "DL0319", "these named arguments do not match the function", args.span, f"it takes {', '.join(names)}"
        )
    return CallArgs(args.span, items)


def parameter_defaults(f: Term) -> tuple[FnCode | None, dict[str, tree.Expr]]:
    """The defaults of a function's parameters, or of those of the function that it is a derivative of."""
    # `jvp` and `hvp` take a tangent after the arguments, so none can be left out.
    while isinstance(f, Closure) and isinstance(f.code, DerivativeCode) and f.code.operator not in ("jvp", "hvp"):
        (f,) = f.captures
    if not isinstance(f, Closure) or not isinstance(f.code, FnCode):
        return None, {}
    return f.code, {p.name: p.default for p in f.code.decl.params if p.default is not None}


def resolve_wrt(cx: ElabContext, f: Term, wrt: Wrt, span: Span) -> WrtPath:
    """A parameter's position, and the path of fields in it. Errors: DL0403."""
    first, *path = wrt
    if isinstance(first, int):
        return first, tuple(map(str, path))
    names = parameter_names(f)
    if first not in names:
        inside = parameter_fields_named(f, first)
        raise cx.error(
            "DL0403",
            f"the function has no parameter `{first}`",
            span,
            "",
            f"for the field of that name, write {inside}" if inside else f"it has {', '.join(names) or 'none by name'}",
        )
    return names.index(first), tuple(map(str, path))


def parameter_fields_named(f: Term, name: str) -> str:
    """The fields of that name in a function's record parameters, as by `fields_named`."""
    if isinstance(f, Closure) and isinstance(f.code, FnCode):
        return fields_named(f.code.decl, name, f.code.module)
    return ""


def fields_named(decl: tree.Fn, name: str, module: ModuleScope) -> str:
    """The fields of that name in the records that a function takes, as text, e.g. "`o.mass` or `p.mass`", or ""."""
    found: list[str] = []
    for param in decl.params:
        if isinstance(param.type, (tree.TypeName, tree.TypeApply)):
            record = module.records.get(".".join(param.type.path))
            if isinstance(record, tree.Record) and any(field.name == name for field in record.fields):
                found.append(f"`{param.name}.{name}`")
    return " or ".join(found)


def check_distinct(cx: ElabContext, wrt: Sequence[Wrt], places: Sequence[WrtPath], span: Span) -> None:
    """Check that no part is differentiated twice and that the gradients have distinct names. Errors: DL0403."""
    for i, (position, path) in enumerate(places):
        for j, (other, longer) in enumerate(places[:i]):
            short = min(len(path), len(longer))
            if position == other and path[:short] == longer[:short]:
                raise cx.error("DL0403", "this asks for one derivative twice", span, "", "name each part once")
            if wrt[i][-1] == wrt[j][-1]:
                message = f"two derivatives would have the name `{wrt[i][-1]}`"
                raise cx.error(
                    "DL0403",
                    message,
                    span,
                    "",
                    "differentiate with respect to the whole records, or take them one at a time",
                )


# The name of a record of several gradients.
GRAD_RECORD = tree.Record(NO_SPAN, "grad", NO_SPAN, (), ())


def gradient_record_type(wrt: Sequence[Wrt], types: Sequence[LangType]) -> LangType:
    if len(types) == 1:
        return types[0]
    names = tuple(str(w[-1]) if isinstance(w[-1], str) else f"_{w[0]}" for w in wrt)
    return RecordType(GRAD_RECORD, names, tuple(types), tangent=True)
