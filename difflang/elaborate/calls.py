"""Applying functions: declared ones as graphs of their own, made once per specialization; lambdas in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.check.annotations import Annotations, Undecided, mistake, not_this_type, written_type
from difflang.check.types import (
    ClosureType,
    DTypeVar,
    FnType,
    LangType,
    RecordType,
    TupleType,
    leaf_types,
    pruned,
    pruned_type,
    show_type,
)
from difflang.check.unify import Unifier
from difflang.elaborate.builtins import BUILTINS, TRANSFORMS, converted
from difflang.check.closures import (
    BuiltinCode,
    ConvertCode,
    DerivativeCode,
    FnCode,
    LambdaCode,
    PullbackCode,
    RecordCode,
    VmapCode,
    Wrt,
)
from difflang.check.modules import Module
from difflang.elaborate.context import Context, Instance, Reported, Root, Scope, Session, walk, walks
from difflang.elaborate.expressions import field as field_of
from difflang.elaborate.failure import absorb
from difflang.elaborate.names import bound_names, free_names
from difflang.elaborate.settle import settle
from difflang.elaborate.terms import (
    Array,
    Closure,
    Opaque,
    Poison,
    Record,
    Term,
    Text,
    Tuple,
    Zip,
    leaves,
    rebuild,
    rebuilt,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.dims import Dim
from difflang.ir.graph import Value
from difflang.ir.op import OPS
from difflang.syntax import tree


@dataclass(slots=True)
class Args:
    """The arguments of a call, evaluated. `lead` counts the axes that a comprehension argument iterates over."""

    span: Span
    items: list[tuple[Term, Span]] = field(default_factory=list[Any])
    named: dict[str, tuple[Term, Span]] = field(default_factory=dict[str, Any])
    lead: int = 0


# ---- The walks


@walks(tree.Call)
def call(cx: Context, e: tree.Call) -> Walk[Term]:
    transform = transformer(cx, e.fn)
    if transform is not None:
        operator, wrt = transform
        return (yield transformed(cx, e, operator, wrt))
    receiver: list[tuple[Term, Span]] = []
    if isinstance(e.fn, tree.Member):
        base = yield walk(cx, e.fn.base)
        if isinstance(base, Record) and e.fn.name in base.type.names:
            fn: Term = field_of(cx, base, e.fn)
        else:
            receiver = [(base, e.fn.base.span)]
            fn = yield walk(cx, tree.Name(e.fn.name_span, e.fn.name))
    else:
        fn = yield walk(cx, e.fn)
    args = yield arguments(cx, e, fn)
    args.items[:0] = receiver
    return (yield apply(cx, fn, args))


def arguments(cx: Context, e: tree.Call, fn: Term) -> Walk[Args]:
    from difflang.elaborate.comprehension import reduced

    args = Args(e.span)
    for arg in e.args:
        if isinstance(arg.value, tree.Comprehension):
            term, args.lead = yield reduced(cx, arg.value, fn)
        else:
            term = yield walk(cx, arg.value)
        if arg.name is None:
            if args.named:
                raise cx.error("DL0319", "an argument by position stands after one by name", arg.span)
            args.items.append((term, arg.span))
        elif arg.name in args.named:
            raise cx.error("DL0319", f"the argument `{arg.name}` is given twice", arg.span)
        else:
            args.named[arg.name] = (term, arg.value.span)
    return args


@walks(tree.Pipe)
def pipe(cx: Context, e: tree.Pipe) -> Walk[Term]:
    value = yield walk(cx, e.value)
    fn = yield walk(cx, e.fn)
    return (yield apply(cx, fn, Args(e.span, [(value, e.value.span)])))


@walks(tree.Prime)
def prime(cx: Context, e: tree.Prime) -> Walk[Term]:
    fn = yield walk(cx, e.base)
    return Closure(DerivativeCode("deriv", ((0,),)), (function(cx, fn, e.base.span),))


def transformer(cx: Context, fn: tree.Expr) -> tuple[str, tuple[Wrt, ...]] | None:
    """`grad`, `grad[w]`, `grad[0]`, `grad[p.net]` where no variable of that name hides the operator."""
    base, wanted = (fn.base, fn.subscripts) if isinstance(fn, tree.Index) else (fn, ())
    if not isinstance(base, tree.Name) or base.id not in TRANSFORMS or cx.scope.find(base.id) is not None:
        return None
    return base.id, tuple(written_wrt(cx, w) for w in wanted) or ((0,),)


def written_wrt(cx: Context, e: tree.Expr) -> Wrt:
    path: list[str] = []
    while isinstance(e, tree.Member):
        path.append(e.name)
        e = e.base
    if isinstance(e, tree.Name):
        return (e.id, *reversed(path))
    if isinstance(e, tree.Int) and not path:
        return (e.value,)
    raise cx.error("DL0403", "a derivative is taken in a parameter", e.span, "write its name, its position or `p.field`")


def transformed(cx: Context, e: tree.Call, operator: str, wrt: tuple[Wrt, ...]) -> Walk[Term]:
    if operator not in ("grad", "value_and_grad", "jvp", "vjp", "deriv", "vmap"):
        raise cx.not_yet(f"`{operator}` is", e.fn.span, "grad, value_and_grad, jvp, vjp and deriv are, nested in any order")
    if len(e.args) != 1 or e.args[0].name is not None or isinstance(e.args[0].value, tree.Comprehension):
        raise cx.error("DL0205", f"`{operator}` takes one function: `{operator}(f)(x)`", e.span)
    fn = function(cx, (yield walk(cx, e.args[0].value)), e.args[0].span)
    return Closure(VmapCode() if operator == "vmap" else DerivativeCode(operator, wrt), (fn,))


def function(cx: Context, term: Term, span: Span) -> Closure | Opaque:
    if isinstance(term, Poison):
        raise Reported
    if not isinstance(term, (Closure, Opaque)):
        raise cx.error("DL0320", "a function is expected here", span, f"this is {show_type(type_of(term))}")
    return term


# ---- Application


def apply(cx: Context, fn: Term, args: Args) -> Walk[Term]:
    """The walk that applies a function to evaluated arguments."""
    from difflang.elaborate import derivatives

    for term, _ in (*args.items, *args.named.values()):
        if isinstance(term, Poison):
            raise Reported
    match function(cx, fn, args.span):
        case Opaque(type=type):
            return opaque(cx, type, args)
        case Closure(code=BuiltinCode(name=name)):
            return BUILTINS[name](cx, args)
        case Closure(code=ConvertCode(dtype=dtype)):
            return converted(cx, dtype, args)
        case Closure(code=FnCode() as code, captures=captures):
            return call_fn(cx, code, captures, args)
        case Closure(code=LambdaCode() as code, captures=captures):
            return call_lambda(cx, code, captures, args)
        case Closure(code=RecordCode() as code):
            return construct(cx, code, args)
        case Closure(code=VmapCode(), captures=(f,)):
            from difflang.elaborate.comprehension import vmapped

            return vmapped(cx, f, args)
        case Closure(code=DerivativeCode() as code, captures=(f,)):
            return derivatives.derivative(cx, code, f, args)
        case Closure(code=PullbackCode() as code, captures=captures):
            return derivatives.pullback(cx, code, captures, args)
        case _:
            raise cx.error("DL0320", "a function is expected here", args.span)


def opaque(cx: Context, type: FnType, args: Args) -> Walk[Term]:
    """A function of which only the type is known: while a definition is checked."""
    if len(args.items) != len(type.params) or args.named:
        raise cx.error("DL0319", f"this function takes {len(type.params)} arguments", args.span, f"{len(args.items)} are given")
    for (term, span), wanted in zip(args.items, type.params, strict=True):
        if not fits(cx, wanted, term):
            raise cx.error("DL0304", f"{show_type(wanted)} is expected here", span, f"this is {show_type(type_of(term))}")
    return detached(cx, type.result)
    yield


def fits(cx: Context, wanted: LangType, term: Term) -> bool:
    if isinstance(wanted, FnType):
        return isinstance(term, (Closure, Opaque))
    return cx.unifier.same(wanted, type_of(term))


def detached(cx: Context, type: LangType) -> Term:
    """A term of that type that nothing computes: only in graphs that are checked and thrown away."""
    return rebuild(type, [Value(t, cx.builder) for t in leaf_types(type)])


def call_lambda(cx: Context, code: LambdaCode, captures: tuple[Term, ...], args: Args) -> Walk[Term]:
    params = code.decl.params
    if len(args.items) != len(params) or args.named:
        raise mistake("DL0319", f"this lambda takes {len(params)} arguments", (args.span, f"{len(args.items)} are given"),
                      (code.decl.span, "defined here"))  # fmt: skip
    outer, module = cx.scope, cx.module
    scope = Scope()
    for name, term in zip(code.names, captures, strict=True):
        scope.bind(name, term)
    cx.scope, cx.module = Scope(scope), code.module
    try:
        for param, (term, span) in zip(params, args.items, strict=True):
            if param.type is not None and not cx.annotations.match(param.type, type_of(term)):
                raise not_this_type(param.type, type_of(term), span, "the argument")
            bind_pattern(cx, param.pattern, term, span)
        return (yield walk(cx, code.decl.body))
    finally:
        cx.scope, cx.module = outer, module


def bind_pattern(cx: Context, pattern: tree.Pattern, term: Term, span: Span, *, mutable: bool = False) -> None:
    """Bind the names of a pattern. Errors: DL0321 if the value has another structure."""
    if isinstance(pattern, tree.NamePattern):
        cx.scope.bind(pattern.name, term, mutable=mutable, span=pattern.span)
        return
    if isinstance(term, Poison):
        for name in bound_names(pattern):
            cx.scope.bind(name, term, mutable=mutable)
        return
    items = term.items if isinstance(term, (Tuple, Zip)) else None
    if items is None or len(items) != len(pattern.items):
        found = f"a tuple of {len(items)}" if items is not None else show_type(type_of(term))
        raise mistake("DL0321", f"a tuple of {len(pattern.items)} is expected here", (pattern.span, ""), (span, f"this is {found}"))
    for item, part in zip(pattern.items, items, strict=True):
        bind_pattern(cx, item, part, span, mutable=mutable)


def construct(cx: Context, code: RecordCode, args: Args) -> Walk[Term]:
    """`P(x = 1.0, tag = "a")`: every field by name, or all by position in their order."""
    decl = code.decl
    names = [f.name for f in decl.fields]
    given = matched_arguments(cx, args, decl.name, names, {}, decl.name_span)
    annotations = Annotations(cx.unifier, code.module.records.get, {}, {g.name: g.bound for g in decl.generics})
    for written, name in zip(decl.fields, names, strict=True):
        term, span = given[name]
        if not annotations.match(written.type, type_of(term)):
            raise field_mismatch(annotations, written, type_of(term), span)
    fields = tuple(given[n][0] for n in names)
    order = tuple(annotations.bound.get(g.name) for g in decl.generics)
    return Record(RecordType(decl, tuple(names), tuple(map(type_of, fields)), order), fields)
    yield


def field_mismatch(annotations: Annotations, written: tree.Field, found: LangType, span: Span) -> DifflangError:
    bound = ", ".join(f"{n} = {d}" for n, d in annotations.bound.items())
    error = not_this_type(written.type, found, span, f"the field `{written.name}`")
    return mistake("DL0304", error.diagnostics[0].message, *[(m.span, m.text) for m in error.diagnostics[0].labels],
                   help=f"the other fields give {bound}" if bound else "")  # fmt: skip


def matched_arguments(
    cx: Context, args: Args, what: str, names: Sequence[str], defaults: dict[str, Any], declared: Span
) -> dict[str, tuple[Term, Span]]:
    """Arguments by parameter name; those left out are missing from the result if they have a default."""
    if len(args.items) > len(names):
        raise mistake("DL0319", f"`{what}` takes {len(names)} arguments", (args.items[len(names)][1], "one too many"),
                      (declared, "declared here"))  # fmt: skip
    given = dict(zip(names, args.items, strict=False))
    for name, (term, span) in args.named.items():
        if name not in names:
            raise mistake("DL0319", f"`{what}` has no `{name}`", (span, ""), (declared, f"it takes {', '.join(names)}"))
        if name in given:
            raise cx.error("DL0319", f"`{name}` is given twice", span)
        given[name] = (term, span)
    missing = [n for n in names if n not in given and n not in defaults]
    if missing:
        some = ", ".join(f"`{m}`" for m in missing)
        raise mistake("DL0319", f"`{what}` needs {some} too", (args.span, ""), (declared, "declared here"))
    return given


# ---- Declared functions


def call_fn(cx: Context, code: FnCode, captures: tuple[Term, ...], args: Args) -> Walk[Term]:
    """A call: the instance for these types and sizes is found or made, and called as a graph."""
    decl = code.decl
    if decl.host:
        if cx.host is None:
            raise cx.error("DL0322", f"`{decl.name}` is a host function: a function that compiles cannot call it", args.span)
        return (yield cx.host.call(cx, code, args))
    defaults = {p.name: p.default for p in decl.params if p.default is not None}
    given = matched_arguments(cx, args, decl.name, [p.name for p in decl.params], defaults, decl.name_span)
    for name, default in defaults.items():
        if name not in given:
            given[name] = ((yield default_value(cx, code, default)), default.span)
    annotations = Annotations(
        cx.unifier, code.module.records.get, captured_sizes(code, captures), {g.name: g.bound for g in decl.generics}
    )
    terms = match_parameters(cx, decl, given, annotations)
    if cx.root.definition and decl.result is not None and not has_open_names(decl):
        result = annotations.type(decl.result)
        if not isinstance(result, FnType):
            return detached(cx, result)
    instance = yield instantiate(cx, code, captures, terms, annotations, args.span)
    return emit_call(cx, code, instance, [*captures, *terms.values()], args.span)


def captured_sizes(code: FnCode, captures: tuple[Term, ...]) -> dict[str, Any]:
    pairs = zip(code.names, captures, strict=True)
    return {n: t.static for n, t in pairs if isinstance(t, Array) and t.static is not None and not isinstance(t.static, (bool, float))}


def has_open_names(decl: tree.Fn) -> bool:
    """Whether the declared result may hold what only the body says: functions, or no annotation on a parameter."""
    return any(p.type is None for p in decl.params)


def default_value(cx: Context, code: FnCode, default: tree.Expr) -> Walk[Term]:
    outer, module = cx.scope, cx.module
    cx.scope, cx.module = Scope(), code.module
    try:
        return (yield walk(cx, default))
    finally:
        cx.scope, cx.module = outer, module


def match_parameters(
    cx: Context, decl: tree.Fn, given: dict[str, tuple[Term, Span]], annotations: Annotations
) -> dict[str, Term]:
    """Bind the signature's names from the arguments. Errors: DL0304 with both places, DL0305."""
    terms: dict[str, Term] = {}
    for param in decl.params:
        term, span = given[param.name]
        if is_dim(param.type):
            annotations.bound[param.name] = cx.static(term, span, f"the size `{param.name}`")
            continue
        if param.type is not None and not annotations.match(param.type, type_of(term)):
            raise wrong_argument(decl, param, term, span, annotations)
        terms[param.name] = term
    return terms


