"""Taylor coefficients: of every function of one number against mpmath, of programs against nested `jvp`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import difflang
from derivative_programs import Program, programs
from derivatives import called, choose, composed, literal, mapped, op, scan
from difflang.ad.expand_derivatives import differentiate
from difflang.base.diagnostics import DifflangError
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from difflang.ir.verify import verify
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.ops.op_factories import OpExample, UniformSamples
from difflang.runtime.compile import compile_graph
from support.known import UNARY
from support.language import checked

FLOAT = Tensor(F64)
PROGRAMS = [p for p in programs() if not p.name.endswith("-50")]
Body = Callable[[Value], list[Value]]


def jet(f: Graph, order: int) -> Graph:
    """params ++ directions -> results, then their coefficients order by order."""
    wrt = (True,) * len(f.params)
    types = [p.type for p in f.params]
    graph = build_region([*types, *types], lambda *xs: OPS["jet"](*xs, regions=(f,), wrt=wrt, order=order))
    found = differentiate(graph)
    verify(found)
    return found


def inside(name: str) -> float:
    """A point where the function is smooth."""
    samples = OPS[name.split()[0]].samples
    drawn = samples if isinstance(samples, UniformSamples) else samples[0].draw
    return drawn.low + 0.7 * (drawn.high - drawn.low)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.nightly_cases("polygamma [123]|l?gamma|digamma")
def test_every_function_of_one_number(name: str) -> None:
    """Of the function itself, and of it after another, to order 5, on both engines."""
    known, x, order = UNARY[name], inside(name), 5

    def body(v: Value) -> list[Value]:
        return [OPS[name.split()[0]].one(u, **known.attrs) for u in (v, v + 0.125 * v * v - 0.125 * x * x)]

    graph = finalize_graph(jet(build_region([FLOAT], body), order))
    with mp.workdps(60):
        inner = (lambda t: t, lambda t: t + (t * t - mp.mpf(x) ** 2) / 8)
        want = [[float(c) for c in mp.taylor(lambda t, g=g: known.value(g(t)), x, order)] for g in inner]
    for got in (evaluate(graph, np.array(x), np.array(1.0)), compile_graph(graph)(x, 1.0)):
        np.testing.assert_allclose(np.reshape(got, (order + 1, 2)).T, want, rtol=2e-13, atol=1e-15)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_programs_along_a_line(program: Program) -> None:
    """Loops, branches, maps, calls: the coefficients of order 1 and 2 are what nested `jvp` gives."""
    xs = [np.asarray(x, float) for x in program.arguments]
    rng = np.random.default_rng(3)
    vs = [rng.normal(size=x.shape) for x in xs]
    f = program.graph
    n, zeros = len(f.results), [np.zeros_like(x) for x in xs]
    got = evaluate(jet(f, 2), *xs, *vs)
    assert len(got) == 3 * n
    twice = evaluate(composed("JJ", f), *xs, *vs, *vs, *zeros)
    first, second = twice[n : 2 * n], twice[3 * n :]
    for c, want in zip(got[n : 2 * n], first, strict=True):
        np.testing.assert_allclose(c, want, rtol=1e-10, atol=1e-12 * np.max(np.abs(want), initial=1.0))
    for c, want in zip(got[2 * n :], second, strict=True):
        np.testing.assert_allclose(c, np.asarray(want) / 2, rtol=1e-8, atol=1e-10 * np.max(np.abs(want), initial=1.0))


# ------------------------------------------------------------------------------------------------ cost


def equations(graph: Graph) -> int:
    return sum(1 + sum(map(equations, e.regions)) for e in graph.eqns)


def looped(x: Value) -> list[Value]:
    return scan(9, lambda _, c, y: [op("sin", y) * y + c], [x], [x])


def branched(x: Value) -> list[Value]:
    return choose(op("lt", x, literal(x, 1.0)), lambda v: [op("exp", op("cos", v))], lambda v: [v], x * x)


COSTS: dict[str, Body] = {
    "elementary": lambda x: [op("exp", op("sin", x * x)) / (op("tanh", x) * op("sqrt", x * x + 1.0))],
    "powers": lambda x: [op("pow", op("sin", x) + 2.0, literal(x, 1.5)) * OPS["integer_pow"].one(op("exp", x), n=-3)],
    "a power of both": lambda x: [op("pow", op("sin", x) + 2.0, op("cos", x) * x)],
    "the same of lines": lambda x: [op("pow", x, x + 1.0)],
    "gamma": lambda x: [op("lgamma", op("exp", op("lgamma", x * x + 1.0)))],
    "inverse": lambda x: [op("atan", op("log", x * x + 2.0)) * op("erf", op("asinh", x))],
    "a loop": looped,
    "a branch": branched,
    "a map": lambda x: mapped(3, lambda c, i: [op("sin", c * i)], [x], [op("broadcast", x, shape=(3,), axes=())]),
    "a call": lambda x: called(build_region([FLOAT], lambda v: [op("exp", v * v)]), op("sin", x)),
}


def quadratic(body: Body) -> None:
    """Twice the order costs four times as much; a cubic rule would cost eight times as much."""
    counts = [equations(finalize_graph(jet(build_region([FLOAT], body), k))) for k in (4, 8, 16)]
    if any(b > 4.2 * a for a, b in pairwise(counts)):
        # Rules that lead to one another, as those of `hypot`, save linear terms, which weigh less at higher orders.
        counts.append(equations(finalize_graph(jet(build_region([FLOAT], body), 32))))
        assert counts[3] <= 4.5 * counts[2], counts


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_is_quadratic_in_the_order(name: str) -> None:
    quadratic(COSTS[name])


@pytest.mark.parametrize("name", UNARY)
def test_the_cost_of_every_function_is_quadratic_in_the_order(name: str) -> None:
    """Of the function itself, of it after a polynomial and after one whose coefficients do not end."""
    function = lambda v: OPS[name.split()[0]].one(v, **UNARY[name].attrs)
    for inner in (lambda x: x, lambda x: 0.5 * x * x + 0.25, lambda x: op("sin", x) + 1.0):
        quadratic(lambda x, inner=inner: [function(inner(x))])


BINARY = {name: op.samples[0].attrs if isinstance(op.samples[0], OpExample) else {}
          for name, op in OPS.items() if op.elementwise and len(op.operand_rules.of_operands) == 2}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_the_cost_is_quadratic_where_both_operands_vary(name: str) -> None:
    function = lambda x, y: OPS[name].one(x, y, **BINARY[name])
    quadratic(lambda x: [function(op("sin", x) + 2.0, op("cos", x) * x + 0.5)])


POWERED: dict[str, tuple[Body, Callable[[Any], Any]]] = {
    "a power that ends": (
        lambda x: [OPS["integer_pow"].one(x * x - 1.0, n=3)],
        lambda t: (t * t - 1) ** 3,
    ),
    "a power": (
        lambda x: [op("pow", op("sin", x) + 2.0, literal(x, 2.5))],
        lambda t: (mp.sin(t) + 2) ** mp.mpf("2.5"),
    ),
    "a power in the exponent": (
        lambda x: [op("pow", literal(x, 2.5), op("sin", x) + 2.0)],
        lambda t: mp.mpf("2.5") ** (mp.sin(t) + 2),
    ),
    "a power of both": (
        lambda x: [op("pow", op("sin", x) + 2.0, op("cos", x) - x)],
        lambda t: (mp.sin(t) + 2) ** (mp.cos(t) - t),
    ),
    "a lesser power of both": (
        lambda x: [OPS["power_less"].one(op("sin", x) + 2.0, op("cos", x) - x, n=2)],
        lambda t: (mp.sin(t) + 2) ** (mp.cos(t) - t - 2),
    ),
    "a reciprocal": (
        lambda x: [OPS["integer_pow"].one(op("exp", x) + op("sin", x), n=-2)],
        lambda t: (mp.exp(t) + mp.sin(t)) ** -2,
    ),
    "lgamma of lgamma": (
        lambda x: [op("lgamma", op("exp", op("lgamma", x * x + 1.0)))],
        lambda t: mp.loggamma(mp.gamma(t * t + 1)),
    ),
    "an even operand": (
        lambda x: [op("lgamma", op("cos", x - 1.0) + 1.0)],
        lambda t: mp.loggamma(mp.cos(t - 1) + 1),
    ),
}


@pytest.mark.parametrize("name", POWERED)
@pytest.mark.nightly_cases("lgamma of lgamma", "an even operand")
def test_series_by_powers(name: str) -> None:
    body, exactly = POWERED[name]
    graph = finalize_graph(jet(build_region([FLOAT], body), 9))
    compiled = compile_graph(graph)
    for at in (1.0, 1.3):
        with mp.workdps(60):
            want = np.array([float(c) for c in mp.taylor(exactly, at, 9)])
        for got in (evaluate(graph, np.array(at), np.array(1.0)), compiled(at, 1.0)):
            np.testing.assert_allclose(np.ravel(got), want, rtol=1e-12, atol=1e-13 * np.abs(want).max())


def test_what_vanishes_meets_no_infinity() -> None:
    """The third derivative of x^2.5 at 0 is infinite, and not asked for."""
    loaded = difflang.loads("fn f(x: f64) -> f64 = stop(x) ^ 1.5 + x ^ 2.5")
    assert loaded.f.jet(2)(0.0).tolist() == [0.0, 0.0, 0.0]


# ------------------------------------------------------------------------------------------------ in the language

SOURCE = """
record Pair { a: f64, b: f64[2] }

