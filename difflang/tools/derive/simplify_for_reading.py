"""A derivative as the graph that reads best: taken and made smaller, its values called as in the program."""

from __future__ import annotations

from collections.abc import Mapping

from difflang.ad.expand_derivatives import differentiate
from difflang.base.source import Span
from difflang.driver.check_and_run import Checked
from difflang.ir import symbolic_dims
from difflang.ir.graph import Graph, inner_first
from difflang.ops.control.print_effect import printing
from difflang.passes.checkpoint_dynamic_loops import done_again
from difflang.passes.dynamic_loop_outputs import as_histories
from difflang.passes.inline_regions import flatten
from difflang.passes.merge_equal_loops import once
from difflang.passes.merge_history_sources import abreast
from difflang.passes.name_hints import hinted
from difflang.passes.pipelines import readable, tidied
from difflang.passes.substitute_dims import sized
from difflang.syntax import tree
from difflang.syntax.tree_queries import nodes


def names_of_lets(checked: Checked, graph: Graph) -> dict[Span, str]:
    """What the program calls the values of its expressions: the names of `let`s and of what is assigned to."""
    sources = {e.span.source for g in inner_first(graph)[0] for e in g.eqns if e.span}
    modules = [*checked.module.reached(), *([checked.module.prelude] if checked.module.prelude else [])]
    found: dict[Span, str] = {}
    for module in [m for m in modules if m.source in sources]:
        for node in [n for decl in module.fns.values() for n in nodes(decl)]:
            match node:
                case tree.Let(pattern=tree.NamePattern(name=name), value=value):
                    found[value.span] = name
                case tree.Var(pattern=tree.NamePattern(name=name), value=value):
                    found[value.span] = name
                case tree.Assign(target=tree.Name(id=name), value=value):
                    found[value.span] = name
                case _:
                    pass
    return found


def simplified(graph: Graph, names: Mapping[Span, str], *, again: bool = False) -> Graph:
    """The graph without derivative equations, as it reads best."""
    found = readable(derived_by_name(graph, names, again=again))
    merged = once(found)
    return abreast(found if merged is found else readable(merged))


def derived_by_name(graph: Graph, names: Mapping[Span, str], *, again: bool = False) -> Graph:
    """The graph without derivative equations, its values called as in the program; sizes may be names.

    Steps with a loop of unknown length in them are done `again` on the way back.
    """
    found = tidied(hinted(with_names(graph), names))
    return flatten(differentiate(done_again(found) if again else found))


def with_names(graph: Graph) -> Graph:
    """The graph with sizes that may be names: none is asked for while it runs."""
    graph = printing(graph)
    freely = as_histories(graph)
    return sized(graph if freely is None else freely, symbolic_dims.name)
