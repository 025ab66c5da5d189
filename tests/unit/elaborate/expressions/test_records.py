"""Records: fields without a tangent, `with`, updates of parts of parts, in straight code and in loops."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import pytest

from support.language import answer, codes, ran
from support.values import compare

SOURCE = """
record In { a: f64[3], k: i32, name: str }
record Out { inn: In, b: f64, xs: f64[2, 2] }
fn made(b: f64) -> Out = Out(In([1.0, 2.0, 3.0], 2, "n"), b, [[1.0, 2.0], [3.0, 4.0]])
"""

ROWS = [
    ("a_part_of_a_part", "fn f(o: Out, t: f64) -> f64 {\n var r = o\n r.inn.a[1] += t\n r.inn.a = 2.0 * r.inn.a\n sum(r.inn.a) + sum(o.inn.a)\n}",
     "(f(made(1.0), 2.0), grad[t](f)(made(1.0), 2.0))", (16 + 6, 2)),
    ("rows_and_elements", "fn f(o: Out, t: f64) -> f64 {\n var r = o\n r.xs[0, 1] *= t\n r.xs[1] += [t, 1.0]\n r.xs[0, 0] max= t\n sum(r.xs)\n}",
     "(f(made(1.0), 2.0), grad[t](f)(made(1.0), 2.0))", (2 + 4 + 5 + 5, 1 + 2 + 1)),
    ("with_within_with", "fn f(o: Out, t: f64) -> f64 {\n let q = o with (b = 3.0 * t * o.b)\n"
     " let z = q with (inn = q.inn with (k = 9), b = q.b + 1.0)\n z.b + f64(z.inn.k) + f64(q.inn.k)\n}",
     "(f(made(2.0), 4.0), grad[t](f)(made(2.0), 4.0), grad[o.b](f)(made(2.0), 4.0))", (25 + 9 + 2, 6, 12)),
    ("in_a_loop", "fn f(b: f64, n: i32) -> f64 {\n var r = made(b)\n for i in 0..n {\n  r.inn.a[i % 3] += r.b\n  r.b *= 2.0\n"
     "  (r.b, r.xs[0, 0]) = (r.xs[0, 0], r.b)\n  r.inn.k = i\n }\n r.inn.a[0] + 10.0 * r.inn.a[1] + 100.0 * r.inn.a[2] + 1000.0 * f64(r.inn.k)\n}",
     "(f(1.0, 4), grad(f)(1.0, 4))", (4 + 30 + 500 + 3000, 1 + 200)),
    ("in_a_while", "fn f(b: f64) -> f64 {\n var r = made(b)\n while r.inn.k < 5 {\n  r.inn.k += 1\n  r.inn.a[r.inn.k % 3] *= r.b\n }\n sum(r.inn.a)\n}",
     "(f(2.0), grad(f)(2.0))", (2 + 4 + 6, 1 + 2 + 3)),
    ("in_a_branch", "fn f(o: Out, c: bool) -> f64 {\n var r = o\n if c { r.inn.a[0] = r.b } else { r.b = 7.0 }\n r.inn.a[0] * r.b\n}",
     "[f(made(3.0), true), f(made(3.0), false), grad(f)(made(3.0), true).b, grad(f)(made(3.0), false).b]", [9, 7, 6, 0]),
    ("only_written_into", "fn f(x: f64[n]) -> f64 {\n var r = made(1.0)\n for i in 0..n { r.inn.a[i % 3] += x[i] }\n sum(r.inn.a^2)\n}",
     "grad(f)([1.0, 2.0, 3.0, 4.0])", [12, 8, 12, 12]),
    ("a_text_changes", "fn f(o: Out, x: f64) -> f64 {\n var r = o\n r.inn.name = \"other\"\n r.b = x\n"
     " let s = r with (inn = In(r.inn.a, 1, \"third\"))\n if s.inn.name == \"third\" and r.inn.name == \"other\" { r.b } else { 0.0 }\n}",
     "grad[x](f)(made(1.0), 3.0)", 1),
    ("a_change_leaves_what_has_no_tangent", "fn f(o: Out) -> f64 = sum(o.inn.a * o.inn.a) * o.b\n"
     "fn g(b: f64) -> f64 {\n let o = made(b)\n let p = o + -0.5 * grad(f)(o)\n if p.inn.name == \"n\" { p.b + f64(p.inn.k) } else { 0.0 }\n}",
     "(g(1.0), sum(grad(f)(made(1.0)).inn.a))", (1 - 7 + 2, 12)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declarations", "expression", "value"), ROWS, ids=[r[0] for r in ROWS])
def test_value(name: str, declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, SOURCE + declarations), value)


def test_top_level_updates_of_parts() -> None:
    _, lines = ran(
        f"float f64\n{SOURCE}let o = made(1.0)\nvar p = o\np.inn.a[0] = 10.0\np.inn.k = 77\np.b -= 1.0\n"
        "print(p.inn, p.b, o.inn.a)\nprint(grad(|r| sum(r.inn.a))(p).inn)\n"
    )
    assert lines == ['In(a = [10.0, 2.0, 3.0], k = 77, name = "n") 0.0 [1.0, 2.0, 3.0]', "D(In)(a = [1.0, 1.0, 1.0])"]


def test_a_text_of_a_top_level_variable_changes() -> None:
    _, lines = ran(f"float f64\n{SOURCE}" + 'var p = made(1.0)\np.inn.name = "b"\nprint(p.inn.name)\n')
    assert lines == ["b"]


WRONG = [
    ("fn f(o: Out, c: bool) -> Out {\n var r = o\n if c { r.inn.name = \"a\" } else { r.inn.name = \"b{c}\" }\n r\n}\nprint(f(made(1.0), true))", "DL0327"),
    ("fn f(o: Out, n: i32) -> Out {\n var r = made(1.0)\n for i in 0..n { r.inn.name = \"a{i}\" }\n r\n}\nprint(f(made(1.0), 1))", "DL0327"),
    ("fn f(o: Out) -> Out = o with (b = 1)\nfn g(o: Out) -> Out = o with (b = true)", "DL0304"),
    ("fn f(o: Out) -> Out {\n var r = o\n r.inn.k = 1.5\n r\n}", "DL0304"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), WRONG)
def test_mistakes_are_reported(source: str, code: str) -> None:
    assert codes(f"float f64\n{SOURCE}{source}\n")[0][0] == code
