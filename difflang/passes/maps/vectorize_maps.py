"""Vectorizes maps: ops that work on whole arrays replace the per-instance ops of a map, and leave the map.

An elementwise op on items is the same op on arrays; a reduction of an item is a reduction along later axes; lookups at
an index of each instance are one gather, also those in branches; a function is called once for the whole batch.
Equations that need instances (a loop, a branch) stay in the map; those before and after it leave it. Usually nothing is
left and the map is gone: nothing is batched by tracing, and the result is simplified together with its surroundings.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import compress

from msgspec import Struct

from difflang.base.source import NO_SPAN, Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import Fill
from difflang.ir.tensor_types import Tensor, stacked_type
from difflang.ops.batching_rules import Mask, broadcast_over_batch
from difflang.ops.control.call import call
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.loop.loop_op import loop
from difflang.passes.drop_placements import has_placements
from difflang.passes.inline import splice
from difflang.passes.maps.batch_control_flow import BatchedBranch, BatchedGraph, BatchedLoop, batch_branch, batch_loop

Renaming = dict[Value, Value]


def vectorize_maps(graph: Graph) -> Graph:
    """Move every equation that can be vectorized out of its map; inner maps first. Cost: linear in equations.

    A branch whose condition differs by instance becomes both of its sides and a select. If arrays are split over
    devices, maps that hold a loop of unknown length stay whole: each device runs its instances.
    """
    return MapVectorizer(selects=True, keep_open_ended=has_placements(graph)).graph(graph)


def vectorize_maps_keeping_branches(graph: Graph) -> Graph:
    """The same, but branches whose conditions differ by instance stay in their map: for graphs that people read."""
    return MapVectorizer().graph(graph)


def vectorize_bounded_maps(graph: Graph) -> Graph:
    """The same, but maps that hold a loop of unknown length stay whole: for graphs to be differentiated."""
    # The gradient of such a loop must read its saved values in the instance that saved them.
    return MapVectorizer(whole_only=True).graph(graph)


class MapVectorizer:
    def __init__(self, *, whole_only: bool = False, selects: bool = False, keep_open_ended: bool = False) -> None:
        self.bounded_only, self.selects = whole_only, selects
        self.keep_open_ended = whole_only or keep_open_ended
        self.done: dict[Graph, Graph] = {}
        self.functions: dict[tuple[Graph, Mask, int], Graph] = {}
        self.dynamic: dict[Graph, bool] = {}
        self.batched_graphs: dict[tuple[Graph, Mask, int], BatchedGraph | None] = {}
        self.control: dict[tuple[Eqn, Mask, int], BatchedLoop | BatchedBranch | None] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            self.done[graph] = self.vectorize_level(self.vectorize_regions(graph))
        return self.done[graph]

    def vectorize_regions(self, graph: Graph) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        return graph.with_eqns([e.with_regions(map(self.graph, e.regions)) if e.regions else e for e in graph.eqns])

    def vectorize_level(self, graph: Graph) -> Graph:
        """One graph with its maps vectorized; its regions are not changed."""
        if not any(e.op is map_ for e in graph.eqns):
            return graph
        builder = Builder()
        env: Renaming = {p: builder.param(p.type, p.hint) for p in graph.params}
        for eqn in graph.eqns:
            operands = tuple([env[v] for v in eqn.operands])
            plain = all(isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results))
            if eqn.op is map_ and plain and not (self.keep_open_ended and self.open_ended(eqn.regions[0])):
                results: Sequence[Value] = self.body_vectorizer(builder, eqn, operands).emit_results()
            else:
                results = builder.copy(eqn, operands)
            env.update(zip(eqn.results, results, strict=True))
        return builder.finish([env[r] for r in graph.results], name=graph.name)

    def body_vectorizer(self, builder: Builder, eqn: Eqn, operands: Sequence[Value]) -> MapBodyVectorizer:
        consts, length = eqn.attrs["consts"], eqn.attrs["length"]
        assert isinstance(consts, int)
        body = eqn.regions[0]
        same = dict(zip(body.params[:consts], operands[:consts], strict=True))
        wide = dict(zip(body.params[consts:], operands[consts:], strict=True))
        return MapBodyVectorizer(self, builder, body, same, wide, length, eqn.span)

    def open_ended(self, graph: Graph) -> bool:
        """Whether it holds a loop whose length is not known."""
        if graph not in self.dynamic:
            inner = [g for e in graph.eqns for g in e.regions]
            here = any(e.op is loop and e.attrs["length"] is None for e in graph.eqns)
            self.dynamic[graph] = here or any(map(self.open_ended, inner))
        return self.dynamic[graph]

    def vectorized_function(self, body: Graph, wide: Mask, length: int) -> Graph:
        """A function for the whole batch: the `wide` operands and all results are batched."""
        key = (body, wide, length)
        if key not in self.functions:
            builder = Builder()
            shared: Renaming = {}
            batched_env: Renaming = {}
            for param, differs in zip(body.params, wide, strict=True):
                type = stacked_type(param.type, length) if differs else param.type
                (batched_env if differs else shared)[param] = builder.param(type, param.hint)
            results = MapBodyVectorizer(self, builder, body, shared, batched_env, length, NO_SPAN).emit_results()
            self.functions[key] = builder.finish(results, name=body.name)
        return self.functions[key]

    def batched_graph(self, graph: Graph, batched: Mask, length: int) -> BatchedGraph | None:
        """A graph for a whole batch, and which of its results are batched: they have one more first axis.

        `batched` says which params are. None if some equation cannot be vectorized.
        """
        key = (graph, batched, length)
        if key not in self.batched_graphs:
            builder = Builder()
            same, wide = dict[Value, Value](), dict[Value, Value]()
            for param, differs in zip(graph.params, batched, strict=True):
                type = stacked_type(param.type, length) if differs else param.type
                (wide if differs else same)[param] = builder.param(type, param.hint)
            found = MapBodyVectorizer(self, builder, graph, same, wide, length, NO_SPAN)
            self.batched_graphs[key] = found.whole_graph(builder)
        return self.batched_graphs[key]

    def batched_control(self, eqn: Eqn, wide: Mask, length: int) -> BatchedLoop | BatchedBranch | None:
        """A branch, or a loop where no derivative of it will be taken, over the batch."""
        key = (eqn, wide, length)
        if key not in self.control:
            found = None
            if eqn.op is cond:
                found = batch_branch(eqn, wide, length, self.batched_graph, selects=self.selects)
            elif eqn.op is loop and not self.bounded_only:
                found = batch_loop(eqn, wide, length, self.batched_graph)
            self.control[key] = found
        return self.control[key]


class MapBodyParts(Struct, frozen=True):
    """The equations of a map's body: vectorized before the map, kept in it, and vectorized after it."""

    before: list[Eqn]
    in_map: list[Eqn]
    behind: list[Eqn]


