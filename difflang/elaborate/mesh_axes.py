"""Axes of a mesh in types: `f32[n @data, d]` lays an array out by an equation `reshard` where its type is declared.

In a function with an `@` somewhere in its signature, sizes without one are whole on every device. An array whose type
says nothing of axes, such as that of a generic `T`, is split as it comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Term, leaves, type_of, with_leaves
from difflang.ir.graph import Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import ANY, Split, reshard
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.language_types import LangType, RecordType, TupleType, leaf_types
from difflang.types.mesh_axis_errors import divides, undivided_error
from difflang.types.module_scope import ModuleScope

Written = tree.TypeExpr
Layout = tuple[Split, Written]  # a split and the type that declares it


def lay_out_parameter(cx: ElabContext, decl: tree.Fn, name: str, term: Term) -> Term:
    """A parameter, split as the signature says."""
    if not cx.module.knows_axes or not names_axes(cx.module, decl):
        return term
    written = next((p.type for p in decl.params if p.name == name), None)
    return term if written is None else lay_out_term(cx, written, term)


def lay_out_result(cx: ElabContext, module: ModuleScope, decl: tree.Fn, result: Term) -> Term:
    """The result of a function of a module, split as its signature says."""
    if decl.result is None or not module.knows_axes or not names_axes(module, decl):
        return result
    return lay_out_term(cx, decl.result, result, module)


def lay_out_arguments(
    cx: ElabContext, module: ModuleScope, decl: tree.Fn, given: Mapping[str, tuple[Term, Span]]
) -> None:
    """Say how the arguments of a call are split, where a definition is checked and the call itself is not followed."""
    if not module.knows_axes or not names_axes(module, decl):
        return
    for param in decl.params:
        if param.type is not None and param.name in given:
            term, span = given[param.name]
            lay_out_term(cx, param.type, term, module, span)


def lay_out_declared(cx: ElabContext, written: Written, value: Term) -> Term:
    """The value of a `let` or `var`, split as its type says, if that names an axis."""
    if not cx.module.knows_axes or not mentions_axes(cx.module, written):
        return value
    return lay_out_term(cx, written, value)


def lay_out_term(
    cx: ElabContext, written: Written, value: Term, module: ModuleScope | None = None, span: Span | None = None
) -> Term:
    """A value, split as a type of a module says; equations stand where the type does, or at `span`."""
    layouts = declared_layouts(module or cx.module, written, type_of(value))
    if not any(layouts):
        return value
    return with_leaves(value, iter([lay_out(cx, *pair, span) for pair in zip(leaves(value), layouts, strict=True)]))


def lay_out(cx: ElabContext, value: Value, layout: Layout | None, span: Span | None) -> Value:
    """A value, split like this; a number is on every device."""
    if layout is None or not layout[0]:
        return value
    splits, at = layout
    if cx.session.mesh:
        assert isinstance(value.type, Tensor)
        refuse_undivided(cx.session.mesh, value.type, splits, at)
    place, hints = span or at.span, (value.hint,)
    return cx.builder.emit(reshard, (value,), span=place, hints=hints, splits=splits, source=splits)[0]


def refuse_undivided(mesh: Mapping[str, int], type: Tensor, splits: Split, at: Written) -> None:
    """Errors: DL0603 for a size that is no multiple of the devices along the axes that split it."""
    written = [axes for axes in at.splits if axes is not None] if isinstance(at, tree.TypeApply) else []
    for size, along in zip(type.shape, splits, strict=True):
        count = prod([mesh.get(name, 1) for name in along])
        if not divides(count, size):
            span = next((axes.span for axes in written if axes.names == along), at.span)
            raise undivided_error(type, size, count, along, span, at.span)


def declared_layouts(module: ModuleScope, written: Written, type: LangType) -> list[Layout | None]:
    """For each leaf of a type how its annotation splits it; None where that says nothing."""
    match written, type:
        case tree.TypeApply(args=args, splits=splits), Tensor():
            return [(array_split(args, splits, len(type.shape)), written)]
        case (tree.TypeName(), Tensor(shape=())):
            return [None]
        case ((tree.TypeName(path=path) | tree.TypeApply(path=path)), RecordType()):
            if module.records.get(".".join(path)) is not type.decl:
                return [None] * len(leaf_types(type))
            home = module.declaring_module(type.decl)
            fields = {f.name: f.type for f in type.decl.fields}
            return [
                layout
                for name, inner in zip(type.names, type.fields, strict=True)
                for layout in declared_layouts(home, fields[name], inner)
            ]
        case tree.TypeTuple(items=(only,)), _:
            return declared_layouts(module, only, type)
        case tree.TypeTuple(items=items), TupleType(items=types) if len(items) == len(types):
            return [x for w, t in zip(items, types, strict=True) for x in declared_layouts(module, w, t)]
        case tree.TypeArray(item=item), _:  # each field has the axes of the array in front
            return declared_layouts(module, item, type)
        case tree.TypeCall(path=("D",), args=(of,)), _:
            return declared_layouts(module, of, type)
        case _:
            return [None] * len(leaf_types(type))


def array_split(
    args: tuple[tree.TypeExpr | tree.AnyShape, ...], splits: tuple[tree.MeshAxes | None, ...], rank: int
) -> Split:
    """The split of an array of so many axes; `..s` is whole, and axes of a stack in front are as they come."""
    found: list[tuple[str, ...]] = []
    for arg, axes in zip(args, splits or (None,) * len(args), strict=True):
        count = rank - len(args) + 1 if isinstance(arg, tree.AnyShape) else 1
        found += [() if axes is None else axes.names] * count
    return (ANY,) * (rank - len(found)) + tuple(found)


@lru_cache(maxsize=4096)
def names_axes(module: ModuleScope, decl: tree.Fn) -> bool:
    """Whether the signature of a function names an axis of a mesh, maybe in the fields of a record."""
    written = [p.type for p in decl.params if p.type is not None]
    return any(mentions_axes(module, w) for w in [*written, *([decl.result] if decl.result is not None else [])])


@lru_cache(maxsize=4096)
def mentions_axes(module: ModuleScope, written: Written) -> bool:
    """Whether a type names an axis of a mesh, maybe in the fields of a record."""
    todo: list[tuple[ModuleScope, tree.Node]] = [(module, node) for node in all_nodes(written)]
    known = set[tree.Node]()
    while todo:
        home, node = todo.pop()
        if isinstance(node, tree.MeshAxes):
            return True
        if isinstance(node, (tree.TypeName, tree.TypeApply)):
            decl = home.records.get(".".join(node.path))
            if isinstance(decl, tree.Record) and decl not in known:
                known.add(decl)
                there = home.declaring_module(decl)
                todo += [(there, inner) for field in decl.fields for inner in all_nodes(field.type)]
    return False
