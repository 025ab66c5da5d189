"""What host loops iterate over (ranges, arrays, zipped or enumerated), and collecting the values they yield."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.source import Span
from difflang.elaborate.statements.iterables import field_iteration_help
from difflang.host.data.mapped_files import check_files, mapping_of
from difflang.host.values import HostValue
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import I32, Tensor, numpy_dtype
from difflang.types.join_types import contains_kind, least_common_type
from difflang.types.language_types import (
    KeyType,
    LangType,
    RangeType,
    TupleType,
    add_axes,
    add_tags,
    array_axes,
    drop_axes,
    leaf_types,
    show_type,
)
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier


class HostIterable(Struct, frozen=True, eq=False):
    """A range or an array, or several iterated together; `type` is the type of an item."""

    type: LangType
    value: HostValue | None = None
    parts: tuple[HostIterable, ...] = ()
    # Items are pairs of an index and an item of the only part.
    enumerated: bool = False

    @property
    def item(self) -> LangType:
        return TupleType((Tensor(I32), self.parts[0].item)) if self.enumerated else self.type

    @property
    def length(self) -> Dim | None:
        """The number of items; None if it is known only at run time."""
        if self.value is None:
            return next((n for n in (p.length for p in self.parts) if n is not None), None)
        if array_axes(self.value.type):
            return array_axes(self.value.type)[0]
        # At run time count the numbers; during checking the ends may be symbolic.
        if self.value.leaves is not None:
            return len(range_numbers(self.value))
        assert isinstance(self.value.type, RangeType)
        start, stop, step = self.value.type.ends
        if isinstance(start, (int, Poly)) and isinstance(stop, (int, Poly)) and step == 1:
            length = stop - start
            return max(length, 0) if isinstance(length, int) else length
        return None

    def items(self) -> Iterator[HostValue]:
        """The items one by one."""
        if self.enumerated:
            for i, item in enumerate(self.parts[0].items()):
                yield tuple_value([HostValue(Tensor(I32), (np.int32(i),)), item])
        elif self.value is None:
            for items in zip(*[p.items() for p in self.parts], strict=True):
                yield tuple_value(items)
        elif isinstance(self.value.type, RangeType):
            for i in range_numbers(self.value):
                yield HostValue(self.type, (np.int32(i),))
        else:
            assert self.value.leaves is not None
            # Iterating a NumPy array gives scalars: restore their types.
            kinds = [numpy_dtype(t.dtype) for t in leaf_types(self.type)]
            mapped = [x for x in self.value.leaves if mapping_of(x) is not None]
            for row in zip(*map(np.asarray, self.value.leaves), strict=True):
                check_files(mapped)
                yield HostValue(self.type, tuple(map(np.asarray, row, kinds)))


def loop_iterable(value: HostValue, span: Span) -> HostIterable:
    """The iterable of a loop over a value. Errors: DL0329."""
    if isinstance(value.type, RangeType):
        return HostIterable(Tensor(I32), value)
    if array_axes(value.type):
        return HostIterable(drop_axes(value.type, 1), value)
    found = f"this is {show_type(value.type)}"
    whole = isinstance(value.type, Tensor) and value.type.dtype.is_integer
    way = f"write `0..{span.text}`" if whole else field_iteration_help(value.type)
    raise make_error("DL0329", "a host loop iterates over a range or an array", (span, found), help=way)


def range_numbers(value: HostValue) -> range:
    """The numbers in a range."""
    assert value.leaves is not None
    start, stop, *step = [int(np.asarray(leaf)) for leaf in value.leaves]
    return range(start, stop, *step)


def tuple_value(items: Any) -> HostValue:
    """Values combined into a tuple."""
    return HostValue(TupleType(tuple(i.type for i in items)), tuple(leaf for i in items for leaf in i.leaves or ()))


def common_item_type(types: Sequence[LangType], span: Span) -> LangType:
    """The common type of all items of a loop. Errors: DL0317 if they have none."""
    type = add_tags(types[0])
    for other in types[1:]:
        both = least_common_type(Unifier(), type, add_tags(other))
        if both is None:
            found = f"this is {show_type(other)}, but the first was {show_type(type)}"
            raise make_error("DL0317", "the values that a loop yields must have one type", (span, found))
        type = both
    return type


def collected_type(item: LangType, length: Dim, span: Span) -> LangType:
    """The type of a loop that yields items of this type; for a record, a record of arrays. Errors: DL0313 for keys."""
    if contains_kind(item, (KeyType, RangeType)):
        raise make_error(
            "DL0313", "an array cannot hold the values that this loop yields", (span, f"this is {show_type(item)}")
        )
    return add_axes(item, (length,))


def stack_values(items: list[HostValue], type: LangType) -> HostValue:
    """Values of one type stacked along a new leading axis."""
    columns = zip(*[i.leaves or () for i in items], strict=True)
    return HostValue(type, tuple(np.stack([np.asarray(x) for x in column]) for column in columns))
