"""Python's access to arrays of records and enums: `len(ps)`, `ps[i]`, `for p in ps`, `Record.stack([p, q])`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from difflang.runtime import pytrees

TEXT_FIELDS: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()
"""The fields of a record's class that hold texts."""

CountAxes = Callable[[Any], int]


def item_methods(name: str, fields: Sequence[str], count_axes: CountAxes, dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """The methods of a record's class for arrays of such records, except where a field has the name of one.

    `count_axes` counts the axes that a value has in front of those of one record; `dtypes` are those of its numbers.
    """

    def axes_of(record: Any) -> int:
        if not (axes := count_axes(record)):
            raise TypeError(f"this is one `{name}`, not an array of them")
        return axes

    def length(record: Any) -> int:
        axes_of(record)
        return item_shape(record, 1)[0]

    def item(record: Any, index: Any) -> Any:
        return index_items(record, index, axes_of(record))

    def items(record: Any) -> Iterator[Any]:
        return (item(record, i) for i in range(length(record)))

    def stack(cls: type, records: Sequence[Any]) -> Any:
        """An array of records from several of them, which have the same sizes and the same texts."""
        return stack_records(cls, list(records), dtypes)

    methods = {"__len__": length, "__getitem__": item, "__iter__": items, "__bool__": lambda record: True}
    return methods | ({} if "stack" in fields else {"stack": classmethod(stack)})


def item_shape(value: Any, axes: int) -> tuple[int, ...]:
    """The sizes of the first axes of a value's arrays."""
    leaves, _ = pytrees.flatten_tree(value)
    return tuple(np.shape(leaves[0])[:axes]) if leaves else ()


def index_items(value: Any, index: Any, axes: int) -> Any:
    """The items at an index, a slice or positions, of an array of items with that many axes.

    Errors: IndexError for a number out of range, as NumPy, and for too many of them.
    """
    steps = index if isinstance(index, tuple) else (index,)
    if len(steps) > axes:
        raise IndexError(f"{len(steps)} indices for an array of {axes} {'axis' if axes == 1 else 'axes'}")
    for step, size in zip(steps, item_shape(value, axes), strict=False):
        # JAX clamps numbers that are out of range.
        if isinstance(step, (int, np.integer)) and not -size <= step < size:
            raise IndexError(f"index {step} is out of range for {size} items")
    return index_texts(pytrees.map_tree(lambda x: pytrees.index_array(x, index), value), index)


def index_texts(value: Any, index: Any) -> Any:
    """A record of arrays with its arrays of texts indexed, which are nested tuples and no leaves."""
    if type(value) not in TEXT_FIELDS:
        return value
    fields = {name: index_texts(part, index) for name, part in vars(value).items()}
    for name in TEXT_FIELDS[type(value)]:
        if isinstance(fields[name], tuple):
            found = np.array(fields[name], object)[index]
            fields[name] = found if isinstance(found, str) else nested_tuples(found.tolist())
    return type(value)(**fields)


def nested_tuples(texts: Any) -> Any:
    """Nested lists as nested tuples, which can be compared and hashed."""
    return tuple(map(nested_tuples, texts)) if isinstance(texts, list) else texts


def stack_records(cls: type, records: Sequence[Any], dtypes: Mapping[str, Any]) -> Any:
    """Records of one class stacked. Errors: TypeError for other values, ValueError for other sizes or texts."""
    if not records or any(type(record) is not cls for record in records):
        raise TypeError(f"`{cls.__name__}.stack` takes a list of at least one `{cls.__name__}`")
    flat = [pytrees.flatten_tree(typed_numbers(record, dtypes)) for record in records]
    structure = flat[0][1]
    shapes = [[np.shape(x) for x in row] for row, _ in flat]
    for i, (_, other) in enumerate(flat):
        if other != structure or shapes[i] != shapes[0]:
            raise ValueError(f"item {i} differs from item 0 in its sizes, its texts or its structure")
    columns = zip(*[row for row, _ in flat], strict=True)
    return pytrees.unflatten_tree(structure, [pytrees.stack_arrays(column, 0) for column in columns])


def typed_numbers(record: Any, dtypes: Mapping[str, Any]) -> Any:
    """A record whose Python numbers are arrays of the element types of their fields."""
    given = {n: getattr(record, n) for n in dtypes}
    typed = {n: np.asarray(x, dtypes[n]) for n, x in given.items() if type(x) in pytrees.NUMBERS}
    return type(record)(**{**vars(record), **typed}) if typed else record
