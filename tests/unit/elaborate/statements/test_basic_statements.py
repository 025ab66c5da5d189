"""Statements and expressions mean what the language's description says: source, call, value."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import numpy as np
import pytest

from support.language import answer, codes
from support.values import compare

# Declarations, an expression, its value.
BINDING = [
    ("fn f(x: f64) -> f64 {\n let y = x + 1.0\n y * y\n}", "f(2.0)", 9.0),
    ("fn f(x: f64) -> f64 {\n let y = x\n let y = y + 1.0\n y\n}", "f(2.0)", 3.0),
    ("fn f(x: f64) -> f64 {\n let (a, b) = (x, 2.0 * x)\n b - a\n}", "f(3.0)", 3.0),
    ("fn f(x: f64) -> f64 {\n let (a, (b, _)) = (x, (2.0 * x, 1.0))\n b - a\n}", "f(3.0)", 3.0),
    ("fn f(x: f64) -> f64 {\n var a = x\n var b = 1.0\n (a, b) = (b, a)\n a - b\n}", "f(3.0)", -2.0),
    ("fn f(x: f64) -> f64 {\n var (a, b) = (x, 1.0)\n a += b\n b -= a\n b *= 2.0\n b /= 4.0\n a * b\n}", "f(3.0)", -6.0),
    ("fn f(x: f64) -> f64 {\n var a = x\n a max= 2.0\n a min= 5.0\n a\n}", "(f(1.0), f(3.0), f(9.0))", (2.0, 3.0, 5.0)),
    ("fn f(x: f64) -> f64 {\n var a: f64 = 1\n a = x\n a\n}", "f(4.0)", 4.0),
    ("fn f(x: f64) -> f64 {\n let y: f64 = 2\n x * y\n}", "f(4.0)", 8.0),
    ("fn f(x: f64) -> f64 {\n let a = { let b = x * 2.0\n b + 1.0 }\n a\n}", "f(4.0)", 9.0),
    ("fn f(x: f64) -> f64 {\n var a = x\n { a = a * 2.0 }\n a\n}", "f(4.0)", 8.0),
    ("fn f(x: f64) -> f64 {\n var a = x\n { let a = 7.0\n a }\n a\n}", "f(4.0)", 4.0),
    ("fn f(x: f64) -> f64 = x * x", "f(4.0)", 16.0),
    ("fn f(x: f64, tol: f64 = 0.5) -> f64 = x * tol", "(f(4.0), f(4.0, 2.0), f(4.0, tol = 3.0), f(tol = 1.0, x = 2.0))",
     (2.0, 8.0, 12.0, 2.0)),
    ("fn f(x: f64) = (x, x + 1.0)", "f(1.0)", (1.0, 2.0)),
    ("fn f(x: f64) -> f64 { return x + 1.0 }", "f(1.0)", 2.0),
    ("fn f(x: f64) -> f64 {\n fn g(y: f64) -> f64 = x * y\n g(2.0) + g(3.0)\n}", "f(5.0)", 25.0),
    ("fn f(x: f64) -> f64 {\n var k = x\n fn g(y: f64) -> f64 = k * y\n k = 0.0\n g(2.0)\n}", "f(5.0)", 10.0),
    ("fn f(x: f64) -> f64 {\n fn g(y: f64) -> f64 {\n fn h(z: f64) -> f64 = x + y + z\n h(1.0)\n }\n g(2.0)\n}", "f(5.0)", 8.0),
    ("let k = 3.0\nfn f(x: f64) -> f64 = k * x", "f(2.0)", 6.0),
    ("let k = [1.0, 2.0]\nfn f(x: f64) -> f64 = sum(k) * x", "f(2.0)", 6.0),
    ("let n = 3\nfn f(x: f64) -> f64 = sum(fill(n, x))", "f(2.0)", 6.0),
]  # fmt: skip

UPDATES = [
    ("fn f(a: f64[3]) -> f64[3] {\n var b = a\n b[1] = 9.0\n b\n}", "f([1.0, 2.0, 3.0])", [1, 9, 3]),
    ("fn f(a: f64[3]) -> f64[3] {\n var b = a\n b[1] = 9.0\n a\n}", "f([1.0, 2.0, 3.0])", [1, 2, 3]),
    ("fn f(a: f64[3]) -> f64[3] {\n var b = a\n let c = b\n b[1] = 9.0\n c\n}", "f([1.0, 2.0, 3.0])", [1, 2, 3]),
    ("fn f(a: f64[3]) -> f64[3] {\n var b = a\n b[-1] += 1.0\n b[0] -= 1.0\n b[1] *= 5.0\n b[2] /= 2.0\n b\n}", "f([1.0, 2.0, 3.0])", [0, 10, 2]),
    ("fn f(a: f64[3], i: i32) -> f64[3] {\n var b = a\n b[i] max= 2.5\n b[i] min= 2.75\n b\n}", "f([1.0, 2.0, 3.0], 0)", [2.5, 2, 3]),
    ("fn f(a: f64[3], i: i32) -> f64[3] {\n var b = a\n b[i] = 7.0\n b\n}", "f([1.0, 2.0, 3.0], 2)", [1, 2, 7]),
    ("fn f(a: f64[4]) -> f64[4] {\n var b = a\n b[1..3] = [7.0, 8.0]\n b\n}", "f([1.0, 2.0, 3.0, 4.0])", [1, 7, 8, 4]),
    ("fn f(a: f64[4]) -> f64[4] {\n var b = a\n b[1..] = 0.0\n b\n}", "f([1.0, 2.0, 3.0, 4.0])", [1, 0, 0, 0]),
    # What a block on the right writes stays, and is what is added to.
    ("fn f(x: f64) -> f64[2] {\n var a = [1.0, 2.0]\n a[0] += { a = [4.0, 5.0]\n x }\n a\n}", "f(3.0)", [7, 5]),
    ("fn f(x: f64) -> f64 {\n var t = 1.0\n t += { t = 10.0\n x }\n t\n}", "f(3.0)", 13.0),
    ("record P { u: f64, v: f64 }\nfn f(x: f64) -> (f64, f64) {\n var p = P(u = 1.0, v = 2.0)\n p.u += { p.v = 5.0\n x }\n (p.u, p.v)\n}", "f(3.0)", (4.0, 5.0)),
    # What a block in an index writes stays, too.
    ("fn f(x: f64) -> f64[2] {\n var a = [1.0, 2.0]\n a[{ a[0] = x\n 1 }] += 5.0\n a\n}", "f(3.0)", [3, 7]),
    ("fn f(x: f64) -> f64[2] {\n var a = [1.0, 2.0]\n a[{ a = [x, x]\n 1 }] = 5.0\n a\n}", "f(3.0)", [3, 5]),
    ("record P { u: f64[2], k: i32 }\nfn f(x: f64) -> (f64[2], i32) {\n var p = P(u = [1.0, 2.0], k = 0)\n p.u[{ p.k = 1\n p.k }] *= x\n (p.u, p.k)\n}", "f(3.0)", ([1, 6], 1)),
    ("fn f(x: f64) -> f64[2, 2] {\n var a: f64[2, 2] = ones(2, 2)\n a[{ a[0, 0] = x\n 1 }][{ a[0, 1] = x\n 0 }] += 5.0\n a\n}", "f(3.0)", [[3, 3], [6, 1]]),
    ("fn f(x: f64[n]) -> f64[n] {\n var a = x\n for i in 0..n { a[{ a[0] += 1.0\n i }] += 10.0 }\n a\n}", "f([1.0, 2.0])", [13, 12]),
    ("fn f(a: f64[4]) -> f64[4] {\n var b = a\n b[..2] += 1.0\n b\n}", "f([1.0, 2.0, 3.0, 4.0])", [2, 3, 3, 4]),
    ("fn f(a: f64[4]) -> f64[4] {\n var b = a\n b[0.. by 2] += [10.0, 20.0]\n b\n}", "f([1.0, 2.0, 3.0, 4.0])", [11, 2, 23, 4]),
    ("fn f(a: f64[4]) -> f64[4] {\n var b = a\n b[1.. by 2] = 0.0\n b\n}", "f([1.0, 2.0, 3.0, 4.0])", [1, 0, 3, 0]),
    ("fn f(a: f64[4], i: i32) -> f64[4] {\n var b = a\n b[i..i + 2] = [7.0, 8.0]\n b\n}", "f([1.0, 2.0, 3.0, 4.0], 2)", [1, 2, 7, 8]),
    ("fn f(a: f64[4], i: i32) -> f64[4] {\n var b = a\n b[i..i + 2] *= 2.0\n b\n}", "f([1.0, 2.0, 3.0, 4.0], 1)", [1, 4, 6, 4]),
    ("fn f(a: f64[2, 2]) -> f64[2, 2] {\n var b = a\n b[0, 1] = 9.0\n b[1] += 1.0\n b\n}", "f([[1.0, 2.0], [3.0, 4.0]])", [[1, 9], [4, 5]]),
    ("fn f(a: f64[2, 2]) -> f64[2, 2] {\n var b = a\n b[.., 0] = [7.0, 8.0]\n b\n}", "f([[1.0, 2.0], [3.0, 4.0]])", [[7, 2], [8, 4]]),
    ("fn f(a: f64[2, 2]) -> f64[2, 2] {\n var b = a\n b[..., 1] = 0.0\n b\n}", "f([[1.0, 2.0], [3.0, 4.0]])", [[1, 0], [3, 0]]),
    ("fn f(a: f64[2, 2]) -> f64[2, 2] {\n var b = a\n b[1][0] = 0.5\n b\n}", "f([[1.0, 2.0], [3.0, 4.0]])", [[1, 2], [0.5, 4]]),
    ("fn f(a: f64[3], i: i32[4]) -> f64[3] {\n var b = a\n b[i] += [1.0, 2.0, 3.0, 4.0]\n b\n}", "f([0.0, 0.0, 0.0], [0, 2, 0, 2])", [4, 0, 6]),
    ("fn f(a: f64[3], i: i32[4]) -> f64[3] {\n var b = a\n b[i] -= 1.0\n b\n}", "f([0.0, 0.0, 0.0], [0, 2, 0, 2])", [-2, 0, -2]),
    ("fn f(a: f64[3], i: i32[4]) -> f64[3] {\n var b = a\n b[i] = [1.0, 2.0, 3.0, 4.0]\n b\n}", "f([0.0, 0.0, 0.0], [0, 2, 0, 2])", [3, 0, 4]),
    ("fn f(a: f64[2, 3], i: i32[2]) -> f64[2, 3] {\n var b = a\n b[.., i] += [[1.0, 2.0], [3.0, 4.0]]\n b\n}", "f(zeros(2, 3), [2, 2])",
     [[0, 0, 3], [0, 0, 7]]),
    ("fn f(a: f64[2, 3], i: i32[2]) -> f64[2, 3] {\n var b = a\n b[i, i] = 5.0\n b\n}", "f(zeros(2, 3), [0, 1])", [[5, 0, 0], [0, 5, 0]]),
    ("record P { x: f64, tag: str }\nfn f(x: f64) -> P {\n var p = P(x = x, tag = \"a\")\n p.x = 2.0 * x\n p.x += 1.0\n p\n}", "f(3.0).x", 7.0),
    ("record P { x: f64, tag: str }\nfn f(x: f64) -> f64 {\n var p = P(x = x, tag = \"a\")\n let q = p\n p.x = 0.0\n q.x\n}", "f(3.0)", 3.0),
    ("record P { v: f64[3], k: i32 }\nfn f(p: P) -> f64[3] {\n var q = p\n q.v[1] += 5.0\n q.v[q.k] = 7.0\n q.v\n}", "f(P(v = [1.0, 2.0, 3.0], k = 2))", [1, 7, 7]),
    ("record A { x: f64 }\nrecord B { a: A, y: f64 }\nfn f(x: f64) -> f64 {\n var b = B(a = A(x = x), y = 1.0)\n b.a.x *= 3.0\n b.a.x + b.y\n}", "f(2.0)", 7.0),
    ("record P { x: f64, y: f64 }\nfn f(x: f64) -> f64 {\n let p = P(x = x, y = 1.0)\n let q = p with (x = 5.0, y = p.x)\n q.x + 10.0 * q.y + 100.0 * p.x\n}", "f(2.0)", 225.0),
    ("fn f(x: f64) -> f64 {\n var a = [x, x]\n var b = 1.0\n (a[0], b) = (b, a[1])\n a[0] + 10.0 * b\n}", "f(3.0)", 31.0),
    ("fn f(x: f64[3]) -> f64[3] {\n var h = zeros(3)\n for i in 0..3 { h[2 - i] += x[i] }\n h\n}", "f([1.0, 2.0, 3.0])", [3, 2, 1]),
    ("fn f(x: f64[3], b: i32[3]) -> f64[2] {\n var m = fill(2, -inf)\n for i in 0..3 { m[b[i]] max= x[i] }\n m\n}", "f([1.0, 5.0, 3.0], [0, 1, 1])", [1, 5]),
]  # fmt: skip

BRANCHES = [
    ("fn f(x: f64) -> f64 {\n if x > 0.0 { x } else { -x }\n}", "(f(2.0), f(-3.0))", (2.0, 3.0)),
    ("fn f(x: f64) -> f64 {\n if x > 1.0 { 1.0 } else if x > 0.0 { x } else { 0.0 }\n}", "(f(2.0), f(0.25), f(-3.0))", (1.0, 0.25, 0.0)),
    ("fn f(x: f64) -> f64 {\n var y = x\n if x > 0.0 { y = y * 2.0 }\n y\n}", "(f(2.0), f(-3.0))", (4.0, -3.0)),
    ("fn f(x: f64) -> f64 {\n var y = x\n var z = 1.0\n if x > 0.0 { y = 0.0 } else { z = 5.0 }\n y + 10.0 * z\n}", "(f(2.0), f(-3.0))", (10.0, 47.0)),
    ("fn f(x: f64) -> (f64, f64) {\n if x > 0.0 { (x, 1.0) } else { (0.0, x) }\n}", "f(-2.0)", (0.0, -2.0)),
    ("fn f(x: f64) -> f64 {\n let y = if x > 0.0 { let z = x * x\n z } else { 0.0 }\n y + 1.0\n}", "(f(2.0), f(-2.0))", (5.0, 1.0)),
    ("fn f(x: f64) -> f64 = 1.0 + if x > 0.0 { x } else { 2.0 } * 3.0", "(f(4.0), f(-1.0))", (13.0, 7.0)),
    ("record P { x: f64, n: i32 }\nfn f(x: f64) -> P {\n if x > 0.0 { P(x = x, n = 1) } else { P(x = -x, n = 2) }\n}", "f(-2.0).n", 2),
    ("fn f(x: f64) -> f64 {\n if x > 0.0 { if x > 1.0 { 3.0 } else { 2.0 } } else { 1.0 }\n}", "(f(2.0), f(0.5), f(-1.0))", (3.0, 2.0, 1.0)),
    ("fn f(a: f64[n]) -> f64 {\n if n > 2 { a[2] } else { 0.0 }\n}", "(f([1.0, 2.0, 3.0]), f([1.0]))", (3.0, 0.0)),
    ("fn f(a: f64[n]) -> f64 where n > 0 {\n if n == 1 { a[0] } else { f(a[..n - 1]) + a[n - 1] }\n}", "f([1.0, 2.0, 3.0])", 6.0),
    ('fn f(x: f64, how: str) -> f64 {\n if how == "twice" { 2.0 * x } else { x }\n}', '(f(3.0, "twice"), f(3.0, "once"))', (6.0, 3.0)),
    ("fn f(x: f64) -> f64 {\n if true { x } else { x / 0.0 }\n}", "f(2.0)", 2.0),
    ("fn f(x: f64) -> bool = 0.0 <= x < 1.0", "(f(0.0), f(1.0), f(-1.0))", (True, False, False)),
    ("fn f(x: f64) -> bool = x < 0.0 or not (x < 1.0) and x != 2.0", "(f(-1.0), f(0.5), f(1.5), f(2.0))", (True, False, True, False)),
    ("fn f(b: bool) -> f64 {\n if b { 1.0 } else { 0.0 }\n}", "f(true)", 1.0),
]  # fmt: skip

LOOPS = [
    ("fn f(n: i32) -> i32 {\n var s = 0\n for i in 0..n { s += i }\n s\n}", "(f(5), f(1), f(0), f(-3))", (10, 0, 0, 0)),
    ("fn f(x: f64[n]) -> f64 {\n var s = 0.0\n for i in 0..n { s += x[i] }\n s\n}", "(f([1.0, 2.0]), f([5.0]), f([]))", (3.0, 5.0, 0.0)),
    ("fn f(x: f64[n]) -> f64 {\n var s = 0.0\n for v in x { s = 2.0 * s + v }\n s\n}", "(f([1.0, 2.0]), f([5.0]), f([]))", (4.0, 5.0, 0.0)),
    ("fn f(x: f64[n, m]) -> f64[m] {\n var s = zeros(m)\n for row in x { s += row }\n s\n}", "f([[1.0, 2.0], [3.0, 4.0]])", [4, 6]),
    ("fn f(x: f64[n], y: f64[n]) -> f64 {\n var s = 0.0\n for (a, b) in zip(x, y) { s += a * b }\n s\n}", "f([1.0, 2.0], [3.0, 4.0])", 11.0),
    ("fn f(x: f64[n]) -> f64 {\n var s = 0.0\n for (i, a) in enumerate(x) { s += f64(i) * a }\n s\n}", "f([1.0, 2.0, 3.0])", 8.0),
    ("fn f(x: f64[n]) -> f64 {\n var s = 0.0\n for (i, (a, b)) in enumerate(zip(x, x)) { s += f64(i) * a * b }\n s\n}", "f([1.0, 2.0, 3.0])", 22.0),
    ("fn f(n: i32) -> i32 {\n var s = 0\n for i in 2..n by 3 { s = 10 * s + i }\n s\n}", "(f(9), f(8), f(2), f(0))", (258, 25, 0, 0)),
    ("fn f() -> i32 {\n var s = 0\n for i in 2..9 by 3 { s = 10 * s + i }\n s\n}", "f()", 258),
    ("fn f(x: f64) -> f64[4] {\n var s = x\n let ys = for i in 0..4 {\n s = 2.0 * s\n yield s\n }\n ys\n}", "f(1.0)", [2, 4, 8, 16]),
    ("fn f(x: f64) -> f64[4] {\n var s = x\n for i in 0..4 {\n s = 2.0 * s\n yield s\n }\n}", "f(1.0)", [2, 4, 8, 16]),
    ("fn f(x: f64) -> f64[4] {\n for i in 0..4 { yield x * f64(i) }\n}", "f(2.0)", [0, 2, 4, 6]),
    ("fn f(x: f64[3]) -> (f64[3], i32[3]) {\n var i = 0\n for v in x {\n i += 1\n yield (v * v, i)\n }\n}", "f([1.0, 2.0, 3.0])", ([1, 4, 9], [1, 2, 3])),
    ("fn f(x: f64) -> f64 {\n var s = x\n while s < 100.0 { s *= 2.0 }\n s\n}", "(f(3.0), f(200.0))", (192.0, 200.0)),
    ("fn f(x: f64) -> i32 {\n var s = x\n var k = 0\n while s < 100.0 and k < 3 {\n s *= 2.0\n k += 1\n }\n k\n}", "(f(3.0), f(50.0))", (3, 1)),
    ("fn f(n: i32) -> i32 {\n var s = 0\n for i in 0..n { for j in 0..i { s += j } }\n s\n}", "f(5)", 10),
    ("fn f(n: i32) -> i32 {\n var s = 0\n for i in 0..n { if i % 2 == 0 { s += i } else { s -= 1 } }\n s\n}", "f(5)", 4),
    ("fn f(x: f64) -> f64 {\n var p = (x, 1.0)\n for i in 0..3 { p = (p |> |(a, b)| a + b, x) }\n let (a, b) = p\n a\n}", "f(2.0)", 7.0),
    ("record P { x: f64, k: i32 }\nfn f(x: f64) -> P {\n var p = P(x = x, k = 0)\n for i in 0..3 {\n p.x *= 2.0\n p.k += i\n }\n p\n}", "f(1.0).x", 8.0),
    ("fn f(n: i32) -> i32 {\n var a = 0\n var b = 1\n for _ in 0..n { (a, b) = (b, a + b) }\n a\n}", "f(10)", 55),
    ("fn f(x: f64[2, 3]) -> f64[2] {\n for row in x {\n var s = 0.0\n for v in row { s += v }\n yield s\n }\n}", "f([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])", [6, 15]),
    ("fn f(x: f64[n]) -> f64 {\n var s = 0.0\n for i in 1..n { s += x[i] * x[i - 1] }\n s\n}", "(f([1.0, 2.0, 3.0]), f([1.0]))", (8.0, 0.0)),
]  # fmt: skip

COMPREHENSIONS = [
    ("fn f(x: f64[n]) -> f64[n] = [for i => x[i] * f64(i)]", "f([1.0, 2.0, 3.0])", [0, 2, 6]),
    ("fn f(a: f64[n], b: f64[m]) -> f64[n, m] = [for i, j => a[i] * b[j]]", "f([1.0, 2.0], [3.0, 4.0, 5.0])", [[3, 4, 5], [6, 8, 10]]),
    ("fn f(a: f64[n, m]) -> f64[m, n] = [for j, i => a[i, j]]", "f([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])", [[1, 4], [2, 5], [3, 6]]),
    ("fn f(a: f64[n, k], b: f64[k, m]) -> f64[n, m] = [for i, j => sum(for l => a[i, l] * b[l, j])]", "f([[1.0, 2.0]], [[3.0], [4.0]])", [[11]]),
    ("fn f(k: dim) -> i32[k] = [for i in 0..k => i * i]", "f(4)", [0, 1, 4, 9]),
    ("fn f(k: dim) -> i32[k - 1] = [for i in 1..k => i * i]", "f(4)", [1, 4, 9]),
    ("fn f(x: f64[n]) -> f64 = sum(for i if i % 2 == 0 => x[i])", "f([1.0, 2.0, 3.0])", 4.0),
    ("fn f(x: f64[n]) -> f64 = prod(for v in x if v > 1.0 => v)", "f([1.0, 2.0, 3.0])", 6.0),
    ("fn f(x: f64[n]) -> f64 = max(for v in x if v < 3.0 => v)", "f([1.0, 2.0, 3.0])", 2.0),
    ("fn f(x: f64[n]) -> f64 = min(for v in x if v > 1.0 => -v)", "f([1.0, 2.0, 3.0])", -3.0),
    ("fn f(x: f64[n]) -> bool = any(for v in x => v > 2.5)", "(f([1.0, 2.0, 3.0]), f([1.0]))", (True, False)),
    ("fn f(x: f64[n]) -> bool = all(for v in x if v > 0.0 => v > 2.5)", "(f([-1.0, 3.0]), f([1.0]))", (True, False)),
    ("fn f(x: f64[n]) -> f64 = mean(for i => x[i]^2)", "f([1.0, 3.0])", 5.0),
    ("fn f(x: f64[n], y: f64[n]) -> f64 = sum(for (a, b) in zip(x, y) => a * b)", "f([1.0, 3.0], [2.0, 4.0])", 14.0),
    ("fn f(x: f64[n]) -> f64 = sum(for i, j if i < j => x[i] * x[j])", "f([1.0, 2.0, 3.0])", 11.0),
    ("fn f(x: f64[n]) -> f64[n, 2] = [for v in x => [v, v * v]]", "f([1.0, 3.0])", [[1, 1], [3, 9]]),
    ("fn f(x: f64[n]) -> f64[n] = [for i => { let k = x[i]\n k + 1.0 }]", "f([1.0, 3.0])", [2, 4]),
    ("fn f(x: f64[n]) -> f64[n] {\n let (a, b) = [for v in x => (v, 2.0 * v)]\n a + b\n}", "f([1.0, 3.0])", [3, 9]),
    ("fn f(x: f64[n, 3]) -> f64[n, 3] = [for i => sum(for j if j != i => x[j] - x[i])]", "f([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])",
     [[-1, 1, 0], [1, -1, 0]]),
    ("fn f(x: f64[n]) -> f64[n] = [for i => if x[i] > 0.0 { x[i] } else { sqrt(-x[i]) }]", "f([2.0, -4.0])", [2, 2]),
    ("fn f(x: f64[n]) -> f64 = sum(for i => x[i])", "f([])", 0.0),
]  # fmt: skip

FUNCTIONS = [
    ("fn f(x: f64) -> f64 {\n let g = |y| x * y\n g(2.0) + g(3.0)\n}", "f(2.0)", 10.0),
    ("fn f(x: f64) -> f64 {\n var k = x\n let g = |y| k * y\n k = 0.0\n g(2.0)\n}", "f(2.0)", 4.0),
    ("fn twice(g: (f64) -> f64, x: f64) -> f64 = g(g(x))", "twice(|x| x * x, 3.0)", 81.0),
    ("fn adder(k: f64) -> (f64) -> f64 = |x| x + k", "adder(2.0)(3.0)", 5.0),
    ("fn adder(k: f64) -> (f64) -> f64 {\n let g = |x| x + k\n |y| g(g(y))\n}", "adder(2.0)(3.0)", 7.0),
    ("fn compose(f: (f64) -> f64, g: (f64) -> f64) -> (f64) -> f64 = |x| f(g(x))", "compose(|x| x + 1.0, |x| 2.0 * x)(3.0)", 7.0),
    ("fn f(x: f64) -> f64 {\n let (g, h) = (|y| y + x, |y| y * x)\n g(h(3.0))\n}", "f(2.0)", 8.0),
    ("fn f(x: f64) -> f64 = x |> sin |> |y| y * 2.0", "f(1.0)", 2 * np.sin(1)),
    ("fn scale(x: f64, k: f64) -> f64 = x * k", "2.0.scale(3.0)" if False else "(2.0).scale(3.0)", 6.0),
    ("record P { g: f64 }\nfn g(p: P, k: f64) -> f64 = k", "P(g = 1.0).g", 1.0),
    ("fn pair(x: f64) -> (f64, f64) = (x, -x)\nfn f(x: f64) -> f64 {\n let g = |(a, b)| a - b\n g(pair(x))\n}", "f(2.0)", 4.0),
    ("fn f(x: f64) -> f64 {\n let g = |a: f64, b: f64| a - b\n g(x, 1.0)\n}", "f(2.0)", 1.0),
    ("fn apply[T: float](g: (T) -> T, x: T) -> T = g(x)\nfn f(x: f64) -> f64 {\n apply(|y: f64| y + 1.0, x)\n}", "f(2.0)", 3.0),
    ("fn f(x: f64[n]) -> f64[n] = map(|v| v * v, x)", "f([1.0, 2.0])", [1, 4]),
    ("fn f(x: f64[n, m]) -> f64[n] = vmap(|row| sum(row))(x)", "f([[1.0, 2.0], [3.0, 4.0]])", [3, 7]),
    ("fn f(x: f64[n], k: f64[n]) -> f64[n] = vmap(|a, b| a * b)(x, k)", "f([1.0, 2.0], [3.0, 4.0])", [3, 8]),
    ("fn f(g: (f64) -> f64) -> f64 {\n var s = 0.0\n for i in 0..3 { s = g(s) }\n s\n}", "f(|x| 2.0 * x + 1.0)", 7.0),
    ("record F { g: (f64) -> f64, k: f64 }", "F(g = |x| x + 1.0, k = 2.0).g(3.0)", 4.0),
]  # fmt: skip

ROWS = [*BINDING, *UPDATES, *BRANCHES, *LOOPS, *COMPREHENSIONS, *FUNCTIONS]


@pytest.mark.parametrize(
    ("declarations", "expression", "value"), ROWS, ids=[f"{d[:40]} {e[:20]}".replace("\n", " ") for d, e, _ in ROWS]
)
def test_value(declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, declarations), value)


CHOSEN = [
    "enum E { A, B(x: f64) }\nfn f() -> f64 {\n let twice = linear |d: D(E)| 2.0 * d\n let back = transpose(twice)\n 1.0\n}\nprint(f())",
    "enum E { A, B(x: f64) }\nfn g(x: f64) -> E = if x > 0.0 { A } else { B(x) }\nrule g(x) by implicit |y| match y { A => A, B(z) => B(z - x) }\nprint(grad(|x| match g(x) { A => x, B(y) => y })(-1.0))",
]  # fmt: skip


@pytest.mark.parametrize("source", CHOSEN)
def test_a_linear_equation_in_what_only_the_run_chooses(source: str) -> None:
    assert {c for c, _ in codes(f"float f64\n{source}\n")} == {"DL1107"}
