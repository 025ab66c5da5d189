"""Every derivative rule of the library, verified as a program's own rules are; those of solvers through a caller."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

from functools import cache, partial

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram, check_program
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.tools.rule_faults import lazy_leaves, verify_rule
from difflang.tools.verify_rules import rules_to_verify
from support.documents import ROOT

MATRIX = "let m: f64[3, 3] = [[4, 1, 0.5], [1, 5, 1], [0.5, 1, 6]]\n"
# Functions of numbers that call a function that takes functions, or arguments that are never drawn.
CALLERS = {
    "cg": MATRIX + "fn called(b: f64[3], k: f64) -> f64[3] = cg(linear |v| m @ v + k^2 * v, b, 1e-14)",
    "gmres": MATRIX
    + "fn called(b: f64[3], k: f64) -> f64[3] = gmres(linear |v| m @ v + sin(k) * roll(v, 1), b, 1e-14)",
    "bicgstab": MATRIX
    + "fn called(b: f64[3], k: f64) -> f64[3] = bicgstab(linear |v| m @ v + sin(k) * roll(v, 1), b, 1e-14)",
    "between_quantile": "fn called(a: f64, w: f64, u: f64) -> f64 = between_quantile(a, a + exp(w), sigmoid(u))",
    "minimizer": "fn called(c: f64) -> f64 = minimizer(|x: f64| x^2 - sin(c) * x, 1.0, 1e-12)",
    "eliminated": MATRIX + "fn called(b: f64[3], k: f64) -> f64[3] = eliminated(linear |v| m @ v + k^2 * v, b)",
    "leap": "fn called(x: f64[2], v: f64[2]) -> (f64[2], f64[2]) = leap(|q: f64[2]| -sin(q), x, v, 0.1)",
    "bisect": "fn called(c: f64) -> f64 = bisect(|x: f64| x^3 - exp(c), 0, 100)",
    "chandrupatla": "fn called(c: f64) -> f64 = chandrupatla(|x: f64| x^3 - exp(c), 0, 100, 1e-14)",
    "newton": "fn called(c: f64) -> f64 = newton(|x: f64| x^3 - exp(c), 2, 1e-14)",
    "secant": "fn called(c: f64) -> f64 = secant(|x: f64| x^3 - exp(c), 1, 2, 1e-14)",
    "newton_system": "fn called(c: f64) -> f64[2] = newton_system(|x: f64[2]| [x[0]^3 - exp(c), x[1] + x[0]], [1, 1], 1e-14)",
    "fixed_point": "fn called(c: f64) -> f64 = fixed_point(|x: f64| cos(x) / 2 + c, 0, 1e-14)",
    "rk4_adjoint": "fn called(y: f64, k: f64) -> f64 = rk4_adjoint(|t: f64, y: f64| -sin(k) * y, y, 0, 1, 60)",
    "dopri5_adjoint": "fn called(y: f64, k: f64) -> f64 = dopri5_adjoint(|t: f64, y: f64| -sin(k) * y, y, 0, 1)",
}
FILES = sorted((ROOT / "stdlib").glob("*.dfl"))


NIGHTLY = {
    "logm", "sqrtm", "gmres", "rk4_adjoint", "dopri5_adjoint", "scaled", "bessel_i", "student_quantile", "expi", "sine_integral", "cosine_integral", "sine_quotient",
    "fresnel_part", "spence", "spence_slope", "owens_t", "entr", "rel_entr", "xlog1py", "log_ratio", "gap", "boxcox", "boxcox_slope", "mean_power", "soft_weights", "soft_slope", "kl_div", "comb", "root_of_gamma_quotient", "share_of_wave", "sine_less", "times_square", "sine_ratio",
}  # fmt: skip
# Each has a comment that says why the function by itself does not determine the derivative.
UNCHECKED = {
    "mixing", "known_zero", "angle_quantile", "infinite", "unmoved", "jumping", "kummer", "kummer_in_a", "kummer_in_b", "turned_ratio",
    "log_far", "gauss", "gauss_in_a", "gauss_in_c",
}  # fmt: skip


def rules_of(name: str) -> list[tree.Rule]:
    items = parse(Source(name, (ROOT / "stdlib" / name).read_text(encoding="utf-8"))).module.items
    return [item for item in items if isinstance(item, tree.Rule)]


RULES = [(p.name, rule) for p in FILES for rule in rules_of(p.name)]
CASES = [
    pytest.param(file, r.name, marks=[pytest.mark.nightly] if r.name in NIGHTLY else [])
    for file, r in RULES
    if not r.unchecked
]


@cache
def program(file: str, caller: str) -> CheckedProgram:
    path = ROOT / "stdlib" / file
    source = f"{path.read_text(encoding='utf-8')}\n{caller}\n"
    checked = check_program(Source(file, source), "f64", path)
    assert not checked.errors, checked.errors
    return checked


@pytest.mark.parametrize(("file", "rule"), CASES)
def test_a_rule_of_the_library_is_the_derivative_of_its_function(file: str, rule: str) -> None:
    path = ROOT / "stdlib" / file
    checked = program(file, CALLERS.get(rule, ""))
    (found,) = [r for r in rules_to_verify(checked) if r.name == rule]
    assert verify_rule(found, checked, [checked], partial(lazy_leaves, {checked: path})) == ()


def test_only_these_rules_of_the_library_are_not_compared() -> None:
    assert {rule.name for _, rule in RULES if rule.unchecked} == UNCHECKED
