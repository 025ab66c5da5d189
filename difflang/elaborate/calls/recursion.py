"""Recursive and mutually recursive functions whose depth is known only at run time.

A call of a function that is still being elaborated for the same types becomes a `recur` equation that names it. The
functions of such a group stay open until the outermost of them is complete; then `recursion.stack_machine` turns the
group into one loop. Recursion on a size is not recursion here: each size is another instance. Infinite recursion is
rejected: functions that always call each other, or call themselves with the same arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from difflang.base.byte_sizes import tightest_limit
from difflang.base.check_sites import CheckSite
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import FAILURE_TYPES, ElabContext, Session
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.elaborated_graphs import FunctionInstance
from difflang.elaborate.functions_in_progress import InstanceKey, PendingFunction
from difflang.elaborate.instance_keys import instance_key
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.runtime_checks import cannot_have_failed
from difflang.elaborate.terms import Term, leaves, term_from_leaves, type_of
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.control.call import call as call_op
from difflang.ops.control.cond import cond as cond_op
from difflang.ops.control.recursive_call import recur
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode
from difflang.types.join_types import add_all_variants, contains_kind
from difflang.types.language_types import ClosureType, FnType, LangType, TextType, default_open_dtypes, leaf_types
from difflang.types.module_scope import GlobalName
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier

# The param that tells a group whether a check failed before the call; a failure inside the group ends its run.
NO_FAILURE_LABEL = "well"


def declared_result_type(cx: ElabContext, code: FnCode, annotations: AnnotationResolver, span: Span) -> LangType:
    """The result type of a call of a function whose body is still being elaborated. Errors: DL0340, DL0341."""
    decl = code.decl
    if decl.result is None:
        raise make_error(
            "DL0340",
            f"`{decl.name}` calls itself, but does not declare its result",
            (span, "called here"),
            (decl.name_span, "declared without a result"),
            help=f"declare the type of its result: `fn {decl.name}(…) -> f32`",
        )
    type = annotations.type(decl.result)
    if contains_kind(type, (FnType, ClosureType)):
        message = f"`{decl.name}` calls itself and returns a function, whose size is known only at run time"
        way = "return the numbers that the function would capture, or let a size, `n: dim`, determine the depth"
        raise make_error("DL0341", message, (span, "called here"), (decl.name_span, ""), help=way)
    return type


def widen_variant_arguments(
    cx: ElabContext, code: FnCode, captures: tuple[Term, ...], terms: dict[str, Term], annotations: AnnotationResolver
) -> dict[str, Term]:
    """The arguments of a call, widened to all variants where each set of variants would be one instance too many."""
    if (
        not cx.session.generalized_instances
        or instance_key(cx, code, captures, terms, annotations) not in cx.session.generalized_instances
    ):
        return terms
    return {n: widen_to_type(cx.builder, t, add_all_variants(cx.unifier, type_of(t))) for n, t in terms.items()}


def open_recursive_call(
    cx: ElabContext, making: PendingFunction, terms: Sequence[Term], annotations: AnnotationResolver, span: Span
) -> Term:
    """Emit a call that stays open until its group of functions is complete."""
    in_progress = cx.session.in_progress
    in_progress.record_call(making)
    making.assumed_result = type = in_progress.result_types.get(making.key) or declared_result_type(
        cx, making.code, annotations, span
    )
    operands = [v for t in terms for v in leaves(t)]
    for term in terms:
        default_open_dtypes(type_of(term))
    if making.key in in_progress.drawing:
        operands.append(cx.draw_key(span))
    word = not cannot_have_failed(cx.failure)
    operands += leaves(cx.failure) if word else []
    types = tuple(leaf_types(type))
    cx.builder.span = span
    owned = tuple(map(cx.builder.capture, operands))
    results = cx.builder.append(recur, owned, types, results=types, function=making.number, word=word)
    if word:
        cx.failure_word.term = cx.no_failure()  # a failure ends the run at the call
    return term_from_leaves(type, list(results))


def complete_function(session: Session, making: PendingFunction, instance: FunctionInstance) -> FunctionInstance | None:
    """Finish the innermost function in progress: as it is, deferred to its group, or as the loop of its whole group.

    `None` if it must be elaborated again, now that it is known which functions of the group draw random numbers, and
    which variants and texts they return.
    """
    in_progress = session.in_progress
    if making.outermost < len(in_progress.stack) - 1:
        in_progress.defer(making, instance)
        return instance
    if not making.is_recursive:
        return instance
    making.instance = instance
    group = [making, *in_progress.incomplete_inside(making)]
    drawing = {m.key for m in group if m.instance is not None and m.instance.random}
    other = revised_result_types(group)
    if not drawing <= in_progress.drawing or other:
        in_progress.drawing |= drawing
        in_progress.result_types |= other
        return None
    if many := variant_specific_keys([m.key for m in group]):
        session.generalized_instances |= many
        return None
    return merge_group(session, group)


def revised_result_types(group: Sequence[PendingFunction]) -> dict[Hashable, LangType]:
    """The result types of functions whose calls assumed another type."""
    # The first assumption is the declared type, and each pass only narrows it, so the iteration ends.
    made = [(m, m.instance.type) for m in group if m.instance is not None]
    return {
        m.key: type
        for m, type in made
        if m.assumed_result is not None and default_open_dtypes(m.assumed_result) != default_open_dtypes(type)
    }


def undecided_text_error(cx: ElabContext, making: PendingFunction, span: Span) -> DifflangError | None:
    """The report of a body that branches on a text returned by a call within its own group, or None."""
    group = [making, *cx.session.in_progress.incomplete_inside(making)]
    if not any(m.assumed_result is not None and contains_kind(m.assumed_result, (TextType,)) for m in group):
        return None
    name = making.code.decl.name
    message = f"`{name}` branches on a text that a recursive call returns: its content is known only at run time"
    return make_error(
        "DL0342", message, (span, ""), help="branch on the arguments, or on a number that the call returns"
    )


MAX_VARIANT_INSTANCES = 2


def variant_specific_keys(keys: Sequence[InstanceKey]) -> set[InstanceKey]:
    """The keys of functions that the group specializes for more than `MAX_VARIANT_INSTANCES` sets of variants."""
    # Each set of possible variants is another instance. In a recursive group these are nearly the same code, and
    # there may be as many as the variants have subsets.
    unifier = Unifier()
    alike: dict[InstanceKey, list[InstanceKey]] = {}
    for key in keys:
        every = key._replace(types=tuple([add_all_variants(unifier, t) for t in key.types]))
        alike.setdefault(every, []).append(key)
    return {
        k for every, several in alike.items() if len(several) > MAX_VARIANT_INSTANCES for k in several if k != every
    }


def merge_group(session: Session, group: Sequence[PendingFunction]) -> FunctionInstance:
    """The first function of a group as one graph, with the calls within the group turned into a loop."""
    # A late import: most programs have no recursion of run-time depth.
    from difflang.recursion.basic_blocks import GroupFunction
    from difflang.recursion.stack_machine import build_stack_machine

    made = {m.number: m.instance for m in group if m.instance is not None}
    reject_infinite_recursion(group)
    first, decl = group[0], group[0].code.decl
    for instance in made.values():
        resolve_dtypes(instance.graph, session.finalized_graphs)
    names = " → ".join(f"`{n}`" for n in dict.fromkeys(str(m.code) for m in group))
    chain = f"{names} → `{decl.name}`"
    frames, steps = [session.add_check_site(CheckSite(decl.name_span, chain, room)) for room in ("frames", "steps")]
    members = {number: GroupFunction(*group_member(instance)) for number, instance in made.items()}
    allowed = session.most_steps
    most = (allowed, session.add_check_site(CheckSite(decl.name_span, chain, max_steps=allowed))) if allowed else None
    graph, shared = build_stack_machine(members, first.number, (frames, steps), decl.name_span, decl.name, most)
    instance = made[first.number]
    fails = len(graph.results) > len(leaf_types(instance.type))
    types = {n: t for i in made.values() for n, t in i.globals}
    order = [label for n, t in types.items() for label in leaf_labels(n, t)]
    given, rest = graph.params[: -len(shared) or None], dict(zip(shared, graph.params[-len(shared) :], strict=False))
    args, key = (given[:-1], given[-1:]) if instance.random else (given, ())
    ok_flag = [rest[NO_FAILURE_LABEL]] if NO_FAILURE_LABEL in rest else []
    graph = Graph((*args, *[rest[label] for label in order], *key, *ok_flag), graph.eqns, graph.results, graph.name)
    session.finalized_graphs.add(graph)
    return FunctionInstance(
        graph, instance.result, instance.type, tuple(types.items()), instance.random, fails, bool(ok_flag),
        any(i.branch_elided for i in made.values()),
        frozenset().union(*[i.effects for i in made.values()]), frozenset().union(*[i.calls for i in made.values()]),
        tightest_limit(*[i.memory_limit for i in made.values()]),
        len(made) - 1 + max(i.call_depth for i in made.values()),
    )  # fmt: skip


def leaf_labels(name: GlobalName, type: LangType) -> list[Hashable]:
    return [(name, i) for i, _ in enumerate(leaf_types(type))]


def group_member(instance: FunctionInstance) -> tuple[Graph, tuple[Hashable, ...], bool]:
    """An instance with the params in the order of the stack machine: arguments and key first, then top-level values."""
    graph = instance.graph
    shared = [label for n, t in instance.globals for label in leaf_labels(n, t)]
    params: list[Value] = list(graph.params)
    ok_flag = [params.pop()] if instance.takes_ok_flag else []
    key = [params.pop()] if instance.random else []
    split = len(params) - len(shared)
    order = (*params[:split], *key, *params[split:], *ok_flag)
    every = (*shared, *[NO_FAILURE_LABEL] * instance.takes_ok_flag)
    return Graph(order, graph.eqns, graph.results, graph.name), every, instance.fails


# ---- Infinite recursion

# Recursion becomes a loop, and XLA assumes that loops end. It removes one whose results no step changes,
# so `f(x) = f(x)` would silently give 0.


def reject_infinite_recursion(group: Sequence[PendingFunction]) -> None:
    """Reject functions that call each other unconditionally, and one that calls itself with its own arguments.

    Errors: DL0504.
    Cost: linear, for each function that turns out to end.
    """
    made = {m.number: m.instance for m in group if m.instance is not None}
    name = {m.number: m.code.decl.name for m in group}
    # A failing run-time check ends any recursion.
    if any(["fail" in i.effects for i in made.values()]):
        return
    if calls := never_ending_calls(made):
        (number, call), *others = calls.items()
        raise make_error(
            "DL0504",
            f"`{name[number]}` never returns: whatever its arguments are, it calls itself again",
            (call.span, "every path through it leads to such a call"),
            *[(c.span, f"and `{name[n]}` does the same here") for n, c in others],
            help="end the recursion with an `if`, whose other branch returns a value without a call",
        )
    # The same arguments lead to the same call again, unless the function draws or has effects.
    if any([i.effects or i.random for i in made.values()]):
        return
    for number, instance in made.items():
        if (call := identical_self_call(instance.graph, number)) is not None:
            raise make_error(
                "DL0504",
                f"`{name[number]}` calls itself with its own arguments, which never ends",
                (call.span, "with the same arguments as before"),
                help="pass different arguments, and let an `if` test them to end the recursion",
            )


def never_ending_calls(made: Mapping[int, FunctionInstance]) -> dict[int, Eqn]:
    """The functions that never return, each with a call that every path makes: a greatest fixed point."""
    calls = {n: found for n, i in made.items() if (found := unavoidable_call(i.graph, made))}
    while ended := [n for n in calls if unavoidable_call(made[n].graph, calls) is None]:
        for number in ended:
            del calls[number]
    return {n: found for n in calls if (found := unavoidable_call(made[n].graph, calls))}


def unavoidable_call(graph: Graph, functions: Collection[int]) -> Eqn | None:
    """A call of one of those functions that is on every path through a graph."""
    for eqn in graph.eqns:
        if eqn.op is recur and eqn.attrs["function"] in functions:
            return eqn
        if eqn.op in (cond_op, call_op) and all(found := [unavoidable_call(r, functions) for r in eqn.regions]):
            return found[0]
    return None


def identical_self_call(graph: Graph, function: int) -> Eqn | None:
    """A call of a function with its own parameters, in its graph."""
    # The second part maps values to the parameters that they equal.
    todo = [(graph, {v: i for i, v in enumerate(graph.params)})]
    while todo:
        part, same = todo.pop()
        for eqn in part.eqns:
            if eqn.op is recur and eqn.attrs["function"] == function:
                given = eqn.operands[: len(eqn.operands) - (len(FAILURE_TYPES) if eqn.attrs["word"] else 0)]
                if all([same.get(v) == i for i, v in enumerate(given)]):
                    return eqn
            elif eqn.op in (cond_op, call_op):
                passed = [same.get(v) for v in eqn.operands[eqn.op is cond_op :]]
                for region in eqn.regions:
                    known = {p: i for p, i in zip(region.params, passed, strict=True) if i is not None}
                    todo.append((region, known))
    return None
