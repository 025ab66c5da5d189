"""Elaborates a call from outside a program: a function at argument types gives the graph to compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source, Span
from difflang.elaborate.calls.application import apply
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext, Session
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.terms import PoisonTerm, Term, leaf_hints, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import run_walk
from difflang.host.compiled_units import host_context
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim
from difflang.types.language_types import (
    ClosureType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    default_open_dtypes,
    leaf_types,
    show_type,
)
from difflang.types.module_scope import GlobalName, HostNumber, ModuleScope
from difflang.types.type_errors import DeferCheck, make_error


class CallArgument(Struct, frozen=True):
    """An argument by its type; for a `dim` its value, or its name if nothing will run."""

    name: str
    type: LangType
    size: Dim | None = None
    by_name: bool = False  # passed by name, since an earlier argument is omitted

    @property
    def text(self) -> str:
        shown = str(self.size) if self.size is not None else show_type(self.type)
        return f"{self.name} = {shown}" if self.by_name else shown


class ElaboratedCall(Struct, frozen=True, eq=False):
    """The graph of a call. Its params are the leaves of captured values and arguments, a random key if needed, and
    globals.
    """

    graph: Graph
    type: LangType
    globals: tuple[GlobalName, ...]
    random: bool
    fails: bool  # the last three results encode a failed check
    effects: frozenset[str]
    # The memory limit in bytes of a program with a derivative of it; 0 for none.
    limit: int
    warnings: tuple[Diagnostic, ...] = ()


def elaborate_call(
    session: Session, module: ModuleScope, name: str, function: ClosureType, arguments: Sequence[CallArgument]
) -> ElaboratedCall:
    """The graph of a call. Errors: DifflangError; the session keeps no diagnostics of a failed call."""
    reported, errors = len(session.diagnostics), session.errors
    try:
        entry = apply_function(
            host_context(session, module, refuse_demand, None, definition=False), name, function, arguments
        )
        if session.errors > errors:
            raise AlreadyReported
        return replace(entry, warnings=tuple(session.diagnostics[reported:]))
    except AlreadyReported:
        raise DifflangError(*session.diagnostics[reported:]) from None
    except DeferCheck:  # it asks for a text of which only the type is known
        refuse_unknown_texts(arguments)
        raise
    finally:
        del session.diagnostics[reported:]
        session.errors = errors


def refuse_unknown_texts(arguments: Sequence[CallArgument]) -> None:
    """Errors: DL1210 if an argument holds a text of which only the type is known."""
    for argument in arguments:
        for path in unknown_texts(argument.type, argument.name):
            message = f"`{path}` is a text that is not given, and a program is made for the texts that it gets"
            way = "give a parameter that is a text, `--arg kind=linear`; from Python, pass the values of the arguments"
            raise make_error("DL1210", message, help=way)


def unknown_texts(type: LangType, path: str) -> Iterator[str]:
    """Where a value of this type holds a text of which only the type is known."""
    match type:
        case TextType(value=None, number=None, parts=()):
            yield path
        case TupleType(items=items):
            for i, item in enumerate(items):
                yield from unknown_texts(item, f"{path}.{i}")
        case RecordType() | VariantType():
            for name, inner in zip(type.names, type.fields, strict=True):
                yield from unknown_texts(inner, f"{path}.{name}")
        case SumType():
            for option in type.options:
                yield from unknown_texts(option, path)
        case _:
            pass


def refuse_demand(number: HostNumber) -> Dim:
    raise AssertionError(f"no number of the host is read outside host code: {number.global_name.name}")


def apply_function(
    cx: ElabContext, name: str, function: ClosureType, arguments: Sequence[CallArgument]
) -> ElaboratedCall:
    root, fresh, errors = cx.root, cx.failure_word.term, cx.session.errors
    params: list[Value] = []
    term = add_parameter(cx, function, name, params)
    args = call_as_source(name, arguments)
    spans = [span for _, span in (*args.items, *args.named.values())]
    for i, (argument, span) in enumerate(zip(arguments, spans, strict=True)):
        if argument.size is not None:
            given: Term = cx.integer_array(argument.size, span)
        else:
            given = add_parameter(cx, argument.type, argument.name, params)
        if argument.by_name:
            args.named[argument.name] = (given, span)
        else:
            args.items[i] = (given, span)
    refuse_negative_sizes(name, arguments)
    result = run_walk(apply(cx, term, args))
    if isinstance(result, PoisonTerm) or cx.session.errors > errors:
        raise AlreadyReported
    # A call without checks has no failure results.
    word = leaves(cx.failure) if cx.failure_word.term is not fresh else []
    order = [*params, *([root.key] if root.key else []), *[v for t in root.globals.values() for v in leaves(t)]]
    graph = root.builder.finish([*leaves(result), *word], params=order, name=name)
    resolve_dtypes(graph, cx.session.finalized_graphs)
    return ElaboratedCall(
        graph,
        default_open_dtypes(type_of(result)),
        tuple(root.globals),
        root.key is not None,
        bool(word),
        frozenset(root.effects),
        root.memory_limit,
    )


def refuse_negative_sizes(name: str, arguments: Sequence[CallArgument]) -> None:
    """Errors: DL1210 for an argument whose type has a negative size with the given sizes."""
    for argument in arguments:
        if any(isinstance(d, int) and d < 0 for t in leaf_types(argument.type) for d in t.shape):
            message = f"`{argument.name}` of `{name}` becomes {show_type(argument.type)}, but a size cannot be negative"
            raise make_error("DL1210", message, help="choose larger sizes")


def add_parameter(cx: ElabContext, type: LangType, name: str, params: list[Value]) -> Term:
    values = [cx.root.builder.param(t, h) for t, h in zip(leaf_types(type), leaf_hints(type, name), strict=True)]
    params += values
    return term_from_leaves(type, values)


def call_as_source(name: str, arguments: Sequence[CallArgument]) -> CallArgs:
    """The call as a line of source, so that reports can point at an argument."""
    text, places = f"{name}(", []
    for i, argument in enumerate(arguments):
        text += ", " * bool(i)
        places.append((len(text), len(text) + len(argument.text)))
        text += argument.text
    source = Source("<call>", text + ")")
    spans = [Span(source, *place) for place in places]
    args, nothing = CallArgs(Span(source, 0, len(source.text))), PoisonTerm()
    for argument, span in zip(arguments, spans, strict=True):
        if argument.by_name:
            args.named[argument.name] = (nothing, span)
        else:
            args.items.append((nothing, span))
    return args
