"""Converts types of the language to value layouts, which describe Python values without declarations."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.tensor_types import Tensor
from difflang.runtime.record_classes import RecordShape
from difflang.runtime.value_layouts import (
    FunctionLayout,
    LeafLayout,
    NumberedTextLayout,
    RangeLayout,
    RecordLayout,
    StaticLayout,
    TextLayout,
    TupleLayout,
    UnionLayout,
    ValueLayout,
)
from difflang.types.language_types import (
    KEY_DATA,
    ClosureType,
    KeyType,
    LangType,
    RangeType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
)
from difflang.types.text_templates import text_template


def layout_of_type(type: LangType, module: str) -> ValueLayout:
    """The layout of values of a type that the module of that name declares."""
    match type:
        case Tensor():
            return LeafLayout(type)
        case KeyType():
            return LeafLayout(KEY_DATA, key=True)
        case TupleType(items=items):
            return TupleLayout(part_layouts(items, module))
        case RecordType(decl=decl, names=names, fields=fields):
            part = type.tangent and bool(decl.fields) and names != tuple([f.name for f in decl.fields])
            return RecordLayout(
                record_shape(decl.name, names, fields, module, part=part),
                part_layouts(fields, module),
                source_type=type,
                axes=len(type.axes),
            )
        case VariantType(decl=decl, index=index, names=names, fields=fields):
            part = type.tangent and names != tuple([f.name for f in decl.variants[index].fields])
            shape = record_shape(type.name, names, fields, module, part=part)
            return RecordLayout(shape, part_layouts(fields, module), decl.name, index, type)
        case SumType(options=options):
            return UnionLayout(type.tag_values, part_layouts(options, module), type.tag)
        case TextType(number=Tensor()):
            return NumberedTextLayout()
        case TextType(value=value, parts=()):
            return StaticLayout(value or "")
        case TextType():
            return TextLayout(text_template(type), len(leaf_types(type)))
        case RangeType():
            return RangeLayout(len(leaf_types(type)))
        case ClosureType():
            return FunctionLayout(type, len(leaf_types(type)))
        case _:
            raise AssertionError(f"no value has the type {type}")


def part_layouts(types: Sequence[LangType], module: str) -> tuple[ValueLayout, ...]:
    return tuple([layout_of_type(t, module) for t in types])


def record_shape(
    name: str, names: Sequence[str], fields: Sequence[LangType], module: str, *, part: bool
) -> RecordShape:
    """The shape that identifies the class of a record; `part` says that it has only fields with a tangent."""
    static = tuple([n for n, t in zip(names, fields, strict=True) if isinstance(t, TextType)])
    return RecordShape(module, f"D_{name}" if part else name, tuple(names), static)
