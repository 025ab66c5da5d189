"""Gradients of examples are lowered for a mesh of devices of other platforms, none of which is here."""

from __future__ import annotations

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.elaborate.context import Session
from difflang.embed.mesh_program import lower_on_mesh
from difflang.execution.check_failures import with_check_number
from difflang.ir.graph import Graph
from difflang.lower.lowering_pipeline import COMPILE_ON_MESH, finalize_graph
from difflang.tools.emit import EmitRequest, function_call, single_function
from support.documents import ROOT

# What is lowered, the mesh, and sizes.
GRADIENTS = {
    "digits_parallel:loss": ("m", {"data": 4096}, {"d": 64, "h": 64, "k": 10, "b": 16384}),
    "transformer_parallel:loss": (
        "m", {"data": 512, "model": 8},
        {"c": 28, "d": 32, "h": 8, "k": 8, "f": 64, "l": 2, "b": 2048, "n": 32},
    ),
    "heat_parallel:loss": ("logs", {"data": 8}, {"p": 4, "q": 2, "size": 16, "steps": 20}),
    "logistic:loss": ("m", {"data": 4}, {"d": 30, "n": 142}),
}  # fmt: skip


def finished(entry: str) -> tuple[Graph, dict[str, int]]:
    """The graph as it is lowered, and the mesh."""
    name, function = entry.split(":")
    wrt, mesh, sizes = GRADIENTS[entry]
    path = ROOT / "examples" / f"{name}.dfl"
    checked = check_program(Source(path.name, path.read_text(encoding="utf-8")), path=path, mesh=mesh)
    request = EmitRequest("ir", function, {n: str(size) for n, size in sizes.items()}, wrt or None)
    call = function_call(checked, single_function(checked, function, "emit"), request, Session(mesh=mesh))
    graph = finalize_graph(call.graph, pipeline=COMPILE_ON_MESH)
    return with_check_number(graph) if call.fails else graph, mesh


@pytest.mark.parametrize("entry", GRADIENTS)
@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_a_gradient_is_lowered(entry: str, platform: str) -> None:
    graph, mesh = finished(entry)
    text = lower_on_mesh(graph, mesh, platform)
    axes = ", ".join([f'"{name}"={size}' for name, size in mesh.items()])
    assert f"sdy.mesh @mesh = <[{axes}]>" in text
    if "parallel" in entry:
        assert '{"data"}' in text and "sdy.sharding_constraint" in text
