"""Resolves type annotations to types: names, sizes, and declarations applied to sizes and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, cast

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import DTYPE_BOUNDS, DTypeParam, DTypeVar, prune_dtype
from difflang.types.language_types import (
    KEY,
    VALUE_TYPES,
    AxisSpread,
    FnType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    add_axes,
    add_tags,
    tangent_type,
)
from difflang.types.layered_bindings import LayeredBindings
from difflang.types.mesh_axis_errors import check_mesh_axes, misplaced_axes_error
from difflang.types.module_name_errors import missing_type_error
from difflang.types.module_scope import RecordTable
from difflang.types.size_expressions import check_axis_size, count_leaves, size_arithmetic
from difflang.types.type_errors import (
    DeferCheck,
    argument_kind_error,
    axes_in_two_brackets_error,
    declaration_head,
    declaration_kind,
    item_spread_error,
    make_error,
    recursive_type_error,
    unbound_size_error,
    undetermined_generic_error,
    unknown_type_error,
    variant_names,
)
from difflang.types.unify import Unifier

Axes = tuple[tree.TypeExpr | tree.AnyShape, ...]
GENERIC_BOUNDS = (*DTYPE_BOUNDS, "vec")
TypeBinding = Dim | DType | AxisSpread | tuple[Dim | AxisSpread, ...] | LangType

# The codes for a generic of the wrong kind in a field's type; they are reported at the argument instead.
KIND_ERROR_CODES = ("DL0202", "DL0203", "DL0301")


class TypeResolver(Struct):
    """Resolves written types with the current bindings of their names.

    `bound` maps names to sizes, element types and shapes, except those that are `undetermined`. `generics` are the
    declared bounds; `records` finds a record or an enum. If `rigid`, as in the check of a definition, a new name is a
    size of its own rather than an error.
    """

    unifier: Unifier
    records: Callable[[str], tree.Record | tree.Enum | None]
    bound: dict[str, TypeBinding] | LayeredBindings[TypeBinding] = field(default_factory=dict[str, TypeBinding])
    generics: dict[str, str | None] = field(default_factory=dict)
    rigid: bool = False
    # The declarations whose fields are being resolved, to detect recursive types.
    within: tuple[tree.Record | tree.Enum, ...] = ()
    # The number of fields of the outermost declaration so far; a list, so that copies share it.
    leaf_count: list[int] = field(default_factory=lambda: [0])
    # Names that an argument left open, with the spans of the argument and its parameter.
    undetermined: dict[str, tuple[Span, Span]] = field(default_factory=dict[str, Any])

    def type(self, written: tree.TypeExpr) -> LangType:
        """The type of an annotation. Errors: DL02 for an unknown name, DL03 for a size in place of a type."""
        if (found := self.array_parts(written)) is not None:
            item, axes = found
            return add_axes(add_tags(self.type(item)), self.shape(axes))
        assert not isinstance(written, tree.TypeArray)
        match written:
            case tree.TypeName(path=path):
                return self.resolve_name(written, ".".join(path))
            case tree.TypeApply(path=path):
                return self.resolve_applied(written, ".".join(path))
            case tree.TypeTuple(items=items):
                return self.type(items[0]) if len(items) == 1 else TupleType(tuple(map(self.type, items)))
            case tree.TypeFn():
                params = written.param.items if isinstance(written.param, tree.TypeTuple) else (written.param,)
                return FnType(tuple(map(self.type, params)), self.type(written.result), written.linear)
            case tree.TypeCall(path=("D",), args=(arg,)):
                return tangent_type(self.type(arg))
            case tree.TypeInt() | tree.DimBinary():
                raise make_error("DL0301", "expected a type here, not a size", (written.span, "this is a size"))
            case tree.TypeCall(path=path):
                raise self.unknown_error(written.span, ".".join(path))

    def array_parts(self, written: tree.TypeExpr) -> tuple[tree.TypeExpr, Axes] | None:
        """The item and axes of an array of texts, records, enums or values of a generic type; None for other types.

        Errors: DL0355 for axes that belong into the brackets of the item, and for `..s`; DL0610 for axes of a mesh.
        """
        match written:
            case tree.TypeArray(item=item, axes=axes):
                inner = item.args[0] if isinstance(item, tree.TypeCall) and item.path == ("D",) else item
                if isinstance(inner, tree.TypeApply) and not self.takes_arguments(".".join(inner.path)):
                    raise axes_in_two_brackets_error(written, inner)
            case tree.TypeApply(path=path, args=axes) if self.names_item(".".join(path)):
                if written.splits:
                    raise misplaced_axes_error(written)
                name_span = Span(written.span.source, written.span.start, written.span.start + len(".".join(path)))
                item = tree.TypeName(name_span, path)
            case _:
                return None
        if (spread := next((a for a in axes if isinstance(a, tree.AnyShape)), None)) is not None:
            raise item_spread_error(written, spread)
        return item, axes

    def takes_arguments(self, name: str) -> bool:
        """Whether it is a record or an enum with generics."""
        decl = self.records(name)
        return decl is not None and bool(decl.generics)

    def names_item(self, name: str) -> bool:
        """Whether it names texts, a record or an enum without generics, or a generic of whole types."""
        if name in self.generics:
            whole = self.generics[name] not in DTYPE_BOUNDS
            return whole and not isinstance(self.bound.get(name), (DType, int, Poly, AxisSpread, tuple))
        decl = self.records(name)
        return name == "str" or (decl is not None and not decl.generics and name not in DTYPES)

    def resolve_name(self, written: tree.TypeName, name: str) -> LangType:
        if name in self.generics or name in self.bound:
            return self.resolve_generic(written, name)
        if name in DTYPES:
            return Tensor(DTYPES[name])
        if name in ("str", "key"):
            return TextType() if name == "str" else KEY
        if name == "dim":
            return Tensor(DTYPES["i32"])
        record = self.records(name)
        if record is None:
            raise self.unknown_error(written.span, name)
        if record.generics:
            raise make_error(
                "DL0302",
                f"the {declaration_kind(record)} `{name}` needs its arguments",
                (written.span, ""),
                (record.name_span, f"it is {declaration_head(record)}"),
                help=f"write `{declaration_head(record)}`, with the sizes that it has here",
            )
        return self.declaration_type(record, {})

    def unknown_error(self, span: Span, name: str) -> DifflangError:
        place = Span(span.source, span.start, span.start + len(name))
        error = missing_type_error(self.record_table(), name, place)
        enum = next((n for n in self.names() if name in variant_names(self.records(n))), None)
        return error or unknown_type_error(place, name, self.names(), self.generics, GENERIC_BOUNDS, enum)

    def record_table(self) -> RecordTable | None:
        """The `RecordTable` behind `records`, if there is one."""
        table = getattr(self.records, "__self__", None)
        return table if isinstance(table, RecordTable) else None

    def names(self) -> tuple[str, ...]:
        """The names of the records that can be used."""
        return tuple(self.record_table() or ())

    def lookup_for(self, record: tree.Record | tree.Enum) -> Callable[[str], tree.Record | tree.Enum | None]:
        """The lookup for names in a declaration's field types: that of its own module."""
        table = self.record_table()
        return (
            table.declaring_modules[record].records.get
            if table is not None and record in table.declaring_modules
            else self.records
        )

    def resolve_generic(self, written: tree.TypeName, name: str) -> LangType:
        value = self.bound.get(name)
        if value is None and self.rigid:
            bound = self.generics.get(name) or ""
            if bound not in DTYPE_BOUNDS:
                raise DeferCheck
            value = self.bound[name] = DTypeParam(name, DTYPE_BOUNDS[bound])
        if isinstance(value, DType):
            return Tensor(value)
        if isinstance(value, (int, Poly)):
            raise make_error("DL0301", f"`{name}` is a size here, not a type", (written.span, ""))
        if value is None or isinstance(value, (AxisSpread, tuple)):
            raise self.unbound_error(written.span, name) if name in self.undetermined else DeferCheck
        return value

    def resolve_applied(self, written: tree.TypeApply, name: str) -> LangType:
        dtype = self.element(name)
        if dtype is not None:
            self.check_splits(written)
            return Tensor(dtype, self.shape(written.args))
        record = self.records(name)
        if record is None and name in ("key", "dim"):
            raise make_error("DL0355", f"there are no arrays of `{name}`", (written.span, "it has no axes"))
        if record is None:
            raise self.unknown_error(written.span, name)
        return self.apply_type(written, record)

    def check_splits(self, written: tree.TypeApply) -> None:
        """Errors: DL0606 for an axis of a mesh that the file does not declare, DL0604 for one that is named twice."""
        table = self.record_table() if written.splits else None
        if table is not None and table.module is not None:
            check_mesh_axes([axes for axes in written.splits if axes is not None], table.module)

    def apply_type(self, written: tree.TypeApply, decl: tree.Record | tree.Enum) -> LangType:
        """`Name[a, b]`. Errors: DL0302 for another number of arguments, DL0301 for one of another kind."""
        if written.splits:
            raise misplaced_axes_error(written)
        if len(decl.generics) != len(written.args):
            takes = f"{(count := len(decl.generics))} argument{'s' * (count != 1)} in brackets, not {len(written.args)}"
            message = f"the {declaration_kind(decl)} `{decl.name}` takes {takes}"
            axes = ", ".join(arg.span.text for arg in written.args)
            way = f"an array of them has its axes in brackets of their own: `{declaration_head(decl)}[{axes}]`"
            raise make_error(
                "DL0302", message, (written.span, ""), (decl.name_span, f"it is {declaration_head(decl)}"), help=way
            )
        places = {g.name: arg.span for g, arg in zip(decl.generics, written.args, strict=True)}
        args = {g.name: self.argument(arg) for g, arg in zip(decl.generics, written.args, strict=True)}
        for generic in decl.generics:
            if not satisfies_bound(args[generic.name], generic.bound):
                raise argument_kind_error(decl, places[generic.name], args[generic.name], generic.span)
        try:
            return self.declaration_type(decl, args)
        except DifflangError as error:
            wrong = error.diagnostics[0]
            use = wrong.span
            if (
                wrong.code not in KIND_ERROR_CODES
                or use is None
                or use.source is not decl.span.source
                or use.text not in args
            ):
                raise
            raise argument_kind_error(decl, places[use.text], args[use.text], use) from None

    def element(self, name: str) -> DType | None:
        """The element type of that name, if it is one."""
        if name in self.generics and self.generics[name] in DTYPE_BOUNDS:
            found = self.bound.get(name)
            if found is None and self.rigid:
                found = self.bound[name] = DTypeParam(name, DTYPE_BOUNDS[self.generics[name] or ""])
            return found if isinstance(found, DType) else None
        found = self.bound.get(name)
        return found if isinstance(found, DType) else DTYPES.get(name)

    def shape(self, args: tuple[tree.TypeExpr | tree.AnyShape, ...]) -> tuple[Dim, ...]:
        shape: list[Dim | AxisSpread] = []
        for arg in args:
            if not isinstance(arg, tree.AnyShape):
                shape.append(self.dim(arg))
                continue
            found = self.bound.get(arg.name)
            if found is None and self.rigid:
                found = self.bound[arg.name] = (AxisSpread(arg.name),)
            if not isinstance(found, tuple):
                raise DeferCheck
            shape.extend(found)
        # It contains an `AxisSpread` only while a definition is checked.
        return cast("tuple[Dim, ...]", tuple(shape))

    def argument(self, arg: tree.TypeExpr | tree.AnyShape) -> TypeBinding:
        """An argument of a generic record: a size, an element type or a whole type."""
        if isinstance(arg, tree.TypeName) and len(arg.path) == 1:
            (name,) = arg.path
            if (dtype := self.element(name)) is not None:
                return dtype
            if name not in self.bound and name not in self.generics and self.records(name) is not None:
                return self.resolve_name(arg, name)
            whole = not self.within and name in self.generics and self.generics[name] not in DTYPE_BOUNDS
            if whole or self.generics.get(name) == "vec" or isinstance(self.bound.get(name), VALUE_TYPES):
                # A type parameter of the function: size names are not declared there.
                return self.resolve_generic(arg, name)
        match arg:
            case tree.TypeName() | tree.TypeInt() | tree.DimBinary():
                return self.dim(arg)
            case tree.TypeApply() | tree.TypeArray() | tree.TypeCall() | tree.TypeFn():
                return self.type(arg)
            case tree.TypeTuple(items=items):
                return self.argument(items[0]) if len(items) == 1 else self.type(arg)
            case _:
                pass
        raise DeferCheck

    def dim(self, written: tree.TypeExpr) -> Dim:
        """The size of an annotation. Errors: DL02 for an unbound name."""
        match written:
            case tree.TypeInt(value=value):
                return check_axis_size(value, written.span)
            case tree.TypeName(path=(name,)):
                found = self.bound.get(name)
                if found is None and self.rigid and name not in DTYPES:
                    found = self.bound[name] = symbolic_dims.dim_name(name)
                if isinstance(found, (int, Poly)):
                    return found
                if found is not None or name in DTYPES:
                    raise make_error("DL0301", f"`{name}` is a type here, not a size", (written.span, ""))
                raise self.unbound_error(written.span, name)
            case tree.DimBinary(op=op):
                return check_axis_size(
                    size_arithmetic(written, op, self.dim(written.lhs), self.dim(written.rhs)), written.span
                )
            case tree.TypeTuple(items=(only,)):
                return self.dim(only)
            case _:
                raise make_error("DL0301", "expected a size here, not a type", (written.span, ""))

    def unbound_error(self, span: Span, name: str) -> DifflangError:
        """The report of an unbound size or type name."""
        return (
            undetermined_generic_error(name, *self.undetermined[name], span)
            if name in self.undetermined
            else unbound_size_error(span, name)
        )

    def record_type(self, record: tree.Record, args: Mapping[str, TypeBinding]) -> RecordType:
        """The record type for these arguments."""
        inner = self.for_fields_of(record, args)
        fields = tuple(inner.type(f.type) for f in record.fields)
        count_leaves(inner.leaf_count, len(fields), record.name_span)
        order = tuple(inner.bound.get(g.name, args.get(g.name)) for g in record.generics)
        return RecordType(record, tuple(f.name for f in record.fields), fields, order)

    def enum_type(self, decl: tree.Enum, args: Mapping[str, TypeBinding]) -> LangType:
        """The type of an enum for these arguments: the sum of its variants."""
        if not decl.variants:
            raise DeferCheck  # the parser has reported it
        inner = self.for_fields_of(decl, args)
        fields = [tuple(inner.type(f.type) for f in v.fields) for v in decl.variants]
        order = tuple(inner.bound.get(g.name, args.get(g.name)) for g in decl.generics)
        options = tuple(
            VariantType(decl, i, tuple(f.name for f in v.fields), types, order, home=inner.records)
            for i, (v, types) in enumerate(zip(decl.variants, fields, strict=True))
        )
        return SumType(options) if options[1:] else options[0]

    def declaration_type(self, decl: tree.Record | tree.Enum, args: Mapping[str, TypeBinding]) -> LangType:
        if decl in self.within:
            raise recursive_type_error(decl)
        return self.enum_type(decl, args) if isinstance(decl, tree.Enum) else self.record_type(decl, args)

    def for_fields_of(self, decl: tree.Record | tree.Enum, args: Mapping[str, TypeBinding]) -> Self:
        """A resolver for the field types of a declaration."""
        home, within, parts = self.lookup_for(decl), (*self.within, decl), self.leaf_count if self.within else [0]
        return replace(
            self, records=home, bound=dict(args), generics=declared_bounds(decl), within=within, leaf_count=parts
        )


def declared_bounds(decl: tree.Record | tree.Enum) -> dict[str, str | None]:
    """The generics of a declaration with their bounds."""
    return {g.name: g.bound for g in decl.generics}


def satisfies_bound(found: TypeBinding, bound: str | None) -> bool:
    """Whether a binding satisfies the bound of its generic, if that is of element types."""
    accepted = DTYPE_BOUNDS.get(bound or "")
    if accepted is None or not isinstance(found, DType):
        return accepted is None
    match prune_dtype(found):
        case DTypeVar(candidates=some):
            return any(dtype in accepted for dtype in some)
        case DTypeParam(candidates=some):
            return all(dtype in accepted for dtype in some)
        case dtype:
            return dtype in accepted
