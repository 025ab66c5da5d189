"""The leaves of Python arguments: arrays, numbers, keys and functions; the parts of tuples and records; and errors.

`argument_types` reads whole arguments by their declared types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

from difflang.api.item_arrays import LeadingAxes, LeafSource, NumberedLeaf, text_source
from difflang.api.option_values import class_with_article
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of, with_article
from difflang.ir.tensor_types import BOOL, C128, COMPLEXES, DType, Tensor
from difflang.runtime import argument_conversion, pytrees
from difflang.runtime.pytrees import LeafSlot
from difflang.runtime.value_layouts import is_list
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTypeVar, literal_dtype
from difflang.types.language_types import KEY, TAG, ClosureType, LangType, TextType, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

# The scope of a written type: its module, the generic names, and the arguments of the enclosing record type.
TypeScope = tuple[ModuleScope, dict[str, "str | None"], dict[str, Any]]
# The values before another, with their declared types.
PrecedingTypes = Sequence[tuple[str, "tree.TypeExpr | None"]]


ITEMS_HELP = "pass a list of records, or one whose arrays have the axes of the items in front"


class LeafReader:
    """Reads leaves into types. `leaf_order` collects their indices, in the order of the types' leaves.

    With `specs`, a string may stand for an array of the type it spells.
    """

    def __init__(self, module: ModuleScope, specs: bool = False) -> None:
        self.module, self.specs = module, specs
        self.leaf_order: list[LeafSource] = []
        self.leading: list[LeadingAxes] = []  # of the arrays of items that are being read, outermost first
        self.key_positions: list[int] = []  # the positions of random keys in it
        self.mapped = False  # whether the current parameter is mapped by `vmap`
        self.span: Span | None = None  # the declaration of the current parameter
        self.generics: dict[str, str | None] = {}
        self.bound_sizes: dict[str, int] = {}  # sizes bound before the call, by `bind`
        # The type arguments of the record being read, each with its scope.
        self.applied_types: dict[str, tuple[tree.TypeExpr, TypeScope]] = {}

    @contextmanager
    def type_scope(
        self,
        module: ModuleScope,
        generics: dict[str, str | None],
        applied: dict[str, tuple[tree.TypeExpr, TypeScope]] | None = None,
    ) -> Generator[None]:
        """Inside, types are resolved in the scope of a declaration in this module."""
        outer = self.module, self.generics, self.applied_types
        self.module, self.generics, self.applied_types = module, generics, applied or {}
        try:
            yield
        finally:
            self.module, self.generics, self.applied_types = outer

    # ---- Parts

    def tuple_items(self, value: Any, count: int, shown: str, path: str) -> Sequence[Any]:
        if isinstance(value, (tuple, list)) and len(value) == count:
            return value
        were = "was" if isinstance(value, (tuple, list)) and len(value) == 1 else "were"
        parts = count_of(count, "part")
        way = f"it has {parts}, but {len(value)} {were} given" if isinstance(value, (tuple, list)) else ""
        raise self.refused(path, shown, value, way)

    def record_fields(
        self, value: Any, shown: str, names: list[str], path: str, also: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The fields of a dict, a NamedTuple or a dataclass; `also` are names that may be present."""
        if isinstance(value, dict):
            given = value
        elif isinstance(value, LeafSlot) or (listed := field_names(value)) is None:
            some = ", ".join([f"{n}=…" for n in names[:4]] + ["…"] * (len(names) > 4))
            raise self.refused(
                path, shown, value, f"pass its fields by name, `dict({some})`, or a record of the module"
            )
        else:
            given = {n: getattr(value, n) for n in listed}
        missing = [n for n in names if n not in given]
        extra = [n for n in given if n not in names and n not in also]
        if missing or extra:
            what = f"has no field `{extra[0]}`" if extra else f"is missing the field `{missing[0]}`"
            raise self.error("DL1207", f"`{path}`: {shown} {what}", f"its fields are {', '.join(names)}")
        return {n: static_slot(given[n]) for n in names}

    def read_function(self, value: Any, shown: str, path: str) -> LangType:
        type = getattr(value, "function_type", None)
        if not isinstance(type, ClosureType):
            raise self.refused(
                path,
                shown or "a function",
                value,
                "pass a function of a loaded module, or one that such a function returned",
            )
        if getattr(value, "sizes", ()):
            way = "bound sizes only affect calls from Python: pass the function without bound sizes"
            raise self.error("DL1206", f"`{path}` is a function with bound sizes", way)
        self.leaf_order += [leaf.index for leaf in value.captures]
        return type

    def read_key(self, value: Any, path: str) -> LangType:
        if not isinstance(value, LeafSlot) or self.leading:
            raise self.refused(path, "key", value, "an array cannot hold keys" if self.leading else "")
        self.key_positions.append(len(self.leaf_order))
        self.leaf_order.append(value.index)
        return KEY

    def read_texts(self, value: Sequence[Any] | LeafSlot, path: str) -> TextType:
        """The texts of an array of items: nested lists or tuples, as many levels deep as it has axes, or an array of
        NumPy. Errors: DL12.
        """
        if isinstance(value, LeafSlot):
            array = np.asarray(value.value)
            if self.item_shape(array.shape, path):
                raise self.refused(path, "str", value)
            self.leaf_order.append(NumberedLeaf(value.index, path))
            return TextType(number=TAG)
        texts = text_lists(value)
        array = np.array(texts, object)
        if not all(isinstance(text, str) for text in array.flat) or self.item_shape(array.shape, path):
            raise self.refused(path, "str", value)
        self.leaf_order.append(text_source(texts))
        return TextType(number=TAG)

    def read_array(self, value: Any, want: DType | None, shown: str, path: str) -> Tensor:
        """An array or a number, with the declared element type if there is one."""
        if not isinstance(value, LeafSlot):
            raise self.refused(path, shown or "an array", value)
        self.leaf_order.append(value.index)
        given = value.value
        if argument_conversion.is_python_number(given):
            self.item_shape((), path)
            return self.read_number(given, want, path)
        self.run_check(argument_conversion.refuse_masked, given, path)
        found = pytrees.array_type(given)
        if found is None:
            raise self.refused(path, shown or "an array", value)
        dtype, shape = found[0], self.item_shape(found[1], path)
        if dtype is None:
            raise self.error("DL1201", f"`{path}`: the language has no element type for an array of {given.dtype}")
        return self.coerce_dtype(dtype, shape, want, given, shown, path)

    def item_shape(self, shape: tuple[int, ...], path: str) -> tuple[int, ...]:
        """The shape that an array has in one item of the arrays of items around. Errors: DL1202."""
        for axes in self.leading:
            own, shape = shape[: axes.count], shape[axes.count :]
            if len(own) < axes.count:
                what = f"`{path}` has no axis for the items of an array of records or enums"
                raise self.error("DL1202", what, ITEMS_HELP)
            if axes.shape is None:
                axes.shape, axes.path = own, path
            elif axes.shape != own:
                sizes, other = (" × ".join(map(str, s)) for s in (own, axes.shape))
                raise self.error("DL1202", f"`{path}` has {sizes} items, but `{axes.path}` has {other}")
        return shape

    def read_number(self, given: complex, want: DType | None, path: str) -> Tensor:
        """A Python number takes the declared element type, or the type that the other arguments determine."""
        if want is not None:
            self.run_check(argument_conversion.convert_python_number, given, Tensor(want), path)
            return Tensor(want)
        if isinstance(given, bool):
            return Tensor(BOOL)
        if isinstance(given, complex):
            return Tensor(DTypeVar(COMPLEXES, C128))
        return Tensor(literal_dtype(given, self.module.default_float))

    def coerce_dtype(
        self, dtype: DType, shape: tuple[Any, ...], want: DType | None, given: Any, shown: str, path: str
    ) -> Tensor:
        if want is None or dtype is want:
            return Tensor(dtype, shape)
        if argument_conversion.is_weak(given) and argument_conversion.weak_dtype_fits(dtype, want):
            return Tensor(want, shape)
        message = f"`{path}` is declared {shown}, but {show_type(Tensor(dtype, shape))} was given"
        raise self.error("DL1201", message, argument_conversion.dtype_conversion_hint(given, dtype, want, path))

    # ---- Errors

    def run_check(self, check: Callable[..., object], *args: Any) -> None:
        """Run a check of the runtime; its error gets a label at the parameter's declaration."""
        try:
            check(*args)
        except DifflangError as error:
            (found,) = error.diagnostics
            raise self.error(found.code, found.message, "".join(found.helps)) from None

    def error(self, code: str, message: str, help: str = "") -> DifflangError:
        labels = [(self.span, "declared here")] if self.span is not None else []
        return make_error(code, message, *labels, help=help)

    def refused(self, path: str, expected: str, value: Any, help: str = "") -> DifflangError:
        found = describe_value(value)
        if isinstance(value, (list, tuple)) and not help and expected.endswith("]"):
            help = argument_conversion.array_conversion_hint(path, expected)
        code = "DL1202" if isinstance(value, LeafSlot) and pytrees.array_type(value.value) is not None else "DL1206"
        return self.error(code, f"`{path}` is declared {expected}, but {found} was given", help)

    def declared_mismatch(
        self,
        path: str,
        written: tree.TypeExpr,
        type: LangType,
        annotations: AnnotationResolver,
        span: Span,
        preceding: PrecedingTypes,
    ) -> DifflangError:
        """The error for a value that does not fit its declared type, with the bindings of its size names by earlier
        values.
        """
        names = sorted(n for n in mentioned_names(written) if n in annotations.bound)
        sources = {
            n: first
            for n in names
            if (first := find_size_source(n, preceding)) is not None and n not in self.bound_sizes
        }
        known = ", ".join(f"{n} is {annotations.bound[n]} by `{sources[n]}`" for n in names if n in sources)
        bound = ", ".join(f"{n} is bound to {self.bound_sizes[n]}" for n in names if n in self.bound_sizes)
        text = ", and ".join(["declared here", *filter(None, (known, bound))])
        message = f"`{path}` is declared {written.span.text}, but {show_type(type)} was given"
        return make_error("DL1202", message, (span, text), help=f"for each item: {ITEMS_HELP}" if self.leading else "")