fn step(p: Pair, t: f64) -> Pair = Pair(a = p.a * t + p.b[0], b = [p.b[1], sin(t)])
fn program(t: f64) -> f64 {
  var p = Pair(a = 1.0, b = [t, t * t])
  for i in 0..3 { p = step(p, t) }
  var y = p.a
  while y > 0.5 { y = y / 2.0 }
  if y > 0.1 { exp(y) } else { y }
}
fn series(t: f64) -> f64[5] = jet(program, order = 4)(t)
fn arrays(t: f64) -> (f64[3, 2], f64[3]) = jet(|s| ([s^2, exp(s)], s^3), order = 2)(t)
fn gradient_of_jet(t: f64) -> f64 = grad(|s| sum(jet(sin, order = 3)(s)))(t)
fn jet_of_gradient(t: f64) -> f64[4] = jet(|s| grad(|y| sin(y) * y)(s), order = 3)(t)
fn value(t: f64) -> f64[1] = jet(program, order = 0)(t)
fn constant(t: f64) -> f64[3] = jet(|s| 2.0 * stop(s), order = 2)(t)
fn at_zero(t: f64) -> f64[4] = jet(|s| s^3, order = 3)(t)
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return difflang.loads(SOURCE)


def exactly(t: Any) -> Any:
    a, b = mp.mpf(1), [t, t * t]
    for _ in range(3):
        a, b = a * t + b[0], [b[1], mp.sin(t)]
    halvings = 0
    with mp.workdps(15):
        y = a
        while y > 0.5:
            y, halvings = y / 2, halvings + 1
    y = a / 2**halvings
    return mp.exp(y) if y > 0.1 else y


