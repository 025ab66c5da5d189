"""Lowers a graph to JAX primitives, in the current trace.

Each op lowers itself, so no op is known here by name. This module holds the walk, source positions, shared functions,
outlined segments, and the limit on a program's size (DL1010). `split_fusion_chains` decides where a program is cut.
JAX's own differentiation is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core.primitives import empty2_p
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder, with_eqn_span
from difflang.ir.interpreter import TextSink, discard_text
from difflang.ir.op import AxisPermutation, Fill, LowerRule, Op, Placement
from difflang.ir.structural_equality import StructuralKeys
from difflang.ir.tensor_types import History, Tensor, numpy_dtype
from difflang.lower.check_history_reads import refuse_stray_histories
from difflang.lower.cpu.outlining import EqnOrSegment, OutlinedSegment
from difflang.lower.cpu.split_fusion_chains import ChainSplitter
from difflang.lower.drop_transfers_in_maps import drop_transfers_in_maps
from difflang.lower.reassociation_barriers import ReassociationBarriers
from difflang.lower.source_locations import SourceFrames
from difflang.passes.dce import dce
from difflang.passes.measured_rewrites import LEFT_OUT

Array = Any
Env = dict[Value, Array]


class DeferredFill(Struct, frozen=True):
    """An array filled with one number, not yet materialized, and the operands to materialize it from."""

    eqn: Eqn
    arrays: Sequence[Array]
    number: Any


class DeferredTranspose(Struct, frozen=True):
    """A transpose not yet materialized: axis i is axis `order[i]` of the array in `arrays`."""

    eqn: Eqn
    arrays: Sequence[Array]
    order: tuple[int, ...]

    @property
    def array(self) -> Array:
        return self.arrays[0]


Deferred = (DeferredFill, DeferredTranspose)


def defer_result(eqn: Eqn, arrays: Sequence[Array]) -> DeferredFill | DeferredTranspose | None:
    """The unmaterialized form of an equation's result, if it has one. An empty history is no array of numbers."""
    match eqn.op.movement:
        case Fill(value) if isinstance(eqn.results[0].type, Tensor):
            number = value(*arrays, **eqn.attrs)
            return None if number is None else DeferredFill(eqn, arrays, number)
        case AxisPermutation(order):
            return DeferredTranspose(eqn, arrays, order(**eqn.attrs))
        case _:
            return None


