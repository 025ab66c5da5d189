"""Every rule of `simplify` fires on its own example and keeps every bit, on random, special and infinite inputs."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from derivatives import jvp, vjp
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.structural_equality import graphs_equal
from difflang.ir.tensor_types import BOOL, C128, F32, F64, DType, Tensor, numpy_dtype
from difflang.ir.verify import verify
from difflang.passes.dce import dce
from difflang.passes.rules.algebraic_identities import ALGEBRAIC_IDENTITIES, ProgramPair
from difflang.passes.rules.rewriter import GuardedRule
from difflang.passes.simplify import GUARDED_RULES, simplify
from support.graphs import SPECIAL, bits, floats_near

SAMPLES = [(rule, i) for rule in GUARDED_RULES for i in range(len(rule.samples))]


def numbers(draw: Random, type: Tensor) -> Any:
    size = int(np.prod([int(str(n)) for n in type.shape], dtype=int))
    dtype, numpy = type.dtype, numpy_dtype(type.dtype)
    if dtype is BOOL:
        items: list[Any] = [draw.random() < 0.5 for _ in range(size)]
    elif dtype.is_integer:
        info = np.iinfo(numpy)
        items = [draw.choice([0, 1, int(info.min), int(info.max), 7]) for _ in range(size)]
    else:
        tiny = [1e-40, 5e-324, 1e300, 3.0, -0.1]
        items = [draw.choice([*SPECIAL, *tiny, draw.gauss(0.0, 1.0)]) for _ in range(size)]
        if dtype.kind == "complex":
            items = [complex(x, draw.choice(SPECIAL)) for x in items]
    with np.errstate(all="ignore"):
        return np.asarray(items).astype(numpy).reshape([int(str(n)) for n in type.shape])


def agree(lhs: Graph, rhs: Graph) -> None:
    for seed in range(60):
        draw = Random(seed)
        xs = [numbers(draw, p.type) for p in lhs.params if isinstance(p.type, Tensor)]
        assert bits(evaluate(lhs, *xs)) == bits(evaluate(rhs, *xs))


@pytest.mark.parametrize("number", range(len(ALGEBRAIC_IDENTITIES)))
def test_both_sides_of_a_rule_are_the_same_function(number: int) -> None:
    rule: ProgramPair = ALGEBRAIC_IDENTITIES[number]
    for dtype in rule.dtypes:
        lhs, rhs = rule.trace(rule.left, dtype), rule.trace(rule.right, dtype)
        agree(lhs, rhs)
        after = dce(verify(simplify(lhs), after="simplify"))
        assert graphs_equal(after, dce(rhs), names=False), f"not rewritten for {dtype}"


@pytest.mark.parametrize("number", [i for i, rule in enumerate(ALGEBRAIC_IDENTITIES) if F64 in rule.dtypes])
def test_both_sides_of_a_rule_have_one_derivative(number: int) -> None:
    """Pushed and pulled, NaN and Inf included; zeros may differ in sign, where one is structural."""
    rule = ALGEBRAIC_IDENTITIES[number]
    for derivative in (jvp, vjp):
        lhs, rhs = (derivative(rule.trace(side, F64)) for side in (rule.left, rule.right))
        for seed in range(40):
            draw = Random(seed)
            xs = [numbers(draw, p.type) for p in lhs.params if isinstance(p.type, Tensor)]
            for a, b in zip(evaluate(lhs, *xs), evaluate(rhs, *xs), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("rule", "i"), SAMPLES, ids=lambda v: str(v))
def test_a_guarded_rule_fires_and_keeps_what_its_samples_compute(rule: GuardedRule, i: int) -> None:
    graph = rule.samples[i]()
    verify(graph)
    after = verify(simplify(graph), after="simplify")
    assert not graphs_equal(after, graph)
    agree(graph, after)
    assert work(after) <= work(graph) + MORE.get(str(rule), 0)


# A step is copied; operands are still spread, over fewer axes; what was one lookup is a few moves.
MORE = {
    "inline_trivial_loop": 8,
    "delay_broadcast": 2,
    "gather_to_slice": 3,
    "padded_reshape_to_diagonal": 4,
    "inline_single_map": 4,
    "reduce_before_broadcast": 1,
}


def work(graph: Graph) -> int:
    """How many equations are needed, not counting constants."""
    return sum(eqn.op.name != "const" for eqn in dce(graph).eqns)


def one(name: str, *operands: Value) -> Value:
    return OPS[name].one(*operands)


KEPT = {
    "x + 0.0 is 0.0 at -0.0": lambda x, y: x + 0.0,
    "x * 0.0 is NaN at Inf": lambda x, y: x * 0.0,
    "x - x is NaN at Inf": lambda x, y: x - x,
    "x / x": lambda x, y: x / x,
    "0.0 / x": lambda x, y: 0.0 / x,
    "x - (-0.0) is 0.0 at -0.0": lambda x, y: x - (-0.0),
    "0.0 - x is 0.0 at 0.0": lambda x, y: 0.0 - x,
    "-(x - y) is -0.0 at x = y": lambda x, y: -(x - y),
    "(x + y) - y rounds": lambda x, y: (x + y) - y,
    "the sum of -0.0 alone is 0.0": lambda x, y: OPS["reduce_sum"].one(x, axes=()),
    "x / 3.0 is not x * (1/3)": lambda x, y: x / 3.0,
    "not (x < y) holds beside NaN": lambda x, y: one("logical_not", one("lt", x, y)),
    "max(x, x) has derivative NaN at NaN": lambda x, y: one("max", x, x),
    "min(x, max(x, y)) with NaN": lambda x, y: one("min", x, one("max", x, y)),
}


@pytest.mark.parametrize("text", KEPT)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_what_floats_do_not_allow_is_left_alone(text: str, dtype: DType) -> None:
    graph = build_region([Tensor(dtype, (3,))] * 2, lambda x, y: [KEPT[text](x, y)])
    assert simplify(graph) is graph


def test_a_product_with_zero_stays_one_whichever_comes_first() -> None:
    graph = build_region([Tensor(F64, (3,))], lambda x: [0.0 * x])
    (*_, product) = simplify(graph).eqns
    assert product.op.name == "mul"
    assert product.operands[0] is graph.params[0]


def test_a_wrong_rule_would_be_caught() -> None:
    """The negative control: the famous wrong rules do not pass the test above."""
    for left, right in (
        (lambda x: x + 0.0, lambda x: x),
        (lambda x: x * 0.0, lambda x: x.home.const(0.0, x.type)),
        (lambda x: x - x, lambda x: x.home.const(0.0, x.type)),
    ):
        wrong = ProgramPair(left, right, (F64,))
        with pytest.raises(AssertionError):
            agree(wrong.lhs, wrong.rhs)


@pytest.mark.parametrize("number", [i for i, r in enumerate(ALGEBRAIC_IDENTITIES) if not {BOOL, C128} & set(r.dtypes)])
def test_a_rule_of_real_numbers_leaves_complex_ones_alone(number: int) -> None:
    """`-x / -y` of complex numbers is not `x / y` in the signs of its zeros."""
    rule = ALGEBRAIC_IDENTITIES[number]
    if "abs" not in {e.op.name for e in rule.lhs.eqns}:
        graph = rule.trace(rule.left, C128)
        assert [e.op for e in simplify(graph).eqns] == [e.op for e in graph.eqns]


@pytest.mark.parametrize(("op", "a", "b", "kept"), [
    ("div", 1.0, 0.0, True), ("mul", 1e200, 1e200, True), ("sub", np.inf, np.inf, False), ("add", 1.0, np.inf, False),
])  # fmt: skip
def test_what_makes_infinity_of_finite_numbers_is_not_folded(op: str, a: float, b: float, kept: bool) -> None:
    """It can be found then: `difflang run --check-nans`."""
    graph = build_region([Tensor(F64)], lambda x: [OPS[op].one(x.home.const(a, x.type), x.home.const(b, x.type))])
    assert (op in [e.op.name for e in simplify(graph).eqns]) is kept


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge"])
@pytest.mark.parametrize("number", [1e-5, 0.1, 1.0, 3.0, 1e7])
def test_squares_are_compared_as_their_roots_are(dtype: DType, name: str, number: float) -> None:
    """At each float around the number, at squares that overflow or underflow, and at NaN."""
    xs = floats_near(number, dtype)
    graph = build_region([Tensor(dtype, xs.shape)], lambda x: [compare_root(x, name, number)])
    after = dce(simplify(graph))
    assert "sqrt" not in {eqn.op.name for eqn in after.eqns}
    with np.errstate(all="ignore"):
        assert bits(evaluate(graph, xs)) == bits(evaluate(after, xs))


@pytest.mark.parametrize("number", [0.0, -0.0, -3.0, 1e-200, 1e200, np.inf, -np.inf, np.nan])
def test_a_root_is_compared_with_other_numbers_as_it_is(number: float) -> None:
    """A negative number is the root of nothing."""
    graph = build_region([Tensor(F64, (3,))], lambda x: [compare_root(x, "gt", number)])
    assert "sqrt" in {eqn.op.name for eqn in simplify(graph).eqns}


def compare_root(x: Value, name: str, number: float) -> Value:
    root = OPS["sqrt"].one(x * x)
    return OPS[name].one(root, x.home.const(number, root.type))