def is_dim(written: tree.TypeExpr | None) -> bool:
    return isinstance(written, tree.TypeName) and written.path == ("dim",)


def wrong_argument(decl: tree.Fn, param: tree.Param, term: Term, span: Span, annotations: Annotations) -> DifflangError:
    """An argument that does not fit: what it is, what was declared, and what the names stand for by now."""
    assert param.type is not None
    found = show_type(type_of(term))
    names = free_names(param.type)
    bound = [f"{n} is {d}" for n, d in annotations.bound.items() if n in names]
    story = f"declared {written_type(param.type)}" + (f", and {', '.join(bound)} here" if bound else "")
    labels = [(span, f"this is {found}"), (param.span, story)]
    if isinstance(term, Array) and term.origin is not None:
        labels.append((term.origin, "its type was declared here"))
    way = ""
    if isinstance(term, Array) and not isinstance(pruned(term.tensor.dtype), DTypeVar) and isinstance(
            param.type, (tree.TypeName, tree.TypeApply)) and param.type.path[0] in ("f16", "f32", "f64", "bf16", "i32", "i64"):  # fmt: skip
        wanted = param.type.path[0]
        if wanted != pruned(term.tensor.dtype).name:
            way = f"there is no implicit conversion: write `{wanted}({span.text})`"
    return mistake("DL0304", f"the argument `{param.name}` of `{decl.name}` does not fit", *labels, help=way)


