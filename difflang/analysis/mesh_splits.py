"""How the results of a graph are split over the axes of a mesh, if its params are.

What is split follows from the type rules: with a name for every size, an axis of a result whose size has the name of an
operand's axis is that axis. Regions say themselves how values flow through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.op import StrictTypeSolver
from difflang.ir.region_dataflow import RegionSlot
from difflang.ir.symbolic_dims import Dim, Poly, dim_name, polynomial_terms
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.control.derivative_operators import jvp, vjp

Along = tuple[str, ...]  # the mesh axes that an axis of an array is split along, the outermost first
Split = tuple[Along, ...]  # of each axis of an array
WAYS = (
    "an argument can be put whole on every device before the call: `jax.sharding.reshard(x, P())`",
    "`jax.sharding.auto_axes(f, out_sharding=…)` leaves it to XLA what devices send each other in `f`",
)
SIZE_ATTRS = ("shape", "sizes")  # attributes that hold the sizes of a result


def result_splits(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> list[Split]:
    """The split of each result, `((), ("data",))` for `f32[n, m @data]`; a sum over a split axis is whole.

    Errors: DL0604 if a result would be split along one mesh axis twice, DL0605 if two axes that an equation takes
    together are split differently.
    """
    return MeshSplits(mesh).of_graph(graph, params)


class MeshSplits:
    """Splits over one mesh, whose axes have these sizes."""

    def __init__(self, mesh: Mapping[str, int]) -> None:
        self.mesh = mesh

    def of_graph(self, graph: Graph, params: Sequence[Split]) -> list[Split]:
        env: dict[Value, Split] = dict(zip(graph.params, params, strict=True))
        for eqn in graph.eqns:
            given = [env[v] for v in eqn.operands]
            whole = [whole_split(r.type) for r in eqn.results]
            found = self.of_eqn(eqn, given) if any(map(any, given)) else whole
            env.update(zip(eqn.results, found, strict=True))
        return [env[r] for r in graph.results]

    def of_eqn(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
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
        """The split without what does not divide an axis, and without a mesh axis that an earlier axis has."""
        if not isinstance(type, Tensor):
            return ()
        used: set[str] = set()
        found: list[Along] = []
        for along, size in zip(split, type.shape, strict=True):
            parts = prod([self.mesh[a] for a in along])
            kept = along if isinstance(size, int) and size % parts == 0 and used.isdisjoint(along) else ()
            used |= set(kept)
            found.append(kept)
        return tuple(found)

    # ---- Equations with regions

    def of_derivative(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """A tangent is split as its value, and the cotangent of a param as the param."""
        (f,), wrt = eqn.regions, eqn.attrs["wrt"]
        assert isinstance(wrt, tuple)
        ys = self.of_graph(f, given[: len(f.params)])
        if eqn.op is jvp:
            return [*ys, *[s for s, r in zip(ys, f.results, strict=True) if r.type.tangent is not None]]
        return [*ys, *[s for s, moves in zip(given, wrt, strict=False) if moves]]

    def of_regions(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """Through regions: what they carry is split as at first where every step leaves it so."""
        assert eqn.op.region_dataflow is not None
        slots = eqn.op.region_dataflow(eqn).slots
        carries = [s for s in slots if s.operand is not None and s.result is not None]
        starts = {s: given[s.operand] for s in slots if s.operand is not None}
        lanes = () if carries else next(filter(None, [lane(eqn, s, starts[s]) for s in starts]), ())
        while True:
            ends = [self.of_graph(r, region_params(eqn, k, starts)) for k, r in enumerate(eqn.regions)]
            after = {s: common([starts[s], *returned(s, ends)]) for s in carries}
            if all(starts[s] == after[s] for s in carries):
                break
            starts |= after
        found = [whole_split(r.type) for r in eqn.results]
        for slot in slots:
            if slot.result is not None and (back := returned(slot, ends)):
                type = eqn.results[slot.result].type
                split = starts[slot] if slot.operand is not None else common(back)
                if isinstance(type, Tensor):
                    split = (lanes, *split) if type.rank == len(split) + 1 else split
                    found[slot.result] = self.fitting(split, type)
        return found

    # ---- Other equations

    def by_type(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        """By the type rule, with names for sizes."""
        axes = AxisNames(eqn)
        along: dict[str, Along] = {}
        for k, split in enumerate(given):
            names = [axes.root(axis_name(k, i)) for i in range(len(split))]
            for name, here in zip(names, split, strict=True):
                # The axes of a square matrix are equally long, but they are not one axis: every device takes it whole.
                if here and names.count(name) == 1 and along.setdefault(name, here) != here:
                    raise split_differently(eqn, along[name], here)
        found: list[Split] = []
        for result, origins in zip(eqn.results, axes.of_results(), strict=True):
            split = tuple([along.get(name, ()) if name else () for name in origins])
            twice = [a for a in sum(split, ()) if sum(split, ()).count(a) > 1]
            if twice:
                raise split_twice(eqn, twice[0])
            found.append(self.fitting(split, result.type))
        return found


def whole_split(type: Type) -> Split:
    """The split of what every device has the whole of."""
    return ((),) * type.rank if isinstance(type, Tensor) else ()


def common(splits: Sequence[Split]) -> Split:
    """What several splits of one array agree on, axis by axis."""
    return tuple([here[0] if len(set(here)) == 1 else () for here in zip(*splits, strict=True)])


def lane(eqn: Eqn, slot: RegionSlot, split: Split) -> Along:
    """Along what the instances of the regions are split, as far as one operand of them tells."""
    return split[0] if split and is_item(eqn, 0, slot) else ()


def is_item(eqn: Eqn, region: int, slot: RegionSlot) -> bool:
    """Whether each run of a region takes one item of the operand."""
    at = slot.params[region]
    if slot.operand is None or at is None:
        return False
    whole, item = eqn.operands[slot.operand].type, eqn.regions[region].params[at].type
    return isinstance(whole, Tensor) and isinstance(item, Tensor) and whole.rank == item.rank + 1


def region_params(eqn: Eqn, region: int, starts: Mapping[RegionSlot, Split]) -> list[Split]:
    found = [whole_split(p.type) for p in eqn.regions[region].params]
    for slot, split in starts.items():
        at = slot.params[region] if slot.params else None
        if at is not None:
            found[at] = split[1:] if is_item(eqn, region, slot) else split
    return found


def returned(slot: RegionSlot, ends: Sequence[Sequence[Split]]) -> list[Split]:
    """The splits of what the regions give back for a slot."""
    return [end[at] for end, at in zip(ends, slot.returns, strict=False) if at is not None]


# ---- Axes by the names of their sizes


class AxisNames(StrictTypeSolver):
    """A solver for one equation whose sizes are all names: it remembers which are equal."""

    def __init__(self, eqn: Eqn) -> None:
        self.eqn = eqn
        self.parents: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.operands = [self.named(v.type, k) for k, v in enumerate(eqn.operands)]
        self.attrs = {n: self.named_attr(n, x) for n, x in eqn.attrs.items()}
        self.types: Sequence[Type] | None = None  # of the results
        try:
            found = eqn.op.type(self, *self.operands, **self.attrs)
            self.types = found if isinstance(found, tuple) else (found,)
        except Exception:  # noqa: BLE001 - a rule that looks into sizes: what it equated before still holds
            pass

    def of_results(self) -> list[list[str]]:
        """For each axis of each result the name of its size, or nothing."""
        types = self.types or [None] * len(self.eqn.results)
        return [self.of_result(r.type, t) for r, t in zip(self.eqn.results, types, strict=True)]

    def of_result(self, type: Type, named: Type | None) -> list[str]:
        if not isinstance(type, Tensor):
            return []
        shape = named.shape if isinstance(named, Tensor) else (None,) * type.rank
        return [self.root(single_name(n)) or self.alike(type, i) for i, n in enumerate(shape)]

    def alike(self, type: Tensor, axis: int) -> str:
        """The axis of the first operand that one of a result is, if their ranks and sizes are equal."""
        first = self.eqn.operands[0].type
        same = isinstance(first, Tensor) and first.rank == type.rank and first.shape[axis] == type.shape[axis]
        return self.root(axis_name(0, axis)) if same else ""

    def named(self, type: Type, operand: int) -> Type:
        if not isinstance(type, Tensor):
            return type
        return Tensor(type.dtype, tuple([self.new(axis_name(operand, i), n) for i, n in enumerate(type.shape)]))

    def named_attr(self, name: str, value: Attr) -> Attr:
        if name not in SIZE_ATTRS or not isinstance(value, tuple):
            return value
        return tuple([self.new(f"{name} {i:02}", n) if isinstance(n, int) else n for i, n in enumerate(value)])

    def new(self, name: str, size: Dim) -> Dim:
        if size == 1:
            return 1
        assert isinstance(size, int)
        self.numbers[name] = size
        return dim_name(name)

    def root(self, name: str) -> str:
        while name in self.parents:
            name = self.parents[name]
        return name

    def unite(self, a: str, b: str) -> None:
        if self.root(a) != self.root(b):
            self.parents[self.root(a)] = self.root(b)

    def require(self, condition: bool, message: str, *parts: object) -> None:
        """The equation is known to be right."""

    def shape(self, a: Tensor, b: Tensor, except_axis: int | None = None) -> None:
        for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)):
            if i != except_axis:
                self.size(m, n)

    def size(self, a: Dim, b: Dim, quantity: str = "size") -> None:
        """Equal sizes; of equal products, the outermost axis of each group that has as many elements on both sides."""
        lefts, rights = factor_names(a), factor_names(b)
        while lefts and rights:
            self.unite(lefts[0], rights[0])
            left, right = self.numbers[lefts.pop(0)], self.numbers[rights.pop(0)]
            while left != right:
                if left < right and lefts:
                    left *= self.numbers[lefts.pop(0)]
                elif right < left and rights:
                    right *= self.numbers[rights.pop(0)]
                else:
                    return


def axis_name(operand: int, axis: int) -> str:
    # Names are sorted where they are multiplied, and stay in the order of the axes.
    return f"operand {operand:02} {axis:02}"


def factor_names(size: Dim) -> list[str]:
    """The names whose product a size is; none for a sum."""
    terms = polynomial_terms(size)
    return [n for n in terms[0][0] if isinstance(n, str)] if len(terms) == 1 and terms[0][1] == 1 else []


def single_name(size: Dim | None) -> str:
    names = factor_names(size) if isinstance(size, Poly) else []
    return names[0] if len(names) == 1 else ""


# ---- Errors


def split_differently(eqn: Eqn, first: Along, second: Along) -> DifflangError:
    message = f"what is taken together here is split along {quoted(first)} and along {quoted(second)}"
    label = Label(eqn.span, "split in two ways")
    return DifflangError(Diagnostic("DL0605", message, (label,), ("put both along the same axis of the mesh", *WAYS)))


def split_twice(eqn: Eqn, axis: str) -> DifflangError:
    message = f"two axes of this result would both be split along {quoted([axis])}"
    label = Label(eqn.span, "made from two axes that are split along it")
    return DifflangError(Diagnostic("DL0604", message, (label,), WAYS))


def quoted(axes: Iterable[str]) -> str:
    return ", ".join([f"`{a}`" for a in axes])
