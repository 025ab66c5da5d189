"""How the values of a graph are split over the axes of a mesh, if its params are, and what devices exchange for it.

What is split follows from the type rules: with a name for every size, an axis of a result whose size has the name of an
operand's axis is that axis. An axis that no result has is summed or searched: what the devices have of it is brought
together. Regions say themselves how values flow through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.source import NO_SPAN, Span
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import NeighbourExchange, Placement
from difflang.ir.region_dataflow import RegionSlot
from difflang.ir.tensor_types import History, Tensor, Type
from difflang.ops.arrays.reshard import ANY, Along, Split
from difflang.ops.arrays.resplit import ReshardingStep, resharding_steps
from difflang.ops.arrays.shape_manipulation import reshape
from difflang.ops.control.derivative_operators import jvp, vjp
from difflang.ops.control.on_devices import READS, WRITES, cut_axes
from difflang.ops.loop.loop_op import loop
from difflang.passes.dce import dce
from difflang.sharding.axis_names import SIZE_ATTRS, AxisNames, axes_gone_along, axis_name, is_left_to_xla, sums
from difflang.sharding.convolution_halos import halos
from difflang.sharding.index_positions import note_index_positions
from difflang.sharding.predicted_collectives import MOVES, PredictedCollective
from difflang.sharding.region_splits import (
    alone,
    array_shape,
    is_item,
    joined,
    lane,
    lasting_results,
    region_params,
    region_results,
    replayed_results,
    returned,
    runs_by_device,
    runs_of_regions,
    stores_states,
    whole_split,
)
from difflang.sharding.split_conflicts import IN_JAX, SplitConflict, split_differently, split_twice


def result_splits(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> list[Split]:
    """The split of each result, `((), ("data",))` for `f32[n, m @data]`; a sum over a split axis is whole.

    Errors: DL0604 if a result would be split along one mesh axis twice, DL0605 if two axes that an equation takes
    together are split differently.
    """
    try:
        return MeshSplits(mesh, strict=True).of_graph(note_index_positions(graph), params)
    except SplitConflict as conflict:
        raise DifflangError(*conflict.diagnostics) from None


class RegionSplits(Struct, frozen=True):
    """How a region's results are split, what devices exchange in it, and into which split it brings params at first."""

    results: list[Split]
    moves: list[PredictedCollective]
    params: list[Split | None]


