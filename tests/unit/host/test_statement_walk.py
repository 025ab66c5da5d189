"""Host statements: how loops and functions are left, what loops yield, calls inside expressions, recursion."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import pytest
from msgspec import field

from difflang.base.diagnostics import Diagnostic
from difflang.driver.run_program import run_program
from difflang.elaborate.reports.name_errors import HOST_ONLY_NAMES
from difflang.execution.engine import ArrayProgram, Engine
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.host.data.file_access import FileAccess
from difflang.ir.graph import Graph
from difflang.ir.interpreter import TextSink, discard_text
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity
from support.language import HERE, checked, codes, ran

SHAPES = """enum Shape { Circle(r: f32), Box(w: f32, h: f32), Empty }
fn area(s: Shape) -> f32 = match s { Circle(r) => r, Box(w, h) => w * h, Empty => 0.0 }
"""
PROGRAMS: dict[str, tuple[str, list[str]]] = {
    "assignments in branches and blocks of an expression": (
        """let c = true
var (x, a) = (3, [1.0, 2.0])
let y = if c {
  x = 5
  x
} else { x }
print(x + if x > 4 {
  x += 10
  x
} else { 0 }, x, y)
let z = {
  a[0] = 7.0
  for i in 0..3 { x += i }
  sum(a)
}
let w = match x { 18 => {
  x = 0
  1
}, _ => 2 }
print(z, w, x, a)
""",
        ["20 15 5", "9.0 1 0 [7.0, 2.0]"],
    ),
    "the value of an assignment before its indices, from left to right": (
        """record Item { x: i32 }
record Pair { v: Item[3], k: i32 }
host fn shown(i: i32) -> i32 {
  print("index {i}")
  i
}
var (n, a) = (1, [[1, 2], [3, 4]])
a[n, { n += 1
  n }] = { n -= 1
  5 } + n
print(n, a[n], a[0])
a[shown(1), shown(0)] += shown(7)
print(a[1])
var p = Pair(v = [Item(1), Item(2), Item(3)], k = 0)
(p.v[{ n += 1
  n }].x, p.k) = (8, n)
print(n, p.v.x, p.k)
""",
        ["1 [3, 4] [1, 5]", "index 7", "index 1", "index 0", "[10, 4]", "2 [1, 2, 8] 1"],
    ),
    "early return": (
        """host fn sign(x: f32) -> str {
  if x < 0.0 { return "minus" }
  if x == 0.0 { return "zero" }
  "plus"
}
print(sign(-1.0), sign(0.0), sign(2.0))
""",
        ["minus zero plus"],
    ),
    "return out of loops": (
        """host fn first(x: f32[n], limit: f32) -> i32 {
  for i in 0..n {
    var k = 0
    while true {
      if x[i] > limit { return i }
      k += 1
      if k > 2 { break }
    }
  }
  return -1
}
print(first([1.0, 5.0, 7.0], 4.0), first([1.0], 4.0))
""",
        ["1 -1"],
    ),
    "return of nothing": ("host fn f(n: i32) {\n  if n > 1 { return }\n  print(n)\n}\nf(1)\nf(2)\n", ["1"]),
    "recursion": (
        """host fn hanoi(n: i32, a: str, b: str, c: str) -> i32 {
  if n == 0 { return 0 }
  let before = hanoi(n - 1, a, c, b)
  if n == 1 { print("{a} -> {c}") }
  before + 1 + hanoi(n - 1, b, a, c)
}
print(hanoi(3, "a", "b", "c"))
""",
        ["a -> c", "c -> b", "b -> a", "a -> c", "7"],
    ),
    "mutual recursion": (
        """host fn even(n: i32) -> bool { if n == 0 { true } else { odd(n - 1) } }
