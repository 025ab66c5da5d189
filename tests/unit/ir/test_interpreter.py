"""The interpreter checks what ops give, and reads histories."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from derivatives import FLOAT, INT, choose, literal, op, repeat, scan, total
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Inactive, Op
from difflang.ir.tensor_types import BF16, F32, F64, I32, History, Tensor

VECTOR = Tensor(F64, (3,))


def giving(array: object) -> Op:
    return Op("odd", lambda same, x: x, lambda x: array, lambda jax, x: x, "", Inactive())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.float32(1), r"odd returned float32\[\] instead of f64\[\]"),
        (np.zeros(3), r"odd returned float64\[3\] instead of f64\[\]"),
        ([1.0, 2.0], r"odd returned float64\[2\] instead of f64\[\]"),
        (1, r"odd returned int64\[\] instead of f64\[\]"),
    ],
)
def test_a_result_of_another_type_names_the_op(array: object, message: str) -> None:
    odd = giving(array)
    with pytest.raises(InternalError, match=message):
        evaluate(build_region([FLOAT], lambda x: odd(x)), np.float64(1.0))


def test_a_wrong_number_of_results_names_the_op() -> None:
    odd = Op("odd", lambda same, x: (x, x), lambda x: (x,), lambda jax, x: x, "", Inactive())
    with pytest.raises(InternalError, match="odd gave 1 results, not 2"):
        evaluate(build_region([FLOAT], lambda x: odd(x)), np.float64(1.0))


def test_arguments_are_checked() -> None:
    graph = build_region([FLOAT], lambda x: [x])
    with pytest.raises(InternalError, match=r"a param returned float32\[\] instead of f64\[\]"):
        evaluate(graph, np.float32(1.0))
    with pytest.raises(InternalError, match="takes 1 arguments, not 2"):
        evaluate(graph, np.float64(1.0), np.float64(1.0))


def test_a_history_is_a_list() -> None:
    builder = Builder()
    x = builder.param(History(FLOAT))
    graph = builder.finish([op("add_history", x, x)])
    assert evaluate(graph, [np.float64(1.0)]) == [[2.0]]
    with pytest.raises(InternalError, match=r"a param returned 1.0 instead of a history\[f64\[\]\]"):
        evaluate(graph, 1.0)


def test_histories_of_different_lengths_are_added_as_if_continued_by_zeros() -> None:
    builder = Builder()
    x, y = (builder.param(History(History(FLOAT))) for _ in range(2))
    graph = builder.finish([op("add_history", x, y), builder.one("empty_history", type=History(FLOAT))])
    one, two = np.float64(1.0), np.float64(2.0)
    assert evaluate(graph, [[one], [one, one], []], [[two, two]]) == [[[3.0, 2.0], [1.0, 1.0], []], []]


def test_a_loop_reads_zero_beyond_the_end_of_a_history() -> None:
    def step(i: Value, s: Value, x: Value) -> list[Value]:
        return [s + x, s]

    builder = Builder()
    s, xs, limit = builder.param(FLOAT), builder.param(History(FLOAT)), builder.param(INT)
    inside = build_region([INT, FLOAT, FLOAT], step)
    attrs = {"consts": 0, "carry": 1, "length": None, "exact": False, "reverse": True}
    outs = OPS["loop"](limit, s, xs, regions=(inside,), **attrs)
    graph = builder.finish(outs)
    count, last, ys = evaluate(graph, np.float64(10.0), [np.float64(1.0), np.float64(2.0)], np.int32(4))
    assert (count, last, ys) == (4, 13.0, [12.0, 10.0, 10.0, 10.0])


def test_numpy_is_quiet() -> None:
    graph = build_region([FLOAT], lambda x: [op("log", x), x / (x - x), op("exp", 1000.0 * x)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = evaluate(graph, np.float64(-1.0))
    assert np.isnan(values[0])
    assert values[1] == -np.inf


def test_sixteen_bit_floats() -> None:
    half = Tensor(BF16, (2,))
    (y,) = evaluate(build_region([half], lambda x: [x + x]), np.array([1.0, 2.5]).astype("bfloat16"))
    np.testing.assert_array_equal(y.astype(np.float32), [2.0, 5.0])


def test_a_step_may_give_arrays_of_any_type() -> None:
    def step(i: Value, s: Value) -> list[Value]:
        return [s + 1.0, op("gt", s, literal(s, 1.5)), i, op("convert", s, dtype=F32)]

    s, above, index, single = evaluate(build_region([FLOAT], lambda s: scan(3, step, [], [s])), np.float64(0.0))
    assert s == 3.0
    np.testing.assert_array_equal(above, [False, False, True])
    np.testing.assert_array_equal(index, np.array([0, 1, 2], np.int32))
    assert single.dtype == np.float32


def test_only_the_branch_taken_runs() -> None:
    def fails(x: Value) -> list[Value]:
        return list(giving(None)(x))

    graph = build_region([FLOAT], lambda x: choose(op("gt", x, literal(x, 0.0)), lambda x: [x], fails, x))
    assert evaluate(graph, np.float64(1.0)) == [1.0]
    with pytest.raises(InternalError):
        evaluate(graph, np.float64(-1.0))


def test_more_steps_than_the_length_is_our_fault() -> None:
    graph = build_region([INT, FLOAT], lambda n, s: repeat(n, lambda i, s: [s + s, s], [], [s], length=3))
    assert evaluate(graph, np.int32(2), np.float64(1.0))[0] == 2
    with pytest.raises(InternalError, match="loop: 4 steps, but its length is 3"):
        evaluate(graph, np.int32(4), np.float64(1.0))


def test_a_negative_limit_is_no_step() -> None:
    graph = build_region([INT, FLOAT], lambda n, s: repeat(n, lambda i, s: [s + s, s], [], [s], length=3))
    count, s, ys = evaluate(graph, np.int32(-2), np.float64(1.0))
    assert (count, s) == (0, 1.0)
    np.testing.assert_array_equal(ys, np.zeros(3))


def test_an_index_is_an_i32() -> None:
    graph = build_region([Tensor(I32)], lambda n: repeat(n, lambda i, s: [s + i], [], [n]))
    assert evaluate(graph, np.int32(4)) == [4, 4 + 0 + 1 + 2 + 3]


def test_a_long_line_is_no_recursion() -> None:
    def body(x: Value) -> list[Value]:
        for _ in range(20_000):
            x = x + 1.0
        return [x, total(x)]

    assert evaluate(build_region([FLOAT], body), np.float64(0.0)) == [20_000.0, 20_000.0]
