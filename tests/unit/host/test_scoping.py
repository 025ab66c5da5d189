"""What a name of host code stands for: what is written around it, whatever calls what and whenever."""

from __future__ import annotations

import pytest

from support.language import codes, ran

PROGRAMS: dict[str, tuple[str, list[str]]] = {
    "a parameter named as a constant that a function uses": (
        """fn area(r: f32) -> f32 = pi * r
host fn show(pi: f32) { print(area(1.0), pi) }
show(7.0)
""",
        ["3.1415927 7.0"],
    ),
    "a parameter named as a function that another one calls": (
        """fn f(x: f32) -> f32 = 2.0 * x
fn twice(x: f32) -> f32 = f(f(x))
host fn show(f: (f32) -> f32) { print(twice(1.0), f(1.0)) }
show(|x| 5.0 * x)
show(|x| 7.0 * x)
""",
        ["4.0 5.0", "4.0 7.0"],
    ),
    "names of a block as those of a record, a variant and a module": (
        """import math as m
record P { x: f32 }
enum E { A(x: f32), B }
fn made(x: f32) -> (P, E, f32) = (P(x = x), A(x), m.lerp(0.0, x, 0.5))
for (P, A) in zip([1.0, 2.0], [3.0, 4.0]) {
  let m = P * A
  print(made(m))
}
""",
        ["(P(x = 3.0), A(x = 3.0), 1.5)", "(P(x = 8.0), A(x = 8.0), 4.0)"],
    ),
    "a let below a function that uses a constant of that name": (
        """fn area(r: f32) -> f32 = pi * r
let pi = 3.0
print(area(1.0), pi)
""",
        ["3.1415927 3.0"],
    ),
    "a function of a block that is called nothing": (
        """for i in 0..1 {
  fn _(x: f32) -> f32 = x
  print(i)
}
""",
        ["0"],
    ),
    "a lambda has what stood around it when it was made": (
        """let k = 2.0
let f = |x: f32| k * x
for i in 0..1 {
  let k = 5.0
  print(f(1.0), k)
}
let k = 7.0
print(f(1.0), k)
""",
        ["2.0 5.0", "2.0 7.0"],
    ),
    "a lambda has what a variable was when it was made": (
        """var k = 2.0
let f = |x: f32| k * x
k = 3.0
print(f(1.0), k)
""",
        ["2.0 3.0"],
    ),
    "a lambda in another function": (
        """host fn make(c: f32) { use(|x| c * x) }
host fn use(f: (f32) -> f32) {
  let c = 100.0
  print(f(1.0), c)
}
make(1.0)
make(2.0)
""",
        ["1.0 100.0", "2.0 100.0"],
    ),
    "a lambda's own functions": (
        """fn f(x: f32) -> f32 = 2.0 * x
host fn use(g: (f32) -> f32, f: f32, pi: f32) { print(g(f)) }
use(|x| f(x) + pi, 10.0, 0.0)
""",
        ["23.141592"],
    ),
    "sizes and derivatives of what was captured": (
        """fn applied(f: (f32) -> f32) -> f32 = f(1.0)
let m = 3
for n in 1..3 {
  let f = |x: f32| x^2 * sum(ones(n)) + f32(m)
  let g = |x: f32| x * sum(ones(m))
  fn h(x: f32[m]) -> f32 = sum(x) * f32(n)
  print(f(2.0), grad(f)(2.0), applied(g), h(ones(3)))
}
""",
        ["7.0 4.0 3.0 3.0", "11.0 8.0 3.0 6.0"],
    ),
    "variables are read in their turn": (
        """var x = 1.0
var a = [1.0, 2.0]
host fn bump() -> f32 {
  x += 1.0
  a[0] += 10.0
  x
}
print(x + bump(), bump() + x, x * (x + bump() * x) + x)
print([a[0], bump(), a[0]])
print(sum(for i => a[i]) + bump() + sum([for i => a[i]]), sum(map(|v| v * x, [1.0])) + bump())
a[1] = a[0] + bump()
print(a)
""",
        ["3.0 6.0 61.0", "[31.0, 5.0, 41.0]", "102.0 13.0", "[71.0, 69.0]"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_name_stands_for(name: str) -> None:
    source, lines = PROGRAMS[name]
    assert ran(source)[1] == lines


def test_a_value_that_a_block_hides_is_not_read() -> None:
    """A function without types is looked into where it is called: the name is another's by then."""
    source = "let k = f32(2)\nhost fn show(k: f32) { print(scaled(1.0)) }\nfn scaled(x) = k * x\nshow(5.0)\n"
    assert codes(source) == [("DL0212", 2)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("let k = argmax([0.0, 1.0, 5.0])\nlet y: f32[k] = [1.0, 2.0]\nprint(k, zeros(k))\n", []),
        ("let k = argmax([0.0, 1.0, 5.0])\nlet y: f32[k] = [1.0, 2.0, 3.0]\n", [("DL0304", 2)]),
        ("host fn f(k: i32) {\n  let y: f32[k] = [1.0, 2.0]\n}\nf(2)\nf(3)\n", [("DL0304", 2)]),
        ("var k = 2\nlet y: f32[k] = [1.0, 2.0]\n", [("DL0305", 2)]),
    ],
)
def test_a_number_that_becomes_a_size_is_that_size(source: str, found: list[tuple[str, int]]) -> None:
    assert codes(source) == found