def test_a_program_with_records_loops_and_branches(module: Any) -> None:
    with mp.workdps(40):
        want = [float(c) for c in mp.taylor(exactly, 0.7, 4)]
    np.testing.assert_allclose(module.series(0.7), want, rtol=1e-13)
    assert module.value(0.7).tolist() == [want[0]]


def test_arrays_and_tuples(module: Any) -> None:
    first, second = module.arrays(1.0)
    e = np.e
    np.testing.assert_allclose(first, [[1, e], [2, e], [1, e / 2]], rtol=1e-15)
    assert second.tolist() == [1.0, 3.0, 3.0]
    assert module.constant(3.0).tolist() == [6.0, 0.0, 0.0]
    assert module.at_zero(0.0).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_derivatives_of_jets_and_jets_of_derivatives(module: Any) -> None:
    s, c = np.sin(0.3), np.cos(0.3)
    assert module.gradient_of_jet(0.3) == pytest.approx(c - s - c / 2 + s / 6, rel=1e-14)
    rows = [s + 0.3 * c, 2 * c - 0.3 * s, (-3 * s - 0.3 * c) / 2, (-4 * c + 0.3 * s) / 6]
    np.testing.assert_allclose(module.jet_of_gradient(0.3), rows, rtol=1e-14)


def test_high_orders_and_python(module: Any) -> None:
    """Nothing recurses in the order beyond what Python allows, whatever the rules do."""
    deep = jet(build_region([FLOAT], lambda x: [op("lgamma", x)]), 64)
    got = evaluate(deep, np.array(2.0), np.array(1.0))
    with mp.workdps(40):
        want = [(-1) ** n * float(mp.zeta(n) - 1) / n for n in range(2, 40)]
    np.testing.assert_allclose(got[2:40], want, rtol=1e-12)
    loaded = difflang.loads("fn f(x: f64, y: f64) -> f64 = y * exp(x)")
    np.testing.assert_allclose(loaded.f.jet(2)(0.0, 3.0), [3.0, 3.0, 1.5], rtol=1e-15)
    assert loaded.f.jet(1, "y")(0.0, 3.0).tolist() == [3.0, 1.0]


