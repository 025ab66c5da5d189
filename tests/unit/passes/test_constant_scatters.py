"""Additions at known positions are gathers and sums, where that reads little more than it adds."""

from __future__ import annotations

import numpy as np
import pytest

from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F64, I32, Tensor
from difflang.ops.arrays.constants import array_constant
from difflang.passes.constant_scatters import scatters_to_gathers


def added(places: np.ndarray, size: int, item: tuple[int, ...] = (), start: float | None = 0.0) -> Graph:
    """Updates added at places along the first axis of zeros, or of a param."""
    home = Builder()
    type = Tensor(F64, (size, *item))
    updates = home.param(Tensor(F64, (*places.shape, *item)))
    x = home.param(type) if start is None else home.const(start, type)
    at = array_constant(home, places.astype(np.int32), Tensor(I32, places.shape))
    return home.finish([OPS["scatter_add"].one(x, updates, at, axes=(0,))])


@pytest.mark.parametrize(
    ("places", "start"),
    [
        (np.array([2, 0, 1, 2, 1, 0]), 0.0),
        (np.array([[2, 0], [1, 2]]), 0.0),
        (np.array([2, 0, 1, -1, 3, 1]), None),
        (np.array([0, 1, 2, 0, 1, 2]), 1.5),
    ],
)
@pytest.mark.parametrize("item", [(), (2,)])
def test_the_sums_are_the_same(places: np.ndarray, start: float | None, item: tuple[int, ...]) -> None:
    graph = added(places, 3, item, start)
    found = scatters_to_gathers(graph)
    assert "scatter_add" not in {e.op.name for e in found.eqns}
    arrays = [np.random.default_rng(1).normal(size=p.type.shape) for p in graph.params]
    np.testing.assert_allclose(evaluate(found, *arrays), evaluate(graph, *arrays), rtol=1e-14)


@pytest.mark.parametrize("start", [0.0, None])
def test_places_in_order_are_read_without_a_gather(start: float | None) -> None:
    graph = added(np.arange(4), 4, (2,), start)
    found = scatters_to_gathers(graph)
    assert {e.op.name for e in found.eqns}.isdisjoint({"scatter_add", "gather", "reduce_sum"})
    arrays = [np.random.default_rng(1).normal(size=p.type.shape) for p in graph.params]
    np.testing.assert_array_equal(evaluate(found, *arrays), evaluate(graph, *arrays))


@pytest.mark.parametrize("places", [np.array([0, 0, 0, 0]), np.array([1]), np.zeros(0, int)])
def test_uneven_places_stay(places: np.ndarray) -> None:
    graph = added(places, 5)
    assert scatters_to_gathers(graph) is graph


@pytest.mark.parametrize("wide", [False, True])
def test_updates_that_a_known_mask_replaces_by_zeros_are_not_added(wide: bool) -> None:
    home = Builder()
    updates = home.param(Tensor(F64, (6, 2)))
    # All at place 3 but for three of six: without the mask one place would have too many.
    at = array_constant(home, np.array([0, 1, 2, 3, 3, 3], np.int32), Tensor(I32, (6,)))
    there = np.array([True, True, True, False, False, False])
    if wide:
        mask = array_constant(home, np.stack([there, there & [1, 0, 1, 0, 0, 0]], 1), Tensor(BOOL, (6, 2)))
    else:
        mask = home.one("broadcast", array_constant(home, there, Tensor(BOOL, (6,))), shape=(6, 2), axes=(0,))
    kept = OPS["select"].one(mask, updates, home.const(0.0, updates.type))
    graph = home.finish([OPS["scatter_add"].one(home.const(0.0, Tensor(F64, (4, 2))), kept, at, axes=(0,))])
    found = scatters_to_gathers(graph)
    assert "scatter_add" not in {e.op.name for e in found.eqns}
    numbers = np.random.default_rng(2).normal(size=(6, 2))
    np.testing.assert_allclose(evaluate(found, numbers), evaluate(graph, numbers), rtol=1e-14)


@pytest.mark.parametrize(
    "places",
    [
        np.array([2, 0, 1]),
        np.array([[2, 0], [1, 2]]),
        np.array([2, -1, 3, 0]),
        np.array([1, 1, 1]),
        np.array([0, 1, 2]),
    ],
)
@pytest.mark.parametrize("item", [(), (2,)])
def test_writes_are_reads_of_the_last_update_of_each_place(places: np.ndarray, item: tuple[int, ...]) -> None:
    home = Builder()
    x, updates = home.param(Tensor(F64, (3, *item))), home.param(Tensor(F64, (*places.shape, *item)))
    at = array_constant(home, places.astype(np.int32), Tensor(I32, places.shape))
    graph = home.finish([OPS["scatter"].one(x, updates, at, axes=(0,))])
    found = scatters_to_gathers(graph)
    assert "scatter" not in {e.op.name for e in found.eqns}
    arrays = [np.random.default_rng(1).normal(size=p.type.shape) for p in graph.params]
    np.testing.assert_array_equal(evaluate(found, *arrays), evaluate(graph, *arrays))


def test_few_writes_to_a_long_array_stay() -> None:
    home = Builder()
    x, updates = home.param(Tensor(F64, (17,))), home.param(Tensor(F64, (2,)))
    graph = home.finish(
        [OPS["scatter"].one(x, updates, array_constant(home, np.array([3, 5], np.int32), Tensor(I32, (2,))), axes=(0,))]
    )
    assert scatters_to_gathers(graph) is graph
