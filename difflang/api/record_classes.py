"""Python classes of records and enums, registered as JAX pytrees: a frozen dataclass for each record and variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from difflang.ir.tensor_types import DTYPES, numpy_dtype
from difflang.runtime.item_access import item_methods
from difflang.runtime.pytrees import LeafSlot
from difflang.runtime.record_classes import RecordShape, VariantShape, record_class, variant_class
from difflang.syntax import tree
from difflang.types.dtype_variables import DTYPE_BOUNDS
from difflang.types.language_types import RecordType, VariantType
from difflang.types.module_scope import ModuleScope

RECORD_MARK, VARIANT_MARK = "_difflang_", "_difflang_variant_"


class RecordClasses:
    """The classes of a module's records and of their tangents."""

    def __init__(self, module: ModuleScope, name: str) -> None:
        self.module, self.name = module, name
        self.classes: dict[Any, type] = {}
        self.enums = EnumClasses(name)

    def share_classes(self, other: RecordClasses) -> None:
        """Use another program's classes: a declaration in both has the same class."""
        self.classes, self.enums = other.classes, other.enums

    def class_for_type(self, type: RecordType) -> type:
        """The class for values of this type. A tangent has the fields that have a tangent."""
        decl = type.decl if type.decl in self.module.records.declaring_modules else None
        return self.lookup(decl, type.decl.name, type.names, type.tangent)

    def declared(self, decl: tree.Record) -> type:
        return self.lookup(decl, decl.name, tuple(f.name for f in decl.fields), False)

    def lookup(self, decl: tree.Record | None, name: str, names: tuple[str, ...], tangent: bool) -> type:
        if tangent and decl is not None and names == tuple(f.name for f in decl.fields):
            # Every field has a tangent: the tangent has the class of the value, as optimizers expect.
            tangent = False
        key = (decl, name, names, tangent)
        if key not in self.classes:
            self.classes.setdefault(key, self.make_class(decl, name, names, tangent))
        return self.classes[key]

    def make_class(self, decl: tree.Record | None, name: str, names: tuple[str, ...], tangent: bool) -> type:
        shown = f"D_{name}" if tangent and decl is not None else name
        written = {f.name: f for f in decl.fields} if decl is not None else {}
        space: dict[str, Any] = {
            "__doc__": decl.doc if decl is not None and not tangent else None,
            RECORD_MARK: (decl, tangent),
        }
        if tangent and decl is not None:
            # Help on a tangent class should not repeat the record's doc.
            space["__doc__"] = f"A tangent of `{name}`, with the fields that have one."
        if decl is not None:
            fields = [f for f in decl.fields if f.name in names]
            space |= item_methods(shown, names, partial(count_item_axes, fields, decl), number_dtypes(fields))
        static = tuple([n for n in names if n in written and is_str_type(written[n].type)])
        return record_class(RecordShape(self.name, shown, names, static), space)


class EnumClasses:
    """The classes of a module's enums and of their tangents."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.classes: dict[Any, type] = {}
        self.bases: dict[tree.Enum, type] = {}

    def class_for_type(self, type: VariantType) -> type:
        """The class for values of this type. A tangent has the fields that have a tangent."""
        return self.lookup(type.decl, type.index, type.names, type.tangent)

    def declared_class(self, decl: tree.Enum, index: int) -> type:
        return self.lookup(decl, index, tuple(f.name for f in decl.variants[index].fields), False)

    def base_class(self, decl: tree.Enum) -> type:
        """The base class of an enum's variants."""
        if decl not in self.bases:
            self.bases[decl] = type(decl.name, (), {"__doc__": decl.doc, "__module__": self.name})
        return self.bases[decl]

    def lookup(self, decl: tree.Enum, index: int, names: tuple[str, ...], tangent: bool) -> type:
        variant = decl.variants[index]
        # If every field has a tangent, the tangent has the value's class.
        tangent = tangent and names != tuple(f.name for f in variant.fields)
        key = (decl, index, names, tangent)
        if key not in self.classes:
            self.classes.setdefault(key, self.make_class(decl, index, names, tangent))
        return self.classes[key]

    def make_class(self, decl: tree.Enum, index: int, names: tuple[str, ...], tangent: bool) -> type:
        variant = decl.variants[index]
        written = {f.name: f for f in variant.fields}
        shown = f"D_{variant.name}" if tangent else variant.name
        space = {VARIANT_MARK: (decl, index, tangent)}
        static = tuple([n for n in names if is_str_type(written[n].type)])
        shape = RecordShape(self.name, shown, names, static)
        return variant_class(VariantShape(decl.name, index, shape), space, None if tangent else self.base_class(decl))