host fn odd(n: i32) -> bool { if n == 0 { false } else { even(n - 1) } }
print(even(10), odd(7), even(3))
""",
        ["true true false"],
    ),
    "recursion without a result": (
        "host fn count(n: i32) {\n  if n > 0 {\n    print(n)\n    count(n - 1)\n  }\n}\ncount(2)\n",
        ["2", "1"],
    ),
    "recursion on arrays": (
        """host fn halves(x: f32[n]) -> f32 {
  if n == 1 { return x[0] }
  let k = n // 2
  halves(x[..k]) + halves(x[k..])
}
print(halves([1.0, 2.0, 3.0, 4.0]))
""",
        ["10.0"],
    ),
    "inside an expression": (
        """host fn loud(x: f32) -> f32 {
  print("got {x}")
  x + 1.0
}
print(2.0 * loud(1.0) + loud(3.0), [loud(5.0), 0.0][0])
let (a, b) = (loud(7.0), 1)
""",
        ["got 1.0", "got 3.0", "got 5.0", "8.0 6.0", "got 7.0"],
    ),
    "only where it is needed": (
        """host fn loud(x: bool) -> bool {
  print(x)
  x
}
print(false and loud(true), true or loud(true), true and loud(true))
let x = if true { 1.0 } else { f32(clock()) }
print(x, if 1 > 2 { loud(true) } else { loud(false) })
""",
        ["true", "false true true", "false", "1.0 false"],
    ),
    "arguments by name, and defaults": (
        """host fn f(x: f64, times: i32 = 2, tag: str = "x") -> str { "{tag}{f64(times) * x}" }
print(f(1), f(times = 3, x = 2), f(1, tag = "y"))
""",
        ["x2.0 x6.0 y2.0"],
    ),
    "a literal takes the type of the parameter, and of the result": (
        """host fn f(x: f64, n: i64) -> f64 {
  if n > 1 { return 1 }
  x
}
print(f(0.1, 1) + f64(0), f(0.1, 2) + f64(0))
""",
        ["0.1 1.0"],
    ),
    "a generic host function": (
        """host fn both[T: float](x: T[n], y: T) -> T { sum(x) + y }
print(both([1.0, 2.0], 3.0), both([f64(1)], 0.1))
""",
        ["6.0 1.1"],
    ),
    "loops that yield": (
        """let xs = for i in 0..3 { yield 2.0 * f32(i) }
let (a, b) = for (i, x) in enumerate(xs) {
  let y = x + 1.0
  yield (i, [x, y])
}
var n = 0
let ks = while n < 5 {
  n += 1
  if n == 2 { continue }
  if n == 4 { break }
  yield n
}
print(xs, a, b, ks)
""",
        ["[0.0, 2.0, 4.0] [0, 1, 2] [[0.0, 1.0],\n [2.0, 3.0],\n [4.0, 5.0]] [1, 3]"],
    ),
    "a loop that yields is a function's value": (
        "host fn f(n: i32) -> f32[k] {\n  for i in 0..n { yield f32(i) }\n}\nprint(f(3), sum(f(4)), f(0))\n",
        ["[0.0, 1.0, 2.0] 6.0 []"],
    ),
    "a yield in an inner loop is the inner loop's": (
        "let a = for i in 0..2 {\n  let b = for j in 0..3 { yield i * j }\n  yield b\n}\nprint(a)\n",
        ["[[0, 0, 0],\n [0, 1, 2]]"],
    ),
    "several side by side": (
        """for (x, (y, k)) in zip([1.0, 2.0], zip([3, 4], 5..7)) { print(x, y, k) }
for (i, (x, y)) in progress(enumerate(zip([1.0, 2.0], [[3], [4]]))) { print(i, x, y) }
""",
        ["1.0 3 5", "2.0 4 6", "0 1.0 [3]", "1 2.0 [4]"],
    ),
    "texts change": (
        'var s = ""\nfor i in 0..3 { s = "{s}{i}," }\nprint(s)\nlet t = if s == "0,1,2," { "same" } else { "other" }\nprint(t)\n',
        ["0,1,2,", "same"],
    ),
    "a function inside a block": (
        "for k in 1..3 {\n  fn times(x: f32) -> f32 = x * f32(k)\n  print(times(2.0), grad(times)(1.0))\n}\n",
        ["2.0 1.0", "4.0 2.0"],
    ),
    "a name of one's own": (
        "fn plot(x: f32) -> f32 = x + 1.0\nfn load(x: f32) -> f32 = x\nlet image = 3.0\nprint(plot(1.0), load(image))\n",
        ["2.0 3.0"],
    ),
    "records on the way": (
        """record P { x: f32[2], name: str }
