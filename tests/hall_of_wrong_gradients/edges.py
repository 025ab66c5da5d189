"""Kinks, ties, masks, windows, places named twice, nested derivatives, batches, and paths through integers."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

from hall_of_wrong_gradients import Entry

X3 = np.array([0.7, -0.4, 1.3])
ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
POINTS = np.array([[1.0, 2.0, 3.0], [0.2, 4.0, 6.0], [0.5, -1.0, 2.0]])
MIXED = np.array([0.5, -0.25, 1.5, -2.0])


def inverse_distances(x: Any) -> Any:
    pairs = [(i, j) for i in range(len(x)) for j in range(len(x)) if i != j]
    return sum(1 / mp.sqrt(sum((a - b) ** 2 for a, b in zip(x[i], x[j], strict=True))) for i, j in pairs)


def windows(x: Any, n: int) -> Any:
    a, carry = list(x), [mp.mpf(0)] * 2
    for i in range(n):
        carry = [c + a[i + j] for j, c in enumerate(carry)]
        a[i + 1 : i + 3] = [mp.sin(c) for c in carry]
    return sum(v * v for v in a)


def until_constant(x: Any) -> Any:
    y = x
    for _ in range(len(x)):
        y = [min(max(y[max(i - 1, 0) : i + 2]), x[i] + 1) for i in range(len(x))]
    return sum(v * v * (k + 1) for k, v in enumerate(y))


def product_updates(x: Any, places: Any) -> Any:
    a = [mp.mpf(1)] * 3
    for i, v in zip(places, x, strict=True):
        a[i] *= v
    return sum((k + 1) * v for k, v in enumerate(a))


def windows_of(x: Any, starts: Any) -> Any:
    return sum(mp.sin((k + 1) * sum(x[s : s + 2])) for k, s in enumerate(starts))


EDGES = [
    Entry("jax_2947", "jax-ml/jax#2947", "a batch ran both branches, and one has a loop that never ends there",
          """fn shrunk(x: f64) -> f64 {
            if x > 0.0 {
              var c = 1.0
              while c < x or x <= 0.0 { c *= 2.0 }
              x * x / c
            } else {
              var c = 1.0
              while c < -x or x > 0.0 { c *= 2.0 }
              c * x * x
            }
          }
          fn f(x: f64[n]) -> f64 = sum(vmap(shrunk)(x))""",
          (np.array([3.0, -3.0, 6.5, -0.5]),), lambda x: x[0]**2 / 4 + 4 * x[1]**2 + x[2]**2 / 8 + x[3]**2),
    Entry("reactant_1406", "EnzymeAD/Reactant.jl#1406", "a while loop that cuts windows out and writes them back",
          """fn f(x: f64[8], n: i32) -> f64 {
            var a = x
            var carry: f64[2] = zeros(2)
            for i in 0..n {
              let k = i + 1
              carry += a[i..i + 2]
              a[k..k + 2] = sin(carry)
            }
            sum(a^2)
          }""", (np.cos(np.arange(8.0)), 5), windows),
    Entry("keras_18957", "keras-team/keras#18957", "a dilation until nothing changes: no reverse mode in JAX",
          """fn step(y: f64[n], x: f64[n]) -> f64[n] =
            [for i in 0..n => min(max(for j in 0..n if abs(i - j) <= 1 => y[j]), x[i] + 1.0)]
          fn f(x: f64[n]) -> f64 {
            var y = x
            var next = step(y, x)
            while any(next != y) {
              y = next
              next = step(y, x)
            }
            sum(for i => f64(i + 1) * y[i]^2)
          }""", (np.array([3.0, 0.5, 0.25, 2.2, -1.0]),), until_constant),
    Entry("jax_5798", "jax-ml/jax#5798", "the side of a `where` that is not chosen has an infinite slope",
          "fn f(x: f64) -> f64 = where(x < 1.0, x, sqrt(x))", (0.0,), gradient=1.0),
    Entry("jax_2630", "jax-ml/jax#2630", "the side that is not chosen is infinite itself",
          "fn f(x: f64) -> f64 = where(x > 0.0, 0.0, x * inf)", (1.0,), gradient=0.0, hessian=[[0.0]]),
    Entry("jax_383", "jax-ml/jax#383 and #2447 (of #347 and #1052)", "lengths of rows, masked where they are short",
          """fn f(x: f64[n, 2]) -> f64 {
            let r = sqrt(sum(x * x, axis = 1))
            sum(where(r > 0.5, r, ones_like(r)))
          }""", (ROWS,), gradient=[[0.2**0.5, 0.8**0.5], [0.6, 0.8], [0.0, 0.0]]),
    Entry("jax_3407", "jax-ml/jax#3407", "inverse distances of all pairs, the diagonal masked",
          """fn f(x: f64[n, 3]) -> f64 {
            let d = [for i, j => norm(x[i] - x[j])]
            sum(for i, j => if i == j { 0.0 } else { 1.0 / d[i, j] })
          }""", (POINTS,), inverse_distances),
    Entry("jax_23842", "jax-ml/jax#23842", "a masked entry of a log of a sum overflows",
          "fn f(x: f64[n], on: bool[n]) -> f64 = log(sum(for i if on[i] => exp(x[i])))",
          (np.array([0.5, 1000.0, 0.25]), np.array([True, False, True])),
          lambda x, on: mp.log(mp.exp(x[0]) + mp.exp(x[2]))),
    Entry("jax_3058", "jax-ml/jax#3058 and pytorch/pytorch#2421", "the norm at zero",
          "fn f(x: f64[n]) -> f64 = norm(x) + x[0]", (np.zeros(2),), gradient=[1.0, 0.0]),
    Entry("jax_4177", "jax-ml/jax#4177 and #21723", "the square of a norm at zero",
          "fn f(x: f64[n]) -> f64 = norm(x)^2", (np.zeros(2),), gradient=[0.0, 0.0]),
    Entry("jax_28262", "jax-ml/jax#28262", "an element written twice counts with what was written last",
          """fn f(x: f64[n]) -> f64 {
            var y = zeros_like(x)
            y[0] = sqrt(x[0])
            y[0] = x[0] * x[0] - 1.0
            sum(y)
          }""", (np.array([4.0, 2.0]),), lambda x: x[0] * x[0] - 1),
    Entry("jax_1104", "jax-ml/jax#1104", "an update at places computed from the input",
          """fn f(x: f64[3]) -> f64 {
            var y: f64[3] = zeros(3)
            y[i32(x) - 1] = x^2
            sum(for i => f64(i + 1) * y[i])
          }""", (np.array([3.5, 1.25, 2.75]),), lambda x: 3 * x[0]**2 + x[1]**2 + 2 * x[2]**2),
    Entry("jax_12469", "jax-ml/jax#12469", "updates that multiply, several in one place",
          """fn f(x: f64[n], places: i32[n]) -> f64 {
            var a: f64[3] = ones(3)
            for (i, v) in zip(places, x) { a[i] *= v }
            sum(for i => f64(i + 1) * a[i])
          }""", (MIXED, np.array([1, 2, 1, 1], np.int32)), product_updates),
    Entry("pytorch_473", "pytorch/pytorch#473 and #146299", "of rows copied to one place the last one counts",
          """fn f(x: f64[3, 2], places: i32[3]) -> f64 {
            var a: f64[4, 2] = zeros(4, 2)
            a[places] = x
            sum(a^2)
          }""", (ROWS + 1, np.array([2, 0, 2], np.int32)), lambda x, i: sum(v * v for v in [*x[1], *x[2]])),
    Entry("pytorch_1631", "pytorch/pytorch#1631 and #1528", "an element read twice is counted twice",
          "fn f(x: f64[n], places: i32[m]) -> f64 = sum(for i => f64(i + 1) * x[places][i]^2)",
          (X3, np.array([0, 2, 0, 0], np.int32)), lambda x, i: 8 * x[0]**2 + 2 * x[2]**2),
    Entry("pytorch_57006", "pytorch/pytorch#57006", "a number written twice into one place is counted once",
          """fn f(x: f64, a0: f64[n], places: i32[m]) -> f64 {
            var a = a0
            for i in places { a[i] = x }
            sum(a^2)
          }""", (0.7, X3, np.array([2, 2], np.int32)), lambda x, a, i: a[0]**2 + a[1]**2 + x * x),
    Entry("pytorch_56734", "pytorch/pytorch#56734", "the greater of two equals: half each",
          "fn f(x: f64[2]) -> f64 = max(x[0], x[1]) + 3.0 * min(x[0], x[1])", (np.ones(2),), gradient=[2.0, 2.0]),
    Entry("enzyme_2393", "EnzymeAD/Enzyme#2393", "logaddexp of equals, which a maximum inside must not tilt",
          "fn f(x: f64[2]) -> f64 = logaddexp(x[0], x[1])", (np.ones(2),),
          lambda x: mp.log(mp.exp(x[0]) + mp.exp(x[1]))),
    Entry("pytorch_773", "pytorch/pytorch#773 and #194699", "a product with one zero",
          "fn f(x: f64[n]) -> f64 = prod(x)", (np.array([2.0, 0.0, 3.0, 1e13]),), lambda x: mp.fprod(x)),
    Entry("pytorch_106789", "pytorch/pytorch#106789", "the second derivative of a product with two zeros",
          "fn f(x: f64[n]) -> f64 = prod(x)", (np.array([2.0, 3.0, 0.0, 0.0]),), lambda x: mp.fprod(x)),
    Entry("pytorch_27134", "pytorch/pytorch#27134", "a power of zero, in its exponent",
          "fn f(x: f64[2], a: f64[2]) -> f64 = sum(a ^ x)", (np.ones(2), np.array([0.0, 2.0])),
          lambda x, a: mp.mpf(2) ** x[1]),
    Entry("pytorch_8940", "pytorch/pytorch#8940", "the power with exponent zero, at zero",
          "fn f(x: f64[2], p: f64) -> f64 = sum(x ^ p)", (np.array([0.0, 1.0]), 0.0), gradient=[0.0, 0.0]),
    Entry("cppad_92", "coin-or/CppAD#92", "a power between 1 and 2, at zero",
          "fn f(x: f64) -> f64 = x ^ 1.875", (0.0,), gradient=0.0),
    Entry("forwarddiff_83", "JuliaDiff/ForwardDiff.jl#83", "perturbations of two levels are told apart",
          "fn f(x: f64) -> f64 = x * (|y| x + y)'(1.0) + (|v| sum(v) * (|y| y * norm(v))'(1.0))([x, x])", (1.5,),
          lambda x: x + 2 * x * mp.sqrt(2) * x),
    Entry("reversediff_45", "JuliaDiff/ReverseDiff.jl#45", "the same in reverse mode",
          "fn f(x: f64) -> f64 = x * grad(|y| x * y)(1.0)", (4.0,), lambda x: x * x),
    Entry("forwarddiff_238", "JuliaDiff/ForwardDiff.jl#238", "mixed derivatives of a Lagrangian",
          """fn energy(q: f64[2], p: f64[2]) -> f64 = 0.5 * dot(p, p) * q[0] - 9.8 * q[1] + dot(q, p)^2
          fn f(x: f64[2], p: f64[2]) -> f64 = sum(jacobian(|q| grad[1](energy)(q, p))(x)) + x[0]""",
          (np.array([1.0, 2.0]), np.array([3.0, 4.0])),
          lambda q, p: p[0] + p[1] + 2 * (p[0] + p[1]) * (q[0] + q[1]) + 4 * (q[0] * p[0] + q[1] * p[1]) + q[0]),
    Entry("enzyme_jl_3346", "EnzymeAD/Enzyme.jl#3346", "forward mode over a gradient that forward mode took",
          """fn square(x: f64[n]) -> f64 = sum(x^3)
          fn f(x: f64[n], v: f64[n]) -> f64 = dot(v, jvp(jacfwd(square))(x, v) |> |(g, h)| h + g)""",
          (X3, np.array([1.0, 0.5, -2.0])),
          lambda x, v: sum(6 * a * b * b + 3 * a * a * b for a, b in zip(x, v, strict=True))),
    Entry("tensorflow_127753", "tensorflow/tensorflow#127753", "an operand that is used in two ways",
          """fn cube(x: f64) -> f64 {
            let m = sin(x)
            (m * m) * m
          }
          fn f(x: f64) -> f64 = jvp(|t| jvp(cube)(t, 1.0) |> |(a, b)| b)(x, 1.0) |> |(a, b)| b""", (0.7,),
          lambda x: 6 * mp.sin(x) * mp.cos(x)**2 - 3 * mp.sin(x)**3),
    Entry("enzyme_jax_2916", "EnzymeAD/Enzyme-JAX#2916", "a batch of windows took the first one's start for all",
          """fn f(x: f64[n], starts: i32[m]) -> f64 {
            let sums = vmap(|s| sum(x[s..s + 2]))(starts)
            sum(for i => sin(f64(i + 1) * sums[i]))
          }""", (np.cos(np.arange(6.0)), np.array([3, 0, 4, 3], np.int32)), windows_of),
    Entry("integers", "a classic", "a path through an integer contributes nothing",
          "fn f(x: f64) -> f64 = x * f64(i32(x)) + floor(x) * x^2", (2.5,), lambda x: 2 * x + 2 * x * x),
]  # fmt: skip
