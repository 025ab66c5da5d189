"""Batch axes of `f.vmap(…)`: parsing `in_axes` and `out_axes`, and reading batched arguments."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.api.argument_leaves import describe_value
from difflang.api.argument_types import ArgumentReader
from difflang.api.option_values import class_with_article
from difflang.api.record_classes import is_str_type
from difflang.api.signature import Parameter, Signature
from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.wording import count_of
from difflang.driver.type_specs import parse_type
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, Tensor, numpy_dtype
from difflang.runtime import argument_conversion, pytrees
from difflang.syntax import tree
from difflang.types.language_types import LangType, RecordType, leaf_types, map_tensors
from difflang.types.type_errors import make_error

InAxes = int | Sequence[int | None] | Mapping[str, int | None]
PER_LEAF = "an axis is one number, which applies to all arrays of an argument or a result"


# ---- Parsing `in_axes` and `out_axes`


def parse_in_axes(name: str, signature: Signature, given: InAxes) -> tuple[int | None, ...]:
    """The batch axis of each parameter, None if the batch shares it. Errors: DL1207."""
    names = signature.names
    if not signature.fixed:
        raise make_error("DL1207", f"`{name}` was not mapped from Python, so its parameters are not known")
    if isinstance(given, Mapping):
        for key in given:
            if key not in names:
                near = nearest_word(str(key), names)
                way = f"did you mean `{near}`?" if near else f"it has {', '.join(names) or 'none'}"
                raise make_error("DL1207", f"`{name}` has no parameter `{key}`", help=way)
        axes: list[Any] = [given.get(n) for n in names]
    elif isinstance(given, (tuple, list)):
        if len(given) != len(names):
            has = f"`{name}` has {count_of(len(names), 'parameter')}: {', '.join(names) or 'none'}"
            raise make_error(
                "DL1207",
                f"`in_axes` has {count_of(len(given), 'entry', 'entries')}",
                help=f'{has}\nor `in_axes={{"x": 0}}`',
            )
        axes = list(given)
    else:
        axes = [None if unmappable_kind(p) else given for p in signature.parameters]
    able = [p.name for p in signature.parameters if not unmappable_kind(p) and not is_key_parameter(p)]
    axes = [
        axis if axis is None else parse_axis(axis, f"`in_axes` of `{n}`", " or None")
        for n, axis in zip(names, axes, strict=True)
    ]
    for parameter, axis in zip(signature.parameters, axes, strict=True):
        if axis is not None and (why := unmappable_kind(parameter) or "a single key" * is_key_parameter(parameter)):
            message = f"`{parameter.name}` of `{name}` is {why}, shared by the whole batch"
            way = f'leave it out: `in_axes={{"{able[0]}": 0}}`, or ' if able else ""
            raise make_error("DL1207", message, help=f"{way}write None in its place")
    if all(axis is None for axis in axes):
        way = "`in_axes=0` maps over every argument" if able else "no argument can be mapped: call the function once"
        raise make_error("DL1207", f"`{name}` is mapped over no argument", help=way)
    return tuple(axes)


def parse_out_axes(given: int | Sequence[int]) -> int | tuple[int, ...]:
    """The batch axis of the result, or of each item of a tuple. Errors: DL1207."""
    if isinstance(given, (tuple, list)):
        return tuple([parse_axis(axis, "`out_axes`") for axis in given])
    return parse_axis(given, "`out_axes`")


def parse_axis(axis: Any, what: str, or_none: str = "") -> int:
    """An axis index of any integer class. Errors: DL1207."""
    if isinstance(axis, (int, np.integer)) and not isinstance(axis, bool):
        return int(axis)
    way = PER_LEAF if isinstance(axis, (tuple, list, dict)) else "write `0` for the first axis, or `-1` for the last"
    found = "None" if axis is None else class_with_article(axis)
    raise make_error("DL1207", f"{what} is a number{or_none}, not {found}", help=way)


def unmappable_kind(parameter: Parameter) -> str:
    """The kind of a parameter that cannot be batched: a size, a text, a function; empty for any other."""
    if parameter.is_dim:
        return "a size"
    if is_str_type(parameter.declared_type):
        return "a text"
    return "a function" if isinstance(parameter.declared_type, tree.TypeFn) else ""


def is_key_parameter(parameter: Parameter) -> bool:
    return isinstance(parameter.declared_type, tree.TypeName) and parameter.declared_type.path == ("key",)


# ---- Reading batched arguments


class VmapSizes(Struct, frozen=True, eq=False):
    """The batch size at each level of `vmap`, outermost first, and the argument that determined it."""

    name: str
    lengths: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])

    def one(self, value: Any, parameter: Parameter, reader: ArgumentReader) -> Any:
        """An argument as one batch element sees it. Errors: DL1202, DL1206 if it has no such axis."""
        if all(axis is None for axis in parameter.axes):
            return value
        # A list of arrays is a tree of leaves to JAX, not an array with a batch axis.
        if isinstance(value, list) and isinstance(parameter.declared_type, tree.TypeApply):
            raise reader.refused(parameter.name, parameter.declared_type.span.text, value)
        return pytrees.map_slots(
            value, parameter.name, lambda slot, path: self.slice_array(slot, path, parameter, reader)
        )

    def slice_array(
        self, slot: pytrees.LeafSlot, name: str, parameter: Parameter, reader: ArgumentReader
    ) -> pytrees.LeafSlot:
        """An array in an argument as one batch element sees it; `name` is its path."""
        given = slot.value
        if reader.specs and isinstance(given, str):
            given = self.parse_spec(given, name, reader)
        if isinstance(given, str):  # a text field of a record, which the batch shares
            return slot
        reader.run_check(argument_conversion.refuse_masked, given, name)
        array = pytrees.array_type(given)
        if array is None:
            way = f"pass an array with a batch axis, or write `None` for `{parameter.name}` in `in_axes`"
            raise reader.error("DL1206", f"`{name}` is mapped but has no axis: {describe_value(slot)} was given", way)
        shape = list(array[1])
        for level, axis in enumerate(parameter.axes):
            if axis is None:
                continue
            if not -len(shape) <= axis < len(shape):
                message = f"`{name}` is mapped along axis {axis}, but {describe_value(slot)} has no such axis"
                raise reader.error("DL1202", message)
            self.check_length(level, shape.pop(axis), name, reader)
        return pytrees.LeafSlot(slot.index, pytrees.shape_struct_like(tuple(shape), given))

    def parse_spec(self, text: str, name: str, reader: ArgumentReader) -> Any:
        """The array that a spec string describes; another string stays as it is, and is refused where it is read."""
        try:
            type = parse_type(text, reader.module)
        except DifflangError:
            return text
        if not isinstance(type, Tensor):
            way = "pass arrays or `jax.ShapeDtypeStruct`s that include the batch axis"
            raise reader.error("DL1210", f"`{name}` is mapped, but `{text}` does not say along which axis", way)
        return pytrees.shape_struct([d for d in type.shape if isinstance(d, int)], numpy_dtype(type.dtype))

    def reject_key(self, parameter: Parameter, reader: ArgumentReader) -> None:
        """Errors: DL1206 for a batched argument that contains a random key."""
        if any(axis is not None for axis in parameter.axes):
            way = f"pass the key as an argument of its own, or write `None` for `{parameter.name}` in `in_axes`"
            raise reader.error(
                "DL1206", f"`{parameter.name}` is mapped, but it contains a key, which the whole batch shares", way
            )

    def check_length(self, level: int, length: int, name: str, reader: ArgumentReader) -> None:
        known, first = self.lengths.setdefault(level, (length, name))
        if known != length:
            lanes = f"{known} batch element{'s' * (known != 1)}"
            message = (
                f"the batch sizes differ: `{self.name}` is mapped over {lanes} of `{first}`, but over {length} "
                f"of `{name}`"
            )
            raise reader.error("DL1202", message, "write `None` in `in_axes` for arguments that the whole batch shares")

    def batched_type(self, type: LangType, axes: Sequence[int | None], level: int = 0) -> LangType:
        """The type of the whole batch from the type of one element; the first axis belongs to `level`."""
        # The innermost `vmap` adds its axis first.
        for i in reversed(range(len(axes))):
            axis = axes[i]
            if axis is not None:
                length, _ = self.lengths[level + i]
                type = insert_axis(type, axis, length)
        return type

    @contextmanager
    def explain_errors(self, parameter: Parameter) -> Generator[None]:
        """Add to errors inside that they are about one batch element."""
        try:
            yield
        except DifflangError as error:
            if not parameter.axes:
                raise
            axes = " and ".join([str(axis) for axis in parameter.axes if axis is not None])
            way = f"these types are of one batch element: `{parameter.name}` is mapped along axis {axes}"
            if not axes:
                if error.diagnostics[0].code != "DL1202":
                    raise
                way = f"the whole batch shares `{parameter.name}`: `in_axes` names no axis of it"
            raise DifflangError(*[replace(d, helps=(*d.helps, way)) for d in error.diagnostics]) from None


def insert_axis(type: LangType, axis: int, size: Dim) -> LangType:
    """The type with one more axis in every array, counted from the end if it is negative.

    It is an axis of an array of records if it comes at one place, among or behind the axes of that array, in each leaf.
    """

    def insert(shape: Sequence[Dim], position: int) -> tuple[Dim, ...]:
        return (*shape[:position], size, *shape[position:])

    def position(t: Tensor) -> int:
        return axis % (t.rank + 1)

    def axes(record: RecordType) -> tuple[Dim, ...]:
        positions = {position(t) for t in leaf_types(record)} or {position(Tensor(I32, record.axes))}
        at = min(positions)
        return insert(record.axes, at) if positions == {at} and at <= len(record.axes) else record.axes

    return map_tensors(type, lambda t: Tensor(t.dtype, insert(t.shape, position(t))), axes)
