"""`difflang partition`: a function on a mesh of devices: what they exchange, line by line, and what each one holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from difflang.base.byte_sizes import format_bytes
from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.error_codes import suggestion
from difflang.base.wording import aligned_rows, count_of
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.run_program import load_values
from difflang.elaborate.context import Session
from difflang.execution.check_failures import with_check_number
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.lower.lowering_pipeline import COMPILE_ON_MESH, finalize_graph
from difflang.ops.arrays.reshard import Split
from difflang.runtime.collectives import HOST_DEVICES_FLAG, Collective, PartitionedProgram, compile_on_mesh
from difflang.sharding.entry_splits import entry_splits
from difflang.sharding.mesh_splits import MeshSplits
from difflang.sharding.pin_splits import graph_for_mesh, with_pins
from difflang.sharding.predicted_collectives import PredictedCollective
from difflang.sharding.region_splits import whole_split
from difflang.tools.emit import EmitRequest, function_call, refuse_host_function, single_function
from difflang.types.type_errors import make_error

USAGE = ("DL0201", "DL0322", "DL0403", "DL0601", "DL0603", "DL0604", "DL0606", "DL1207", "DL1210", "DL1220")
MAX_TEXT = 60  # characters of a source line in the table
LARGE = 2**20  # bytes of an array that no device should have the whole of without a word


class PartitionOptions(Struct, frozen=True):
    """The mesh, how arguments are split, `data,_` by name, argument types, the gradient's parameter.

    With `compiled`, XLA's partitioner is asked too.
    """

    mesh: Mapping[str, int]
    splits: Mapping[str, str] = field(default_factory=dict[str, str])
    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    words: tuple[str, ...] = ()
    compiled: bool = False


class PartitionReport(Struct, frozen=True):
    """What a function is on a mesh: the exchanges that are predicted, and what XLA made of it, if that was asked.

    `texts` are the lines of the program; `whole_bytes` its arguments, unsplit, and `argument_bytes` on each device.
    """

    what: str
    mesh: Mapping[str, int]
    predicted: tuple[Collective, ...]
    program: PartitionedProgram | None
    texts: Mapping[str, Sequence[str]]
    whole_bytes: int
    argument_bytes: int
    warnings: tuple[Diagnostic, ...] = ()

    def text_of(self, found: Collective) -> str:
        if found.line is None:
            return ""
        name, number = found.line
        lines = self.texts.get(name, ())
        text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"

    @property
    def rows(self) -> list[tuple[Collective, str]]:
        """The exchanges, with what each is: predicted, counted in XLA's program, or both."""
        if self.program is None:
            return [(c, c.why) for c in self.predicted]
        left = [part for c in self.program.collectives for part in c.parts]
        rows: list[tuple[Collective, str]] = []
        for c in self.predicted:
            match = min([x for x in left if x.alike == c.alike], key=lambda x: x.line != c.line, default=None)
            if match is not None:
                left.remove(match)
            rows.append((c, c.why if match is not None else "not in XLA's program"))
        return [*rows, *[(x, "not predicted") for x in left]]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.mesh.items())
        head = f"{self.what} on {count_of(prod(self.mesh.values()), 'device')} ({sizes})"
        rows = [("line", "moves", "along", "what", "how much", "times", "why")]
        for c, why in self.rows:
            line = str(c.line[1]) if c.line is not None else ""
            times = "each step" if c.times is None else f"{c.times:,}"
            rows.append((f"{line} {self.text_of(c)}".strip(), c.kind, " ".join(f"@{a}" for a in c.axes), c.shape,
                         format_bytes(c.bytes), times, why))  # fmt: skip
        table = aligned_rows(rows, {0, 1, 2, 3, 6}) if len(rows) > 1 else ["no device sends anything to another one"]
        whole = format_bytes(self.whole_bytes)
        each = [f"arguments    {format_bytes(self.argument_bytes)} on each device, {whole} whole"]
        if self.program is not None:
            each += [f"results      {format_bytes(self.program.result_bytes)} on each device",
                     f"temporaries  {format_bytes(self.program.temporary_bytes)} on each device"]  # fmt: skip
        return "\n".join([head, "", *table, "", *each])

    def to_json(self) -> dict[str, Any]:
        found = {"what": self.what, "mesh": dict(self.mesh), "predicted": [*map(self.row_data, self.predicted)],
                 "bytes_of_arguments": self.whole_bytes}  # fmt: skip
        each = {"arguments": self.argument_bytes}
        if self.program is not None:
            each |= {"results": self.program.result_bytes, "temporaries": self.program.temporary_bytes}
            found["collectives"] = [*map(self.row_data, self.program.collectives)]
        return {**found, "bytes_on_each_device": each}

    def row_data(self, c: Collective) -> dict[str, Any]:
        return {
            "kind": c.kind, "axes": list(c.axes), "shape": c.shape, "bytes": c.bytes, "times": c.times,
            "source": c.line[0] if c.line else None, "line": c.line[1] if c.line else None, "text": self.text_of(c),
        }  # fmt: skip