def is_str_type(written: tree.TypeExpr | None) -> bool:
    return isinstance(written, tree.TypeName) and written.path == ("str",)


def record_of_value(value: Any) -> tuple[tree.Record | None, bool] | None:
    """The record of a value of one of these classes, and whether the value is a tangent."""
    return getattr(type(value), RECORD_MARK, None)


def variant_of_value(value: Any) -> tuple[tree.Enum, int, bool] | None:
    """The enum and variant of a value of one of these classes, and whether the value is a tangent."""
    return getattr(type(value), VARIANT_MARK, None)


# ---- Arrays of records


def item_axes(value: Any) -> int:
    """The number of axes that the arrays in a record have in front of the declared ones; 0 for one record."""
    found = record_of_value(value)
    if found is None or found[0] is None:
        return 0
    return count_item_axes([f for f in found[0].fields if hasattr(value, f.name)], found[0], value)


def count_item_axes(fields: Sequence[tree.Field], decl: tree.Record, value: Any) -> int:
    """The same by the first field whose number of axes the declaration fixes."""
    bounds = {g.name: g.bound for g in decl.generics}
    for field in fields:
        part = getattr(value, field.name)
        of = record_of_value(part)
        if of is not None and of[0] is not None:
            if (axes := declared_item_axes(field.type, of[0], bounds)) is not None:
                return item_axes(part) - axes
        elif (axes := declared_array_axes(field.type, bounds)) is not None:
            return max(rank_of(part) - axes, 0)
    return 0


def declared_item_axes(written: tree.TypeExpr, decl: tree.Record, bounds: Mapping[str, str | None]) -> int | None:
    """The number of axes of a field that holds a record, or an array of them; None where a generic type decides it."""
    match written:
        case tree.TypeArray(axes=axes):
            return len(axes)
        case tree.TypeName(path=(name,)) | tree.TypeApply(path=(name,)) if name in bounds:
            return None
        case tree.TypeApply(args=args):
            return len(args) if not decl.generics else 0
        case _:
            return 0


def declared_array_axes(written: tree.TypeExpr, bounds: Mapping[str, str | None]) -> int | None:
    """The number of axes of a field that holds an array of numbers; None where its type does not fix it."""
    match written:
        case tree.TypeName(path=(name,)):
            args: tuple[tree.TypeExpr | tree.AnyShape, ...] = ()
        case tree.TypeApply(path=(name,), args=args):
            pass
        case _:
            return None
    known = name in DTYPES or bounds.get(name) in DTYPE_BOUNDS
    return len(args) if known and not any(isinstance(size, tree.AnyShape) for size in args) else None


def rank_of(array: Any) -> int:
    """The number of axes of an array, which may be in a slot."""
    return np.ndim(array.value if isinstance(array, LeafSlot) else array)


def number_dtypes(fields: Sequence[tree.Field]) -> dict[str, np.dtype[Any]]:
    """The element types of the fields that are numbers."""
    names = {f.name: f.type.path[0] for f in fields if isinstance(f.type, tree.TypeName)}
    return {n: numpy_dtype(DTYPES[dtype]) for n, dtype in names.items() if dtype in DTYPES}