class Lowering:
    """Lowers one program. `platform` decides where it is cut; shared functions are traced once."""

    __slots__ = (
        "barriers",
        "batch_size",
        "census",
        "chains",
        "frames",
        "functions",
        "in_loop",
        "jax",
        "keys",
        "on_print",
        "platform",
        "restricted_regions",
        "segment_functions",
    )  # fmt: skip

    def __init__(self, module: Any, platform: str = "cpu", says: TextSink = discard_text) -> None:
        self.jax = module
        self.platform = platform
        self.on_print = says
        self.frames = SourceFrames()
        self.chains = ChainSplitter()
        self.barriers = ReassociationBarriers()
        self.functions: dict[Graph, Callable[..., Any]] = {}
        self.keys = StructuralKeys()
        self.segment_functions: dict[int, Callable[..., Any]] = {}
        self.census: RegionCensus | None = None
        self.in_loop = False
        self.batch_size = 1  # the product of the batch sizes of enclosing maps
        self.restricted_regions: dict[tuple[Graph, tuple[Value, ...]], Graph] = {}

    def prepare_program(self, graph: Graph) -> Graph:
        """The program, ready to be lowered. Errors: DL1010 if it is too large."""
        graph = drop_transfers_in_maps(graph)
        self.census = count_equations(graph)
        refuse_too_large(graph, self.census)
        # How arrays are split is written into a graph whose reads have been checked; it hides that steps are the same.
        if not any([isinstance(e.op.movement, Placement) for e in graph.eqns]):
            refuse_stray_histories(graph)
        return graph

    def graph(self, graph: Graph, *arrays: Array) -> list[Array]:
        """The graph's results. The first graph lowered is the program.

        Errors: DL1010 if the program is too large; what the ops' rules refuse, at the equation's span.
        """
        if self.census is None:
            graph = self.prepare_program(graph)
        env: Env = dict(zip(graph.params, arrays, strict=True))
        steps = self.chains.plan(graph, self.in_loop) if self.platform == "cpu" else graph.eqns
        self.steps(steps, env)
        return [self.array(r, env) for r in graph.results]

    def restrict_results(self, region: Graph, results: Sequence[Value]) -> Graph:
        """A region with other results, without the equations they do not need."""
        key = (region, tuple(results))
        found = self.restricted_regions.get(key)
        if found is None:
            found = self.restricted_regions[key] = (
                region if key[1] == region.results else dce(region.with_results(results))
            )
        return found

    @contextmanager
    def batch_scope(self, count: int) -> Generator[None]:
        before, self.batch_size = self.batch_size, self.batch_size * max(count, 1)
        try:
            yield
        finally:
            self.batch_size = before

    @contextmanager
    def loop_scope(self) -> Generator[None]:
        before, self.in_loop = self.in_loop, True
        try:
            yield
        finally:
            self.in_loop = before

    def array(self, value: Value, env: Env) -> Array:
        """A value as an array; a deferred one is materialized on first use."""
        found = env[value]
        if isinstance(found, Deferred):
            eqn = found.eqn
            found = env[value] = self.frames.at(eqn.span)(self.rule(eqn.op), self.jax, found.arrays, eqn.attrs)
        return found

    def operands(self, eqn: Eqn, env: Env) -> list[Array]:
        """The operands of an equation; deferred ones stay so where its lowering accepts them."""
        found = [env[v] for v in eqn.operands]
        if not any([isinstance(x, Deferred) for x in found]):
            return found
        # XLA on the CPU moves the axes of a convolution itself only outside of loops, branches and functions; where it
        # does not, any other order than the canonical one is a loop over single numbers, 20 to 90 times slower.
        if "accepts transposed" in eqn.op.traits and self.platform != "cpu":
            return [
                x if isinstance(x, DeferredTranspose) else self.array(v, env)
                for v, x in zip(eqn.operands, found, strict=True)
            ]
        if "accepts fill" in eqn.op.traits and not all([isinstance(x, DeferredFill) for x in found]):
            pairs = zip(eqn.operands, found, strict=True)
            return [x.number if isinstance(x, DeferredFill) else self.array(v, env) for v, x in pairs]
        return [self.array(v, env) for v in eqn.operands]

    def steps(self, steps: Sequence[EqnOrSegment], env: Env) -> None:
        """Lower the steps into `env`."""
        for step in steps:
            if isinstance(step, OutlinedSegment):
                self.lower_segment(step, env)
                continue
            arrays = self.barriers.hold(self.jax, step, self.operands(step, env))
            deferred = defer_result(step, arrays)
            if deferred is not None:
                env[step.results[0]] = deferred
                continue
            try:
                found = self.lower_eqn(step, arrays)
            except DifflangError as error:
                raise with_eqn_span(error, step) from None
            if len(step.results) == 1 and not isinstance(found, (list, tuple)):
                env[step.results[0]] = found
            else:
                bind_results(step, found, env)

    def lower_eqn(self, eqn: Eqn, arrays: Sequence[Array]) -> Any:
        """The results of the op's own lowering rule."""
        op, at = eqn.op, self.frames.at(eqn.span)
        attrs = {**eqn.attrs, "regions": eqn.regions} if eqn.regions else eqn.attrs
        return at(self.rule(op), self if op.effect or eqn.regions else self.jax, arrays, attrs)

    def rule(self, op: Op) -> LowerRule:
        """The lowering rule of an op on this platform."""
        rule = op.cpu_lower_rule if self.platform == "cpu" else None
        return op.lower if rule is None or rule.__name__ in LEFT_OUT else rule

    def lower_segment(self, segment: OutlinedSegment, env: Env) -> None:
        """An outlined part of a long chain. Parts with equal bodies share one function, compiled once."""
        if any(isinstance(v.type, History) for v in (*segment.operands, *segment.results)):
            return self.steps(segment.eqns, env)
        body = Graph(segment.operands, segment.eqns, segment.results)
        key = self.keys.graph_key(body)
        function = self.segment_functions.get(key)
        if function is None:

            def run_segment(*arrays: Array) -> list[Array]:
                inner: Env = dict(zip(segment.operands, arrays, strict=True))
                # Only the call is not inlined, not the calls inside the segment.
                with set_xla_metadata(inlineable=None):
                    self.steps(segment.eqns, inner)
                    return [self.array(r, inner) for r in segment.results]

            function = self.segment_functions[key] = self.jax.jit(run_segment)
        with self.no_inline():
            found = function(*[self.array(v, env) for v in segment.operands])
        env.update(zip(segment.results, found, strict=True))

    def no_inline(self) -> AbstractContextManager[Any]:
        """A scope in which XLA does not inline the functions that are called."""
        return set_xla_metadata(inlineable="false")

    def zeros_on_host(self, like: Tensor) -> Array:
        """Zeros in host memory, made there: JAX's own scan allocates its stacked outputs like that."""
        empty = empty2_p.bind(dtype=numpy_dtype(like.dtype), memory_space=self.jax.memory.Space.Host)
        return self.jax.lax.broadcast(empty, like.shape)

    def lower_isolated(self, body: Graph, *arrays: Array) -> list[Array]:
        """A region that the back end must not mix with its surroundings, as rematerialization requires."""
        if has_history_io(body):
            return self.graph(body, *arrays)
        # XLA on the CPU drops barriers before it plans memory; there the region is a function that is not inlined.
        if self.platform != "cpu":
            return self.graph(body, *self.jax.lax.optimization_barrier(arrays))
        with self.no_inline():
            return self.function(body)(*arrays)

    def call(self, body: Graph, *arrays: Array) -> list[Array]:
        """A function call. A function with several calls is traced and lowered once; XLA inlines it later."""
        counted = self.census
        if counted is None or not counted.is_shared(body) or has_history_io(body):
            return self.graph(body, *arrays)
        return self.function(body)(*arrays)

    def function(self, body: Graph) -> Callable[..., list[Array]]:
        found = self.functions.get(body)
        if found is None:

            def function(*arrays: Array) -> list[Array]:
                return self.graph(body, *arrays)

            function.__name__ = function.__qualname__ = body.name or "function"
            found = self.functions[body] = self.jax.jit(function)
        return found


