"""Elementwise equations are computed in the order of axes that copies least, and compute the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import F64, Tensor
from difflang.ir.verify import verify
from difflang.ops.op_factories import tensor_type
from difflang.passes import order_axes as passes
from difflang.passes.dce import dce
from difflang.passes.order_axes import order_axes
from difflang.passes.pipelines import ORDER_AXES

RNG = np.random.default_rng(0)
B, N, D = 5, 7, 3
Build = Callable[[Builder, Sequence[Value]], Sequence[Value]]


def graph_of(shapes: Sequence[tuple[Dim, ...]], build: Build) -> Graph:
    builder = Builder()
    params = [builder.param(Tensor(F64, s)) for s in shapes]
    return builder.finish(build(builder, params))


def transposed_bytes(graph: Graph) -> int:
    return sum(tensor_type(e.results[0]).bytes for e in graph.eqns if e.op.name == "transpose")


def reordered(graph: Graph) -> Graph:
    """The graph after the pass, which computes the same."""
    after = dce(order_axes(graph))
    verify(after)
    arrays = [RNG.normal(size=tensor_type(p).shape) for p in graph.params]
    for a, b in zip(evaluate(graph, *arrays), evaluate(after, *arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-13)
    return after


def squares_of_products(b: Builder, given: Sequence[Value]) -> Sequence[Value]:
    """sum(for j => (f[c] @ (x[i] - m[c]))^2), as comprehensions write it."""
    x, m, f = given
    moved = b.one(
        "sub", b.one("broadcast", x, shape=(N, B, D), axes=(0, 2)), b.one("broadcast", m, shape=(N, B, D), axes=(1, 2))
    )
    product = b.one("dot_general", moved, f, batch=((1,), (0,)), contract=((2,), (2,)))
    back = b.one("transpose", product, perm=(1, 0, 2))
    return [b.one("reduce_sum", b.one("mul", back, back), axes=(2,))]


def test_only_the_reduced_array_is_transposed() -> None:
    after = reordered(graph_of([(N, D), (B, D), (B, D, D)], squares_of_products))
    assert transposed_bytes(after) == 8 * N * B
    (product,) = [e for e in after.eqns if e.op.name == "dot_general"]
    assert product.attrs["batch"] == ((0,), (0,))


def test_a_sum_with_its_transpose_keeps_one() -> None:
    def build(b: Builder, given: Sequence[Value]) -> Sequence[Value]:
        x = b.one("exp", given[0])
        return [b.one("tanh", b.one("add", x, b.one("transpose", x, perm=(1, 0))))]

    graph = graph_of([(N, N)], build)
    assert transposed_bytes(reordered(graph)) == transposed_bytes(graph)


def test_positions_and_constants_are_made_in_the_order() -> None:
    def build(b: Builder, given: Sequence[Value]) -> Sequence[Value]:
        type = Tensor(F64, (N, B))
        turned = b.one("transpose", given[0], perm=(1, 0))
        mixed = b.one("mul", b.one("add", turned, b.one("iota", type=type, axis=1)), b.const(2.5, type))
        return [b.one("transpose", mixed, perm=(1, 0))]

    assert transposed_bytes(reordered(graph_of([(B, N)], build))) == 0


def test_it_changes_nothing_where_nothing_is_gained() -> None:
    def build(b: Builder, given: Sequence[Value]) -> Sequence[Value]:
        return [b.one("transpose", given[0], perm=(1, 0)), b.one("add", *given)]

    graph = graph_of([(N, B), (N, B)], build)
    assert order_axes(graph) is graph


def test_a_larger_product_keeps_its_order() -> None:
    def build(b: Builder, given: Sequence[Value]) -> Sequence[Value]:
        x = b.one("sin", b.one("transpose", given[0], perm=(1, 0, 2)))
        return [b.one("dot_general", x, given[1], batch=((), ()), contract=((2,), (0,)))]

    graph = graph_of([(N, B, 2), (2, 50)], build)
    assert transposed_bytes(reordered(graph)) <= transposed_bytes(graph)


def test_few_of_many_orders_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(b: Builder, given: Sequence[Value]) -> Sequence[Value]:
        random, total = Random(0), given[0]
        for x in given:
            total = b.one("add", total, b.one("transpose", b.one("sin", x), perm=tuple(random.sample(range(7), 7))))
        return [total]

    compared: list[object] = []
    cost = passes.Islands.cost

    def counted(islands: passes.Islands, values: list[Value], order: passes.Order) -> int:
        compared.append(order)
        return cost(islands, values, order)

    monkeypatch.setattr(passes.Islands, "cost", counted)
    order_axes(graph_of([(2,) * 7] * 100, build))
    assert 1 < len(compared) <= passes.MAX_CANDIDATES + 1


def random_graph(random: Random) -> Graph:
    """Equations of every kind at the edges of islands, on arrays of two and three axes of few sizes."""
    sizes = [2, 3, 4]
    builder = Builder()
    values = [builder.param(Tensor(F64, tuple(random.choices(sizes, k=random.choice((2, 3)))))) for _ in range(3)]

    def perm(rank: int) -> tuple[int, ...]:
        return tuple(random.sample(range(rank), rank))

    for _ in range(random.randint(4, 14)):
        x = random.choice(values)
        shape = tensor_type(x).shape
        rank = len(shape)
        alike = [v for v in values if tensor_type(v).shape == shape]
        kind = random.randrange(7)
        if kind <= 1 and rank:
            values.append(builder.one("transpose", x, perm=perm(rank)))
        elif kind == 2:
            values.append(builder.one(random.choice(("mul", "sub")), x, random.choice(alike)))
        elif kind == 3:
            values.append(builder.one("sin", x))
        elif kind == 4 and rank:
            axes = tuple(sorted(random.sample(range(rank), random.randint(1, rank))))
            values.append(builder.one(random.choice(("reduce_sum", "reduce_max")), x, axes=axes))
        elif kind == 5 and rank < 3:
            at = random.randint(0, rank)
            wide = (*shape[:at], random.choice(sizes), *shape[at:])
            values.append(builder.one("broadcast", x, shape=wide, axes=tuple(a for a in range(rank + 1) if a != at)))
        elif kind == 6 and rank:
            y = random.choice(values)
            other = tensor_type(y).shape
            pairs = [(a, b) for a in range(rank) for b in range(len(other)) if shape[a] == other[b]]
            random.shuffle(pairs)
            used: list[tuple[int, int]] = []
            for a, b in pairs:
                if all(a != c and b != d for c, d in used):
                    used.append((a, b))
            cut = random.randint(0, len(used))
            batch, contract = used[:cut], used[cut:]
            if rank + len(other) - 2 * len(used) + cut <= 3:
                sides = [tuple(tuple(p[s] for p in pairs) for s in (0, 1)) for pairs in (batch, contract)]
                values.append(builder.one("dot_general", x, y, batch=sides[0], contract=sides[1]))
    return builder.finish(random.sample(values, min(3, len(values))))


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("many", [passes.MANY_VECTORS, 2])
def test_random_graphs(seed: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MANY_VECTORS", many)
    graph = random_graph(Random(seed))
    arrays = [np.random.default_rng(seed).normal(size=tensor_type(p).shape) for p in graph.params]
    after = order_axes(graph)
    verify(after)
    for a, b in zip(evaluate(graph, *arrays), evaluate(after, *arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-12)


def test_gradients_and_loops_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """float f64
fn f(x: f64[n, d], m: f64[k, d], w: f64[k, d, d]) -> f64 {
  var total = 0.0
  for s in 0..3 {
    total = tanh(total) + sum(for i in 0..n, c in 0..k => sin(sum((w[c] @ (x[i] - f64(s) * m[c]))^2)))
  }
  total
}
"""
    given: list[Any] = [RNG.normal(size=s) for s in ((N, D), (B, D), (B, D, D))]
    slope = difflang.loads(source).f.grad(("x", "m", "w"))
    got, wanted = slope(*given), slope.interpret(*given)
    for name in ("x", "m", "w"):
        np.testing.assert_allclose(getattr(got, name), getattr(wanted, name), rtol=1e-10, atol=1e-12)
    bytes_with = slope.ir("optimized", *given).count("transpose")
    monkeypatch.setattr("difflang.passes.pipelines.LEFT_OUT", {ORDER_AXES.name})
    assert bytes_with < difflang.loads(source, name="kept").f.grad(("x", "m", "w")).ir("optimized", *given).count(
        "transpose"
    )


DENSITIES = """float f64
fn f(x: f64[n, d], m: f64[k, d], w: f64[k, d, d]) -> f64 =
  sum(for i in 0..n => logsumexp([for c in 0..k => -sum((w[c] @ (x[i] - m[c]))^2)]))
"""


def density_arguments(d: int) -> list[np.ndarray]:
    return [RNG.normal(size=(400, d)), RNG.normal(size=(5, d)), RNG.normal(size=(5, d, d))]


def test_islands_follow_what_they_read() -> None:
    """The batch leads in the products, so it leads in what is computed of them too, and in the way back."""
    x, m, w = density_arguments(20)
    f = difflang.loads(DENSITIES).f
    for found in (f, f.grad("w"), f.grad("m")):
        assert transposed_bytes(found.lower(x, m, w).graph) == 0
        np.testing.assert_allclose(found(x, m, w), found.interpret(x, m, w), rtol=1e-9)


def test_small_matrices_multiply_columns() -> None:
    """The points themselves are transposed, so that products and sums of squares go along all of them."""
    x, m, w = density_arguments(9)
    f = difflang.loads(DENSITIES).f
    for found in (f, f.grad("w"), f.grad("m")):
        graph = found.lower(x, m, w).graph
        assert transposed_bytes(graph) == x.nbytes
        product = next(e for e in graph.eqns if e.op.name == "dot_general")
        assert tensor_type(product.results[0]).shape == (5, 9, 400)
        np.testing.assert_allclose(found(x, m, w), found.interpret(x, m, w), rtol=1e-9)