class MapBodyVectorizer:
    """Vectorizes the body of one map. `same` maps values that the batch shares, `wide` batched values."""

    def __init__(
        self,
        widener: MapVectorizer,
        builder: Builder,
        body: Graph,
        same: Renaming,
        wide: Renaming,
        length: int,
        span: Span,
    ) -> None:
        self.widener, self.builder, self.span, self.length = widener, builder, span, length
        self.body = hoist_gathers(body, wide)
        self.shared, self.batched = same, wide

    def emit_results(self) -> list[Value]:
        parts = self.split_body()
        for eqn in parts.before:
            self.do(eqn)
        if parts.in_map:
            self.emit_remaining_map(parts)
        for eqn in parts.behind:
            self.do(eqn)
        return [self.with_batch_axis(r) for r in self.body.results]

    def whole_graph(self, builder: Builder) -> BatchedGraph | None:
        """The whole body vectorized, and which of its results are batched; None if some equation must stay in a map."""
        parts = self.split_body()
        if parts.in_map or self.body.effectful:
            return None
        for eqn in (*parts.before, *parts.behind):
            self.do(eqn)
        results = [self.batched[r] if r in self.batched else self.shared[r] for r in self.body.results]
        return builder.finish(results, name=self.body.name), tuple([r in self.batched for r in self.body.results])

    def split_body(self) -> MapBodyParts:
        inside: set[Value] = set(self.batched)  # batched values
        late: set[Value] = set()  # values that depend on an equation that stays in the map
        before: list[Eqn] = []
        rest: list[Eqn] = []
        for eqn in self.body.eqns:
            differs = not inside.isdisjoint(eqn.operands)
            if differs:
                inside.update(self.differing_results(eqn, inside))
            if late.isdisjoint(eqn.operands) and (self.can_vectorize(eqn, inside) if differs else not eqn.effectful):
                before.append(eqn)
            else:
                late.update(eqn.results)
                rest.append(eqn)
        # Of the remaining equations, those that no kept one reads can follow the map.
        needed: set[Value] = set()
        kept: list[Eqn] = []
        behind: list[Eqn] = []
        for eqn in reversed(rest):
            if needed.isdisjoint(eqn.results) and self.can_vectorize(eqn, inside):
                behind.append(eqn)
            else:
                needed.update(eqn.operands)
                kept.append(eqn)
        return MapBodyParts(before, kept[::-1], behind[::-1])

    def can_vectorize(self, eqn: Eqn, inside: set[Value]) -> bool:
        """Whether the op can compute the whole batch at once."""
        if eqn.effectful or not all(isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)):
            return False
        if eqn.op.elementwise or eqn.op is call:
            return True
        wide = tuple([v in inside for v in eqn.operands])
        if eqn.regions:
            return self.widener.batched_control(eqn, wide, self.length) is not None
        return eqn.op.batch_rule is not None and eqn.op.batch_rule(eqn, wide, self.length) is not None

    def differing_results(self, eqn: Eqn, inside: set[Value]) -> Sequence[Value]:
        """The results that differ by instance, where some operand does."""
        found = None
        if eqn.op in (cond, loop) and self.can_vectorize(eqn, inside):
            found = self.widener.batched_control(eqn, tuple([v in inside for v in eqn.operands]), self.length)
        return eqn.results if found is None else list(compress(eqn.results, found.batched_results))

    def do(self, eqn: Eqn) -> None:
        self.builder.span = eqn.span
        if not any(v in self.batched for v in eqn.operands):
            made = self.builder.copy(eqn, tuple([self.shared[v] for v in eqn.operands]))
            self.shared.update(zip(eqn.results, made, strict=True))
            return
        wide = tuple([v in self.batched for v in eqn.operands])
        found = self.widener.batched_control(eqn, wide, self.length) if eqn.op in (cond, loop) else None
        if found is None:
            self.batched.update(zip(eqn.results, self.emit_batched(eqn, wide), strict=True))
            return
        operands = self.operands(eqn)
        made = found(self.builder, *operands) if isinstance(found, BatchedBranch) else found(*operands, batched=wide)
        for result, value, differs in zip(eqn.results, made, found.batched_results, strict=True):
            (self.batched if differs else self.shared)[result] = value

    def emit_batched(self, eqn: Eqn, wide: Mask) -> Values:
        """The batched results of an equation."""
        if eqn.op.elementwise:
            return self.builder.emit(eqn.op, [self.with_batch_axis(v) for v in eqn.operands], **eqn.attrs)
        if eqn.op is call:
            function = self.widener.vectorized_function(eqn.regions[0], wide, self.length)
            return self.builder.emit(call, self.operands(eqn), (function,), **eqn.attrs)
        assert eqn.op.batch_rule is not None
        function = eqn.op.batch_rule(eqn, wide, self.length)
        assert function is not None
        made = function(*self.operands(eqn))
        return made if isinstance(made, tuple) else (made,)

    def operands(self, eqn: Eqn) -> list[Value]:
        """The operands of an equation, batched only where instances differ."""
        return [self.batched[v] if v in self.batched else self.shared[v] for v in eqn.operands]

    def with_batch_axis(self, value: Value) -> Value:
        """A value of all instances in one array."""
        if value in self.batched:
            return self.batched[value]
        return broadcast_over_batch(self.shared[value], self.length)

    def emit_remaining_map(self, parts: MapBodyParts) -> None:
        """The rest of the map: it reads values emitted before it, and gives those that are read after it."""
        made = [r for e in parts.in_map for r in e.results]
        wanted = {v for e in parts.behind for v in e.operands} | set(self.body.results)
        given = [r for r in made if r in wanted]
        read = list(dict.fromkeys(v for e in parts.in_map for v in e.operands if v not in set(made)))
        consts, xs = [v for v in read if v not in self.batched], [v for v in read if v in self.batched]
        body = Graph((*consts, *xs), tuple(parts.in_map), tuple(given), self.body.name)
        operands = [*[self.shared[v] for v in consts], *[self.batched[v] for v in xs]]
        self.builder.span = self.span
        results = self.builder.emit(map_, operands, (body,), consts=len(consts), length=self.length)
        self.batched.update(zip(given, results, strict=True))


