"""Unary, binary and comparison operators: powers, short-circuit logic, divisors, matrix products."""

from __future__ import annotations

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.text_numbers import text_number
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array, require_rank
from difflang.elaborate.expressions.constant_folding import division_by_zero, emit_folded
from difflang.elaborate.expressions.elementwise import COMPARISONS, elementwise
from difflang.elaborate.expressions.names import is_user_defined
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.reports.operand_mismatches import declaration_labels, dtype_mismatch_error, quote_or_this
from difflang.elaborate.runtime_checks import emit_check
from difflang.elaborate.statements.branches import BranchSide, elaborate_side, emit_cond
from difflang.elaborate.statements.printing import runtime_text_error, static_text
from difflang.elaborate.statements.regions import assigned_variables
from difflang.elaborate.terms import Array, Term, TextTerm
from difflang.elaborate.trampoline import Walk
from difflang.ir.op import OPS, TypeMismatch
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, COMPLEXES, FLOATS, I32, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.dtype_variables import DTypeVar, is_known_float, literal_dtype, prune_dtype
from difflang.types.language_types import show_type
from difflang.types.literal_numbers import number_as_typed
from difflang.types.type_errors import make_error
from difflang.types.unify import unify_dtypes

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_div", "%": "rem", "^": "pow"}
LOGICAL = {"and": "logical_and", "or": "logical_or"}


@elaborates(tree.Binary)
def binary_operator(cx: ElabContext, e: tree.Binary) -> Walk[Term]:
    lhs = yield elaborate(cx, e.lhs)
    if e.op == "^" and (power := literal_integer(e.rhs)) is not None:
        return power_by_integer(cx, e, lhs, power)
    decides = False
    if e.op in LOGICAL and isinstance(lhs, Array) and not lhs.tensor.shape:
        decides = isinstance(lhs.static, bool) and lhs.static == (e.op == "or")
        if has_effects(cx, e.rhs):
            return (yield (decided_answer if decides else short_circuit)(cx, e, lhs))
    rhs = yield elaborate(cx, e.rhs)
    if decides and isinstance(rhs, Array) and not rhs.tensor.shape:
        return lhs
    if e.op == "^" and isinstance(rhs, Array) and rhs.literal and isinstance(rhs.static, int):
        return power_by_integer(cx, e, lhs, rhs.static)
    spans = (e.lhs.span, e.rhs.span)
    if e.op == "@":
        return matmul(cx, e.span, as_array(cx, lhs, spans[0]), as_array(cx, rhs, spans[1]), spans)
    if e.op in LOGICAL:
        return logical_operator(cx, LOGICAL[e.op], e.span, (lhs, rhs), spans)
    result = elementwise(cx, ARITHMETIC[e.op], e.span, (lhs, rhs), spans)
    if e.op in ("//", "%"):
        check_divisor(cx, as_array(cx, rhs, spans[1]), spans[1])
    return result


def has_effects(cx: ElabContext, e: tree.Expr) -> bool:
    """Whether evaluating an expression could fail, assign or draw."""
    for part in all_nodes(e):
        if isinstance(part, (tree.Index, tree.Block, tree.Pipe)):
            return True
        # An integer divisor may be 0.
        if isinstance(part, tree.Binary) and part.op in ("//", "%") and not literal_integer(part.rhs):
            return True
        if isinstance(part, tree.Call) and not is_op(cx, part.fn):
            return True
    return False


def is_op(cx: ElabContext, fn: tree.Expr) -> bool:
    return isinstance(fn, tree.Name) and fn.id in OPS and not is_user_defined(cx, fn)


def short_circuit(cx: ElabContext, e: tree.Binary, lhs: Array) -> Walk[Term]:
    """`a and b`, `a or b` where a is one condition: b is evaluated only if a does not decide the answer."""
    if not cx.unifier.same(lhs.tensor, Tensor(BOOL)):
        raise cx.error("DL0313", f"`{e.op}` joins conditions", e.lhs.span, f"this is {show_type(lhs.tensor)}")
    variables = assigned_variables(cx, e.rhs)
    rest = yield elaborate_side(cx, lambda: elaborate(cx, e.rhs), variables, e.rhs.span)
    value = as_array(cx, rest.value, e.rhs.span, "a condition")
    if not cx.unifier.same(Tensor(value.tensor.dtype), Tensor(BOOL)):
        raise cx.error("DL0313", f"`{e.op}` joins conditions", e.rhs.span, f"this is {show_type(value.tensor)}")
    with cx.nested_graph(e.span) as other:
        answer = Array(other.const(e.op == "or", value.tensor))
        stay = BranchSide(other, answer, [b.term for b in variables if not isinstance(b.term, (int, Poly))], e.span)
    sides = (rest, stay) if e.op == "and" else (stay, rest)
    return emit_cond(cx, lhs, *sides, variables, e.span)


