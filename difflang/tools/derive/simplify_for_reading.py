"""Simplifies a derivative's graph for readability: differentiated, optimized, with the program's variable names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ad.expand_derivatives import differentiate
from difflang.base.source import Span
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall
from difflang.elaborate.terms import leaf_hints
from difflang.ir import symbolic_dims
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import History
from difflang.ops.ad_interface import zeros
from difflang.ops.control.checkpoint_block import emit_checkpoint
from difflang.ops.control.cond import cond
from difflang.ops.control.custom_linear_solve import as_primal_call, custom_linear_solve
from difflang.ops.control.derivative_operators import vjp
from difflang.ops.control.map import map_
from difflang.ops.control.print_effect import without_check_messages
from difflang.ops.loop.loop_op import loop
from difflang.passes.drop_placements import drop_declared_placements
from difflang.passes.dynamic_loop_outputs import arrays_to_histories
from difflang.passes.inline import is_inlinable_call, splice
from difflang.passes.merge_equal_loops import merge_equal_loops, merge_history_sources
from difflang.passes.name_hints import apply_name_hints
from difflang.passes.pipelines import OPTIMIZE_FOR_READING, PREPARE_KEEPING_LOOPS
from difflang.passes.substitute_dims import substitute_graph_dims
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.language_types import leaf_types


def let_names(checked: CheckedProgram, graph: Graph) -> dict[Span, str]:
    """The program's names for the values of its expressions: those of `let`s and of assignment targets."""
    sources = {e.span.source for g in graphs_postorder(graph)[0] for e in g.eqns if e.span}
    modules = [*checked.module.transitive_imports(), *([checked.module.prelude] if checked.module.prelude else [])]
    found: dict[Span, str] = {}
    for module in [m for m in modules if m.source in sources]:
        # Spans identify expressions: an equation keeps the span of the expression it came from.
        for node in [n for decl in module.fns.values() for n in all_nodes(decl)]:
            match node:
                case (
                    tree.Let(pattern=tree.NamePattern(name=name), value=value)
                    | tree.Var(pattern=tree.NamePattern(name=name), value=value)
                    | tree.Assign(target=tree.Name(id=name), value=value)
                ):
                    found[value.span] = name
                case _:
                    pass
    return found


def simplify_graph(graph: Graph, names: Mapping[Span, str], *, recompute: bool = False) -> Graph:
    """The graph without derivative equations, simplified for reading."""
    found = OPTIMIZE_FOR_READING(expand_with_names(graph, names, recompute=recompute))
    # Merging loops exposes further simplifications; without a merge there are none.
    merged = merge_equal_loops(found)
    return merge_history_sources(found if merged is found else OPTIMIZE_FOR_READING(merged))


def expand_with_names(graph: Graph, names: Mapping[Span, str], *, recompute: bool = False) -> Graph:
    """The graph without derivative equations, with the program's names for values; sizes may be symbolic.

    With `recompute`, steps that contain a loop of unknown length are rematerialized in the reverse sweep.
    """
    plain = drop_declared_placements(with_symbolic_sizes(graph))
    found = PREPARE_KEEPING_LOOPS(apply_name_hints(plain, names))
    return inline_regions(differentiate(checkpoint_dynamic_loops(found) if recompute else found))


def with_symbolic_sizes(graph: Graph) -> Graph:
    """The graph with symbolic sizes, without checks of them at run time."""
    graph = without_check_messages(graph)
    freely = arrays_to_histories(graph)
    return substitute_graph_dims(graph if freely is None else freely, symbolic_dims.dim_name)


def inline_regions(graph: Graph) -> Graph:
    """The graph with every region that runs once in the place of its equation. Cost: linear in what it gives."""
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        done[inner] = inline_level(inner, done)
    return done[graph]


