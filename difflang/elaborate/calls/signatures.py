"""Matches call arguments against a signature: assigns them to parameters and binds its sizes and generics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Fix, Label
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.patterns.enum_ascription import ascribe_enum
from difflang.elaborate.reports.linearity_errors import matrix_function_help, not_proved_linear_error
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.terms import Array, Closure, OpaqueTerm, RecordTerm, SumTerm, Term, Tuple, VariantTerm, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim, Poly, dim_name, substitute_dims
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTypeVar, prune_dtype
from difflang.types.function_code import AscribedCode, FnCode, LambdaCode, VariantCode
from difflang.types.join_types import has_unknown_args
from difflang.types.language_types import (
    AxisSpread,
    FnType,
    LangType,
    is_linear_type,
    leaf_types,
    map_tensors,
    show_type,
)
from difflang.types.suggested_fixes import declared_dtype_fix
from difflang.types.type_errors import DeferCheck, annotation_text, array_of_items_help, make_error


def match_arguments(
    cx: ElabContext,
    args: CallArgs,
    what: str,
    names: Sequence[str],
    defaults: dict[str, Any],
    declared: Span,
    noun: str = "parameter",
) -> dict[str, tuple[Term, Span]]:
    """Arguments by parameter name. An omitted argument with a default is missing from the result."""
    if len(args.items) > len(names):
        raise make_error(
            "DL0319",
            f"`{what}` takes {count_arguments(len(names))}, not {len(args.items)}",
            (args.items[len(names)][1], "this argument is one too many"),
            (declared, f"it takes {', '.join(names) or 'none'}"),
        )
    # Positional arguments first; a named one may not repeat them.
    given = dict(zip(names, args.items, strict=False))
    for name, (term, span) in args.named.items():
        if name not in names:
            place = args.name_spans.get(name, span)
            way, fixes = did_you_mean(name, names, place)
            labels = ((place, ""), (declared, f"it takes {', '.join(names)}"))
            raise make_error("DL0319", f"`{what}` has no {noun} `{name}`", *labels, help=way, fixes=fixes)
        if name in given:
            raise make_error("DL0319", f"`{name}` is given twice", (span, "again"), (given[name][1], "by position"))
        given[name] = (term, span)
    missing = [n for n in names if n not in given and n not in defaults]
    if missing:
        some = ", ".join(f"`{m}`" for m in missing)
        labels = ((args.span, ""), (declared, f"it takes {', '.join(names)}"))
        raise make_error("DL0319", f"`{what}` is missing {some}", *labels)
    return given


def count_arguments(count: int) -> str:
    return f"{count} argument{'s' * (count != 1)}"


def has_static_sizes(annotations: AnnotationResolver, captures: tuple[Term, ...], terms: Mapping[str, Term]) -> bool:
    """Whether all sizes of a call are numbers: then the check of the definition can elaborate it exactly."""
    given = (*captures, *terms.values())
    types = [leaf for t in given for leaf in leaf_types(type_of(t))]
    bound = [size for size in annotations.bound.values() if isinstance(size, Dim)]
    return all(isinstance(d, int) for d in (*bound, *[d for t in types for d in t.shape])) and not any(
        map(contains_opaque_function, given)
    )


def contains_opaque_function(term: Term) -> bool:
    """Whether a value contains a function of which only the type is known."""
    match term:
        case OpaqueTerm():
            return True
        case (
            Tuple(items=parts)
            | RecordTerm(fields=parts)
            | VariantTerm(fields=parts)
            | SumTerm(parts=parts)
            | Closure(captures=parts)
        ):
            return any(map(contains_opaque_function, parts))
        case _:
            return False


def closure_sizes(code: FnCode | LambdaCode, captures: tuple[Term, ...]) -> dict[str, Any]:
    pairs = zip(code.names, captures, strict=True)
    found: dict[str, Any] = {n: t.static for n, t in pairs if isinstance(t, Array) and isinstance(t.static, Dim)}
    found |= {known.name: known.value for known in code.static_captures if isinstance(known.value, Dim)}
    return {name: size for name, size in found.items() if not isinstance(size, bool)}


def signature_annotations(cx: ElabContext, code: FnCode | LambdaCode, captures: tuple[Term, ...]) -> AnnotationResolver:
    """A resolver for a function's signature before any argument: its own generics, and those of enclosing scopes."""
    own = code.decl.generics if isinstance(code, FnCode) else ()
    # The enclosing scope's names are bound before the arguments are matched, so a mismatch is an error here.
    bound = {**closure_sizes(code, captures), **{t.name: t.type for t in code.enclosing_generics if t.type is not None}}
    generics = {t.name: t.bound for t in code.enclosing_generics} | {g.name: g.bound for g in own}
    return AnnotationResolver(cx.unifier, code.module.records.get, bound, generics)


