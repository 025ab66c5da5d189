"""Errors of arrays that are split in ways that do not go together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Eqn, Value
from difflang.ops.arrays.reshard import Along

IN_JAX = (
    "an argument can be put whole on every device before the call: `jax.sharding.reshard(x, P())`",
    "`jax.sharding.auto_axes(f, out_sharding=…)` leaves it to XLA what devices send each other in `f`",
)


class SplitConflict(DifflangError):
    """What is split along these axes of the mesh cannot be taken together. `params` are those of the region gone
    through last that are split so, each with an axis; None before any region is left.
    """

    def __init__(
        self, diagnostic: Diagnostic, axes: Along = (), params: Sequence[tuple[Value, str]] | None = None
    ) -> None:
        super().__init__(diagnostic)
        self.axes, self.params = axes, params


def split_differently(eqn: Eqn, first: Along, second: Along, ways: Sequence[str]) -> SplitConflict:
    message = f"what is taken together here is split along {quoted(first)} and along {quoted(second)}"
    label, helps = Label(eqn.span, "split in two ways"), ("put both along the same axis of the mesh", *ways)
    return SplitConflict(Diagnostic("DL0605", message, (label,), helps), (*first, *second))


def split_twice(eqn: Eqn, axis: str, ways: Sequence[str]) -> SplitConflict:
    message = f"two axes of this result would both be split along {quoted([axis])}"
    label = Label(eqn.span, "made from two axes that are split along it")
    return SplitConflict(Diagnostic("DL0604", message, (label,), tuple(ways)), (axis,))


def quoted(axes: Iterable[str]) -> str:
    return ", ".join([f"`{a}`" for a in axes])