def decided_answer(cx: ElabContext, e: tree.Binary, lhs: Array) -> Walk[Term]:
    """`a and b`, `a or b` where a, known before the run, decides: with the axes of b, which need not be valid.

    A b that calls a function in progress which does not declare its result is taken for one condition: a may be what
    ends a recursion.
    """
    variables = assigned_variables(cx, e.rhs)
    with cx.session.unreachable():
        try:
            rest = yield elaborate_side(cx, lambda: elaborate(cx, e.rhs), variables, e.rhs.span)
        except (DifflangError, AlreadyReported):
            return lhs
    shape = rest.value.tensor.shape if isinstance(rest.value, Array) else ()
    return Array(cx.emit("const", e.span, value=lhs.static, type=Tensor(BOOL, shape))) if shape else lhs


def check_divisor(cx: ElabContext, divisor: Array, span: Span) -> None:
    """Check that an integer divisor is not zero: floats would give NaN, but integers have none."""
    dtype = prune_dtype(divisor.tensor.dtype)
    integer = any(d.is_integer for d in dtype.candidates) if isinstance(dtype, DTypeVar) else dtype.is_integer
    if not integer or (isinstance(divisor.static, int) and divisor.static != 0):
        return
    if divisor.static == 0:
        raise division_by_zero(cx, span, "this is 0")
    nothing = cx.emit("const", span, value=0, type=divisor.tensor)
    emit_check(cx, Array(cx.emit("ne", span, divisor.value, nothing)), "integer division by zero", span)


def literal_integer(e: tree.Expr) -> int | None:
    if isinstance(e, tree.Int):
        return e.value
    if isinstance(e, tree.Unary) and e.op == "-" and isinstance(e.operand, tree.Int):
        return -e.operand.value
    return None


def power_by_integer(cx: ElabContext, e: tree.Binary, base: Term, power: int) -> Term:
    # Static powers up to 8 stay sizes; higher ones overflow 64 bits for most bases.
    if (
        isinstance(base, Array)
        and isinstance(base.static, (int, Poly))
        and 0 <= power <= 8
        and not is_known_float(base.tensor.dtype)
    ):
        static: Dim = 1
        for _ in range(power):
            static = static * base.static
        return emit_folded(cx, "mul", e.span, (base, base), static)
    if isinstance(base, Array) and power < 0:
        try:
            cx.unifier.accepts(base.tensor, FLOATS + COMPLEXES)
        except TypeMismatch:
            raise cx.error(
                "DL0311",
                "an integer to a negative power is not an integer",
                e.span,
                f"`{e.lhs.span.text}` is {show_type(base.tensor)}",
            ) from None
    return elementwise(cx, "integer_pow", e.span, (base,), (e.lhs.span,), n=power)


def logical_operator(
    cx: ElabContext, name: str, span: Span, terms: tuple[Term, Term], spans: tuple[Span, Span]
) -> Term:
    a, b = terms
    if isinstance(a, Array) and isinstance(b, Array) and isinstance(a.static, bool) and isinstance(b.static, bool):
        static = (a.static and b.static) if name == "logical_and" else (a.static or b.static)
        return cx.literal_array(static, span, BOOL, static)
    return elementwise(cx, name, span, terms, spans)


@elaborates(tree.Unary)
def unary_operator(cx: ElabContext, e: tree.Unary) -> Walk[Term]:
    if e.op == "-" and isinstance(e.operand, tree.Int) and e.operand.value <= 2**63:
        return cx.literal_array(-e.operand.value, e.span, literal_dtype(0, cx.module.default_float), -e.operand.value)
    operand = yield elaborate(cx, e.operand)
    if e.op == "not":
        if isinstance(operand, Array) and isinstance(operand.static, bool):
            return cx.literal_array(not operand.static, e.span, BOOL, not operand.static)
        return elementwise(cx, "logical_not", e.span, (operand,), (e.operand.span,))
    if isinstance(operand, Array) and operand.static is not None and not isinstance(operand.static, bool):
        number = number_as_typed(operand.static, operand.tensor.dtype)  # 0 of a float type becomes -0.0
        value = cx.emit("const", e.span, value=-number, type=operand.tensor)
        return Array(value, -number, operand.literal)
    return elementwise(cx, "neg", e.span, (operand,), (e.operand.span,))


