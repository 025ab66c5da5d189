"""Functions that call themselves with a depth that only the run knows, alone or in a group.

A call of a function that is being elaborated for the same types is left open: an equation that names it. A function
with such calls of others is open too, and has no graph of its own before the outermost of them is complete. Then
`passes.machine` makes one loop of the group. Recursion on a size is none: each size is another instance.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from difflang.base.byte_sizes import tightest
from difflang.base.check_sites import Site
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.endless import refuse_without_end
from difflang.elaborate.context import Context, Session
from difflang.elaborate.dtype_resolution import settle
from difflang.elaborate.elaborated_graphs import Instance
from difflang.elaborate.functions_in_progress import Making
from difflang.elaborate.instance_keys import Key, key_of
from difflang.elaborate.patterns.sum_types import held_as
from difflang.elaborate.runtime_checks import is_fresh
from difflang.elaborate.terms import Term, leaves, rebuild, type_of
from difflang.ir.graph import Graph, Value
from difflang.ops.control.recursive_call import recur
from difflang.types.annotations import Annotations
from difflang.types.function_code import FnCode
from difflang.types.join_types import holds, whole
from difflang.types.language_types import ClosureType, FnType, LangType, TextType, leaf_types, settled_type
from difflang.types.module_scope import Global
from difflang.types.type_errors import mistake
from difflang.types.unify import Unifier

if TYPE_CHECKING:
    from difflang.recursion.basic_blocks import Member

WELL = "well"  # what a group is told of failures before: one of its own ends the run


def result_type(cx: Context, code: FnCode, annotations: Annotations, span: Span) -> LangType:
    """What a call of a function gives while its body is not known. Errors: DL0340, DL0341."""
    decl = code.decl
    if decl.result is None:
        raise mistake(
            "DL0340",
            f"`{decl.name}` calls itself, and does not say what it gives",
            (span, "called here"),
            (decl.name_span, "declared without a result"),
            help=f"write the type of its result: `fn {decl.name}(…) -> f32`",
        )
    type = annotations.type(decl.result)
    if holds(type, (FnType, ClosureType)):
        message = f"`{decl.name}` calls itself and gives a function: of how many parts, only the run would know"
        way = "give the numbers that the function would be made of, or let a size, `n: dim`, say how deep it goes"
        raise mistake("DL0341", message, (span, "called here"), (decl.name_span, ""), help=way)
    return type


def of_any_variant(
    cx: Context, code: FnCode, captures: tuple[Term, ...], terms: dict[str, Term], annotations: Annotations
) -> dict[str, Term]:
    """The arguments of a call, held as of any variant where the functions for fewer variants would be many."""
    if not cx.session.wide or key_of(cx, code, captures, terms, annotations) not in cx.session.wide:
        return terms
    return {n: held_as(cx.builder, t, whole(cx.unifier, type_of(t))) for n, t in terms.items()}


def called_again(cx: Context, making: Making, terms: Sequence[Term], annotations: Annotations, span: Span) -> Term:
    """A call that stays open until the group of functions that it belongs to is complete."""
    under_way = cx.session.under_way
    under_way.reach(making)
    making.taken = type = under_way.gives.get(making.key) or result_type(cx, making.code, annotations, span)
    operands = [v for t in terms for v in leaves(t)]
    for term in terms:
        settled_type(type_of(term))
    if making.key in under_way.random:
        operands.append(cx.draw(span))
    word = not is_fresh(cx.failure)
    operands += leaves(cx.failure) if word else []
    types = tuple(leaf_types(type))
    cx.builder.span = span
    owned = tuple(map(cx.builder.own, operands))
    results = cx.builder.append(recur, owned, types, results=types, function=making.number, word=word)
    if word:
        cx.word.term = cx.no_failure()  # a failure ends the run at the call
    return rebuild(type, list(results))


def complete(session: Session, making: Making, instance: Instance) -> Instance | None:
    """The innermost function under way when its body is there: left open, alone, or with its group as one loop.

    `None` where it must be elaborated once more, now that it is known which functions of the group draw, and what they
    give: which variants, and which texts.
    """
    under_way = session.under_way
    if making.outermost < len(under_way.stack) - 1:
        under_way.leave_open(making, instance)
        return instance
    if not making.called:
        return instance
    making.instance = instance
    group = [making, *under_way.inside(making)]
    drawing = {m.key for m in group if m.instance is not None and m.instance.random}
    other = gives_other(group)
    if not drawing <= under_way.random or other:
        under_way.random |= drawing
        under_way.gives |= other
        return None
    if many := for_few_variants([m.key for m in group]):
        session.wide |= many
        return None
    return joined(session, group)


def gives_other(group: Sequence[Making]) -> dict[Hashable, LangType]:
    """What functions give whose calls were taken to give something else: at first all that is declared, then less.

    So there is an end to it: of what a call gives, its function knows no less than before.
    """
    made = [(m, m.instance.type) for m in group if m.instance is not None]
    return {m.key: type for m, type in made if m.taken is not None and settled_type(m.taken) != settled_type(type)}


def text_decides(cx: Context, making: Making, span: Span) -> DifflangError | None:
    """The reason why a body is undecided, if that is a text that a call within its own group gives."""
    group = [making, *cx.session.under_way.inside(making)]
    if not any(m.taken is not None and holds(m.taken, (TextType,)) for m in group):
        return None
    name = making.code.decl.name
    message = f"`{name}` decides by a text that a call of itself gives: what that says, only the run would know"
    return mistake("DL0342", message, (span, ""), help="decide by what it takes, or by a number that it gives")


ALIKE = 2


def for_few_variants(keys: Sequence[Key]) -> set[Key]:
    """Those of one function for several sets of variants, where these are more than a few.

    What is known of a variant is decided before the run, so a call for other variants is another function. Among those
    that call each other all would be nearly the same code, and there are as many as the variants have subsets.
    """
    unifier = Unifier()
    alike: dict[Key, list[Key]] = {}
    for key in keys:
        every = key._replace(types=tuple([whole(unifier, t) for t in key.types]))
        alike.setdefault(every, []).append(key)
    return {k for every, several in alike.items() if len(several) > ALIKE for k in several if k != every}


def joined(session: Session, group: Sequence[Making]) -> Instance:
    """The first function of a group, without calls within the group."""
    from difflang.recursion.stack_machine import machine  # most programs have no recursion that only the run ends

    made = {m.number: m.instance for m in group if m.instance is not None}
    refuse_without_end(group)
    first, decl = group[0], group[0].code.decl
    for instance in made.values():
        settle(instance.graph, session.settled)
    names = " → ".join(f"`{n}`" for n in dict.fromkeys(str(m.code) for m in group))
    chain = f"{names} → `{decl.name}`"
    frames, steps = [session.site(Site(decl.name_span, chain, room)) for room in ("frames", "steps")]
    members = {number: member(instance) for number, instance in made.items()}
    allowed = session.most_steps
    most = (allowed, session.site(Site(decl.name_span, chain, most=allowed))) if allowed else None
    graph, shared = machine(members, first.number, (frames, steps), decl.name_span, decl.name, most)
    instance = made[first.number]
    fails = len(graph.results) > len(leaf_types(instance.type))
    types = {n: t for i in made.values() for n, t in i.globals}
    order = [label for n, t in types.items() for label in labels(n, t)]
    given, rest = graph.params[: -len(shared) or None], dict(zip(shared, graph.params[-len(shared) :], strict=False))
    args, key = (given[:-1], given[-1:]) if instance.random else (given, ())
    told = [rest[WELL]] if WELL in rest else []
    graph = Graph((*args, *[rest[label] for label in order], *key, *told), graph.eqns, graph.results, graph.name)
    session.settled.add(graph)
    return Instance(
        graph, instance.result, instance.type, tuple(types.items()), instance.random, fails, bool(told),
        any(i.chosen for i in made.values()),
        frozenset().union(*[i.effects for i in made.values()]), frozenset().union(*[i.calls for i in made.values()]),
        tightest(*[i.limit for i in made.values()]), len(made) - 1 + max(i.depth for i in made.values()),
    )  # fmt: skip


def labels(name: Global, type: LangType) -> list[Hashable]:
    return [(name, i) for i, _ in enumerate(leaf_types(type))]


def member(instance: Instance) -> Member:
    """An instance as the machine takes it: what calls give first, a key among it, and then what the file gives."""
    from difflang.recursion.basic_blocks import Member

    graph = instance.graph
    shared = [label for n, t in instance.globals for label in labels(n, t)]
    params: list[Value] = list(graph.params)
    told = [params.pop()] if instance.told else []
    key = [params.pop()] if instance.random else []
    split = len(params) - len(shared)
    order = (*params[:split], *key, *params[split:], *told)
    every = (*shared, *[WELL] * instance.told)
    return Member(Graph(order, graph.eqns, graph.results, graph.name), every, instance.fails)