def instantiate(
    cx: Context, code: FnCode, captures: tuple[Term, ...], terms: dict[str, Term], annotations: Annotations, span: Span
) -> Walk[Instance]:
    """The function specialized to these types, sizes and static values; made once."""
    session = cx.session
    types = tuple(pruned_type(type_of(t)) for t in (*captures, *terms.values()))
    statics = tuple(getattr(t, "static", None) if isinstance(t, Array) else None for t in captures)
    sizes = tuple((n, annotations.bound[n]) for p in code.decl.params if is_dim(p.type) for n in (p.name,))
    key = (code, types, statics, sizes, cx.root.definition)
    found = session.instances.get(key)
    if found is not None and all(current_global(code.module, n) == t for n, t in found.globals):
        return found
    if any(key == other for other, _, _ in session.under_way):
        raise cx.not_yet(f"recursion whose depth only the run knows (`{code}` calls itself) is", span,
                         "write it as a loop, or decrease a size")  # fmt: skip
    if len(session.under_way) >= 200:
        chain = " → ".join(str(c) for _, c, _ in session.under_way[-4:])
        raise cx.error("DL1003", "functions call each other more than 200 deep", span, f"… → {chain}",
                       "a recursion on a size must reach an `if` that ends it")  # fmt: skip
    session.under_way.append((key, code, span))
    try:
        instance = yield built(cx, code, captures, terms, annotations, types, span)
    finally:
        session.under_way.pop()
    if not any(isinstance(t.dtype, DTypeVar) for type in types for t in leaf_types(type)):
        session.instances[key] = instance
    return instance


