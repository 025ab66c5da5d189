"""Parts of arrays go from device to device, whatever the order of the mesh axes that split them."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from difflang.embed.derived_programs import EmbeddedProgram, PipelineHooks
from difflang.embed.jax_primitive import bind_program
from difflang.ir.builder import build_region
from difflang.ir.graph import Value
from difflang.ir.tensor_types import F32, Tensor
from difflang.lower.lowering_pipeline import COMPILE_ON_MESH, finalize_graph
from difflang.ops.arrays.resplit import resplit
from difflang.ops.arrays.shift import shift, shift_reference

MESH = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
X = np.arange(16, dtype=np.float32)
SPLITS = [("a",), ("b",), ("a", "b"), ("b", "a")]
HOOKS = PipelineHooks(
    finish=partial(finalize_graph, pipeline=COMPILE_ON_MESH), on_print=lambda site, text: None, report=lambda n: None
)


def run(split: tuple[str, ...], body: object) -> np.ndarray:
    program = EmbeddedProgram(build_region([Tensor(F32, (16,))], body), HOOKS)  # type: ignore[arg-type]
    given = jax.device_put(X, NamedSharding(MESH, PartitionSpec(split)))
    return np.asarray(jax.block_until_ready(bind_program(program, [given])[0]))


@pytest.mark.parametrize(("given", "wanted"), permutations(SPLITS, 2))
def test_a_split_becomes_another(given: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    def body(x: Value) -> list[Value]:
        return [resplit.one(x, given=(given,), wanted=(wanted,))]

    np.testing.assert_array_equal(run(given, body), X)


@pytest.mark.parametrize("by", [1, -3])
@pytest.mark.parametrize("split", SPLITS)
def test_elements_cross_borders(split: tuple[str, ...], by: int) -> None:
    def body(x: Value) -> list[Value]:
        return [shift.one(x, axis=0, by=by, split=(split,))]

    np.testing.assert_array_equal(run(split, body), shift_reference(X, axis=0, by=by, split=()))
