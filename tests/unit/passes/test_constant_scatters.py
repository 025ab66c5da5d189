"""Additions at known positions are gathers and sums, where that reads little more than it adds."""

from __future__ import annotations

import numpy as np
import pytest

from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
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


@pytest.mark.parametrize("places", [np.array([0, 0, 0, 0]), np.array([1]), np.zeros(0, int)])
def test_uneven_places_stay(places: np.ndarray) -> None:
    graph = added(places, 5)
    assert scatters_to_gathers(graph) is graph
