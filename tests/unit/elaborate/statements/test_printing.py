"""`print` inside functions: what is printed, how often, in what order, and what a failure before it prevents."""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

import numpy as np
import pytest

import difflang
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.ops.loop import checkpoint_store
from support.language import HERE, INTERPRETER, checked, codes, ran

ENGINES = pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])


def printed(source: str, engine: Engine) -> list[str]:
    return ran(source, engine)[1]


PROGRAMS = {
    "in order, the host's own lines between them": (
        'fn f(x: f32) -> f32 {\n print("in", x)\n x + 1.0\n}\n'
        'let a = f(1.0)\nprint("after")\nlet b = f(a)\nprint(f(b) + f(7.0))',
        ["in 1.0", "after", "in 2.0", "in 3.0", "in 7.0", "12.0"],
    ),
    "a statement that gives nothing": ("fn f(k: i32) { print(k) }\nf(1)\nf(2)", ["1", "2"]),
    "only on the side that is taken": (
        'fn f(x: f32) -> f32 = if x > 0.0 { print("yes")\n sqrt(x) } else { print("no")\n 0.0 }\n'
        "let a = f(4.0)\nlet b = f(-4.0)",
        ["yes", "no"],
    ),
    "only in the case that fits": (
        'enum E { A(x: f32), B }\nfn f(e: E) -> f32 = match e { A(x) => { print("A {x}")\n x }, B => { print("B")\n 0.0 } }\n'
        "fn g(c: bool) -> f32 = f(if c { A(2.0) } else { B })\nprint(g(true) + g(false))",
        ["A 2.0", "B", "2.0"],
    ),
    "each step of a loop": (
        "fn f(n: i32) -> i32 {\n var s = 0\n for i in 0..n {\n  if i == 1 { continue }\n  print(i, s)\n"
        "  s += i\n  if s > 4 { break }\n }\n s\n}\nprint(f(9))",
        ["0 0", "2 0", "3 2", "5"],
    ),
    "a loop that computes nothing": ("fn f(n: i32) { for i in 0..n { print(i) } }\nf(3)\nf(0)", ["0", "1", "2"]),
    "the condition of a loop, as often as it is asked": (
        'fn small(x: f32) -> bool {\n print("is {x}")\n assert x > 0.0\n x < 4.0\n}\n'
        "fn f(x: f32) -> f32 {\n var y = x\n while small(y) { y = 3.0 * y }\n y\n}\nprint(f(1.0))",
        ["is 1.0", "is 3.0", "is 9.0", "9.0"],
    ),
    "what is not needed": (
        'fn f(x: f32) -> f32 {\n let y = g(x)\n x\n}\nfn g(x: f32) -> f32 {\n print("g")\n x }\nprint(f(1.0))',
        ["g", "1.0"],
    ),
    "what is the same twice": (
        "fn g(x: f32) -> f32 {\n print(x)\n x }\nfn f(x: f32) -> f32 = g(x) + g(x)\nprint(f(1.0))",
        ["1.0", "1.0", "2.0"],
    ),
    "what does not change in a loop": (
        'fn f(x: f32) -> f32 {\n var y = x\n for _ in 0..3 {\n  print("x {x}")\n  y += x\n }\n y\n}\nprint(f(1.0))',
        ["x 1.0", "x 1.0", "x 1.0", "4.0"],
    ),
    "two loops that run alike": (
        "fn f(x: f32[n]) -> f32 {\n var a = 0.0\n var b = 0.0\n for v in x {\n  print(v)\n  a += v\n }\n"
        " for v in x {\n  print(-v)\n  b += v\n }\n a * b\n}\nprint(f([1.0, 2.0]))",
        ["1.0", "2.0", "-1.0", "-2.0", "9.0"],
    ),
    "a comprehension, from the first to the last": (
        "fn f(x: f32[n]) -> f32[n] = [for i => {\n print(i, x[i])\n 2.0 * x[i]\n}]\nprint(f([3.0, 4.0]))",
        ["0 3.0", "1 4.0", "[6.0, 8.0]"],
    ),
    "what does not differ between its items": (
        'fn f(x: f32[n]) -> f32[n] = [for i => { print("x")\n x[i] }]\nprint(f([3.0, 4.0]))',
        ["x", "x", "[3.0, 4.0]"],
    ),
    "one in another": (
        "fn f(x: f32[n, m]) -> f32 = sum(for i, j => {\n print(i, j)\n x[i, j]\n})\nprint(f([[1.0, 2.0], [3.0, 4.0]]))",
        ["0 0", "0 1", "1 0", "1 1", "10.0"],
    ),
    "of no items": ("fn f(x: f32[n]) -> f32[n] = [for v in x => { print(v)\n v }]\nprint(f([]))", ["[]"]),
    "only what a filter lets through": (
        "fn f(x: f32[n]) -> f32 = sum(for v in x if v > 0.0 => { print(v)\n v })\nprint(f([1.0, -1.0, 2.0]))",
        ["1.0", "2.0", "3.0"],
    ),
    "of a length that only the run knows": (
        "fn f(k: i32) -> i32 = sum(for i in 0..k if i != 1 => { print(i)\n i })\nprint(f(3))",
        ["0", "2", "2"],
    ),
    "vmap and map": (
        "fn g(x: f32) -> f32 {\n print(x)\n x^2 }\nprint(vmap(g)([1.0, 2.0]), map(g, [3.0, 4.0]))",
        ["1.0", "2.0", "3.0", "4.0", "[1.0, 4.0] [9.0, 16.0]"],
    ),
    "lanes of different lengths": (
        "fn g(k: i32) -> i32 {\n var i = 0\n while i < k {\n  print(k, i)\n  i += 1\n }\n i\n}\nprint(vmap(g)([2, 0, 1]))",
        ["2 0", "2 1", "1 0", "[2, 0, 1]"],
    ),
    "a loop that only writes": (
        "fn f(x: f32[n], b: i32[n]) -> f32[2] {\n var h = zeros(2)\n for i in 0..n {\n  print(i)\n  h[b[i]] += x[i]\n }\n h\n}\n"
        "print(f([1.0, 2.0, 4.0], [0, 1, 0]))",
        ["0", "1", "2", "[5.0, 2.0]"],
    ),
    "a loop that yields, and one that reads it": (
        "fn f(x: f32) -> f32 {\n var t = x\n let h = while t < 9.0 {\n  t = 2.0 * t\n  print(t)\n  yield t\n }\n"
        " var s = 0.0\n for v in reverse(h) {\n  print(-v)\n  s = 0.5 * s + v\n }\n s\n}\nprint(f(3.0))",
        ["6.0", "12.0", "-12.0", "-6.0", "12.0"],
    ),
    "reduce and scan": (
        "fn add(a: f32, b: f32) -> f32 {\n print(a, b)\n a + b }\nprint(reduce(add, 0.0, [1.0, 2.0]), scan(add, 0.0, [5.0, 6.0]))",
        ["0.0 1.0", "1.0 2.0", "0.0 5.0", "5.0 6.0", "3.0 [5.0, 11.0]"],
    ),
    "functions that the run chooses": (
        'fn f(k: i32) -> f32 {\n let g = if k == 0 { |x| { print("zero")\n x } } else { |x| { print("else {k}")\n 2.0 * x } }\n g(1.0)\n}\n'
        "print(f(0), f(3))",
        ["zero", "else 3", "1.0 2.0"],
    ),
    "a lambda of the host": (
        "print([1.0, 2.0] |> |x| [for v in x => { print(v)\n -v }])",
        ["1.0", "2.0", "[-1.0, -2.0]"],
    ),
    "a file's own values": ("let k = 2.5\nfn f(x: f32) -> f32 {\n print(k)\n x }\nprint(f(1.0))", ["2.5", "1.0"]),
    "a linear function, but not turned round": (
        "fn f(l: f32 -o f32, x: f32) -> f32 = l(x) + transpose(l)(x)\n"
        'fn k(a: f32) -> f32 = f(linear |v: f32| { print("v {v}")\n a * v }, 2.0)\nprint(k(3.0), grad(k)(3.0))',
        ["v 2.0", "v 2.0", "12.0 4.0"],
    ),
    "folds in any order": (
        "fn add(a: f32, b: f32) -> f32 {\n print(a, b)\n a + b }\nprint(reduce(add, 0.0, [1.0, 2.0, 3.0], associative = true))",
        ["0.0 1.0", "1.0 2.0", "3.0 3.0", "6.0"],
    ),
    "what draws": (
        "fn g(x: f32) -> f32 {\n let u = uniform()\n print(u == u, x)\n x + u - u }\n"
        "print([for i in 0..2 => g(f32(i))], grad(g)(3.0), jacobian(|x| [g(x[0])])([4.0]))",
        ["true 0.0", "true 1.0", "true 3.0", "true 4.0", "[0.0, 1.0] 1.0 [[1.0]]"],
    ),
    "recursion on a size": (
        "fn f(x: f32[n]) -> f32 {\n if n == 0 { return 0.0 }\n print(n, x[0])\n x[0] + f(x[1..])\n}\nprint(f([1.0, 2.0]))",
        ["2 1.0", "1 2.0", "3.0"],
    ),
    "recursion that comes last": (
        "fn f(n: i32) -> i32 = if n == 0 { 0 } else { { print(n)\n f(n - 1) } }\nprint(f(3))",
        ["3", "2", "1", "0"],
    ),
    "before and after a call of itself": (
        'fn f(n: i32) -> i32 {\n if n == 0 { return 0 }\n print("in {n}")\n let r = f(n - 1) + 1\n print("out {n}")\n r\n}\nprint(f(2))',
        ["in 2", "in 1", "out 1", "out 2", "2"],
    ),
    "after a call that would come last": (
        'fn f(n: i32) -> i32 {\n if n == 0 { return 0 }\n let r = f(n - 1)\n print("out {n}")\n r\n}\nprint(f(2))',
        ["out 1", "out 2", "0"],
    ),
    "functions that call each other": (
        'fn even(n: i32) -> bool { print("even {n}")\n if n == 0 { true } else { odd(n - 1) } }\n'
        'fn odd(n: i32) -> bool { print("odd {n}")\n if n == 0 { false } else { even(n - 1) } }\nprint(even(2))',
        ["even 2", "odd 1", "even 0", "true"],
    ),
    "recursion in a loop": (
        "fn f(n: i32) -> i32 {\n print(n)\n var s = 1\n for i in 0..n { s += f(i) }\n s\n}\nprint(f(2))",
        ["2", "0", "1", "0", "4"],
    ),
}


