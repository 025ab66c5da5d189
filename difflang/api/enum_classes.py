"""Python classes of enums: a class for each variant below one for the enum; and values chosen at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from difflang.api.size_provenance import preceding_fields
from difflang.ir.tensor_types import I32, Tensor
from difflang.runtime.record_classes import Choice, RecordShape, VariantShape, variant_class
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import LangType, SumType, VariantType, show_type
from difflang.types.unify import Unifier

if TYPE_CHECKING:
    from difflang.api.argument_types import ArgumentReader

MARK = "_difflang_variant_"


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
        from difflang.api.record_classes import is_str_type

        variant = decl.variants[index]
        written = {f.name: f for f in variant.fields}
        shown = f"D_{variant.name}" if tangent else variant.name
        space = {MARK: (decl, index, tangent)}
        static = tuple([n for n in names if is_str_type(written[n].type)])
        shape = RecordShape(self.name, shown, names, static)
        return variant_class(VariantShape(decl.name, index, shape), space, None if tangent else self.base_class(decl))


# ---- Reading arguments


def is_enum_value(value: Any) -> bool:
    return getattr(type(value), MARK, None) is not None or isinstance(value, Choice)


def read_enum(
    reader: ArgumentReader, value: Any, decl: tree.Enum | None, path: str, *, tangent: bool = False
) -> LangType:
    """The type of an enum value, of `decl` or of any enum. Errors: DL12."""
    if isinstance(value, Choice):
        reader.read_array(value.tag, I32, "i32", f"{path}.tag")
        shape = getattr(value.tag.value, "shape", ())
        options = tuple([read_enum(reader, option, decl, path, tangent=tangent) for option in value.options])
        return SumType(options, Tensor(I32, tuple(shape)))
    mark = getattr(type(value), MARK, None)
    if mark is None or (decl is not None and mark[0] is not decl):
        assert decl is not None
        names = ", ".join(v.name for v in decl.variants)
        raise reader.refused(path, decl.name, value, f"pass one of its variants, {names}")
    found, index, of_tangent = mark
    return read_variant(reader, value, found, index, path, tangent=tangent or of_tangent)


def read_variant(
    reader: ArgumentReader, value: Any, decl: tree.Enum, index: int, path: str, *, tangent: bool
) -> LangType:
    """The type of a value of a known variant, or of its tangent."""
    declared, home = decl.variants[index], reader.module.declaring_module(decl)
    annotations = AnnotationResolver(Unifier(), home.records.get, {}, {g.name: g.bound for g in decl.generics})
    types: list[LangType] = []
    with reader.type_scope(home, annotations.generics):
        fields = [f for f in declared.fields if not tangent or reader.has_tangent(f.type)]
        given = reader.record_fields(
            value, declared.name, [f.name for f in fields], path, [f.name for f in declared.fields]
        )
        for field in fields:
            here = f"{path}.{field.name}"
            type = (reader.read_tangent if tangent else reader.read_declared)(given[field.name], field.type, here)
            if not tangent and not annotations.match(field.type, type):
                earlier = preceding_fields(fields, field, path)
                raise reader.declared_mismatch(here, field.type, type, annotations, field.type.span, earlier)
            types.append(type)
    args = tuple(annotations.bound.get(g.name) for g in decl.generics)
    return VariantType(decl, index, tuple(f.name for f in fields), tuple(types), args, tangent, home.records.get)


def read_expected_enum(reader: ArgumentReader, value: Any, type: VariantType | SumType, path: str) -> LangType:
    """A value that must have a known enum type: a tangent, a cotangent."""
    variants = type.variants if isinstance(type, SumType) else (type,)
    if not variants:
        raise reader.refused(path, show_type(type), value)
    return read_enum(reader, value, variants[0].decl, path, tangent=variants[0].tangent)
