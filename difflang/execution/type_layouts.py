"""Types of the language as layouts: what a value of a type is in Python, without its declarations."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.tensor_types import Tensor
from difflang.runtime.record_classes import Shape
from difflang.runtime.value_layouts import Called, Either, Ends, Fields, Filled, Fixed, Items, Layout, Leaf
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
from difflang.types.text_templates import template


def described(type: LangType, module: str) -> Layout:
    """The layout of values of a type of a module that is called so."""
    match type:
        case Tensor():
            return Leaf(type)
        case KeyType():
            return Leaf(KEY_DATA, key=True)
        case TupleType(items=items):
            return Items(inside(items, module))
        case RecordType(decl=decl, names=names, fields=fields):
            part = type.tangent and bool(decl.fields) and names != tuple([f.name for f in decl.fields])
            return Fields(shape_of(decl.name, names, fields, module, part=part), inside(fields, module), of=type)
        case VariantType(decl=decl, index=index, names=names, fields=fields):
            part = type.tangent and names != tuple([f.name for f in decl.variants[index].fields])
            shape = shape_of(type.name, names, fields, module, part=part)
            return Fields(shape, inside(fields, module), decl.name, index, type)
        case SumType(options=options):
            return Either(type.marks, inside(options, module), type.tag)
        case TextType(value=value, parts=()):
            return Fixed(value or "")
        case TextType():
            return Filled(template(type), len(leaf_types(type)))
        case RangeType():
            return Ends(len(leaf_types(type)))
        case ClosureType():
            return Called(type, len(leaf_types(type)))
        case _:
            raise AssertionError(f"no value has the type {type}")


def inside(types: Sequence[LangType], module: str) -> tuple[Layout, ...]:
    return tuple([described(t, module) for t in types])


def shape_of(name: str, names: Sequence[str], fields: Sequence[LangType], module: str, *, part: bool) -> Shape:
    """What the class of a record is known by; `part` says that only the fields with a tangent are there."""
    static = tuple([n for n, t in zip(names, fields, strict=True) if isinstance(t, TextType)])
    return Shape(module, f"D_{name}" if part else name, tuple(names), static)