@ENGINES
@pytest.mark.parametrize("case", PROGRAMS, ids=lambda name: name.replace(" ", "_"))
def test_what_is_printed(case: str, engine: Engine) -> None:
    source, lines = PROGRAMS[case]
    assert printed(source, engine) == lines


@ENGINES
def test_a_run_with_more_room_says_nothing_twice(engine: Engine) -> None:
    """There is room for a few frames at first; the run is begun again, and more than once."""
    f = "fn f(n: i32) -> i32 {\n if n == 0 { return 0 }\n print(n)\n let r = f(n - 1) + 1\n print(-r)\n r\n}\n"
    want = [str(n) for n in range(300, 0, -1)] + [str(-r) for r in range(1, 301)]
    assert printed(f"{f}let a = f(300)\nlet b = f(2)", engine) == [*want, "2", "1", "-1", "-2"]


# ---- Derivatives

OPERATORS = {
    "grad(f)(2.0)": 1, "value_and_grad(f)(2.0)": 1, "jvp(f)(2.0, 1.0)": 1, "f'(2.0)": 1, "f''(2.0)": 1, "f'''(2.0)": 1,
    "grad(grad(f))(2.0)": 1, "hvp(f)(2.0, 1.0)": 1, "jet(f, order = 3)(2.0)": 1, "jacfwd(f)(2.0)": 1, "jacrev(f)(2.0)": 1,
    "jacobian(|x| [f(x[0]), x[1]])([2.0, 3.0])": 1, "jacrev(|x| [f(x[0]), x[1]])([2.0, 3.0])": 1,
    "hessian(|x| f(x[0]) * x[1])([2.0, 3.0])": 1, "jacobian(grad(f))(2.0)": 1,
    "vmap(grad(f))([2.0, 2.0])": 2, "grad(|x| sum(vmap(f)(x)))([2.0, 2.0])": 2, "grad(|x| f(x) + f(x))(2.0)": 2,
    "{ let (y, pull) = vjp(f)(2.0)\n (pull(1.0), pull(2.0), pull(3.0)) }": 1,
    "{ let (y, push) = linearize(f)(2.0)\n (push(1.0), transpose(push)(2.0)) }": 1,
}  # fmt: skip
BODIES = {
    "straight": " print(x)\n x^3",
    "branch": " if x > 1.0 { print(x)\n x^3 } else { print(x)\n x }",
    "call": " g(x)",
    "counted loop": " var y = x\n for i in 0..3 {\n  if i == 0 { print(x) }\n  y = sin(y) * x\n }\n y",
    "while loop": " var y = 1.0\n var i = 0\n while i < 3 {\n  if i == 0 { print(x) }\n  i += 1\n  y *= x\n }\n y",
    "lanes": " sum([for i in 0..2 => { if i == 1 { print(x) }\n x^(i + 2) }])".replace("x^(i + 2)", "x^3"),
    "recursion": " h(x, 3)",
    "history": " var t = x\n let h = while t < 9.0 {\n  if t == x { print(x) }\n  t = t * x\n  yield t\n }\n"
               " var s = x\n for v in reverse(h) { s += 0.5 * v }\n s",
}  # fmt: skip
F = """float f64
fn g(x: f64) -> f64 {
  print(x)
  x^3
}
fn h(x: f64, n: i32) -> f64 {
  if n == 0 { return 1.0 }
  if n == 1 { print(x) }
  x * h(x, n - 1)
}
"""


