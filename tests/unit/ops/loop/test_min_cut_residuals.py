"""The least cut is what trying every set of values finds to be the least from which all that is wanted is cheap."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, Tensor
from difflang.ops.loop.min_cut_residuals import find_min_cut, is_cheap_to_recompute
from difflang.ops.loop.residual_selection import total_bytes


def drawn(seed: int) -> tuple[Graph, list[Value]]:
    """A graph of cheap and dear equations on arrays of several sizes, and some of its values."""
    rng = np.random.default_rng(seed)
    builder = Builder()
    values = [builder.param(Tensor(F32, (4, 4))), builder.param(Tensor(F32, (4,)))]
    for _ in range(9):
        x = values[rng.integers(len(values))]
        match rng.integers(5):
            case 0:
                values.append(OPS["sin"].one(x))
            case 1:
                values.append(OPS["reduce_sum"].one(x, axes=(len(x.type.shape) - 1,)) if x.type.shape else -x)
            case 2:
                wide = x.type.shape == (4,)
                values.append(OPS["broadcast"].one(x, axes=(0,), shape=(4, 4)) if wide else x * 2.0)
            case 3:
                like = [v for v in values if v.type == x.type]
                values.append(x * like[rng.integers(len(like))])
            case _:
                square = len(x.type.shape) == 2
                values.append(OPS["dot_general"].one(x, x, batch=((), ()), contract=((1,), (0,))) if square else x + x)
    wanted = [values[i] for i in sorted(set(rng.integers(2, len(values), 4).tolist()))]
    return builder.finish(values[-1:]), wanted


def enough(graph: Graph, kept: set[Value], wanted: list[Value]) -> bool:
    """Whether cheap equations make what is wanted of what is kept and of the params."""
    had = {*graph.params, *kept}
    for eqn in graph.eqns:
        if is_cheap_to_recompute(eqn) and had.issuperset(eqn.operands):
            had.update(eqn.results)
    return had.issuperset(wanted)


@pytest.mark.parametrize("seed", range(12))
def test_no_smaller_set_will_do(seed: int) -> None:
    graph, wanted = drawn(seed)
    kept = find_min_cut(graph, graph.params, wanted)
    assert enough(graph, set(kept), wanted)
    values = [r for e in graph.eqns for r in e.results if e.operands]
    smaller = [s for n in range(5) for s in combinations(values, n) if total_bytes(s) < total_bytes(kept)]
    assert not any(enough(graph, set(s), wanted) for s in smaller)


def test_of_two_least_sets_the_later_one_is_kept() -> None:
    builder = Builder()
    x = builder.param(Tensor(F32, (3,)))
    product = OPS["reduce_prod"].one(OPS["broadcast"].one(x, axes=(0,), shape=(3, 9)), axes=(1,))
    once = OPS["sin"].one(product)
    twice = OPS["exp"].one(once)
    graph = builder.finish([twice])
    assert find_min_cut(graph, [x], [twice]) == [twice]
    assert find_min_cut(graph, [x], [once, twice]) == [once]
    assert find_min_cut(graph, [x], []) == []


def test_arrays_of_terabytes_are_weighed_too() -> None:
    builder = Builder()
    x = builder.param(Tensor(F32, (1 << 20, 1 << 20)))
    total = OPS["reduce_sum"].one(x, axes=(1,))
    wide = OPS["broadcast"].one(total, axes=(0,), shape=(1 << 20, 1 << 20))
    graph = builder.finish([wide])
    assert find_min_cut(graph, [x], [wide]) == [total]