def has_open_names(decl: tree.Fn) -> bool:
    """Whether a parameter has no annotation, so that the result may depend on what only the body says."""
    return any(p.type is None for p in decl.params)


def match_parameters(
    cx: ElabContext, decl: tree.Fn, arguments: dict[str, tuple[Term, Span]], annotations: AnnotationResolver
) -> dict[str, Term]:
    """Bind the signature's names from the arguments. Errors: DL0304 with both positions, DL0305."""
    terms: dict[str, Term] = {}
    stories: dict[str, tuple[Span, str]] = {}
    for param in sorted(decl.params, key=lambda p: matching_order(p, annotations)):
        term, span = arguments[param.name]
        # Which names this parameter binds: reports cite the argument that bound a size.
        known = set(annotations.bound)
        if is_dim(param.type):
            size = annotations.bound[param.name] = cx.static(term, span, f"the size `{param.name}`")
            if isinstance(size, int) and size < 0:
                labels = (span, f"this is {size}"), (param.span, "declared here")
                raise make_error("DL0303", f"`{param.name}` of `{decl.name}` is a size: it cannot be negative", *labels)
            continue
        if isinstance(param.type, tree.TypeFn) and param.type.linear and not is_linear_type(type_of(term)):
            raise linear_parameter_error(decl, param, term, span)
        if param.type is not None and not annotations.match(param.type, type_of(term)):
            raise argument_mismatch_error(decl, param, term, span, annotations, stories)
        for name in annotations.bound.keys() - known:
            stories[name] = (
                span,
                f"{name} is {binding_text(annotations.bound[name])}: this is {show_type(type_of(term))}",
            )
        terms[param.name] = term
    for param in decl.params:
        # Function types come last: the other arguments have bound every size in them by now.
        if isinstance(param.type, tree.TypeFn):
            term, span = arguments[param.name]
            bind_signature_sizes(cx, param.type, term, annotations)
            terms[param.name] = ascribe_function(param, term, span, annotations)
        elif param.type is not None and param.name in terms:
            terms[param.name] = ascribe_enum(annotations, param.type, terms[param.name])
            note_open_names(annotations, param, terms[param.name], arguments[param.name][1])
    return {p.name: terms[p.name] for p in decl.params if p.name in terms}


def bind_signature_sizes(cx: ElabContext, written: tree.TypeFn, term: Term, annotations: AnnotationResolver) -> None:
    """Bind sizes of a function type by the parameters that a named function declares with known sizes."""
    if not isinstance(term, Closure) or not isinstance(term.code, FnCode):
        return
    own = signature_annotations(cx, term.code, term.captures)
    params = written.param.items if isinstance(written.param, tree.TypeTuple) else (written.param,)
    for wanted, declared in zip(params, term.code.decl.params, strict=False):
        if declared.type is not None:
            # One that does not match, or whose sizes are open, is left to the calls.
            with suppress(DifflangError, DeferCheck):
                annotations.match(wanted, own.type(declared.type))


def note_open_names(annotations: AnnotationResolver, param: tree.Param, term: Term, span: Span) -> None:
    """Record the names of a parameter's type that the argument leaves open: the function may not need them."""
    if param.type is None or not has_unknown_args(type_of(term)):
        return
    for name in mentioned_names(param.type):
        if name not in annotations.bound and name not in DTYPES and annotations.records(name) is None:
            annotations.undetermined[name] = span, param.span


def linear_parameter_error(decl: tree.Fn, param: tree.Param, term: Term, span: Span) -> DifflangError:
    """The report of an argument that is not a linear function where the parameter requires one."""
    found = not_proved_linear_error(term, span, f"`{param.name}` of `{decl.name}` is a linear function")
    (diagnostic,) = found.diagnostics
    declared = Label(param.span, f"declared {param.span.text}")
    return DifflangError(replace(diagnostic, labels=(*diagnostic.labels, declared)))


def matching_order(param: tree.Param, annotations: AnnotationResolver) -> int:
    """The rank of a parameter in matching: plain types bind names first, then size formulas, then `D(…)` types."""
    # A dim is passed as a number, so it binds its name at once.
    if param.type is None or is_dim(param.type):
        return 0
    todo, several = [param.type], False
    while todo:
        part = todo.pop()
        if isinstance(part, tree.TypeApply):
            todo += [a for a in part.args if not isinstance(a, tree.AnyShape)]
        if isinstance(part, tree.TypeCall) and not annotations.generics.keys().isdisjoint(mentioned_names(part)):
            return 3
        several = several or (
            isinstance(part, tree.DimBinary) and len(mentioned_names(part) - annotations.bound.keys()) > 1
        )
    return 2 if several else 1


