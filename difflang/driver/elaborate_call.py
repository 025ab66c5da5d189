"""A function applied to arguments of given types, from outside a program: the graph that is compiled for that call."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source, Span
from difflang.elaborate.calls.apply import apply
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.context import Context, Reported, Session
from difflang.elaborate.dtype_resolution import settle
from difflang.elaborate.terms import Poison, Term, leaf_hints, leaves, rebuild, type_of
from difflang.elaborate.trampoline import run
from difflang.host.compiled_units import context
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim
from difflang.types.language_types import ClosureType, LangType, leaf_types, settled_type, show_type
from difflang.types.module_scope import Global, HostNumber, Module
from difflang.types.type_errors import mistake


class Argument(Struct, frozen=True):
    """An argument by its type; of a `dim`, its value, or its name where nothing is to be run."""

    name: str
    type: LangType
    size: Dim | None = None
    named: bool = False  # given by name, since one before it is left out

    @property
    def text(self) -> str:
        shown = str(self.size) if self.size is not None else show_type(self.type)
        return f"{self.name} = {shown}" if self.named else shown


class Entry(Struct, frozen=True, eq=False):
    """A graph of the leaves of what the function captured, of the arguments, a key if it is random, and globals."""

    graph: Graph
    type: LangType
    globals: tuple[Global, ...]
    random: bool
    fails: bool  # the last three results are a failure
    effects: frozenset[str]
    limit: int  # bytes of memory for a program with a derivative of it; 0: nothing is said
    warnings: tuple[Diagnostic, ...] = ()


def elaborated(
    session: Session, module: Module, name: str, function: ClosureType, arguments: Sequence[Argument]
) -> Entry:
    """The graph of a call. Errors: DifflangError; nothing is left in the session of a call that is wrong."""
    reported, errors = len(session.diagnostics), session.errors
    try:
        entry = applied(context(session, module, undemanded, None, definition=False), name, function, arguments)
        return replace(entry, warnings=tuple(session.diagnostics[reported:]))
    except Reported:
        raise DifflangError(*session.diagnostics[reported:]) from None
    finally:
        del session.diagnostics[reported:]
        session.errors = errors


def undemanded(number: HostNumber) -> Dim:
    raise AssertionError(f"no number of the host is read outside host code: {number.of.name}")


def applied(cx: Context, name: str, function: ClosureType, arguments: Sequence[Argument]) -> Entry:
    root, fresh, errors = cx.root, cx.word.term, cx.session.errors
    params: list[Value] = []
    term = parameter(cx, function, name, params)
    args = written_call(name, arguments)
    spans = [span for _, span in (*args.items, *args.named.values())]
    for i, (argument, span) in enumerate(zip(arguments, spans, strict=True)):
        if argument.size is not None:
            given: Term = cx.integer(argument.size, span)
        else:
            given = parameter(cx, argument.type, argument.name, params)
        if argument.named:
            args.named[argument.name] = (given, span)
        else:
            args.items[i] = (given, span)
    refuse_negative_sizes(name, arguments)
    result = run(apply(cx, term, args))
    if isinstance(result, Poison) or cx.session.errors > errors:
        raise Reported
    word = leaves(cx.failure) if cx.word.term is not fresh else []
    order = [*params, *([root.key] if root.key else []), *[v for t in root.globals.values() for v in leaves(t)]]
    graph = root.builder.finish([*leaves(result), *word], params=order, name=name)
    settle(graph, cx.session.settled)
    return Entry(
        graph,
        settled_type(type_of(result)),
        tuple(root.globals),
        root.key is not None,
        bool(word),
        frozenset(root.effects),
        root.limit,
    )


def refuse_negative_sizes(name: str, arguments: Sequence[Argument]) -> None:
    """Errors: DL1210 for an argument whose declared type, with the sizes that were told, is none."""
    for argument in arguments:
        if any(isinstance(d, int) and d < 0 for t in leaf_types(argument.type) for d in t.shape):
            message = f"`{argument.name}` of `{name}` is {show_type(argument.type)} then: a size is not negative"
            raise mistake("DL1210", message, help="tell larger sizes")


def parameter(cx: Context, type: LangType, name: str, params: list[Value]) -> Term:
    values = [cx.root.builder.param(t, h) for t, h in zip(leaf_types(type), leaf_hints(type, name), strict=True)]
    params += values
    return rebuild(type, values)


def written_call(name: str, arguments: Sequence[Argument]) -> Args:
    """The call as a line of source, so that reports can point at an argument."""
    text, places = f"{name}(", []
    for i, argument in enumerate(arguments):
        text += ", " * bool(i)
        places.append((len(text), len(text) + len(argument.text)))
        text += argument.text
    source = Source("<call>", text + ")")
    spans = [Span(source, *place) for place in places]
    args, nothing = Args(Span(source, 0, len(source.text))), Poison()
    for argument, span in zip(arguments, spans, strict=True):
        if argument.named:
            args.named[argument.name] = (nothing, span)
        else:
            args.items.append((nothing, span))
    return args
