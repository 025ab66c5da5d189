"""`optim`: each step against its formula in NumPy, on arrays and on what else has changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec import field

import difflang
from difflang.execution.engine import ArrayProgram, Engine
from difflang.ir.graph import Graph
from difflang.ir.interpreter import TextSink, discard_text
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity
from support.language import answer
from support.values import compare

GIVEN = """import optim (sgd, momentum, moments, adam)
record Model { w: f64[3], bias: (f64, f64), name: str, n: i32 }
fn loss(m: Model) -> f64 { let (b, c) = m.bias
  sum(exp(m.w) * [1.0, 2.0, 3.0]) + (b - 2)^2 + b * c + c^4 }
fn model(x: f64[5]) -> Model = Model(w = x[..3], bias = (x[3], x[4]), name = "m", n = 3)
fn numbers(m: Model) -> f64[5] { let (b, c) = m.bias
  concat(m.w, [b, c]) }
fn flat(x: f64[5]) -> f64 = loss(model(x))
let x0 = [0.3, -0.2, 0.5, 1.0, -1.0]
"""
X0 = np.array([0.3, -0.2, 0.5, 1.0, -1.0])
STEPS = 20


def gradient(x: np.ndarray) -> np.ndarray:
    w, (b, c) = np.exp(x[:3]) * [1, 2, 3], x[3:]
    return np.array([*w, 2 * (b - 2) + c, b + 4 * c**3])


Gradient = Callable[[np.ndarray], np.ndarray]


def sgd(x: np.ndarray, gradient: Gradient = gradient) -> np.ndarray:
    for _ in range(STEPS):
        x = x - 0.01 * gradient(x)
    return x


def momentum(x: np.ndarray, gradient: Gradient = gradient) -> np.ndarray:
    v = np.zeros_like(x)
    for _ in range(STEPS):
        v = 0.8 * v + gradient(x)
        x = x - 0.01 * v
    return x


def adam(x: np.ndarray, gradient: Gradient = gradient) -> np.ndarray:
    """As in optax: the moments are divided by 1 - βᵏ, and ε stands outside the root."""
    m, s = np.zeros_like(x), np.zeros_like(x)
    for k in range(1, STEPS + 1):
        g = gradient(x)
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        x = x - 0.05 * (m / (1 - 0.9**k)) / (np.sqrt(s / (1 - 0.999**k)) + 1e-8)
    return x


METHODS: dict[str, tuple[str, str, Callable[..., np.ndarray]]] = {
    "sgd": ("0", "p = sgd(p, g, 0.01)", sgd),
    "momentum": ("zero(p)", "(p, s) = momentum(p, g, s, rate = 0.01, keep = 0.8)", momentum),
    "adam": ("moments(p)", "(p, s) = adam(p, g, s, rate = 0.05)", adam),
}


def trained(fn: str, type: str, loss: str, start: str, step: str) -> str:
    """A function that moves a `type` down the gradient of `loss`."""
    return f"""fn {fn}(p0: {type}) -> {type} {{
  var p = p0
  var s = {start}
  for _ in 0..{STEPS} {{
    let g = grad({loss})(p)
    {step}
  }}
  p
}}
"""


@pytest.mark.parametrize("name", METHODS)
def test_many_steps(name: str) -> None:
    """The same numbers on an array and on a record, whose text and integer stay."""
    start, step, expected = METHODS[name]
    source = trained("array", "f64[5]", "flat", start, step) + trained("model_", "Model", "loss", start, step)
    kept = 'fn kept(m: Model) -> i32 = if m.name == "m" { m.n } else { 0 }\n'
    ask = "(array(x0), numbers(model_(model(x0))), kept(model_(model(x0))))"
    flat, numbers, count = answer(ask, GIVEN + source + kept)
    compare(flat, expected(X0), 1e-12)
    compare(numbers, expected(X0), 1e-12)
    assert int(count) == 3


CHOSEN = """import optim (sgd, momentum, moments, adam)
enum Part { Curve(a: f64, b: f64, n: i32), Line(w: f64[2]), Fixed }
record Whole { part: Part, act: (f64) -> f64, k: f64 }
fn part(i: i32) -> Part = if i == 0 { Curve(0.5, -1.0, 3) } else if i == 1 { Line([0.5, -1.0]) } else { Fixed }
fn whole(i: i32) -> Whole {
  let s = 0.7
  Whole(part(i), if i > 0 { |x| s * x } else { sin }, 1.5)
}
fn bend(p: Part) -> f64 = match p { Curve(a, b, _) => exp(a) * b^2, Line(v) => sum(v^4), Fixed => 0.0 }
fn loss(w: Whole) -> f64 = w.act(w.k) + bend(w.part)
fn numbers(w: Whole) -> f64[4] {
  let v = match w.part { Curve(a, b, n) => [a, b + f64(n) - 3], Line(v) => v, Fixed => [0.5, -1.0] }
  concat(v, [w.act(0.5), w.k])
}
"""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("i", range(3))
def test_what_the_run_chooses(name: str, i: int) -> None:
    """An enum moves by the changes of the variant that it is, a function by those of what it captured."""

    def gradient(x: np.ndarray) -> np.ndarray:
        a, b, s, k = x
        part = [(np.exp(a) * b**2, 2 * np.exp(a) * b), (4 * a**3, 4 * b**3), (0.0, 0.0)][i]
        return np.array([*part, k if i else 0.0, s if i else np.cos(k)])

    start, step, expected = METHODS[name]
    *line, s, k = expected(np.array([0.5, -1.0, 0.7, 1.5]), gradient)
    found = answer(f"numbers(train(whole({i})))", CHOSEN + trained("train", "Whole", "loss", start, step))
    compare(found, np.array([*line, 0.5 * s if i else np.sin(0.5), k]), 1e-12)


def test_a_gradient_through_training() -> None:
    """Of the last loss in the step's length, against differences: an optimizer is a function like any other."""
    f = """fn after(rate: f64) -> f64 {
  var p = x0
  var s = moments(p)
  for _ in 0..10 { (p, s) = adam(p, grad(flat)(p), s, rate = rate) }
  flat(p)
}
"""
    slope, up, down = map(float, answer("(after'(0.03), after(0.03 + 1e-6), after(0.03 - 1e-6))", GIVEN + f))
    assert slope == pytest.approx((up - down) / 2e-6, rel=1e-7)


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