def has_history_io(body: Graph) -> bool:
    """Whether it takes or returns a history, which neither a barrier nor a function can."""
    return any([isinstance(v.type, History) for v in (*body.params, *body.results)])


def bind_results(eqn: Eqn, found: Sequence[Array], env: Env) -> None:
    if len(found) != len(eqn.results):
        raise InternalError(f"{eqn.op} lowered to {len(found)} results, not {len(eqn.results)}")
    env.update(zip(eqn.results, found, strict=True))


# ---- Program size

# A shorter body is inlined at each call.
MIN_SHARED_LENGTH = 8
# Equations in one compilation, calls expanded: jaxlib survives more, but takes minutes.
MAX_PROGRAM_SIZE = 50_000


class RegionCensus(Struct, frozen=True):
    """The size of a program and the uses of its regions."""

    uses: Counter[Graph]  # how often each graph is used as a region
    # Equations, with a shared graph counted once, and with each region expanded where it is used.
    size: int
    expanded: int

    def is_shared(self, body: Graph) -> bool:
        """Whether it is called more than once, and long enough to be a function of its own."""
        return self.uses[body] > 1 and len(body.eqns) >= MIN_SHARED_LENGTH


def count_equations(root: Graph) -> RegionCensus:
    """The census of a program; each graph is visited once, inner ones first."""
    order, uses = graphs_postorder(root)
    expanded: dict[Graph, int] = {}
    for graph in order:
        expanded[graph] = len(graph.eqns) + sum([expanded[r] for e in graph.eqns for r in e.regions])
    return RegionCensus(uses, sum([len(g.eqns) for g in order]), expanded[root])


def refuse_too_large(root: Graph, found: RegionCensus) -> None:
    """Errors: DL1010 for a program beyond what the back end survives."""
    if found.expanded > MAX_PROGRAM_SIZE:
        where = (Label(root.eqns[0].span),) if root.eqns else ()
        raise DifflangError(
            Diagnostic(
                "DL1010",
                f"{root.name or 'this program'} has {describe_size(found)};"
                f" the back end takes {MAX_PROGRAM_SIZE:,} at once",
                where,
                (size_hint(found),),
            )
        )


def size_hint(found: RegionCensus) -> str:
    """How to make the program smaller, for straight-line code and for functions with many calls."""
    if found.expanded > 2 * found.size:
        return "every call of a function is expanded: call it in the body of a loop or a comprehension"
    return (
        "the body of a `for` loop or a comprehension counts once; a function counts once for each "
        "combination of argument types"
    )


def describe_size(found: RegionCensus) -> str:
    """The program's size in words."""
    length = f"{found.expanded:,}" if found.expanded < 10**12 else "more than 10¹²"
    return f"{length} equations" + (
        f", with every call expanded ({found.size:,} are different)" if found.size < found.expanded else ""
    )
