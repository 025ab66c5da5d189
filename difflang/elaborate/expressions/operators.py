"""Operators: broadcasting, arithmetic on arrays, on sizes and on tangents, comparison, the matrix product."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Sequence
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.arrays.index_bounds import known_index
from difflang.elaborate.context import Context, Reported, walk, walks
from difflang.elaborate.expressions.number_promotion import OF_COMPLEX
from difflang.elaborate.expressions.products import matmul
from difflang.elaborate.host_sizes import keep_number
from difflang.elaborate.reports.op_messages import quoted
from difflang.elaborate.reports.operand_mismatches import no_broadcast, no_conversion
from difflang.elaborate.statements.printing import known_text
from difflang.elaborate.terms import Array, Past, Poison, Record, Static, Sum, Term, Text, Tuple, Variant, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir import symbolic_dims
from difflang.ir.op import OPS, TypeMismatch
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import BOOL, COMPLEXES, FLOATS, I32, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import nodes
from difflang.types.dtype_variables import DTypeVar, literal_dtype, pruned
from difflang.types.language_types import Spread, show_type
from difflang.types.type_errors import Undecided, in_range
from difflang.types.unify import unified

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_div", "%": "rem", "^": "pow"}
LOGICAL = {"and": "logical_and", "or": "logical_or"}
COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

# What is computed on numbers known at specialization.
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": python.add,
    "sub": python.sub,
    "mul": python.mul,
    "floor_div": floor_div,
    "rem": python.mod,
}
CHOICES = {"max": python.ge, "min": python.le}
QUESTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": python.eq,
    "ne": python.ne,
    "lt": python.lt,
    "le": python.le,
    "gt": python.gt,
    "ge": python.ge,
}


def array(cx: Context, term: Term, span: Span, what: str = "an array or a number") -> Array:
    """The term as an array. Errors: DL0313 if it is something else."""
    if isinstance(term, Array):
        return term
    if isinstance(term, Poison):
        raise Reported
    way = ""
    if isinstance(term, Text):
        way = 'a text is no number; texts are put together in one: `"{a}{b}"`'
    elif isinstance(term, Past):
        way = f"fold a history with a comprehension or `reduce`: `sum(for v in {quoted(span, 'h')} => v)`"
    raise cx.error("DL0313", f"{what} is expected here", span, f"this is {show_type(type_of(term))}", way)


# ---- Broadcasting


def broadcast_shape(cx: Context, terms: Sequence[Array], spans: Sequence[Span], span: Span) -> tuple[Dim, ...]:
    """The common shape: a scalar fits anything; else trailing axes are equal, or literally 1."""
    shape: tuple[Dim, ...] = ()
    owner = 0
    for i, term in enumerate(terms):
        other = term.tensor.shape
        if other == shape or not other:
            continue
        if not shape:
            shape, owner = other, i
            continue
        merged = merge(cx, shape, other)
        if merged is None:
            raise no_broadcast(terms, spans, span, owner, i)
        if len(other) > len(shape):
            owner = i
        shape = merged
    return shape


def merge(cx: Context, a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    if any(isinstance(d, Spread) for d in (*a, *b)):
        raise Undecided
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    rest = len(long) - len(short)
    merged = list(long)
    for axis, size in enumerate(short, rest):
        if merged[axis] == 1:
            merged[axis] = size
        elif size != 1 and not cx.unifier.equal(merged[axis], size):
            return None
    return tuple(merged)


def broadcast_to(cx: Context, term: Array, shape: tuple[Dim, ...], span: Span) -> Array:
    """The array written larger: a literal is simply written at that size."""
    tensor = term.tensor
    if tensor.shape == shape:
        return term
    if term.literal and not tensor.shape:
        value = cx.emit("const", span, value=term.static, type=Tensor(tensor.dtype, shape))
        return Array(value, term.static, literal=True)
    axes = tuple(range(len(shape) - tensor.rank, len(shape)))
    return Array(cx.emit("broadcast", span, term.value, shape=shape, axes=axes))


# ---- Elementwise application


def elementwise(
    cx: Context, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span] = (), **attrs: Any
) -> Term:
    """An elementwise op, operands broadcast; on tangents of records and tuples, leaf by leaf."""
    if any(isinstance(t, (Record, Tuple, Variant, Sum)) for t in terms):
        from difflang.elaborate.expressions.structural_arithmetic import leafwise

        return leafwise(cx, name, span, terms, spans, **attrs)
    places = spans or [span] * len(terms)
    arrays = [array(cx, t, s) for t, s in zip(terms, places, strict=True)]
    for other in arrays[1:]:
        if name != "select" and not unified(arrays[0].tensor.dtype, other.tensor.dtype):
            raise no_conversion(cx, name, span, arrays, spans)
    if name in OF_COMPLEX and arrays[0].tensor.dtype.is_complex:
        return OF_COMPLEX[name](cx, span, arrays[0])
    static = folded(name, arrays, named=cx.root.definition)
    if static is not None and not attrs:
        return known(cx, name, span, arrays, static)
    shape = broadcast_shape(cx, arrays, spans, span)
    wide = [broadcast_to(cx, a, shape, span) for a in arrays]
    try:
        result = Array(cx.emit(name, span, *[w.value for w in wide], **attrs))
    except TypeMismatch as refused:
        raise cx.refusal(refused, name, span, tuple(arrays), tuple(spans)) from None
    if cx.root.demand is not None and (name in FOLDS or name in CHOICES or name == "neg"):
        keep_number(cx, result, lambda *numbers: counted(cx, name, result, span, *numbers), arrays)
    return known_index(name, arrays, result)


def folded(name: str, arrays: Sequence[Array], *, named: bool) -> Static:
    """The result where sizes and integer literals decide it; the greater one of two sizes that are names is `named`."""
    if len(arrays) != 2:
        return None
    a, b = arrays[0].static, arrays[1].static
    if not isinstance(a, (int, Poly)) or not isinstance(b, (int, Poly)):
        return None
    return size_of(name, a, b) if named and name in CHOICES else fold(name, a, b)


def size_of(name: str, a: Dim, b: Dim) -> Dim | None:
    """The same as a size, with a name of its own where what it is of names is not known."""
    found = fold(name, a, b)
    if isinstance(found, (int, Poly)):
        return found
    first, second = sorted([str(a), str(b)])
    return symbolic_dims.name(f"{name}({first}, {second})") if isinstance(a, Poly) or isinstance(b, Poly) else None


def counted(cx: Context, name: str, result: Array, span: Span, *numbers: Dim) -> Dim | None:
    """The same of numbers of the host, which the run computes in their type. Errors: DL0303, DL0316."""
    name, (a, b) = ("sub", (0, *numbers)) if name == "neg" else (name, numbers)
    if name in ("floor_div", "rem") and b == 0:
        raise by_zero(cx, span, "the divisor is 0")
    found, dtype = size_of(name, a, b), pruned(result.tensor.dtype)
    if isinstance(found, int):
        in_range(found, I32 if isinstance(dtype, DTypeVar) else dtype, span)
    return found


def by_zero(cx: Context, span: Span, label: str) -> DifflangError:
    return cx.error("DL0303", "an integer is divided by zero", span, label)


def fold(name: str, a: Dim, b: Dim) -> Static:
    """An operation on sizes and integer literals, where they decide it."""
    if name in FOLDS:
        return None if name in ("floor_div", "rem") and b == 0 else FOLDS[name](a, b)
    if name not in QUESTIONS and name not in CHOICES:
        return None
    difference = a - b
    if not isinstance(difference, int):
        return None
    if name in CHOICES:
        return a if CHOICES[name](difference, 0) else b
    return QUESTIONS[name](difference, 0)


def known(cx: Context, name: str, span: Span, arrays: Sequence[Array], static: Static) -> Array:
    dtype = BOOL if name in QUESTIONS else arrays[0].tensor.dtype
    literal = all(a.literal for a in arrays) or name in QUESTIONS
    return Array(cx.emit("const", span, value=static, type=Tensor(dtype)), static, literal=literal)


# ---- The walks


@walks(tree.Binary)
def binary(cx: Context, e: tree.Binary) -> Walk[Term]:
    lhs = yield walk(cx, e.lhs)
    if e.op == "^" and (power := written_integer(e.rhs)) is not None:
        return integer_power(cx, e, lhs, power)
    if e.op in LOGICAL and isinstance(lhs, Array) and not lhs.tensor.shape:
        if isinstance(lhs.static, bool) and lhs.static == (e.op == "or"):
            return lhs
        if may_act(e.rhs):
            return (yield short_circuit(cx, e, lhs))
    rhs = yield walk(cx, e.rhs)
    if e.op == "^" and isinstance(rhs, Array) and rhs.literal and isinstance(rhs.static, int):
        return integer_power(cx, e, lhs, rhs.static)
    spans = (e.lhs.span, e.rhs.span)
    if e.op == "@":
        return matmul(cx, e.span, array(cx, lhs, spans[0]), array(cx, rhs, spans[1]), spans)
    if e.op in LOGICAL:
        return logical(cx, LOGICAL[e.op], e.span, (lhs, rhs), spans)
    result = elementwise(cx, ARITHMETIC[e.op], e.span, (lhs, rhs), spans)
    if e.op in ("//", "%"):
        check_divisor(cx, array(cx, rhs, spans[1]), spans[1])
    return result


def may_act(e: tree.Expr) -> bool:
    """Whether an expression could fail, assign or draw, so that it matters whether it is evaluated."""
    for part in nodes(e):
        if isinstance(part, (tree.Index, tree.Block)):
            return True
        if isinstance(part, tree.Call) and not (isinstance(part.fn, tree.Name) and part.fn.id in OPS):
            return True
    return False


def short_circuit(cx: Context, e: tree.Binary, lhs: Array) -> Walk[Term]:
    """`a and b`, `a or b` of single conditions: b is evaluated only where a leaves the answer open."""
    from difflang.elaborate.statements.branches import Branch, branch, carried, joined

    if not cx.unifier.same(lhs.tensor, Tensor(BOOL)):
        raise cx.error("DL0313", f"`{e.op}` joins conditions", e.lhs.span, f"this is {show_type(lhs.tensor)}")
    variables = carried(cx, e.rhs)
    rest = yield branch(cx, lambda: walk(cx, e.rhs), variables, e.rhs.span)
    value = array(cx, rest.value, e.rhs.span, "a condition")
    if not cx.unifier.same(value.tensor, Tensor(BOOL)):
        raise cx.error("DL0313", f"`{e.op}` joins conditions", e.rhs.span, f"this is {show_type(value.tensor)}")
    with cx.region(e.span) as other:
        answer = Array(other.const(e.op == "or", Tensor(BOOL)))
        stay = Branch(other, answer, [b.term for b in variables if not isinstance(b.term, (int, Poly))], e.span)
    sides = (rest, stay) if e.op == "and" else (stay, rest)
    return joined(cx, lhs, *sides, variables, e.span)


def check_divisor(cx: Context, divisor: Array, span: Span) -> None:
    """An integer that divides is not zero, nor is one as written: a float would give a NaN, an integer has none."""
    from difflang.elaborate.runtime_checks import check

    dtype = pruned(divisor.tensor.dtype)
    integer = any(d.is_integer for d in dtype.candidates) if isinstance(dtype, DTypeVar) else dtype.is_integer
    if not integer or (isinstance(divisor.static, int) and divisor.static != 0):
        return
    if divisor.static == 0:
        raise by_zero(cx, span, "this is 0")
    nothing = cx.emit("const", span, value=0, type=divisor.tensor)
    check(cx, Array(cx.emit("ne", span, divisor.value, nothing)), "an integer is divided by zero", span)


def written_integer(e: tree.Expr) -> int | None:
    if isinstance(e, tree.Int):
        return e.value
    if isinstance(e, tree.Unary) and e.op == "-" and isinstance(e.operand, tree.Int):
        return -e.operand.value
    return None


def integer_power(cx: Context, e: tree.Binary, base: Term, power: int) -> Term:
    if isinstance(base, Array) and isinstance(base.static, (int, Poly)) and 0 <= power <= 8:
        static: Dim = 1
        for _ in range(power):
            static = static * base.static
        return known(cx, "mul", e.span, (base, base), static)
    if isinstance(base, Array) and power < 0:
        try:
            cx.unifier.accepts(base.tensor, FLOATS + COMPLEXES)
        except TypeMismatch:
            raise cx.error(
                "DL0311",
                "a negative power of an integer is no integer",
                e.span,
                f"`{e.lhs.span.text}` is {show_type(base.tensor)}",
            ) from None
    return elementwise(cx, "integer_pow", e.span, (base,), (e.lhs.span,), n=power)


def logical(cx: Context, name: str, span: Span, terms: tuple[Term, Term], spans: tuple[Span, Span]) -> Term:
    a, b = terms
    if isinstance(a, Array) and isinstance(b, Array) and isinstance(a.static, bool) and isinstance(b.static, bool):
        static = (a.static and b.static) if name == "logical_and" else (a.static or b.static)
        return cx.literal(static, span, BOOL, static)
    return elementwise(cx, name, span, terms, spans)


@walks(tree.Unary)
def unary(cx: Context, e: tree.Unary) -> Walk[Term]:
    if e.op == "-" and isinstance(e.operand, tree.Int) and e.operand.value <= 2**63:
        return cx.literal(-e.operand.value, e.span, literal_dtype(0, cx.module.default_float), -e.operand.value)
    operand = yield walk(cx, e.operand)
    if e.op == "not":
        if isinstance(operand, Array) and isinstance(operand.static, bool):
            return cx.literal(not operand.static, e.span, BOOL, not operand.static)
        return elementwise(cx, "logical_not", e.span, (operand,), (e.operand.span,))
    if isinstance(operand, Array) and operand.static is not None and not isinstance(operand.static, bool):
        value = cx.emit("const", e.span, value=-operand.static, type=operand.tensor)
        return Array(value, -operand.static, operand.literal)
    return elementwise(cx, "neg", e.span, (operand,), (e.operand.span,))


@walks(tree.Compare)
def compare(cx: Context, e: tree.Compare) -> Walk[Term]:
    """A chain `a < b < c` asks each pair and joins the answers."""
    left, left_span = (yield walk(cx, e.first)), e.first.span
    answer: Term | None = None
    for op, expression, _ in e.rest:
        right = yield walk(cx, expression)
        spans = (left_span, expression.span)
        one = compared(cx, op, left_span.to(expression.span), left, right, spans)
        answer = one if answer is None else logical(cx, "logical_and", e.span, (answer, one), (e.span, e.span))
        left, left_span = right, expression.span
    assert answer is not None
    return answer


def compared(cx: Context, op: str, span: Span, left: Term, right: Term, spans: tuple[Span, Span]) -> Term:
    if isinstance(left, Text) and isinstance(right, Text):
        if op not in ("==", "!="):
            raise cx.error("DL0313", "strings are compared with == and !=", span)
        texts = [known_text(x, at, "a text that is compared") for x, at in zip((left, right), spans, strict=True)]
        answer = (texts[0] == texts[1]) == (op == "==")
        return cx.literal(answer, span, BOOL, answer)
    return elementwise(cx, COMPARISONS[op], span, (left, right), spans)


# ---- The matrix product