def current_global(module: Module, name: str) -> LangType | None:
    return module.host[name].type if name in module.host else None


def built(
    cx: Context,
    code: FnCode,
    captures: tuple[Term, ...],
    terms: dict[str, Term],
    annotations: Annotations,
    types: tuple[LangType, ...],
    span: Span,
) -> Walk[Instance]:
    inner = function_context(cx.session, code.module, annotations, cx.root.definition)
    builder, decl = inner.builder, code.decl
    names = [*code.names, *terms]
    origins = {p.name: p.type.span for p in decl.params if p.type is not None}
    params: list[Value] = []
    for name, term, type in zip(names, (*captures, *terms.values()), types, strict=True):
        values = [builder.param(t, h) for t, h in zip(leaf_types(type), leaf_hints(type, name), strict=True)]
        params += values
        local = like(term, iter(values)) if name in code.names else rebuild(type, values)
        if isinstance(local, Array) and name in origins:
            local = Array(local.value, local.static, origin=origins[name])
        inner.scope.bind(name, local)
    for name, size in annotations.bound.items():
        if isinstance(size, Dim) and inner.scope.find(name) is None:
            inner.scope.bind(name, size)
    before, fresh = cx.session.errors, inner.word.term
    result = yield body(inner, decl)
    if cx.session.errors > before:
        blame(cx.session, before, code, span)
        raise Reported
    return instance_of(inner, decl, result, params, fresh, types)


