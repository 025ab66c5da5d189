"""What an audit says: right where all agree, the operation at fault and its line where not, kinks by their name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from msgspec.structs import force_setattr, replace

import difflang
from difflang.ad.cotangent_accumulator import CotangentAccumulator
from difflang.gradcheck.engine_comparison import CheckPipeline
from difflang.gradcheck.gradient_check import check_gradient
from difflang.gradcheck.report import GradcheckReport
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS, Inactive, OperandRules
from difflang.ir.tensor_types import F64, Tensor
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.passes.dce import dce
from difflang.runtime.compile import compile_graph
from support.broken import breakages

FLOAT = Tensor(F64)
MODES = ("value", "forward mode", "reverse mode")


def audited(source: str, *args: Any, **options: Any) -> GradcheckReport:
    """The audit of `f`, interpreted; what is wrong is in the report."""
    options = {"compiled": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", difflang.DifflangWarning)
        try:
            return difflang.loads(source).f.check_grad(*args, **options)
        except difflang.GradientMismatch as error:
            assert isinstance(error.report, GradcheckReport)
            return error.report


@contextmanager
def broken(op: str, fact: str = "jvp") -> Iterator[None]:
    with next(b for b in breakages(OPS[op]) if b.fact == fact).done():
        yield


def line_of(report: GradcheckReport) -> int:
    assert report.fault is not None and report.fault.span is not None
    return report.fault.span.position[0]


# ---- right


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
@pytest.mark.parametrize("order", [1, 2])
def test_a_right_derivative_passes_in_every_float_type(dtype: str, order: int) -> None:
    x = np.linspace(0.1, 1.1, 5).astype(np.float32)
    args = [x.astype(np.float64) if dtype == "f64" else x]
    if dtype in ("bf16", "f16"):
        source = f"fn f(x: f32[n]) -> f32 = f32(sum(tanh({dtype}(x)) * {dtype}(x)))"
    else:
        source = f"fn f(x: {dtype}[n]) -> {dtype} = sum(tanh(x) * x) / sqrt(sum(x * x))"
    report = audited(source, *args, order=order)
    assert report.right and not report.kinks, str(report)


def test_the_report_says_what_was_compared() -> None:
    report = audited("fn f(x: f64[n]) -> f64 = sum(x ^ 3)", np.ones(4), directions=2, compiled=True)
    rows = {(r["compared"], r["with"]): r for r in report.table()}
    assert set(rows) == {
        ("forward mode, exact", "differences"),
        ("reverse mode, exact", "forward mode"),
        ("value, beside the derivative", "by itself"),
        *((f"{mode}, {how}", "exact") for mode in MODES for how in ("interpreted", "compiled")),
    }
    assert rows["forward mode, exact", "differences"]["numbers"] == 2
    assert all(r["largest"] < 1e-14 and r["right"] for r in rows.values())
    assert "right, in 2 directions" in str(report)


def test_programs_that_take_derivatives_have_these_audited_too() -> None:
    source = "fn g(w: f64, x: f64) -> f64 = tanh(w * x)\nfn f(w: f64, x: f64) -> f64 = w - 0.1 * grad(g)(w, x)"
    assert audited(source, 0.3, 0.4).right
    with broken("tanh"):
        report = audited(source, 0.3, 0.4)
    assert report.fault is not None and report.fault.op == "tanh" and line_of(report) == 1


PRECISE = [
    ("norm(x) + sum(hypot(x, 2.0) + atan2(x, 3.0))", "f64"),
    ("sum(gelu(x) + erf(x) + erfc(x) + erfinv(tanh(x)))", "f64"),
    ("sum(sinh(x) + cosh(x) + softplus(x) + lgamma(abs(x)) + digamma(abs(x)))", "f64"),
    ("norm(x) + norm(fft(sin(x))) + abs(sum(sinh(x) * tanh(x) + sqrt(x) ^ x))", "c128"),
]


@pytest.mark.parametrize(("text", "dtype"), PRECISE)
def test_formulas_for_doubles_hold_in_what_is_wider(text: str, dtype: str) -> None:
    """Their references look at bits, of which `longdouble` has others."""
    x = np.array([0.5, -1.2, 0.3]) + (np.array([0.4, 1.5, -0.2]) * 1j if dtype == "c128" else 0)
    report = audited(f"fn f(x: {dtype}[n]) -> f64 = {text}", x, order=2)
    assert report.right and not report.kinks, str(report)


# ---- wrong: where


PLACES = {
    "loop": """fn f(x: f64) -> f64 {
  var s = x
  for i in 0..4 {
    s = sin(s) + tanh(s)
  }
  s
}""",
    "while": """fn f(x: f64) -> f64 {
  var s = x
  while s < 3.0 {
    s = s + 0.1 + tanh(s)
  }
  s
}""",
    "branch": """fn f(x: f64) -> f64 {
  if x > 0.0 {
    let y = exp(x)
    x * tanh(y)
  } else { x }
}""",
    "comprehension": """fn f(x: f64) -> f64 {
  let ys = [for i in 0..3 => {
    let t = x * f64(i)
    if t > 0.5 { tanh(t) } else { t }
  }]
  sum(ys)
}""",
    "call": """fn g(t: f64) -> f64 {
  let u = t * t

  tanh(u)
}
fn f(x: f64) -> f64 = g(g(x)) + g(x)""",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fact", ["jvp", "lower"])
def test_the_operation_is_found_inside_regions(place: str, fact: str) -> None:
    right = OPS["tanh"].lower
    if fact == "jvp":
        with broken("tanh"):
            report = audited(PLACES[place], 0.4)
    else:
        force_setattr(OPS["tanh"], "lower", lambda jax, x: right(jax, x) * 1.01)
        try:
            report = audited(PLACES[place], 0.4, compiled=True)
        finally:
            force_setattr(OPS["tanh"], "lower", right)
    assert report.fault is not None and report.fault.op == "tanh"
    assert line_of(report) == 4


def test_the_first_of_several_is_named() -> None:
    with broken("exp"), broken("sin"):
        report = audited("fn f(x: f64) -> f64 {\n  let a = x * x\n  let b = sin(a)\n  exp(b)\n}", 0.4)
    assert report.fault is not None and report.fault.op == "sin" and line_of(report) == 3


def test_second_order_finds_what_first_order_cannot() -> None:
    source = "fn f(x: f64) -> f64 = tanh(x * 0.5)"
    with broken("sech2"):
        assert audited(source, 0.4).right
        report = audited(source, 0.4, order=2)
    assert report.fault is not None and report.fault.op == "sech2"


def test_the_report_shows_both_numbers_under_the_line() -> None:
    with broken("exp"):
        (found, *_) = audited("fn f(x: f64) -> f64 = exp(x)", 1.0).diagnostics()
    assert found.message == "the derivative of `f` goes wrong at `exp`"
    said = re.fullmatch(
        r"its derivative is wrong: forward mode gives (\S+), differences (\S+), off by 1.0e-02", found.labels[0].text
    )
    assert said and float(said[1]) == pytest.approx(1.01 * float(said[2]), rel=1e-8)


def test_an_error_far_below_the_precision_of_the_program_is_found() -> None:
    """A part in a hundred million is less than an f32 can hold; rules are compared beyond that."""
    derivative = OPS["exp"].operand_rules
    assert derivative.jvp is not None and derivative.jvp[0] is not None
    right: Callable[..., Value] = derivative.jvp[0]
    wrong = replace(derivative, jvp=(lambda d, y, x: right(d, y, x) * (1 + 1e-8),))
    force_setattr(OPS["exp"], "derivative", wrong)
    try:
        report = audited("fn f(x: f32) -> f32 = exp(x)", 0.3)
    finally:
        force_setattr(OPS["exp"], "derivative", derivative)
    assert report.fault is not None and report.fault.op == "exp"


def test_an_op_that_wrongly_claims_to_have_no_derivative_is_found() -> None:
    silent = replace(OPS["exp"], derivative=Inactive())
    graph = build_region([FLOAT], lambda x: [silent.one(x) * x])
    report = check_gradient(graph, [np.asarray(0.3)], (True,))
    assert report.fault is not None and report.fault.op == "exp"
    assert report.fault.component == "that it has no derivative"


# ---- wrong: what no equation answers for


def test_a_fault_of_the_transposition_itself_is_cut_down_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cotangents that arrive second are lost: every equation is right, a value used twice is not."""
    right = CotangentAccumulator.add

    def wrong(found: CotangentAccumulator, value: Any, ct: Any) -> None:
        if value not in found.whole:
            right(found, value, ct)

    monkeypatch.setattr(CotangentAccumulator, "add", wrong)
    report = audited("fn f(x: f64) -> f64 {\n  let a = sin(x)\n  let b = exp(a)\n  let c = a * b\n  cos(c)\n}", 0.4)
    assert report.fault is not None and report.fault.component == "the derivative up to here"
    assert line_of(report) == 4


