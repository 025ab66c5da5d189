"""The compiler pipeline from an elaborated graph to the graph that is lowered: optimize, differentiate, optimize."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.ad.expand_derivatives import differentiate, expand_derivatives
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.tensor_types import History
from difflang.lower.capacity import INITIAL_CAPACITY, UNBOUNDED, Capacity, stores_unbounded_steps, with_capacity
from difflang.lower.check_history_reads import reads_history_out_of_scope, refuse_stray_histories
from difflang.ops.control.print_effect import only_check_messages, without_check_messages
from difflang.passes.drop_placements import drop_placements
from difflang.passes.pipelines import (
    OPTIMIZE,
    OPTIMIZE_FOR_READING,
    OPTIMIZE_FULLY,
    PREPARE,
    PREPARE_KEEPING_LOOPS,
    TILE,
    Pass,
    Pipeline,
    Step,
)

DIFFERENTIATE = Pass(
    differentiate,
    "derivative operators become the equations of the derivatives",
    gives=("differentiated",),
    drops_rules=True,
)
ON_ONE_DEVICE = Pass(drop_placements, "arrays that are split over devices are whole: there is one device")
COMPILE_ON_MESH = Pipeline(
    "compile on a mesh",
    "the same for a mesh of devices",
    # Tiles of an axis that is split would be sent.
    tuple([step for step in (*PREPARE.steps, Step(DIFFERENTIATE), *OPTIMIZE_FULLY.steps) if step.of is not TILE]),
)
COMPILE = Pipeline(
    "compile",
    "from an elaborated graph to the one that is lowered",
    (Step(ON_ONE_DEVICE), *PREPARE.steps, Step(DIFFERENTIATE), *OPTIMIZE_FULLY.steps),
)
INTERPRET = Pipeline(
    "interpret",
    "from an elaborated graph to the one that is interpreted, without passes that add sums in another order",
    (Step(ON_ONE_DEVICE), *PREPARE_KEEPING_LOOPS.steps, Step(DIFFERENTIATE), *OPTIMIZE.steps),
)
PIPELINES = (COMPILE, INTERPRET, PREPARE_KEEPING_LOOPS, OPTIMIZE, OPTIMIZE_FOR_READING)


def finalize_graph(
    graph: Graph,
    capacity: Capacity = INITIAL_CAPACITY,
    *,
    explained: bool = False,
    pipeline: Pipeline = COMPILE,
) -> Graph:
    """The graph as it is lowered, or interpreted: without derivative equations, optimized.

    It prints what the program prints, or if `explained` only the messages of its checks. Recursion is limited by
    `capacity`. Loops that store nothing per step take any number of steps. Dynamic loop outputs are arrays of limited
    capacity where a history is read away from its producer or is moved to the host.
    """
    return fit_capacity(only_check_messages(graph) if explained else without_check_messages(graph), capacity, pipeline)[
        1
    ]


def fit_capacity(graph: Graph, capacity: Capacity, pipeline: Pipeline = COMPILE) -> tuple[Graph, Graph]:
    """The graph with the limits that its finished form needs, and that form."""
    # Try without limits first: only what the differentiated graph really stores needs a capacity.
    steps, arrays = UNBOUNDED, False
    while True:
        start = with_capacity(graph, replace(capacity, steps=steps), arrays=arrays)
        done = pipeline(start)
        # Once: an array of the program itself may have that size.
        if steps == UNBOUNDED and stores_unbounded_steps(done):
            steps = capacity.steps
        elif not arrays and (reads_history_out_of_scope(done) or offloads_histories(done)):
            arrays = True
        else:
            if arrays:
                refuse_stray_histories(done)
            return start, done


def offloads_histories(graph: Graph) -> bool:
    """Whether a loop stores a history that it should offload to the host; a history has no array to move."""
    loops = [e for g in graphs_postorder(graph)[0] for e in g.eqns if e.attrs.get("host")]
    return any(isinstance(r.type, History) for e in loops for r in e.results)


def differentiate_graph(graph: Graph, capacity: Capacity = INITIAL_CAPACITY) -> Graph:
    """The graph without derivative equations, simplified before differentiation so that less is differentiated."""
    return DIFFERENTIATE(PREPARE_KEEPING_LOOPS(with_capacity(without_check_messages(graph), capacity)))


def expand_keeping_rules(graph: Graph, capacity: Capacity = INITIAL_CAPACITY) -> Graph:
    """The same, but calls of functions with derivative rules stay: for graphs that are differentiated further."""
    return expand_derivatives(PREPARE_KEEPING_LOOPS(with_capacity(without_check_messages(graph), capacity)))


def graph_after(graph: Graph, name: str) -> Graph:
    """The graph after the last run of a pass, in the first pipeline that has it.

    On its way to the graph that is lowered, else to the one that is interpreted, else to the one that people read.
    Errors: ValueError for a name that no pass has.
    """
    for pipeline in PIPELINES:
        if any(step.of.name == name for step in pipeline.steps):
            start = start_of(pipeline, graph)
            # A pass that is left out in a measurement changes nothing.
            return [start, *[after for rewrite, _, after in pipeline.trace(start) if rewrite.name == name]][-1]
    raise ValueError(f"there is no pass {name!r}")


def start_of(pipeline: Pipeline, graph: Graph) -> Graph:
    """What a pipeline starts with, of an elaborated graph."""
    if pipeline in (COMPILE, COMPILE_ON_MESH, INTERPRET):
        return fit_capacity(without_check_messages(graph), INITIAL_CAPACITY, pipeline)[0]
    if pipeline is PREPARE_KEEPING_LOOPS:
        return with_capacity(without_check_messages(graph), INITIAL_CAPACITY)
    return differentiate_graph(graph)


STAGES = ("ir", "derived", "optimized")


def graph_at_stage(graph: Graph, stage: str) -> Graph:
    """The graph at a stage: as elaborated, without derivative equations, or as it is lowered.

    Errors: ValueError for another stage.
    """
    match stage:
        case "ir":
            return graph
        case "derived":
            return differentiate_graph(graph)
        case "optimized":
            return finalize_graph(graph)
        case _:
            raise ValueError(f"there is no stage {stage!r}: the stages are {', '.join(STAGES)}")