def inline_level(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    if not any(e.regions for e in graph.eqns):
        return graph
    to: dict[Value, Value] = {}
    eqns: list[Eqn] = []
    for old in graph.eqns:
        eqn = old.replace_operands(to) if to else old
        if eqn.regions:
            eqn = eqn.with_regions([done[r] for r in eqn.regions])
        # Derivatives have been taken: drop what an op keeps only for its derivative, such as an inverse.
        if eqn.op.without_derivative is not None:
            eqn = eqn.op.without_derivative(eqn, False)
        if eqn.op is custom_linear_solve:
            eqn = as_primal_call(eqn)
        if is_inlinable_call(eqn) or is_isolated_call(eqn):
            found = splice(eqn.regions[0], eqn.operands, eqns)
            to.update(zip(eqn.results, found, strict=False))
        else:
            eqns.append(eqn)
    return graph.with_eqns(eqns).replace_results(to)


def is_isolated_call(eqn: Eqn) -> bool:
    """Whether it runs its single region once on its operands, though other passes may not inline it."""
    if eqn.op.region_dataflow is None or len(eqn.regions) != 1:
        return False
    layout = eqn.op.region_dataflow(eqn)
    return layout.never_inlined and not layout.repeats


def checkpoint_dynamic_loops(graph: Graph) -> Graph:
    """The graph with loops of unknown length wrapped in checkpoints inside other loops and branches. Cost: linear."""
    done: dict[Graph, Graph] = {}
    endless: dict[Graph, bool] = {}
    for inner in graphs_postorder(graph)[0]:
        endless[inner] = any(is_dynamic_loop(e) or any(endless[r] for r in e.regions) for e in inner.eqns)
        eqns = [e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in inner.eqns]
        new = [checkpoint_bodies(e, old, endless) for e, old in zip(eqns, inner.eqns, strict=True)]
        done[inner] = inner.with_eqns(new)
    return done[graph]


def is_dynamic_loop(eqn: Eqn) -> bool:
    """Whether its number of steps is known only at run time."""
    return eqn.op is loop and not eqn.attrs["exact"]


def checkpoint_bodies(eqn: Eqn, old: Eqn, endless: dict[Graph, bool]) -> Eqn:
    """The equation with its steps or branches wrapped in checkpoints if they contain a loop of unknown length."""
    count = {loop: 1, map_: 1, cond: len(eqn.regions)}.get(eqn.op, 0)
    regions = list(eqn.regions)
    for i, was in enumerate(old.regions[:count]):
        if endless[was] and not any(isinstance(v.type, History) for v in (*was.params, *was.results)):
            regions[i] = wrap_in_checkpoint(regions[i])
    return eqn.with_regions(regions)


def wrap_in_checkpoint(body: Graph) -> Graph:
    types = [p.type for p in body.params]
    return build_region(
        types, lambda *xs: emit_checkpoint(xs[0].home, body, xs, len(body.results), recompute=False), body.name
    )


def value_and_pullback(
    plain: ElaboratedCall, arguments: Sequence[CallArgument], cotangent: CallArgument, paths: Sequence[str]
) -> Graph:
    """The graph of a function with its pullback, given a cotangent of the value.

    Shapes: takes the function's params with the cotangent after the arguments; gives the value, the cotangents of the
    arguments at these paths, and the failure.
    """
    builder = Builder()
    f = plain.graph
    hints = [h for a in arguments if a.size is None for h in leaf_hints(a.type, a.name)]
    # Params in order: arguments, the cotangent, then the rest (a random key, values of the file).
    own = [builder.param(p.type, p.hint) for p in f.params[: len(hints)]]
    ct_hints = leaf_hints(cotangent.type, cotangent.name)
    given = [builder.param(t, h) for t, h in zip(leaf_types(cotangent.type), ct_hints, strict=True)]
    hidden = [builder.param(p.type, p.hint) for p in f.params[len(hints) :]]
    places = [place for path in paths for place in leaves_at_path(path, hints, own)]
    wrt = tuple([i in places for i in range(len(f.params))])
    values = len(leaf_types(plain.type))
    left = iter(given)
    smooth = [(i, r.type) for i, r in enumerate(f.results) if r.type.tangent is not None]
    cts = [next(left) if i < values else zeros(builder, type) for i, type in smooth]
    found = builder.emit(vjp, [*own, *hidden, *cts], (f,), wrt=wrt)
    count = len(f.results)
    pulled: dict[int, Value] = dict(zip([i for i, w in enumerate(wrt) if w], found[count:], strict=True))
    results = [*found[:values], *[pulled[p] for p in places], *found[values:count]]
    return builder.finish(results, params=[*own, *given, *hidden], name=f.name)


def leaves_at_path(path: str, hints: Sequence[str], params: Sequence[Value]) -> list[int]:
    """The indices of the differentiable leaves below a path of fields."""
    inside = [i for i, h in enumerate(hints) if h == path or h.startswith(f"{path}.")]
    return [i for i in inside if params[i].type.tangent is not None]
