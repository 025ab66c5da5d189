"""Joins of types: the least common type of values from several branches, with the variants or functions they may be.

A sum type lists only the possible variants or functions, so that a `match` or a call handles only these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import (
    TAG,
    ClosureType,
    FnType,
    LangType,
    NeverType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    array_axes,
    leaf_types,
    tangent_type,
)
from difflang.types.type_errors import DeferCheck
from difflang.types.type_resolver import TypeResolver, declared_bounds
from difflang.types.unify import Unifier

# ---- The least common type


def least_common_type(unifier: Unifier, a: LangType, b: LangType) -> LangType | None:
    """The least type that contains values of both types: `a` itself if that is one; None if there is none."""

    if unifier.same(a, b):
        return a if not has_unknown_args(a) else fill_unknown_args(a, b)
    match a, b:
        case (NeverType(), other) | (other, NeverType()):
            return other
        case TupleType(), TupleType() if a.closure is None or b.closure is None:
            items = join_all(unifier, a.items, b.items)
            return None if items is None else TupleType(items)
        case TextType(), TextType():
            return join_texts(a, b)
        case RecordType(), RecordType() if unifier.same_record(a, b):
            fields = join_all(unifier, a.fields, b.fields)
            return None if fields is None else replace(a, fields=fields, args=merge_args(a.args, b.args))
        case _ if all(option_class(o) is not None for o in (*sum_options(a), *sum_options(b))):
            return join_sums(unifier, a, b)
        case _:
            return None


def join_texts(a: TextType, b: TextType) -> LangType | None:
    """The type of a text that is one of two: its number. None for a text with run-time parts, which has none."""
    numbers = [t.number for t in (a, b) if t.number is not None]
    single = all(not n.shape for n in numbers) and not a.parts and not b.parts
    return TextType(number=TAG) if single else None


def option_class(type: LangType) -> type[LangType] | None:
    """The kind of sum that a type can be an option of: an enum, functions, or tangents of functions."""
    match type:
        case VariantType():
            return VariantType
        case ClosureType():
            return ClosureType
        case TupleType(closure=ClosureType()):
            return TupleType
        case _:
            return None


def join_all(unifier: Unifier, a: Sequence[LangType], b: Sequence[LangType]) -> tuple[LangType, ...] | None:
    found = [least_common_type(unifier, m, n) for m, n in zip(a, b, strict=True)] if len(a) == len(b) else [None]
    kept = tuple([t for t in found if t is not None])
    return kept if len(kept) == len(found) else None


def is_assignable(unifier: Unifier, a: LangType, b: LangType) -> bool:
    """Whether a value may replace one of the other type: they have a common type, apart from the values of texts."""
    return least_common_type(unifier, a, b) is not None or (
        contains_kind(a, (TextType,)) and least_common_type(unifier, erase_texts(a), erase_texts(b)) is not None
    )


def erase_texts(type: LangType) -> LangType:
    """The type with the values of all texts forgotten; arrays of texts stay."""
    match type:
        case TextType():
            return type if array_axes(type) else TextType()
        case TupleType():
            return replace(type, items=tuple(map(erase_texts, type.items)))
        case RecordType() | VariantType():
            return replace(type, fields=tuple(map(erase_texts, type.fields)))
        case SumType():
            return replace(type, options=tuple(map(erase_texts, type.options)))
        case _:
            return type


def has_runtime_text(type: LangType) -> bool:
    """Whether a type contains a text with run-time parts."""
    match type:
        case TextType():
            return bool(type.parts)
        case RecordType(fields=parts) | TupleType(items=parts) | VariantType(fields=parts) | SumType(options=parts):
            return any(map(has_runtime_text, parts))
        case ClosureType(captures=parts):
            return any(map(has_runtime_text, parts))
        case _:
            return False


def sum_options(type: LangType) -> tuple[LangType, ...]:
    return type.options if isinstance(type, SumType) else (type,)


def join_sums(unifier: Unifier, a: LangType, b: LangType) -> LangType | None:
    """The union of the options of both; for arrays of sums, of one shape."""
    mine, yours = sum_options(a), sum_options(b)
    # A tag with axes marks an array of sums; arrays of different shapes do not join.
    tag = a.tag if isinstance(a, SumType) else TAG
    one_shape = unifier.same(tag, b.tag if isinstance(b, SumType) else TAG)
    if len({option_class(o) for o in (*mine, *yours)}) > 1 or not one_shape:
        return None
    # Order matters: options of `a` keep their places, so that `a` itself is found again if it is the join.
    found = list(mine)
    for option in yours:
        for i, other in enumerate(found):
            both = join_options(unifier, other, option)
            if both is not None:
                found[i] = both
                break
            if isinstance(other, VariantType) and not same_enum(unifier, other, option):
                return None
        else:
            found.append(option)
    if variants := [o for o in found if isinstance(o, VariantType)]:
        found = list(share_enum_args(variants))
    return found[0] if len(found) == 1 and not tag.shape else SumType(tuple(found), tag)


def is_array_of_sums(type: LangType) -> bool:
    return isinstance(type, SumType) and bool(type.tag.shape)


def same_enum(unifier: Unifier, a: VariantType, b: LangType) -> bool:
    """Whether two different variants belong to one enum with the same arguments."""
    if not isinstance(b, VariantType) or a.decl is not b.decl or a.tangent != b.tangent:
        return False
    return a.index != b.index and unifier.same_args(a, b)


def join_options(unifier: Unifier, a: LangType, b: LangType) -> LangType | None:
    """The join of two options of the same variant or function, or of their tangents; None for different ones."""
    match a, b:
        case VariantType(), VariantType() if a.decl is b.decl and (a.index, a.tangent) == (b.index, b.tangent):
            fields = join_all(unifier, a.fields, b.fields) if unifier.same_args(a, b) else None
            return None if fields is None else replace(a, fields=fields, args=merge_args(a.args, b.args))
        case ClosureType(), ClosureType() if a.code == b.code:
            captures = join_all(unifier, a.captures, b.captures)
            return None if captures is None else ClosureType(a.code, captures)
        case TupleType(closure=ClosureType() as f), TupleType(closure=ClosureType() as g):
            of, items = join_options(unifier, f, g), join_all(unifier, a.items, b.items)
            return TupleType(items, of) if items is not None and isinstance(of, ClosureType) else None
        case _:
            return None


def same_option(unifier: Unifier, a: LangType, b: LangType) -> bool:
    """Whether two options, or their tangents, are of one variant or function."""
    if isinstance(a, VariantType) and isinstance(b, VariantType):
        return a.decl is b.decl and a.index == b.index
    f, g = (t.closure if isinstance(t, TupleType) else t for t in (a, b))
    return isinstance(f, ClosureType) and isinstance(g, ClosureType) and join_options(unifier, f, g) is not None


def share_enum_args(variants: Sequence[VariantType]) -> list[VariantType]:
    """Variants of one enum in declaration order, each with all known arguments of the enum."""
    args = variants[0].args
    for variant in variants[1:]:
        args = merge_args(args, variant.args)
    return [replace(v, args=args) for v in sorted(variants, key=lambda v: v.index)]


def merge_args(a: Sequence[object], b: Sequence[object]) -> tuple[object, ...]:
    return tuple([n if m is None else m for m, n in zip(a, b, strict=True)])


# ---- Enum arguments and variants


def has_unknown_args(type: LangType) -> bool:
    """Whether a type contains an enum, or a record of enums, with an argument not inferred yet."""
    match type:
        case VariantType() | RecordType():
            return None in type.args or any(map(has_unknown_args, type.fields))
        case TupleType(items=parts) | SumType(options=parts) | ClosureType(captures=parts):
            return any(map(has_unknown_args, parts))
        case _:
            return False


def fill_unknown_args(a: LangType, b: LangType) -> LangType:
    """The type `a` with its unknown arguments taken from the otherwise equal type `b`."""
    match a, b:
        case VariantType(), VariantType():
            return replace(a, args=merge_args(a.args, b.args), fields=tuple(map(fill_unknown_args, a.fields, b.fields)))
        case SumType(), SumType():
            return replace(a, options=tuple(map(fill_unknown_args, a.options, b.options)))
        case TupleType(), TupleType():
            return replace(a, items=tuple(map(fill_unknown_args, a.items, b.items)))
        case RecordType(), RecordType():
            return replace(a, args=merge_args(a.args, b.args), fields=tuple(map(fill_unknown_args, a.fields, b.fields)))
        case ClosureType(), ClosureType():
            return ClosureType(a.code, tuple(map(fill_unknown_args, a.captures, b.captures)))
        case _:
            return a


def add_all_variants(unifier: Unifier, type: LangType) -> LangType:
    """The type with every variant of its enums, as far as their types are known without a value."""
    match type:
        case TupleType():
            return replace(type, items=tuple([add_all_variants(unifier, t) for t in type.items]))
        case RecordType():
            return replace(type, fields=tuple([add_all_variants(unifier, t) for t in type.fields]))
        case VariantType() | SumType() if variants := [o for o in sum_options(type) if isinstance(o, VariantType)]:
            every = all_variants(unifier, variants[0])
            found = None if every is None else least_common_type(unifier, type, every)
            return found if found is not None else type
        case _:
            return type


def all_variants(unifier: Unifier, of: VariantType, *, rigid: bool = False) -> LangType | None:
    """All variants of an enum by their declared types; None if these leave sizes open.

    With `rigid`, unknown sizes become names and every declared type is accepted.
    """
    if None in of.args and not rigid:
        return None
    assert of.home is not None
    generics = declared_bounds(of.decl)
    bound = {n: a for n, a in zip(generics, of.args, strict=True) if a is not None}
    try:
        found = TypeResolver(unifier, of.home, bound, generics, rigid).enum_type(of.decl, bound)  # type: ignore[arg-type]
    except (DifflangError, DeferCheck):
        return None
    if not rigid and contains_kind(found, (FnType, TextType)):
        return None
    return tangent_type(found) if of.tangent else found


def has_tangent_in_other_variant(unifier: Unifier, type: LangType) -> bool:
    """Whether an enum in a type has a tangent in a variant that the type does not include."""
    match type:
        case TupleType(items=parts) | RecordType(fields=parts):
            return any(has_tangent_in_other_variant(unifier, t) for t in parts)
        case VariantType() | SumType() if variants := [o for o in sum_options(type) if isinstance(o, VariantType)]:
            every = all_variants(unifier, variants[0], rigid=True)
            return every is not None and any(prune_dtype(t.dtype).differentiable for t in leaf_types(every))
        case _:
            return False


def contains_kind(type: LangType, kinds: tuple[Any, ...]) -> bool:
    """Whether a type or a part of it is of one of these kinds."""
    match type:
        case RecordType(fields=parts) | TupleType(items=parts) | VariantType(fields=parts) | SumType(options=parts):
            return isinstance(type, kinds) or any(contains_kind(t, kinds) for t in parts)
        case _:
            return isinstance(type, kinds)


def has_runtime_choice(type: LangType) -> bool:
    """Whether a type, or a captured one in it, contains a sum that the run selects from."""
    match type:
        case SumType():
            return True
        case RecordType(fields=parts) | VariantType(fields=parts):
            return any(map(has_runtime_choice, parts))
        case TupleType(items=parts) | ClosureType(captures=parts):
            return any(map(has_runtime_choice, parts))
        case _:
            return False
