"""Parts of arrays go from device to device, whatever the order of the mesh axes that split them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from difflang.embed.derived_programs import EmbeddedProgram, PipelineHooks
from difflang.embed.jax_primitive import bind_program
from difflang.gradcheck.op_calls import DTYPE_OF
from difflang.ir.builder import build_region
from difflang.ir.graph import Value
from difflang.ir.tensor_types import F32, I32, Tensor
from difflang.lower.lowering_pipeline import COMPILE_ON_MESH, finalize_graph
from difflang.ops.arrays.gather_scatter import dynamic_slice, gather
from difflang.ops.arrays.reshard import Along, Split, reshard
from difflang.ops.arrays.resplit import resplit
from difflang.ops.arrays.shift import shift, shift_reference
from difflang.ops.arrays.swap_item import swap_window
from difflang.ops.signal.pooling import sum_pool

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


def run_declared(
    body: Callable[..., Sequence[Value]], *splits: Split, arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The results of a program that says how its arguments are split."""

    def split(*params: Value) -> Sequence[Value]:
        return body(*[reshard.one(p, splits=s, source=s) for p, s in zip(params, splits, strict=True)])

    program = EmbeddedProgram(build_region([Tensor(DTYPE_OF[x.dtype], x.shape) for x in arrays], split), HOOKS)
    whole = NamedSharding(MESH, PartitionSpec())
    found = bind_program(program, [jax.device_put(x, whole) for x in arrays])
    return [np.asarray(x) for x in jax.block_until_ready(found)]


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


@pytest.mark.parametrize("given", [(), ("a",)])
def test_a_window_that_is_split_and_put_into_an_array(given: Along) -> None:
    def body(x: Value, update: Value) -> Sequence[Value]:
        return swap_window(x, update, x.home.const(13, Tensor(I32, ())))

    after, old = run_declared(body, (given,), (("b",),), arrays=[X, -X[:4]])
    np.testing.assert_array_equal(after, [*X[:12], *-X[:4]])
    np.testing.assert_array_equal(old, X[12:])


@pytest.mark.parametrize(("dtype", "parts"), [("f4", "f4"), ("f2", "f2"), ("c8", "f4")])
def test_what_is_read_keeps_its_bits(dtype: str, parts: str) -> None:
    x = np.full(32, -0.0, parts).view(dtype)[:16]

    def body(x: Value) -> list[Value]:
        at = x.home.const(5, Tensor(I32, ()))
        return [dynamic_slice.one(x, at, sizes=(4,)), gather.one(x, at, axes=(0,))]

    for found in run_declared(body, (("a",),), arrays=[x]):
        assert np.signbit(np.atleast_1d(found).view(parts)).all()


def test_no_window_fits_into_an_image_that_is_split() -> None:
    def body(x: Value) -> list[Value]:
        return [sum_pool.one(x, window=(4,), strides=(4,), padding=((0, 0),))]

    (found,) = run_declared(body, ((), (), ("b",)), arrays=[X.reshape(4, 2, 2)])
    assert found.shape == (4, 0, 2)
