"""Collectives read from compiled programs: kind, bytes, how often they run, and along which axes of the mesh."""

from __future__ import annotations

import pytest

from difflang.runtime.collectives import computation_runs, crossed_axes, find_collectives

MESH = {"data": 4, "model": 2}
PROGRAM = """
HloModule jit_f

%inner (p: (f32[8], s32[])) -> (f32[8], s32[]) {
  %g = f32[64]{0} all-gather(f32[8]{0} %x), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}
}

%body (p: (f32[8], s32[])) -> (f32[8], s32[]) {
  %w = (f32[8]{0}, s32[]) while((f32[8]{0}, s32[]) %t), condition=%c, body=%inner, backend_config={"known_trip_count":{"n":"5"}}
  %r = f32[16,2]{1,0} all-reduce(f32[16,2]{1,0} %y), replica_groups=[4,2]<=[8], to_apply=%add
}

%data (p: (f32[8], s32[])) -> (f32[8], s32[]) {
  %s = (bf16[4]{0}, bf16[8]{0}) all-gather-start(bf16[4]{0} %x), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}
  %d = bf16[8]{0} all-gather-done((bf16[4]{0}, bf16[8]{0}) %s)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %a = (f32[8]{0}, s32[]) while((f32[8]{0}, s32[]) %t), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %b = (f32[8]{0}, s32[]) while((f32[8]{0}, s32[]) %t), condition=%c2, body=%data
  %p = f32[1]{0} collective-permute(f32[1]{0} %e), source_target_pairs={{0,2},{2,4},{4,6}}
}
"""  # noqa: E501


def test_every_collective_is_found() -> None:
    found = [(c.kind, c.shape, c.bytes, c.times, c.axes) for c in find_collectives(PROGRAM, MESH)]
    assert found == [
        ("all-gather", "f32[64]", 256, 15, ("data", "model")),
        ("all-reduce", "f32[16,2]", 128, 3, ("model",)),
        ("all-gather", "bf16[8]", 16, None, ("data",)),
        ("collective-permute", "f32[1]", 4, 1, ("data",)),
    ]


def test_runs_of_nested_loops_are_multiplied() -> None:
    found = computation_runs(PROGRAM)
    assert {name: found[name] for name in ("inner", "body", "data", "main")} == {
        "inner": 15, "body": 3, "data": None, "main": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("model",)),
        ("replica_groups={{0,2,4,6},{1,3,5,7}}", ("data",)),
        ("replica_groups={{0,1,2,3,4,5,6,7}}", ("data", "model")),
        ("replica_groups={}", ("data", "model")),
        ("replica_groups=[8,1]<=[8]", ()),
    ],
)
def test_the_axes_of_groups(groups: str, axes: tuple[str, ...]) -> None:
    assert crossed_axes(f"%r = f32[] all-reduce(f32[] %x), {groups}", MESH) == axes