def hoist_gathers(body: Graph, wide: Container[Value]) -> Graph:
    """Move gathers out of a map's branches with batched conditions; `wide` holds batched params. Cost: linear."""
    # A batched branch runs both sides anyway, so nothing more is read. An index of the side that is not taken may be
    # out of range: it then reads another element, which nothing uses. Before the branch, the cotangents of the batch
    # are scattered once; inside, each instance would have an array of cotangents of its own.
    if not any(e.op is cond for e in body.eqns):
        return body
    inside = {p for p in body.params if p in wide}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        eqns += split_branch(eqn) if eqn.op is cond and eqn.operands[0] in inside else [eqn]
        if not inside.isdisjoint(eqn.operands):
            inside.update(eqn.results)
    return body.with_eqns(eqns)


def split_branch(eqn: Eqn) -> list[Eqn]:
    """A branch as its gathers and the rest. Those of nested branches are moved first."""
    before: list[Eqn] = []
    # For each region: the rest of it, the gathered values inside, and the same values outside.
    found: list[tuple[Graph, list[Value], list[Value]]] = []
    for region in eqn.regions:
        region = region.with_eqns([e for old in region.eqns for e in (split_branch(old) if old.op is cond else [old])])
        inner, moving = find_gathers(region)
        body = Graph(region.params, tuple(moving), tuple(inner))
        outside = splice(body, eqn.operands[1:], before)
        gone = set(inner)
        rest = region.with_eqns([e for e in region.eqns if gone.isdisjoint(e.results)])
        found.append((rest, inner, outside))
    if not before:
        return [eqn.with_regions([rest for rest, *_ in found])]
    more = [v for *_, outside in found for v in outside]
    regions = [add_region_params(rest, more, inner, outside) for rest, inner, outside in found]
    return [*before, Eqn(eqn.op, (*eqn.operands, *more), eqn.results, eqn.attrs, tuple(regions), eqn.span)]


def find_gathers(region: Graph) -> tuple[list[Value], list[Eqn]]:
    """The results of gathers from arrays outside, and the equations that compute them, in order."""
    params = set(region.params)
    simple = set(params)  # computed elementwise from values outside
    read: list[Value] = []
    for eqn in region.eqns:
        if not eqn.regions and not eqn.op.effect and simple.issuperset(eqn.operands):
            if eqn.op.elementwise or not eqn.operands or isinstance(eqn.op.movement, Fill):
                simple.update(eqn.results)
            elif "gather" in eqn.op.traits and eqn.operands[0] in params:
                read += eqn.results
    needed: set[Value] = set(read)
    kept: list[Eqn] = []
    for eqn in reversed(region.eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            kept.append(eqn)
    return read, kept[::-1]


def add_region_params(region: Graph, more: Sequence[Value], inner: Sequence[Value], outside: Sequence[Value]) -> Graph:
    """A region with params for the gathered values, both its own and those of the other region."""
    own = dict(zip(outside, inner, strict=True))
    home = Builder()
    params = [own[v] if v in own else Value(v.type, home, v.hint) for v in more]
    return Graph((*region.params, *params), region.eqns, region.results, region.name)