def is_dim(written: tree.TypeExpr | None) -> bool:
    return isinstance(written, tree.TypeName) and written.path == ("dim",)


def argument_mismatch_error(
    decl: tree.Fn,
    param: tree.Param,
    term: Term,
    span: Span,
    annotations: AnnotationResolver,
    stories: Mapping[str, tuple[Span, str]],
) -> DifflangError:
    """The report of an argument of the wrong type: its type, the declared one, and the sizes bound so far."""
    assert param.type is not None
    found = show_type(type_of(term))
    names = {
        *mentioned_names(param.type),
        *(part.name for part in all_nodes(param.type) if isinstance(part, tree.AnyShape)),
    }
    # The argument, the declaration, then every argument that bound a size in the declared type.
    labels = [(span, f"this is {found}"), (param.span, declared_type_text(param.type, annotations, names))]
    relevant = [n for n in sorted(names & stories.keys()) if n != str(annotations.bound[n])]
    labels += [stories[n] for n in relevant or sorted(names & stories.keys())]
    if isinstance(term, Array) and term.origin is not None:
        labels.append((term.origin, "it comes from here"))
    way, fixes = vector_help(decl, param) or argument_kind_help(param.type, term, span), tuple[Fix, ...]()
    way = way or array_of_items_help(param.type, type_of(term), span) or batch_size_help(param.type, found)
    if (
        isinstance(term, Array)
        and not isinstance(prune_dtype(term.tensor.dtype), DTypeVar)
        and isinstance(param.type, (tree.TypeName, tree.TypeApply))
        and param.type.path[0] in ("f16", "f32", "f64", "bf16", "i32", "i64")
    ):
        fixes = declared_dtype_fix(param.type, term.tensor.dtype, span)
        wanted = param.type.path[0]
        if wanted != prune_dtype(term.tensor.dtype).name:
            way = fixes[0].title if fixes else f"write `{wanted}({span.text})`"
            way = f"there is no implicit conversion: {way}"
    message = f"the argument `{param.name}` of `{decl.name}` has the wrong type"
    return make_error("DL0304", message, *labels, help=way, fixes=fixes)


def batch_size_help(written: tree.TypeExpr, found: str) -> str:
    """A help text for a batch of the host, whose size is called so, where a number of rows is declared."""
    rows = written.args[0] if isinstance(written, tree.TypeApply) and written.args else None
    if not isinstance(rows, tree.TypeInt) or "rows of line" not in found:
        return ""
    return "the last batch may have fewer rows: leave it out by `drop_last = true`, or declare any number of rows"


def argument_kind_help(written: tree.TypeExpr, term: Term, span: Span) -> str:
    """A help text for an array where a function or a tuple is expected."""
    if isinstance(written, tree.TypeTuple) and isinstance(term, Array) and len(written.items) > 1:
        return "write a tuple in parentheses: `(a, b)`"
    if isinstance(term, Closure) and isinstance(term.code, VariantCode) and not isinstance(written, tree.TypeFn):
        fields = ", ".join(f"{f.name} = …" for f in term.code.decl.variants[term.code.index].fields)
        return f"write `{term.code}({fields})`"
    return matrix_function_help(term, span, linear=written.linear) if isinstance(written, tree.TypeFn) else ""


def declared_type_text(written: tree.TypeExpr, annotations: AnnotationResolver, names: set[str]) -> str:
    """A type as written, and its meaning here: the resolved type if it contains `D(P)`, else its bound names."""
    story = f"declared {annotation_text(written)}"
    if any(isinstance(part, tree.TypeCall) for part in all_nodes(written)):
        try:
            return f"{story}, which is {show_type(annotations.type(written))} here"
        except (DifflangError, DeferCheck):
            pass  # only the body binds its sizes
    bound = [f"{n} is {binding_text(d)}" for n, d in annotations.bound.items() if n in names and n != str(d)]
    return story + (f", and {', '.join(bound)} here" if bound else "")


def binding_text(binding: Any) -> str:
    """The text of what a name in a signature is bound to."""
    if isinstance(binding, tuple):
        return f"[{', '.join(map(str, cast('tuple[Any, ...]', binding)))}]"
    return show_type(binding) if isinstance(binding, Tensor) else str(binding)


def vector_help(decl: tree.Fn, param: tree.Param) -> str:
    """The help for a parameter of a generic type `V: vec`."""
    vectors = [g.name for g in decl.generics if g.bound == "vec"]
    if not isinstance(param.type, tree.TypeName) or param.type.path[0] not in vectors:
        return ""
    of_floats = "a float or an array of floats, or a tuple of these"
    return f"`{param.type.path[0]}: vec` is {of_floats}, or a tangent of a record or an enum"


