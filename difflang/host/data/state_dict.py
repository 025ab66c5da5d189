"""State dicts: records and tuples flattened to arrays and texts by path, and values rebuilt and validated from them.

A field's path is its name, a tuple item's its index: `layers.0.w`. An enum is a text, the name of its variant, with the
variant's fields below that name: `shape` is `"Circle"`, and `shape.Circle.r` its radius.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.base.text_numbers import numbered_text, text_numbers
from difflang.host.data.array_files import UNNAMED, CodedTexts, StoredArrays
from difflang.host.data.numpy_files import ArrayInFile
from difflang.host.data.stored_columns import ColumnInFile
from difflang.host.values import HostValue
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DTYPES, Dim, Tensor, numpy_dtype
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver, written_fields
from difflang.types.language_types import (
    KEY_DATA,
    ClosureType,
    FnType,
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    add_axes,
    array_axes,
    drop_axes,
    leaf_types,
    show_type,
)
from difflang.types.type_resolver import declared_bounds
from difflang.types.unify import Unifier

StoredLeaf = Tensor | TextType | KeyType | SumType


class UnstorableValue(Exception):
    """A value that no file format holds, and what to do instead."""

    def __init__(self, path: str, type: LangType) -> None:
        what, self.way = show_type(type), ""
        if isinstance(type, (ClosureType, FnType)) or (isinstance(type, SumType) and not type.variants):
            what, self.way = "a function", "save the captured values, and create the function again after loading"
        elif isinstance(type, SumType):
            what, self.way = f"an array of enums with fields, {what}", "save arrays of their contents"
        super().__init__(f"`{path}` is {what}" if path else f"it is {what}")


def leaf_paths(type: LangType, path: str = "") -> Iterator[tuple[str, StoredLeaf]]:
    """The arrays and texts in a type by path, for enums in every variant. Errors: UnstorableValue."""
    match type:
        case SumType(tag=Tensor(shape=(_, *_))) if is_plain_enum(type):
            yield path, type
        # The variant's name is stored as a text at the enum's own path.
        case VariantType(names=names, fields=fields):
            yield path, TextType(type.name)
            for name, inner in zip(names, fields, strict=True):
                yield from leaf_paths(inner, join_path(join_path(path, type.name), name))
        case SumType(options=options) if type.variants and not type.tag.shape:
            for option in options:
                yield from leaf_paths(option, path)
        case RecordType(names=names, fields=fields):
            for name, inner in zip(names, fields, strict=True):
                yield from leaf_paths(inner, join_path(path, name))
        case TupleType(items=items):
            for i, inner in enumerate(items):
                yield from leaf_paths(inner, join_path(path, str(i)))
        case Tensor() | TextType() | KeyType():
            yield path, type
        case _:
            raise UnstorableValue(path, type)


def with_axes(leaf: Tensor | TextType | SumType, shape: tuple[int, ...]) -> LangType:
    """The type of an array with this shape, of numbers, texts or variants."""
    match leaf:
        case SumType():
            return SumType(leaf.options, Tensor(leaf.tag.dtype, shape))
        case TextType(number=Tensor(dtype=dtype)):
            return TextType(number=Tensor(dtype, shape))
        case TextType():
            return leaf
        case Tensor(dtype=dtype):
            return Tensor(dtype, shape)


def is_plain_enum(type: LangType) -> bool:
    """Whether it is an enum whose variants have no fields: an array of such is stored as the names of variants."""
    return isinstance(type, SumType) and bool(type.variants) and not any(v.fields for v in type.variants)


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def resolve_variants(value: HostValue) -> HostValue:
    """A value with each enum in it narrowed to its current variant."""
    value = value.chosen()
    if not isinstance(value.type, (RecordType, VariantType, TupleType)):
        return value
    types = value.type.items if isinstance(value.type, TupleType) else value.type.fields
    inside = [resolve_variants(value.part(i)) for i in range(len(types))]
    leaves = tuple(leaf for part in inside for leaf in part.leaves or ())
    return HostValue(replace_parts(value.type, tuple(part.type for part in inside)), leaves)


def replace_parts(type: RecordType | VariantType | TupleType, parts: tuple[LangType, ...]) -> LangType:
    return replace(type, items=parts) if isinstance(type, TupleType) else replace(type, fields=parts)


def to_state_dict(value: HostValue, path: str = "") -> dict[str, Any]:
    """The parts of a value by path, as they are written to a file. Errors: UnstorableValue."""
    value = resolve_variants(value)
    leaves = iter(value.leaves or ())
    found: dict[str, Any] = {}
    for name, type in leaf_paths(value.type, path):
        if isinstance(type, SumType):
            found[name] = names_of_tags(type, np.asarray(next(leaves)))
        elif isinstance(type, TextType):
            found[name] = (type.value or "") if type.number is None else texts_of_numbers(np.asarray(next(leaves)))
        else:
            found[name] = np.asarray(next(leaves))
    return found


def names_of_tags(type: SumType, tags: np.ndarray) -> np.ndarray:
    """The names of the variants of an array of enums, as an array of objects."""
    names = np.empty(max(type.tag_values) + 1, object)
    names[list(type.tag_values)] = [variant.name for variant in type.variants]
    return names[tags]


def texts_of_numbers(numbers: np.ndarray) -> Any:
    """The text with a number, or an array of objects with the texts of an array of numbers."""
    texts = np.array([numbered_text(n) for n in numbers.ravel().tolist()], object)
    return texts.reshape(numbers.shape) if numbers.shape else texts[0]


class StateDictLoader(Struct, eq=False):
    """Builds a value of a declared type from a file's entries. Sizes that the type leaves open come from the file."""

    file: str
    entries: StoredArrays
    declared_span: Span
    span: Span
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    root: str = ""  # the path of the value in the file
    known: str = ""  # what is known of the sizes in the declaration

    def value(self, type: LangType, records: Callable[[str], tree.Record | tree.Enum | None]) -> HostValue:
        """The value, its arrays as the file has them: an `ArrayInFile` is not read.

        Errors: DL0704 to DL0706, naming the part that differs, in the file and in the program.
        """
        type = self.select_variants(type, "")
        leaf_types = list(leaf_paths(type))
        self.check_keys([path for path, _ in leaf_types])
        leaves: list[Any] = []
        types: list[LangType] = []
        for path, leaf in leaf_types:
            found = self.entries[path]
            is_array = array_axes(leaf) if isinstance(leaf, TextType) else not isinstance(found, str)
            if not is_array and not isinstance(leaf, SumType):
                types.append(self.text(path, leaf, found))
                continue
            leaves.append(self.array(path, leaf))
            types.append(leaf if isinstance(leaf, KeyType) else with_axes(leaf, leaves[-1].shape))
        return HostValue(apply_leaf_types(type, iter(types), records), tuple(leaves))

    def array(self, path: str, leaf: StoredLeaf) -> Any:
        """An array of the file; of texts their numbers, of variants their tags."""
        found = self.entries[path]
        if isinstance(found, ColumnInFile):  # its type has been checked
            self.check_shape(path, leaf, found)
            return found
        if isinstance(leaf, SumType):
            return self.tags_of_names(path, leaf, found)
        if isinstance(leaf, TextType):
            return self.numbers_of_texts(path, leaf, found)
        self.check_array(path, KEY_DATA if isinstance(leaf, KeyType) else leaf, found)
        return found

    def select_variants(self, type: LangType, path: str) -> LangType:
        """The type with each enum narrowed to the variant that the file names. Errors: DL0704, DL0706."""
        match type:
            case SumType(tag=Tensor(shape=(_, *_))):
                return type
            case VariantType() | SumType():
                option = self.variant(type, path)
                inside = join_path(path, option.name)
                return replace(option, fields=tuple(self.select_each(option.names, option.fields, inside)))
            case RecordType(names=names, fields=fields):
                return replace(type, fields=tuple(self.select_each(names, fields, path)))
            case TupleType(items=items):
                return replace(type, items=tuple(self.select_each(map(str, range(len(items))), items, path)))
            case _:
                return type

    def select_each(self, names: Iterable[str], types: Iterable[LangType], path: str) -> Iterator[LangType]:
        return (self.select_variants(t, join_path(path, n)) for n, t in zip(names, types, strict=True))

    def variant(self, type: VariantType | SumType, path: str) -> VariantType:
        options = {t.name: t for t in (type.variants if isinstance(type, SumType) else (type,))}
        if path not in self.entries:
            self.check_keys([path])
        found = self.entries[path]
        if not isinstance(found, str):
            raise self.mismatch_error("DL0704", path, array_type_text(found), show_type(type))
        if found not in options:
            what = f"the variant `{found}`" if found.isidentifier() else "a text"
            raise self.mismatch_error("DL0704", path, what, f"a variant of {show_type(type)}: {', '.join(options)}")
        return options[found]

    def check_keys(self, expected: list[str]) -> None:
        missing = [path for path in expected if path not in self.entries]
        extra = [path for path in self.entries if path not in expected]
        names = ", ".join(list(self.entries)[:12]) or "nothing"
        if missing:
            raise self.error(
                "DL0706",
                f"`{self.file}` has no `{missing[0]}`",
                f"declared {self.declared_span.text}",
                f"it has {names}",
            )
        if extra:
            raise self.error("DL0706", f"`{self.file}` has `{extra[0]}`, but the declared type does not",
                             f"declared {self.declared_span.text}", f"it has {names}")  # fmt: skip

    def text(self, path: str, leaf: StoredLeaf, found: Any) -> TextType:
        if isinstance(leaf, TextType) and isinstance(found, ArrayInFile) and found.is_text:
            found = found.read()
        if isinstance(leaf, TextType) and isinstance(found, str):
            if any("\ud800" <= c <= "\udfff" for c in found):
                raise self.mismatch_error("DL0704", path, "half of a surrogate pair", "str")
            return TextType(found)
        shown = "a text" if isinstance(found, str) else array_type_text(found)
        raise self.mismatch_error("DL0704", path, shown, show_type(leaf))

    def numbers_of_texts(self, path: str, leaf: TextType, found: Any) -> np.ndarray:
        """The numbers of an array of texts."""
        coded = self.coded_texts(path, leaf, found)
        if any("\ud800" <= c <= "\udfff" for c in "".join(coded.texts)):
            raise self.mismatch_error("DL0704", path, "half of a surrogate pair", show_type(leaf))
        return np.array(text_numbers(coded.texts), np.int32)[coded.places]

    def tags_of_names(self, path: str, leaf: SumType, found: Any) -> np.ndarray:
        """The tags of an array of names of variants."""
        coded = self.coded_texts(path, leaf, found)
        tags = {variant.name: variant.index for variant in leaf.variants}
        used = {coded.texts[i] for i in np.unique(coded.places).tolist()}
        if unknown := sorted(used - set(tags)):
            declared = f"a variant of {leaf.variants[0].decl.name}: {', '.join(tags)}"
            raise self.mismatch_error("DL0704", path, f'"{unknown[0]}"', declared)
        return np.array([tags.get(text, 0) for text in coded.texts], np.int32)[coded.places]

    def coded_texts(self, path: str, leaf: TextType | SumType, found: Any) -> CodedTexts:
        """An array of texts of the file. Errors: DL0704, DL0705 for anything else."""
        if isinstance(found, str) or found.dtype.kind not in "UO":
            raise self.mismatch_error("DL0704", path, array_type_text(found), show_type(leaf))
        self.check_shape(path, leaf, found)
        if isinstance(found, CodedTexts):
            return found
        texts = found.read() if isinstance(found, ArrayInFile) else found
        places: dict[str, int] = {}
        flat = [places.setdefault(text, len(places)) for text in texts.ravel().tolist()]
        return CodedTexts([*places], np.array(flat, np.intp).reshape(texts.shape))

    def check_array(self, path: str, declared: Tensor, found: np.ndarray | ArrayInFile) -> None:
        if found.dtype != numpy_dtype(declared.dtype):
            raise self.mismatch_error("DL0704", path, array_type_text(found), show_type(declared))
        self.check_shape(path, declared, found)

    def check_shape(self, path: str, declared: StoredLeaf, found: Any) -> None:
        shape = array_axes(declared)
        if len(found.shape) != len(shape):
            raise self.mismatch_error("DL0705", path, array_type_text(found), show_type(declared))
        for size, there in zip(shape, found.shape, strict=True):
            if not self.match_size(size, there):
                known = ", ".join(
                    f"{n} = {self.sizes[n]}" for n in sorted(symbolic_dims.dim_names(size)) if n in self.sizes
                )
                raise self.mismatch_error(
                    "DL0705", path, array_type_text(found), show_type(declared) + (f" with {known}" if known else "")
                )

    def match_size(self, size: Dim, there: int) -> bool:
        """Match a declared size: a name is bound where it first occurs; a formula of unbound names is checked later."""
        if isinstance(size, int):
            return size == there
        names = symbolic_dims.dim_names(size)
        if size in map(symbolic_dims.dim_name, names):
            return self.sizes.setdefault(next(iter(names)), there) == there
        # All names of a formula are known: compare.
        if names <= self.sizes.keys():
            return symbolic_dims.substitute_dims(size, lambda n: self.sizes[n]) == there
        return True

    def mismatch_error(self, code: str, path: str, there: str, declared: str) -> DifflangError:
        path = join_path(self.root, path) if path else self.root
        what = f"`{self.file}` contains {there}" + (f" for `{path}`" if path not in ("", UNNAMED) else "")
        way = "declare the type that the file contains, and convert afterwards" if code == "DL0704" else ""
        return self.error(code, f"{what}, not {declared}", f"declared {self.declared_span.text}{self.known}", way)

    def error(self, code: str, message: str, label: str, way: str = "") -> DifflangError:
        labels = (Label(self.span, "read here"),) if self.span is not self.declared_span else ()
        labels = (*labels, Label(self.declared_span, label))
        return DifflangError(Diagnostic(code, message, labels, (way,) if way else ()))


