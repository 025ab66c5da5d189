"""`batches(x, size)` in the header of a host loop: its arguments, its items, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from difflang.host.bindings import HostBindings
from difflang.host.builtins import BuiltinCall, RunningProgram, host_builtin
from difflang.host.data.row_batches import RowBatches
from difflang.host.data.stored_columns import ColumnInFile
from difflang.host.loop_iterables import HostIterable
from difflang.host.values import HostValue
from difflang.ir.symbolic_dims import Dim, Poly, dim_name
from difflang.ir.tensor_types import is_scalar_integer
from difflang.types.language_types import LangType, TupleType, add_axes, array_axes, drop_axes, show_type
from difflang.types.type_errors import make_error


class BatchIterable(HostIterable, frozen=True, eq=False):
    """The batches of some arrays; `batches` is None while only types are known."""

    batches: RowBatches | None = None

    @property
    def length(self) -> Dim | None:
        return None if self.batches is None else len(self.batches)

    def items(self) -> Iterator[HostValue]:
        assert self.batches is not None
        row = drop_axes(self.type, 1)
        for arrays in self.batches:
            yield HostValue(add_axes(row, (len(arrays[0]),)), arrays)


OPTIONS = ("shuffle", "drop_last")


def batches_type(_: HostBindings, given: BuiltinCall) -> LangType:
    given.check_arity(2, 2, OPTIONS)
    message = "`batches` can only be used in the header of a loop"
    raise make_error("DL0707", message, (given.span, ""), help=f"write `for batch in {given.span.text} {{ … }}`")


@host_builtin("batches", "`for batch in batches(x, 256, shuffle = true, drop_last = true)`", batches_type)
def batches(host: RunningProgram, given: BuiltinCall) -> HostValue:
    """Never called: a loop handles `batches` in its head, the only place where it can stand."""
    raise AssertionError(host, given)


def batch_iterable(given: BuiltinCall, draw_key: Callable[[], np.ndarray] | None) -> BatchIterable:
    """What a loop over batches iterates over; without `draw_key` only types are known.

    The last batch may have fewer rows than the others, so the number of rows is no number that checking knows, unless
    the last batch is dropped. Errors: DL0319, DL0329, DL0330.
    """
    given.check_arity(2, 2, OPTIONS)
    (value, _), (size, size_span) = given.items
    rows = common_rows(given)
    if not is_scalar_integer(size.type):
        raise given.usage_error(size_span, f"this is {show_type(size.type)}, but a number of rows is required")
    shuffle, drop_last = given.flag("shuffle"), given.flag("drop_last")
    static = size.static if isinstance(size.static, (int, Poly)) else None
    if size.leaves is not None or isinstance(static, int):
        count = static if size.leaves is None else int(size.number)
        if not isinstance(count, int) or count < 1:
            raise given.usage_error(size_span, f"this is {count}, but a batch has 1 row or more")
    line, column = given.span.position
    same = drop_last or (isinstance(rows, int) and isinstance(static, int) and rows % static == 0)
    most = "" if static is None else f"at most {static} "
    length = static if same and static is not None else dim_name(f"{most}rows of line {line}:{column}")
    type = add_axes(drop_axes(value.type, 1), (length,))
    if draw_key is None:
        return BatchIterable(type)
    key = draw_key() if shuffle else None
    # What is in memory becomes an array of NumPy here: a thread must not gather what is split over processes.
    arrays = tuple([x if isinstance(x, ColumnInFile) else np.asarray(x) for x in value.leaves or ()])
    return BatchIterable(type, batches=RowBatches(arrays, int(size.number), key, drop_last, given.span))


def common_rows(given: BuiltinCall) -> Dim:
    """The number of rows that an array has, or all arrays of a tuple. Errors: DL0329, DL0330."""
    value, span = given.items[0]
    parts = value.type.items if isinstance(value.type, TupleType) else (value.type,)
    for part in parts:
        if not array_axes(part):
            whole = len(parts) == 1 and is_scalar_integer(part)
            way = "`import data (batches)` gives batches of indices" if whole else ""
            message = "batches are rows of an array, of a table, or of several of them in a tuple"
            raise make_error("DL0329", message, (span, f"this is {show_type(part)}"), help=way)
    if not parts:
        raise given.usage_error(span, "this is empty")
    lengths: list[Any] = [array_axes(part)[0] for part in parts]
    if any(n != lengths[0] for n in lengths):
        found = " and ".join(map(str, lengths))
        raise make_error("DL0330", "the arrays of `batches` must have the same length", (span, found))
    return lengths[0]
