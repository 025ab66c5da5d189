"""Keys of function instances: argument types, sizes and static values. Also limits of nested calls and closures."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from difflang.base.source import Span
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import ElabContext
from difflang.elaborate.functions_in_progress import InstanceKey
from difflang.elaborate.terms import Array, Closure, RecordTerm, SumTerm, Term, Tuple, VariantTerm, ZipTerm, type_of
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import AscribedCode, FnCode
from difflang.types.language_types import LangType, prune_type
from difflang.types.module_scope import GlobalName

MAX_CALL_DEPTH = 200  # nested calls of functions
MAX_LAMBDA_DEPTH = 100  # nested closures, each capturing the next
RECOMPILED_HELP = (
    "difflang compiles it again for each: let a size end the recursion sooner, or pass the same "
    "function along with numbers"
)


def instance_key(
    cx: ElabContext, code: FnCode, captures: tuple[Term, ...], terms: dict[str, Term], annotations: AnnotationResolver
) -> InstanceKey:
    types = tuple(prune_type(type_of(t)) for t in (*captures, *terms.values()))
    # Sizes of arrays are in the types; dims are passed apart.
    sizes = tuple((n, annotations.bound[n]) for p in code.decl.params if is_dim(p.type) for n in (p.name,))
    # Array arguments lose their static values at the call; closures keep those of their captures.
    functions = [t for t in terms.values() if isinstance(t, Closure)]
    facts, root = tuple(map(static_facts, (*captures, *functions))), cx.root
    return InstanceKey(code, types, facts, sizes, root.definition_only, root.follows_splits)


def reject_growing_closures(cx: ElabContext, code: FnCode, terms: Iterable[Term], span: Span) -> None:
    """Reject closures nested too deep. Errors: DL1003.

    A function that calls itself with a closure over its function argument is a new instance at each call, without end.
    """
    layers, inner = 0, closures_in(terms)
    while inner:
        layers += any([not isinstance(f.code, AscribedCode) for f in inner])
        inner = closures_in([t for f in inner for t in f.captures])
    if layers > MAX_LAMBDA_DEPTH + 1:  # the innermost captures none
        message = f"`{code}` is called with functions built from one another, more than {MAX_LAMBDA_DEPTH} deep"
        raise cx.error("DL1003", message, span, "this builds a function from the previous one", RECOMPILED_HELP)


def reject_deep_calls(cx: ElabContext, code: FnCode, depth: int, span: Span) -> None:
    """Reject a call that nests too deep in the functions in progress. Errors: DL1003.

    `depth` is that of the callee's own calls, so a cached instance is rejected like a new one.
    """
    stack = cx.session.in_progress.stack
    if len(stack) + depth > MAX_CALL_DEPTH:
        chain = " → ".join(str(c) for c in [*[m.code for m in stack[-3:]], code])
        way = "a recursion on a size must reach an `if` that ends it"
        raise cx.error(
            "DL1003", f"functions call each other more than {MAX_CALL_DEPTH} deep", span, f"… → {chain}", way
        )


def closures_in(terms: Iterable[Term]) -> list[Closure]:
    """The distinct closures among terms and in their parts."""
    found: dict[Closure, None] = {}
    todo = list(terms)
    while todo:
        match todo.pop():
            case Closure() as function:
                found[function] = None
            case (
                Tuple(items=parts)
                | ZipTerm(items=parts)
                | RecordTerm(fields=parts)
                | VariantTerm(fields=parts)
                | SumTerm(parts=parts)
            ):
                todo += parts
            case _:
                pass
    return list(found)


def static_facts(term: Term) -> Hashable:
    """The static facts of a captured value that specialization uses: all that the instance's own terms keep of it."""
    match term:
        case Array():
            return type(term.static), repr(term.static), term.upper_bound
        case Tuple() | ZipTerm():
            return tuple(map(static_facts, term.items))
        case RecordTerm() | VariantTerm():
            return tuple(map(static_facts, term.fields))
        case SumTerm():
            return tuple(map(static_facts, term.parts))
        case Closure():
            return tuple(map(static_facts, term.captures))
        case _:
            return None


def current_type(name: GlobalName) -> LangType | None:
    """The type of a top-level value, or None."""
    return name.var.type if name.var is not None else None
