"""Numbers of the host are sizes, and what host code makes of them; in a lambda as well, also one passed to a function."""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

import pytest

from support.language import codes, ran

DECLARATIONS = """
fn called(h: (f32) -> f32, x: f32) -> f32 = h(x)
fn twice(h: (f32) -> f32, x: f32) -> f32 = called(h, called(h, x))
fn filled(h: (f32) -> f32[k], x: f32, k: dim) -> f32[k] = h(x)
fn deep(h: (f32) -> f32, x: f32, n: i32) -> f32 = if n == 0 { h(x) } else { deep(h, x, n - 1) }
"""
PROGRAMS = {
    "in a loop": ("for j in 1..3 { print(called(|t| sum(ones(j)) * t, 2.0)) }", ["2.0", "4.0"]),
    "through two functions": ("for j in 1..3 { print(twice(|t| sum(ones(j)) * t, 2.0)) }", ["2.0", "8.0"]),
    "as a value": ("for j in 1..3 {\n let h = |t| sum(ones(j)) * t\n print(called(h, 2.0))\n}", ["2.0", "4.0"]),
    "its derivatives": (
        "for j in 1..3 {\n let h = |t| sum(ones(j)) * t^2\n print(grad(|x| called(h, x))(1.0), called(|t| h''(t), 2.0))\n}",
        ["2.0 2.0", "4.0 4.0"],
    ),
    "a size of the result": ("for j in 1..3 { print(filled(|t| fill(j, t), 2.0, j)) }", ["[2.0]", "[2.0, 2.0]"]),
    "a variable": ("var m = 2\nm += 1\nprint(called(|t| sum([for i in 0..m => t * f32(i)]), 2.0))", ["6.0"]),
    "of a host fn": ("host fn shown(n: i32) { print(called(|t| sum(zeros(n) + t), 2.0)) }\nshown(4)\nshown(5)", ["8.0", "10.0"]),
    "in a recursion": ("for j in 1..3 { print(deep(|t| sum(ones(j)) * t, 2.0, 4)) }", ["2.0", "4.0"]),
    "beside one that is none": ("for j in 1..3 { print(called(|t| sum(ones(j)) * t * f32(j), 2.0)) }", ["2.0", "8.0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_that_a_lambda_captured(name: str) -> None:
    source, lines = PROGRAMS[name]
    assert ran(DECLARATIONS + source + "\n")[1] == lines


def test_what_only_the_run_of_a_function_knows_is_none() -> None:
    source = "fn f(n: i32) -> f32 = called(|t| sum(ones(n)) * t, 2.0)\nprint(f(3))\n"
    assert codes(DECLARATIONS + source)[0][0] == "DL0305"


def test_other_mistakes_are_told_once() -> None:
    source = "for j in 1..3 { print(called(|t| sum(ones(j)) * t + missing, 2.0)) }\n"
    assert codes(DECLARATIONS + source) == [("DL0201", 6)]


SIZES = {
    "an argument of the program": ('let n: i32 = arg("n", default = 2)\nprint(zeros(2 * n - 1))', ["[0.0, 0.0, 0.0]"]),
    "two variables": ("var (q, r) = (0, 1)\nq += 1\nr += 2\nprint(ones(q + r))", ["[1.0, 1.0, 1.0, 1.0]"]),
    "a quotient and a remainder": ("var n = 0\nn += 7\nprint(zeros(n // 3), zeros(n % 4 - 1))", ["[0.0, 0.0] [0.0, 0.0]"]),
    "the greater one": ("var n = 0\nn += 2\nprint(zeros(max(n, 3) - min(n, 1)))", ["[0.0, 0.0]"]),
    "how far an array goes": ("for e in 1..3 { print([for i in 0..2 * e - 1 => i]) }", ["[0]", "[0, 1, 2]"]),
    "on two axes": ("for e in 1..3 { print([for i in 0..e, j in e..3 => i + j]) }", ["[[1, 2]]", "[[2],\n [3]]"]),
    "the negative one": ("var n = 0\nn += 2\nprint([for i in -n..n => i], zeros(-n + 3))", ["[-2, -1, 0, 1] [0.0]"]),
    "from above": ("var n = 0\nn += 2\nprint([for i in 5..n => i])", ["[]"]),
    "a dim of a function": ("fn f(k: dim) -> f32[k] = zeros(k)\nvar n = 0\nn += 1\nprint(f(n + 1))", ["[0.0, 0.0]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_what_is_made_of_numbers_of_the_host(name: str) -> None:
    source, lines = SIZES[name]
    assert ran(source + "\n")[1] == lines


def test_a_size_has_no_long_story() -> None:
    source = "var n = 0\nn += 1\nprint(sum(zeros({})))\n"
    assert ran(source.format(" + ".join(["n"] * 50)))[1] == ["0.0"]
    assert codes(source.format(" + ".join(["n"] * 5000)))[0][0] == "DL0305"


def test_no_number_is_divided_by_zero() -> None:
    assert codes("var n = 0\nn += 1\nprint(zeros(4 // (n - 1)))\n") == [("DL0303", 3)]


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        ("var k: u8 = 200\nprint(f(k + k))", "DL0316"),
        ("var k: u8 = 3\nprint(f(k - 4))", "DL0316"),
        ("var k = 2_000_000_000\nprint(zeros((k + k) // 1_000_000_000))", "DL0316"),
        ("var k = 0\nk -= 2_147_483_648\nprint(f(-k))", "DL0316"),
    ],
)
def test_a_size_is_what_the_run_computes(ask: str, code: str) -> None:
    """Where the run goes round the end of a type, no size is what it would have been without one."""
    assert [c for c, _ in codes(f"fn f(n: dim) -> i32 = n\n{ask}\n")] == [code]


def test_each_number_behind_a_size_is_asked_for_once() -> None:
    """It would have been two to the power of sixty steps."""
    lets = "".join(f"  let a{i + 1} = (a{i} + a{i}) % 7\n" for i in range(30))
    assert ran(f"let f = |k: i32| {{\n  let a0 = k\n{lets}  a30\n}}\nvar k = 3\nprint(sum(ones(f(k))))\n")[1] == ["3.0"]


def test_the_smaller_of_two_sizes_is_one_size() -> None:
    source = "fn f(x: f32[n], y: f32[m]) -> f32 = sum(x[..min(n, m)] * y[..min(m, n)]) + sum(x[..min(n, n + 1)] * x)\n"
    assert ran(f"{source}print(f([1, 2], [3, 4, 5]))\n")[1] == ["16.0"]


HOST_FUNCTIONS = """
host fn mean_of(x: f32[n], n: dim) -> f32 = sum(x) / f32(n)
host fn joined(k: dim, m: dim = 2) -> f32[k + m] = zeros(k + m)
host fn total(k: dim, x: f32[k]) -> f32 = sum(x)
host fn given() -> i32 = 3
host fn deep(k: dim, on: bool) -> f32 = if on { sum(ones(k)) + deep(k - 1, on) } else { 0.0 }
host fn down(k: dim, x: f32[k]) -> f32 = if k == 0 { 0.0 } else { x[0] + down(k - 1, x[1..]) }
"""


@pytest.mark.parametrize(
    ("ask", "lines"),
    [
        ("print(mean_of([1.0, 2.0], 2))", ["1.5"]),
        ("for k in 0..2 {\n let z: f32[k + 2] = joined(k)\n print(z)\n}", ["[0.0, 0.0]", "[0.0, 0.0, 0.0]"]),
        ("var j = 0\nj += 1\nprint(joined(j + 1, j))", ["[0.0, 0.0, 0.0]"]),
        ("var n = 2\nn += 1\nprint(total(n, ones(n)), total(given(), ones(3)))", ["3.0 3.0"]),
        ("for i in 3..4 { print(total(i, ones(3)), total(i + 1, ones(i + 1))) }", ["3.0 4.0"]),
        (
            "let (p, q) = (3, 4)\nlet d = if p > 1 { 2 } else { 3 }\nprint(total(p, ones(3)), total(d, ones(2)))",
            ["3.0 2.0"],
        ),
        ("record C { n: i32, x: f32[3] }\nlet c = C(3, ones(3))\nprint(total(c.n, c.x))", ["3.0"]),
        ("print(deep(0, false))", ["0.0"]),
        ("let k = 3\nlet z: f32[k + 2] = joined(k)\nprint(down(k, ones(k)), z)", ["3.0 [0.0, 0.0, 0.0, 0.0, 0.0]"]),
    ],
)
def test_a_size_that_a_host_function_takes(ask: str, lines: list[str]) -> None:
    assert ran(f"{HOST_FUNCTIONS}{ask}\n")[1] == lines


def test_a_host_function_is_checked_once_whatever_size_it_takes() -> None:
    """It would have been two to the power of thirty calls."""
    source = "host fn f0(k: dim) -> f32[k] = ones(k)\nhost fn g0(k: dim) -> f32 = sum(f0(k))\n"
    for i in range(1, 31):
        source += f"host fn g{i}(k: dim) -> f32 = if k > 9 {{ g{i - 1}(2 * k) + g{i - 1}(3 * k + 1) }} else {{ 0.0 }}\n"
    assert ran(f"{source}print(g30(3))\n")[1] == ["0.0"]


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        ("host fn pair(k: dim) -> f32[k] = [1.0, 2.0]", "DL0304"),
        ("host fn as_read(k: dim, file: str) -> f32[k] {\n let x: f32[m] = read_npy(file)\n x\n}", "DL0304"),
        ("print(mean_of([1.0, 2.0], 3))", "DL0304"),
        ("print(down(3, ones(2)))", "DL0304"),
        ("var k = 1\nk += 2\nprint(mean_of([1.0], k))", "DL0304"),
        ("print(joined(-1))", "DL0303"),
        ("var k = 1\nk -= 2\nprint(joined(k))", "DL0303"),
    ],
)
def test_a_value_of_another_size_than_a_host_function_takes(ask: str, code: str) -> None:
    assert [c for c, _ in codes(f"{HOST_FUNCTIONS}{ask}\n")] == [code]
