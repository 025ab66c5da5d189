"""Calls of functions with a declared result, where a definition is checked: the result is what the declaration says.

If the definition splits arrays over a mesh, the call also has the body of the function, elaborated once for all sizes:
`sharding/check_splits.py` goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.application import placeholder_term
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.elaborated_graphs import FunctionInstance
from difflang.elaborate.mesh_axes import names_axes
from difflang.elaborate.specialization import call_operands, function_context, instantiate, parameter_terms
from difflang.elaborate.terms import Closure, OpaqueTerm, Term, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType, Tensor
from difflang.ops.control.call import call
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import prune_dtype
from difflang.types.function_code import FnCode
from difflang.types.language_types import LangType, leaf_types
from difflang.types.type_errors import DeferCheck
from difflang.types.unify import Unifier


def checked_call(
    cx: ElabContext,
    code: FnCode,
    captures: tuple[Term, ...],
    terms: dict[str, Term],
    annotations: AnnotationResolver,
    result: LangType,
    span: Span,
) -> Walk[Term]:
    """The result of a call, of its declared type: that of the body if splits are followed into it, else a placeholder.

    A function that names axes of a mesh says itself how its arrays are split.
    """
    types, placeholder = leaf_types(result), placeholder_term(cx, result)
    if not cx.root.follows_splits or names_axes(code.module, code.decl):
        return placeholder
    if cx.session.in_progress.is_left_out(code.decl):
        return placeholder
    with cx.session.silenced():  # whatever is wrong with the function is reported where it is declared
        try:
            instance: FunctionInstance = yield instantiate_body(cx, code, captures, terms, annotations, span)
        except (DifflangError, AlreadyReported, DeferCheck, RecursionError):
            return placeholder
    if len(leaves(instance.result)) != len(types):  # of the declared variants it gives some
        return placeholder
    operands = call_operands(cx, instance, [*captures, *terms.values()], span)
    word = [r.type for r in instance.graph.results[len(types) :]]
    results = cx.builder.append(call, operands, (*types, *word), (instance.graph,), name=code.decl.name)
    return term_from_leaves(result, list(results[: len(types)]))


def instantiate_body(
    cx: ElabContext,
    code: FnCode,
    captures: tuple[Term, ...],
    terms: dict[str, Term],
    annotations: AnnotationResolver,
    span: Span,
) -> Walk[FunctionInstance]:
    """The function with the sizes that it declares, if the arguments differ in sizes only; else for these arguments.

    Errors: DeferCheck for a function of Python.
    """
    decl, module = code.decl, code.module
    if isinstance(decl.body, tree.Foreign):
        raise DeferCheck
    if module.fns.get(decl.name) is decl and not any(is_dim(p.type) for p in decl.params):
        bounds = {g.name: g.bound for g in decl.generics}
        declared = AnnotationResolver(Unifier(), module.records.get, {}, bounds, rigid=True)
        with suppress(DeferCheck):
            own = parameter_terms(function_context(cx.session, module, declared, definition=True), decl)
            if all(differ_in_sizes(own[name], term) for name, term in terms.items()):
                terms, annotations = own, declared
    return (yield instantiate(cx, code, captures, terms, annotations, span))


def differ_in_sizes(a: Term, b: Term) -> bool:
    """Whether the types of two values are equal up to the sizes of arrays."""
    types, others = leaf_types(type_of(a)), leaf_types(type_of(b))
    if isinstance(a, Closure | OpaqueTerm) or len(types) != len(others):
        return False
    return all([axes_of(x) and axes_of(x) == axes_of(y) for x, y in zip(types, others, strict=True)])


def axes_of(type: Tensor) -> tuple[DType, int] | None:
    """The element type and the number of axes, if that is known."""
    sizes: Sequence[object] = list(type.shape)
    return (prune_dtype(type.dtype), type.rank) if all([isinstance(n, (int, Poly)) for n in sizes]) else None
