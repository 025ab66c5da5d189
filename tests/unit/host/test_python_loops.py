"""Host loops that run as Python: what they print, leave and report is what they would statement by statement."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.execution import engine, python_source
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.host.python_loops import translated_loop
from difflang.host.python_loops.translator import LoopTranslator
from difflang.host.run_statements import HostRunner
from support.language import checked
from support.nightly import by_day
from support.random_host_loops import HostLoops

NEVER = 1 << 60
Outcome = tuple[dict[str, Any], list[str], list[Any]]


def outcome(source: str, patch: pytest.MonkeyPatch, steps_before: int, most_steps: int = 0) -> Outcome:
    """The values that a program leaves, bit for bit, what it prints, and its error."""
    patch.setattr(translated_loop, "STEPS_BEFORE", steps_before)
    # Without translation each expression goes to the interpreter.
    patch.setattr(python_source, "RUNS_INTERPRETED", NEVER if steps_before == NEVER else 8)
    lines: list[str] = []
    errors: list[Any] = []
    program = checked(source)
    program.session.most_steps = most_steps
    runner = HostRunner(program.session, program.module, Engine(), FileAccess(Path.cwd()), 0, lines.append)
    try:
        runner.run(program.items)
    except DifflangError as error:
        for d in error.diagnostics:
            errors.append((d.code, d.message, [(str(label.span), label.text) for label in d.labels], d.helps))
    values: dict[str, Any] = {
        name: (str(v.type), getattr(v.type, "value", None), list(map(bits, v.leaves or ())))
        for name, v in runner.values.items()
    }
    return values | {"names": sorted(program.module.host)}, lines, errors


def bits(leaf: Any) -> Any:
    array = np.asarray(leaf)
    # NaN has many bits, which nothing in a program tells apart.
    same = np.where(np.isnan(array), array.dtype.type(np.nan), array) if array.dtype.kind == "f" else array
    return array.dtype, array.shape, same.tobytes()


@pytest.fixture
def translations(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each translation that is tried, whether it succeeds."""
    found: list[bool] = []
    translate = translated_loop.translate

    def record(*args: Any) -> Any:
        loop = translate(*args)
        found.append(loop.function is not None)
        return loop

    monkeypatch.setattr(translated_loop, "translate", record)
    return found


