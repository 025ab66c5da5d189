"""Specialization of declared functions, one graph for each set of types, sizes and static values; definition checks."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.base.source import Span
from difflang.elaborate.calls import recursion
from difflang.elaborate.calls.application import placeholder_term
from difflang.elaborate.calls.lambdas import prove_linear_arguments
from difflang.elaborate.calls.signatures import constrain_function, is_dim, size_and_value_error
from difflang.elaborate.context import AlreadyReported, ElabContext, Session, elaborate
from difflang.elaborate.dtype_resolution import check_literal_ranges, resolve_dtypes
from difflang.elaborate.elaborated_graphs import CheckedDefinition, FunctionInstance, RootGraph
from difflang.elaborate.expressions.names import bind_host_constants, bind_sizes
from difflang.elaborate.instance_keys import current_type, instance_key, reject_deep_calls, reject_growing_closures
from difflang.elaborate.mesh_axes import lay_out_parameter, lay_out_result, names_axes
from difflang.elaborate.patterns.enum_ascription import ascribe_enum
from difflang.elaborate.reports.all_unknown_names import unknown_names_in
from difflang.elaborate.reports.size_claims import warn_unproved_sizes, with_differing_sizes
from difflang.elaborate.runtime_checks import absorb_failure
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.statements.decorators import apply_decorators, contains_loop, warn_unused_checkpoint
from difflang.elaborate.statements.desugar_jumps import desugar_function
from difflang.elaborate.statements.printing import (
    BOOL_SCALAR,
    no_failure_before_loops,
    no_failure_so_far,
    silence_if_suppressed,
)
from difflang.elaborate.terms import (
    Array,
    Closure,
    PoisonTerm,
    Term,
    leaf_hints,
    leaves,
    size_condition,
    term_from_leaves,
    type_of,
    with_leaves,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Value, Values
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ops.control.call import call as call_op
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, body_value
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTypeVar, dtype_text, prune_dtype
from difflang.types.function_code import FnCode
from difflang.types.language_types import LangType, leaf_types, prune_type
from difflang.types.module_scope import ModuleScope
from difflang.types.size_expressions import refuse_unbound_sizes
from difflang.types.type_errors import DeferCheck, declared_type_error, nesting_error, unbound_yield_error
from difflang.types.unify import Unifier

# Passes over a recursive group until its result types are stable. A few are enough in practice.
MAX_PASSES = 50


def parameter_terms(cx: ElabContext, decl: tree.Fn) -> dict[str, Term]:
    """The parameters of a definition to check, except its dims, which become names of sizes.

    Errors: DeferCheck for a parameter without a type.
    """
    terms: dict[str, Term] = {}
    for param in decl.params:
        if is_dim(param.type):
            cx.annotations.dim(tree.TypeName(param.span, (param.name,)))
        elif param.type is None:
            raise DeferCheck
        else:
            term = placeholder_term(cx, cx.annotations.type(param.type))
            term = lay_out_parameter(cx, decl, param.name, term)
            terms[param.name] = Array(term.value, origin=param.type.span) if isinstance(term, Array) else term
    return terms


def instantiate(
    cx: ElabContext,
    code: FnCode,
    captures: tuple[Term, ...],
    terms: dict[str, Term],
    annotations: AnnotationResolver,
    span: Span,
) -> Walk[FunctionInstance]:
    """The function specialized to these types, sizes and static values: cached, or elaborated."""
    session = cx.session
    if session.checked_definitions.get(code.decl) is False:
        raise AlreadyReported  # its definition was reported
    # The key is complete: everything that elaboration reads of the arguments is in it.
    key = instance_key(cx, code, captures, terms, annotations)
    types = tuple(prune_type(type_of(t)) for t in (*captures, *terms.values()))
    found = session.in_progress.waiting(key) if key.definition else None
    found = found or session.instances.get(key)
    # In a REPL a top-level value may have been rebound with another type.
    if found is not None and all(current_type(n) == t for n, t in found.globals):
        reject_deep_calls(cx, code, found.call_depth, span)
        return found
    reject_growing_closures(cx, code, (*captures, *terms.values()), span)
    reject_deep_calls(cx, code, 1, span)
    session.in_progress.forget_results()
    for _ in range(MAX_PASSES):
        making = session.in_progress.begin(key, code, span, definition=cx.root.definition_only)
        try:
            made: FunctionInstance = yield build_instance(cx, code, captures, terms, annotations, types, span)
            instance = recursion.complete_function(session, making, made)
        except DeferCheck:
            if not cx.root.definition_only and (error := recursion.undecided_text_error(cx, making, span)) is not None:
                raise error from None
            raise
        finally:
            session.in_progress.pop(making)
        if instance is not None:
            break
    else:
        raise InternalError(f"the result type of `{code.decl.name}` and the functions that it calls cannot be inferred")
    if making not in session.in_progress.incomplete and not any(
        isinstance(t.dtype, DTypeVar) for type in types for t in leaf_types(type)
    ):
        session.instances[key] = instance
    return instance


def build_instance(
    cx: ElabContext,
    code: FnCode,
    captures: tuple[Term, ...],
    terms: dict[str, Term],
    annotations: AnnotationResolver,
    types: tuple[LangType, ...],
    span: Span,
) -> Walk[FunctionInstance]:
    inner = function_context(cx.session, code.module, annotations, cx.root.definition_only)
    inner.root.follows_splits = cx.root.follows_splits
    builder, decl = inner.builder, code.decl
    names = [*code.names, *terms]
    origins = {p.name: p.type.span for p in decl.params if p.type is not None}
    params: list[Value] = []
    for name, term, type in zip(names, (*captures, *terms.values()), types, strict=True):
        values = [builder.param(t, h) for t, h in zip(leaf_types(type), leaf_hints(type, name), strict=True)]
        params += values
        known = name in code.names or isinstance(term, Closure)
        local = with_leaves(term, iter(values)) if known else term_from_leaves(type, values)
        try:
            local = lay_out_parameter(inner, decl, name, local)
        except DifflangError as error:
            raise DifflangError(*[with_call_site(d, code, terms, span) for d in error.diagnostics]) from None
        if isinstance(local, Array) and name in origins:
            local = Array(local.value, local.static, origin=origins[name])
        inner.scope.bind(name, local)
    # A nested function may call itself.
    if decl.name not in names and code.module.fns.get(decl.name) is not decl:
        found = [inner.scope.names[name].term for name in code.names]
        inner.scope.bind(decl.name, Closure(code, tuple([t for t in found if not isinstance(t, (int, Poly))])))
    bind_host_constants(inner, inner.scope, code)
    bind_sizes(inner)
    before, said, fresh = cx.session.errors, len(cx.session.diagnostics), inner.failure_word.term
    try:
        result = yield elaborate_body(inner, decl)
    except DifflangError as error:
        explained = with_differing_sizes(inner.unifier, error)
        raise DifflangError(*[with_call_site(d, code, terms, span) for d in explained.diagnostics]) from None
    finally:
        if cx.session.errors > before:
            add_call_sites(cx.session, said, code, terms, span)
    cx.unifier.unproved += inner.unifier.unproved
    if cx.session.errors > before:
        raise AlreadyReported
    return finish_instance(inner, decl, result, params, fresh, types)


def finish_instance(
    cx: ElabContext, decl: tree.Fn, result: Term, params: list[Value], fresh: Term | Dim, types: tuple[LangType, ...]
) -> FunctionInstance:
    """The finished instance. If the arguments' element types are still open, the caller resolves them later."""
    root = cx.root
    # The order of params that `call_operands` repeats: arguments, globals, key, flag.
    hidden = [v for v in (root.key, root.ok_flag) if v is not None]
    order = [*params, *[v for t in root.globals.values() for v in leaves(t)], *hidden]
    word = leaves(cx.failure) if cx.failure_word.term is not fresh else []
    graph = root.builder.finish([*leaves(result), *word], params=order, name=decl.name)
    if not root.definition_only and not any(isinstance(t.dtype, DTypeVar) for type in types for t in leaf_types(type)):
        resolve_dtypes(graph, cx.session.finalized_graphs)
    return FunctionInstance(
        graph,
        result,
        type_of(result),
        tuple((n, root.global_types[n]) for n in root.globals),
        root.key is not None,
        bool(word),
        root.ok_flag is not None,
        root.chosen,
        frozenset(root.effects),
        frozenset(root.calls),
        root.memory_limit,
        root.call_depth + 1,
    )


