"""Resolves type annotations to types, and matches them against inferred types to bind size and type names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir import symbolic_dims
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names as mentioned_names
from difflang.types.dtype_variables import DTYPE_BOUNDS, DTypeParam, prune_dtype
from difflang.types.enum_annotations import declared_bounds, enum_type, match_args, match_enum, match_fields
from difflang.types.join_types import is_array_of_sums, least_common_type
from difflang.types.language_types import (
    KEY,
    AxisSpread,
    ClosureType,
    FnType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    function_signature,
    is_linear_type,
    tangent_type,
)
from difflang.types.layered_bindings import LayeredBindings
from difflang.types.module_name_errors import missing_type_error
from difflang.types.module_scope import RecordTable
from difflang.types.size_expressions import check_axis_size, count_leaves, free_size_names, size_arithmetic
from difflang.types.type_application import apply_type, declaration_head, match_tangent
from difflang.types.type_errors import (
    DeferCheck,
    declaration_kind,
    make_error,
    recursive_type_error,
    unbound_size_error,
    undetermined_generic_error,
    unknown_type_error,
    unsolvable_size_error,
    variant_names,
)
from difflang.types.unify import Unifier

GENERIC_BOUNDS = (*DTYPE_BOUNDS, "vec")
NON_TYPES = (int, Poly, DType, AxisSpread, tuple)
VALUE_TYPES = (Tensor, TupleType, RecordType, VariantType, SumType, ClosureType, FnType)
TypeBinding = Dim | DType | AxisSpread | tuple[Dim | AxisSpread, ...] | LangType


class AnnotationResolver(Struct):
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

    # ---- Resolution: every name is bound, or becomes rigid

    def type(self, written: tree.TypeExpr) -> LangType:
        """The type of an annotation. Errors: DL02 for an unknown name, DL03 for a size in place of a type."""
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
            return Tensor(dtype, self.shape(written.args))
        record = self.records(name)
        if record is None:
            raise self.unknown_error(written.span, name)
        return apply_type(self, written, record)

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
            case tree.TypeApply() | tree.TypeCall() | tree.TypeFn():
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

    def declaration_type(self, decl: tree.Record | tree.Enum, args: Mapping[str, TypeBinding]) -> LangType:
        if decl in self.within:
            raise recursive_type_error(decl)
        return enum_type(self, decl, args) if isinstance(decl, tree.Enum) else self.record_type(decl, args)

    def for_fields_of(self, decl: tree.Record | tree.Enum, args: Mapping[str, TypeBinding]) -> AnnotationResolver:
        """A resolver for the field types of a declaration."""
        home, within, parts = self.lookup_for(decl), (*self.within, decl), self.leaf_count if self.within else [0]
        return replace(
            self, records=home, bound=dict(args), generics=declared_bounds(decl), within=within, leaf_count=parts
        )

    # ---- Matching: an annotation against the type of a value; new names are bound

    def match(self, written: tree.TypeExpr, type: LangType) -> bool:
        """Match an annotation against a type, binding its new names. Returns whether it fits."""
        # Size formulas wait until the whole type has bound every lone name.
        waiting: list[tuple[tree.TypeExpr, Dim]] = []
        fits = self.matched(written, type, waiting)
        return fits and all([self.match_dim(dim, size, None) for dim, size in waiting])

    def matched(self, written: tree.TypeExpr, type: LangType, waiting: list[tuple[tree.TypeExpr, Dim]]) -> bool:
        match written, type:
            case tree.TypeName(path=(name,)), _ if name in self.generics and self.generics[name] not in DTYPE_BOUNDS:
                found = self.bound.get(name)
                # Written as `M[f64]`, an element type stands for one number of it.
                found = Tensor(found) if isinstance(found, DType) else found
                if found is None:
                    self.bound[name] = type
                    return self.generics[name] != "vec" or self.unifier.vector(type)
                both = None if isinstance(found, NON_TYPES) else least_common_type(self.unifier, found, type)
                self.bound[name] = found if both is None else both
                return both is not None
            case tree.TypeName(path=(name,)), Tensor(shape=()) if name in self.generics or name in DTYPES:
                return self.match_element(name, type)
            case tree.TypeApply(path=(name,)), Tensor() if name in self.generics or name in DTYPES:
                return self.match_element(name, type) and self.match_shape(written.args, type.shape, waiting)
            case tree.TypeApply(path=(name,)), _ if name in self.generics or name in DTYPES:
                return False
            case tree.TypeApply(path=path), RecordType(tangent=False) if type.decl is self.records(".".join(path)):
                return match_args(self, written.args, type, waiting) and match_fields(self, type)
            case ((tree.TypeName() | tree.TypeApply()), (VariantType() | SumType())) if (
                variants := type.variants if isinstance(type, SumType) else (type,)
            ):
                fits = not is_array_of_sums(type) and match_enum(self, written, variants[0], waiting)
                return fits and all([match_fields(self, variant) for variant in variants])
            case tree.TypeApply(path=path), _ if self.records(".".join(path)) is not None:
                return False
            case tree.TypeName(path=path), RecordType(tangent=False) if type.decl is self.records(".".join(path)):
                return not type.args and match_fields(self, type)
            case tree.TypeName(path=(name,)), _ if name in self.generics:
                return False
            case tree.TypeCall(path=("D",), args=(arg,)), _:
                return match_tangent(self, written, arg, type, waiting)
            case tree.TypeTuple(items=items), TupleType() if len(items) == len(type.items):
                return all([self.matched(w, t, waiting) for w, t in zip(items, type.items, strict=True)])
            case tree.TypeTuple(items=(only,)), _:
                return self.matched(only, type, waiting)
            case tree.TypeFn(), ClosureType() | FnType():
                return self.match_function(written, type, waiting)
            case tree.TypeFn(), SumType():
                return all([self.matched(written, t, waiting) for t in type.options])
            case ((tree.TypeTuple() | tree.TypeFn()), _):
                return False
            case _:
                return self.unifier.same(self.type(written), type)

    def match_function(
        self, written: tree.TypeFn, type: ClosureType | FnType, waiting: list[tuple[tree.TypeExpr, Dim]]
    ) -> bool:
        """Match a function: it must be linear if the annotation is, and its known signature must match."""
        if written.linear and not is_linear_type(type):
            return False
        known = function_signature(type)
        params = written.param.items if isinstance(written.param, tree.TypeTuple) else (written.param,)
        if known is None or len(params) != len(known.params):
            return True
        pairs = [*zip(params, known.params, strict=True), (written.result, known.result)]
        return all([self.matched(w, t, waiting) for w, t in pairs])

    def match_argument(self, arg: object, found: object, waiting: list[tuple[tree.TypeExpr, Dim]]) -> bool:
        if isinstance(found, (int, Poly)) and isinstance(arg, (tree.TypeName, tree.TypeInt, tree.DimBinary)):
            return self.match_dim(arg, found, waiting)
        if isinstance(found, DType) and isinstance(arg, tree.TypeName):
            return self.match_element(arg.path[0], Tensor(found))
        whole = isinstance(found, VALUE_TYPES) and isinstance(arg, tree.Node)
        return whole and self.matched(cast("tree.TypeExpr", arg), cast("LangType", found), waiting)

    def match_element(self, name: str, type: Tensor) -> bool:
        bound = self.generics.get(name)
        if name not in self.bound and bound in DTYPE_BOUNDS:
            accepted = Tensor(prune_dtype(type.dtype))
            try:
                self.unifier.accepts(accepted, DTYPE_BOUNDS[bound or ""])
            except TypeMismatch:
                return False
            self.bound[name] = accepted.dtype
            return True
        wanted = self.element(name)
        return wanted is not None and self.unifier.same(Tensor(wanted), Tensor(type.dtype))

    def match_shape(
        self,
        args: tuple[tree.TypeExpr | tree.AnyShape, ...],
        shape: tuple[Dim, ...],
        waiting: list[tuple[tree.TypeExpr, Dim]],
    ) -> bool:
        spread = next((i for i, a in enumerate(args) if isinstance(a, tree.AnyShape)), None)
        if spread is not None:
            name = args[spread]
            assert isinstance(name, tree.AnyShape)
            after = len(args) - spread - 1
            if len(shape) < len(args) - 1:
                return False
            middle = shape[spread : len(shape) - after]
            if self.bound.setdefault(name.name, middle) != middle:
                return False
            args = (*args[:spread], *args[spread + 1 :])
            shape = (*shape[:spread], *shape[len(shape) - after :])
        if len(args) != len(shape):
            return False
        pairs = zip(args, shape, strict=True)
        return all([self.match_dim(a, s, waiting) for a, s in pairs if not isinstance(a, tree.AnyShape)])

    def match_dim(self, written: tree.TypeExpr, size: Dim, waiting: list[tuple[tree.TypeExpr, Dim]] | None) -> bool:
        """Bind or compare one size; with `waiting`, a formula is deferred until every lone name is bound."""
        if isinstance(written, tree.TypeName) and len(written.path) == 1 and written.path[0] not in self.bound:
            self.bound[written.path[0]] = size
            return True
        if waiting is not None and isinstance(written, tree.DimBinary):
            waiting.append((written, size))
            return True
        unknown = sorted(free_size_names(written) - self.bound.keys())
        if len(unknown) == 1:
            return self.solve_size(written, unknown[0], size)
        if unknown:
            raise unsolvable_size_error(written, unknown)
        return self.unifier.equal(self.dim(written), size)

    def solve_size(self, written: tree.TypeExpr, name: str, size: Dim) -> bool:
        """Bind the one new name of a formula that is linear in it."""
        # Two evaluations give offset and slope of the formula; a third checks that it is linear.
        self.bound[name] = 0
        offset = self.dim(written)
        self.bound[name] = 1
        slope = self.dim(written) - offset
        rest = size - offset
        if slope == 0 or not isinstance(slope, int):
            del self.bound[name]
            return False
        self.bound[name] = symbolic_dims.floor_div(rest, slope)
        if self.unifier.equal(self.dim(written), size):
            return True
        del self.bound[name]
        return False


def size_names(written: tree.TypeExpr, annotations: AnnotationResolver) -> list[str]:
    """The size names in an annotation."""
    others = {*DTYPES, "dim", "str", "key", "D", *annotations.generics}
    return [n for n in mentioned_names(written) if n not in others and annotations.records(n) is None]
