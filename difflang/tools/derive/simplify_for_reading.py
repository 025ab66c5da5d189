"""A derivative as the graph that reads best: taken and made smaller, its values called as in the program."""

from __future__ import annotations

from collections.abc import Mapping

from difflang.ad.expand_derivatives import differentiate
from difflang.base.source import Span
from difflang.driver.check_and_run import CheckedProgram
from difflang.ir import symbolic_dims
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ops.control.print_effect import without_check_messages
from difflang.passes.checkpoint_dynamic_loops import checkpoint_dynamic_loops
from difflang.passes.dynamic_loop_outputs import arrays_to_histories
from difflang.passes.inline_regions import inline_regions
from difflang.passes.merge_equal_loops import merge_equal_loops
from difflang.passes.merge_history_sources import merge_history_sources
from difflang.passes.name_hints import apply_name_hints
from difflang.passes.pipelines import optimize_for_reading, prepare_for_ad
from difflang.passes.substitute_dims import substitute_graph_dims
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes


def let_names(checked: CheckedProgram, graph: Graph) -> dict[Span, str]:
    """What the program calls the values of its expressions: the names of `let`s and of what is assigned to."""
    sources = {e.span.source for g in graphs_postorder(graph)[0] for e in g.eqns if e.span}
    modules = [*checked.module.transitive_imports(), *([checked.module.prelude] if checked.module.prelude else [])]
    found: dict[Span, str] = {}
    for module in [m for m in modules if m.source in sources]:
        for node in [n for decl in module.fns.values() for n in all_nodes(decl)]:
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


def simplify_graph(graph: Graph, names: Mapping[Span, str], *, recompute: bool = False) -> Graph:
    """The graph without derivative equations, as it reads best."""
    found = optimize_for_reading(expand_with_names(graph, names, recompute=recompute))
    merged = merge_equal_loops(found)
    return merge_history_sources(found if merged is found else optimize_for_reading(merged))


def expand_with_names(graph: Graph, names: Mapping[Span, str], *, recompute: bool = False) -> Graph:
    """The graph without derivative equations, its values called as in the program; sizes may be names.

    Steps with a loop of unknown length in them are done `again` on the way back.
    """
    found = prepare_for_ad(apply_name_hints(with_symbolic_sizes(graph), names))
    return inline_regions(differentiate(checkpoint_dynamic_loops(found) if recompute else found))


def with_symbolic_sizes(graph: Graph) -> Graph:
    """The graph with sizes that may be names: none is asked for while it runs."""
    graph = without_check_messages(graph)
    freely = arrays_to_histories(graph)
    return substitute_graph_dims(graph if freely is None else freely, symbolic_dims.dim_name)
