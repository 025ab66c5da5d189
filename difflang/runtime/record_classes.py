"""Python classes for the language's structs and enum variants: frozen dataclasses that JAX treats as pytrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, make_dataclass
from functools import wraps
from keyword import iskeyword
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import nearest_word
from difflang.runtime.item_access import TEXT_FIELDS, index_items
from difflang.runtime.pytrees import Tracer, register_node, register_record, to_host


class RecordShape(NamedTuple):
    """The description of a record's class that is pickled with a record."""

    module: str
    name: str
    fields: tuple[str, ...]
    static: tuple[str, ...]


class VariantShape(NamedTuple):
    """A variant of an enum: the enum's name, the variant's number in it, and its own name and fields."""

    enum: str
    variant_number: int
    shape: RecordShape


# Weak, so that the classes of a reloaded module do not stay alive.
CLASSES: WeakValueDictionary[RecordShape | VariantShape, type] = WeakValueDictionary()
"""The latest class of each shape, and of each variant."""


def record_class(shape: RecordShape, space: dict[str, Any]) -> type:
    """A frozen dataclass that is a pytree, and that pickles by its shape."""

    # It pickles NumPy arrays: unpickled as JAX arrays, f64 might be narrowed.
    def values(record: Any) -> tuple[Any, ...]:
        return tuple([getattr(record, name) for name in shape.fields])

    ways = {
        "__reduce__": lambda record: (unpickle_record, (shape, to_host(values(record)))),
        "__copy__": lambda record: type(record)(*values(record)),
        "__deepcopy__": lambda record, memo: type(record)(*deepcopy(values(record), memo)),
    }
    cls = dataclass_of(shape, {**space, **ways})
    CLASSES[shape] = cls
    return cls


def variant_class(variant: VariantShape, space: dict[str, Any], base: type | None) -> type:
    """The same for a variant, as a subclass of its enum's class `base`; the class of its tangents has none."""
    cls = dataclass_of(variant.shape, space, () if base is None else (base,))
    CLASSES[variant] = cls
    return cls


def dataclass_of(shape: RecordShape, space: dict[str, Any], bases: tuple[type, ...] = ()) -> type:
    """A frozen dataclass that is a pytree of its non-static fields. Errors: DL0801 for a keyword as a field name."""
    if words := [n for n in shape.fields if iskeyword(n)]:
        message = f"the field `{words[0]}` of `{shape.name}` is a Python keyword, so the record has no Python class"
        way = "rename it, or pass a dict with that field as the argument"
        raise DifflangError(Diagnostic("DL0801", message, helps=(way,)))
    fields = [(n, Any) for n in shape.fields]
    cls = make_dataclass(shape.name, fields, bases=bases, frozen=True, eq=False, namespace=space)
    cls.__module__ = shape.module
    cls.__init__ = init_naming_fields(cls.__init__, shape)
    TEXT_FIELDS[cls] = shape.static
    register_record(cls, [n for n in shape.fields if n not in shape.static], shape.static)
    return cls


def init_naming_fields(made: Callable[..., None], shape: RecordShape) -> Callable[..., None]:
    """The same `__init__` with a TypeError that names the fields; texts in lists become tuples, which have a hash."""

    @wraps(made)
    def init(self: Any, /, *values: Any, **named: Any) -> None:
        try:
            made(self, *values, **named)
        except TypeError as error:
            raise TypeError(field_error_message(shape, len(values), named) or str(error)) from None
        for name in shape.static:
            texts = getattr(self, name)
            if not isinstance(texts, (str, tuple)):
                object.__setattr__(self, name, nested_tuples(texts.tolist() if hasattr(texts, "tolist") else texts))

    return init


def nested_tuples(texts: Any) -> Any:
    """Lists of lists as tuples of tuples."""
    return tuple([nested_tuples(text) for text in texts]) if isinstance(texts, list) else texts


def field_error_message(shape: RecordShape, by_position: int, named: Iterable[str]) -> str:
    """The message for unknown or missing fields; empty if the names are right."""
    unknown = next((n for n in named if n not in shape.fields), None)
    if unknown is not None:
        near = nearest_word(unknown, shape.fields)
        way = f"did you mean `{near}`?" if near else f"it has {', '.join(shape.fields) or 'none'}"
        return f"`{shape.name}` has no field `{unknown}`: {way}"
    if by_position > len(shape.fields) or any(n in named for n in shape.fields[:by_position]):
        return ""
    missing = [f"`{n}`" for n in shape.fields[by_position:] if n not in named]
    return f"`{shape.name}` is missing {', '.join(missing)}" if missing else ""


def unpickle_record(shape: RecordShape, values: tuple[Any, ...]) -> Any:
    """A record from a pickle, of the class of a loaded module, or else of a class that only has its fields."""
    return find_record_class(shape)(*values)


def find_record_class(shape: RecordShape, methods: Mapping[str, Any] | None = None) -> type:
    """The class of that shape from a loaded module; else one that only has its fields, and these methods."""
    known = CLASSES.get(shape) or UNLOADED_CLASSES.get(shape)
    if known is None or (methods and not hasattr(known, "__len__")):
        known = UNLOADED_CLASSES[shape] = record_class(shape, dict(methods or {}))
    return known


def find_variant_class(variant: VariantShape) -> type:
    """The same for a variant; without its module, a subclass of an enum class that only has its name."""
    known = CLASSES.get(variant) or UNLOADED_CLASSES.get(variant)
    if known is not None:
        return known
    shape, space = variant.shape, {"__module__": variant.shape.module}
    base = UNLOADED_ENUMS.setdefault((shape.module, variant.enum), type(variant.enum, (), space))
    return UNLOADED_CLASSES.setdefault(
        variant, variant_class(variant, {}, None if shape.name.startswith("D_") else base)
    )


UNLOADED_CLASSES: dict[RecordShape | VariantShape, type] = {}
"""Classes of records and variants whose modules are not loaded."""
UNLOADED_ENUMS: dict[tuple[str, str], type] = {}
"""Classes of the enums of these, by module and name."""


@dataclass(frozen=True, eq=False)
class Choice:
    """An enum value whose variant is not known yet, in a JAX transformation, or varies over an array."""

    # The value is `options[i]` where `tag` is `variant_numbers[i]`.
    tag: Any
    options: tuple[Any, ...]
    variant_numbers: tuple[int, ...]

    def __len__(self) -> int:
        return int(self.tag.shape[0])

    def __getitem__(self, index: Any) -> Any:
        """One value or a part of an array of values."""
        found = index_items(self, index, np.ndim(self.tag))
        return found if np.ndim(found.tag) or isinstance(found.tag, Tracer) else found.known()

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return True

    def known(self) -> Any:
        """The value itself, outside of JAX transformations."""
        return self.options[self.variant_numbers.index(int(self.tag))]


register_node(
    Choice,
    lambda c: ((c.tag, c.options), c.variant_numbers),
    lambda numbers, parts: Choice(parts[0], parts[1], numbers),
)


def choice_builder(
    numbers: Sequence[int], options: Sequence[Callable[[Any], Any]], shape: tuple[Any, ...]
) -> Callable[[Any], Any]:
    """A function from leaves to the value that the tag selects, or to a `Choice` where the tag is not known."""

    def make(leaves: Any) -> Any:
        tag = next(leaves)
        values = tuple([option(leaves) for option in options])
        # After a failed check the tag may be none of the numbers.
        if not shape and not isinstance(tag, Tracer) and int(tag) in numbers:
            return values[numbers.index(int(tag))]
        return Choice(tag, values, tuple(numbers))

    return make
