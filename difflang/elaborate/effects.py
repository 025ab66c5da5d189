"""Records of what code does for the loop or block around it: items it yields, writes it logs, values it saves."""

from __future__ import annotations

from msgspec import Struct, field

from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.graph import Value
from difflang.ops.op_factories import static_size


class WriteKind(Struct, frozen=True):
    """The operation by which a loop writes into an array, and the number of indices."""

    op: str
    index_count: int


class LoggedWrite(Struct, frozen=True):
    """A write: positions for each indexed axis, and the update, whose leading axes are those of the positions."""

    positions: tuple[Array, ...]
    update: Array


class WriteLog(Struct, frozen=True, eq=False):
    """The writes of a loop into one array; `base` is its value before the loop."""

    kind: WriteKind
    base: Array
    writes: list[LoggedWrite] = field(default_factory=list[LoggedWrite])

    @property
    def item_shape(self) -> tuple[int, ...]:
        """The shape of the element at one position."""
        return tuple(map(static_size, self.base.tensor.shape[self.kind.index_count :]))

    def add(self, written: Term) -> None:
        """Log several writes that `concatenate_logged_writes` combined."""
        assert isinstance(written, Tuple)
        *positions, update = [item for item in written.items if isinstance(item, Array)]
        self.writes.append(LoggedWrite(tuple(positions), update))


class YieldItem(Struct, frozen=True):
    """What a step of a loop yields; `present` tells whether it reached the `yield`, if not every step does."""

    value: Term
    present: Array | None = None


class CheckpointSaves(Struct, frozen=True):
    """The values that a block saves. `depth` is that of its own statements; loops and branches in it are deeper."""

    depth: int
    values: list[Value] = field(default_factory=list[Value])