def test_steps_on_the_host_are_one_program() -> None:
    """The types of the moments are settled by the first step: the later ones need nothing new."""
    counts: list[int] = []
    for steps in (3, 30):
        engine = Counted("interpret")
        f = f"var p = f32(x0)\nvar s = moments(p)\nfor i in 0..{steps} {{ (p, s) = adam(p, 2.0 * p, s, rate = 0.1) }}\n"
        p, count = answer("(p, s.count)", GIVEN + f, engine)
        assert np.asarray(p).dtype == np.float32 and int(count) == steps
        counts.append(len(engine.made))
    assert counts[0] == counts[1]


def test_from_python() -> None:
    """What an optimizer remembers goes out and comes in again, of an array and of a record."""
    module: Any = difflang.loads("""
import optim (adam, Moments, moments)
record Model { w: f64[2], n: i32 }
fn start(p: f64[n]) -> Moments[f64[n]] = moments(p)
fn step(p: f64[n], s: Moments[f64[n]]) -> (f64[n], Moments[f64[n]]) = adam(p, 2 * p, s, rate = 0.1)
fn begin(m: Model) -> Moments[D(Model)] = moments(m)
fn train(m: Model, s: Moments[D(Model)]) -> (Model, Moments[D(Model)]) = adam(m, grad(|m| sum(m.w^2))(m), s, rate = 0.1)
""")
    p = np.ones(2)
    m = module.Model(w=p, n=3)
    s, t = module.start(p), module.begin(m)
    for _ in range(3):
        p, s = module.step(p, s)
        m, t = module.train(m, t)
    assert type(s) is module.Moments and type(t) is module.Moments
    np.testing.assert_allclose(m.w, p, rtol=1e-14)
    np.testing.assert_allclose(t.square.w, s.square, rtol=1e-14)
