"""The axes of an equation: which are one, by the names of sizes in its type rule, and which a device needs whole."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Attr, Eqn
from difflang.ir.op import AxisPermutation, NeighbourExchange, StrictTypeSolver
from difflang.ir.symbolic_dims import Dim, Poly, dim_name, polynomial_terms
from difflang.ir.tensor_types import DType, Tensor, Type
from difflang.ops.arrays.axis_reductions import reduce_all, reduce_any, reduce_max, reduce_min, reduce_prod, reduce_sum
from difflang.ops.arrays.gather_scatter import dynamic_update, scatter
from difflang.ops.arrays.shape_manipulation import broadcast, pad, reshape
from difflang.ops.arrays.swap_item import swap_item, swap_window
from difflang.ops.signal.convolution import conv
from difflang.sharding.convolution_halos import axes_taken_whole, halos, is_summed
from difflang.sharding.region_splits import array_shape

SIZE_ATTRS = ("shape", "sizes")  # attributes that hold the sizes of a result

REDUCTIONS = (reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_any, reduce_all)
OVERWRITES = (dynamic_update, scatter, swap_item, swap_window)  # a device needs all that is written to its part


class AxisNames(StrictTypeSolver):
    """A solver for one equation whose sizes are all names: it remembers which are equal. A name's root stands for all
    that are equal to it.
    """

    def __init__(self, eqn: Eqn) -> None:
        self.eqn = eqn
        self.parents: dict[str, str] = {}
        self.numbers: dict[str, Dim] = {}
        whole = 2 if "whole matrices" in eqn.op.traits else 0  # last axes that keep their sizes
        self.operands = [self.named(v.type, k, whole) for k, v in enumerate(eqn.operands)]
        self.attrs = {n: self.named_attr(n, x) for n, x in eqn.attrs.items()}
        self.types: Sequence[Type] | None = None  # of the results
        try:
            found = eqn.op.type(self, *self.operands, **self.attrs)
            self.types = found if isinstance(found, tuple) else (found,)
        except Exception:  # noqa: BLE001 - a rule that looks into sizes: what it equated before still holds
            pass
        for axis in halos(eqn):
            if is_summed(eqn, axis):
                self.unite(axis_name(1, axis - 1), axis_name(0, axis))

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

    def named(self, type: Type, operand: int, whole: int) -> Type:
        if not isinstance(type, Tensor):
            return type
        named = [self.new(axis_name(operand, i), n) for i, n in enumerate(type.shape[: max(type.rank - whole, 0)])]
        return Tensor(type.dtype, (*named, *type.shape[len(named) :]))

    def named_attr(self, name: str, value: Attr) -> Attr:
        if name not in SIZE_ATTRS or not isinstance(value, tuple):
            return value
        return tuple(
            [self.new(attr_name(name, i), n) if isinstance(n, (int, Poly)) else n for i, n in enumerate(value)]
        )

    def of_attr(self, name: str) -> list[str]:
        """For each size in an attribute its name."""
        value = self.eqn.attrs[name]
        return [self.root(attr_name(name, i)) for i in range(len(value))] if isinstance(value, tuple) else []

    def new(self, name: str, size: Dim) -> Dim:
        if size == 1:
            return 1
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

    def dtype(self, a: Tensor, b: Tensor) -> None:
        """As above: element types may still be open where a definition is checked."""

    def accepts(self, a: Tensor, dtypes: Sequence[DType]) -> None:
        """As above."""

    def shape(self, a: Tensor, b: Tensor, except_axis: int | None = None) -> None:
        for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)):
            if i != except_axis:
                self.size(m, n)

    def window(self, size: Dim, whole: Dim) -> None:
        """A window as long as the axis is the axis."""
        a, b = single_name(size), single_name(whole)
        if a and b and self.numbers[a] == self.numbers[b]:
            self.unite(b, a)

    def size(self, a: Dim, b: Dim, quantity: str = "size") -> None:
        """Equal sizes; of equal products, the outermost axis of each group that has as many elements on both sides."""
        lefts, rights = factor_names(a), factor_names(b)
        while lefts and rights:
            self.unite(lefts[0], rights[0])
            left, right = self.numbers[lefts.pop(0)], self.numbers[rights.pop(0)]
            while left != right:
                if not isinstance(left, int) or not isinstance(right, int):
                    return
                if left < right and lefts:
                    left = left * self.numbers[lefts.pop(0)]
                elif right < left and rights:
                    right = right * self.numbers[rights.pop(0)]
                else:
                    return


def axis_name(operand: int, axis: int) -> str:
    # Names are sorted where they are multiplied, and stay in the order of the axes.
    return f"operand {operand:02} {axis:02}"


def attr_name(attr: str, axis: int) -> str:
    return f"{attr} {axis:02}"


def factor_names(size: Dim) -> list[str]:
    """The names whose product a size is; none for a sum."""
    terms = polynomial_terms(size)
    return [n for n in terms[0][0] if isinstance(n, str)] if len(terms) == 1 and terms[0][1] == 1 else []


def single_name(size: Dim | None) -> str:
    names = factor_names(size) if isinstance(size, Poly) else []
    return names[0] if len(names) == 1 else ""


# ---- What a device can compute of its parts


def axes_gone_along(eqn: Eqn, operand: int) -> tuple[int, ...]:
    """The axes of an operand that an op of several elements goes along, such as that of a sum so far."""
    type = eqn.operands[operand].type
    if eqn.op.elementwise or not isinstance(type, Tensor):
        return ()
    if eqn.op is conv:
        return axes_taken_whole(eqn, operand)
    if "whole matrices" in eqn.op.traits:
        return tuple(range(max(type.rank - 2, 0), type.rank))
    if "whole operands" in eqn.op.traits:
        return tuple(range(type.rank))
    if eqn.op is pad and operand == 0:
        margins = zip(eqn.attrs["low"], eqn.attrs["high"], eqn.attrs["interior"], strict=True)
        return tuple([a for a, margin in enumerate(margins) if any(margin)])
    if isinstance(window := eqn.attrs.get("window"), tuple):
        return tuple([a for a, k in enumerate(window, 1) if k != 1])
    looks_up = not {"gather", "scatter"}.isdisjoint(eqn.op.traits)
    if looks_up or any(array_shape(v.type) != type.shape for v in (*eqn.operands, *eqn.results)):
        return ()
    named = [eqn.attrs.get(name) for name in ("axis", "axes")]
    return tuple(
        [a for value in named for a in ((value,) if isinstance(value, int) else value or ()) if isinstance(a, int)]
    )


def sums(eqn: Eqn) -> bool:
    """Whether devices may compute an equation of parts of an axis that is gone, and add or compare what they find."""
    return eqn.op in REDUCTIONS or eqn.op.partials is not None or eqn.op.operand_rules.multilinear or adds_items(eqn)


def adds_items(eqn: Eqn) -> bool:
    return "scatter" in eqn.op.traits and eqn.op not in OVERWRITES


def is_left_to_xla(eqn: Eqn) -> bool:
    """Whether XLA finds that each device can compute an equation of its parts."""
    op = eqn.op
    moves = op in (reshape, broadcast) or isinstance(op.movement, AxisPermutation | NeighbourExchange)
    arrays = all(isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results))
    alone = op.elementwise and "asks all elements" not in op.traits
    added = sums(eqn) and not adds_items(eqn) and op is not conv
    return alone or moves or bool(op.effect) or not arrays or added
