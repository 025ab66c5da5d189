"""Pass pipelines: every pass with its name and help, and the order in which they run, with the reason of each odd step.

`lower/lowering_pipeline.py` has the whole of them, with derivatives between. `difflang passes` prints them,
`difflang emit --after PASS` and `difflang viz --diff PASS` show a graph there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.ir import verify
from difflang.ir.graph import Graph, graphs_postorder
from difflang.passes.constant_integers import fold_known_integers
from difflang.passes.constant_scatters import scatters_to_gathers
from difflang.passes.constants_into_regions import sink_constants
from difflang.passes.contractions.contract_after_loops import contract_after_loops
from difflang.passes.contractions.drop_batch_axes import drop_batch_axes
from difflang.passes.contractions.sums_to_contractions import contract, slice_window_sums
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.fuse_loops import fuse
from difflang.passes.gather_sinking import sink_gathers
from difflang.passes.hoist import hoist, hoist_from_calls, hoist_from_nonempty_loops
from difflang.passes.inline import inline
from difflang.passes.loops.index_bounds import prove_comparisons
from difflang.passes.loops.loops_to_maps import loops_to_maps
from difflang.passes.loops.update_in_place import update_in_place
from difflang.passes.maps.vectorize_maps import vectorize_bounded_maps, vectorize_maps, vectorize_maps_keeping_branches
from difflang.passes.measured_rewrites import LEFT_OUT
from difflang.passes.order_axes import order_axes
from difflang.passes.reductions.cancel_shifts import cancel_shifts
from difflang.passes.reductions.compare_squares import compare_squares
from difflang.passes.reductions.index_extrema import index_extrema
from difflang.passes.reductions.tile import tile
from difflang.passes.reductions.totals import choose_totals
from difflang.passes.reductions.unroll_short_sums import unroll_short_sums
from difflang.passes.sharing.share_calls import share_recursive_calls
from difflang.passes.simplify import simplify
from difflang.passes.unroll import unroll


def is_differentiated(graph: Graph) -> bool:
    """Whether no equation of a graph and its regions is a derivative operator."""
    return not any(e.op.is_derivative for g in graphs_postorder(graph)[0] for e in g.eqns)


# What a pass may need of a graph, and how that is found out.
FACTS: Mapping[str, Callable[[Graph], bool]] = {"differentiated": is_differentiated}


class Pass(Struct, frozen=True):
    """A rewrite of a graph into one that computes the same.

    `needs` and `gives` are names in `FACTS`: what must hold of the graph before, and what holds of it afterwards.
    """

    run: Callable[[Graph], Graph]
    help: str
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    idempotent: bool = False  # a second run in a row changes nothing
    drops_rules: bool = False  # functions lose the derivative rules that the program gives them
    ignores_dead: bool = False  # that dead equations are gone is no reason to run again

    @property
    def name(self) -> str:
        return self.run.__name__

    def __call__(self, graph: Graph) -> Graph:
        """The graph afterwards. Where graphs are verified, so are `needs` and `gives`."""
        self.require(self.needs, graph, "before")
        after = verify.verify_if_enabled(self.run(graph), after=self.name)
        self.require(self.gives, after, "after")
        return after

    def require(self, facts: tuple[str, ...], graph: Graph, when: str) -> None:
        broken = [fact for fact in facts if verify.ENABLED and not FACTS[fact](graph)]
        if broken:
            raise InternalError(f"the graph is not {broken[0]} {when} the pass {self.name}")


class Step(Struct, frozen=True):
    """A pass at its place in a pipeline, and why it stands there if that is not plain."""

    of: Pass
    why: str = ""
    if_changed: bool = False  # only if the step before changed the graph


class Pipeline(Struct, frozen=True):
    """Passes in their order."""

    name: str
    help: str
    steps: tuple[Step, ...]

    def __call__(self, graph: Graph) -> Graph:
        for _, _, changed in self.trace(graph):
            graph = changed
        return graph

    def trace(self, graph: Graph) -> Iterator[tuple[Pass, Graph, Graph]]:
        """Run the steps but those that are known to change nothing: each pass, the graph before and the graph after."""
        known: dict[Pass, Graph] = {}  # for each pass, a graph that it would not change
        changed = True
        for step in self.steps:
            rewrite, before = step.of, graph
            if known.get(rewrite) is graph or (step.if_changed and not changed) or rewrite.name in LEFT_OUT:
                changed = False
                continue
            graph = rewrite(before)
            changed = graph is not before
            if not changed or rewrite.idempotent:
                known[rewrite] = graph
            if rewrite is DCE:
                known |= {p: graph for p, kept in known.items() if p.ignores_dead and kept is before}
            yield rewrite, before, graph


# ---- Every pass

INLINE = Pass(inline, "calls of functions that are small, called once, or take histories become their equations")
SHARE_RECURSIVE_CALLS = Pass(
    share_recursive_calls, "equal calls of functions that call themselves for other sizes are computed once, in batches"
)
SIMPLIFY = Pass(simplify, "local rewrite rules, until none applies; each keeps every bit", ignores_dead=True)
CSE = Pass(cse, "equations that compute the same values are computed once", idempotent=True, ignores_dead=True)
DCE = Pass(dce, "equations, carries and outputs that nobody reads are dropped", idempotent=True)
FUSE = Pass(fuse, "a loop, map or branch that reads another step by step runs within it")
HOIST = Pass(hoist, "what is the same in every step leaves loops and maps")
HOIST_FROM_NONEMPTY_LOOPS = Pass(
    hoist_from_nonempty_loops, "what is the same in every step leaves loops and maps that surely take one"
)
PROVE_COMPARISONS = Pass(prove_comparisons, "checks of indices that the limits of loops bound are gone")
LOOPS_TO_MAPS = Pass(loops_to_maps, "loops without recurrence become maps and reductions")
FOLD_KNOWN_INTEGERS = Pass(
    fold_known_integers,
    "integers, checks and masks that are everywhere the same number, by constants alone, are constants",
    idempotent=True,
)
HOIST_FROM_CALLS = Pass(
    hoist_from_calls, "what all calls of a function compute from the same operands is computed once, before them"
)
UNROLL = Pass(unroll, "short loops inside loops, and over layers that are differentiated, become their steps")
CANCEL_SHIFTS = Pass(cancel_shifts, "in derivatives an extremum on which no result depends, as in a softmax, has none")
CHOOSE_TOTALS = Pass(choose_totals, "of a sum and the same less 1, with more digits, one is computed")
INDEX_EXTREMA = Pass(
    index_extrema, "in derivatives an extremum of a large computed array is differentiated at the selected elements"
)
TILE = Pass(tile, "large arrays that are summed are computed tile by tile, and again in reverse")
VECTORIZE_MAPS = Pass(vectorize_maps, "operations on whole arrays replace those of each instance of a map")
VECTORIZE_MAPS_KEEPING_BRANCHES = Pass(
    vectorize_maps_keeping_branches,
    "operations on whole arrays replace those of each instance of a map, but for branches",
)
VECTORIZE_BOUNDED_MAPS = Pass(
    vectorize_bounded_maps, "operations on whole arrays replace maps without a loop of unknown length"
)
SINK_GATHERS = Pass(sink_gathers, "of an array that only gathers read, few rows are computed")
SLICE_WINDOW_SUMS = Pass(slice_window_sums, "a sum over a short window becomes a sum of slices")
CONTRACT = Pass(contract, "a sum of products becomes one contraction", needs=("differentiated",))
DROP_BATCH_AXES = Pass(
    drop_batch_axes,
    "products of a batch that are summed, or share a factor, are one larger product",
    needs=("differentiated",),
)
CONTRACT_AFTER_LOOPS = Pass(
    contract_after_loops,
    "products that a reverse loop adds up are one contraction after the loop",
    needs=("differentiated",),
)
UPDATE_IN_PLACE = Pass(
    update_in_place, "sums with a window of zeros touch that window; loops read before they overwrite"
)
ORDER_AXES = Pass(
    order_axes, "elementwise equations have their axes in the order that copies least", needs=("differentiated",)
)
COMPARE_SQUARES = Pass(compare_squares, "where norms are only compared with numbers, their squares are")
UNROLL_SHORT_SUMS = Pass(
    unroll_short_sums, "sums over a short axis of what is computed become additions", needs=("differentiated",)
)
SCATTERS_TO_GATHERS = Pass(
    scatters_to_gathers, "additions at known positions become sums of what is read there", needs=("differentiated",)
)
SINK_CONSTANTS = Pass(sink_constants, "constants move into the branches and loops that read them")

# ---- The pipelines

AFTER_FUSION = Step(CSE, "fused bodies have common subexpressions")
ROUND = (Step(INLINE), Step(SIMPLIFY), Step(CSE), Step(FUSE), AFTER_FUSION, Step(HOIST), Step(DCE))
# Each round opens work for the next: hoisted equations are simplified, what a fused body no longer reads is dropped.
ROUNDS = 3
DEAD_FIRST = Step(DCE, "what is dropped need not be rewritten")
SIMPLER_LATER = Step(SIMPLIFY, "what the step before made is not simple yet", if_changed=True)
PREPARE_STEPS = (
    Step(VECTORIZE_BOUNDED_MAPS, "the lookups of a map are one gather, whose derivative is one scatter"),
    Step(FOLD_KNOWN_INTEGERS, "the positions of nested counters are arrays of numbers now"),
    SIMPLER_LATER,
    Step(SLICE_WINDOW_SUMS),
    Step(CSE),
    Step(DCE),
    Step(HOIST_FROM_NONEMPTY_LOOPS, "an equation outside a loop is differentiated once, not in each step"),
)

PREPARE_KEEPING_LOOPS = Pipeline(
    "prepare keeping loops",
    "before derivatives of graphs that people read or that a memory plan cuts",
    (DEAD_FIRST, Step(CHOOSE_TOTALS), Step(INLINE), Step(SIMPLIFY), *PREPARE_STEPS),
)
PREPARE = Pipeline(
    "prepare",
    "before derivatives, so that little is differentiated",
    (
        *(DEAD_FIRST, Step(CHOOSE_TOTALS, "a program without derivatives needs one of both")),
        Step(SHARE_RECURSIVE_CALLS, "inlined calls are no longer seen"),
        *(Step(INLINE), Step(SIMPLIFY)),
        Step(PROVE_COMPARISONS, "a step without checks has no failure to carry"),
        SIMPLER_LATER,
        Step(CSE, "equal indices are one value"),
        DEAD_FIRST,
        Step(LOOPS_TO_MAPS, "their derivatives save and add nothing step by step"),
        Step(UNROLL, "steps are differentiated with the code around them"),
        SIMPLER_LATER,
        *PREPARE_STEPS,
        Step(SINK_GATHERS, "rows that nobody reads are not differentiated either"),
        Step(DCE),
        Step(CANCEL_SHIFTS),
        Step(INDEX_EXTREMA, "whole arrays show from what the operand is computed"),
        Step(CSE),
        Step(DCE),
        Step(TILE, "positions of extrema are results of tiles"),
    ),
)
OPTIMIZE = Pipeline(
    "optimize", "the same results, bit for bit, with less work: for formulas of cost", (DEAD_FIRST, *ROUND * ROUNDS)
)
OPTIMIZE_FULLY = Pipeline(
    "optimize fully",
    "after derivatives, before lowering; sums may be added in another order",
    (
        *(DEAD_FIRST, Step(HOIST_FROM_CALLS, "what leaves a function meets what the program computes around it")),
        *(Step(VECTORIZE_MAPS), Step(INLINE), Step(SIMPLIFY)),
        Step(FOLD_KNOWN_INTEGERS, "checks in branches of maps are arrays of numbers now"),
        *(SIMPLER_LATER, Step(CSE), Step(DCE), Step(CHOOSE_TOTALS, "what derivatives do not read is gone"), Step(DCE)),
        Step(SLICE_WINDOW_SUMS),
        Step(CONTRACT, "not before derivatives: masks of cotangents apply term by term"),
        Step(DROP_BATCH_AXES),
        Step(DCE, "a product that is contracted is read no more"),
        Step(CONTRACT_AFTER_LOOPS),
        Step(SCATTERS_TO_GATHERS),
        Step(ORDER_AXES, "contractions are made, and have given their results the order of their batches"),
        Step(ORDER_AXES, "what the step before transposes may follow what it reads", if_changed=True),
        *(Step(CSE, "equal norms are one value"), Step(COMPARE_SQUARES, "other passes see norms until here")),
        Step(UNROLL_SHORT_SUMS, "what is a contraction is one already"),
        *(Step(CSE), Step(FUSE), AFTER_FUSION, Step(HOIST), Step(DCE)),
        *ROUND * (ROUNDS - 1),
        Step(UPDATE_IN_PLACE, "no pass has rules for what it makes"),
        Step(DCE, if_changed=True),
    ),
)
OPTIMIZE_FOR_READING = Pipeline(
    "optimize for reading",
    "for people; sizes may have names, and sums of products stay sums",
    (
        DEAD_FIRST,
        *(
            Step(VECTORIZE_MAPS_KEEPING_BRANCHES),
            *(Step(INLINE), Step(CSE), Step(DCE), Step(CHOOSE_TOTALS)),
            Step(SINK_CONSTANTS, "rules and readers see them there"),
            *(Step(SIMPLIFY), Step(CSE), Step(FUSE), AFTER_FUSION, Step(HOIST), Step(DCE)),
        )
        * ROUNDS,
    ),
)
