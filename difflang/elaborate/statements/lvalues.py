"""What an assignment writes to: a variable, or a field or element of it, with its indices evaluated once."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from difflang.elaborate.arrays.indexing import Subscripts, read, subscripts
from difflang.elaborate.context import Context, walk
from difflang.elaborate.expressions.primary_expressions import field
from difflang.elaborate.terms import Array, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.syntax import tree
from difflang.syntax.tree_queries import targets


class Place(Struct, frozen=True):
    """What an assignment writes to, its indices evaluated once: a variable, a field or an element of another place."""

    node: tree.Expr
    value: Term | None  # what stands there, None for an element until it is read
    base: Place | None = None
    subs: Subscripts | None = None


def place(cx: Context, target: tree.Expr) -> Walk[Place]:
    match target:
        case tree.Name():
            return Place(target, (yield walk(cx, target)))
        case tree.Member(base=base):
            inside = yield place(cx, base)
            return Place(target, field(cx, current(cx, inside), target), inside)
        case tree.Index(base=base):
            inside, (name,) = (yield place(cx, base)), targets(base)
            before = standing(cx, name)
            subs: Subscripts = yield subscripts(cx, target, current(cx, inside))
            if standing(cx, name) is not before:
                inside = again(cx, inside)
                subs = based(subs, current(cx, inside))
            return Place(target, None, inside, subs)
        case _:
            raise cx.error(
                "DL0207", "this cannot be assigned to", target.span, "", "a variable, a field or an element can"
            )


def standing(cx: Context, name: str) -> Term | int | Poly | None:
    """What a variable stands for now."""
    binding = cx.scope.find(name)
    return None if binding is None else binding.term


def again(cx: Context, at: Place) -> Place:
    """The same place after a block in an index of it has written to the variable; indices are not evaluated again."""
    if at.base is None:
        term = standing(cx, targets(at.node)[0])
        assert not isinstance(term, (int, Poly))
        return Place(at.node, term)
    inside = again(cx, at.base)
    if isinstance(at.node, tree.Member):
        return Place(at.node, field(cx, current(cx, inside), at.node), inside)
    assert at.subs is not None
    return Place(at.node, None, inside, based(at.subs, current(cx, inside)))


def based(subs: Subscripts, base: Term) -> Subscripts:
    """The same indices of another array of the same type."""
    assert isinstance(base, Array)
    return replace(subs, base=base)


def current(cx: Context, at: Place) -> Term:
    """What stands at a place."""
    if at.value is not None:
        return at.value
    assert at.subs is not None
    return read(cx, at.subs)