@pytest.mark.parametrize("seed", range(by_day(12, 400)))
def test_a_random_loop_is_the_same_translated(
    seed: int, translations: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = HostLoops(seed).program()
    try:
        expected = outcome(source, monkeypatch, NEVER)
    except DifflangError:
        pytest.skip("a constant of it does not fit its type")
    assert not translations
    assert outcome(source, monkeypatch, 1) == expected, source
    assert outcome(source, monkeypatch, 5) == expected, source
    assert translations
    assert all(translations)


LOOPS = {
    "a limit that wraps": "var k = 2147483600\nwhile k > 0 { k += 1 }\nprint(k)",
    "a condition that the body changes": """
var (k, s) = (0, 2147483647)
while k < 10 {
  k += 1
  s += k
  while k < 7 and k % 3 != 0 {
    k += 2147483640
    k += 10
  }
}
print(k, s)
""",
    "texts": """
var state = "start"
var seen = 0
for i in 0..50 {
  let kind = if i % 2 == 0 { "even" } else { "odd" }
  if kind == "even" { seen += 1 }
  if state == "start" { if i > 10 { state = "running" } }
  if i > 40 { state = kind }
  match state { "odd" => { seen += 10 }, "running" => { seen += 2 }, _ => {} }
  var local = "x"
  if i == 3 { local = kind }
  if i > 44 { print("{i:03d}", kind, state, local, "{state:>8}") }
}
print(state, seen)
""",
    "a match on a tuple, with names": """
var n = 0
for i in 0..30 {
  match (i % 3, i > 10) { (0, b) => { if b { n += 1 } }, (1, true) => { n += 10 }, (k, _) => { n += 100 * k } }
}
print(n)
""",
    "arrays that are gone through": """
let a = [for i in 0..40 => 0.25 * f32(i)]
let b: i64[40] = [for i in 0..40 => i64(i) * i64(i)]
var (s, t) = (0.0, i64(0))
for (i, (x, y)) in enumerate(zip(a, b)) { if i % 2 == 0 { s += x } else { t += y } }
print(s, t)
""",
    "what is yielded": """
let odd: f32[n] = for i in 0..41 {
  if i % 2 == 0 { continue }
  yield 0.5 * f32(i)
}
var x = 5.0
let (steps, values) = while true {
  x *= 0.95
  if x < 0.5 { break }
  yield (1, x)
}
print(n, odd, sum(steps), values)
""",
    "names of blocks hide others": """
var x = 1.0
let y = 2
for i in 0..30 {
  let y = f32(i) * x
  var x = y
  x += 1.0
  if x > 28.0 { print(x, y) }
}
print(x, y)
""",
    "records and tuples of numbers": """
record P { x: f32, n: i32 }
var p = P(0.0, 1)
var q = (1, 2.5)
for i in 0..30 {
  p.x += 0.5
  p.n = 2 * p.n + i
  let (a, b) = q
  q = (a + p.n, b + p.x)
}
print(p, q)
""",
    "functions": """
let scale = 3.0
fn f(x: f32, k: i32) -> f32 = if k % 2 == 0 { scale * x } else { sqrt(abs(x)) }
fn g(x: f32) -> f32 = grad(|t| t * t * scale)(x) / (1.0 + x * x)
var x = 1.0
for k in 0..40 { x = f(x, k) - g(x) }
print(x)
""",
    "a host function": """
host fn collatz(start: i64) -> i32 {
  var (n, steps) = (start, 0)
  while n != 1 {
    n = if n % 2 == 0 { n // 2 } else { 3 * n + 1 }
    steps += 1
  }
  steps
}
for n in [27, 97, 871] { print(collatz(i64(n))) }
""",
    "a condition of a text and an effect": """
for i in 0..20 {
  let x = if i == 18 {
    print("here {i}")
    1.0
  } else { 2.0 }
  print(x)
}
""",
    "a division by zero": "var (d, s) = (50, 0)\nwhile true {\n  d -= 1\n  s += 100 // d\n}",
    "an assertion": """
var u = 0
for i in 0..100 {
  let limit = 2000.0
  u += i
  if i > 5 { assert f32(u) < limit, "too large: {u} at {i}" }
}
""",
    "an assertion about texts": """
var (way, n) = ("up", 0)
for i in 0..40 {
  assert way == "up" and i < 50 or n > 3, "{way} at {i}"
  if i == 30 { way = "down" }
  n = i % 8
}
""",
    "an index": "let a = [1.0, 2.0]\nvar s = 0.0\nfor i in 0..9 { s += a[i] }",
    "an index of a matrix": "var m = [[1, 2], [3, 4]]\nfor i in 0..9 { m[1, 2 - i] += 1 }",
    "elements of arrays": """
var open = [for i in 0..200 => true]
var primes = 0
for i in 2..200 {
  if open[i] {
    primes += 1
    var j = i * i
    while j < 200 {
      open[j] = false
      j += i
    }
  }
}
let a = [for i in 0..40 => 0.5 * f32(i)]
var b = a
var m = [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]
var s = 0.0
for i in 0..40 {
  s += a[i] * m[i % 2, 1] + m[0, 2]
  m[1, i % 3] += 0.25 * s
  (b[i], s, b[39 - i]) = (b[39 - i], b[i] + s, s)
  let c = b
  b[0] = c[1]
  if i > 36 { print(b[3], c[0], m) }
}
for k in 0..20 {
  for x in b {
    s += x
    b[k] = s
  }
  b = a
}
print(primes, s, m, b)
""",
    "elements of arrays of texts": """
let names = ["a", "b", "c"]
var seen = names
var (label, n) = ("a", 0)
for i in 0..40 {
  if names[i % 3] == names[0] { n += i }
  seen[i % 3] = names[(7 * i + 1) % 3]
}
let chosen: str[k] = for i in 0..40 { yield names[i % 3] }
for i in 0..40 {
  if i > 20 { label = names[i % 2] }
  for _ in 0..20 { if label == "a" { n += 1 } }
}
print(seen, chosen, label, n)
""",
    "texts in records and tuples that change": """
record P { x: f32, name: str }
var p = P(1.0, "a")
var q = (1, "a")
var n = 0
for k in 0..40 {
  if k > 25 {
    p = P(2.0, "b")
    q = (3, "c")
  }
  for _ in 0..20 {
    p.x += 0.5
    if p.name == "a" { n += 1 }
    match q { (_, "a") => { n += 10 }, (i, _) => { n += 100 * i } }
  }
}
print(p, q, n)
""",
    "texts compared beside other conditions": """
var t = "a"
var n = 0
for i in 0..50 {
  let u = if i % 3 == 0 { "a" } else { "b" }
  if t == u and n < 4 { n += 1 }
  if n < 40 and t != u { n += 2 }
  if not (t == u) or n // 5 > 3 { n -= 1 }
  if n > 0 and 100 // n > 9 and (t == "a" or u == "c") { n += 1 }
  let same = t == u
  if i == 20 { t = "b" }
  if i > 40 or t != "b" { print("{same} {n}") }
}
print(n, t)
""",
    "records that are gone through": """
record P { x: f32, k: i64 }
record Q { p: P, on: bool, name: str }
let qs = [for i in 0..40 => Q(P(f32(i), i64(i % 7)), i % 2 == 0, if i % 5 == 0 { "five" } else { "other" })]
var (s, c) = (0.0, 0)
for (j, q) in enumerate(qs) {
  s += q.p.x * f32(q.p.k)
  if q.on and q.name == "five" { c += j }
  let p = q.p
  if j > 37 { print(p, q.on) }
}
for q in qs { for r in qs { if r.on { c += i32(r.p.k - q.p.k) } } }
let found: P[n] = for (q, i) in zip(qs, 0..40) { if q.on and i % 3 == 0 { yield q.p } }
var best = qs[0].p
for p in qs.p { if p.k > best.k { best = p } }
print(s, c, found, best)
""",
    "arrays of records that are gone through": """
record P { x: f32, n: i32 }
let ps = [P(1.0, 1), P(2.0, 2)]
var s = 0.0
for k in 0..40 {
  for p in ps { s += p.x * f32(p.n + k) }
}
print(s)
""",
    "values that others change before they are used": """
var x = 1
var a = [1, 2, 3]
for k in 0..20 {
  print(x, x + 1, a, if k % 2 == 0 {
    print("here")
    x += k
    a[0] = x
    x
  } else { x })
  for (y, z) in zip(a, if k % 3 == 0 {
    print("there")
    a[1] += k
    a
  } else { a }) { print(y, z) }
}
""",
    "what no step changes": """
var s = 0.0
var n = 4
var scale = 0.5
for i in 0..30 {
  let a = f32(i)
  let b = if i % 2 == 0 { sqrt(a) * scale } else { -a }
  var x = a
  while abs(x - scale * b) > exp(-a) * scale + 1.0 {
    x = 0.5 * (x + scale * b)
    if x > 20.0 { s += a / b + f32(100 // n) }
    s += if a > b { a * b } else { gamma(b / 20.0) }
    if i == 20 { scale = 0.25 * scale }
  }
  for j in 0..i - 15 {
    let c = a * scale
    for k in 0..2 {
      if k == 1 { continue }
      s += c / a + gamma(a / (1.0 + scale)) * f32(j)
    }
    if j > 8 { break }
    scale = scale + 0.01
  }
  n = i % 3
  while n > 0 {
    s += f32(12 // n) * (a / 3.0)
    n -= 1
  }
  n = i % 4 + 1
}
print(s, scale, n)
""",
    "ranges": """
var s = 0
for k in 0..30 {
  for i in k - 20..2 * k by 7 { s = 3 * s + i }
  for i in 20..k { s += 1000000 }
}
print(s)
""",
    "enums": """
enum Shape { Round(r: f32), Square }
var s = Round(1.0)
var n = 0
for i in 0..30 {
  s = if i % 3 == 0 { Square } else { Round(f32(i)) }
  match s { Round(r) => { n += i32(r) }, Square => { n += 100 } }
}
print(s, n)
var t = Square
for i in 0..30 { t = if i % 3 == 1 { Square } else { Round(f32(i)) } }
print(t)
""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_the_same_translated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = outcome(LOOPS[name], monkeypatch, NEVER)
    for steps in (1, 2, 16):
        assert outcome(LOOPS[name], monkeypatch, steps) == expected


@pytest.mark.parametrize(
    "name",
    [
        *(
            "texts",
            "what is yielded",
            "elements of arrays",
            "records and tuples of numbers",
            "functions",
            "an assertion",
            "an assertion about texts",
        ),
        *("texts compared beside other conditions", "records that are gone through"),
    ],
)
def test_loops_on_numbers_and_texts_are_translated(
    name: str, translations: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome(LOOPS[name], monkeypatch, 1)
    assert translations
    assert all(translations)


@pytest.mark.parametrize(
    "statement",
    [
        "w = 0.5 * w",
        "x += uniform()",
        "x = shown(x)",
        "match s { Round(r) => print(r), Square => print(0) }",
        "x += sum([for k in 0..3 => x])",
    ],
)  # fmt: skip
def test_other_loops_are_not_translated(
    statement: str, translations: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"""
enum Shape {{ Round(r: f32), Square }}
host fn shown(x: f32) -> f32 {{
  print(x)
  0.5 * x
}}
var w = [1.0, 2.0]
var x = 1.0
var s = Round(1.0)
for i in 0..20 {{ {statement} }}
print(w, x, s)
"""
    expected = outcome(source, monkeypatch, NEVER)
    assert outcome(source, monkeypatch, 16) == expected
    assert translations[0] is False


def test_what_no_step_changes_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the outermost loop whose steps would repeat it; not what is read in a branch, or assigned in the loop."""
    written: list[str] = []
    write = LoopTranslator.function
    monkeypatch.setattr(
        LoopTranslator, "function", lambda self, *args: [found := write(self, *args), written.extend(found)][0]
    )
    outcome(
        """
float f64
var c = 3.0
var s = 0.0
for i in 0..20 {
  let a = f64(i)
  for j in 0..3 {
    s = s * 0.5 + c * 7.0 + a * 11.0
    if j == 1 { s += c * 13.0 }
  }
}
""",
        monkeypatch,
        1,
    )
    indents = {
        n: len(line) - len(line.lstrip()) for line in written for n in ("0.5", "7.0", "11.0", "13.0") if n in line
    }
    assert indents == {"7.0": 8, "11.0": 12, "0.5": 16, "13.0": 20}


def test_a_limit_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
var k = 0
for i in 0..5 {
  while true {
    k += 1
    if k % 50 == 0 { break }
  }
  while k > 0 { k += 1 }
}
"""
    expected = outcome(source, monkeypatch, NEVER, most_steps=60)
    assert expected[2][0][0] == "DL0909"
    for steps in (1, 16):
        assert outcome(source, monkeypatch, steps, most_steps=60) == expected


def test_a_loop_is_translated_once_for_each_type(translations: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
host fn count(n) -> i32 {
  var k = n
  var steps = 0
  while k > 0 {
    k -= 1
    steps += 1
  }
  steps
}
for i in 0..20 { print(count(i), count(i64(i))) }
"""
    assert outcome(source, monkeypatch, 4) == outcome(source, monkeypatch, NEVER)
    assert sum(translations) == 2


def test_statements_on_numbers_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: Any, **__: Any) -> Any:
        raise AssertionError("compiled by XLA")

    monkeypatch.setattr(engine.Engine, "compiled", compiled)
    source = """
fn f(x: f32) -> f32 = if x > 1.0 { sin(x) * f1(x) } else { -x }
fn f1(x: f32) -> f32 = x * x * x + x / 3.0 - exp(x)
let a = [3.0, 1.0, 2.0]
var x = a[0] + a[2]
x = if x > 2.0 { x / 2.0 } else { f(x) + f(2.0 * x) + f(3.0 * x) + f(4.0 * x) }
let (n, y) = (7 // 2, f'(x))
print(x, n, y, "{x:.3f}", x > y and n == 3)
"""
    assert outcome(source, monkeypatch, NEVER)[1]


def test_an_interrupted_loop_leaves_what_it_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    program = checked("var k = 0\nvar m = 0\nwhile true {\n  k += 1\n  m = k % 1000\n}")
    runner = HostRunner(program.session, program.module, Engine(), FileAccess(Path.cwd()), 0, print)
    # What runs in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run(program.items)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    k, m = runner.values["k"].number, runner.values["m"].number
    assert k > 16
    assert k % 1000 - m in (0, 1, -999)
