"""Programs with loops, branches, maps and calls, each twice: as a graph, and as plain Python over any array module.

How often a loop runs is decided by data wherever the program says `while`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivatives import (
    FLOAT,
    FOREVER,
    INT,
    Body,
    called,
    choose,
    literal,
    mapped,
    matvec,
    op,
    repeat,
    scan,
    total,
    wide,
)
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor

VECTOR, MATRIX = Tensor(F64, (3,)), Tensor(F64, (3, 3))
Python = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    """A graph, the same in Python for an array module, and arguments."""

    name: str
    graph: Graph
    python: Callable[[Any], Python]
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return self.name


def less(x: Value, y: Value | float) -> Value:
    return op("lt", x, y if isinstance(y, Value) else literal(x, y))


# --- Newton's square root of a from x, until x*x - a is small: a `while`, its trip count decided by the start


def newton() -> Graph:
    def step(i: Value, a: Value, x: Value) -> list[Value]:
        return [0.5 * (x + a / x)]

    def go(i: Value, a: Value, x: Value) -> Value:
        return op("gt", x * x - a, literal(a, 1e-9))

    return build_region([FLOAT, FLOAT], lambda a, x: [repeat(FOREVER, step, [a], [x], go=go)[1]])


def newton_python(m: Any) -> Python:
    def f(a: Any, x: Any) -> Any:
        while x * x - a > 1e-9:
            x = 0.5 * (x + a / x)
        return (x,)

    return f


NEWTON = {0: (2.0, 1.4142135624), 1: (2.0, 1.41422), 7: (2.0, 10.0), 50: (2.0, 1e14)}


# --- rotation: vector, angle and integer carry, a captured matrix; as `while`, as a bounded and as an exact loop


def rotation(steps: int, kind: str) -> Graph:
    def step(i: Value, w: Value, v: Value, t: Value, n: Value) -> list[Value]:
        return [op("sin", matvec(w, v)) + wide(op("cos", t), 3) * v, t + 0.1 * op("tanh", total(v)), n + 1]

    def go(i: Value, w: Value, v: Value, t: Value, n: Value) -> Value:
        return op("lt", n, literal(n, steps))

    def body(w: Value, v: Value, t: Value) -> list[Value]:
        start = [v, t, literal(t, 0, INT)]
        if kind == "exact":
            return scan(steps, step, [w], start)[:2]
        if kind == "bounded":
            return repeat(steps + 3, step, [w], start, go=go, length=steps + 3)[1:3]
        return repeat(FOREVER, step, [w], start, go=go)[1:3]

    return build_region([MATRIX, VECTOR, FLOAT], body)


def rotation_python(m: Any, steps: int) -> Python:
    def f(w: Any, v: Any, t: Any) -> Any:
        for _ in range(steps):
            v, t = m.sin(w @ v) + m.cos(t) * v, t + 0.1 * m.tanh(m.sum(v))
        return v, t

    return f


# --- a while in a while, both lengths found by the data, the inner one different at every outer step


def while_in_while(end: float) -> Graph:
    def inner(i: Value, r: Value, y: Value) -> list[Value]:
        return [y * r + 0.1 * op("sin", y)]

    def outer(i: Value, r: Value, x: Value, s: Value) -> list[Value]:
        y = repeat(FOREVER, inner, [r], [x], go=lambda i, r, y: less(y, 1.0))[1]
        return [0.97 * x + 0.002 * (y * y), s + op("cos", y * x)]

    def body(r: Value, x: Value) -> list[Value]:
        return repeat(FOREVER, outer, [r], [x, x], go=lambda i, r, x, s: op("gt", x, literal(x, end)))[1:]

    return build_region([FLOAT, FLOAT], body)


def while_in_while_python(m: Any, end: float) -> Python:
    def f(r: Any, x: Any) -> Any:
        s = x
        while x > end:
            y = x
            while y < 1.0:
                y = y * r + m.sin(y) * 0.1
            x, s = x * 0.97 + y * y * 0.002, s + m.cos(y * x)
        return x, s

    return f


ENDS = {0: 1.03, 1: 1.01, 7: 0.86, 50: 0.315}  # from (1.5, 1.02); inner trips 0 to 3


# --- a while inside a cond inside a counted loop that reads an array


def branchy(steps: int) -> Graph:
    def some(x: Value, y: Value) -> list[Value]:
        def step(i: Value, x: Value, y: Value) -> list[Value]:
            return [0.7 * y + 0.2 * op("sin", x * y)]

        return [repeat(FOREVER, step, [x], [y], go=lambda i, x, y: op("gt", y, literal(y, 0.3)))[1] * x]

    def none(x: Value, y: Value) -> list[Value]:
        return [y + op("cos", x * y)]

    def step(i: Value, y: Value, x: Value) -> list[Value]:
        return choose(op("gt", x, literal(x, 0.0)), some, none, x, y)

    return build_region(
        [Tensor(F64, (steps,)), FLOAT], lambda xs, y: [scan(steps, step, [], [y], [xs])[0] * (total(xs) + 1.0)]
    )


def branchy_python(m: Any, steps: int) -> Python:
    def f(xs: Any, y: Any) -> Any:
        for i in range(steps):
            x = xs[i]
            if x > 0:
                while y > 0.3:
                    y = y * 0.7 + m.sin(x * y) * 0.2
                y = y * x
            else:
                y = y + m.cos(x * y)
        return (y * (m.sum(xs) + 1.0),)

    return f


# --- a loop that may stop before its limit, reads an array, yields an array, and has a carry that its step forgets


def early(steps: int) -> Graph:
    def step(i: Value, w: Value, s: Value, last: Value, x: Value) -> list[Value]:
        return [s + op("sin", w * x * s), x, s * x]

    def body(xs: Value, w: Value, s: Value) -> list[Value]:
        go: Callable[..., Value] = lambda i, w, s, last: less(s, 2.0)
        _, s, last, ys = repeat(steps, step, [w], [s, w], [xs], go=go, length=steps)
        return [s, last, ys]

    return build_region([Tensor(F64, (steps,)), FLOAT, FLOAT], body)


def early_python(m: Any, steps: int) -> Python:
    def f(xs: Any, w: Any, s: Any) -> Any:
        last, ys = w, []
        for i in range(steps):
            if not s < 2.0:
                break
            s, last, ys = s + m.sin(w * xs[i] * s), xs[i], [*ys, s * xs[i]]
        ys = [*ys, *[0.0 * s] * (steps - len(ys))]
        return s, last, m.stack(ys) if ys else m.zeros(0)

    return f


# --- a loop of a run-time limit in reverse, with the index in its arithmetic, over an array and a captured array


def downwards(bound: int, steps: int) -> Graph:
    def step(i: Value, w: Value, s: Value, x: Value) -> list[Value]:
        index = op("convert", i, dtype=F64)
        s = 0.9 * s + op("sin", x * w * (index + 1.0)) * x
        return [s, s * s]

    def body(xs: Value, w: Value, s: Value) -> list[Value]:
        limit = op("add", literal(s, steps - 1, INT), literal(s, 1, INT))
        _, s, ys = repeat(limit, step, [w * w], [s], [xs], length=bound, reverse=True)
        return [s, ys]

    return build_region([Tensor(F64, (bound,)), FLOAT, FLOAT], body)


def downwards_python(m: Any, bound: int, steps: int) -> Python:
    def f(xs: Any, w: Any, s: Any) -> Any:
        ys: list[Any] = [0.0 * s] * bound
        for i in reversed(range(steps)):
            s = s * 0.9 + m.sin(xs[i] * (w * w) * (i + 1.0)) * xs[i]
            ys[i] = s * s
        return s, m.stack(ys)

    return f


# --- lanes that share a matrix, each with a while of its own length and a branch


def lanes(count: int) -> Graph:
    def body(w: Value, a: Value, x: Value) -> list[Value]:
        y = repeat(FOREVER, lambda i, a, y: [y * 0.5 + a * 0.1], [a], [x], go=lambda i, a, y: op("gt", y, a))[1]
        v = op("tanh", matvec(w, wide(y, 3)) * wide(a * a, 3))
        (z,) = choose(less(x, 1.5), lambda v, y: [total(v) * y], lambda v, y: [op("exp", -y)], v, y)
        return [v, z]

    def graph(w: Value, a: Value, xs: Value) -> list[Value]:
        vs, zs = mapped(count, body, [w, a], [xs])
        return [vs, total(zs)]

    return build_region([MATRIX, FLOAT, Tensor(F64, (count,))], graph)


def lanes_python(m: Any, count: int) -> Python:
    def f(w: Any, a: Any, xs: Any) -> Any:
        vs, z = [], 0.0 * a
        for k in range(count):
            y = x = xs[k]
            while y > a:
                y = y * 0.5 + a * 0.1
            v = m.tanh((w @ (y * m.ones(3))) * (a * a))
            vs.append(v)
            z = z + (m.sum(v) * y if x < 1.5 else m.exp(-y))
        return m.stack(vs), z

    return f


# --- a function called in a loop, in a branch and straight, and one that calls it


def calls(steps: int) -> Graph:
    f = build_region([FLOAT, FLOAT], lambda x, y: [op("sin", x * y) + x, x * x])
    g = build_region([FLOAT, FLOAT], lambda x, y: [called(f, x, called(f, y, x)[0])[0] * y])

    def step(i: Value, w: Value, s: Value) -> list[Value]:
        return choose(op("gt", s, w), lambda w, s: called(g, w, s), lambda w, s: [called(f, s, w)[0]], w, s)

    def body(w: Value, s: Value) -> list[Value]:
        (s,) = scan(steps, step, [w], [s])
        return [s * called(f, s, w)[1], called(g, s, w)[0]]

    return build_region([FLOAT, FLOAT], body)


def calls_python(m: Any, steps: int) -> Python:
    def f(x: Any, y: Any) -> Any:
        return m.sin(x * y) + x, x * x

    def g(x: Any, y: Any) -> Any:
        return f(x, f(y, x)[0])[0] * y

    def h(w: Any, s: Any) -> Any:
        for _ in range(steps):
            s = g(w, s) if s > w else f(s, w)[0]
        return s * f(s, w)[1], g(s, w)

    return h


# --- loops in a loop over rows, with a sum over both, and a loop inside a map


def table(rows: int, columns: int) -> Graph:
    def cell(j: Value, w: Value, s: Value, x: Value) -> list[Value]:
        return [s * 0.8 + op("sin", w * x * s), s * x]

    def row(i: Value, w: Value, s: Value, xs: Value) -> list[Value]:
        s, ys = scan(columns, cell, [w * w], [s], [xs])
        return [s, total(ys)]

    def lane(w: Value, xs: Value) -> list[Value]:
        return scan(columns, cell, [w], [total(xs)], [xs], reverse=True)

    def body(w: Value, s: Value, x: Value) -> list[Value]:
        s, ys = scan(rows, row, [w], [s], [x])
        ends, zs = mapped(rows, lane, [w * s], [x])
        return [s, ys, ends, zs]

    return build_region([FLOAT, FLOAT, Tensor(F64, (rows, columns))], body)


def table_python(m: Any, rows: int, columns: int) -> Python:
    def run(w: Any, s: Any, xs: Any, order: Any) -> Any:
        ys: list[Any] = [0.0] * columns
        for j in order:
            s, ys[j] = s * 0.8 + m.sin(w * xs[j] * s), s * xs[j]
        return s, ys

    def f(w: Any, s: Any, x: Any) -> Any:
        sums, ends, zs = [], [], []
        for i in range(rows):
            s, ys = run(w * w, s, x[i], range(columns))
            sums.append(sum(ys))
        for i in range(rows):
            e, ys = run(w * s, m.sum(x[i]), x[i], reversed(range(columns)))
            ends.append(e)
            zs.append(m.stack(ys))
        return s, m.stack(sums), m.stack(ends), m.stack(zs)

    return f


# --- checkpointed blocks in each other, in a loop and in a map; one saves, another has a loop in it


def blocks(steps: int) -> Graph:
    def kept(body: Body, *operands: Value, results: int) -> list[Value]:
        inside = build_region([v.type for v in operands], body)
        return list(OPS["checkpoint"](*operands, regions=(inside,), results=results, recompute=False))

    def inner(w: Value, s: Value) -> list[Value]:
        h = op("sin", w * s)
        return [h * op("exp", h), h]

    def outer(w: Value, s: Value) -> list[Value]:
        (y,) = kept(inner, w, s, results=1)
        turn: Body = lambda i, w, y: [y * 0.9 + op("cos", w * y) * 0.1]
        return [*scan(steps, turn, [w], [y]), s * y]

    def step(i: Value, w: Value, s: Value, x: Value) -> list[Value]:
        s, y = kept(outer, w, s, results=2)
        return [s * x, y]

    def body(w: Value, s: Value, xs: Value) -> list[Value]:
        s, ys = scan(steps, step, [w], [s], [xs])
        return [s, ys, *mapped(steps, lambda w, x: kept(outer, w, x, results=2), [w], [xs])]

    return build_region([FLOAT, FLOAT, Tensor(F64, (steps,))], body)


def blocks_python(m: Any, steps: int) -> Python:
    def outer(w: Any, s: Any) -> Any:
        h = m.sin(w * s)
        y = end = h * m.exp(h)
        for _ in range(steps):
            end = end * 0.9 + m.cos(w * end) * 0.1
        return end, s * y

    def f(w: Any, s: Any, xs: Any) -> Any:
        ys: list[Any] = []
        for i in range(steps):
            s, y = outer(w, s)
            s, ys = s * xs[i], [*ys, y]
        pairs = [outer(w, xs[i]) for i in range(steps)]
        return s, m.stack(ys), *[m.stack(column) for column in zip(*pairs, strict=True)]

    return f


def programs() -> Iterator[Program]:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(3, 3)) * 0.6
    for n, start in NEWTON.items():
        yield Program(f"newton-{n}", newton(), newton_python, start)
    for kind in ("while", "bounded", "exact"):
        for n in (0, 1, 7, 50):
            turn: Callable[[Any], Python] = lambda m, n=n: rotation_python(m, n)
            yield Program(f"rotation-{kind}-{n}", rotation(n, kind), turn, (w, [0.3, -0.2, 0.5], 1.1))
    for n, end in ENDS.items():
        yield Program(
            f"while-in-while-{n}", while_in_while(end), lambda m, e=end: while_in_while_python(m, e), (1.5, 1.02)
        )
    for n in (0, 1, 7, 50):
        xs = np.cos(np.arange(n) * 1.3)
        yield Program(f"branchy-{n}", branchy(n), lambda m, n=n: branchy_python(m, n), (xs, 0.9))
    for n in (0, 1, 7, 50):
        xs = 0.4 + 0.3 * np.sin(np.arange(n))
        yield Program(f"early-{n}", early(n), lambda m, n=n: early_python(m, n), (xs, 0.7, 0.4))
    for n in (0, 1, 7):
        xs = 0.4 + 0.3 * np.sin(np.arange(8))
        yield Program(f"downwards-{n}", downwards(8, n), lambda m, n=n: downwards_python(m, 8, n), (xs, 0.7, 0.4))
    for n in (1, 4):
        yield Program(f"lanes-{n}", lanes(n), lambda m, n=n: lanes_python(m, n), (w, 0.6, [0.5, 1.1, 2.3, 9.0][:n]))
    for n in (0, 1, 7):
        yield Program(f"calls-{n}", calls(n), lambda m, n=n: calls_python(m, n), (0.8, 0.6))
    for n in (2, 3):
        xs = 0.4 + 0.3 * np.sin(np.arange(n))
        yield Program(f"blocks-{n}", blocks(n), lambda m, n=n: blocks_python(m, n), (0.8, 0.6, xs))
    for rows, columns in ((1, 1), (3, 4)):
        x = rng.normal(size=(rows, columns))
        yield Program(
            f"table-{rows}x{columns}",
            table(rows, columns),
            lambda m, r=rows, c=columns: table_python(m, r, c),
            (0.7, 0.4, x),
        )