# A loop of unknown length has no series of what it yields.
DERIVED = [(e, b) for b in BODIES for e in OPERATORS if not (b == "history" and "jet" in e)]


@pytest.mark.parametrize(("expression", "body"), DERIVED)
def test_a_derivative_prints_what_its_function_prints_once(expression: str, body: str) -> None:
    source = f"{F}fn f(x: f64) -> f64 {{\n{BODIES[body]}\n}}\nlet y = {expression}"
    count = OPERATORS[expression]
    assert printed(source, INTERPRETER) == ["2.0"] * count


SLOW = ["while loop", "history", "recursion"]
SOME = ["grad(f)(2.0)", "hvp(f)(2.0, 1.0)", "vmap(grad(f))([2.0, 2.0])", "hessian(|x| f(x[0]) * x[1])([2.0, 3.0])"]


@pytest.mark.parametrize("body", [pytest.param(b, marks=[pytest.mark.slow] * (b in SLOW)) for b in BODIES])
@pytest.mark.nightly_cases("history", "recursion")
def test_compiled_it_does_too(body: str) -> None:
    wanted = [*SOME, next(e for e in OPERATORS if "linearize" in e)]
    source = f"{F}fn f(x: f64) -> f64 {{\n{BODIES[body]}\n}}\n" + "\n".join(
        f'let y{i} = {e}\nprint("{i}")' for i, e in enumerate(wanted)
    )
    want = [line for i, e in enumerate(wanted) for line in [*["2.0"] * OPERATORS[e], str(i)]]
    assert printed(source, Engine()) == want