def find_size_source(name: str, preceding: PrecedingTypes) -> str | None:
    """The first of some values whose declared type mentions a size name."""
    return next((n for n, w in preceding if n == name or (w is not None and name in mentioned_names(w))), None)


def field_names(value: Any) -> Sequence[str] | None:
    """The fields of a dataclass or a NamedTuple."""
    if dataclasses.is_dataclass(value):
        return [f.name for f in dataclasses.fields(value)]
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def static_slot(value: Any) -> Any:
    """A static field of a record, which is no JAX leaf, as a slot of its own."""
    return LeafSlot(-1, value) if isinstance(value, str) else value


def is_text_array(value: Any) -> bool:
    """Whether a slot holds an array of texts, or of objects, which may be texts: as a column of pandas is."""
    given = value.value if isinstance(value, LeafSlot) else None
    return hasattr(given, "__array__") and not isinstance(given, str) and np.asarray(given).dtype.kind in "UO"


def text_lists(value: Any) -> Any:
    """Nested lists of what stands in the slots of nested lists or tuples."""
    if is_list(value):
        return [text_lists(part) for part in value]
    return value.value if isinstance(value, LeafSlot) else value


def describe_value(value: Any) -> str:
    """A value described for a message."""
    given = value.value if isinstance(value, LeafSlot) else value
    if isinstance(given, FunctionType):
        return "a function of Python"
    if not isinstance(value, LeafSlot):
        kind = "function" if hasattr(value, "function_type") else type(value).__name__
        return with_article(kind) if value is not None else "None"
    found = pytrees.array_type(given)
    if found is not None and found[0] is not None:
        return show_type(Tensor(found[0], found[1]))
    if argument_conversion.is_python_number(given):
        return f"the {given.__class__.__name__} {given}"
    return class_with_article(given)
