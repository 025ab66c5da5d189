"""Weak scaling by count: what each device sends, computes and holds, from 1 to 4,096 devices.

`docs/many-devices.md` has the table.

The problem grows with the devices: each has as many rows in every line. Nothing is compiled or run, and no device is
needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct

from difflang.base.byte_sizes import format_bytes
from difflang.base.source import Source
from difflang.base.wording import aligned_rows
from difflang.driver.checked_program import check_program
from difflang.tools.function_cost import CostOptions, function_cost
from difflang.tools.partition import PartitionOptions, report_partition

ROOT = Path(__file__).parents[1]
DEVICES = (1, 8, 64, 512, 4096)


class Scaled(Struct, frozen=True):
    """A gradient of an example; `rows` of the size `along` on each place along `data`, and the others fixed."""

    title: str
    entry: str
    wrt: str
    along: str
    rows: int
    sizes: dict[str, int]
    model: int = 1  # devices along `model`, where there are so many


PROGRAMS = (
    Scaled("a network, its batch along `data`", "digits_parallel:loss", "m", "b", 32, {"d": 64, "h": 64, "k": 10}),
    Scaled(
        "a block of a transformer, also its heads and hidden units along `model`", "transformer_parallel:loss", "m",
        "b", 16, {"c": 28, "d": 64, "h": 8, "k": 16, "f": 256, "l": 1, "n": 64}, model=8,
    ),
)  # fmt: skip


def mesh_of(program: Scaled, devices: int) -> dict[str, int]:
    if program.model == 1:
        return {"data": devices}
    model = min(program.model, devices)
    return {"data": devices // model, "model": model}


def figures(program: Scaled, devices: int) -> list[str]:
    """The mesh, and what each device sends, computes and holds."""
    name, function = program.entry.split(":")
    path, mesh = ROOT / "examples" / f"{name}.dfl", mesh_of(program, devices)
    checked = check_program(Source(path.name, path.read_text(encoding="utf-8")), path=path, mesh=mesh)
    specs = {n: str(size) for n, size in {**program.sizes, program.along: program.rows * mesh["data"]}.items()}
    found = report_partition(checked, path, function, PartitionOptions(mesh, {}, specs, program.wrt))
    sent = sum([c.bytes * (c.times or 1) for c in found.predicted])
    cost = function_cost(checked, path, function, CostOptions(specs, program.wrt, mesh=mesh)).gradient
    assert cost is not None
    axes = ", ".join([f"{axis} = {size}" for axis, size in mesh.items()])
    return [f"{devices:,}", axes, format_bytes(sent), f"{cost.operations:,}", format_bytes(cost.peak)]


def main() -> None:
    for program in PROGRAMS:
        head = ["devices", "mesh", "exchanged", "operations", "memory"]
        rows = [head, *[figures(program, devices) for devices in DEVICES]]
        sys.stdout.write("\n".join([program.title, *aligned_rows(rows, {1}), ""]) + "\n")


if __name__ == "__main__":
    main()