STRATEGIES = [
    "",
    "@checkpoint(full)",
    "@checkpoint(full, cap = 2)",
    "@checkpoint(every, steps = 3)",
    "@checkpoint(revolve, slots = 2)",
    "@checkpoint(sqrt)",
]
LOOPS = {"for _ in 0..20": "", "for _ in 0..k": "", "while i < k": "  i += 1\n"}


@pytest.mark.parametrize(
    ("strategy", "head"),
    [
        pytest.param(s, head, marks=[pytest.mark.slow] * (s not in ("", "@checkpoint(revolve, slots = 2)")))
        for s in STRATEGIES
        for head in LOOPS
        if s != "@checkpoint(sqrt)" or head == "for _ in 0..20"
    ],
)
def test_steps_that_are_taken_again_print_nothing(strategy: str, head: str) -> None:
    source = f"""float f64
fn f(x: f64, k: i32) -> f64 {{
  var y = x
  var i = 0
  {strategy}
  {head} {{
  print("{{y:.6f}}")
{LOOPS[head]}  y = sin(y) + x
  }}
  y
}}
let a = grad(f)(0.5, 20)
"""
    values = [0.5]
    for _ in range(19):
        values.append(np.sin(values[-1]) + 0.5)
    assert printed(source, Engine()) == [f"{y:.6f}" for y in values]


