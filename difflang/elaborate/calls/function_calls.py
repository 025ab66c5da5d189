"""Function application: evaluates call arguments and dispatches on the kind of function.

A declared function is a graph of its own, elaborated once per specialization; a lambda is inlined at the call.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_functions import convert_dtype
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.calls.constructors import construct_record, construct_variant
from difflang.elaborate.calls.signatures import bind_open_sizes, closure_sizes, count_arguments
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates, record_type
from difflang.elaborate.derivatives.wrt import parameter_fields_named
from difflang.elaborate.expressions.primary_expressions import bind_host_constants
from difflang.elaborate.expressions.primary_expressions import select_field as field_of
from difflang.elaborate.expressions.qualified_names import module_named_by
from difflang.elaborate.instance_keys import MAX_LAMBDA_DEPTH, RECOMPILED_HELP
from difflang.elaborate.reports.name_errors import derivative_of_call_help, transform_argument_help
from difflang.elaborate.reports.operand_mismatches import tuple_pattern_error
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.specialization import call_function, placeholder_term
from difflang.elaborate.statements.branches import MatchArm, switch_on_tag
from difflang.elaborate.statements.desugar_jumps import desugar_function
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    PoisonTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    ZipTerm,
    leaves,
    record_of_fields,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ops.control.opaque_call import emit_opaque_call
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names, pattern_names
from difflang.types.function_code import (
    PRIME,
    AscribedCode,
    BuiltinCode,
    ConvertCode,
    DerivativeCode,
    FnCode,
    LambdaCode,
    LinearMapCode,
    OpaqueFnCode,
    RecordCode,
    VariantCode,
    VmapCode,
    Wrt,
    bind_generics,
)
from difflang.types.join_types import least_common_type
from difflang.types.language_types import FnType, LangType, RecordType, is_linear_type, show_type
from difflang.types.type_errors import declared_type_error, make_error

# ---- Call expressions


@elaborates(tree.Call)
def elaborate_call(cx: ElabContext, e: tree.Call) -> Walk[Term]:
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
    from difflang.elaborate.expressions.comprehensions import reduction_argument

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


def is_user_defined(cx: ElabContext, e: tree.Name) -> bool:
    """Whether the program declares or binds this name itself."""
    declared = any(e.id in names for names in (cx.module.fns, cx.module.records, cx.module.imported))
    return declared or cx.scope.find(e.id) is not None or cx.host_value(e.id, e.span) is not None


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
        from difflang.elaborate.derivatives.taylor_coefficients import jet_order

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


# ---- Application


def apply(cx: ElabContext, fn: Term, args: CallArgs) -> Walk[Term]:
    """Apply a function to evaluated arguments: dispatch on the kind of its code."""
    from difflang.elaborate.derivatives import grad_jvp_vjp, linear_functions

    for term, _ in (*args.items, *args.named.values()):
        # Poison is reported already; it must not reach a rule that asks for its type.
        if isinstance(term, PoisonTerm):
            raise AlreadyReported
    match expect_function(cx, fn, args.fn_span or args.span):
        case OpaqueTerm(type=type):
            return apply_opaque(cx, type, args)
        case SumTerm() as several:
            return apply_selected_function(cx, several, args)
        case Closure(code=BuiltinCode(name=name)):
            return BUILTINS[name](cx, args)
        case Closure(code=ConvertCode(dtype=dtype)):
            return convert_dtype(cx, dtype, args)
        case Closure(code=FnCode() as code, captures=captures):
            return call_function(cx, code, captures, args)
        case Closure(code=AscribedCode() as code, captures=(f,)):
            return apply_ascribed(cx, code, f, args)
        case Closure(code=OpaqueFnCode() as code):
            return call_function_parameter(cx, code, check_typed_arguments(cx, code.type, args), args.span)
        case Closure(code=LambdaCode() as code, captures=captures):
            return (linear_functions.apply_linear_lambda if code.decl.linear else call_lambda)(cx, code, captures, args)
        case Closure(code=RecordCode() as code):
            return construct_record(cx, code, args)
        case Closure(code=VariantCode() as code):
            return construct_variant(cx, code, args)
        case Closure(code=VmapCode() as code, captures=(f,)):
            from difflang.elaborate.calls.vmap import apply_vmap

            return apply_vmap(cx, f, args, code)
        case Closure(code=DerivativeCode() as code, captures=(f,)):
            return grad_jvp_vjp.apply_derivative(cx, code, f, args)
        case Closure(code=LinearMapCode() as code, captures=captures):
            return linear_functions.apply_map(cx, code, captures, args)
        case _:
            raise cx.error("DL0320", "expected a function here", args.span)


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


def apply_ascribed(cx: ElabContext, code: AscribedCode, f: Term, args: CallArgs) -> Walk[Term]:
    """Apply a function and check arguments and result against its declared type."""
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


# Lambdas are inlined, so nested calls can grow a graph exponentially: this many in one graph is an error.
MAX_LAMBDA_CALLS = 50_000


def lambda_limit_error(cx: ElabContext, span: Span) -> DifflangError:
    message = f"lambdas are expanded here more than {MAX_LAMBDA_CALLS:,} times"
    way = "replace lambdas that call others with functions: a `fn` is compiled once"
    if (why := nested_closures_note(cx)) is not None:
        message, way = f"{message}: {why}", RECOMPILED_HELP
    return cx.error("DL1010", message, span, "", way)


def nested_closures_note(cx: ElabContext) -> str | None:
    """The note for a function that calls itself with ever new closures, each a new instance; else None."""
    makings = cx.session.in_progress.stack
    same = [m for m in makings if m.code.decl is makings[-1].code.decl]
    return f"`{same[-1].code}` is called with functions built from one another" if len(same) > 1 else None


def call_lambda(cx: ElabContext, code: LambdaCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    params = code.decl.params
    if len(args.items) != len(params) or args.named:
        raise make_error(
            "DL0319",
            f"this lambda takes {count_arguments(len(params))}, not {len(args.items)}",
            (args.span, ""),
            (code.decl.span, "defined here"),
        )
    if cx.lambda_depth >= MAX_LAMBDA_DEPTH:
        message, way = (
            f"lambdas call each other deeper than {MAX_LAMBDA_DEPTH} levels",
            "turn an inner part into a `fn`",
        )
        if (why := nested_closures_note(cx)) is not None:
            message, way = f"{message}: {why}", RECOMPILED_HELP
        elif code.decl.span.contains(args.span) and not any(isinstance(t, Closure) for t in captures):
            message = "this lambda calls itself, so it may never end"
            way = (
                "a recursive function must be declared: `fn f(x: f64) -> f64 { … }`, with a branch that "
                "does not call itself"
            )
        raise cx.error("DL1002", message, args.span, "", way)
    # Counted per graph: a lambda inside a `fn` is inlined once for each of its instances.
    cx.root.lambda_calls += 1
    if cx.root.lambda_calls > MAX_LAMBDA_CALLS:
        raise lambda_limit_error(cx, args.span)
    outer, module, result = cx.scope, cx.module, cx.root.result
    # A lambda sees its captures, not the scope of the call.
    scope = BlockScope()
    for name, term in zip(code.names, captures, strict=True):
        scope.bind(name, term)
    bind_host_constants(cx, scope, code)
    cx.scope, cx.module, cx.lambda_depth, cx.root.result = BlockScope(scope), code.module, cx.lambda_depth + 1, None
    try:
        with bind_generics(cx.annotations, code.enclosing_generics, closure_sizes(code, captures)):
            for param, (term, span) in zip(params, args.items, strict=True):
                if param.type is not None and not cx.annotations.match(param.type, type_of(term)):
                    way = "a size in the type of a lambda stands for one fixed size: leave out the type, or use a `fn`"
                    way = way if set(mentioned_names(param.type)).intersection(cx.annotations.bound) else ""
                    raise declared_type_error(param.type, type_of(term), span, "the argument", way)
                bind_pattern(cx, param.pattern, term, span)
            return (yield elaborate(cx, desugar_function(code.decl.body)))
    finally:
        cx.scope, cx.module, cx.lambda_depth, cx.root.result = outer, module, cx.lambda_depth - 1, result


def bind_pattern(
    cx: ElabContext, pattern: tree.Pattern, term: Term, span: Span, *, mutable: bool = False, counts: bool = False
) -> None:
    """Bind the names of a pattern. Errors: DL0321 if the value has another structure."""
    if isinstance(pattern, tree.NamePattern):
        record_type(cx, pattern.span, term)
        cx.scope.bind(pattern.name, term, mutable=mutable, span=pattern.span, counts=counts)
        return
    if isinstance(term, PoisonTerm):
        for name in pattern_names(pattern):
            cx.scope.bind(name, term, mutable=mutable)
        return
    items = term.items if isinstance(term, (Tuple, ZipTerm)) else None
    if items is None or len(items) != len(pattern.items):
        found = f"a tuple of {len(items)}" if items is not None else show_type(type_of(term))
        raise tuple_pattern_error(pattern, len(items) if items is not None else None, (span, f"this is {found}"))
    for item, part in zip(pattern.items, items, strict=True):
        bind_pattern(cx, item, part, span, mutable=mutable, counts=counts)


def call_function_parameter(cx: ElabContext, code: OpaqueFnCode, terms: Sequence[Term], span: Span) -> Walk[Term]:
    """The result of calling a function of which only the type is known."""
    cx.builder.span = span
    results = emit_opaque_call(cx.builder, code.function, *[v for term in terms for v in leaves(term)])
    return term_from_leaves(code.type.result, list(results))
    yield
