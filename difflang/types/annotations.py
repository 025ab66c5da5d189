"""Matches type annotations against the types of values, which binds the size and type names that they mention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from difflang.ir import symbolic_dims
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, mentioned_names
from difflang.types.dtype_variables import DTYPE_BOUNDS, prune_dtype
from difflang.types.join_types import is_array_of_sums, least_common_type, sum_options
from difflang.types.language_types import (
    VALUE_TYPES,
    AxisSpread,
    ClosureType,
    FnType,
    LangType,
    RecordType,
    SumType,
    TupleType,
    VariantType,
    array_axes,
    drop_axes,
    function_signature,
    is_linear_type,
)
from difflang.types.size_expressions import free_size_names
from difflang.types.type_errors import make_error, unsolvable_size_error
from difflang.types.type_resolver import TypeBinding, TypeResolver

NON_TYPES = (int, Poly, DType, AxisSpread, tuple)


class AnnotationResolver(TypeResolver):
    """Resolves annotations, and matches them against the types of values: new names are bound."""

    def match(self, written: tree.TypeExpr, type: LangType) -> bool:
        """Match an annotation against a type, binding its new names. Returns whether it fits."""
        # Size formulas wait until the whole type has bound every lone name.
        waiting: list[tuple[tree.TypeExpr, Dim]] = []
        fits = self.matched(written, type, waiting)
        return fits and all([self.match_dim(dim, size, None) for dim, size in waiting])

    def matched(self, written: tree.TypeExpr, type: LangType, waiting: list[tuple[tree.TypeExpr, Dim]]) -> bool:
        if (parts := self.array_parts(written)) is not None:
            return self.match_array(*parts, type, waiting)
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
                self.check_splits(written)
                return self.match_element(name, type) and self.match_shape(written.args, type.shape, waiting)
            case tree.TypeApply(path=(name,)), _ if name in self.generics or name in DTYPES:
                return False
            case tree.TypeApply(path=path), RecordType(tangent=False, axes=()) if type.decl is self.records(
                ".".join(path)
            ):
                return self.match_args(written.args, type, waiting) and self.match_fields(type)
            case ((tree.TypeName() | tree.TypeApply()), (VariantType() | SumType())) if (
                variants := type.variants if isinstance(type, SumType) else (type,)
            ):
                fits = not is_array_of_sums(type) and self.match_enum(written, variants[0], waiting)
                return fits and all([self.match_fields(variant) for variant in variants])
            case tree.TypeApply(path=path), _ if self.records(".".join(path)) is not None:
                return False
            case tree.TypeName(path=path), RecordType(tangent=False, axes=()) if type.decl is self.records(
                ".".join(path)
            ):
                return not type.args and self.match_fields(type)
            case tree.TypeName(path=(name,)), _ if name in self.generics:
                return False
            case tree.TypeCall(path=("D",), args=(arg,)), _:
                return self.match_tangent(written, arg, type, waiting)
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

    def match_array(
        self,
        item: tree.TypeExpr,
        axes: tuple[tree.TypeExpr | tree.AnyShape, ...],
        type: LangType,
        waiting: list[tuple[tree.TypeExpr, Dim]],
    ) -> bool:
        """Match an array of records, enums or values of a generic type: its first axes, then its item."""
        found = array_axes(type)[: len(axes)]
        return self.match_shape(axes, found, waiting) and self.matched(item, drop_axes(type, len(axes)), waiting)

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

    # ---- Records and enums

    def match_enum(self, written: tree.TypeExpr, type: VariantType, waiting: list[tuple[tree.TypeExpr, Dim]]) -> bool:
        """Match an annotation against an enum type, as far as its arguments are known."""
        match written:
            case tree.TypeName(path=path) | tree.TypeApply(path=path):
                args = written.args if isinstance(written, tree.TypeApply) else ()
                if self.records(".".join(path)) is not type.decl or type.tangent or len(args) != len(type.args):
                    return False
                return self.match_args(args, type, waiting)
            case _:
                return False

    def match_args(
        self,
        written: Sequence[tree.TypeExpr | tree.AnyShape],
        type: RecordType | VariantType,
        waiting: list[tuple[tree.TypeExpr, Dim]],
    ) -> bool:
        """Match written arguments against those of a record or an enum, as far as these are known."""
        if len(written) != len(type.args):
            return False
        return all([t is None or self.match_argument(a, t, waiting) for a, t in zip(written, type.args, strict=True)])

    def match_fields(self, type: RecordType | VariantType) -> bool:
        """Whether each field has the type that it is declared with: in a stack of records it has more axes."""
        decl = type.decl
        args = {g.name: a for g, a in zip(decl.generics, type.args, strict=True) if a is not None}
        inner = self.for_fields_of(decl, cast("Mapping[str, TypeBinding]", args))
        return all([inner.match(w, t) for w, t in written_fields(type)])

    # ---- Tangent types

    def match_tangent(
        self,
        written: tree.TypeCall,
        of: tree.TypeExpr,
        type: LangType,
        waiting: list[tuple[tree.TypeExpr, Dim]],
    ) -> bool:
        """Whether a type matches the annotation `D(of)`, written as `written`."""
        if (parts := self.array_parts(of)) is not None:
            item, axes = parts
            return self.match_array(replace(written, args=(item,)), axes, type, waiting)
        match of, type:
            case _, Tensor():
                return self.matched(of, type, waiting)
            case tree.TypeName(path=path) | tree.TypeApply(path=path), RecordType(axes=axes) if (
                axes and self.records(".".join(path)) is not None
            ):
                return False
            case tree.TypeName(path=path), RecordType(tangent=True) if type.decl is self.records(".".join(path)):
                return not type.args and self.match_fields(type)
            case tree.TypeApply(path=path), RecordType(tangent=True) if type.decl is self.records(".".join(path)):
                known = replace(type, args=type.args or self.infer_record_args(type))
                return self.match_args(of.args, known, waiting) and self.match_fields(known)
            case tree.TypeTuple(items=parts), TupleType(items=items) if len(parts) == len(items):
                changes = [replace(written, args=(part,)) for part in parts]
                return all([self.matched(w, t, waiting) for w, t in zip(changes, items, strict=True)])
            case tree.TypeName(path=(name,)), _ if name in self.generics and (name in self.bound or not self.rigid):
                return self.match_generic_tangent(written, name, type)
            case _, (VariantType() | SumType()) if variants := [
                o for o in sum_options(type) if isinstance(o, VariantType)
            ]:
                value = replace(variants[0], tangent=False)
                fits = variants[0].tangent and not is_array_of_sums(type) and self.match_enum(of, value, waiting)
                return fits and all([self.match_fields(variant) for variant in variants])
            case _:
                return self.unifier.same(self.type(written), type)

    def match_generic_tangent(self, written: tree.TypeCall, name: str, type: LangType) -> bool:
        """Whether a type is the tangent of a generic's type, possibly of another variant or function.

        Errors: DL0204 if the generic is unbound: a tangent does not determine the fields that have none.
        """
        if name not in self.bound:
            way = f"take the value too, of type `{name}`, or a tangent of any type, `{name}: vec`"
            raise make_error(
                "DL0204", f"`{name}` cannot be inferred from a tangent alone", (written.span, ""), help=way
            )
        return least_common_type(self.unifier, self.type(written), type) is not None

    def infer_record_args(self, type: RecordType) -> tuple[object, ...]:
        """The arguments of a record, inferred from the fields of its tangent."""
        generics = {g.name: g.bound for g in type.decl.generics}
        inner = replace(self, records=self.lookup_for(type.decl), bound={}, generics=generics, rigid=False, within=())
        written = {f.name: f.type for f in type.decl.fields}
        for name, found in zip(type.names, type.fields, strict=True):
            inner.match(tree.TypeCall(written[name].span, ("D",), (written[name],)), found)
        return tuple(inner.bound.get(name) for name in generics)


def size_names(written: tree.TypeExpr, annotations: AnnotationResolver) -> list[str]:
    """The size names in an annotation."""
    others = {*DTYPES, "dim", "str", "key", "D", *annotations.generics}
    return [n for n in mentioned_names(written) if n not in others and annotations.records(n) is None]


def written_fields(type: RecordType | VariantType) -> list[tuple[tree.TypeExpr, LangType]]:
    """The type that each field is declared with, of a tangent `D(…)`, and its type."""
    declared = type.decl.fields if isinstance(type, RecordType) else type.decl.variants[type.index].fields
    written = {f.name: f.type for f in declared}
    pairs = [(written[name], t) for name, t in zip(type.names, type.fields, strict=True)]
    if not type.tangent:
        return pairs
    # The tangent of a function is that of its captures, of which the declaration says nothing.
    known = [(w, t) for w, t in pairs if not any(isinstance(part, tree.TypeFn) for part in all_nodes(w))]
    return [(tree.TypeCall(w.span, ("D",), (w,)), t) for w, t in known]
