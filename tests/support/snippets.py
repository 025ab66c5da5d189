"""Programs for the syntax tests: every form of the language, what is refused, and what means the same.

Above the first `---` of a text each line is a snippet; below it, what stands between two of them is.
"""

from __future__ import annotations

FORMS: dict[str, str] = {
    "bind, rebind": r"""
let x = 3
let (a, b) = (1, 2)
let ((a, b), _) = f(x)
let x: f32[n, 4] = read_csv("a.csv")
let f: (f64, f64) -> f64 = |a, b| a * b
var x: f64[h] = zeros(h)
x = 1.5e-3
x += 1
x -= f(x) / f'(x)
x *= 2
x /= 1_000.0
x max= y
x min= y
(a, b) = (b, a)
""",
    "in-place update": r"""
a[i, j] = 0.0
a[i] += e
a[i, j] max= e
a[i, j] min= e
a[1..n - 1] += 0.2 * lap
r.field = e
r.field[i] += e
r.field[i].inner[j, ..] *= 2.0
""",
    "function": r"""
fn sq(x: f32) -> f32 = x * x
fn now() = 3
fn f() { }
fn f(x: f32) -> f32 { x }
fn name[T: float](x: T[n, d], k: dim) -> T[n] where n > k { sum(x, axis = 1) }
fn relu[T: float](x: T[..s]) -> T[..s] = max(x, 0)
fn eye(n: dim) -> f32[n, n] { [for i, j => if i == j { 1.0 } else { 0.0 }] }
fn halves(x: f64[2 * n + 1], y: f64[n // 2, n^2 - 1]) -> f64[n] where n > 1, n % 2 == 0 = y[0]
fn solve(f: (f64) -> f64, x0: f64, tol: f64 = 1e-9, steps: i32 = 50) -> f64 { x0 }
fn cg[V: vec](A: V -o V, b: V) -> V { b }
fn move[V: vec](x: V, dx: D(V)) -> (V, D(V)) = (x, dx)
fn twice(f: (f64 -o f64) -> (f64) -> f64, g: () -> (f64, i32)) -> model.Net[d, f64[2]] = f(g)
fn layers[T](x: Block[c][k, 2 * n], y: D(m.Block[c])[k], z: T[k] -> Body[3]) -> Block[f32, 3][k] where k > 0 = x
host fn load(path: str) -> f64[3] { read_csv(path) }
pub fn f(x: f32) -> f32 = x
pub host fn f(x: f32) -> f32 = x
---
fn long[T: float](
  x: T[n, d],
  k: dim,
) -> T[n]
    where n > k {
  fn inner(y: T) -> T = y * y     # a nested function

  inner(x[0, 0])
}
---
fn long(x: f64)
    -> f64 =
  x * x
""",
    "lambda": r"""
let f = |x, y| x + y
let f = || 3
let f = |x: f64, (a, b)| x * a + b
let f = |x| |y| x + y
let f = |x| if x > 0 { x } else { 0 }
let f = linear |dx| 2.0 * dx
let L = transpose(linear |dx, dy| dx + dy)
---
let f = |x| {
  let y = x^2
  y + 1
}
---
let f = |x|
  x + 1
""",
    "branch": r"""
if c { f(x) }
let y = if a < b { a } else if a == b { 0 } else { b }
let y = 2 * if a { 1 } else { 2 } + 1
let area = match s { Circle(r) => pi * r^2, Box(w, h) => w * h, _ => 0 }
let y = match (a, b) { (0, _) => 1, (-1, true) => 2, (x, "s") => x, model.Circle(_) => 3 }
---
if c { x = 1 }

# a comment between
else { x = 2 }
---
match e {
  Circle(r) => {
    let d = 2 * r
    match d { Some(x) => x, _ => { 0 } }
  }
  Pair(Circle(r), _) => r,
  _ => 0,
}
""",
    "foreign, save": r"""
extern fn render(x: f32[n, 3]) -> f32[n]
save x
save(path, x)
""",
    "loops": r"""
let ys = while c { yield x }
for i in 0..n { }
for i in 0..n by 2 { x += i }
for x in xs { s += x }
for (x, y) in zip(xs, ys) { s += x * y }
for _ in 0..steps { if done { break } }
while c { continue }
while 0 <= x < 1 and not done { x *= 2 }
fn f(x: f64) -> f64 { return -x }
---
for i in 0..n {
  if x[i] < 0 { continue }
  return
}
---
let ys = for x in xs {
  s = cell(s, x)
  yield s
}
""",
    "comprehension": r"""
let c = [for i, j => a[i, j] * b[j]]
let c = [for i in 0..n => i]
let c = [for i in 0..n, j in 0..i => i * j]
let c = [for (x, y) in zip(xs, ys) => x * y]
let s = sum(for i in 0..n if p(i) => x[i])
let s = sum(for j if j != i => { q.mass[j] * norm(r) })
let s = max(for i => x[i], axis = 0)
let c = [for i => sum(for j => a[i, j])]
""",
    "arrays": r"""
let a = []
let a = [1.0, 2.0]
let a = [[1, 2], [3, 4]]
let y = a[i]
let y = a[-1]
let y = a[1..n, ..]
let y = a[1..]
let y = a[..3]
let y = a[..]
let y = a[0.. by 2]
let y = a[..n by 2] + a[.. by 2]
let y = a[1..n - 1 by 2, i]
let y = 2.sqrt() + 1..3
let x₀ = café + Δ_1
let y = a[..., 0]
let y = a[.., newaxis, ...]
let y = a[idx]
let y = a[a > 0, idx[2..]][0]
let y = sum(a, axis = 1) + mean(a, axis = (0, 2))
let m = clip(x, max=3, min=by)
---
let a = [
  1.0,
  2.0,
]
""",
    "operators": r"""
let y = a + b - c * d / e // f % g @ h
let y = x^2^n
let y = -x^2
let y = 2^-n
let y = a == b or a != c and not d
let y = 0 <= x < 1
let y = a > b >= c
let y = x |> f
let y = x |> f |> |v| v + 1
let y = x.f(y)
let y = f'(x)
let y = f''
let y = (|t| t^5)'''(x)
let y = grad[w, b](f)(w, b)
let y = grad[p.net](f)
let y = grad[0](f)(x)
let y = ()
let y = (a + b) * (c, d,).first()
print("{x} and {{braces}} \"quoted\"", x)
---
let y = a +
  b *
  c
---
let y = f(
  a
  - b,
  [1, 2
   , 3],
  c
)
---
let y = xs
  |> sort
  # then
  |> sum
  .sqrt()
  and
  ok
  or not ok
""",
    "records": r"""
record P { x: f64, tag: str }
record Model[d] { w: f32[d], b: f32, name: str }
record Pair[T: float, n: dim] { a: T[n], next: Model[n + 1] }
pub record Empty { }
let p = P(x = 1.0, tag = "a")
let q = p with (x = 2.0)
let q = make(p).inner with (x = 2.0, tag = "b").x
---
## A point.
record P {
  ## Metres.
  x: f64
  y: f64   # no comma needed

  ## Seconds.
  t: f64,
}
""",
    "sum types": r"""
enum Shape { Circle(r: f32), Box(w: f32, h: f32), Empty }
pub enum Option[T] { Some(x: T), None }
---
enum Tree {
  Leaf
  Node(l: Tree, r: Tree)
}
""",
    "modules": r"""
import ode
import ode (dopri5)
import ode as o
import opt (adam, sgd,)
import "./model.dfl" as model
import "./model.dfl" (Net, loss)
pub let g: f64 = 9.81
let y = model.loss(model.Net(w = 1.0))
---
float f64
import ode
---
# a comment first

float f64

let x = 1.0
""",
    "attributes": r"""
@unchecked for i in 0..n { a[i] += 1 }
@checkpoint(sqrt) while c { x *= 2 }
---
@memory(256 MiB)                      # a reason
@deterministic
pub fn f(x: f64) -> f64 = x
---
fn f(x: f64) -> f64 {
  var y = x
  @checkpoint(revolve, slots = 32)
  for _ in 0..9 { y *= x }
  ## Not a declaration, so this is an ordinary comment.
  @checkpoint(every, steps = 10) @unchecked

  while y > 1.5 { y /= 2 }
  let z = checkpoint { sin(y) }
  checkpoint {
    z + 1
  }
}
""",
    "tests": r"""
test "name" { assert f(1) == 1 }
bench "name" { f(1) }
assert c
assert c, "message {x}"
let x = with_key(k) { normal(3) }
---
## Logarithm of a sum of exponentials.
## > logsumexp([1000.0, 1000.0])
## 1000.6931

pub fn logsumexp[T: float](x: T[n]) -> T { top + log(sum(exp(x - top))) }  ## trailing
##
""",
    "rules": r"""
rule f(x) { (f(x), linear |dx| dx * f'(x)) }
rule root(f, p, x0) by implicit |x| f(x, p)
rule step by inverse unstep
rule cg(A, b, tol) by linear_solve A
---
rule logsumexp(x) {
  let y = logsumexp(x)
  (y, linear |dx| sum(for i => exp(x[i] - y) * dx[i]))
}
""",
}