@elaborates(tree.Compare)
def comparison_chain(cx: ElabContext, e: tree.Compare) -> Walk[Term]:
    """A chain `a < b < c` compares each pair and combines the answers with `and`."""
    left, left_span = (yield elaborate(cx, e.first)), e.first.span
    answer: Term | None = None
    for op, expression, _ in e.rest:
        right = yield elaborate(cx, expression)
        spans = (left_span, expression.span)
        one = compare_terms(cx, op, left_span.to(expression.span), left, right, spans)
        answer = one if answer is None else logical_operator(cx, "logical_and", e.span, (answer, one), (e.span, e.span))
        left, left_span = right, expression.span
    assert answer is not None
    return answer


def compare_terms(cx: ElabContext, op: str, span: Span, left: Term, right: Term, spans: tuple[Span, Span]) -> Term:
    if isinstance(left, TextTerm) and isinstance(right, TextTerm):
        if op not in ("==", "!="):
            raise cx.error("DL0313", "texts can only be compared with == and !=", span)
        if left.number is not None or right.number is not None:
            numbers = [number_of_text(cx, x, at) for x, at in zip((left, right), spans, strict=True)]
            return elementwise(cx, COMPARISONS[op], span, numbers, spans)
        texts = [static_text(x, at, "a compared text") for x, at in zip((left, right), spans, strict=True)]
        answer = (texts[0] == texts[1]) == (op == "==")
        return cx.literal_array(answer, span, BOOL, answer)
    return elementwise(cx, COMPARISONS[op], span, (left, right), spans)


def number_of_text(cx: ElabContext, text: TextTerm, span: Span) -> Array:
    """The number of a text, or those of an array of texts. Errors: DL0305 for a text with run-time parts."""
    if text.number is not None:
        return Array(text.number, items=text.type)
    if text.parts:
        raise runtime_text_error(span, "a compared text")
    number = text_number(text.value or "")
    return cx.literal_array(number, span, I32, number)


# ---- The matrix product


def matmul(cx: ElabContext, span: Span, x: Array, y: Array, spans: tuple[Span, Span]) -> Array:
    """`x @ y`: contracts the last axis of x with the second to last of y; a vector is a row or a column."""
    a, b = require_rank(x).tensor, require_rank(y).tensor
    for term, at in ((x, spans[0]), (y, spans[1])):
        if not term.tensor.shape:
            raise cx.error(
                "DL0313",
                "`@` takes vectors and matrices",
                at,
                f"this is {show_type(term.tensor)}",
                "write `*` for the product with a number",
            )
    if not unify_dtypes(a.dtype, b.dtype):
        raise dtype_mismatch_error("@", span, [x, y], spans)
    inner = b.rank - 2 if b.rank > 1 else 0
    if not cx.unifier.equal(a.shape[-1], b.shape[inner]):
        raise inner_size_error(x, y, inner, spans)
    batch = min(max(a.rank - 2, 0), max(b.rank - 2, 0))
    if (batch and a.rank != b.rank) or any(
        not cx.unifier.equal(m, n) for m, n in zip(a.shape[:batch], b.shape[:batch], strict=True)
    ):
        raise cx.error(
            "DL0310", "the leading axes of a batched product must be equal", span, f"{show_type(a)} @ {show_type(b)}"
        )
    lead = tuple(range(batch))
    product = cx.emit_op("dot_general", span, x, y, spans=spans, contract=((a.rank - 1,), (inner,)), batch=(lead, lead))
    # X was the same for the whole batch: its rows come after the batch.
    if not batch and b.rank > 2 and a.rank > 1:
        rows = a.rank - 1
        order = (*range(rows, rows + b.rank - 2), *range(rows), rows + b.rank - 2)
        return cx.emit_op("transpose", span, product, perm=order)
    return product


def inner_size_error(x: Array, y: Array, inner: int, spans: tuple[Span, Span]) -> DifflangError:
    size, other = x.tensor.shape[-1], y.tensor.shape[inner]
    first = "only" if x.tensor.rank == 1 else "last"
    second = {1: "only", 2: "first"}.get(y.tensor.rank, "second-last")
    labels = [
        (spans[1], f"{quote_or_this(spans[1])} is {show_type(y.tensor)}: its {second} axis is {other}"),
        (spans[0], f"{quote_or_this(spans[0])} is {show_type(x.tensor)}: its {first} axis is {size}"),
    ]
    way = f"the {first} axis of the left side must equal the {second} axis of the right side"
    if y.tensor.rank == 2 and size == y.tensor.shape[1]:
        way += f"; `{quote_source(spans[0])} @ transpose({quote_source(spans[1], 'y')})` fits"
    return make_error(
        "DL0312", f"`@` joins sizes {size} and {other}, which differ", *labels, *declaration_labels([x, y]), help=way
    )