def report_partition(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: PartitionOptions
) -> PartitionReport:
    """Predict what devices of a mesh exchange for a function, or its gradient, and compare it with XLA's program.

    Errors: DL0601 if there are too few devices; DL0603 for a size that the mesh does not divide; DL0604 for an axis of
    the mesh that splits an array twice; DL0606 for an axis that the mesh does not have; DL1207, DL1210.
    """
    load_values(checked, path, Engine("interpret"), options.words)
    decl = single_function(checked, entry, "partition")
    refuse_host_function(decl)
    request = EmitRequest("ir", entry, options.argument_specs, options.wrt, program_args=options.words)
    call = function_call(checked, decl, request, Session(mesh=checked.session.mesh))
    graph = finalize_graph(call.graph, pipeline=COMPILE_ON_MESH)
    graph = with_check_number(graph) if call.fails else graph
    splits = param_splits(graph, options)
    graph = graph_for_mesh(graph, splits, options.mesh)
    found = MeshSplits(options.mesh)
    found.of_graph(graph, splits)
    program = compile_pinned(graph, splits, options.mesh) if options.compiled else None
    what = f"`{decl.name}`" if options.wrt is None else f"the gradient of `{decl.name}` in {options.wrt}"
    source = decl.span.source
    types = [p.type for p in graph.params if isinstance(p.type, Tensor)]
    local = [
        t.bytes // prod([options.mesh[a] for along in s for a in along]) for t, s in zip(types, splits, strict=True)
    ]
    return PartitionReport(
        what, options.mesh, tuple(map(as_collective, found.moves)), program, {source.name: source.text.splitlines()},
        sum(t.bytes for t in types), sum(local), tuple(large_gathers(found.moves)),
    )  # fmt: skip


def as_collective(found: PredictedCollective) -> Collective:
    shape = f"{found.type.dtype}[{','.join(map(str, found.type.shape))}]"
    line = (found.span.source.name, found.span.position[0]) if found.span else None
    return Collective(found.kind, shape, found.type.bytes, found.times, found.axes, line, found.why)


def large_gathers(moves: Iterable[PredictedCollective]) -> Iterator[Diagnostic]:
    """Warnings of large arrays that every device gets the whole of without a word of the program."""
    for move in moves:
        if move.kind == "all-gather" and not move.declared and move.type.bytes >= LARGE:
            often = "each step" if move.times is None else f"{move.times:,} times" if move.times != 1 else "once"
            message = f"every device gets {move.type} here: {format_bytes(move.type.bytes)}, {often}"
            along = " and ".join([f"`{axis}`" for axis in move.axes])
            way = "split it along another axis, or write `reshard` where it is meant"
            label = Label(move.span, f"it was split along {along}")
            yield Diagnostic("DL0607", message, (label,), (way,), severity="warning")


def compile_pinned(graph: Graph, splits: Sequence[Split], mesh: Mapping[str, int]) -> PartitionedProgram:
    """What XLA makes of a graph for a mesh, with pins. Errors: DL0601."""
    try:
        return compile_on_mesh(with_pins(graph, splits, mesh), mesh, splits)
    except RuntimeError as error:
        count = prod(mesh.values())
        way = f"JAX was started before with fewer; set `XLA_FLAGS={HOST_DEVICES_FLAG}={count}`"
        message = f"the mesh needs {count_of(count, 'device')}, but {error}"
        raise make_error("DL0601", message, help=way) from None


def param_splits(graph: Graph, options: PartitionOptions) -> list[Split]:
    """How each param is split. Errors: DL0603, DL0604, DL0606, DL1207."""
    names = [p.hint for p in graph.params]
    for name in options.splits:
        if name not in names:
            raise make_error("DL1207", f"there is no argument `{name}` to split", help=suggestion(name, names))
    declared = zip(graph.params, entry_splits(graph), strict=True)
    return [
        split_of(p, options.splits[p.hint], options.mesh) if p.hint in options.splits else on_mesh(p, s, options.mesh)
        for p, s in declared
    ]


def on_mesh(param: Value, split: Split | None, mesh: Mapping[str, int]) -> Split:
    """The split that the program declares, without axes that the mesh does not have; whole if it declares none."""
    return tuple([tuple([a for a in along if a in mesh]) for along in split or whole_split(param.type)])


def split_of(param: Value, text: str, mesh: Mapping[str, int]) -> Split:
    """The split that a text says, `data,_` or `data+model`. Errors: DL0603, DL0604, DL0606, DL1207."""
    assert isinstance(param.type, Tensor)
    parts, shape = ([part.strip() for part in text.split(",")] if text else []), param.type.shape
    about = f"`{param.hint}` is {param.type}"
    if len(parts) > len(shape):
        raise make_error("DL1207", f"{about}, but `{text}` splits {count_of(len(parts), 'axis', 'axes')}")
    taken: set[str] = set()
    found: list[tuple[str, ...]] = []
    for size, part in zip(shape, [*parts, *["_"] * (len(shape) - len(parts))], strict=True):
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
        found.append(tuple(axes))
    return tuple(found)
