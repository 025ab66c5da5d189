"""Arrays of enums in derived programs: their tags and fields as arrays, and their tangents item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from difflang.ir.tensor_types import Tensor
from difflang.types.language_types import LangType, SumType, VariantType
from difflang.unparse.fragments import CannotUnparse
from difflang.unparse.unparser import Unparser


def is_plain_enum_array(type: LangType) -> bool:
    """Whether it is an array of enums whose fields are arrays and numbers."""
    return (
        isinstance(type, SumType)
        and bool(type.variants and type.tag.shape)
        and all(isinstance(field, Tensor) for option in type.variants for field in option.fields)
    )


def name_leaves(unparser: Unparser, type: SumType, text: str) -> list[str]:
    """The names of the tags of an array of enums and of the fields of each variant, bound by a `let`."""
    base, item = text.replace(".", "_"), unparser.names.fresh("item")

    def bind(name: str, arms: Sequence[str]) -> str:
        found = unparser.names.fresh(f"{base}_{name}")
        body = each_item(text, type, item, f"match {item} {{ {', '.join(arms)} }}", unparser.names.fresh)
        unparser.emit(f"let {found} = {body}")
        return found

    marks = zip(type.tag_values, type.variants, strict=True)
    names = [bind("tag", [f"{pattern(option, '_')} => {mark}" for mark, option in marks])]
    rest = ["_ => {}"] * (len(type.variants) > 1)
    for option in type.variants:
        for name, field in zip(option.names, option.fields, strict=True):
            assert isinstance(field, Tensor)
            kept = pattern(option, "_", {name: name})
            others = [arm.format(zero_text(field, len(type.tag.shape))) for arm in rest]
            names.append(bind(f"{option.name}_{name}", [f"{kept} => {name}", *others]))
    return names


def each_item(text: str, type: SumType, item: str, body: str, fresh: Callable[[str], str]) -> str:
    """A comprehension over the items of an array, one for each axis."""
    names = [text, *[fresh("row") for _ in type.tag.shape[1:]], item]
    for source, name in reversed([*pairwise(names)]):
        body = f"[for {name} in {source} => {body}]"
    return body


def pattern(option: VariantType, otherwise: str, names: dict[str, str] | None = None) -> str:
    """A variant as a pattern or as a call, with names for some of its fields."""
    parts = [(names or {}).get(name, otherwise) for name in option.names]
    return f"{option.name}({', '.join(parts)})" if parts else option.name


def zero_text(field: Tensor, axes: int) -> str:
    """Zeros for a field of an item. Errors: CannotUnparse for complex numbers."""
    sizes, dtype = ", ".join(map(str, field.shape[axes:])), field.dtype
    if dtype.is_complex:
        raise CannotUnparse("a complex number in an array of enums")
    number = "false" if dtype.name == "bool" else "0" if dtype.is_integer else "0.0"
    return f"fill({sizes}, {number})" if sizes else number


def tangent_items(
    type: SumType, text: str, primal: SumType, leaf: Callable[[Sequence[str]], str], fresh: Callable[[str], str]
) -> str:
    """The tangent of an array of enums, whose point is `text`: for each item that of its variant."""
    leaf(())  # the tags are those of the point
    index = tuple([fresh("i") for _ in type.tag.shape])
    arms = list(tangent_arms(type, primal, lambda: leaf(index), fresh))
    names = [text, *[fresh("row") for _ in type.tag.shape[1:]], fresh("item")]
    body = f"match {names[-1]} {{ {', '.join(arms)} }}"
    for i, source, name in reversed([*zip(index, names, names[1:], strict=False)]):
        body = f"[for ({i}, {name}) in enumerate({source}) => {body}]"
    return body


def tangent_arms(type: SumType, primal: SumType, leaf: Callable[[], str], fresh: Callable[[str], str]) -> Iterator[str]:
    for option, whole in zip(type.variants, primal.variants, strict=True):
        names = {name: fresh(name) for name in whole.names}
        made = pattern(whole, "_", names)
        fields = ", ".join([f"{name} = {leaf()}" for name in option.names])
        yield f"{made} => zeros_like({made})" + (f" with ({fields})" if fields else "")