def function_context(
    session: Session, module: ModuleScope, annotations: AnnotationResolver, definition: bool
) -> ElabContext:
    """A context for the body of a function: a graph of its own, and an empty scope."""
    unifier = Unifier()
    builder = Builder(solver=unifier)
    inner = replace(annotations, unifier=unifier, records=module.records.get, within=())
    return ElabContext(
        session, module, RootGraph(builder, definition, is_function=True), builder, BlockScope(), unifier, inner
    )


def require_conditions(cx: ElabContext, decl: tree.Fn) -> Walk[None]:
    """Check the `where` clauses of a function, or rely on them while a definition is checked. Errors: DL0315."""
    for clause, part in [(whole, part) for whole in decl.where for part in conjuncts(whole)]:
        holds = yield elaborate(cx, part)
        if isinstance(holds, Array) and holds.static is False:
            sizes = ", ".join(f"{n} = {d}" for n, d in cx.annotations.bound.items() if isinstance(d, Dim))
            raise cx.error("DL0315", f"`{decl.name}` requires {clause.span.text}", clause.span, f"{sizes} here")
        if cx.root.definition_only:
            cx.unifier.conditions.append(size_condition(holds.value) if isinstance(holds, Array) else None)
        elif not isinstance(holds, Array) or holds.static is not True:
            cx.session.undecided_conditions[clause.span] = None