def test_it_would_be_seen_if_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps that are taken again as they stand, lines are doubled: the tests above look at something."""
    source = (
        "fn f(x: f32, k: i32) -> f32 {\n var y = x\n @checkpoint(every, steps = 2)\n"
        " for i in 0..k {\n  print(i)\n  y = sin(y)\n }\n y\n}\nlet a = grad(f)(0.5, 4)"
    )
    assert len(printed(source, Engine())) == 4
    monkeypatch.setattr(checkpoint_store, "without_prints", lambda graph: graph)
    assert len(printed(source, Engine())) > 4


RULES = {
    "written": (
        'fn f(x: f64) -> f64 {\n print("f {x}")\n x^2 }\nrule f(x) {\n print("rule")\n let y = f(x)\n'
        " (y, linear |dx| 2 * x * dx + 0 * f(x) * dx)\n}\n",
        "f", 4.0,
    ),
    "implicit": (
        "fn f(p: f64) -> f64 = root(|x, p| { print(\"at {x:.0f}\")\n x - p^2 }, p, 4.0)\n"
        "fn root(f: (f64, f64) -> f64, p: f64, x0: f64) -> f64 {\n let r = f(x0, p)\n x0 - r\n}\nrule root(f, p, x0) by implicit |x| f(x, p)\n",
        "at", 4.0,
    ),
    "linear_solve": (
        "fn s(A: f64 -o f64, b: f64) -> f64 {\n print(\"solving\")\n b / A(1.0)\n}\nrule s(A, b) by linear_solve A\n"
        "fn f(k: f64) -> f64 = s(linear |v| k * v, k^3)\n",
        "solving", 4.0,
    ),
}  # fmt: skip


@ENGINES
@pytest.mark.parametrize("kind", RULES)
def test_rules_are_derivatives_and_print_nothing(kind: str, engine: Engine) -> None:
    declared, start, slope = RULES[kind]
    source = f"float f64\n{declared}let v = f(2.0)\nprint(f'(2.0), grad(f)(2.0))"
    lines = printed(source, engine)
    assert len(lines) == 4 and all(line.startswith(start) for line in lines[:3]), lines
    assert lines[3] == f"{slope} {slope}"


# ---- Failures

AFTER_FAILURES = {
    "in the same function": ('fn f(x: f32[n], i: i32) -> f32 {\n print("a")\n let y = x[i]\n print("b")\n y }', "f([1.0], 3)", ["a"]),
    "in one that is called afterwards": (
        'fn g(x: f32) -> f32 {\n print("g")\n x }\nfn f(x: f32[n], i: i32) -> f32 = g(1.0) + x[i] + g(2.0)', "f([1.0], 3)", ["g"],
    ),
    "in one that calls": (
        'fn g(x: f32) -> f32 {\n assert x > 0.0\n x }\nfn f(x: f32) -> f32 {\n let y = g(x)\n print("f")\n y }', "f(-1.0)", [],
    ),
    "in a loop": (
        "fn f(n: i32) -> i32 {\n var s = 0\n for i in 0..n {\n  print(i)\n  assert i < 2\n  s += i\n }\n print(s)\n s\n}", "f(5)", ["0", "1", "2"],
    ),
    "before a loop": ("fn f(x: f32[n], i: i32) -> f32 {\n let y = x[i]\n for k in 0..2 { print(k) }\n y }", "f([1.0], 3)", []),
    "in a while loop": (
        "fn f(n: i32) -> i32 {\n var i = 0\n while i < n {\n  assert i != 2\n  print(i)\n  i += 1\n }\n i\n}", "f(5)", ["0", "1"],
    ),
    "before the condition of one": (
        'fn ask(i: i32) -> bool {\n print("ask")\n i < 2 }\nfn f(x: f32[n], k: i32) -> i32 {\n let y = x[k]\n var i = 0\n'
        " while ask(i) { i += 1 }\n i + i32(y)\n}",
        "f([1.0], 3)", [],
    ),
    "in a lane before": (
        "fn f(x: f32[n]) -> f32[n] = [for v in x => {\n print(v)\n assert v > 0.0\n v }]", "f([1.0, -1.0, 2.0])", ["1.0", "-1.0"],
    ),
    "before all lanes": ("fn f(x: f32[n], i: i32) -> f32[n] {\n let y = x[i]\n [for v in x => { print(v)\n v * y }] }", "f([1.0], 3)", []),
    "in a derivative": ('fn f(x: f32) -> f32 {\n assert x < 0.0\n print("f")\n x }', "grad(f)(1.0)", []),
    "in recursion": (
        "fn f(n: i32) -> i32 {\n assert n > 1\n print(n)\n let r = f(n - 1) + 1\n print(-n)\n r }", "f(3)", ["3", "2"],
    ),
    "before recursion": (
        "fn g(n: i32) -> i32 {\n print(n)\n if n == 0 { 0 } else { g(n - 1) + 1 } }\nfn f(x: f32[n], i: i32) -> i32 = i32(x[i]) + g(2)",
        "f([1.0], 3)", [],
    ),
    "in an earlier argument": (
        'fn g(x: f32) -> f32 {\n print("g")\n x }\nfn f(i: i32) -> f32 = g(f32(7 // i))', "f(0)", [],
    ),
}  # fmt: skip


@ENGINES
@pytest.mark.parametrize("case", AFTER_FAILURES)
def test_what_comes_after_a_failure_is_not_printed(case: str, engine: Engine) -> None:
    declared, call, lines = AFTER_FAILURES[case]
    seen: list[str] = []
    with pytest.raises(difflang.DifflangError):
        run_program(checked(f"{declared}\nlet a = {call}"), engine, FileAccess(HERE), 0, seen.append)
    assert seen == lines


# ---- From Python


MODULE = """
fn f(x: f64) -> f64 {
  print("x is {x}")
  x^2
}
fn g(x: f64[n]) -> f64 {
  assert min(x) > 0.0, "the least of {n} is {min(x)}"
  sum(log(x))
}
fn label(x: f64, k: i32) -> (str, f64) = ("x = {x:.2f}, k = {k}", x)
"""


def test_from_python_it_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    module = difflang.loads(MODULE)
    for _ in range(3):  # the short ways of later calls too
        assert float(module.f(3.0)) == 9.0
        assert capsys.readouterr().out == "x is 3.0\n"
    assert float(module.f.grad()(1 / 3)) == pytest.approx(2 / 3)
    assert float(module.f.interpret(0.1)) == pytest.approx(0.01)
    assert capsys.readouterr().out == f"x is {1 / 3}\nx is 0.1\n"


def test_an_audit_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert difflang.loads(MODULE).f.check_grad(3.0).right
    assert capsys.readouterr().out == ""


def test_inside_jax(capsys: pytest.CaptureFixture[str]) -> None:
    import jax

    module = difflang.loads(MODULE)
    with jax.enable_x64(True):
        step = jax.jit(lambda x: module.f(x) + module.f(2.0 * x))
        assert float(step(1.0)) == 5.0
        jax.effects_barrier()
        assert capsys.readouterr().out == "x is 1.0\nx is 2.0\n"


def test_a_message_has_the_numbers_of_the_run() -> None:
    module = difflang.loads(MODULE)
    with pytest.raises(difflang.AssertionFailure, match=r"the least of 2 is -3\.25"):
        module.g(np.array([1.0, -3.25]))
    with pytest.raises(difflang.AssertionFailure, match=r"the least of 1 is 0\.0"):
        module.g.interpret(np.array([0.0]))


def test_a_text_of_the_run_is_a_text_in_python() -> None:
    assert difflang.loads(MODULE).label(1.0, 2)[0] == "x = 1.00, k = 2"


def test_a_text_is_not_made_inside_jax() -> None:
    import jax

    module = difflang.loads(MODULE)
    with jax.enable_x64(True), pytest.raises(difflang.ArgumentError, match="known only at run time"):
        jax.jit(lambda x: module.label(x, 2)[1])(1.0)


def test_a_program_that_prints_nothing_pays_nothing() -> None:
    """Messages of assertions are made where one fails, by another run."""
    assert "callback" in difflang.loads(MODULE).f.stablehlo("f64")
    assert "callback" not in difflang.loads(MODULE).g.stablehlo("f64[3]")
    plain = MODULE.replace('"the least of {n} is {min(x)}"', '"m"')
    texts = [difflang.loads(text).g.ir("optimized", "f64[3]") for text in (MODULE, plain)]
    assert texts[0] == texts[1]


def test_what_goes_wrong_in_writing_is_told() -> None:
    """Whoever writes does so in a thread of XLA: the error arrives where the call was made."""

    def broken(text: str) -> None:
        raise BrokenPipeError(text)

    source = "fn f(x: f32[n]) -> f32 {\n for v in x { print(v) }\n sum(x)\n}\nlet a = f(ones(40))"
    for engine in (Engine("interpret"), Engine()):
        with pytest.raises(BrokenPipeError, match=r"1\.0"):
            run_program(checked(source), engine, FileAccess(HERE), 0, broken)


def test_it_takes_no_names() -> None:
    assert codes("fn f(x: f32) -> f32 {\n print(x, named = x)\n x }") == [("DL0319", 2)]
