"""`difflang partition`: a function on a mesh of devices: what they exchange, line by line, and what each one holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from difflang.base.byte_sizes import format_bytes
from difflang.base.error_codes import suggestion
from difflang.base.wording import aligned_rows, count_of
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.runtime.collectives import HOST_DEVICES_FLAG, Collective, PartitionedProgram, Split, compile_on_mesh
from difflang.tools.emit import EmitRequest, function_graph, refuse_host_function, single_function
from difflang.types.type_errors import make_error

USAGE = ("DL0201", "DL0322", "DL0403", "DL0601", "DL0603", "DL0604", "DL0606", "DL1207", "DL1210", "DL1220")
MAX_TEXT = 60  # characters of a source line in the table


class PartitionOptions(Struct, frozen=True):
    """The mesh, how arguments are split, `data,_` by name, argument types, the gradient's parameter."""

    mesh: Mapping[str, int]
    splits: Mapping[str, str] = field(default_factory=dict[str, str])
    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    words: tuple[str, ...] = ()


class PartitionReport(Struct, frozen=True):
    """What a function is on a mesh. `texts` are the lines of the program; `whole_bytes` its arguments, unsplit."""

    what: str
    mesh: Mapping[str, int]
    program: PartitionedProgram
    texts: Mapping[str, Sequence[str]]
    whole_bytes: int

    def text_of(self, found: Collective) -> str:
        if found.line is None:
            return ""
        name, number = found.line
        lines = self.texts.get(name, ())
        text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.mesh.items())
        head = f"{self.what} on {count_of(prod(self.mesh.values()), 'device')} ({sizes})"
        rows = [("line", "moves", "along", "what", "how much", "times")]
        for c in self.program.collectives:
            line = str(c.line[1]) if c.line is not None else ""
            times = "each step" if c.times is None else f"{c.times:,}"
            rows.append((f"{line} {self.text_of(c)}".strip(), c.kind, " ".join(f"@{a}" for a in c.axes), c.shape,
                         format_bytes(c.bytes), times))  # fmt: skip
        table = aligned_rows(rows, {0, 1, 2, 3}) if len(rows) > 1 else ["no device sends anything to another one"]
        program, whole = self.program, format_bytes(self.whole_bytes)
        return "\n".join([
            head, "", *table, "",
            f"arguments    {format_bytes(program.argument_bytes)} on each device, {whole} whole",
            f"results      {format_bytes(program.result_bytes)} on each device",
            f"temporaries  {format_bytes(program.temporary_bytes)} on each device",
        ])  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "kind": c.kind, "axes": list(c.axes), "shape": c.shape, "bytes": c.bytes, "times": c.times,
                "source": c.line[0] if c.line else None, "line": c.line[1] if c.line else None, "text": self.text_of(c),
            }
            for c in self.program.collectives
        ]  # fmt: skip
        program = self.program
        each = {"arguments": program.argument_bytes, "results": program.result_bytes,
                "temporaries": program.temporary_bytes}  # fmt: skip
        return {"what": self.what, "mesh": dict(self.mesh), "collectives": rows, "bytes_on_each_device": each,
                "bytes_of_arguments": self.whole_bytes}  # fmt: skip


def report_partition(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: PartitionOptions
) -> PartitionReport:
    """Compile a function, or its gradient, for a mesh of devices, and read what XLA's partitioner made of it.

    Errors: DL0601 if there are too few devices; DL0603 for a size that the mesh does not divide; DL0604 for an axis of
    the mesh that splits an array twice; DL0606 for an axis that the mesh does not have; DL1207, DL1210.
    """
    load_values(checked, path, Engine("interpret"), options.words)
    decl = single_function(checked, entry, "partition")
    refuse_host_function(decl)
    request = EmitRequest("ir", entry, options.argument_specs, options.wrt, program_args=options.words)
    graph = finalize_graph(function_graph(checked, decl, request))
    splits = param_splits(graph, options)
    try:
        program = compile_on_mesh(graph, options.mesh, splits)
    except RuntimeError as error:
        count = prod(options.mesh.values())
        way = f"JAX was started before with fewer; set `XLA_FLAGS={HOST_DEVICES_FLAG}={count}`"
        message = f"the mesh needs {count_of(count, 'device')}, but {error}"
        raise make_error("DL0601", message, help=way) from None
    what = f"`{decl.name}`" if options.wrt is None else f"the gradient of `{decl.name}` in {options.wrt}"
    source = decl.span.source
    whole = sum(p.type.bytes for p in graph.params if isinstance(p.type, Tensor))
    return PartitionReport(what, options.mesh, program, {source.name: source.text.splitlines()}, whole)


def param_splits(graph: Graph, options: PartitionOptions) -> list[Split]:
    """How each param is split. Errors: DL0603, DL0604, DL0606, DL1207."""
    names = [p.hint for p in graph.params]
    for name in options.splits:
        if name not in names:
            raise make_error("DL1207", f"there is no argument `{name}` to split", help=suggestion(name, names))
    return [split_of(p, options.splits.get(p.hint, ""), options.mesh) for p in graph.params]


def split_of(param: Value, text: str, mesh: Mapping[str, int]) -> Split:
    """The split that a text says, `data,_` or `data+model`. Errors: DL0603, DL0604, DL0606, DL1207."""
    assert isinstance(param.type, Tensor)
    parts, shape = ([part.strip() for part in text.split(",")] if text else []), param.type.shape
    about = f"`{param.hint}` is {param.type}"
    if len(parts) > len(shape):
        raise make_error("DL1207", f"{about}, but `{text}` splits {count_of(len(parts), 'axis', 'axes')}")
    taken: set[str] = set()
    found: list[str | tuple[str, ...] | None] = []
    for size, part in zip(shape, parts, strict=False):
        axes = [] if part in ("", "_") else [axis.strip().removeprefix("@") for axis in part.split("+")]
        for axis in axes:
            if axis not in mesh:
                raise make_error("DL0606", f"the mesh has no axis `{axis}`", help=suggestion(axis, mesh))
            if axis in taken:
                raise make_error("DL0604", f"`{axis}` splits two axes of `{param.hint}`", help="leave one whole: `_`")
            taken.add(axis)
        count = prod([mesh[axis] for axis in axes])
        if isinstance(size, int) and size % count:
            by = " and ".join(f"`{axis}`" for axis in axes)
            raise make_error("DL0603", f"{about}: {size} is not a multiple of {count}, the size of {by}",
                             help="pad the array, or split another axis")  # fmt: skip
        found.append(tuple(axes) if len(axes) > 1 else axes[0] if axes else None)
    return tuple(found)