host fn moved(p: P, by: f32) -> P { P(x = p.x + by, name = "{p.name}+") }
var p = P(x = [1.0, 2.0], name = "a")
for i in 0..2 { p = moved(p, 1.0) }
print(p)
""",
        ['P(x = [3.0, 4.0], name = "a++")'],
    ),
    "a part of a variable": (
        "host fn f(x: f32) -> f32 = x + 1.0\nvar a = [1.0, 2.0]\na[0] = f(3.0)\na[1] += f(a[0])\nprint(a)\n",
        ["[4.0, 7.0]"],
    ),
    "sizes decide": (
        """host fn most(x: f32[n]) -> f32 {
  if n == 0 { return -inf }
  max(x)
}
host fn least(x: f32[n]) -> f32 { if n > 0 { min(x) } else { inf } }
print(most(zeros(0)), most([1.0, 2.0]), least(zeros(0)), least([1.0, 2.0]))
""",
        ["-inf 2.0 inf 1.0"],
    ),
    "everywhere in an expression": (
        """host fn h(x: f32) -> f32 { x + 1.0 }
host fn t(n: i32) -> str { "n{n}" }
record P { x: f32, s: str }
let a = [1.0, 2.0, 3.0]
var i = 0
while h(f32(i)) < 4.0 { i += 1 }
assert h(1.0) > 0.0, "never {h(1.0)}"
print(i, -h(1.0), h(h(1.0)), 0.0 < h(0.0) < 2.0, t(3) == "n3", (h(1.0), t(1)))
print(a[i32(h(0.0))], sum([for j in 0..2 => a[j] * 2.0]) + h(0.0), with_key(key(i32(h(1.0)))) { uniform() } < 1.0)
print(P(x = h(1.0), s = t(5)) with (x = h(2.0)))
""",
        ['3 -2.0 3.0 true true (2.0, "n1")', "2.0 7.0 true", 'P(x = 3.0, s = "n5")'],
    ),
    "yields of records": (
        'record P { x: f32, tag: str }\nlet p = for i in 0..3 { yield P(x = f32(i), tag = "a") }\nprint(p, sum(p.x))\n',
        ['P(x = [0.0, 1.0, 2.0], tag = ["a", "a", "a"]) 3.0'],
    ),
    "yields of enums": (
        f"{SHAPES}let s = for i in 0..4 {{\n  if i == 3 {{ break }}\n  if i == 0 {{ yield Circle(1.0) }} else {{ yield Box(f32(i), 2.0) }}\n}}\n"
        "print(sum(for x in s => area(x)))\nlet none = for i in 0..0 { yield Circle(1.0) }\nprint(sum(for x in none => area(x)))\n",
        ["7.0", "0.0"],
    ),
    "through enums": (
        f"{SHAPES}for (i, s) in enumerate([Empty, Circle(2.0), Box(1.0, 3.0)]) {{\n  match s {{\n    Circle(r) => print(i, r)\n    _ => print(i, s, area(s))\n  }}\n}}\n",
        ["0 Empty 0.0", "1 2.0", "2 Box(w = 1.0, h = 3.0) 3.0"],
    ),
    "piped": ("host fn show(x: f32) { print(x) }\n3.0 |> show\n[1.0, 2.0] |> sum |> show\n", ["3.0", "3.0"]),
    "called like a method": (
        "host fn plus(x: f32, y: f32) -> f32 { x + y }\nprint(1.0.plus(2.0).plus(3.0) + 1.0)\n",
        ["7.0"],
    ),
    "a block that is recomputed is a block": (
        "var x = 3.0\ncheckpoint {\n  x = x + 1.0\n}\nprint(x)\ncheckpoint { print(x * 2.0) }\n",
        ["4.0", "8.0"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_host_programs(name: str) -> None:
    program, printed = PROGRAMS[name]
    assert ran(program)[1] == printed


def test_recursion_is_as_deep_as_one_likes() -> None:
    program = "host fn f(n: i32) -> i32 { if n == 0 { 0 } else { 1 + f(n - 1) } }\nprint(f(1000))\n"
    assert ran(program)[1] == ["1000"]


def test_what_is_returned_is_wrong() -> None:
    assert codes("host fn f() -> f32 { return nosuch }\nprint(f())\n") == [("DL0201", 1)]


def test_a_recursion_without_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difflang.host.run_statements.MOST_CALLS", 300)
    assert codes("host fn f(n: i32) -> i32 = f(n + 1)\nprint(f(0))\n") == [("DL1003", 1)]


WRONG: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "a result of another type": ("host fn f() -> f32 {\n  1\n  true\n}\n", [("DL0323", 2), ("DL0304", 3)]),
    "an early result of another type": ("host fn f(n: i32) -> f32 {\n  if n > 1 { return n }\n  1.0\n}\n", [("DL0304", 2)]),
    "no result": ("host fn f() -> f32 { print(1) }\n", [("DL0304", 1)]),
    "ends of two types": ("host fn f(n: i32) {\n  if n > 1 { return 1.0 }\n  n\n}\nf(1)\n", [("DL0327", 3)]),
    "what calls itself declares its result": ("host fn f(n: i32) { if n > 0 { f(n - 1) } \n n }\n", [("DL0304", 1)]),
    "break outside": ("break\n", [("DL0501", 1)]),
    "break in a function called in a loop": ("host fn f() { break }\nfor i in 0..2 { f() }\n", [("DL0501", 1)]),
    "return outside": ("return 1\n", [("DL0501", 1)]),
    "after a return": ("host fn f() -> i32 {\n  return 1\n  print(2)\n}\n", [("DL0506", 3)]),
    "yields of two types": ("let a = for i in 0..2 {\n  if i == 0 { yield 1 } else { yield true }\n}\n", [("DL0317", 1)]),
    "yields of ranges": ("let a = for i in 0..2 { yield 0..i }\n", [("DL0313", 1)]),
    "a loop through a record": ("record P { x: f32[2], y: f32[2] }\nfor a in P(x = zeros(2), y = zeros(2)) { print(a) }\n", [("DL0329", 2)]),
    "a host function in a lambda": ("host fn h(x: f32) -> f32 = x\nprint(vmap(|x| h(x))([1.0]))\n", [("DL0322", 2)]),
    "a host function in a comprehension": ("host fn h(x: f32) -> f32 = x\nprint([for i in 0..2 => h(1.0)])\n", [("DL0322", 2)]),
    "its derivative": ("host fn h(x: f32) -> f32 = x\nprint(grad(h)(1.0))\n", [("DL0322", 2)]),
    "a derivative through it": ("host fn h(x: f32) -> f32 = x\nfn f(x: f32) -> f32 = h(x)\nprint(grad(f)(1.0))\n", [("DL0322", 2)]),
    "a derivative of a host builtin": ("fn f(x: f32) -> f64 = clock()\n", [("DL0322", 1)]),
    "too many arguments": ("host fn f(x: f32) { print(x) }\nf(1.0, 2.0)\nf()\nf(y = 1.0)\n", [("DL0319", 2), ("DL0319", 3), ("DL0319", 4)]),
    "branches of two types": ("let x = if clock() > 1.0 { 1.0 } else { true }\n", [("DL0327", 1)]),
    "this call has no value": ("host fn f() { print(1) }\nprint(1 + f())\n", [("DL0313", 2)]),
    "lengths beside each other": ("for (a, b) in zip([1, 2], [1, 2, 3]) { print(a) }\n", [("DL0330", 1)]),
    "a variable keeps its type": ("host fn f() -> f32 { 1.0 }\nvar x = 1\nx = f()\n", [("DL0304", 3)]),
    "a size that is no whole number": ("var k = 2.7\nprint(zeros(k))\n", [("DL0305", 2)]),
    "what a text decides is checked on both sides": (
        'let mode = arg("mode", default = "a")\nlet k = if mode == "b" { 1.0 } else { 2.0 }\nprint(k + true)\n',
        [("DL0311", 3)],
    ),
    "a host fn in a block": ("for i in 0..2 {\n  host fn f() { print(1) }\n  f()\n}\n", [("DL0221", 2)]),
    "in a branch not taken": ("if 1 > 2 {\n  for i in 0..2 { print(missing) }\n}\n", [("DL0201", 2)]),
    "where a text decides": ('let mode = arg("mode", default = "a")\nif mode == "b" {\n  print(missing)\n}\n', [("DL0201", 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_before_anything_runs(name: str) -> None:
    program, expected = WRONG[name]
    lines: list[str] = []
    assert codes('print("began")\n' + program) == [(code, line + 1) for code, line in expected], lines


def test_units_are_compiled_once() -> None:
    """Also those with a written type, and inside functions that are called again."""
    from difflang.host import compiled_units

    made: list[object] = []
    stage = compiled_units.stage_unit

    def counted(*args: object, **kwargs: object) -> object:
        made.append(args)
        return stage(*args, **kwargs)  # type: ignore[arg-type]

    def staged(steps: int) -> int:
        made.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("difflang.host.bindings.stage_unit", counted)
            ran(
                "host fn f(x: f32[n]) -> f32 {\n  let y: f32[n] = 2.0 * x\n  let z: f32 = sum(y)\n  z + 1.0\n}\n"
                f"for i in 0..{steps} {{\n  let a: f32[k] = [1.0, f32(i)]\n  let b = f(a) + 1.0\n}}\n"
            )
        return len(made)

    assert staged(2) == staged(9)


def test_a_function_that_only_the_host_has_is_known_as_such() -> None:
    """Inside a `fn` each has a way out of its own."""
    assert set(HOST_BUILTINS) - {"print"} == set(HOST_ONLY_NAMES)


class Counted(Engine, frozen=True):
    """Remembers every program that is made."""

    made: list[Graph] = field(default_factory=list[Graph])

    def program(
        self,
        graph: Graph,
        *,
        guard: bool = False,
        capacity: Capacity = INITIAL_CAPACITY,
        on_print: TextSink = discard_text,
    ) -> ArrayProgram:
        self.made.append(graph)
        return Engine("interpret").program(graph, guard=guard, capacity=capacity, on_print=on_print)


CALLS = """fn f(x: f32[n]) -> f32 = sum(for i in 0..n => sin(x[i]))
let x = [1.0, 2.0]
let other = [2.0, 3.0]
let longer = [1.0, 2.0, 3.0]
var y = 0.0
"""


@pytest.mark.parametrize(
    ("call", "more"),
    [("let b = f(x)", 0), ("let b = f(other)", 0), ("y = f(other)", 0), ("let b = f(longer)", 1), ("let b = -f(x)", 1)],
)
def test_statements_that_are_the_same_program_compile_once(call: str, more: int) -> None:
    before, after = Counted("interpret"), Counted("interpret")
    ran(f"{CALLS}let a = f(x)\n", before)
    ran(f"{CALLS}let a = f(x)\n{call}\n", after)
    assert len(after.made) == len(before.made) + more


KEPT = """grad(|x| {
  var y = x
  @checkpoint(offload)
  for i in 0..30 { y = sin(sum(x) * y) * exp(y) * 0.1 + x }
  sum(y * y)
})([1.0, 2.0])
"""


def test_what_is_said_of_a_statement_is_said_of_its_own_lines() -> None:
    """Also where another one is the same program."""
    said: list[Diagnostic] = []
    run_program(checked(f"let a = {KEPT}let b = {KEPT}"), Engine(), FileAccess(HERE), 0, print, said.extend)
    assert [d.span.position[0] for d in said if d.code == "DL0602" and d.span] == [3, 9]
