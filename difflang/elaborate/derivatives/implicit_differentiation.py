"""Implicit differentiation of a function that solves an equation: `rule root(f, p) by implicit |x| f(x, p)`.

By the implicit function theorem F(x, p) = 0 gives ∂F/∂x dx = -∂F/∂p dp: one linear equation, however x was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from difflang.analysis.holomorphy import find_nonholomorphic_steps
from difflang.base.source import Span
from difflang.elaborate.calls.application import apply, placeholder_term
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.rule_parameters import dim_argument
from difflang.elaborate.derivatives.tangents import tags_of
from difflang.elaborate.expressions.names import closure_values, generic_bindings
from difflang.elaborate.reports.linearity_errors import unknown_variant_error
from difflang.elaborate.terms import Array, Closure, Term, Tuple, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import STRICT_SOLVER
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names, pattern_names
from difflang.types.function_code import DerivativeCode, FnCode, LambdaCode, LinearMapCode
from difflang.types.language_types import LangType, array_axes, leaf_types, show_type, tangent_type
from difflang.types.type_errors import make_error


def apply_implicit_derivative(cx: ElabContext, derivative: Closure, args: CallArgs) -> Walk[Term]:
    """Apply a derivative that the rule needs but the program did not write: warnings about it would confuse."""
    before, cx.root.implicit_derivative = cx.root.implicit_derivative, True
    try:
        return (yield apply(cx, derivative, args))
    finally:
        cx.root.implicit_derivative = before


def solve_with_tangent(
    cx: ElabContext, code: FnCode, rule: tree.Rule, arguments: dict[str, Term], tangents: Sequence[Term]
) -> Walk[tuple[Term, Term]]:
    """The solution and its tangent."""
    equation, span = rule_equation(rule), rule.body.span
    given = [(arguments[p.name] if p.name in arguments else dim_argument(cx, p, span), span) for p in code.decl.params]
    x: Term = yield apply(cx, Closure(code, ()), CallArgs(span, given))
    f, moving = equation_closure(cx, code, rule, equation)
    items = [(term, span) for term in (*arguments.values(), x)]
    active = [i for i, t in enumerate(tangents) if leaf_types(type_of(t))]
    draws = cx.root.draw_count
    unknown = Closure(DerivativeCode("linearize", ((moving,),)), (f,))
    pair: Term = yield apply_implicit_derivative(cx, unknown, CallArgs(span, items))
    assert isinstance(pair, Tuple)
    if cx.root.draw_count > draws:
        way = "draw outside, and pass in the result"
        raise make_error(
            "DL1104", "the equation of a rule cannot draw random numbers", (equation.body.span, ""), help=way
        )
    residual, slope = pair.items
    check_square_system(residual, x, equation.body.span)
    if tags_of(residual) or tags_of(x):
        way = "use `match` around the call"
        if array_axes(type_of(x)):
            way = "call a function without such a rule, as `lbfgs` of `minimize` in place of `minimizer`"
        raise unknown_variant_error("the unknown of `by implicit`", equation.body.span, way)
    if not active:
        return x, term_from_leaves(tangent_type(type_of(x)), zero_values(cx, tangent_type(type_of(x))))
    push = Closure(DerivativeCode("jvp", tuple((i,) for i in active)), (f,))
    pushed: Term = yield apply_implicit_derivative(
        cx, push, CallArgs(span, [*items, *[(tangents[i], span) for i in active]])
    )
    assert isinstance(pushed, Tuple)
    if cx.root.definition_only:
        return x, placeholder_term(cx, tangent_type(type_of(x)))
    return x, (yield solve_for_tangent(cx, slope, pushed.items[1], span))


def rule_equation(rule: tree.Rule) -> tree.Lambda:
    """The lambda after `by implicit`. Errors: DL1104."""
    body = rule.body
    if isinstance(body, tree.Lambda) and len(body.params) == 1 and not body.linear:
        unknown = pattern_names(body.params[0].pattern)
        if not {*unknown} & {*mentioned_names(body.body)}:
            message = f"the equation does not depend on its unknown `{', '.join(unknown)}`"
            raise make_error(
                "DL1104", message, (body.span, ""), help="it must be zero where the unknown is the solution"
            )
        return body
    message = "a rule by implicit needs an equation: a lambda of the unknown that is zero at the solution"
    raise make_error("DL1104", message, (body.span, ""), help=f"`rule {rule.name}(…) by implicit |x| f(x)`")


def equation_closure(cx: ElabContext, code: FnCode, rule: tree.Rule, equation: tree.Lambda) -> tuple[Closure, int]:
    """The equation as a function of the rule's parameters and the unknown, and the unknown's position."""
    mine = [m for m, p in zip(rule.params, code.decl.params, strict=True) if not is_dim(p.type)]
    params = [tree.LambdaParam(p.span, tree.NamePattern(p.span, p.name), None) for p in mine]
    decl = tree.Lambda(equation.span, (*params, *equation.params), equation.body, False)
    names, terms, known = closure_values(cx, decl)
    return Closure(LambdaCode(decl, cx.module, names, known, generic_bindings(cx, decl)), terms), len(params)


def check_square_system(residual: Term, x: Term, span: Span) -> None:
    """Check that there are as many equations as unknowns. Errors: DL1104."""
    found, wanted = (leaf_types(tangent_type(type_of(t))) for t in (residual, x))
    if count_reals(found) == count_reals(wanted) and wanted:
        return
    message = "there must be as many equations as unknowns"
    label = f"this is {show_type(type_of(residual))}, but the unknown is {show_type(type_of(x))}"
    raise make_error("DL1104", message, (span, label))


def count_reals(types: Sequence[Tensor]) -> object:
    return sum(prod(t.shape, start=1 + t.dtype.is_complex) for t in types)


def zero_values(cx: ElabContext, type: LangType) -> list[Value]:
    return [cx.builder.const(0, leaf) for leaf in leaf_types(type)]


# ---- The linear equation


def solve_for_tangent(cx: ElabContext, slope: Term, change: Term, span: Span) -> Walk[Term]:
    """The dx with slope(dx) = -change, by one division or by elimination."""
    assert isinstance(slope, Closure) and isinstance(slope.code, LinearMapCode)
    takes = slope.code.domain
    opposite = [cx.emit("neg", span, v) for v in leaves(change)]
    types = [v.type for v in opposite]
    lone = leaf_types(takes) == types == [types[0]] and isinstance(types[0], Tensor) and not types[0].shape
    # A scalar equation needs no solver: divide by the slope.
    if lone and is_multiplication(slope.code):
        one = Array(cx.builder.const(1, types[0]))
        by = leaves((yield apply(cx, slope, CallArgs(span, [(one, span)]))))[0]
        return term_from_leaves(takes, [cx.emit("div", span, opposite[0], by)])
    code = flatten_map(slope.code)
    assert isinstance(code.domain, Tensor)
    rhs = Array(flatten_values(cx.builder, opposite))
    prelude = cx.module.prelude or cx.module
    # Gaussian elimination with pivoting, which builds the matrix from the map's values at basis vectors.
    solver = Closure(FnCode(prelude.fns["eliminated"], prelude), ())
    found: Term = yield apply(cx, solver, CallArgs(span, [(Closure(code, slope.captures), span), (rhs, span)]))
    return term_from_leaves(takes, unflatten_values(cx.builder, leaves(found)[0], leaf_types(takes)))


def is_multiplication(code: LinearMapCode) -> bool:
    """Whether a linear map of a number is a multiplication. A map of complex numbers may also use the conjugate."""
    graph = code.graph
    return not any(find_nonholomorphic_steps(graph, [i == len(graph.params) - 1 for i in range(len(graph.params))]))


def flatten_map(code: LinearMapCode) -> LinearMapCode:
    """The same map between flat real vectors."""
    takes, gives = leaf_types(code.domain), leaf_types(code.gives)
    builder = Builder()
    residuals = [builder.param(p.type, p.hint) for p in code.graph.params[: len(code.graph.params) - len(takes)]]
    vector = flat_vector_type(takes)
    pieces = unflatten_values(builder, builder.param(vector), takes)
    results = builder.inline(code.graph, *residuals, *pieces)
    graph: Graph = builder.finish([flatten_values(builder, results)], name=code.graph.name)
    return LinearMapCode(graph, vector, flat_vector_type(gives))


def flat_vector_type(types: Sequence[Tensor]) -> Tensor:
    """The type of these arrays as one flat vector, with two reals for each complex number."""
    first = types[0].dtype
    length = sum(element_count(t) * (1 + t.dtype.is_complex) for t in types)
    return Tensor(STRICT_SOLVER.real_dtype(types[0]) if first.is_complex else first, (length,))


def element_count(type: Tensor) -> int:
    return prod([d for d in type.shape if isinstance(d, int)], start=1)


def flatten_values(builder: Builder, values: Sequence[Value]) -> Value:
    """Arrays as one flat vector; real parts come before imaginary parts."""
    rows: list[Value] = []
    for value in values:
        assert isinstance(value.type, Tensor)
        parts = [builder.one(p, value) for p in ("real", "imag")] if value.type.dtype.is_complex else [value]
        rows += [builder.one("reshape", part, shape=(element_count(value.type),)) for part in parts]
    return rows[0] if len(rows) == 1 else builder.one("concat", *rows, axis=0)


def unflatten_values(builder: Builder, vector: Value, types: Sequence[Tensor]) -> list[Value]:
    """The arrays that `flatten_values` joined."""
    found: list[Value] = []
    start = 0
    for type in types:
        parts: list[Value] = []
        for _ in range(1 + type.dtype.is_complex):
            stop = start + element_count(type)
            piece = builder.one("slice", vector, starts=(start,), stops=(stop,), steps=(1,))
            parts.append(builder.one("reshape", piece, shape=type.shape))
            start = stop
        found.append(builder.one("complex", *parts) if type.dtype.is_complex else parts[0])
    return found
