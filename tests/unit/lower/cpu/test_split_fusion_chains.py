"""Long chains are cut into segments; nothing else is."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.lower.cpu.outlining import LARGE_ELEMENTS, LARGE_LINK_WEIGHT, LINK_WEIGHT, SEGMENT_SIZE, OutlinedSegment
from difflang.lower.cpu.split_fusion_chains import MAX_CHAIN_DEPTH, MAX_GRAPH_LENGTH, ChainSplitter
from difflang.lower.graph_to_jax import count_equations
from difflang.runtime.compile import compile_graph

VECTOR = Tensor(F64, (3,))
SQUARE = Tensor(F64, (3, 3))
EIGHT = Tensor(F64, (8,))


def chain(length: int, type: Tensor = VECTOR) -> Graph:
    builder = Builder()
    x = builder.param(type)
    for _ in range(length):
        x = OPS["sin"].one(x)
    return builder.finish([x])


def segments(graph: Graph) -> list[OutlinedSegment]:
    return [s for s in ChainSplitter().plan(graph) if isinstance(s, OutlinedSegment)]


def test_short_chains_are_left_alone() -> None:
    graph = chain(MAX_CHAIN_DEPTH)
    assert ChainSplitter().plan(graph) == graph.eqns


def test_a_long_chain_is_cut_whole() -> None:
    graph = chain(MAX_CHAIN_DEPTH + 1)
    assert [len(s.eqns) for s in segments(graph)] == [
        SEGMENT_SIZE // LINK_WEIGHT,
        (MAX_CHAIN_DEPTH + 1) - SEGMENT_SIZE // LINK_WEIGHT,
    ]
    assert all(len(s.operands) == len(s.results) == 1 for s in segments(graph))


def test_segments_of_large_arrays_are_shorter() -> None:
    assert {len(s.eqns) for s in segments(chain(60, Tensor(F64, (LARGE_ELEMENTS,))))} == {
        SEGMENT_SIZE // LARGE_LINK_WEIGHT
    }


def test_many_short_chains_side_by_side_are_left_alone() -> None:
    builder = Builder()
    x = builder.param(VECTOR)
    ys = [OPS["sin"].one(OPS["cos"].one(x)) for _ in range(500)]
    assert segments(builder.finish(ys)) == []


def test_a_product_of_matrices_ends_a_chain() -> None:
    def product(x: Value) -> Value:
        return OPS["dot_general"].one(x, x, contract=((1,), (0,)), batch=((), ()))

    builder = Builder()
    x = builder.param(SQUARE)
    for _ in range(10):
        for _ in range(20):
            x = OPS["sin"].one(x)
        x = product(x)
    assert segments(builder.finish([x])) == []


def test_a_thousand_products_are_gathered() -> None:
    builder = Builder()
    x, y = builder.param(SQUARE), builder.param(SQUARE)
    for _ in range(MAX_GRAPH_LENGTH + 1):
        y = OPS["dot_general"].one(x, y, contract=((1,), (0,)), batch=((), ()))
    assert {len(s.eqns) for s in segments(builder.finish([y]))} == {SEGMENT_SIZE, (MAX_GRAPH_LENGTH + 1) % SEGMENT_SIZE}


def test_constants_are_copied_and_not_passed() -> None:
    builder = Builder()
    x, half = builder.param(VECTOR), builder.const(0.5, VECTOR)
    for _ in range(80):
        x = x * half
    (first, *_) = found = segments(builder.finish([x]))
    assert all(s.operands != () and half not in s.operands for s in found)
    assert first.eqns[0].results == (half,)


def test_what_is_had_from_one_value_is_made_again_and_not_passed() -> None:
    """A sine and a cosine of each angle on a chain, read much later: the segments there read what it is made of."""
    builder = Builder()
    x, slow = builder.param(VECTOR), builder.const(0.5, VECTOR)
    links, reads = list[Value](), list[Value]()
    for _ in range(60):
        angle = x * slow
        links.append(x)
        reads += [OPS["sin"].one(angle), OPS["cos"].one(angle)]
        x = reads[-2] + x
    y = x
    for sine, cosine in zip(reads[-2::-2], reads[::-2], strict=True):
        y = y * sine + cosine
    graph = builder.finish([y])
    passed = {v for s in segments(graph) for v in (*s.operands, *s.results)}
    assert len(passed & set(reads)) < 20  # of 120: where a segment ends between the two
    assert len(passed & set(links)) > 40
    given = np.array([0.1, 0.2, 0.3])
    (found,) = compile_graph(graph)(given)
    np.testing.assert_allclose(np.asarray(found), evaluate(graph, given)[0], rtol=1e-14)


def test_what_is_had_from_one_value_is_passed_where_that_takes_no_more() -> None:
    builder = Builder()
    x = builder.param(VECTOR)
    sine = OPS["sin"].one(x)
    y = sines(sine, 100) * sine
    (first, *_, last) = segments(builder.finish([y]))
    assert sine in first.results
    assert sine in last.operands


def test_calls_count_as_long_as_they_are() -> None:
    body = build_region([VECTOR], lambda x: [OPS["sin"].one(OPS["cos"].one(x))])
    builder = Builder()
    x = builder.param(VECTOR)
    for _ in range(40):
        (x,) = builder.emit(OPS["call"], [x], (body,), name="f")
    assert {len(s.eqns) for s in segments(builder.finish([x]))} == {SEGMENT_SIZE // LINK_WEIGHT // 2 + 1, 1}


def test_what_a_cut_function_leaves_whole_counts_where_it_is_called() -> None:
    """One result is a long chain and cut; the other is a shorter one, and grows from call to call."""
    body = build_region(
        [VECTOR, VECTOR], lambda x, y: [sines(x, MAX_CHAIN_DEPTH + 1), sines(y, MAX_CHAIN_DEPTH // 2 + 1)]
    )
    assert {r for s in segments(body) for e in s.eqns for r in e.results}.isdisjoint(body.results[1:])
    builder = Builder()
    x, y = builder.param(VECTOR), builder.param(VECTOR)
    z = [x, y]
    for _ in range(6):
        z = builder.emit(OPS["call"], [x, z[1]], (body,), name="f")
    assert [len(s.eqns) for s in segments(builder.finish(z))] == [1] * 6
    once = Builder()
    x, y = once.param(VECTOR), once.param(VECTOR)
    assert segments(once.finish(once.emit(OPS["call"], [x, y], (body,), name="f"))) == []


def test_a_chain_inside_a_loop_is_cut() -> None:
    body = build_region([Tensor(I32), VECTOR], lambda i, x: [sines(x, 100)])
    builder = Builder()
    limit, x = builder.const(2, Tensor(I32)), builder.param(VECTOR)
    _, y = builder.emit(OPS["loop"], [limit, x], (body,), consts=0, carry=1, length=2, exact=True, reverse=False)
    graph = builder.finish([y])
    assert segments(graph) == []
    assert len(segments(body)) == 100 * LINK_WEIGHT // SEGMENT_SIZE
    given = np.array([0.1, 0.2, 0.3])
    (found,) = compile_graph(graph)(given)
    np.testing.assert_allclose(np.asarray(found), evaluate(graph, given)[0], rtol=1e-14)


def sines(x: Value, count: int) -> Value:
    for _ in range(count):
        x = OPS["sin"].one(x)
    return x


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_program_computes_the_same(seed: int) -> None:
    """Long and short chains, products and dead code in any order, each segment after what it reads."""
    draw = Random(seed)
    builder = Builder()
    values = [builder.param(SQUARE) for _ in range(3)]
    deep = values[0]
    for i in range(120):
        other = draw.choice(values[-20:])
        deep = OPS["sin"].one(deep + other) if draw.random() < 0.7 else deep * builder.const(0.9, SQUARE)
        if i % 40 == 39:
            deep = OPS["dot_general"].one(deep, other, contract=((1,), (0,)), batch=((), ()))
        values.append(deep if draw.random() < 0.5 else OPS["cos"].one(other))
    graph = builder.finish([deep, *values[-3:], values[60], values[0]])
    plan = ChainSplitter().plan(graph)
    assert any(isinstance(s, OutlinedSegment) for s in plan)
    known = set(graph.params)
    for step in plan:
        inner = [step] if not isinstance(step, OutlinedSegment) else list(step.eqns)
        assert known.issuperset(step.operands)
        mine = set(step.operands)
        for eqn in inner:
            assert mine.issuperset(eqn.operands)
            mine.update(eqn.results)
        known.update(step.results)
    given = [np.random.default_rng(seed + i).normal(size=(3, 3)) for i in range(3)]
    for found, wanted in zip(compile_graph(graph)(*given), evaluate(graph, *given), strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-9, atol=1e-12)


def test_the_census_counts_shared_functions_once() -> None:
    body = chain(12)
    for _ in range(40):
        body = twice(body)
    found = count_equations(body)
    assert found.size == 12 + 40 * 2
    assert found.expanded == 12 * 2**40 + 2 * (2**40 - 1)


def twice(f: Graph) -> Graph:
    def body(x: Value) -> list[Value]:
        (y,) = x.home.emit(OPS["call"], [x], (f,), name="f")
        return list(x.home.emit(OPS["call"], [y], (f,), name="f"))

    return build_region([VECTOR], body)


def test_a_chain_ends_in_a_function_with_a_product_between() -> None:
    def body(x: Value) -> list[Value]:
        y = OPS["dot_general"].one(sines(x, 12), x, contract=((1,), (0,)), batch=((), ()))
        return [sines(y, 12)]

    function, builder = build_region([SQUARE], body), Builder()
    x = builder.param(SQUARE)
    for _ in range(MAX_CHAIN_DEPTH):
        (x,) = builder.emit(OPS["call"], [x], (function,), name="f")
    graph = builder.finish([x])
    assert segments(graph) == []
    assert ChainSplitter().depth(graph) == 24  # from a product to the next


def test_what_a_function_gives_beside_a_chain_is_on_none() -> None:
    """As gradients of weights beside the cotangent that goes on: what is made of them begins anew."""

    def body(x: Value) -> list[Value]:
        beside = OPS["dot_general"].one(x, x, contract=((1,), (0,)), batch=((), ()))
        return [sines(x, 30), beside]

    function, builder = build_region([SQUARE], body), Builder()
    x, others = builder.param(SQUARE), list[Value]()
    for _ in range(4):
        x, beside = builder.emit(OPS["call"], [x], (function,), name="f")
        others.append(sines(beside, 10))
    found = [e for s in segments(builder.finish([x, *others])) for e in s.eqns]
    assert {e.op.name for e in found} == {"call"}


def maxima(depth: int, before: int) -> Graph:
    """Of each of many arrays on a chain its maximum is taken, and much later who attains it counted."""
    builder, one = Builder(), {n: OPS[n].one for n in ("sin", "lt", "select", "reduce_max", "reduce_sum", "broadcast")}
    x = builder.param(EIGHT)
    numbers = [builder.const(n, EIGHT) for n in (0.0, 1.0)]
    seen, counts = list[tuple[Value, Value, Value]](), list[Value]()
    x = sines(x, before)
    for i in range(depth):
        y = x * builder.const(0.7 + i * 0.01, EIGHT) + builder.const(0.1 + i * 0.003, EIGHT)
        most = one["broadcast"](one["reduce_max"](y, axes=(0,)), shape=EIGHT.shape, axes=())
        seen.append((x, y, most))
        x = one["sin"](y * builder.const(1.3, EIGHT) - most * builder.const(0.1, EIGHT))
    for z, y, most in reversed(seen):
        attains = one["select"](one["lt"](y, most), *numbers)
        counts.append(one["reduce_sum"](attains, axes=(0,)))
        x = one["sin"](x + attains * z)
    return builder.finish([*counts, x])


@pytest.mark.as_users
@pytest.mark.parametrize("before", [3, 7])
@pytest.mark.nightly_except("3")
def test_a_maximum_is_attained_far_from_where_it_was_taken(before: int) -> None:
    """A product and a sum made again in one kernel are rounded once: no element would be as large as the largest."""
    graph, draw = maxima(56, before), np.random.default_rng(1)
    program = compile_graph(graph)
    for _ in range(40):
        *counts, _ = program(draw.normal(size=8))
        assert min(map(float, counts)) >= 1.0


def test_what_a_last_bit_decides_is_made_once() -> None:
    """Also where a comparison reads the sine of what else is read: it is handed over as it is."""
    builder = Builder()
    x = angle = builder.param(VECTOR)
    sine, cosine = OPS["sin"].one(angle), OPS["cos"].one(angle)
    y = sines(x, 100)
    z = OPS["select"].one(OPS["lt"].one(sine, y), cosine, y)
    for _ in range(60):
        z = OPS["sin"].one(z)
    made = [r for s in segments(builder.finish([z + sine * cosine])) for e in s.eqns for r in e.results]
    assert made.count(sine) == 1
