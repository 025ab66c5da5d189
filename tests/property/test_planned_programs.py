"""Random programs give the same gradients whatever a plan keeps of their loops and of their straight code.

DIFFLANG_FUZZ says how many, one for each 25 of it: each is compiled a few times. DIFFLANG_SEED fixes which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.plan.budget_search import SegmentedPlanner
from difflang.plan.checkpoint_segments import CheckpointSegment
from difflang.plan.save_policies import SavePolicy, Segmentation, Site
from difflang.runtime.compile import compile_graph
from support.random_programs import HEADER, random_program
from support.seeds import COUNT, SEED

FIRST = 40_000
SEEDS = [SEED * 10_000 + FIRST + i for i in range(max(3, COUNT // 25))]
WAYS = (
    SavePolicy(1, segment_steps=1),
    SavePolicy(1, segment_steps=2),
    SavePolicy(2),
    SavePolicy(residuals="nothing"),
    SavePolicy(residuals="least"),
)
GRADIENT = "fn slope(p: f64[3], k: i32) -> f64[3] = grad(|p| f(p[0], p[1], p[2], k))(p)\n"


def way_of(site: Site, number: int) -> SavePolicy:
    """One of the ways that there are of a loop, or of a piece."""
    if isinstance(site, CheckpointSegment):
        return SavePolicy(residuals="nothing" if number % 2 else "least")
    length = site.attrs["length"]
    way = WAYS[number % len(WAYS)] if isinstance(length, int) else SavePolicy(1 + number % 3)
    return (
        way if not isinstance(length, int) or not way.slots or way.slots + way.segment_steps < length else SavePolicy()
    )


@pytest.mark.parametrize("seed", [*SEEDS, 202611270001])  # in the last a block is handed a history
@pytest.mark.nightly_cases("40002|202611270001")
def test_what_is_planned_changes_no_gradient(seed: int) -> None:
    program = random_program(seed)
    of: Any = difflang.loads(HEADER + program + GRADIENT, name=f"seed{seed}")
    graph = of.slope._elaborate(("f64[3]", "i32"), {}).graph
    given = np.asarray([0.3, 0.7, 0.4]), np.int32(3)
    wanted: list[Any] | None = None
    for number in range(3):
        planner = SegmentedPlanner(graph, INITIAL_CAPACITY, Segmentation(0, deep=number % 2))
        ways = {site: way_of(site, seed + number + i) for i, site in enumerate(planner.sites)}
        wanted = wanted or list(compile_graph(planner.baseline[0])(*given))
        got = compile_graph(planner.finalize(ways)[0])(*given)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12, err_msg=f"{ways}\n{program}")
