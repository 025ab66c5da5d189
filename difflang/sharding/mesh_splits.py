"""How the values of a graph are split over the axes of a mesh, if its params are, and what devices exchange for it.

What is split follows from the type rules: with a name for every size, an axis of a result whose size has the name of an
operand's axis is that axis. An axis that no result has is summed or searched: what the devices have of it is brought
together. Regions say themselves how values flow through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import NeighbourExchange, Placement
from difflang.ir.region_dataflow import RegionSlot
from difflang.ir.tensor_types import History, Tensor, Type
from difflang.ops.arrays.gather_scatter import dynamic_update, scatter
from difflang.ops.arrays.reshard import ANY, Along, Split
from difflang.ops.arrays.swap_item import swap_item, swap_window
from difflang.ops.control.derivative_operators import jvp, vjp
from difflang.ops.signal.convolution import conv
from difflang.sharding.axis_names import AxisNames, axis_name
from difflang.sharding.index_positions import note_index_positions
from difflang.sharding.region_splits import (
    alone,
    array_shape,
    is_item,
    joined,
    lane,
    region_params,
    returned,
    runs_by_device,
    steps_of,
    whole_split,
)

OVERWRITES = (dynamic_update, scatter, swap_item, swap_window)  # a device needs all that is written to its part
IN_JAX = (
    "an argument can be put whole on every device before the call: `jax.sharding.reshard(x, P())`",
    "`jax.sharding.auto_axes(f, out_sharding=…)` leaves it to XLA what devices send each other in `f`",
)


class PredictedCollective(Struct, frozen=True):
    """An exchange that an equation needs: its kind, and what each device has afterwards.

    It runs `times` in a call; None: as often as a loop of unknown length takes a step. With `declared` the program says
    so, by a type or by `reshard`.
    """

    kind: str
    type: Tensor  # on each device
    axes: Along
    span: Span
    why: str
    times: int | None = 1
    declared: bool = False


def result_splits(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> list[Split]:
    """The split of each result, `((), ("data",))` for `f32[n, m @data]`; a sum over a split axis is whole.

    Errors: DL0604 if a result would be split along one mesh axis twice, DL0605 if two axes that an equation takes
    together are split differently.
    """
    return MeshSplits(mesh, strict=True).of_graph(note_index_positions(graph), params)


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
        self.taken: dict[Eqn, list[Split]] = {}  # how other equations take their operands
        self.results: dict[Eqn, list[Split]] = {}  # how results are split
        self.values: dict[Value, Split] = {}  # how values are split, of the graph gone through last
        self.lanes: dict[Eqn, Along] = {}  # along what instances of regions are split
        self.held: set[tuple[Value, Split]] = set()  # values that the devices already have in another split too
        self.regions: dict[tuple[Graph, tuple[Split, ...]], tuple[list[Split], list[PredictedCollective]]] = {}

    def of_graph(self, graph: Graph, params: Sequence[Split]) -> list[Split]:
        env: dict[Value, Split] = dict(zip(graph.params, params, strict=True))
        outside, self.held = self.held, set()
        for eqn in graph.eqns:
            given = [split_in(env, v) for v in eqn.operands]
            if busy(eqn, given):
                found = self.results[eqn] = self.of_eqn(eqn, given)
            else:
                found = [whole_split(r.type) for r in eqn.results]
            env.update(zip(eqn.results, found, strict=True))
        self.held, self.values = outside, env
        return [split_in(env, r) for r in graph.results]

    def of_eqn(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        if isinstance(eqn.op.movement, Placement):
            return [self.placed(eqn, given[0], eqn.op.movement)]
        if isinstance(eqn.op.movement, NeighbourExchange):
            return [self.shifted(eqn, given[0], *eqn.op.movement.distance(**eqn.attrs))]
        plain = eqn.op.without_derivative
        if plain is not None:
            same = plain(eqn, False)
            return self.of_eqn(same, given) if same.op is not eqn.op else [whole_split(r.type) for r in eqn.results]
        if eqn.op is jvp or eqn.op is vjp:
            return self.of_derivative(eqn, given)
        if eqn.op.region_dataflow is not None:
            return self.of_regions(eqn, given)
        return [whole_split(r.type) for r in eqn.results] if eqn.regions else self.by_type(eqn, given)

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

    def move(self, kind: str, type: Type, split: Split, axes: Iterable[str], eqn: Eqn, why: str) -> None:
        """Note an exchange along some axes, after which each device has its part of an array of this split."""
        axes = tuple([a for a in dict.fromkeys(axes) if self.mesh.get(a, 1) > 1])
        if axes and isinstance(type, Tensor):
            declared = isinstance(eqn.op.movement, Placement)
            local = self.local_type(type, split)
            self.moves.append(PredictedCollective(kind, local, axes, eqn.span, why, declared=declared))

    def placed(self, eqn: Eqn, given: Split, placement: Placement) -> Split:
        """The split that a placement asks for, and what devices exchange to get there."""
        asked = placement.splits(**eqn.attrs)
        pairs = zip(asked, given, strict=True)
        wanted = tuple([b if a == ANY else tuple([n for n in a if n in self.mesh]) for a, b in pairs])
        self.resplit(eqn, eqn.operands[0], given, self.fitting(wanted, eqn.operands[0].type))
        return self.fitting(wanted, eqn.operands[0].type)

    def resplit(self, eqn: Eqn, value: Value, given: Split, wanted: Split) -> None:
        """Note how an array gets from one split to another, once: to cut what is whole costs nothing."""
        if given == wanted or (value, wanted) in self.held:
            return
        self.held.add((value, wanted))
        type = value.type
        there = {a: i for i, along in enumerate(wanted) for a in along}
        lost = [a for along in given for a in along if a not in there]
        turned = [a for i, along in enumerate(given) for a in along if there.get(a, i) != i]
        if turned:
            self.move("all-to-all", type, wanted, turned, eqn, "split another way")
        # One axis of the array after the other, so that what is sent last is largest.
        split = tuple([(*there, *[a for a in here if a in lost]) for here, there in zip(given, wanted, strict=True)])
        for i, here in enumerate(given):
            if gone := [a for a in here if a in lost]:
                split = (*split[:i], wanted[i], *split[i + 1 :])
                self.move("all-gather", type, split, gone, eqn, "made whole")

    def shifted(self, eqn: Eqn, split: Split, axis: int, by: int) -> Split:
        """An array whose elements move along an axis: neighbours send each other what crosses their borders."""
        count, type = self.parts(split[axis]), eqn.operands[0].type
        size = array_shape(type)[axis]
        if count > 1 and isinstance(type, Tensor) and isinstance(size, int):
            far, rest = divmod(by, size // count)
            for distance, elements in ((far, size // count - rest), (far + 1, rest)):
                if elements and 0 < abs(distance) < count:
                    part = Tensor(type.dtype, (*type.shape[:axis], elements * count, *type.shape[axis + 1 :]))
                    self.move("collective-permute", part, split, split[axis], eqn, "neighbours")
        return split

    # ---- Equations with regions

    def of_derivative(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """A tangent is split as its value, and the cotangent of a param as the param."""
        (f,), wrt = eqn.regions, eqn.attrs["wrt"]
        assert isinstance(wrt, tuple)
        ys = self.of_region(f, given[: len(f.params)])[0]
        if eqn.op is jvp:
            return [*ys, *[s for s, r in zip(ys, f.results, strict=True) if r.type.tangent is not None]]
        return [*ys, *[s for s, moves in zip(given, wrt, strict=False) if moves]]

    def of_region(self, graph: Graph, params: Sequence[Split]) -> tuple[list[Split], list[PredictedCollective]]:
        """The splits of a region's results, and its exchanges; each region is gone through once for each split."""
        key = graph, tuple(params)
        if key not in self.regions:
            outer, self.moves = self.moves, []
            splits = self.of_graph(graph, params)
            self.regions[key] = splits, self.moves
            self.moves = outer
        return self.regions[key]

    def of_regions(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """Through regions: what they carry is split if it begins so or a step leaves it so."""
        assert eqn.op.region_dataflow is not None
        flow = eqn.op.region_dataflow(eqn)
        carries = [s for s in flow.slots if s.operand is not None and s.result is not None]
        starts = {s: given[s.operand] for s in flow.slots if s.operand is not None}
        lanes = () if carries else next(filter(None, [lane(eqn, s, starts[s]) for s in starts]), ())
        if lanes and flow.independent and runs_by_device(eqn):
            self.by_device[eqn] = lanes
            starts = {s: alone(eqn, s, split, lanes) for s, split in starts.items()}
        whole: set[tuple[RegionSlot, int]] = set()  # axes that are split in one way at first and in another later
        while True:
            gone = [self.of_region(r, region_params(eqn, k, starts)) for k, r in enumerate(eqn.regions)]
            ends = [splits for splits, _ in gone]
            after = {s: joined(s, [starts[s], *returned(s, ends)], whole) for s in carries}
            if all(starts[s] == after[s] for s in carries):
                break
            starts |= after
        self.starts[eqn], self.lanes[eqn] = starts, lanes
        self.enter(eqn, given, starts, lanes)
        times = steps_of(eqn) if flow.repeats and carries else 1
        for _, moves in gone:
            self.moves += [
                replace(m, times=None if times is None or m.times is None else m.times * times) for m in moves
            ]
        return self.results_of_regions(eqn, starts, ends, lanes)

    def enter(self, eqn: Eqn, given: Sequence[Split], starts: Mapping[RegionSlot, Split], lanes: Along) -> None:
        """Note what devices exchange before the regions run: steps read each item of an array that is split."""
        for slot, split in starts.items():
            assert slot.operand is not None
            value, before = eqn.operands[slot.operand], given[slot.operand]
            if not lanes and is_item(eqn, 0, slot) and split and split[0]:
                self.resplit(eqn, value, before, ((), *split[1:]))
            else:
                self.resplit(eqn, value, before, split)

    def results_of_regions(
        self, eqn: Eqn, starts: Mapping[RegionSlot, Split], ends: Sequence[Sequence[Split]], lanes: Along
    ) -> list[Split]:
        assert eqn.op.region_dataflow is not None
        found = [whole_split(r.type) for r in eqn.results]
        for slot in eqn.op.region_dataflow(eqn).slots:
            if slot.result is not None and (back := returned(slot, ends)):
                type = eqn.results[slot.result].type
                split = starts[slot] if slot.operand is not None else joined(slot, back, set())
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
            self.resplit(eqn, operand, before, after)
        found: list[Split] = []
        for result, origin in zip(eqn.results, origins, strict=True):
            split = tuple([along.get(name, ()) if name else () for name in origin])
            if isinstance(result.type, History):
                split = whole_split(result.type)
            found.append(self.fitting(split, result.type))
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
        through = [axes_gone_along(eqn, k) for k in range(len(names))]
        passed = {mine[i] for mine, axes in zip(names, through, strict=True) for i in axes}
        gone = [name for name in along if along[name] and name not in kept]
        results = [
            (r.type, self.fitting(tuple([along.get(name, ()) for name in origin]), r.type))
            for r, origin in zip(eqn.results, origins, strict=True)
        ]
        # An effect such as `print` has no results: it sees whole arrays.
        sums = bool(results) and not any([is_cut(eqn, mine, gone, origins[0]) for mine in names])
        for name in gone:
            if sums and name not in passed and not self.is_cheaper_whole(eqn, names, given, name, results):
                for type, split in results:
                    self.combine(eqn, type, split, along[name])
            else:
                along[name] = ()
        return [
            tuple([() if mine.count(name) > 1 or i in axes else along.get(name, ()) for i, name in enumerate(mine)])
            for mine, axes in zip(names, through, strict=True)
        ]

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
            self.move("all-reduce", type, split, along, eqn, "summed")
            return
        for each in eqn.op.partials(first, type):
            if each.gathered:
                gathered = Tensor(each.type.dtype, (self.parts(along), *each.type.shape))
                self.move("all-gather", gathered, ((), *split), along, eqn, "compared")
            else:
                self.move("all-reduce", each.type, split, along, eqn, "summed")


def is_cut(eqn: Eqn, names: Sequence[str], gone: Sequence[str], result: Sequence[str]) -> bool:
    """Whether an op gives a part of an axis that is gone, as a slice does, and not a sum over it."""
    if eqn.op in OVERWRITES:
        return True
    if eqn.op.operand_rules.multilinear or len(names) != len(result):
        return False
    return any(name in gone and not there for name, there in zip(names, result, strict=True))


def axes_gone_along(eqn: Eqn, operand: int) -> tuple[int, ...]:
    """The axes of an operand that an op of several elements goes along, such as that of a sum so far."""
    type = eqn.operands[operand].type
    if eqn.op.elementwise or not isinstance(type, Tensor):
        return ()
    if eqn.op is conv:
        return tuple([a + (1 - operand) for a in range(type.rank - 2) if operand == 1 or has_gaps(eqn, a)])
    if "whole matrices" in eqn.op.traits:
        return tuple(range(max(type.rank - 2, 0), type.rank))
    looks_up = not {"gather", "scatter"}.isdisjoint(eqn.op.traits)
    if looks_up or any(array_shape(v.type) != type.shape for v in (*eqn.operands, *eqn.results)):
        return ()
    named = [eqn.attrs.get(name) for name in ("axis", "axes")]
    return tuple(
        [a for value in named for a in ((value,) if isinstance(value, int) else value or ()) if isinstance(a, int)]
    )


def busy(eqn: Eqn, given: Sequence[Split]) -> bool:
    """Whether an equation may split or move something."""
    return any(map(any, given)) or bool(eqn.regions) or isinstance(eqn.op.movement, Placement)


def has_gaps(eqn: Eqn, axis: int) -> bool:
    """Whether a convolution skips places along an axis of space: XLA's partitioner fails on some of these."""
    counts = [eqn.attrs[name] for name in ("strides", "input_dilation", "kernel_dilation")]
    return any([isinstance(count, tuple) and count[axis] != 1 for count in counts])


def split_in(env: Mapping[Value, Split], value: Value) -> Split:
    """The split of a value; whole for a call that the check of a definition does not follow."""
    found = env.get(value)
    return whole_split(value.type) if found is None else found


# ---- Errors


def split_differently(eqn: Eqn, first: Along, second: Along, ways: Sequence[str]) -> DifflangError:
    message = f"what is taken together here is split along {quoted(first)} and along {quoted(second)}"
    label, helps = Label(eqn.span, "split in two ways"), ("put both along the same axis of the mesh", *ways)
    return DifflangError(Diagnostic("DL0605", message, (label,), helps))


def split_twice(eqn: Eqn, axis: str, ways: Sequence[str]) -> DifflangError:
    message = f"two axes of this result would both be split along {quoted([axis])}"
    label = Label(eqn.span, "made from two axes that are split along it")
    return DifflangError(Diagnostic("DL0604", message, (label,), tuple(ways)))


def quoted(axes: Iterable[str]) -> str:
    return ", ".join([f"`{a}`" for a in axes])