def conjuncts(condition: tree.Expr) -> list[tree.Expr]:
    """The conditions that `and` joins: each of them holds."""
    if isinstance(condition, tree.Binary) and condition.op == "and":
        return [*conjuncts(condition.lhs), *conjuncts(condition.rhs)]
    return [condition]


def elaborate_body(cx: ElabContext, decl: tree.Fn) -> Walk[Term]:
    """The value of a function's body, checked against the declared result."""
    apply_decorators(cx, decl.attributes, decl.span)
    if decl.attributes and not contains_loop(decl):
        warn_unused_checkpoint(cx, decl.attributes, f"`{decl.name}` contains no loop")
    yield require_conditions(cx, decl)
    if decl.result is not None:

        def unbound(span: Span, name: str) -> DifflangError:
            yields = any(isinstance(n, tree.Yield) for n in all_nodes(decl.body))
            return (unbound_yield_error if yields else cx.annotations.unbound_error)(span, name)

        refuse_unbound_sizes(decl.result, {*cx.annotations.bound, *cx.annotations.generics}, unbound)
    cx.root.result = decl.result
    result = yield elaborate(cx, desugar_function(decl.body))
    if isinstance(result, PoisonTerm):
        raise AlreadyReported
    if decl.result is not None:
        if not cx.annotations.match(decl.result, type_of(result)):
            raise declared_type_error(
                decl.result, type_of(result), body_value(decl.body).span, f"the result of `{decl.name}`"
            )
        result = ascribe_enum(cx.annotations, decl.result, result)
        result = lay_out_result(cx, cx.module, decl, result)
    if isinstance(decl.result, tree.TypeFn):
        what, place = f"the result of `{decl.name}`", body_value(decl.body).span
        result = constrain_function(decl.result, result, place, cx.annotations, what, what)
        yield prove_linear_arguments(cx, [result])
    return result


def add_call_sites(session: Session, said: int, code: FnCode, terms: Mapping[str, Term], span: Span) -> None:
    """Add the call site to reports about an instance whose definition was correct."""
    if session.checked_definitions.get(code.decl, True) is False:
        return
    session.diagnostics[said:] = [with_call_site(d, code, terms, span) for d in session.diagnostics[said:]]


def with_call_site(
    d: Diagnostic, code: FnCode, terms: Mapping[str, Term], span: Span, rule: tree.Rule | None = None
) -> Diagnostic:
    """A report of a function, or of its rule, with the call site added; the user's line comes before the library's."""
    if d.code == "DL0311" and not span.in_library and all([label.span.in_library for label in d.labels]):
        d = replace(d, helps=(one_dtype_help(code.decl.name, terms),), fixes=())
    places, wholes = [label.span for label in d.labels], ((rule or code.decl).span, span)
    body, call = [any(map(whole.contains, places)) for whole in wholes]
    if d.severity == "error" and body and not call:
        d = replace(d, labels=(*d.labels, Label(span, "called here")))
    return d if span.in_library else d.users_first()