class MeshSplits:
    """Splits over one mesh, whose axes have these sizes. `moves` are the exchanges of the graph gone through last.

    If it is not `strict`, arrays that are split differently are brought together as XLA does.
    """

    ways: tuple[str, ...] = IN_JAX  # what to do where they are refused

    def __init__(self, mesh: Mapping[str, int], *, strict: bool = False) -> None:
        self.mesh, self.strict = mesh, strict
        self.moves: list[PredictedCollective] = []
        self.starts: dict[Eqn, dict[RegionSlot, Split]] = {}  # how regions take their operands
        self.by_device: dict[Eqn, Along] = {}  # along what instances are split that each device runs by itself
        self.returns: dict[Eqn, dict[RegionSlot, Split]] = {}  # how regions give back their results
        self.taken: dict[Eqn, list[Split]] = {}  # how equations take their operands
        self.results: dict[Eqn, list[Split]] = {}  # how results are split
        self.values: dict[Value, Split] = {}  # how values are split, of the graph gone through last
        # Equations of which each device computes its part by itself: the mesh axes over which what they find is summed.
        self.on_devices: dict[Eqn, Along | None] = {}
        self.sizes: dict[Eqn, tuple[tuple[str, Split], ...]] = {}  # how the sizes in their attributes are split
        self.lanes: dict[Eqn, Along] = {}  # along what instances of regions are split
        self.runs: dict[Value, Eqn] = {}  # the loops that histories come from
        self.held: dict[Value, list[Split]] = {}  # the splits in which devices have a value already
        self.regions: dict[tuple[Graph, tuple[Split, ...], tuple[Split | None, ...]], RegionSplits] = {}

    def of_graph(
        self, graph: Graph, params: Sequence[Split], wanted: Sequence[Split | None] = (), span: Span = NO_SPAN
    ) -> list[Split]:
        """The splits of the results, and of every value; the results that are `wanted` in a split get there."""
        env: dict[Value, Split] = dict(zip(graph.params, params, strict=True))
        for eqn in graph.eqns:
            given = [split_in(env, v) for v in eqn.operands]
            if busy(eqn, given):
                found = self.results[eqn] = self.of_eqn(eqn, given)
            else:
                found = [whole_split(r.type) for r in eqn.results]
            env.update(zip(eqn.results, found, strict=True))
        for value, split in zip(graph.results, wanted, strict=False):
            if split is not None:
                self.resplit(value, split_in(env, value), split, span)
        self.values = env
        return [split_in(env, r) for r in graph.results]

    def of_eqn(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        if isinstance(eqn.op.movement, Placement):
            return [self.placed(eqn, given[0], eqn.op.movement)]
        if isinstance(eqn.op.movement, NeighbourExchange):
            return [self.shifted(eqn, given[0], *eqn.op.movement.distance(**eqn.attrs))]
        plain = eqn.op.without_derivative
        if plain is not None and (same := plain(eqn, False)).op is not eqn.op:
            return self.of_eqn(same, given)
        if eqn.op is jvp or eqn.op is vjp:
            return self.of_derivative(eqn, given)
        if eqn.op.region_dataflow is not None:
            return self.of_regions(eqn, given)
        return self.opaque(eqn, given) if eqn.regions else self.by_type(eqn, given)

    def opaque(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """An equation with regions into which nothing is followed: every device computes all of it."""
        self.taken[eqn] = [whole_split(v.type) for v in eqn.operands]
        for operand, before, after in zip(eqn.operands, given, self.taken[eqn], strict=True):
            self.resplit(operand, before, after, eqn.span)
        return [whole_split(r.type) for r in eqn.results]

    def fitting(self, split: Split, type: Type) -> Split:
        """The split without what does not divide an axis, and without a mesh axis that an earlier axis has.

        An array without elements is whole: JAX does not read one that is split.
        """
        if 0 in array_shape(type):
            return whole_split(type)
        used: set[str] = set()
        found: list[Along] = []
        for along, size in zip(split, array_shape(type), strict=True):
            whole = not isinstance(size, int) or size % self.parts(along) == 0
            kept = along if whole and used.isdisjoint(along) else ()
            used |= set(kept)
            found.append(kept)
        return tuple(found)

    def parts(self, along: Iterable[str]) -> int:
        return prod([self.mesh.get(a, 1) for a in along])

    # ---- Exchanges

    def move(
        self, kind: str, type: Type, split: Split, axes: Iterable[str], span: Span, why: str, *, declared: bool = False
    ) -> None:
        """Note an exchange along some axes, after which each device has its part of an array of this split."""
        axes = tuple([a for a in dict.fromkeys(axes) if self.mesh.get(a, 1) > 1])
        if axes and isinstance(type, Tensor) and 0 not in type.shape:
            local = self.local_type(type, split)
            self.moves.append(PredictedCollective(kind, local, axes, span, why, declared=declared))

    def placed(self, eqn: Eqn, given: Split, placement: Placement) -> Split:
        """The split that a placement asks for, and what devices exchange to get there."""
        asked = placement.splits(**eqn.attrs)
        pairs = zip(asked, given, strict=True)
        wanted = tuple([b if a == ANY else tuple([n for n in a if n in self.mesh]) for a, b in pairs])
        fitting = self.fitting(wanted, eqn.operands[0].type)
        self.resplit(eqn.operands[0], given, fitting, eqn.span, declared=True)
        return fitting

    def resplit(self, value: Value, given: Split, wanted: Split, span: Span, *, declared: bool = False) -> None:
        """Note how an array gets from one split to another, once: to cut what is whole costs nothing."""
        held = self.held.setdefault(value, [given])
        if wanted in held or not isinstance(value.type, Tensor):
            return
        for step in self.cheapest_steps(value.type, held, wanted)[1]:
            if step.kind != "cut":
                why = MOVES[step.kind]
                self.move(step.kind, value.type, step.after, step.along, span, why, declared=declared)
        held.append(wanted)

    def cheapest_steps(self, type: Tensor, held: Iterable[Split], wanted: Split) -> tuple[Split, list[ReshardingStep]]:
        """From which of the splits that devices have of an array they get to another one, and how."""
        found = [(split, resharding_steps(split, wanted, self.mesh)) for split in held]
        return min(found, key=lambda f: sum([self.local_type(type, s.after).bytes for s in f[1] if s.kind != "cut"]))

    def shifted(self, eqn: Eqn, split: Split, axis: int, by: int) -> Split:
        """An array whose elements move along an axis: neighbours send each other what crosses their borders."""
        count, type = self.parts(split[axis]), eqn.operands[0].type
        size = array_shape(type)[axis]
        if count > 1 and isinstance(type, Tensor) and isinstance(size, int):
            far, rest = divmod(by, size // count)
            for distance, elements in ((far, size // count - rest), (far + 1, rest)):
                if elements and 0 < abs(distance) < count:
                    part = Tensor(type.dtype, (*type.shape[:axis], elements * count, *type.shape[axis + 1 :]))
                    self.move("collective-permute", part, split, split[axis], eqn.span, "neighbours")
        return split

    def is_narrow(self, eqn: Eqn, axis: int, along: Along) -> bool:
        """Whether parts of an image are narrower than the halo of a convolution."""
        size = array_shape(eqn.operands[0].type)[axis]
        widths = [n for n in halos(eqn)[axis] if isinstance(n, int)]
        return isinstance(size, int) and size // self.parts(along) < max(widths, default=0)

    def send_halos(self, eqn: Eqn, image: Split) -> None:
        """Note what neighbours send each other of an image, axis by axis: also what has come along the axes before."""
        type = eqn.operands[0].type
        assert isinstance(type, Tensor)
        shape = list(self.local_type(type, image).shape)
        for axis, widths in halos(eqn).items():
            if image[axis]:
                for width in filter(None, widths):
                    part = Tensor(type.dtype, (*shape[:axis], width, *shape[axis + 1 :]))
                    self.move("collective-permute", part, whole_split(part), image[axis], eqn.span, "neighbours")
                shape[axis] += sum(widths)

    # ---- Equations with regions

    def of_derivative(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """A tangent is split as its value, and the cotangent of a param as the param."""
        (f,), wrt = eqn.regions, eqn.attrs["wrt"]
        assert isinstance(wrt, tuple)
        ys = self.of_region(f, given[: len(f.params)]).results
        if eqn.op is jvp:
            return [*ys, *[s for s, r in zip(ys, f.results, strict=True) if r.type.tangent is not None]]
        return [*ys, *[s for s, moves in zip(given, wrt, strict=False) if moves]]

    def of_region(
        self, graph: Graph, params: Sequence[Split], wanted: Sequence[Split | None] = (), span: Span = NO_SPAN
    ) -> RegionSplits:
        """What is known of a region, which is gone through once for each split."""
        key = graph, tuple(params), tuple(wanted)
        if key not in self.regions:
            (outer, outside), self.moves, self.held = (self.moves, self.held), [], {}
            results = self.of_graph(graph, params, wanted, span)
            brought = [next(iter(self.held.get(p, ())[1:]), None) for p in graph.params]
            self.regions[key] = RegionSplits(results, self.moves, brought)
            self.moves, self.held = outer, outside
        return self.regions[key]

    def of_regions(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """Through regions: what they carry is split if it begins so or a step leaves it so.

        What each step would bring into the same other split is brought there before.
        """
        assert eqn.op.region_dataflow is not None
        flow = eqn.op.region_dataflow(eqn)
        carries = [s for s in flow.slots if s.operand is not None and s.result is not None]
        starts = {s: given[s.operand] for s in flow.slots if s.operand is not None}
        ways = [way for s in starts if not carries and (way := lane(eqn, s, starts[s]))]
        self.flow_together(eqn, ways)
        lanes = ways[0] if ways else ()
        if lanes and flow.independent and runs_by_device(eqn):
            self.by_device[eqn] = lanes
            starts = {s: alone(eqn, s, split, lanes) for s, split in starts.items()}
        whole: set[tuple[RegionSlot, int]] = set()  # axes that are split in one way at first and in another later
        fixed = {s for s in starts if s.invariant and s not in carries and flow.repeats}
        while True:
            inside = [self.of_region(r, region_params(eqn, k, starts)) for k, r in enumerate(eqn.regions)]
            ends = [region.results for region in inside]
            after = {s: self.joined(eqn, s, [starts[s], *returned(s, ends)], whole) for s in carries}
            if all(starts[s] == split for s, split in after.items()):  # then what the steps want of the rest is known
                after = {s: split for s in fixed if (split := brought(s, inside)) is not None}
                fixed -= after.keys()
                if not after:
                    break
            starts |= after
        self.starts[eqn], self.lanes[eqn] = starts, lanes
        self.returns[eqn] = {
            s: starts.get(s) or self.joined(eqn, s, back, whole) for s in flow.slots if (back := returned(s, ends))
        }
        self.enter(eqn, given, starts, lanes)
        times = runs_of_regions(eqn) if flow.repeats and not flow.independent else 1
        for k in range(len(eqn.regions)):
            # A step stores states, of which the items of histories are computed again.
            kept = range(len(eqn.regions[k].results)) if k else lasting_results(eqn)
            for _ in range(2 if k and times is None and stores_states(eqn) else 1):
                self.repeat(eqn, k, kept, times)
        self.replay(eqn)
        return self.results_of_regions(eqn, lanes)

    def repeat(self, eqn: Eqn, k: int, places: Sequence[int], times: int | None) -> None:
        """Note what devices exchange in so many runs of a region, for those of its results."""
        region, wanted = eqn.regions[k], region_results(eqn, k, self.returns[eqn])
        part = region if len(places) == len(wanted) else dce(region.with_results([region.results[i] for i in places]))
        params = region_params(eqn, k, self.starts[eqn])
        found = self.of_region(part, params, [wanted[i] for i in places], eqn.span)
        self.moves += [m.repeated(times) for m in found.moves]

    def replay(self, eqn: Eqn) -> None:
        """Note what devices exchange again for the histories that a loop reads."""
        self.runs |= {r: eqn for r in eqn.results if eqn.op is loop and isinstance(r.type, History)}
        sources = [self.runs[v] for v in eqn.operands if v in self.runs]
        for run in sources:  # and for those that these read
            sources += [self.runs[v] for v in run.operands if v in self.runs and self.runs[v] not in sources]
        for run in dict.fromkeys(sources):
            for places in replayed_results(run):
                self.repeat(run, 0, places, None)

    def joined(self, eqn: Eqn, slot: RegionSlot, splits: Sequence[Split], whole: set[tuple[RegionSlot, int]]) -> Split:
        for here in zip(*splits, strict=True):
            self.flow_together(eqn, here)
        return joined(slot, splits, whole)

    def flow_together(self, eqn: Eqn, ways: Iterable[Along]) -> None:
        """Called with the ways in which one axis is split of what regions take or give: items, states, results."""

    def enter(self, eqn: Eqn, given: Sequence[Split], starts: Mapping[RegionSlot, Split], lanes: Along) -> None:
        """Note what devices exchange before the regions run: steps read each item of an array that is split."""
        taken = self.taken[eqn] = list(given)
        for slot, split in starts.items():
            assert slot.operand is not None
            steps = not lanes and is_item(eqn, 0, slot) and split
            taken[slot.operand] = ((), *split[1:]) if steps else split
            self.resplit(eqn.operands[slot.operand], given[slot.operand], taken[slot.operand], eqn.span)

    def results_of_regions(self, eqn: Eqn, lanes: Along) -> list[Split]:
        assert eqn.op.region_dataflow is not None
        found = [whole_split(r.type) for r in eqn.results]
        for slot, split in self.returns[eqn].items():
            if slot.result is not None:
                type = eqn.results[slot.result].type
                split = (lanes, *split) if isinstance(type, Tensor) and type.rank == len(split) + 1 else split
                found[slot.result] = self.fitting(split, type)
        return found

    # ---- Other equations

    def by_type(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """By the type rule, with names for sizes."""
        axes = AxisNames(eqn)
        names = [[axes.root(axis_name(k, i)) for i in range(len(split))] for k, split in enumerate(given)]
        origins = axes.of_results()
        along = self.agreed(eqn, names, given, origins)
        self.taken[eqn] = self.exchange(eqn, names, given, along, origins)
        for operand, before, after in zip(eqn.operands, given, self.taken[eqn], strict=True):
            self.resplit(operand, before, after, eqn.span)
        found: list[Split] = []
        for result, origin in zip(eqn.results, origins, strict=True):
            split = tuple([along.get(name, ()) if name else () for name in origin])
            if isinstance(result.type, History):
                split = whole_split(result.type)
            found.append(self.fitting(split, result.type))
        if eqn not in self.on_devices and any(map(any, self.taken[eqn])) and not is_left_to_xla(eqn):
            self.on_devices[eqn] = ()
        names = [(name, axes.of_attr(name)) for name in SIZE_ATTRS if name in eqn.attrs]
        self.sizes[eqn] = tuple([(name, tuple([along.get(n, ()) for n in of])) for name, of in names])
        return found

    def agreed(
        self, eqn: Eqn, names: Sequence[Sequence[str]], given: Sequence[Split], origins: Sequence[Sequence[str]]
    ) -> dict[str, Along]:
        """Along what each axis of an equation is split; operands that are split otherwise are brought there."""
        along: dict[str, Along] = {}
        for mine, split in zip(names, given, strict=True):
            for name, here in zip(mine, split, strict=True):
                # The axes of a square matrix are equally long, but they are not one axis: every device takes it whole.
                if here and mine.count(name) == 1 and along.setdefault(name, here) != here and self.strict:
                    raise split_differently(eqn, along[name], here, self.ways)
        kept = {name for origin in origins for name in origin}
        owner: dict[str, str] = {}
        for name in sorted(along, key=lambda name: name not in kept):
            for axis in along[name]:
                first = owner.setdefault(axis, name)
                if first != name:
                    if self.strict and name in kept:
                        raise split_twice(eqn, axis, self.ways)
                    self.meet(eqn, axis)
                    along[name] = ()
                    break
        for result, origin in zip(eqn.results, origins, strict=True):
            split = tuple([along.get(name, ()) for name in origin])
            cut_evenly = eqn.op is reshape or not is_left_to_xla(eqn)
            if cut_evenly and (fitting := self.fitting(split, result.type)) != split:
                pairs = zip(origin, split, fitting, strict=True)
                along.update({name: () for name, here, fits in pairs if here != fits})
        return along

    def meet(self, eqn: Eqn, axis: str) -> None:
        """Called where one axis of the mesh splits two axes of an equation, one of which becomes whole."""

    def exchange(
        self, eqn: Eqn, names: Sequence[Sequence[str]], given: Sequence[Split], along: dict[str, Along],
        origins: Sequence[Sequence[str]],
    ) -> list[Split]:  # fmt: skip
        """How each operand is taken. Notes what devices exchange for a sum over a split axis.

        What an op goes along, and an axis that is gone and not summed, is made whole.
        """
        kept = {name for origin in origins for name in origin}
        narrow = [axis for axis in halos(eqn) if self.is_narrow(eqn, axis, along.get(names[0][axis], ()))]
        along.update({names[0][axis]: () for axis in narrow})
        through = [axes_gone_along(eqn, k) for k in range(len(names))]
        passed = {mine[i] for mine, axes in zip(names, through, strict=True) for i in axes}
        gone = [name for name in along if along[name] and name not in kept]
        along.update({name: () for name in passed if name in kept})
        if not is_left_to_xla(eqn):
            read = names[0] if eqn.op in READS else ()
            along.update({n: () for n in kept if n and n not in read and not all(n in origin for origin in origins)})
        results = [
            (r.type, self.fitting(tuple([along.get(name, ()) for name in origin]), r.type))
            for r, origin in zip(eqn.results, origins, strict=True)
        ]
        self.on_devices.pop(eqn, None)
        if eqn.op in READS and (cut := [a for a in cut_axes(eqn, given[0]) if along.get(names[0][a])]):
            self.read(eqn, [names[0][a] for a in cut], given[0], along, results[-1])
        gone = [name for name in gone if eqn not in self.on_devices and along[name]]
        # An effect such as `print` has no results: it sees whole arrays.
        adds = sums(eqn) and bool(results)
        for name in gone:
            if not adds or name in passed or self.is_cheaper_whole(eqn, names, given, name, results):
                along[name] = ()
        added = [along[name] for name in gone if along[name]]
        if added and eqn.op.operand_rules.multilinear and not is_left_to_xla(eqn):
            added = [tuple([axis for axes in added for axis in axes])]
            self.on_devices[eqn] = added[0]
        for axes in added:
            self.on_devices.setdefault(eqn, None)
            for type, split in results:
                self.combine(eqn, type, split, axes)
        if halos(eqn):
            self.send_halos(eqn, tuple([along.get(name, ()) for name in names[0]]))
        return [
            tuple([() if mine.count(name) > 1 or i in axes else along.get(name, ()) for i, name in enumerate(mine)])
            for mine, axes in zip(names, through, strict=True)
        ]

    def read(
        self, eqn: Eqn, cut: Sequence[str], given: Split, along: dict[str, Along], part: tuple[Type, Split]
    ) -> None:
        """What an equation reads of an array that is split: the sum of what each device has, or the array is sent."""
        axes = tuple([a for name in cut for a in along[name]])
        whole = tuple([() if set(here) & set(axes) else here for here in given])
        if eqn.op in WRITES or 2 * self.local_bytes(*part) <= self.local_bytes(eqn.operands[0].type, whole):
            self.on_devices[eqn] = axes
            self.move("all-reduce", *part, axes, eqn.span, "read")
        else:
            along.update(dict.fromkeys(cut, ()))

    def is_cheaper_whole(
        self, eqn: Eqn, names: Sequence[Sequence[str]], given: Sequence[Split], name: str,
        results: Sequence[tuple[Type, Split]],
    ) -> bool:  # fmt: skip
        """Whether of a product that sums an axis which one operand is split along, that operand is no larger than the
        product: then it is sent, and not the sums.
        """
        holders = [(k, mine.index(name)) for k, mine in enumerate(names) if name in mine]
        split = [(k, axis) for k, axis in holders if given[k][axis]]
        if not eqn.op.operand_rules.multilinear or len(split) == len(holders):
            return False
        k, axis = split[0]
        whole = (*given[k][:axis], (), *given[k][axis + 1 :])
        return self.local_bytes(eqn.operands[k].type, whole) <= sum([self.local_bytes(t, s) for t, s in results])

    def local_type(self, type: Tensor, split: Split) -> Tensor:
        """The type of the part of an array that each device has."""
        parts = [self.parts(along) for along in split]
        shape = [n // p if isinstance(n, int) else n for n, p in zip(type.shape, parts, strict=True)]
        return Tensor(type.dtype, tuple(shape))

    def local_bytes(self, type: Type, split: Split) -> int:
        return self.local_type(type, split).bytes if isinstance(type, Tensor) else 0

    def combine(self, eqn: Eqn, type: Type, split: Split, along: Along) -> None:
        """Note how devices bring together what each has found in its part of one axis."""
        first = eqn.operands[0].type
        if eqn.op.partials is None or not isinstance(type, Tensor) or not isinstance(first, Tensor):
            self.move("all-reduce", type, split, along, eqn.span, "summed")
            return
        for each in eqn.op.partials(first, type):
            if each.gathered:
                gathered = Tensor(each.type.dtype, (self.parts(along), *each.type.shape))
                self.move("all-gather", gathered, ((), *split), along, eqn.span, "compared")
            else:
                self.move("all-reduce", each.type, split, along, eqn.span, "summed")


def brought(slot: RegionSlot, regions: Sequence[RegionSplits]) -> Split | None:
    """Into which split regions bring an operand first."""
    pairs = zip(regions, slot.params, strict=False)
    return next(filter(None, [region.params[at] for region, at in pairs if at is not None]), None)


def busy(eqn: Eqn, given: Sequence[Split]) -> bool:
    """Whether an equation may split or move something."""
    return any(map(any, given)) or bool(eqn.regions) or isinstance(eqn.op.movement, Placement)


def split_in(env: Mapping[Value, Split], value: Value) -> Split:
    """The split of a value; whole for a call that the check of a definition does not follow."""
    found = env.get(value)
    return whole_split(value.type) if found is None else found
