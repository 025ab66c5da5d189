"""What an assignment writes to: a variable, or a field or element of it, with its indices evaluated once."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from difflang.elaborate.arrays.indexing import Subscripts, evaluate_subscripts, read_indexed
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.expressions.primary_expressions import select_field
from difflang.elaborate.terms import Array, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.syntax import tree
from difflang.syntax.tree_queries import target_variables


class Lvalue(Struct, frozen=True):
    """What an assignment writes to, its indices evaluated once: a variable, a field or an element of another place."""

    node: tree.Expr
    value: Term | None  # what stands there, None for an element until it is read
    base: Lvalue | None = None
    subs: Subscripts | None = None


def elaborate_lvalue(cx: ElabContext, target: tree.Expr) -> Walk[Lvalue]:
    match target:
        case tree.Name():
            return Lvalue(target, (yield elaborate(cx, target)))
        case tree.Member(base=base):
            inside = yield elaborate_lvalue(cx, base)
            return Lvalue(target, select_field(cx, lvalue_value(cx, inside), target), inside)
        case tree.Index(base=base):
            inside, (name,) = (yield elaborate_lvalue(cx, base)), target_variables(base)
            before = variable_term(cx, name)
            subs: Subscripts = yield evaluate_subscripts(cx, target, lvalue_value(cx, inside))
            if variable_term(cx, name) is not before:
                inside = reread_lvalue(cx, inside)
                subs = rebase_subscripts(subs, lvalue_value(cx, inside))
            return Lvalue(target, None, inside, subs)
        case _:
            raise cx.error(
                "DL0207", "this cannot be assigned to", target.span, "", "a variable, a field or an element can"
            )


def variable_term(cx: ElabContext, name: str) -> Term | int | Poly | None:
    """What a variable stands for now."""
    binding = cx.scope.find(name)
    return None if binding is None else binding.term


def reread_lvalue(cx: ElabContext, at: Lvalue) -> Lvalue:
    """The same place after a block in an index of it has written to the variable; indices are not evaluated again."""
    if at.base is None:
        term = variable_term(cx, target_variables(at.node)[0])
        assert not isinstance(term, (int, Poly))
        return Lvalue(at.node, term)
    inside = reread_lvalue(cx, at.base)
    if isinstance(at.node, tree.Member):
        return Lvalue(at.node, select_field(cx, lvalue_value(cx, inside), at.node), inside)
    assert at.subs is not None
    return Lvalue(at.node, None, inside, rebase_subscripts(at.subs, lvalue_value(cx, inside)))


def rebase_subscripts(subs: Subscripts, base: Term) -> Subscripts:
    """The same indices of another array of the same type."""
    assert isinstance(base, Array)
    return replace(subs, base=base)


def lvalue_value(cx: ElabContext, at: Lvalue) -> Term:
    """What stands at a place."""
    if at.value is not None:
        return at.value
    assert at.subs is not None
    return read_indexed(cx, at.subs)