def instance_of(
    cx: Context, decl: tree.Fn, result: Term, params: list[Value], fresh: Any, types: tuple[LangType, ...]
) -> Instance:
    """The finished graph. Where the arguments' element types are open still, whoever asked for it settles them."""
    root = cx.root
    order = [*params, *[v for t in root.globals.values() for v in leaves(t)], *([root.key] if root.key else [])]
    word = leaves(cx.word.term) if cx.word.term is not fresh else []
    graph = root.builder.finish([*leaves(result), *word], params=order, name=decl.name)
    if not root.definition and not any(isinstance(t.dtype, DTypeVar) for type in types for t in leaf_types(type)):
        settle(graph)
    return Instance(
        graph,
        result,
        type_of(result),
        tuple((n, root.global_types[n]) for n in root.globals),
        root.key is not None,
        bool(word),
        frozenset(root.effects),
    )


def function_context(session: Session, module: Module, annotations: Annotations, definition: bool) -> Context:
    """A context for the body of a function: a graph of its own, and no names but its parameters."""
    unifier = Unifier()
    builder = Builder(solver=unifier)
    inner = Annotations(unifier, module.records.get, annotations.bound, annotations.generics, annotations.rigid)
    return Context(session, module, Root(builder, definition), builder, Scope(), unifier, inner)