def size_and_value_error(param: tree.Param) -> DifflangError:
    """The report of a name that is both a size in the signature and a parameter that is not a size."""
    return make_error(
        "DL0210",
        f"`{param.name}` is both a parameter and a size in the type of another one",
        (param.span, "a value here"),
        help=f"rename one of them, or write `{param.name}: dim`",
    )


def ascribe_function(param: tree.Param, term: Term, span: Span, annotations: AnnotationResolver) -> Term:
    """Ascribe the declared function type of a parameter to its argument."""
    assert isinstance(param.type, tree.TypeFn)
    for name in unbound_sizes(param.type, annotations):
        annotations.undetermined[name] = span, param.span
    return constrain_function(param.type, term, span, annotations, f"`{param.name}`")


def constrain_function(
    written: tree.TypeFn, term: Term, span: Span, annotations: AnnotationResolver, name: str, what: str = ""
) -> Term:
    """A function with an ascribed type, which every application checks."""
    open_sizes = unbound_sizes(written, annotations)
    known = replace(annotations, bound={**annotations.bound, **{n: dim_name(f"?{n}") for n in open_sizes}})
    try:
        type = known.type(written)
    except (DifflangError, DeferCheck):
        return term  # a generic that nothing has bound
    if not isinstance(term, (Closure, SumTerm)) or not isinstance(type, FnType):
        return term
    if isinstance(term, Closure) and isinstance(term.code, AscribedCode) and term.code.type == type:
        return term
    names = parameter_names(term)
    if names and len(names) != len(type.params):
        count = f"it takes {len(names)} argument{'s' * (len(names) != 1)}"
        raise make_error(
            "DL0304",
            f"the function passed for {name} takes a different number of arguments",
            (span, count),
            (written.span, f"declared {written.span.text}"),
        )
    return Closure(
        AscribedCode(type, open_sizes, name, what or f"the function passed for {name}", span, written.span), (term,)
    )


def unbound_sizes(written: tree.TypeExpr, annotations: AnnotationResolver) -> tuple[str, ...]:
    """The names of sizes in a type that nothing has bound."""
    names = [n for n in mentioned_names(written) if n not in annotations.bound and n not in annotations.generics]
    return tuple(n for n in names if n not in DTYPES and n not in ("D", "str", "key") and not annotations.records(n))


def bind_open_sizes(code: AscribedCode, given: Sequence[LangType]) -> FnType | None:
    """The type of an ascribed function at a call, where the arguments bind its open sizes.

    None if no parameter names such a size alone, or if axes of an argument are not known yet.
    """
    open_dims = {dim_name(f"?{n}"): f"?{n}" for n in code.open}
    alone = {d for type in code.type.params for leaf in leaf_types(type) for d in leaf.shape}
    if not open_dims.keys() <= alone or any(
        isinstance(d, AxisSpread) for t in given for x in leaf_types(t) for d in x.shape
    ):
        return None
    sizes: dict[str, Dim] = {}
    for wanted, found in zip(code.type.params, given, strict=False):
        for a, b in zip(leaf_types(wanted), leaf_types(found), strict=False):
            for m, n in zip(a.shape, b.shape, strict=False):
                if m in open_dims:
                    sizes.setdefault(open_dims[m], n)

    def close(type: Tensor) -> Tensor:
        dims = [
            substitute_dims(d, lambda n: sizes[n] if n in sizes else dim_name(n)) if isinstance(d, Poly) else d
            for d in type.shape
        ]
        return Tensor(type.dtype, tuple(dims))

    return cast("FnType", map_tensors(code.type, close))


def constrain_alike(old: Term, new: Term, span: Span) -> Term:
    """Keep the ascribed type of a function field that a `with` update replaces."""
    # Without this the update would change the record's type, which includes that of its functions.
    if not isinstance(old, Closure) or not isinstance(old.code, AscribedCode) or not isinstance(new, Closure):
        return new
    same = isinstance(new.code, AscribedCode) and new.code.type == old.code.type
    return new if same else Closure(replace(old.code, argument_span=span), (new,))


def default_value(cx: ElabContext, code: FnCode, default: tree.Expr) -> Walk[Term]:
    """The value of a parameter without an argument. Errors: DL1003 if the default needs itself."""
    in_progress = cx.session.defaults_in_progress
    if default in in_progress:
        message, way = (
            "a default value calls its own function, which uses the default again",
            "pass an argument to that call",
        )
        raise make_error("DL1003", message, (default.span, "this never ends"), help=way)
    outer, module = cx.scope, cx.module
    cx.scope, cx.module = BlockScope(), code.module
    in_progress.append(default)
    try:
        return (yield elaborate(cx, default))
    finally:
        in_progress.pop()
        cx.scope, cx.module = outer, module
