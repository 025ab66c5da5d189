"""Python classes of records and enums, registered as JAX pytrees: a frozen dataclass for each record and variant."""

from __future__ import annotations

from typing import Any

from difflang.runtime.record_classes import RecordShape, VariantShape, record_class, variant_class
from difflang.syntax import tree
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