CONTEXTUAL = ["as", "bench", "by", "dim", "extern", "float", "host", "linear", "max", "min", "save", "test", "where"]

REFUSED = r"""
let y = a andb
let y = a b
let y = 3x
let y = 1.
let y = .5
let y = 1.5x
let y = 0x1F
let y = 1e
x = 1 y = 2
x = y = 2
let y = (a,)
let y = 'c'
let y = a[..] ..
let y = 1 <
let y = +x
let y = a[1, 2
let y = P { x = 1 }
for i inn { }
if c { 1 } { 2 }
let y = |x| x |
fn f(x: f32) -> f32 = { x } { y }
pub x = 3
@memory(1 GiB) x = 3
import ode (dopri5
enum Shape { }
match x { }
---
let y = a
  + b
---
let y = a
  * b
---
if c
{ 1 }
---
let x = 1
float f64
"""

SAME = [
    ("-x^2", "-(x^2)"),
    ("2^3^4", "2^(3^4)"),
    ("-x * y", "(-x) * y"),
    ("a - b - c", "(a - b) - c"),
    ("a @ b + c", "(a @ b) + c"),
    ("not a == b and c", "(not (a == b)) and c"),
    ("a or b and c", "a or (b and c)"),
    ("0..n - 1", "0..(n - 1)"),
    ("x |> f |> g", "(x |> f) |> g"),
    ("a or b |> f", "(a or b) |> f"),
    ("|x| x + 1 |> f", "|x| ((x + 1) |> f)"),
    ("a |> |x| x |> f", "a |> (|x| (x |> f))"),
    ("-f'(x)^2", "-(((f')(x))^2)"),
    ("a.b[i] with (x = 1)", "((a.b)[i]) with (x = 1)"),
    ("if a { b } else { c } + d", "(if a { b } else { c }) + d"),
    ("(a\n - b)", "a - b"),
    ("a\n  .b()\n  |> c", "a.b() |> c"),
]

STATEMENTS = [
    ("f(x)\n(a, b) = c", 2),
    ("a\n-b", 2),
    ("a\n[b]", 2),
    ("a\n|x| x", 2),
    ("a\n.b", 1),
    ("a # c and\n\n# d\n\nb\n", 2),
    ("a\r\n\r\nb |>\r\nc\r\n", 2),
    ("where(c,\n a, b)\nwhere(c, a, b)", 2),
    ("f({\n a\n b\n}, [\n c\n])", 1),
]


def snippets(text: str) -> list[str]:
    """The snippets of a text."""
    lines, *blocks = text.strip("\n").split("\n---\n")
    return lines.splitlines() + blocks


def forms() -> list[str]:
    """One snippet or more for every form."""
    return [snippet for text in FORMS.values() for snippet in snippets(text)]
