"""Random graphs with branches, loops of every kind, maps and calls in each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from derivatives import FLOAT, FOREVER, called, choose, literal, mapped, op, repeat, scan, total, wide
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import F64, Tensor

SIZE = 3
VECTOR = Tensor(F64, (SIZE,))
Values = Sequence[Value]


class Writer:
    """Writes a random region body: every draw is made while the graph is built, so a seed is a graph."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, values: Values, type: Tensor) -> Value:
        fitting = [v for v in values if v.type == type]
        if not fitting:
            other = self.pick(values, VECTOR if type == FLOAT else FLOAT)
            return total(other) if type == FLOAT else wide(other, SIZE)
        return fitting[int(self.rng.integers(len(fitting)))]

    def any(self, values: Values) -> Value:
        return values[int(self.rng.integers(len(values)))]

    def body(self, values: Values, depth: int, steps: int, types: Sequence[Tensor]) -> list[Value]:
        """A few more values, then one of each type asked for, made small enough to stay finite."""
        known = list(values)
        for _ in range(steps):
            known += self.more(known, depth)
        return [op("tanh", self.mean(known[len(values) :], t)) for t in types]

    def mean(self, values: Values, type: Tensor) -> Value:
        """Of all of them, so that little is dead."""
        first, *rest = [self.pick([v], type) for v in values]
        for v in rest:
            first = first + v
        return first * (1.0 / len(values))

    def more(self, known: Values, depth: int) -> list[Value]:
        return [v if v.type in (FLOAT, VECTOR) else total(v) for v in self.drawn(known, depth)]

    def drawn(self, known: Values, depth: int) -> list[Value]:
        kinds: list[Callable[[Values, int], list[Value]]] = [self.unary, self.binary, self.reshape]
        if depth > 0:
            kinds += [self.cond, self.loop, self.loop, self.lanes, self.call]
        return kinds[int(self.rng.integers(len(kinds)))](known, depth)

    def unary(self, known: Values, depth: int) -> list[Value]:
        name = str(self.rng.choice(["sin", "cos", "tanh", "neg", "exp", "stop"], p=[0.2, 0.2, 0.2, 0.2, 0.15, 0.05]))
        return [op(name, op("tanh", self.any(known)))]

    def binary(self, known: Values, depth: int) -> list[Value]:
        x = self.any(known)
        assert isinstance(x.type, Tensor)
        return [op(str(self.rng.choice(["add", "sub", "mul", "mul"])), x, self.pick(known, x.type))]

    def reshape(self, known: Values, depth: int) -> list[Value]:
        x = self.any(known)
        return [total(x) if x.type == VECTOR else wide(x, SIZE)]

    def operands(self, known: Values) -> list[Value]:
        return [self.any(known) for _ in range(int(self.rng.integers(1, 4)))]

    def types(self) -> list[Tensor]:
        return [[FLOAT, VECTOR][int(self.rng.integers(2))] for _ in range(int(self.rng.integers(1, 3)))]

    def cond(self, known: Values, depth: int) -> list[Value]:
        types, pred = self.types(), op("gt", self.pick(known, FLOAT), self.pick(known, FLOAT))
        branches = [lambda *xs: self.body(xs, depth - 1, 2, types) for _ in range(2)]
        return choose(pred, *branches, *self.operands(known))

    def loop(self, known: Values, depth: int) -> list[Value]:
        consts, carry = self.operands(known), [self.pick(known, FLOAT), *self.operands(known)]
        kind = str(self.rng.choice(["exact", "bounded", "limited", "unbounded"]))
        length = int(self.rng.integers(0, 5))
        xs = [wide(total(self.any(known)), length, SIZE)] if kind != "unbounded" and self.rng.random() < 0.6 else []
        types = [v.type for v in carry if isinstance(v.type, Tensor)]
        outputs = self.types() if kind != "unbounded" else []

        def step(i: Value, *values: Value) -> list[Value]:
            index = op("sin", op("convert", i, dtype=F64))
            outs = self.body((index, *values), depth - 1, 2, [*types, *outputs])
            return [0.7 * values[len(consts)] + 0.1 * outs[0], *outs[1:]]

        def go(i: Value, *values: Value) -> Value:
            return op("gt", op("abs", values[len(consts)]), literal(values[len(consts)], 0.2))

        reverse = bool(self.rng.random() < 0.5)
        if kind == "exact":
            return scan(length, step, consts, carry, xs, reverse=reverse)
        if kind == "bounded":
            return repeat(length, step, consts, carry, xs, go=go, length=length)[1:]
        if kind == "limited":
            return repeat(max(length - 1, 0), step, consts, carry, xs, length=length, reverse=reverse)[1:]
        return repeat(FOREVER, step, consts, carry, go=lambda *a: self.few(go, *a))[1:]

    def few(self, go: Callable[..., Value], i: Value, *values: Value) -> Value:
        """No more than a handful of steps, wherever the data would lead."""
        return op("logical_and", go(i, *values), op("lt", i, literal(i, 6)))

    def lanes(self, known: Values, depth: int) -> list[Value]:
        count = int(self.rng.integers(1, 4))
        xs = [wide(total(self.any(known)), count, SIZE) * literal_rows(known[0], count)]
        outs = mapped(count, lambda *a: self.body(a, depth - 1, 2, self.types()), self.operands(known), xs)
        return [total(y) for y in outs]

    def call(self, known: Values, depth: int) -> list[Value]:
        operands, types = self.operands(known), self.types()
        f = build_region([v.type for v in operands], lambda *xs: self.body(xs, depth - 1, 2, types))
        return [*called(f, *operands), *called(f, *reversed_alike(operands))]


def reversed_alike(operands: list[Value]) -> list[Value]:
    """The operands in reverse where they have one type, so that both calls differ."""
    return operands[::-1] if len({v.type for v in operands}) == 1 else operands


def literal_rows(like: Value, count: int) -> Value:
    """1, 2, 3, ... in every column."""
    type = Tensor(F64, (count, SIZE))
    return like.home.one("iota", type=type, axis=0) + like.home.const(1.0, type)


def depth(seed: int) -> int:
    """How deep regions nest."""
    return 3 if seed % 6 == 0 else 2


def random_graph(seed: int) -> Graph:
    writer = Writer(seed)
    types = [FLOAT, VECTOR, FLOAT]
    return build_region(types, lambda *xs: writer.body(xs, depth(seed), 5, [FLOAT, VECTOR]))


def numbers(graph: Graph, n: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=p.type.shape) for p in graph.params[n:]]
