"""Infers the types of Python arguments from declared parameter types, naming each leaf by its path.

Nothing is traced or converted here. A value that does not fit is refused with the declared and the given type.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from difflang.api.argument_leaves import PrecedingTypes, TypeScope, is_text_array
from difflang.api.item_reader import ItemReader
from difflang.api.record_classes import is_str_type, item_axes, record_of_value, variant_of_value
from difflang.base.wording import count_of
from difflang.driver.type_specs import parse_type
from difflang.ir.tensor_types import DTYPES, I32, Tensor
from difflang.runtime.pytrees import LeafSlot
from difflang.runtime.record_classes import Choice
from difflang.runtime.value_layouts import is_list
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import (
    UNIT,
    ClosureType,
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    array_axes,
    drop_axes,
    leaf_types,
    show_type,
    tangent_type,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.unify import Unifier


class ArgumentReader(ItemReader):
    """Reads arguments into types, by declared types, by known types, or by the values alone."""

    # ---- By a declared type

    def read_declared(self, value: Any, declared: tree.TypeExpr | None, path: str) -> LangType:
        """The type of a value with this declared type. Errors: DL12."""
        # A spec string describes an array, unless the parameter is a text.
        if self.specs and isinstance(value, LeafSlot) and isinstance(value.value, str) and not is_str_type(declared):
            return self.spelled(value, declared, path)
        if declared is not None and (found := self.array_parts(value, declared)) is not None:
            return self.read_items(value, *found, path)
        match declared:
            case None:
                return self.plain(value, path)
            case tree.TypeTuple(items=(only,)):
                return self.read_declared(value, only, path)
            case tree.TypeTuple(items=items):
                parts = self.tuple_items(value, len(items), declared.span.text, path)
                return TupleType(
                    tuple(
                        self.read_declared(v, w, f"{path}[{i}]")
                        for i, (v, w) in enumerate(zip(parts, items, strict=True))
                    )
                )
            case tree.TypeCall(path=("D",), args=(inner,)):
                return self.read_tangent(value, inner, path)
            case tree.TypeFn():
                return self.read_function(value, declared.span.text, path)
            case tree.TypeName(path=(name,)) if name in self.applied_types:
                argument, place = self.applied_types[name]
                with self.type_scope(*place):
                    return self.read_declared(value, argument, path)
            case tree.TypeName(path=names) | tree.TypeApply(path=names):
                return self.read_named(value, ".".join(names), declared, path)
            case _:
                return self.plain(value, path)

    # ---- Arrays, records, enums

    def spelled(self, value: LeafSlot, written: tree.TypeExpr | None, path: str) -> LangType:
        """The type that a spec string spells."""
        type = parse_type(value.value, self.module)
        self.leaf_order += [value.index] * len(leaf_types(type))
        want = DTYPES.get(written.path[0]) if isinstance(written, (tree.TypeName, tree.TypeApply)) else None
        if written is not None and want is not None and isinstance(type, Tensor) and type.dtype is not want:
            declared = " ".join(written.span.text.split())
            raise self.error("DL1201", f"`{path}` is declared {declared}, but {show_type(type)} was given")
        return type

    def spelled_as(self, value: LeafSlot, type: LangType, path: str) -> LangType:
        """A type that a spec string must spell: of a tangent it may spell the value's type."""
        given = parse_type(value.value, self.module)
        if type not in (given, tangent_type(given)):
            raise self.error("DL1201", f"`{path}` is declared {show_type(type)}, but {show_type(given)} was given")
        self.leaf_order += [value.index] * len(leaf_types(type))
        return type

    def read_named(self, value: Any, name: str, written: tree.TypeExpr, path: str) -> LangType:
        record = self.module.records.get(name)
        if record is not None and name not in self.generics:
            if isinstance(record, tree.Enum):
                return self.read_enum(value, record, path)
            return self.read_record(value, record, path, written)
        if name == "str" and self.leading and (is_list(value) or is_text_array(value)):
            return self.read_texts(value, path)
        if name == "str":
            if isinstance(value, LeafSlot) and isinstance(value.value, str):
                return TextType(value.value)
            raise self.refused(path, "str", value)
        if name == "key":
            return self.read_key(value, path)
        if isinstance(written, tree.TypeApply) or name in DTYPES:
            return self.read_array(value, DTYPES.get(name), written.span.text, path)
        return self.plain(value, path)

    def read_record(self, value: Any, decl: tree.Record, path: str, written: tree.TypeExpr | None = None) -> RecordType:
        """A record from any value that has its fields by name."""
        if not self.leading and item_axes(value):
            way = "take one of its items, or map the function over them: `f.vmap()`"
            raise self.error("DL1202", f"`{path}` is declared {decl.name}, but an array of them was given", way)
        given = self.record_fields(value, decl.name, [f.name for f in decl.fields], path)
        home = self.module.declaring_module(decl)
        annotations = AnnotationResolver(Unifier(), home.records.get, {}, {g.name: g.bound for g in decl.generics})
        types: list[LangType] = []
        with self.type_scope(home, annotations.generics, self.vector_arguments(decl, written)):
            for field in decl.fields:
                here = f"{path}.{field.name}"
                type = self.read_declared(given[field.name], field.type, here)
                if not annotations.match(field.type, type):
                    earlier = preceding_fields(decl.fields, field, path)
                    raise self.declared_mismatch(here, field.type, type, annotations, field.type.span, earlier)
                types.append(type)
        args = tuple(annotations.bound.get(g.name) for g in decl.generics)
        return RecordType(decl, tuple(given), tuple(types), args)

    def vector_arguments(
        self, decl: tree.Record, written: tree.TypeExpr | None
    ) -> dict[str, tuple[tree.TypeExpr, TypeScope]]:
        """The vector types that a written type `R[V]` supplies for a record's generic names, with their scope."""
        if not isinstance(written, tree.TypeApply) or len(written.args) != len(decl.generics):
            return {}
        place = (self.module, self.generics, self.applied_types)
        pairs = zip(decl.generics, written.args, strict=True)
        return {g.name: (a, place) for g, a in pairs if g.bound == "vec" and not isinstance(a, tree.AnyShape)}

    def read_tangent(self, value: Any, inner: tree.TypeExpr, path: str) -> LangType:
        """A value for a written `D(…)`."""
        match inner:
            case tree.TypeTuple(items=items) if len(items) != 1:
                parts = self.tuple_items(value, len(items), f"D({inner.span.text})", path)
                return TupleType(
                    tuple(
                        self.read_tangent(v, w, f"{path}[{i}]")
                        for i, (v, w) in enumerate(zip(parts, items, strict=True))
                    )
                )
            case tree.TypeTuple(items=(only,)):
                return self.read_tangent(value, only, path)
            case _ if (found := self.array_parts(value, inner)) is not None:
                item, axes = found
                return self.read_items(value, tree.TypeCall(item.span, ("D",), (item,)), axes, path)
            case tree.TypeName(path=names) | tree.TypeApply(path=names) if ".".join(names) in self.module.records:
                decl = self.module.records[".".join(names)]
                if isinstance(decl, tree.Enum):
                    return self.read_enum(value, decl, path, tangent=True)
                return self.read_record_tangent(value, decl, path, inner)
            case _:
                return self.read_declared(value, inner, path) if has_tangent(inner, self.module) else UNIT

    def read_record_tangent(
        self, value: Any, decl: tree.Record, path: str, written: tree.TypeExpr | None = None
    ) -> RecordType:
        """A tangent of a record, from any value that has the tangents of its fields by name."""
        home = self.module.declaring_module(decl)
        fields = [f for f in decl.fields if has_tangent(f.type, home)]
        given = self.record_fields(
            value, f"D({decl.name})", [f.name for f in fields], path, [f.name for f in decl.fields]
        )
        with self.type_scope(home, {g.name: g.bound for g in decl.generics}, self.vector_arguments(decl, written)):
            types = tuple(self.read_tangent(given[f.name], f.type, f"{path}.{f.name}") for f in fields)
        return RecordType(decl, tuple(given), types, (), tangent=True)

    def read_enum(self, value: Any, decl: tree.Enum | None, path: str, *, tangent: bool = False) -> LangType:
        """The type of an enum value, of `decl` or of any enum. Errors: DL12."""
        if isinstance(value, Choice):
            tag = self.read_array(value.tag, I32, "i32", f"{path}.tag")
            options = tuple([self.read_enum(option, decl, path, tangent=tangent) for option in value.options])
            return SumType(options, Tensor(I32, tag.shape))
        mark = variant_of_value(value)
        if mark is None or (decl is not None and mark[0] is not decl):
            assert decl is not None
            names = ", ".join(v.name for v in decl.variants)
            raise self.refused(path, decl.name, value, f"pass one of its variants, {names}")
        found, index, of_tangent = mark
        return self.read_variant(value, found, index, path, tangent=tangent or of_tangent)

    def read_variant(self, value: Any, decl: tree.Enum, index: int, path: str, *, tangent: bool) -> LangType:
        """The type of a value of a known variant, or of its tangent."""
        declared, home = decl.variants[index], self.module.declaring_module(decl)
        annotations = AnnotationResolver(Unifier(), home.records.get, {}, {g.name: g.bound for g in decl.generics})
        types: list[LangType] = []
        with self.type_scope(home, annotations.generics):
            fields = [f for f in declared.fields if not tangent or has_tangent(f.type, self.module)]
            given = self.record_fields(
                value, declared.name, [f.name for f in fields], path, [f.name for f in declared.fields]
            )
            for field in fields:
                here = f"{path}.{field.name}"
                type = (self.read_tangent if tangent else self.read_declared)(given[field.name], field.type, here)
                if not tangent and not annotations.match(field.type, type):
                    earlier = preceding_fields(fields, field, path)
                    raise self.declared_mismatch(here, field.type, type, annotations, field.type.span, earlier)
                types.append(type)
        args = tuple(annotations.bound.get(g.name) for g in decl.generics)
        return VariantType(decl, index, tuple(f.name for f in fields), tuple(types), args, tangent, home.records.get)

    def read_expected_enum(self, value: Any, type: VariantType | SumType, path: str) -> LangType:
        """A value that must have a known enum type: a tangent, a cotangent."""
        variants = type.variants if isinstance(type, SumType) else (type,)
        if not variants:
            raise self.refused(path, show_type(type), value)
        return self.read_enum(value, variants[0].decl, path, tangent=variants[0].tangent)

    # ---- By a known type

    def read_expected(self, value: Any, type: LangType, path: str) -> LangType:
        """A value that must have exactly this type: a tangent, a cotangent."""
        if self.specs and isinstance(value, LeafSlot) and isinstance(value.value, str):
            return self.spelled_as(value, type, path)
        if is_list(value) and isinstance(type, (RecordType, SumType)) and array_axes(type):
            if len(value) != array_axes(type)[0]:
                raise self.refused(path, show_type(type), value, f"this has {count_of(len(value), 'item')}")
            return self.read_list(value, path, lambda v, p: self.read_expected(v, drop_axes(type, 1), p))
        match type:
            case Tensor():
                found = self.read_array(value, prune_dtype(type.dtype), show_type(type), path)
                if found.shape != type.shape:
                    raise self.refused(path, show_type(type), value)
                return type
            case TupleType(items=items):
                parts = self.tuple_items(value, len(items), show_type(type), path)
                return TupleType(
                    tuple(
                        self.read_expected(v, t, f"{path}[{i}]")
                        for i, (v, t) in enumerate(zip(parts, items, strict=True))
                    )
                )
            case RecordType():
                names = [f.name for f in type.decl.fields] or list(type.names)
                given = self.record_fields(value, str(type), list(type.names), path, names)
                for name, part in zip(type.names, type.fields, strict=True):
                    self.read_expected(given[name], part, f"{path}.{name}")
                return type
            case VariantType() | SumType():
                return self.read_expected_enum(value, type, path)
            case KeyType():
                return self.read_key(value, path)
            case _:
                return self.plain(value, path)

    # ---- By the value alone

    def plain(self, value: Any, path: str) -> LangType:
        """The type of a value without a declared type: an array, number, tuple, function or record of this module."""
        found = record_of_value(value)
        if found is not None and found[0] is not None:
            (decl, tangent), axes = (found[0], found[1]), item_axes(value) if not self.leading else 0
            read = partial(self.read_record_tangent if tangent else self.read_record, value, decl, path)
            return self.read_stacked(axes, path, read) if axes else read()
        if isinstance(value, Choice) or variant_of_value(value) is not None:
            return self.read_enum(value, None, path)
        if isinstance(getattr(value, "function_type", None), ClosureType):
            return self.read_function(value, "", path)
        if isinstance(value, tuple):
            return TupleType(tuple(self.plain(v, f"{path}[{i}]") for i, v in enumerate(value)))
        if isinstance(value, LeafSlot) and isinstance(value.value, str) and not self.specs:
            return TextType(value.value)
        return self.read_array(value, None, "", path)


def has_tangent(written: tree.TypeExpr, module: ModuleScope) -> bool:
    """Whether values of a written type have a tangent."""
    match written:
        case tree.TypeName(path=names) | tree.TypeApply(path=names):
            name = ".".join(names)
            if (decl := module.records.get(name)) is not None:
                parts = decl.variants if isinstance(decl, tree.Enum) else (decl,)
                return any(has_tangent(f.type, module.declaring_module(decl)) for part in parts for f in part.fields)
            return name not in ("str", "key", "dim") and (name not in DTYPES or DTYPES[name].differentiable)
        case tree.TypeArray(item=item):
            return has_tangent(item, module)
        case tree.TypeTuple(items=items):
            return any(has_tangent(w, module) for w in items)
        case _:
            return not isinstance(written, tree.TypeFn)


def preceding_fields(fields: Sequence[tree.Field], field: tree.Field, path: str) -> PrecedingTypes:
    return [(f"{path}.{f.name}", f.type) for f in fields[: fields.index(field)]]
