"""Composition of Taylor series: the coefficients of f(x) from those of f along a line and the powers of `x - x0`.

It serves functions whose derivative rules lead to ever new functions, as those of `lgamma` and `^` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.op import MaybeValue
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import Mask
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.shape_manipulation import broadcast, concat, reshape, slice_axis


class SeriesPowers:
    """The coefficients of u, u^2, u^3, ... for a series `u` whose constant term is zero.

    Cost: a few equations per order, of arrays with as many elements as the square of the order.
    """

    def __init__(self, builder: Builder, u: Callable[[int], MaybeValue], like: Tensor, order: int) -> None:
        self.builder, self.u, self.like, self.order = builder, u, like, order
        # [1, order, ...]: coefficient n of all powers in one array, zero above power n. So each order costs the same
        # number of equations, where one array for each power would cost more with every order.
        self.columns: list[Value] = []
        self.present: list[Mask] = []  # which of the first n do not vanish structurally

    def column(self, n: int) -> tuple[Value, Mask]:
        """Coefficient n of the powers."""
        while len(self.columns) < n:
            self.append(len(self.columns) + 1)
        return self.columns[n - 1], self.present[n - 1]

    def append(self, n: int) -> None:
        """Compute coefficient n of all powers from the lower ones."""
        # u^(j+1) = u u^j, so its coefficient n is the sum over i of u_i times coefficient n - i of u^j.
        first, before = self.u(n), range(1, n)
        terms = [(u, n - i) for i in before if (u := self.u(i)) is not None]
        parts = [self.raised(first, 2)]
        if n > 1:
            parts.append(self.higher_powers(n, terms))
        if n < self.order:
            parts.append(self.zeros(1, self.order - n))
        there = [any(self.present[m - 1][j] for _, m in terms if j < m) for j in range(n - 1)]
        self.columns.append(concat.one(*parts, axis=1) if len(parts) > 1 else parts[0])
        self.present.append((first is not None, *there))

    def higher_powers(self, n: int, terms: Sequence[tuple[Value, int]]) -> Value:
        """Coefficient n of u^2 ... u^n."""
        if not terms:
            return self.zeros(1, n - 1)
        columns = [slice_axis(self.columns[m - 1], 1, 0, n - 1) for _, m in terms]
        shape = (len(terms), n - 1, *self.like.shape)
        factors = concat_parts([self.raised(u, 1) for u, _ in terms])
        spread = broadcast.one(factors, shape=shape, axes=(0, *range(2, len(shape))))
        total = reduce_sum.one(spread * concat_parts(columns), axes=(0,))
        return reshape.one(total, shape=(1, *shape[1:]))

    def raised(self, x: MaybeValue, axes: int) -> Value:
        """The array with leading axes of size 1."""
        if x is None:
            return self.zeros(*[1] * axes)
        return reshape.one(x, shape=(*[1] * axes, *self.like.shape))

    def zeros(self, *lead: int) -> Value:
        return self.builder.const(0.0, Tensor(self.like.dtype, (*lead, *self.like.shape)))

    def weighted_sum(self, n: int, f: Callable[[int], MaybeValue]) -> MaybeValue:
        """Coefficient n of `f_1 u + f_2 u^2 + ...`; terms that vanish structurally are left out."""
        column, there = self.column(n)
        chosen = [(j, c) for j, present in enumerate(there, 1) if present and (c := f(j)) is not None]
        if not chosen:
            return None
        rows = [(0, n)] if len(chosen) == n else [(j - 1, j) for j, _ in chosen]
        powers = concat_parts([slice_axis(column, 1, *row) for row in rows], 1)
        flat = reshape.one(powers, shape=(len(chosen), *self.like.shape))
        return reduce_sum.one(concat_parts([self.raised(c, 1) for _, c in chosen]) * flat, axes=(0,))


def concat_parts(parts: Sequence[Value], axis: int = 0) -> Value:
    return concat.one(*parts, axis=axis) if len(parts) > 1 else parts[0]
