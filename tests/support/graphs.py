"""Random graphs: straight lines, branches, loops, maps and shared calls over a few types, with arguments to run them.

A graph is drawn from a seed, so a failure names everything that is needed to see it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F32, F64, I32, DType, Tensor, numpy_dtype

FLOATS = [Tensor(F64), Tensor(F64, (3,)), Tensor(F32), Tensor(F32, (2, 3))]
TYPES = [*FLOATS, Tensor(I32), Tensor(BOOL)]
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.0, -1.0]
INDEX = Tensor(I32)
LENGTH = 3


def random_graph(seed: int, size: int = 12, depth: int = 2) -> Graph:
    """A graph of about `size` equations and regions nested to `depth`."""
    return Drawing(Random(seed), depth).graph([Random(seed + 1).choice(TYPES) for _ in range(3)], size, "drawn")


def arguments(graph: Graph, seed: int) -> list[Any]:
    """Arrays for the params, with NaN, infinities and both zeros among them."""
    draw = Random(seed)
    return [array(draw, p.type) for p in graph.params if isinstance(p.type, Tensor)]


def array(draw: Random, type: Tensor) -> Any:
    size = int(np.prod([int(str(n)) for n in type.shape], dtype=int))
    dtype = numpy_dtype(type.dtype)
    if type.dtype.is_float:
        items: Sequence[float] = [draw.choice([draw.uniform(-2.0, 2.0), draw.choice(SPECIAL)]) for _ in range(size)]
    else:
        items = [draw.randint(0, 1) if type.dtype is BOOL else draw.randint(-4, 4) for _ in range(size)]
    return np.asarray(items, dtype).reshape([int(str(n)) for n in type.shape])


def floats_near(number: float, dtype: DType) -> Any:
    """The floats around a number, those whose squares are no floats, both infinities, zeros and NaN."""
    numpy: Any = numpy_dtype(dtype).type
    near = [numpy(number)]
    for _ in range(6):
        near = [np.nextafter(near[0], numpy(0)), *near, np.nextafter(near[-1], numpy(np.inf))]
    limits = np.finfo(numpy)
    return np.array([*near, limits.max, -limits.max / 2, limits.tiny, -limits.tiny, *SPECIAL], numpy)


def bits(values: Sequence[Any]) -> list[Any]:
    """What two runs must have in common to be equal bit for bit; all NaNs are one."""
    return [[bits(v)] if isinstance(v, list) else whole_bits(np.asarray(v)) for v in values]


def whole_bits(array: Any) -> Any:
    kind, shape = array.dtype.str, array.shape
    if array.dtype.kind == "V":  # bf16
        array = array.astype(np.float32)
    if array.dtype.kind in "fc":
        array = np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array)
    return (kind, shape, np.ascontiguousarray(array).tobytes())


class Drawing:
    """Draws graphs, one equation at a time; every kind of equation is a method that appends to a builder."""

    def __init__(self, draw: Random, depth: int) -> None:
        self.draw = draw
        self.depth = depth
        self.functions: list[Graph] = []

    def graph(
        self, types: Sequence[Tensor], size: int, name: str = "", results: Sequence[Tensor] | None = None
    ) -> Graph:
        builder = Builder()
        values = [builder.param(t, self.draw.choice(["x", "m.w", "", "a b"])) for t in types]
        for _ in range(size):
            values += self.equation(builder, values)
        if results is None:
            return builder.finish(self.draw.sample(values, min(len(values), 3)), name=name)
        return builder.finish([self.value(builder, values, t) for t in results], name=name)

    def equation(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        kinds: list[Callable[[Builder, list[Value]], Sequence[Value]]] = [self.elementwise] * 8 + [self.moved] * 3
        if self.depth:
            kinds += [self.cond, self.loop, self.map, self.call]
        return self.draw.choice(kinds)(builder, values)

    def value(self, builder: Builder, values: list[Value], type: Tensor) -> Value:
        """A value of a type: one of those there are, or a constant."""
        found = [v for v in values if v.type == type]
        if found and self.draw.random() < 0.8:
            return self.draw.choice(found)
        if type.dtype is BOOL:
            return builder.const(self.draw.random() < 0.5, type)
        number = self.draw.choice(SPECIAL) if type.dtype.is_float else self.draw.randint(-2, 2)
        return builder.const(number, type)

    def elementwise(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        type = self.draw.choice(TYPES)
        if type.dtype is BOOL:
            names = [("logical_and", 2), ("logical_or", 2), ("logical_not", 1)]
        elif type.dtype is I32:
            names = [("add", 2), ("sub", 2), ("mul", 2), ("neg", 1), ("max", 2)]
        else:
            names = [("add", 2), ("sub", 2), ("mul", 2), ("neg", 1), ("div", 2), ("abs", 1), ("max", 2), ("sign", 1)]
        name, count = self.draw.choice(names)
        operands = [self.value(builder, values, type) for _ in range(count)]
        if self.draw.random() < 0.15 and type.dtype is not BOOL:
            return [builder.one("lt", *[self.value(builder, values, type) for _ in range(2)])]
        return [builder.one(name, *operands)]

    def moved(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        """Shape operations that come to one of the types again, so that they often undo each other."""
        matrix = self.value(builder, values, Tensor(F32, (2, 3)))
        vector = self.value(builder, values, Tensor(F64, (3,)))
        choices: list[Callable[[], Value]] = [
            lambda: builder.one("transpose", builder.one("transpose", matrix, perm=(1, 0)), perm=(1, 0)),
            lambda: builder.one("reshape", builder.one("reshape", matrix, shape=(6,)), shape=(2, 3)),
            lambda: builder.one("reduce_sum", vector, axes=(0,)),
            lambda: builder.one("broadcast", self.value(builder, values, Tensor(F64)), shape=(3,), axes=()),
            lambda: builder.one("reverse", vector, axes=(0,)),
            lambda: builder.one("slice", vector, starts=(0,), stops=(3,), steps=(1,)),
            lambda: builder.one("convert", self.value(builder, values, Tensor(F32)), dtype=F64),
        ]
        return [self.draw.choice(choices)()]

    def some(self, values: list[Value]) -> list[Value]:
        return self.draw.choices(values, k=self.draw.randint(1, 3))

    def tensors(self, values: Sequence[Value]) -> list[Tensor]:
        return [v.type for v in values if isinstance(v.type, Tensor)]

    def inner(self, types: Sequence[Tensor], results: Sequence[Tensor] | None, name: str = "") -> Graph:
        self.depth -= 1
        graph = self.graph(types, self.draw.randint(1, 6), name, results)
        self.depth += 1
        return graph

    def cond(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        operands = self.some(values)
        types = self.tensors(operands)
        then = self.inner(types, None)
        other = self.inner(types, self.tensors(then.results))
        return builder.emit(OPS["cond"], [self.value(builder, values, Tensor(BOOL)), *operands], (then, other))

    def call(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        if self.functions and self.draw.random() < 0.7:
            body = self.draw.choice(self.functions)
        else:
            body = self.inner(self.draw.choices(TYPES, k=2), None, self.draw.choice(["f", "g", ""]))
            self.functions.append(body)
        operands = [self.value(builder, values, t) for t in self.tensors(body.params)]
        return builder.emit(OPS["call"], operands, (body,), name=body.name)

    def map(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        consts = self.some(values)
        xs = [self.value(builder, values, Tensor(F64, (LENGTH,)))]
        body = self.inner([*self.tensors(consts), Tensor(F64)], None)
        return self.usable(builder.emit(OPS["map"], [*consts, *xs], (body,), consts=len(consts), length=LENGTH))

    def loop(self, builder: Builder, values: list[Value]) -> Sequence[Value]:
        consts, carry = self.some(values), self.some(values)
        kind = self.draw.choice(["exact", "counted", "break", "while"])
        xs = [] if kind == "while" else [self.value(builder, values, Tensor(F64, (LENGTH,)))]
        fixed, state = self.tensors(consts), self.tensors(carry)
        items = [Tensor(F64)] * len(xs)
        step = self.inner([INDEX, *fixed, *state, *items], [*state, self.draw.choice(TYPES)])
        if kind == "while":
            step = step.with_results(step.results[: len(state)])
        go = (self.inner([INDEX, *fixed, *state], [Tensor(BOOL)]),) if kind in ("break", "while") else ()
        limit = LENGTH if kind == "exact" else self.draw.randint(0, LENGTH)
        outs = builder.emit(
            OPS["loop"], [builder.const(limit, INDEX), *consts, *carry, *xs], (step, *go), consts=len(consts),
            carry=len(carry), length=None if kind == "while" else LENGTH, exact=kind == "exact",
            reverse=not go and self.draw.random() < 0.3,
        )  # fmt: skip
        return self.usable(outs)

    def usable(self, values: Sequence[Value]) -> Sequence[Value]:
        """Results that further equations can read."""
        return [v for v in values if v.type in TYPES] or values[:1]
