"""Applying functions: what applies each kind of function is registered by the class of its code.

Functions of which only the type is known, and those that the run selects, are applied here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import BUILTINS
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import bind_open_sizes, count_arguments
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.statements.branches import MatchArm, switch_on_tag
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    PoisonTerm,
    SumTerm,
    Term,
    Tuple,
    leaves,
    record_of_fields,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ops.control.opaque_call import emit_opaque_call
from difflang.types.function_code import AscribedCode, OpaqueFnCode
from difflang.types.join_types import least_common_type
from difflang.types.language_types import FnType, LangType, RecordType, is_linear_type, leaf_types, show_type
from difflang.types.type_errors import make_error


def placeholder_term(cx: ElabContext, type: LangType) -> Term:
    """A term of that type that nothing computes, for graphs that are checked and discarded."""
    return term_from_leaves(type, [Value(t, cx.builder) for t in leaf_types(type)])


# ---- The registry

Applier = Callable[[ElabContext, Any, tuple[Term, ...], CallArgs], Walk[Term]]
ApplierT = TypeVar("ApplierT", bound=Applier)
APPLIERS: dict[type, Applier] = {}


def applies(code: type) -> Callable[[ApplierT], ApplierT]:
    """Registers what applies functions with a class of code: it takes the code, the captures and the arguments."""

    def register(applier: ApplierT) -> ApplierT:
        APPLIERS[code] = applier
        return applier

    return register


def apply(cx: ElabContext, fn: Term, args: CallArgs) -> Walk[Term]:
    """Apply a function to evaluated arguments."""
    for term, _ in (*args.items, *args.named.values()):
        # Poison is reported already; it must not reach a rule that asks for its type.
        if isinstance(term, PoisonTerm):
            raise AlreadyReported
    match expect_function(cx, fn, args.fn_span or args.span):
        case OpaqueTerm(type=type):
            return apply_opaque(cx, type, args)
        case SumTerm() as several:
            return apply_selected_function(cx, several, args)
        case Closure(code=code, captures=captures):
            return APPLIERS[code.__class__](cx, code, captures, args)


def expect_function(cx: ElabContext, term: Term, span: Span, way: str = "") -> Closure | OpaqueTerm | SumTerm:
    """A term that is a function. Errors: DL0320, with the help text `way`."""
    if isinstance(term, PoisonTerm):
        raise AlreadyReported
    if not is_function(term):
        indexed = isinstance(term, Array) and term.tensor.shape
        indexed = indexed or (isinstance(term, SumTerm) and isinstance(term.parts[0], Closure))
        if indexed and "\n" not in span.text and not way:
            way = f"arrays are indexed with brackets: `{span.text}[i]`"
        if span.text in BUILTINS:
            way = f"a value named `{span.text}` hides the function here: rename the value"
        raise cx.error("DL0320", "expected a function here", span, f"this is {show_type(type_of(term))}", way)
    assert isinstance(term, (Closure, OpaqueTerm, SumTerm))
    return term


def is_function(term: Term) -> bool:
    """Whether a value can be applied: it is a function, or one of several that the run selects."""
    if isinstance(term, SumTerm):
        return isinstance(term.parts[0], Closure) and not term.type.tag.shape
    return isinstance(term, (Closure, OpaqueTerm))


# ---- Functions that the run selects, and functions known by type


def apply_selected_function(cx: ElabContext, several: SumTerm, args: CallArgs) -> Walk[Term]:
    """Apply a function that is selected at run time: one branch for each candidate."""

    def function_arm(f: Term) -> MatchArm:
        return MatchArm(lambda: apply(cx, f, replace(args, items=list(args.items), named=dict(args.named))), args.span)

    arms = [function_arm(f) for f in several.parts]
    return (yield switch_on_tag(cx, several.tag, several.type.tag_values, arms, [cx.failure_word], "function"))


def apply_opaque(cx: ElabContext, type: FnType, args: CallArgs) -> Walk[Term]:
    """Apply a function of which only the type is known, while a definition is checked."""
    check_typed_arguments(cx, type, args)
    return placeholder_term(cx, type.result)
    yield


def check_typed_arguments(cx: ElabContext, type: FnType, args: CallArgs) -> list[Term]:
    """The arguments of a function of a known type. Errors: DL0304, DL0319, DL0404."""
    items = args.items
    if type.linear and len(type.params) == 1 and len(items) > 1:
        # A linear function of a product space also takes its parts one by one.
        items = [(pack_arguments(type.params[0], args), args.span)]
    if len(items) != len(type.params) or args.named:
        raise cx.error(
            "DL0319", f"this function takes {count_arguments(len(type.params))}, not {len(args.items)}", args.span
        )
    for (term, span), wanted in zip(items, type.params, strict=True):
        # Unification fixes open literals to the declared types on the way.
        if argument_fits(cx, wanted, term):
            continue
        if type.linear:
            raise linear_argument_error(wanted, term, span)
        raise cx.error("DL0304", f"expected {show_type(wanted)} here", span, f"this is {show_type(type_of(term))}")
    return [term for term, _ in items]


def pack_arguments(takes: LangType, args: CallArgs) -> Term:
    """Several arguments packed into the one record or tuple that a linear function takes."""
    terms = tuple([t for t, _ in args.items])
    if isinstance(takes, RecordType) and len(takes.names) == len(terms):
        return record_of_fields(takes, terms)
    return Tuple(terms)


def linear_argument_error(wanted: LangType, term: Term, span: Span) -> DifflangError:
    """The report of a linear function applied to a value of another type."""
    label = span, f"this is {show_type(type_of(term))}"
    return make_error("DL0404", f"this linear function takes {show_type(wanted)}", label)


def argument_fits(cx: ElabContext, wanted: LangType, term: Term) -> bool:
    if isinstance(wanted, FnType):
        return is_function(term) and (not wanted.linear or is_linear_type(type_of(term)))
    return least_common_type(cx.unifier, wanted, type_of(term)) == wanted


def open_text(type: LangType) -> str:
    """A type as messages show it: the sizes that no argument has bound have their declared names."""
    return show_type(type).replace("?", "")


@applies(AscribedCode)
def apply_ascribed(cx: ElabContext, code: AscribedCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply a function and check arguments and result against its declared type."""
    (f,) = captures
    type = bind_open_sizes(code, [type_of(term) for term, _ in args.items])
    if type is None:
        return (yield apply(cx, f, args))
    for (term, span), wanted in zip(args.items, type.params, strict=False):
        if not argument_fits(cx, wanted, term):
            found = f"this is {show_type(type_of(term))}"
            raise cx.error("DL0304", f"{code.name} takes {open_text(wanted)} here", span, found)
    # The arguments fit, so errors inside `f` are its own.
    result = yield apply(cx, f, args)
    if not argument_fits(cx, type.result, result):
        found, wanted = show_type(type_of(result)), open_text(type.result)
        raise make_error(
            "DL0304",
            f"{code.what} returns {found}, not {wanted}",
            (code.argument_span, "this function"),
            (code.declared_span, f"declared {code.declared_span.text}"),
        )
    return result


@applies(OpaqueFnCode)
def call_function_parameter(cx: ElabContext, code: OpaqueFnCode, _: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """The result of calling a function of which only the type is known."""
    terms = check_typed_arguments(cx, code.type, args)
    cx.builder.span = args.span
    results = emit_opaque_call(cx.builder, code.function, *[v for term in terms for v in leaves(term)])
    return term_from_leaves(code.type.result, list(results))
    yield
