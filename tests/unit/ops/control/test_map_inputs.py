"""What a map reads of the maps that made the histories which it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.graph import Graph
from difflang.ops.control.map import map_inputs
from difflang.ops.loop.history_value import HistoryOutput, MapRun

ITEM = np.zeros(2)


class CountedReruns:
    """A lowering that only counts what it is asked for."""

    count = 0

    def graph(self, graph: Graph, *arrays: Any) -> list[Any]:
        self.count += 1
        assert not any(isinstance(x, HistoryOutput) for x in arrays)
        return [ITEM[0]]


def test_each_map_of_a_chain_is_rerun_once() -> None:
    """Where each reads the two before it, the readers of readers grow like the numbers of Fibonacci."""
    body, length = Graph((), (), ()), 20
    runs = [MapRun(body, [ITEM], [ITEM])]
    for _ in range(length):
        runs.append(MapRun(body, [ITEM], [ITEM, *[HistoryOutput(run, 0) for run in runs[-2:]]]))
    lowering: Any = CountedReruns()
    inputs = map_inputs(lowering, runs[-1])
    assert len(inputs.whole) == len(inputs.sequences) == length + 1
    assert len(inputs.operands(inputs.whole, [ITEM[0]] * (length + 1))) == 4
    assert lowering.count == length