def test_a_fault_of_the_optimizer_is_told_apart() -> None:
    def wrong(graph: Graph) -> Graph:
        done = finalize_graph(graph)
        return dce(done.with_results([*done.results[:-1], done.results[0]]))

    graph = build_region([FLOAT], lambda x: [OPS["sin"].one(x)])
    report = check_gradient(graph, [np.asarray(0.4)], (True,), pipeline=CheckPipeline(finished=wrong))
    assert report.fault is not None and report.fault.component == "the optimized program"


def test_a_back_end_that_gives_other_numbers_is_noticed() -> None:
    def wrong(graph: Graph) -> Any:
        program = compile_graph(graph)
        return lambda *arrays: [np.asarray(y) * (1 + 1e-4) for y in program(*arrays)]

    graph = build_region([FLOAT], lambda x: [OPS["sin"].one(x)])
    report = check_gradient(graph, [np.asarray(0.4)], (True,), pipeline=CheckPipeline(compile=wrong))
    assert report.fault is not None and report.fault.op == "sin" and report.fault.component == "its lowering"


# ---- kinks


KINKS = [
    ("relu(x)", 0.0, "relu"),
    ("relu(x) - relu(-x)", 0.0, "relu"),
    ("abs(x)", 0.0, "abs"),
    ("max(x, 0.0)", 0.0, "max"),
    ("clamp(x, 0.0, 1.0)", 1.0, "clamp"),
    ("sqrt(x)", 0.0, "sqrt"),
    ("sqrt(x * x)", 0.0, "sqrt"),
    ("floor(x) * x", 3.0, "floor"),
    ("x % 1.0", 2.0, "rem"),
    ("if x == 3.0 { 9.0 } else { x * x }", 3.0, "eq"),
    ("if x > 3.0 { x } else { x * x }", 3.0, "gt"),
    ("max([x, 1.0, 0.0])", 1.0, "reduce_max"),
    ("sum([for i in 0..3 => relu(x - f64(i))])", 1.0, "relu"),
]


