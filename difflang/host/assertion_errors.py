"""Error messages for failed host assertions: the false comparison, and the values of both its sides."""

from __future__ import annotations

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.expressions.operators import compare_terms
from difflang.elaborate.terms import Term
from difflang.elaborate.trampoline import Walk
from difflang.host.bindings import HostBindings
from difflang.host.statement_walk import HostWalk
from difflang.host.values import HostValue, format_value
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.language_types import TextType, array_axes, drop_axes, is_one_text, show_type

# Characters of a value shown beside its expression; of a longer array only the first wrong element is shown.
MAX_VALUE_LENGTH = 60
LITERALS = (tree.Int, tree.Float, tree.Imaginary, tree.Bool, tree.Str)


def first_false_conjunct(walk: HostWalk, e: tree.Expr) -> Walk[tree.Expr]:
    """The first false operand of conditions joined by `and`."""
    parts: list[tree.Expr] = []
    rest: list[tree.Expr] = [e]
    while rest:
        part = rest.pop()
        if isinstance(part, tree.Binary) and part.op == "and":
            rest += (part.rhs, part.lhs)
        else:
            parts.append(part)
    for part in parts[:-1]:
        if not (yield walk.condition(part)).number:
            return part
    return parts[-1]


def as_comparison(host: HostBindings, e: tree.Expr) -> tree.Compare | None:
    """The comparison of a condition, on its own or under `all`; None for another condition."""
    if isinstance(e, tree.Call) and isinstance(e.fn, tree.Name) and e.fn.id == "all" and host.is_free("all"):
        (arg, *more) = e.args or (None,)
        if arg is None or more or isinstance(arg.value, tree.Comprehension):
            return None
        e = arg.value
    return e if isinstance(e, tree.Compare) else None


def comparison_labels(host: HostBindings, e: tree.Expr) -> tuple[Label, ...]:
    """Labels for the first false comparison of a chain and the values of its sides; empty for another condition."""
    chain = as_comparison(host, e)
    if chain is None:
        return ()
    written = [chain.first, *[side for _, side, _ in chain.rest]]

    def body(cx: ElabContext) -> Walk[list[Term]]:
        terms: list[Term] = [(yield elaborate(cx, chain.first))]
        links: list[Term] = []
        for i, (op, side, _) in enumerate(chain.rest):
            terms.append((yield elaborate(cx, side)))
            spans = (written[i].span, side.span)
            links.append(compare_terms(cx, op, chain.span, terms[i], terms[i + 1], spans))
        return [*links, *terms]

    values, _ = host.unit(tree.TupleExpr(chain.span, tuple(written)), body)
    links, terms = values[: len(chain.rest)], values[len(chain.rest) :]
    for i, link in enumerate(links):
        where = first_false_index(link)
        if where is not None:
            labels = (value_label(written[j], terms[j], where) for j in (i, i + 1))
            return (Label(chain.rest[i][2]), *[label for label in labels if label is not None])
    return ()


def first_false_index(link: HostValue) -> tuple[int, ...] | None:
    """The first index at which a comparison is false; None if it holds everywhere."""
    answers = np.asarray(link.leaves[0] if link.leaves else link.static)
    wrong = np.argwhere(~answers)
    return tuple(int(i) for i in wrong[0]) if len(wrong) else None


def value_label(e: tree.Expr, value: HostValue, where: tuple[int, ...]) -> Label | None:
    """A label with the value of an expression, or with the failing element of a long one. None for a literal."""
    if isinstance(e.operand if isinstance(e, tree.Unary) else e, LITERALS):
        return None
    text = " ".join(format_value(value, "", e.span).split())
    text = f'"{text}"' if is_one_text(value.type) else text
    if len(text) <= MAX_VALUE_LENGTH and "..." not in text:
        return Label(e.span, f"this is {text}")
    rank = len(array_axes(value.type))
    if not isinstance(value.type, (Tensor, TextType)) or not rank or value.leaves is None:
        return Label(e.span, f"this is {show_type(value.type)}")
    array = np.asarray(value.leaves[0])
    # An operand may be broadcast: it has fewer axes than the comparison, or axes of length 1.
    own = where[len(where) - array.ndim :]
    at = tuple(min(i, n - 1) for i, n in zip(own, array.shape, strict=True))
    element = format_value(HostValue(drop_axes(value.type, rank), (array[at],)), "", e.span)
    element = f'"{element}"' if isinstance(value.type, TextType) else element
    return Label(e.span, f"this is {element} at [{', '.join(map(str, at))}]")


def add_statement_label(error: DifflangError, stmt: tree.Node) -> DifflangError:
    """The same error with a label on the statement that led to it, if the error lies elsewhere."""
    first = error.diagnostics[0]
    inside = first.span is not None and first.span.source is stmt.span.source
    inside = inside and first.span is not None and stmt.span.start <= first.span.start < stmt.span.end
    if inside or not first.code.startswith("DL09") or first.span is None:
        return error
    line = stmt.span.text.split("\n", 1)[0].rstrip()
    label = Label(Span(stmt.span.source, stmt.span.start, stmt.span.start + len(line)), "called from here")
    return DifflangError(
        Diagnostic(first.code, first.message, (*first.labels, label), first.helps, first.severity),
        *error.diagnostics[1:],
    )
