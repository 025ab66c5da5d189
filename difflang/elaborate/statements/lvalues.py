"""Lvalues, the targets of assignments: variables, and fields and elements of other lvalues.

Indices are evaluated once. A field of an item, `ps[i].w`, is the element `ps.w[i]`, so that only that field changes.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.arrays.indexing import index_items, leaf_subscripts, read_indexed
from difflang.elaborate.arrays.subscripts import SubscriptPart, Subscripts, evaluate_subscripts
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.expressions.primary_expressions import select_field
from difflang.elaborate.patterns.structured_arrays import is_structured_array, item_grid
from difflang.elaborate.terms import Array, Items, RecordTerm, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.syntax import tree
from difflang.syntax.tree_queries import target_variables


class Lvalue(Struct, frozen=True):
    """The target of an assignment: a variable, or a field or element of another lvalue."""

    node: tree.Expr
    value: Term | None  # the current value; None for an element until it is read
    base: Lvalue | None = None
    subs: Subscripts | None = None


def elaborate_lvalue(cx: ElabContext, target: tree.Expr) -> Walk[Lvalue]:
    match target:
        case tree.Name():
            return Lvalue(target, (yield elaborate(cx, target)))
        case tree.Member(base=base):
            return field_lvalue(cx, target, (yield elaborate_lvalue(cx, base)))
        case tree.Index(base=base):
            inside, (name,) = (yield elaborate_lvalue(cx, base)), target_variables(base)
            before = variable_term(cx, name)
            array = lvalue_value(cx, inside)
            subs: Subscripts = yield evaluate_subscripts(cx, target, subscripted_array(cx, array, base.span), array)
            # A block in an index has assigned the variable: use its new value, but not evaluate the indices again.
            if variable_term(cx, name) is not before:
                inside = reread_lvalue(cx, inside)
                subs = rebase_subscripts(cx, subs, lvalue_value(cx, inside))
            return element_lvalue(target, inside, subs)
        case _:
            raise cx.error(
                "DL0207", "this cannot be assigned to", target.span, "", "assign to a variable, a field or an element"
            )


def element_lvalue(node: tree.Index, inside: Lvalue, subs: Subscripts) -> Lvalue:
    """The element of an lvalue; `a[i][j]` is `a[i, j]`, so that only that element changes."""
    outer = inside.subs
    if outer is None or inside.base is None or not all(map(is_point_or_axis, outer.parts)) or outer.mask is not None:
        return Lvalue(node, None, inside, subs)
    # Positions would move their axes to where they meet the points, and a mask counts its axes.
    if subs.mask is not None or any(p.where is not None or p.new_axis for p in subs.parts):
        return Lvalue(node, None, inside, subs)
    rest = iter(subs.parts)
    parts = tuple([part if part.size is None else next(rest) for part in outer.parts])
    return Lvalue(node, None, inside.base, replace(outer, parts=(*parts, *rest), span=subs.span))


def is_point_or_axis(part: SubscriptPart) -> bool:
    return part.full_axis or (part.size is None and part.where is None and not part.new_axis)


def field_lvalue(cx: ElabContext, node: tree.Member, inside: Lvalue) -> Lvalue:
    """A field of an lvalue; of an item of an array of records, that element of the field of all."""
    if inside.subs is not None and inside.base is not None:
        whole = lvalue_value(cx, inside.base)
        if isinstance(whole, RecordTerm) and is_structured_array(whole):
            of_all = subscripted_array(cx, field := select_field(cx, whole, node), node.span)
            if isinstance(of_all, Array):
                subs = leaf_subscripts(cx, inside.subs, of_all.value)
                return Lvalue(node, None, Lvalue(node, field, inside.base), subs)
    return Lvalue(node, select_field(cx, lvalue_value(cx, inside), node), inside)


def subscripted_array(cx: ElabContext, term: Term, span: Span) -> Term:
    """What subscripts of a value are read against: the grid of an array of items, or the value itself."""
    if isinstance(term, Items) and is_structured_array(term):
        return item_grid(cx, term, span)
    return term


def variable_term(cx: ElabContext, name: str) -> Term | int | Poly | None:
    """The current value of a variable."""
    binding = cx.scope.find(name)
    return None if binding is None else binding.term


def reread_lvalue(cx: ElabContext, at: Lvalue) -> Lvalue:
    """The same lvalue for the current value of its variable; indices are not evaluated again."""
    if at.base is None:
        term = variable_term(cx, target_variables(at.node)[0])
        assert not isinstance(term, (int, Poly))
        return Lvalue(at.node, term)
    inside = reread_lvalue(cx, at.base)
    if at.subs is None:
        assert isinstance(at.node, tree.Member)
        return Lvalue(at.node, select_field(cx, lvalue_value(cx, inside), at.node), inside)
    return Lvalue(at.node, None, inside, rebase_subscripts(cx, at.subs, lvalue_value(cx, inside)))


def rebase_subscripts(cx: ElabContext, subs: Subscripts, base: Term) -> Subscripts:
    """The same subscripts of another array of the same type."""
    array = subscripted_array(cx, base, subs.base_span)
    assert isinstance(array, Array)
    return replace(subs, base=array)


def lvalue_value(cx: ElabContext, at: Lvalue) -> Term:
    """The current value of an lvalue."""
    if at.value is not None:
        return at.value
    assert at.subs is not None and at.base is not None
    whole = lvalue_value(cx, at.base)
    return index_items(cx, whole, at.subs) if isinstance(whole, Items) else read_indexed(cx, at.subs)