def one_dtype_help(name: str, terms: Mapping[str, Term]) -> str:
    """The help for a call of the library whose arguments, or the results of functions among them, differ in type."""
    first: dict[str, str] = {}  # the argument that has each element type first
    for param, term in terms.items():
        for leaf in leaf_types(type_of(term)):
            if prune_dtype(leaf.dtype).differentiable:
                first.setdefault(dtype_text(leaf.dtype), param)
    if len(first) > 1:
        given = " and ".join([f"{dtype} in `{param}`" for dtype, param in first.items()])
        return f"`{name}` computes with one element type, but gets {given}: convert one of them"
    functions = " and ".join([f"`{param}`" for param, term in terms.items() if isinstance(term, Closure)])
    whose = f"what {functions} returns" if functions else "every argument"
    known = "".join([f"{dtype}, as `{param}` is" for dtype, param in first.items()])
    return f"`{name}` computes with one element type: {whose} must be {known or 'of it'}"


def emit_call(cx: ElabContext, code: FnCode, instance: FunctionInstance, terms: list[Term], span: Span) -> Term:
    """Emit the equation of a call."""
    operands = call_operands(cx, instance, terms, span)
    types = tuple(r.type for r in instance.graph.results)
    results = cx.builder.append(
        call_op, operands, types, (silence_if_suppressed(cx, instance.graph),), name=code.decl.name
    )
    return call_result(cx, instance, results, instance.fails, span)


def call_operands(
    cx: ElabContext, instance: FunctionInstance, terms: list[Term], span: Span, key: Value | None = None
) -> Values:
    """The operands of an instance's graph; if it draws, `key` or a fresh key."""
    operands = [v for t in terms for v in leaves(t)]
    for name, _ in instance.globals:
        operands += leaves(cx.global_term(name))
    if instance.random:
        operands.append(key or cx.draw_key(span))
    if instance.takes_ok_flag:
        of = no_failure_so_far if "print" in instance.effects else no_failure_before_loops
        operands.append(of(cx, span) or cx.emit("const", span, value=True, type=BOOL_SCALAR))
    cx.builder.span = span
    return tuple(map(cx.builder.capture, operands))


def call_result(cx: ElabContext, instance: FunctionInstance, results: Values, fails: bool, span: Span) -> Term:
    """The result of a call; its effects and failure are added to the caller's."""
    cx.root.absorb_callee(instance)
    if fails:
        absorb_failure(cx, results[-3:], span)
    return with_leaves(instance.result, iter(results))


# ---- Definitions


def bind_arguments(cx: ElabContext, arguments: dict[str, Term]) -> None:
    """Bind the parameters of a function and its sizes, for its body or its `where` clauses."""
    for name, term in arguments.items():
        cx.scope.bind(name, term)
    bind_sizes(cx)


def check_definition(session: Session, module: ModuleScope, decl: tree.Fn) -> Walk[None]:
    """Check a function definition: its sizes are names, its function parameters are known only by type."""
    annotations = AnnotationResolver(
        Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics}, rigid=True
    )
    cx = function_context(session, module, annotations, definition=True)
    cx.root.follows_splits = module.knows_axes and names_axes(module, decl)
    before = session.errors
    if session.type_notes is not None:
        session.type_notes.definition_root = cx.root
    try:
        arguments = parameter_terms(cx, decl)
        for param in decl.params:
            if isinstance(cx.annotations.bound.get(param.name), Dim) and not is_dim(param.type):
                raise size_and_value_error(param)
        bind_arguments(cx, arguments)
        result = yield elaborate_body(cx, decl)
        found = prune_type(type_of(result))
        check_literal_ranges(cx.root.builder.eqns)
        if cx.root.follows_splits:
            from difflang.sharding.check_splits import check_splits  # few programs split arrays

            splits = check_splits(cx.root.builder.eqns, session.region_splits, session.noted_graphs)
            if session.type_notes is not None:
                session.type_notes.put_splits(splits)
        session.definition_results[decl] = CheckedDefinition(
            found, frozenset(cx.root.effects), frozenset(cx.root.calls)
        )
    except DeferCheck:
        for error in unknown_names_in(cx, decl):
            session.report(error)
    except DifflangError as error:
        session.report(with_differing_sizes(cx.unifier, error))
    except AlreadyReported:
        pass
    except RecursionError:
        session.report(nesting_error(decl.span))
    warn_unproved_sizes(session, decl, cx.unifier.unproved)
    cx.root.builder.release()
    session.checked_definitions[decl] = session.errors == before
