"""Call expressions: arguments, pipes, primes, and transforms such as `grad[w](f)`, which build closures."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.elaborate.calls.application import apply, expect_function
from difflang.elaborate.calls.builtin_registry import TRANSFORM_NAMES
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.calls.reshard_calls import elaborate_reshard
from difflang.elaborate.context import ElabContext, elaborate, elaborates
from difflang.elaborate.derivatives.scalar_derivative import jet_order
from difflang.elaborate.derivatives.wrt import parameter_fields_named
from difflang.elaborate.expressions.comprehensions import reduction_argument
from difflang.elaborate.expressions.names import is_user_defined, module_named_by
from difflang.elaborate.expressions.primary_expressions import select_field as field_of
from difflang.elaborate.reports.name_errors import derivative_of_call_help, transform_argument_help
from difflang.elaborate.terms import Closure, RecordTerm, Term
from difflang.elaborate.trampoline import Walk
from difflang.syntax import tree
from difflang.types.function_code import PRIME, DerivativeCode, VmapCode, Wrt


@elaborates(tree.Call)
def elaborate_call(cx: ElabContext, e: tree.Call) -> Walk[Term]:
    if isinstance(e.fn, tree.Name) and e.fn.id == "reshard" and not is_user_defined(cx, e.fn):
        return (yield elaborate_reshard(cx, e))
    transform = transform_operator(cx, e.fn)
    if transform is not None:
        operator, wrt = transform
        return (yield apply_transform(cx, e, operator, wrt))
    receiver: list[tuple[Term, Span]] = []
    if isinstance(e.fn, tree.Member) and module_named_by(cx, e.fn.base) is None:
        base = yield elaborate(cx, e.fn.base)
        if isinstance(base, RecordTerm) and e.fn.name in base.type.names:
            fn: Term = field_of(cx, base, e.fn)
        else:
            # `x.f(y)` is `f(x, y)`, unless a record has a field `f`.
            receiver = [(base, e.fn.base.span)]
            fn = yield elaborate(cx, tree.Name(e.fn.name_span, e.fn.name))
    else:
        fn = yield elaborate(cx, e.fn)
    args = yield evaluate_arguments(cx, e, fn)
    args.items[:0] = receiver
    return (yield apply(cx, fn, args))


def evaluate_arguments(cx: ElabContext, e: tree.Call, fn: Term) -> Walk[CallArgs]:
    args = CallArgs(e.span, fn_span=e.fn.span)
    for arg in e.args:
        if isinstance(arg.value, tree.Comprehension):
            term, args.lead_axes = yield reduction_argument(cx, arg.value, fn)
        else:
            term = yield elaborate(cx, arg.value)
        if arg.name is None:
            if args.named:
                raise cx.error("DL0319", "a positional argument cannot follow a named one", arg.span)
            args.items.append((term, arg.span))
        elif arg.name in args.named:
            raise cx.error("DL0319", f"the argument `{arg.name}` is given twice", arg.span)
        else:
            args.named[arg.name] = (term, arg.value.span)
            args.name_spans[arg.name] = Span(arg.span.source, arg.span.start, arg.span.start + len(arg.name))
    return args


@elaborates(tree.Pipe)
def elaborate_pipe(cx: ElabContext, e: tree.Pipe) -> Walk[Term]:
    value = yield elaborate(cx, e.value)
    fn = yield elaborate(cx, e.fn)
    return (yield apply(cx, fn, CallArgs(e.span, [(value, e.value.span)])))


@elaborates(tree.Prime)
def elaborate_prime(cx: ElabContext, e: tree.Prime) -> Walk[Term]:
    fn = yield elaborate(cx, e.base)
    # Operators build closures; nothing is differentiated before the call.
    return Closure(PRIME, (expect_function(cx, fn, e.base.span),))


def transform_operator(cx: ElabContext, fn: tree.Expr) -> tuple[str, tuple[Wrt, ...]] | None:
    """The operator and parameters of `grad`, `grad[w]`, `grad[0]`, `grad[p.net]`, unless the name is shadowed."""
    base, wanted = (fn.base, fn.subscripts) if isinstance(fn, tree.Index) else (fn, ())
    if not isinstance(base, tree.Name) or base.id not in TRANSFORM_NAMES or is_user_defined(cx, base):
        return None
    return base.id, tuple(parse_wrt(cx, w) for w in wanted) or ((0,),)


def parse_wrt(cx: ElabContext, e: tree.Expr) -> Wrt:
    path: list[str] = []
    while isinstance(e, tree.Member):
        path.append(e.name)
        e = e.base
    if isinstance(e, tree.Name):
        return (e.id, *reversed(path))
    if isinstance(e, tree.Int) and not path:
        return (e.value,)
    raise cx.error(
        "DL0403",
        "expected a parameter to differentiate with respect to",
        e.span,
        "write its name, its position or `p.field`",
    )


def apply_transform(cx: ElabContext, e: tree.Call, operator: str, wrt: tuple[Wrt, ...]) -> Walk[Term]:
    order = 1
    if operator == "jet":
        order = yield jet_order(cx, e)
        e = replace(e, args=tuple([a for a in e.args if a.name != "order"]))
    if len(e.args) != 1 or e.args[0].name is not None or isinstance(e.args[0].value, tree.Comprehension):
        message = f"`{operator}` takes one function: `{operator}(f)(x)`"
        raise cx.error("DL0205", message, e.span, "", transform_argument_help(operator))
    fn = expect_function(
        cx, (yield elaborate(cx, e.args[0].value)), e.args[0].span, derivative_of_call_help(operator, e.args[0].value)
    )
    if isinstance(e.fn, tree.Index):
        check_wrt_parameters(cx, fn, wrt, e.fn.subscripts)
    at = tuple([s.span for s in e.fn.subscripts]) if isinstance(e.fn, tree.Index) else ()
    return Closure(VmapCode() if operator == "vmap" else DerivativeCode(operator, wrt, order, wrt_spans=at), (fn,))


def check_wrt_parameters(cx: ElabContext, fn: Term, wrt: tuple[Wrt, ...], written: tuple[tree.Expr, ...]) -> None:
    """Check that a derivative is taken with respect to parameters of the function, if known. Errors: DL0403."""
    # The names are empty where a definition knows only the type of the function.
    names = parameter_names(fn)
    for (first, *_), place in zip(wrt, written, strict=True):
        if not names or first in names or (isinstance(first, int) and first < len(names)):
            continue
        way, fixes = did_you_mean(first, [n for n in names if n], place.span) if isinstance(first, str) else ("", ())
        what = (
            f"parameter `{first}`"
            if isinstance(first, str)
            else f"parameter {first}: positions go from 0 to {len(names) - 1}"
        )
        if isinstance(first, str) and (inside := parameter_fields_named(fn, first)):
            way, fixes = f"for the field of that name, write {inside}", ()
        way = way or f"it has {', '.join(n or '_' for n in names)}"
        raise cx.error("DL0403", f"the function has no {what}", place.span, "", way, fixes)