def test_of_records_and_tuples() -> None:
    """One series for each array that has a tangent, in its place; the number may be a field too."""
    text = """float f64
record Point { x: f64, y: f64[2], tag: i32 }
fn point(t: f64, i: i32, v: f64[2]) -> Point = Point(x = t^2 * v[i], y = [t, exp(t)], tag = i)
fn both(t: f64) -> (f64, (Point, f64)) = (t, (point(t, 1, [1.0, 2.0]), 1.0 / t))
fn moved(p: Point) -> f64 = p.x^3
fn series(t: f64) = jet(both, order = 2)(t)
fn in_field(t: f64) -> f64[3] = jet[p.x](moved, order = 2)(Point(x = t, y = [t, t], tag = 3))
"""
    module: Any = difflang.loads(text, name="records")
    for run in (module.series, module.series.interpret):
        first, (found, last) = run(1.0)
        np.testing.assert_allclose(first, [1.0, 1.0, 0.0], rtol=1e-15)
        np.testing.assert_allclose(found.x, [2.0, 4.0, 2.0], rtol=1e-15)
        np.testing.assert_allclose(found.y, [[1.0, np.e], [1.0, np.e], [0.0, np.e / 2]], rtol=1e-15)
        np.testing.assert_allclose(last, [1.0, -1.0, 1.0], rtol=1e-15)
        assert not hasattr(found, "tag")
    np.testing.assert_allclose(module.in_field(2.0), [8.0, 12.0, 6.0], rtol=1e-15)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("jet(sin)(x)", "DL0319"),
        ("jet(sin, order = 65)(x)", "DL0405"),
        ("jet(|v| sum(v), order = 2)([x, x])", "DL0405"),
        ("jet(|t| i32(t), order = 2)(x)", "DL0402"),
    ],
)
def test_what_has_no_series_is_an_error(expression: str, code: str) -> None:
    source = f"fn f(x: f64) -> f64 {{\n  let y = {expression}\n  x\n}}\n"
    with pytest.raises(DifflangError) as caught:
        checked(source)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_a_function_with_a_rule_is_refused_by_its_name() -> None:
    """Its rule calls it, and that call has the rule again."""
    program = difflang.loads("""
fn own(x: f64) -> f64 = x * x
rule own(x) {
  let y = own(x)
  (y, linear |dx| 2.0 * x * dx)
}
fn f(t: f64) -> f64[3] = jet(|t| own(t) + t, order = 2)(t)
fn g(t: f64) -> f64[3] = jet(|s| own(t) * s, order = 2)(t)
""")
    with pytest.raises(DifflangError, match="no series rule for `own`"):
        program.f.interpret(1.0)
    np.testing.assert_array_equal(program.g.interpret(3.0), [27.0, 9.0, 0.0])


PRIMES = r"""float f64
fn f(x: f64) -> f64 = sin(x * x) * exp(x)
fn own(x: f64) -> f64 = x * x
rule own(x) { (own(x), linear |dx| 2.0 * x * dx) }
fn pair(x: f64) -> f64[2] = [f(x), 1.0 / x]
"""


@pytest.mark.parametrize("order", [3, 4, 7, 16, 30])
def test_many_primes_are_one_series(order: int) -> None:
    """Their cost grows with the square of their number: nested, 16 took 150 s."""
    primes = "'" * order
    module: Any = difflang.loads(
        f"{PRIMES}fn g(x: f64) -> f64[2] = pair{primes}(x)\nfn h(z: c128) -> c128 = exp{primes}(2.0 * z)\n"
    )
    with mp.workdps(60):
        want = [
            float(mp.diff(lambda x: mp.sin(x * x) * mp.exp(x), 0.5, order)),
            float((-1) ** order * mp.factorial(order) * 2 ** (order + 1)),
        ]
    np.testing.assert_allclose(module.g.interpret(0.5), want, rtol=1e-13)
    np.testing.assert_allclose(module.h.interpret(0.5j), np.exp(1j), rtol=1e-14)
    assert len(differentiate(module.g._elaborate(("f64",), {}).graph).eqns) < 40 * (order + 1) ** 2


def test_many_primes_of_a_function_with_a_rule() -> None:
    """It has no series: its tangents are nested. The derivative of many primes is a derivative like any other."""
    module: Any = difflang.loads(f"""{PRIMES}
fn g(x: f64) -> f64 = (|x| own(x)^2 * x)''''(x)
fn h(x: f64, k: f64) -> f64 = (|x| own(x * k) + x^4 * k)'''''(x)
fn s(x: f64) -> f64 = grad((|x| x^6)'''')(x)
""")
    found = [module.g.interpret(3.0), module.h.interpret(3.0, 2.0), module.s.interpret(3.0)]
    np.testing.assert_allclose(found, [360.0, 0.0, 2160.0], rtol=1e-14)


def test_primes_have_a_highest_order() -> None:
    with pytest.raises(DifflangError, match="a derivative of order 65") as caught:
        checked(f"{PRIMES}fn g(x: f64) -> f64 = f{65 * chr(39)}(x)\n")
    assert [d.code for d in caught.value.diagnostics] == ["DL0405"]
