"""Loops whose length only the run knows, what they leave in the middle of, and data they write over."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

from hall_of_wrong_gradients import Entry

X3, X4 = np.array([0.7, -0.4, 1.3]), np.array([0.9, 1.7, 0.3, 1.2])


def around_a_loop(x: Any, n: int) -> Any:
    g, t = x * mp.sin(x), mp.mpf(0)
    for i in range(n):
        t += x * (i + 1)
    return t * g + g


def chain(x: Any, counts: Any) -> Any:
    angle, p, k = mp.mpf(0), mp.mpf(0), 0
    for count in counts:
        for _ in range(count):
            angle += x[k] * mp.cos(angle)
            k += 1
        p += mp.sin(angle)
    return p


def greatest_of_each(x: Any, c: Any) -> Any:
    return sum(max(v * k * (i + 1) for i, k in enumerate(c) if k != 0) ** 2 for v in x)


def shifted_in_place(x: Any, n: int) -> Any:
    a = list(x)
    for _ in range(n):
        for i in range(len(a)):
            a[i] = a[i] * a[i - 1] + 1
    return sum(v * v for v in a)


def matrix_by_parts(x: Any, n: int) -> Any:
    m = np.array([[mp.mpf(0)] * 2] * 2, object)
    for k in range(n):
        for i in range(2):
            for j in range(2):
                m[i, j] = m[i, j] + x[i] * x[j] * x[k % 3]
                m[i, j] = m[i, j] * x[2] + m[j, i]
    return np.sum(m * m)


def length_of_rest(x: Any, n: int) -> Any:
    return mp.log(mp.sqrt(sum(x[i] * x[i] for i in range(n)))) * x[0]


def turned(x: Any, n: int) -> Any:
    y = x
    for _ in range(n):
        y = mp.cos(x) * y
    return y


def twice_in_one(x: Any, n: int) -> Any:
    y = x
    for j in range(n):
        for i in range(3):
            y += x * x * i
        for i in range(j):
            y = y * mp.sin(x) + i
    return y


def layers(x: Any, w: Any) -> Any:
    a = list(x)
    for layer in w:
        a = [mp.tanh(sum(row[j] * a[j] for j in range(len(a)))) for row in layer]
    return sum((k + 1) * v for k, v in enumerate(a))


def edge_aware(x: Any, r: int) -> Any:
    out = [mp.mpf(0)] * 2
    for d in range(-r, r + 1):
        weight = mp.exp(-((x[2 + d] - x[2]) ** 2))
        out[0] += weight * x[2 + d]
        out[1] += weight
    return out[0] / out[1] + out[0]


def by_loop_variable(x: Any, y: Any, n: int) -> Any:
    s, total = x, mp.mpf(0)
    for t in range(n):
        s = x * s + mp.mpf("0.1")
        total += y[t] * s * s
    return total


def refilled(x: Any, c: float, n: int) -> Any:
    u = list(x)
    for _ in range(n):
        v = [c * z for z in u]
        u = [z + w**2 for z, w in zip(u, v, strict=True)]
    return sum(z * z for z in u)


def traces_of_inverses(x: Any) -> Any:
    total = mp.mpf(0)
    for k in range(2):
        p = x[:, k : k + 2]
        (a, b), (_, d) = p.T @ p
        total += (a + d) / (a * d - b * b)
    return total


def kepler(x: Any, dt: float) -> Any:
    mean = dt / x[0] ** mp.mpf("1.5")
    return mp.findroot(lambda e: e - x[1] * mp.sin(e) - mean, mean)


def marched(x: Any, limit: float) -> Any:
    colour, opacity = mp.mpf(0), mp.mpf(0)
    for k, v in enumerate(x):
        if v < 0:
            continue
        colour += (1 - opacity) * v * (k + 1)
        opacity += (1 - opacity) * v
        if opacity > limit:
            break
    return colour


def third_in_a_loop(x: Any, n: int) -> Any:
    return mp.diff(lambda t: t ** (n + 1), x, 2)


def branching(x: Any, n: int) -> Any:
    for i in range(n):
        x = x * mp.mpf("1.25") if i % 2 else x + mp.sin(x)
    return x


def integrated(x: Any, end: float) -> Any:
    y, t, h = x, mp.mpf(0), mp.mpf("0.25")
    while t < end:
        h = min(h, end - t)
        y, t = y + h * mp.sin(y), t + h
    return y


LOOPS = [
    Entry("warp_1694", "NVIDIA/warp#1694", "a variable from before a loop, used after it, lost its adjoint",
          """fn f(x: f64, n: i32) -> f64 {
            let g = x * sin(x)
            var t = 0.0
            for i in 0..n { t += x * f64(i + 1) }
            t * g + g
          }""", (0.8, 5), around_a_loop),
    Entry("warp_1293", "NVIDIA/warp#1293", "nested loops of run-time lengths doubled the outer adjoint",
          """fn f(x: f64[n], counts: i32[m]) -> f64 {
            var angle = 0.0
            var p = 0.0
            var k = 0
            for c in counts {
              for _ in 0..c {
                angle += x[k] * cos(angle)
                k += 1
              }
              p += sin(angle)
            }
            p
          }""", (X4, np.array([1, 0, 2, 1], np.int32)), chain),
    Entry("warp_1552", "NVIDIA/warp#1552", "a maximum over steps that `continue` gave every output the same winner",
          """fn greatest(x: f64, c: f64[m], n: i32) -> f64 {
            var best = -1e20
            for i in 0..n {
              if c[i] == 0.0 { continue }
              let v = x * c[i] * f64(i + 1)
              if v > best { best = v }
            }
            best
          }
          fn f(x: f64[n], c: f64[m]) -> f64 = sum(for i => greatest(x[i], c, i32(m))^2)""",
          (X3, np.array([1.0, 0.0, -2.0, 0.5])), greatest_of_each),
    Entry("warp_1697", "NVIDIA/warp#1697", "elements of a local matrix, written more than once",
          """fn f(x: f64[3], n: i32) -> f64 {
            var m: f64[2, 2] = zeros(2, 2)
            for k in 0..n {
              for i in 0..2 {
                for j in 0..2 {
                  m[i, j] = m[i, j] + x[i] * x[j] * x[k % 3]
                  m[i, j] = m[i, j] * x[2] + m[j, i]
                }
              }
            }
            sum(m^2)
          }""", (X3, 4), matrix_by_parts),
    Entry("warp_1294", "NVIDIA/warp#1294", "an array that a kernel reads and writes in place",
          """fn f(x: f64[n], steps: i32) -> f64 {
            var a = x
            for _ in 0..steps {
              for i in 0..n { a[i] = a[i] * (if i == 0 { a[n - 1] } else { a[i - 1] }) + 1.0 }
            }
            sum(a^2)
          }""", (X3, 3), shifted_in_place),
    Entry("warp_1350", "NVIDIA/warp#1350", "the adjoint read what an array held later, not what was used",
          """fn f(x: f64[n]) -> f64 {
            var a = x
            let y = sum(a^3)
            for i in 0..n { a[i] = 100.0 }
            y + a[0]
          }""", (X3,), lambda x: sum(v**3 for v in x) + 100),
    Entry("warp_1754", "NVIDIA/warp#1754", "what follows an accumulation was differentiated at its initial value",
          """fn length(x: f64[m], n: i32) -> f64 {
            var t = 0.0
            for i in 0..n { t += x[i] * x[i] }
            log(sqrt(t))
          }
          fn f(x: f64[m], n: i32) -> f64 = length(x, n) * x[0]""", (X4, 3), length_of_rest),
    Entry("taichi_8356", "taichi-dev/taichi#8356", "sums into an array lost the factor of the outer loop",
          """fn f(x: f64[n], m: i32) -> f64 {
            var a: f64[5] = zeros(5)
            for i in 0..m { for j in 0..n { a[i] += x[j]^2 } }
            sum(a)
          }""", (X3, 5), lambda x, m: m * sum(v * v for v in x)),
    Entry("taichi_2505", "taichi-dev/taichi#2505", "a variable replaced by a multiple of itself",
          """fn f(x: f64, n: i32) -> f64 {
            var y = x
            for _ in 0..n { y = cos(x) * y }
            y
          }""", (0.6, 6), turned),
    Entry("taichi_3003", "taichi-dev/taichi#3003", "two loops, one after the other, inside a third",
          """fn f(x: f64, n: i32) -> f64 {
            var y = x
            for j in 0..n {
              for i in 0..3 { y += x * x * f64(i) }
              for i in 0..j { y = y * sin(x) + f64(i) }
            }
            y
          }""", (0.6, 4), twice_in_one),
    Entry("slang_13000", "shader-slang/slang#13000", "the input's gradient of dense layers written as nested loops",
          """fn f(x: f64[n], w: f64[k, n, n]) -> f64 {
            var a = x
            for layer in 0..i32(k) {
              let before = a
              for i in 0..n {
                var s = 0.0
                for j in 0..n { s += w[layer, i, j] * before[j] }
                a[i] = tanh(s)
              }
            }
            sum(for i => f64(i + 1) * a[i])
          }""", (X3, np.sin(np.arange(27.0)).reshape(3, 3, 3)), layers),
    Entry("slang_6394", "shader-slang/slang#6394", "what stands after a loop with a `return` that is not taken",
          """fn f(x: f64[n], key: i32) -> f64 {
            for i in 0..n {
              if key > i32(n) { return 0.0 }
              if x[i] > 10.0 { return x[i] }
            }
            x[0] * x[1]
          }""", (X3, 0), lambda x, key: x[0] * x[1]),
    Entry("slangpy_1051_1055", "shader-slang/slangpy#1051 and #1055",
          "a loop that starts below zero crashed; one with weights from the data, and a vector for a result, was wrong",
          """fn sums(x: f64[5], r: i32) -> f64[2] {
            var out: f64[2] = zeros(2)
            for d in -r..r + 1 {
              let weight = exp(-(x[2 + d] - x[2])^2)
              out[0] += weight * x[2 + d]
              out[1] += weight
            }
            out
          }
          fn f(x: f64[5], r: i32) -> f64 {
            let s = sums(x, r)
            s[0] / s[1] + s[0]
          }""", (np.array([0.7, -0.4, 1.3, 0.2, 0.9]), 2), edge_aware),
    Entry("reactant_3119", "EnzymeAD/Reactant.jl#3119", "a loop with checkpoints, indexing by its variable",
          """fn f(x: f64, y: f64[m], n: i32) -> f64 {
            var s = x
            var total = 0.0
            var t = 0
            while t < n {
              s = x * s + 0.1
              total += y[t] * s * s
              t += 1
            }
            total
          }""", (0.9, np.sin(np.arange(1.0, 61.0)), 60), by_loop_variable),
    Entry("enzyme_jl_432", "EnzymeAD/Enzyme.jl#432", "a buffer that each round clears and fills again",
          """fn f(x: f64[n], c: f64, rounds: i32) -> f64 {
            var u = x
            var v = zeros_like(x)
            for _ in 0..rounds {
              for i in 0..n { v[i] = 0.0 }
              for i in 0..n { v[i] += c * u[i] }
              for i in 0..n { u[i] += v[i]^2 }
            }
            sum(u^2)
          }""", (X3, 0.75, 2), refilled),
    Entry("enzyme_jl_3004", "EnzymeAD/Enzyme.jl#3004", "2 by 2 inverses were right in the first step of a loop only",
          """fn f(x: f64[m, 3]) -> f64 {
            var total = 0.0
            for k in 0..2 {
              let p = x[.., k..k + 2]
              let g = transpose(p) @ p
              total += (g[0, 0] + g[1, 1]) / (g[0, 0] * g[1, 1] - g[0, 1] * g[1, 0])
            }
            total
          }""", (np.cos(np.arange(12.0)).reshape(4, 3),), traces_of_inverses),
    Entry("rust_152724", "rust-lang/rust#152724", "Newton's method for Kepler's equation: the modes disagreed",
          """fn f(x: f64[2], dt: f64) -> f64 {
            let mean = dt / x[0]^1.5
            var e = mean
            var step = 1.0
            var k = 0
            while abs(step) > 1e-12 and k < 50 {
              step = (e - x[1] * sin(e) - mean) / (1.0 - x[1] * cos(e))
              e -= step
              k += 1
            }
            e
          }""", (np.array([1.0, 0.5]), 1.5707963267948966), kepler),
    Entry("taichi_1074_2387", "taichi-dev/taichi#1074 and #2387", "`continue` and `break`: a ray that stops early",
          """fn f(x: f64[n], limit: f64) -> f64 {
            var colour = 0.0
            var opacity = 0.0
            for (k, v) in enumerate(x) {
              if v < 0.0 { continue }
              colour += (1.0 - opacity) * v * f64(k + 1)
              opacity += (1.0 - opacity) * v
              if opacity > limit { break }
            }
            colour
          }""", (np.array([0.3, -0.2, 0.4, 0.5, 0.6, 0.7]), 0.7), marched),
    Entry("tensorflow_14101_35012", "tensorflow/tensorflow#14101 and #35012",
          "derivatives taken inside a loop, and higher ones of a loop, failed",
          """fn power(x: f64, n: i32) -> f64 {
            var y = x
            for _ in 0..n { y *= x }
            y
          }
          fn f(x: f64, n: i32) -> f64 {
            var y = 0.0
            for _ in 0..2 { y += 0.5 * power''(x, n) }
            y
          }""", (1.3, 4), third_in_a_loop),
    Entry("jax_mps_194", "tillahoffmann/jax-mps#194", "a branch inside a loop: what the taken branch saved got lost",
          """fn f(x: f64, n: i32) -> f64 {
            var y = x
            for i in 0..n { y = if i % 2 == 0 { y + sin(y) } else { y * 1.25 } }
            y
          }""", (0.2, 7), branching),
    Entry("jax_4473", "jax-ml/jax#4473", "an integration whose number of steps only the run knows",
          """fn f(x: f64, end: f64) -> f64 {
            var y = x
            var t = 0.0
            while t < end {
              let h = min(0.25, end - t)
              y += h * sin(y)
              t += h
            }
            y
          }""", (0.7, 1.8), integrated),
]  # fmt: skip