def body(cx: Context, decl: tree.Fn) -> Walk[Term]:
    """What a function's body gives, checked against the declared result."""
    for clause in decl.where:
        holds = yield walk(cx, clause)
        if isinstance(holds, Array) and holds.static is False:
            sizes = ", ".join(f"{n} = {d}" for n, d in cx.annotations.bound.items() if isinstance(d, Dim))
            raise cx.error("DL0315", f"`{decl.name}` needs {clause.span.text}", clause.span, f"{sizes} here")
        cx.unifier.lenient = cx.root.definition
    cx.root.result = decl.result
    result = yield walk(cx, decl.body)
    if isinstance(result, Poison):
        raise Reported
    if decl.result is not None and not cx.annotations.match(decl.result, type_of(result)):
        raise not_this_type(decl.result, type_of(result), tail(decl.body).span, f"the result of `{decl.name}`")
    return result


def tail(e: tree.Node) -> tree.Node:
    """The expression that gives a body its value."""
    while isinstance(e, tree.Block) and e.stmts:
        e = e.stmts[-1]
    return e


def blame(session: Session, before: int, code: FnCode, span: Span) -> None:
    """Say from where a function was called with the sizes that do not fit."""
    if session.checked.get(code.decl, True) is False:
        return
    for i, d in enumerate(session.diagnostics):
        place = d.span
        inside = place is not None and place.source is code.decl.span.source and (
            code.decl.span.start <= place.start < code.decl.span.end)  # fmt: skip
        if d.severity == "error" and inside and all(l.span != span for l in d.labels):
            session.diagnostics[i] = Diagnostic(d.code, d.message, (*d.labels, Label(span, "called here")), d.helps, d.severity)


def emit_call(cx: Context, code: FnCode, instance: Instance, terms: list[Term], span: Span) -> Term:
    """The equation of a call."""
    operands = [v for t in terms for v in leaves(t)]
    for name, _ in instance.globals:
        operands += leaves(cx.global_term(code.module.host[name]))
    if instance.random:
        operands.append(cx.draw(span))
    cx.root.effects |= instance.effects
    cx.builder.span = span
    owned = tuple(map(cx.builder.own, operands))
    types = tuple(r.type for r in instance.graph.results)
    results = cx.builder.append(OPS["call"], owned, types, (instance.graph,), name=code.decl.name)
    if instance.fails:
        absorb(cx, results[-1], span)
    return like(instance.result, iter(results))


def like(term: Term, values: Iterator[Value]) -> Term:
    """The same term on other values; what was known of it before the run stays known."""
    match term:
        case Array():
            return Array(next(values), term.static, below=term.below)
        case Tuple():
            return Tuple(tuple([like(t, values) for t in term.items]))
        case Zip():
            return Zip(tuple([like(t, values) for t in term.items]), term.counted)
        case Record():
            return Record(term.type, tuple([like(t, values) for t in term.fields]))
        case Closure():
            return Closure(term.code, tuple([like(t, values) for t in term.captures]))
        case _:
            return rebuilt(type_of(term), values)


def leaf_hints(type: LangType, name: str) -> list[str]:
    """A name for each leaf: `m.w`."""
    match type:
        case RecordType():
            return [h for n, t in zip(type.names, type.fields, strict=True) for h in leaf_hints(t, f"{name}.{n}")]
        case TupleType():
            return [h for i, t in enumerate(type.items) for h in leaf_hints(t, f"{name}.{i}")]
        case ClosureType():
            return [h for t in type.captures for h in leaf_hints(t, name)]
        case _:
            return [name] * len(leaf_types(type))


# ---- Definitions


def check_definition(session: Session, module: Module, decl: tree.Fn) -> Walk[None]:
    """Check a function by itself: its sizes are names, its function parameters known by type only."""
    annotations = Annotations(Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics}, rigid=True)
    cx = function_context(session, module, annotations, definition=True)
    before = session.errors
    try:
        for param in decl.params:
            if is_dim(param.type):
                cx.annotations.dim(tree.TypeName(param.span, (param.name,)))
            elif param.type is None:
                raise Undecided
            else:
                term = detached(cx, cx.annotations.type(param.type))
                cx.scope.bind(param.name, Array(term.value, origin=param.type.span) if isinstance(term, Array) else term)
        for name, size in cx.annotations.bound.items():
            if isinstance(size, Dim):
                cx.scope.bind(name, size)
        yield body(cx, decl)
    except Undecided:
        pass
    except DifflangError as error:
        session.report(error)
    except Reported:
        pass
    session.checked[decl] = session.errors == before


__all__ = ["Args", "apply", "bind_pattern", "check_definition", "detached", "function", "Text"]
