"""Random well-typed programs of the language: a function `f` of three numbers and an integer to a number.

Every expression stays of moderate size and away from singular points, so that derivatives can be compared with
differences. A program is drawn from a seed; the same seed gives the same program with other names, with statements
that nothing uses, or with parts of expressions bound by a `let` first.
"""

from __future__ import annotations

from support.random_expressions import INT, F
from support.random_recursion import Recursion

HEADER = """float f64
record P[n] { x: f64, v: f64[n], k: i32, tag: str }
enum S { One(x: f64), Two(x: f64, v: f64[2], k: i32), Nil }
fn reading(s: S) -> f64 = match s {
  One(x) => 0.5 * x^2
  Two(x, v, 0) => 0.4 * x * v[1]
  Two(x, v, k) => 0.3 * x - 0.2 * v[0]^2 + 0.1 * f64(k)
  Nil => 0.1
}
fn turned(s: S, t: f64) -> S = match s {
  One(x) => Two(0.8 * x, [0.5 * x, 0.6 * t], 1)
  Two(x, v, k) => if v[0] > 0.4 * t { One(0.6 * v[1] + 0.3 * x) } else if k > 1 { Nil } else { Two(0.9 * t, v, k + 1) }
  Nil => One(0.6 * t)
}
record Q { x: f64, v: f64[2], k: i32 }
fn turning(q: Q, t: f64) -> Q = q with (x = 0.5 * q.x + 0.3 * t, v = [0.6 * q.v[1], 0.5 * t], k = q.k + 1)
fn weighed(q: Q) -> f64 = 0.4 * q.x + 0.3 * q.v[0] * q.v[1] + 0.1 * f64(q.k)
fn turned_all(s: S[n], t: f64) -> S[n] = [for x in s => turned(x, t)]
fn turning_all(qs: Q[n], t: f64) -> Q[n] {
  var out = qs
  for (i, q) in enumerate(qs) {
    out[i].x = 0.5 * q.x + 0.3 * t
    out[i].v[1] *= 0.6
    if q.k > 2 { out[i] = turning(q, t) }
  }
  out
}
fn weighed_all(qs: Q[n]) -> f64 = sum(for q in qs => weighed(q)) / f64(n + 1)
fn picked[T](xs: T[n], i: i32) -> T where n > 0 = xs[i % i32(n)]
fn lift(g: (f64) -> f64, x: f64) -> f64 = 0.5 * g(0.5 * x)
fn scaled(k: f64) -> (f64) -> f64 = |t| 0.5 * k * t
fn energy(v: f64[n]) -> f64 = sum(v * v) / f64(n + 1)
fn blend[T: float](a: T[..s], b: T[..s]) -> T[..s] = (a + b) / 2
fn tail(v: f64[n + 1]) -> f64[n] = v[1..]
fn spread(v: f64[n]) -> f64 = std(concat(v, [2.5, -1.9]))
fn matvec(m: f64[a, b], v: f64[b]) -> f64[a] = [for i => sum(for j => m[i, j] * v[j]) / f64(b)]
fn moved(p: P[n], s: f64) -> P[n] {
  var q = p
  q.x = 0.5 * q.x + 0.3 * s
  q.v[0] += 0.2 * s
  if p.tag == "twice" { q.x *= 1.5 }
  q
}
"""


GROUPS = (0, 0, 0, 0, 0, 0, 1, 2)  # how many sets of functions that call each other there are in a program


class Writer(Recursion):
    """Writes one program. `prefix` names its variables, `dead` adds what nothing uses, `floated` binds parts first."""

    def program(self, name: str = "f", size: int = 8) -> str:
        """The text of one function after `HEADER`, below what it calls that calls itself."""
        self.above = []
        for i in range(self.draw.choice(GROUPS)):
            self.group(f"{name}_{self.prefix}{i}")
        self.calls = 2
        params = [self.fresh(F, "x") for _ in range(3)] + [self.fresh(INT, "k")]
        for _ in range(size):
            self.statement()
        total = [f"{self.weight()} * {n}" for n in self.names.of(F)]
        total += [f"reading({n})" for n in self.names.of("S")]
        total += [f"mean({n})" for t in self.names.known for n in self.names.known[t] if t.startswith("f64[")]
        total += [
            f"0.2 * ({n}.x + mean({n}.v))" for t in self.names.known if t.startswith("P[") for n in self.names.of(t)
        ]
        total += [f"weighed_all({n})" for n in self.of_arrays("Q")]
        total += [f"mean(map(reading, {n}))" for n in self.of_arrays("S")]
        total += [self.called(function, 1) for function in self.recursive]
        head = f"fn {name}({params[0]}: f64, {params[1]}: f64, {params[2]}: f64, {params[3]}: i32) -> f64 {{"
        return "\n".join([*self.above, head, *self.lines, f"  ({' + '.join(total)}) / {len(total)}", "}", ""])


def random_program(seed: int, name: str = "f", **how: object) -> str:
    """One function, after `HEADER`. The options are those of `Writer`."""
    return Writer(seed, **how).program(name)  # type: ignore[arg-type]
