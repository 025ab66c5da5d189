"""What two processes with two devices each do together. Arguments: an address, the number of this one, a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import difflang
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.bridge import train
from difflang.runtime import pytrees
from difflang.runtime.joined_processes import current_group

ADDRESS, NUMBER, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
X = np.linspace(-1, 1, 16, dtype=np.float32)


def put(array: Any, *spec: str) -> jax.Array:
    sharding = NamedSharding(jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec(*spec))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def failures_have_their_details() -> None:
    f = difflang.loads("fn pick(x: f32[n], i: i32) -> f32 = x[i]").pick
    x = put(X, "data")
    assert float(f(x, 3)) == X[3] == f.interpret(x, 3)
    for run in (f, f.interpret):
        try:
            run(x, 99)
        except difflang.IndexFailure as error:
            assert "index 99 is out of range: `x` has 16 elements" in str(error)
        else:
            raise AssertionError("no failure")


def trainings_go_on() -> None:
    """Parameters stay split, and the state after an interruption is that without one."""
    loss = difflang.loads("fn loss(w: f32[n], x: f32[n]) -> f32 = sum((w - x)^2)").loss

    def fit(steps: int, path: Path | None) -> Any:
        start, batch = put(np.zeros_like(X), "data"), (put(X, "data"),)
        found = train.fit(loss, start, lambda _: batch, optax.adam(0.1), steps=steps, checkpoint=path)
        assert found.params.sharding.spec == PartitionSpec("data")
        return found

    whole = fit(6, None)
    for suffix in ("file.npz", "folder"):
        fit(3, FOLDER / suffix)
        resumed = fit(6, FOLDER / suffix)
        assert int(resumed.state.step) == 6
        for here, there in zip(resumed.params.addressable_shards, whole.params.addressable_shards, strict=True):
            np.testing.assert_array_equal(here.data, there.data)


def files_are_written_once() -> None:
    """Process 0 writes, and where it fails all fail; both have its clock."""
    group, done = current_group(), list[int]()
    refused, failure = DifflangError(Diagnostic("DL0710", "refused")), DifflangError(Diagnostic("DL0710", "failed"))
    group.run_once(lambda: done.append(1), refused)
    assert (group.number, group.count, len(done)) == (NUMBER, 2, 1 - NUMBER)

    def fail() -> None:
        raise failure

    with pytest.raises(DifflangError) as raised:
        group.run_once(fail, refused)
    assert raised.value is (refused if NUMBER else failure)
    assert group.agree(1 / 3 + NUMBER) == 1 / 3


def draws_are_those_of_one_device() -> None:
    """Bit for bit."""
    draw = difflang.loads("fn draw(x: f32[n]) -> (f32[n], f32[n]) = (x + normal(n), uniform(n))").draw
    key = np.array([1, 2], np.uint32)
    alone, found = draw(X, key=key), draw(put(X, "data"), key=key)
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_array_equal(one, pytrees.host_array(other))


jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(ADDRESS, num_processes=2, process_id=NUMBER)
failures_have_their_details()
files_are_written_once()
draws_are_those_of_one_device()
trainings_go_on()
