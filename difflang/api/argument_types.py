"""Infers the types of Python arguments from declared parameter types, naming each leaf by its path.

Nothing is traced or converted here. A value that does not fit is refused with the declared and the given type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from difflang.api import enum_classes
from difflang.api.option_values import class_with_article
from difflang.api.record_classes import is_str_type, record_of_value
from difflang.api.size_provenance import PrecedingTypes, find_size_source, preceding_fields
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of, with_article
from difflang.driver.type_specs import parse_type
from difflang.ir.tensor_types import BOOL, C128, COMPLEXES, DTYPES, DType, Tensor
from difflang.runtime import argument_conversion, pytrees
from difflang.runtime.pytrees import LeafSlot
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTypeVar, literal_dtype, prune_dtype
from difflang.types.language_types import (
    KEY,
    UNIT,
    ClosureType,
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
    tangent_type,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier

# The scope of a written type: its module, the generic names, and the arguments of the enclosing record type.
TypeScope = tuple[ModuleScope, dict[str, "str | None"], dict[str, Any]]


class ArgumentReader:
    """Reads arguments into types. `leaf_order` collects the indices of their leaves, in the order of the types' leaves.

    With `specs`, a string may stand for an array of the type it spells.
    """

    def __init__(self, module: ModuleScope, specs: bool = False) -> None:
        self.module, self.specs = module, specs
        self.leaf_order: list[int] = []
        self.key_positions: list[int] = []  # the positions of random keys in it
        self.span: Span | None = None  # the declaration of the current parameter
        self.generics: dict[str, str | None] = {}
        self.bound_sizes: dict[str, int] = {}  # sizes bound before the call, by `bind`
        # The type arguments of the record being read, each with its scope.
        self.applied_types: dict[str, tuple[tree.TypeExpr, TypeScope]] = {}

    # ---- By a declared type

    def read_declared(self, value: Any, declared: tree.TypeExpr | None, path: str) -> LangType:
        """The type of a value with this declared type. Errors: DL12."""
        # A spec string describes an array, unless the parameter is a text.
        if self.specs and isinstance(value, LeafSlot) and isinstance(value.value, str) and not is_str_type(declared):
            return self.spelled(value, declared, path)
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
                return enum_classes.read_enum(self, value, record, path)
            return self.read_record(value, record, path, written)
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
            case tree.TypeName(path=names) | tree.TypeApply(path=names) if ".".join(names) in self.module.records:
                decl = self.module.records[".".join(names)]
                if isinstance(decl, tree.Enum):
                    return enum_classes.read_enum(self, value, decl, path, tangent=True)
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

    # ---- By a known type

    def read_expected(self, value: Any, type: LangType, path: str) -> LangType:
        """A value that must have exactly this type: a tangent, a cotangent."""
        if self.specs and isinstance(value, LeafSlot) and isinstance(value.value, str):
            return self.spelled_as(value, type, path)
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
                return enum_classes.read_expected_enum(self, value, type, path)
            case KeyType():
                return self.read_key(value, path)
            case _:
                return self.plain(value, path)

    # ---- By the value alone

    def plain(self, value: Any, path: str) -> LangType:
        """The type of a value without a declared type: an array, number, tuple, function or record of this module."""
        found = record_of_value(value)
        if found is not None and found[0] is not None:
            decl, tangent = found[0], found[1]
            return self.read_record_tangent(value, decl, path) if tangent else self.read_record(value, decl, path)
        if enum_classes.is_enum_value(value):
            return enum_classes.read_enum(self, value, None, path)
        if isinstance(getattr(value, "function_type", None), ClosureType):
            return self.read_function(value, "", path)
        if isinstance(value, tuple):
            return TupleType(tuple(self.plain(v, f"{path}[{i}]") for i, v in enumerate(value)))
        if isinstance(value, LeafSlot) and isinstance(value.value, str) and not self.specs:
            return TextType(value.value)
        return self.read_array(value, None, "", path)

    # ---- Parts

    def has_tangent(self, written: tree.TypeExpr) -> bool:
        return has_tangent(written, self.module)

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
        if not isinstance(value, LeafSlot):
            raise self.refused(path, "key", value)
        self.key_positions.append(len(self.leaf_order))
        self.leaf_order.append(value.index)
        return KEY

    def read_array(self, value: Any, want: DType | None, shown: str, path: str) -> Tensor:
        """An array or a number, with the declared element type if there is one."""
        if not isinstance(value, LeafSlot):
            raise self.refused(path, shown or "an array", value)
        self.leaf_order.append(value.index)
        given = value.value
        if argument_conversion.is_python_number(given):
            return self.read_number(given, want, path)
        self.run_check(argument_conversion.refuse_masked, given, path)
        found = pytrees.array_type(given)
        if found is None:
            raise self.refused(path, shown or "an array", value)
        dtype, shape = found
        if dtype is None:
            raise self.error("DL1201", f"`{path}`: the language has no element type for an array of {given.dtype}")
        return self.coerce_dtype(dtype, shape, want, given, shown, path)

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
        return make_error(
            "DL1202", f"`{path}` is declared {written.span.text}, but {show_type(type)} was given", (span, text)
        )


def field_names(value: Any) -> Sequence[str] | None:
    """The fields of a dataclass or a NamedTuple."""
    if dataclasses.is_dataclass(value):
        return [f.name for f in dataclasses.fields(value)]
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def has_tangent(written: tree.TypeExpr, module: ModuleScope) -> bool:
    """Whether values of a written type have a tangent."""
    match written:
        case tree.TypeName(path=names) | tree.TypeApply(path=names):
            name = ".".join(names)
            if (decl := module.records.get(name)) is not None:
                parts = decl.variants if isinstance(decl, tree.Enum) else (decl,)
                return any(has_tangent(f.type, module.declaring_module(decl)) for part in parts for f in part.fields)
            return name not in ("str", "key", "dim") and (name not in DTYPES or DTYPES[name].differentiable)
        case tree.TypeTuple(items=items):
            return any(has_tangent(w, module) for w in items)
        case _:
            return not isinstance(written, tree.TypeFn)


def static_slot(value: Any) -> Any:
    """A static field of a record, which is no JAX leaf, as a slot of its own."""
    return LeafSlot(-1, value) if isinstance(value, str) else value


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