@pytest.mark.parametrize(("expression", "x", "op"), KINKS)
def test_a_kink_is_named_and_is_no_fault(expression: str, x: float, op: str) -> None:
    report = audited(f"fn f(x: f64) -> f64 = {expression}", x)
    assert report.right, str(report.fault)
    assert op in [str(k.eqn.op) for k in report.kinks]
    assert all(d.severity == "warning" and d.code == "DL0407" and d.span for d in report.diagnostics())


@pytest.mark.parametrize(("expression", "x", "op"), KINKS)
def test_beside_it_there_is_none(expression: str, x: float, op: str) -> None:
    report = audited(f"fn f(x: f64) -> f64 = {expression}", x + 1e-5)
    assert report.right and not report.kinks, str(report)


def test_a_slope_that_no_convention_gives_is_a_fault_at_a_kink_too() -> None:
    derivative = OPS["abs"].derivative
    force_setattr(OPS["abs"], "derivative", OperandRules(jvp=(lambda d, y, x: d * 1.5,)))
    try:
        report = audited("fn f(x: f64) -> f64 = abs(x)", 0.0)
    finally:
        force_setattr(OPS["abs"], "derivative", derivative)
    assert report.fault is not None and report.fault.op == "abs"


def test_a_loop_that_rounding_ends_is_right_along_the_steps_taken() -> None:
    source = "fn f(a: f32) -> f32 {\n  var x = 1.0\n  while abs(x * x - a) > 1e-6 * a { x = 0.5 * (x + a / x) }\n  x\n}"
    for a in (0.5, 2.0, 3.0, 5.0, 7.0):
        report = audited(source, a)
        assert report.right, str(report)


def test_what_rounding_decides_is_no_fault_of_the_back_end() -> None:
    """XLA rounds another way here, and a floor falls on the other side."""

    def otherwise(graph: Graph) -> Any:
        program = compile_graph(graph)
        if sum(bool(e.operands) for e in graph.eqns) < 2:  # one operation alone is rounded alike
            return program
        return lambda x, *more: program(np.nextafter(x, 0.0), *more)

    graph = build_region([FLOAT], lambda x: [OPS["floor"].one(x * 3.0) * x])
    report = check_gradient(graph, [np.asarray(1.0)], (True,), pipeline=CheckPipeline(compile=otherwise))
    assert report.right and all(row["right"] for row in report.table())
    assert "depends on rounding" in [kink.why for kink in report.kinks]
    assert ("value, compiled", "exact, where rounding decides") in [(r["compared"], r["with"]) for r in report.table()]
    away = check_gradient(graph, [np.asarray(1.1)], (True,), pipeline=CheckPipeline(compile=otherwise))
    assert away.right and not away.kinks


def test_what_is_not_finite_is_said_not_to_be_compared() -> None:
    report = audited("fn f(x: f64[2]) -> f64[2] = log(x)", np.array([1.0, -1.0]))
    assert report.right
    assert "1 of 2 numbers has no finite slope to compare with" in report.notes