def array_type_text(array: np.ndarray | ArrayInFile | CodedTexts | str) -> str:
    """The type of an array in a file, in the language's spelling if it has one."""
    if isinstance(array, str):
        return "a text"
    names = {d.numpy: d.name for d in DTYPES.values()}
    name = "str" if array.dtype.kind in "UO" else names.get(array.dtype.name, array.dtype.name)
    return f"{name}[{', '.join(map(str, array.shape))}]" if array.shape else name


def apply_leaf_types(
    type: LangType, leaves: Iterator[LangType], records: Callable[[str], tree.Record | tree.Enum | None]
) -> LangType:
    """The type with these leaves, and its records applied to the sizes of the leaves."""
    match type:
        case RecordType() | VariantType():
            if isinstance(type, VariantType):
                next(leaves)  # its name
            fields = tuple(apply_leaf_types(t, leaves, records) for t in type.fields)
            found = replace(type, fields=fields)
            if isinstance(found, RecordType) and found.axes:
                return apply_item_axes(found, records)
            home = AnnotationResolver(Unifier(), records).lookup_for(type.decl)
            names = AnnotationResolver(Unifier(), home, {}, declared_bounds(type.decl))
            fits = [names.match(written, t) for written, t in written_fields(found)]
            bound: Mapping[str, Any] = names.bound
            known = dict(zip(declared_bounds(type.decl), type.args, strict=True))
            args = tuple(bound.get(name, None if isinstance(a, Poly) else a) for name, a in known.items())
            return replace(found, args=args) if all(fits) else found
        case TupleType(items=items):
            return TupleType(tuple(apply_leaf_types(t, leaves, records) for t in items))
        case _:
            return next(leaves)


def apply_item_axes(type: RecordType, records: Callable[[str], tree.Record | tree.Enum | None]) -> LangType:
    """The type of an array of records with the axes that its leaves have, and its records applied to their sizes."""
    rank = len(type.axes)
    axes = next((leaf.shape[:rank] for leaf in leaf_types(type)), type.axes)
    whole = replace(type, axes=axes)
    items = [drop_axes(leaf, rank) for leaf in stored_leaves(whole)]
    return add_axes(apply_leaf_types(drop_axes(whole, rank), iter(items), records), axes)


def stored_leaves(type: LangType) -> list[LangType]:
    return [leaf for _, leaf in leaf_paths(type)]
