"""The axes of an equation by the names of their sizes: its type rule says which axes are one."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Attr, Eqn
from difflang.ir.op import StrictTypeSolver
from difflang.ir.symbolic_dims import Dim, Poly, dim_name, polynomial_terms
from difflang.ir.tensor_types import DType, Tensor, Type

SIZE_ATTRS = ("shape", "sizes")  # attributes that hold the sizes of a result


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
