"""Passes on graphs: those of the compiler by name, and those of users. A pass says what it needs and what it gives.

What is known of a graph are facts: some are computed from the graph itself, others come from passes and travel with it
until a pass changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct

from difflang.ad.expand_derivatives import custom_rules
from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.wording import with_article
from difflang.graph.graph_errors import graph_error, unknown_pass, verified
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.graph import graphs_postorder
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import UnknownSize
from difflang.lower.lowering_pipeline import PIPELINES
from difflang.passes.pipelines import FACTS, Pass
from difflang.passes.substitute_dims import has_symbolic_dims


def has_known_sizes(graph: IrGraph) -> bool:
    """Whether every size of a graph and its regions is a number."""
    values = [v for g in graphs_postorder(graph)[0] for v in (*g.params, *[r for e in g.eqns for r in e.results])]
    return not any(has_symbolic_dims(v.type) for v in values)


# The facts that a graph has by itself.
COMPUTED_FACTS: Mapping[str, Callable[[IrGraph], bool]] = {**FACTS, "shapes": has_known_sizes}


class GraphWithFacts(Protocol):
    """What a pass needs of a graph."""

    @property
    def ir(self) -> IrGraph: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def can_fail(self) -> bool: ...

    @property
    def dropped_rules(self) -> tuple[str, ...]: ...

    def derive(self, ir: IrGraph, facts: Mapping[str, Any] | None = None, dropped_rules: Sequence[str] = ()) -> Any: ...


G = TypeVar("G", bound=GraphWithFacts)
F = TypeVar("F", bound=Callable[..., Any])


class GraphPass(Struct, frozen=True, eq=False):
    """A pass by name: what it does, the facts that it needs of a graph and gives, and whether it changes the graph."""

    name: str
    help: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    changes_graph: bool
    run: Callable[[Any], Any]
    of_compiler: bool = False

    def __repr__(self) -> str:
        needs = f", needs {', '.join(self.needs)}" if self.needs else ""
        gives = f", gives {', '.join(self.gives)}" if self.gives else ""
        return f"<pass {self.name}: {self.help}{needs}{gives}>"


def passes() -> tuple[GraphPass, ...]:
    """Every pass: those of the compiler in the order in which they run, then those of users."""
    return tuple(PASSES.values())


def graph_pass(
    name: str, *, needs: Sequence[str] = (), gives: Sequence[str] = (), changes_graph: bool = True, help: str = ""
) -> Callable[[F], F]:
    """Make a function of a graph a pass, which `g.apply(name)` runs.

    It returns a graph with the same inputs and outputs; or, if it does not change the graph, the fact that it gives, of
    several facts a dict. Without `help`, that is the first line of its docstring. A later pass of the same name
    replaces it.

    Errors: DL1251 for the name of a pass of the compiler or no name, for anything but a function, and if it neither
    changes the graph nor gives a fact.
    """
    wanted, given = names_of(needs), names_of(gives)
    if not isinstance(name, str) or not name.strip() or "," in name:  # pyright: ignore[reportUnnecessaryIsInstance]
        way = 'a name is a text without commas: `@graph_pass("smooth")`'
        raise graph_error("DL1251", f"{name!r:.40} is no name of a pass", help=way)
    if name in PASSES and PASSES[name].of_compiler:
        raise graph_error("DL1251", f"the compiler has a pass `{name}`", help="choose another name")
    if known := [fact for fact in given if fact in COMPUTED_FACTS]:
        way = "no pass need give it: choose another name"
        raise graph_error("DL1251", f"a graph has the fact `{known[0]}` by itself", help=way)
    if not changes_graph and not given:
        way = 'name what it returns: `gives=["flops"]`'
        raise graph_error("DL1251", f"the pass `{name}` neither changes the graph nor gives a fact", help=way)

    def register(function: F) -> F:
        if not callable(function):
            what = with_article(type(function).__name__)
            raise graph_error("DL1251", f"the pass `{name}` is a function of a graph, not {what}")
        text = help or (function.__doc__ or "").strip().split("\n")[0]
        PASSES[name] = GraphPass(name, text, wanted, given, changes_graph, function)
        return function

    return register


def names_of(facts: Any) -> tuple[str, ...]:
    """The names of facts: of one or more. Errors: DL1251 for anything but texts."""
    several = isinstance(facts, Iterable) and not isinstance(facts, str)
    found: tuple[Any, ...] = tuple(cast(Iterable[Any], facts)) if several else (facts,)
    if wrong := [fact for fact in found if not isinstance(fact, str)]:
        raise graph_error("DL1251", f"{wrong[0]!r:.40} is no name of a fact", help='write `needs=["shapes"]`')
    return found


def apply_pass(graph: G, name: str, *, auto: bool = False) -> G:
    """The graph after a pass; if `auto`, after those that give what it needs.

    Errors: DL0201 for an unknown pass; DL1251 if it cannot run or breaks its promise.
    """
    if not isinstance(name, str) or name not in PASSES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise unknown_pass(str(name), PASSES)
    found = PASSES[name]
    if auto:
        graph = with_needs(graph, found, ())
    for fact in found.needs:
        if not fact_holds(graph, fact):
            raise missing_fact(found, fact, auto=auto)
    try:
        result = found.run(graph)
    except (InternalError, TypeMismatch, UnknownSize) as fault:
        raise graph_error("DL1251", f"the pass `{name}` failed: {fault}") from fault
    except DifflangError as error:
        first = error.diagnostics[0]
        labels = [(label.span, label.text) for label in first.labels]
        message = f"the pass `{name}` failed: {first.message}"
        raise graph_error("DL1251", message, *labels, help="\n".join(first.helps)) from error
    if found.changes_graph:
        return rewritten(graph, found, result)
    return graph.derive(graph.ir, {**graph.facts, **given_facts(found, result)})


def with_needs(graph: G, wanted: GraphPass, chain: tuple[GraphPass, ...]) -> G:
    """The graph after passes that give what a pass needs, as far as there are any: the first that gives each.

    Errors: DL1251 if passes need each other.
    """
    if wanted in chain:
        names = " needs ".join([f"`{p.name}`" for p in (*chain[chain.index(wanted) :], wanted)])
        raise graph_error("DL1251", f"no pass can run first: {names}")
    givers = {fact: giver for giver in reversed(PASSES.values()) for fact in giver.gives}
    missing = [givers[fact] for fact in wanted.needs if fact in givers and not fact_holds(graph, fact)]
    # Those that change the graph first: it then loses the facts of the others.
    for giver in sorted(dict.fromkeys(missing), key=lambda p: not p.changes_graph):
        graph = apply_pass(with_needs(graph, giver, (*chain, wanted)), giver.name)
    return graph


def rewritten(graph: G, found: GraphPass, result: Any) -> G:
    """What a pass that changes the graph gives. Errors: DL1251 for anything but a graph of the same type."""
    if not isinstance(result, type(graph)):
        message = f"the pass `{found.name}` returned {with_article(type(result).__name__)} instead of a graph"
        raise graph_error("DL1251", message, help="a pass with `changes_graph=False` returns the facts that it gives")
    if result.ir.type != graph.ir.type:
        before, after = type_text(graph.ir), type_text(result.ir)
        message = f"the pass `{found.name}` changed the type of the graph from {before} to {after}"
        way = "a pass keeps inputs and outputs: call a function that does not"
        raise graph_error("DL1251", message, help=way)
    if result.can_fail != graph.can_fail:
        message = f"the pass `{found.name}` {'added' if result.can_fail else 'dropped the'} checks of the program"
        raise graph_error("DL1251", message, help="a graph that was parsed or built has none: edit the graph that came")
    # In the program of the graph that the pass got: one from JSON knows neither its arrays nor its random key.
    gives = {fact: True for fact in found.gives if fact not in result.facts}
    if result is graph and not gives:
        return graph
    return graph.derive(result.ir, {**result.facts, **gives}, result.dropped_rules)


def given_facts(found: GraphPass, result: Any) -> dict[str, Any]:
    """The facts that a pass has found. Errors: DL1251 if they are not those that it gives."""
    if len(found.gives) == 1:
        return {found.gives[0]: result}
    facts = cast(dict[str, Any], result) if isinstance(result, Mapping) else {}
    if set(facts) != set(found.gives):
        wanted, have = ", ".join(found.gives), ", ".join(map(str, facts)) or with_article(type(result).__name__)
        raise graph_error("DL1251", f"the pass `{found.name}` gives a dict of {wanted}, but it returned {have}")
    return dict(facts)


def type_text(graph: IrGraph) -> str:
    takes, gives = [", ".join(map(str, types)) for types in graph.type]
    return f"({takes}) -> ({gives})"


def fact_holds(graph: GraphWithFacts, fact: str) -> bool:
    return fact in graph.facts or (fact in COMPUTED_FACTS and COMPUTED_FACTS[fact](graph.ir))


def missing_fact(found: GraphPass, fact: str, *, auto: bool) -> DifflangError:
    """The error that names the passes which give what is missing; if `auto`, one of them has run."""
    givers = [f"`{p.name}`" for p in PASSES.values() if fact in p.gives]
    message = f"the pass `{found.name}` needs `{fact}`, which this graph does not have"
    way = f"apply {' or '.join(givers)} first" if givers else "no pass gives it"
    if auto and givers:
        way = "another pass that it needs changes the graph, which drops this fact: one pass may give both"
    if fact == "shapes":
        way = "give the sizes numbers: `g.with_sizes(n=3)`"
    return graph_error("DL1251", message, help=way)


def compiler_pass(rewrite: Pass) -> GraphPass:
    def run(graph: GraphWithFacts) -> Any:
        after = rewrite(graph.ir)
        # A graph that did not change keeps its facts.
        dropped = custom_rules(graph.ir) if rewrite.drops_rules else ()
        return graph if after is graph.ir else graph.derive(verified(after), dropped_rules=dropped)

    return GraphPass(rewrite.name, rewrite.help, rewrite.needs, rewrite.gives, True, run, of_compiler=True)


PASSES: dict[str, GraphPass] = {
    step.of.name: compiler_pass(step.of) for pipeline in PIPELINES for step in pipeline.steps
}
