"""A rule of the program's own is audited like any other: its derivative, and the value that it gives."""

from __future__ import annotations

import pytest

import difflang
from difflang.gradcheck.report import GradcheckReport

BODY = "float f64\nfn cube(x: f64) -> f64 = x * x * x\n"
AROUND = ["cube(x)", "sin(cube(x))", "sum([for i in 0..3 => cube(x + f64(i))])", "if x > 0 { cube(x) } else { x }"]


def audited(source: str, x: float = 0.7) -> GradcheckReport:
    """The audit of `f`, interpreted; what is wrong is in the report."""
    try:
        return difflang.loads(source, name="rules").f.check_grad(x, compiled=False)
    except difflang.GradientMismatch as error:
        assert isinstance(error.report, GradcheckReport)
        return error.report


def module(rule: str, f: str = "sin(cube(x))") -> str:
    return f"{BODY}@unchecked rule cube(x) {{ {rule} }}\nfn f(x: f64) -> f64 = {f}\n"


@pytest.mark.parametrize("f", AROUND)
@pytest.mark.parametrize("value", ["cube(x)", "x ^ 3", "exp(3 * log(x))"])
def test_a_right_rule_passes(value: str, f: str) -> None:
    """However it has the value, if it has it to rounding."""
    assert audited(module(f"({value}, linear |dx| 3 * x^2 * dx)", f)).right


@pytest.mark.parametrize("f", AROUND)
@pytest.mark.parametrize(
    ("rule", "what", "relative"),
    [
        ("(cube(x) + 1, linear |dx| 3 * x^2 * dx)", "its value", None),
        ("(cube(x) * (1 + 1e-9), linear |dx| 3 * x^2 * dx)", "its value", 1e-9),
        ("(cube(x), linear |dx| 3.003 * x^2 * dx)", "its derivative", 1e-3),
    ],
)
def test_a_wrong_rule_is_at_fault_at_its_line(rule: str, what: str, relative: float | None, f: str) -> None:
    report = audited(module(rule, f))
    assert report.fault is not None and report.fault.component == what
    assert relative is None or report.fault.difference.relative == pytest.approx(relative, rel=1e-3)
    (diagnostic,) = report.diagnostics()
    assert diagnostic.code == "DL0406" and "goes wrong at the rule of `cube`" in diagnostic.message
    declared, called = diagnostic.labels
    assert (declared.span.position[0], called.span.position[0]) == (3, 4)
    assert "difflang's" not in diagnostic.helps[0]


def test_a_function_with_a_wrong_rule_by_itself() -> None:
    source = BODY.replace("cube", "f") + "@unchecked rule f(x) { (f(x) + 1, linear |dx| 3 * x^2 * dx) }\n"
    report = audited(source)
    assert report.fault is not None and report.fault.component == "its value"


def test_an_integer_beside_it_is_compared_too() -> None:
    source = """
fn parts(x: f64) -> (f64, i32) = (x * x, i32(x) + 3)
@unchecked rule parts(x) { ((x * x, i32(x) + 4), linear |dx| (2.0 * x * dx, ())) }
fn f(x: f64) -> f64 {
  let (y, n) = parts(x)
  y * f64(n)
}
"""
    report = audited(source)
    assert report.fault is not None and report.fault.component == "its value"


def test_what_is_no_solver_is_found_at_its_rule() -> None:
    """`by linear_solve` of a function that leaves a part out."""
    source = """float f64
fn s(A: f64[2] -o f64[2], b: f64[2]) -> f64[2] = b + [A(b)[1], 0]
@unchecked rule s(A, b) by linear_solve A
let m: f64[2, 2] = [[2, 1], [0, 3]]
fn f(x: f64) -> f64 = sum(s(linear |v| m @ v, [x, 2]))
"""
    (diagnostic,) = audited(source).diagnostics()
    assert diagnostic.message == "the derivative of `f` goes wrong at the rule of `s`"
    assert diagnostic.labels[0].span.position[0] == 3


def test_a_value_whose_last_bit_decides_is_no_fault() -> None:
    """49 / 49 is 1, and 49 * (1 / 49) is a little less."""
    source = """float f64
fn part(x: f64) -> f64 = x / 49
@unchecked rule part(x) { (x * (1 / 49.0), linear |dx| dx / 49) }
fn f(x: f64) -> f64 = if part(x) >= 1.0 { x * x } else { x }
"""
    with pytest.warns(difflang.DifflangWarning, match="changes its result"):
        report = audited(source, 49.0)
    assert report.right and [k.eqn.op.name for k in report.kinks] == ["ge"]
    assert audited(source, 50.0).right and not audited(source, 50.0).kinks
