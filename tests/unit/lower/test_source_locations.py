"""Operations and errors point at the line and column of the program."""

from __future__ import annotations

import re
import traceback

import jax
import numpy as np
import pytest

import difflang
import difflang.ops  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.ad.expand_derivatives import differentiate
from difflang.base.source import Source, Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.op import OPS, Inactive, Op
from difflang.ir.tensor_types import F64, Tensor
from difflang.lower.graph_to_jax import Lowering
from difflang.lower.source_locations import SourceFrames
from difflang.passes.dce import dce
from difflang.runtime.compile import compile_graph, lower_for_platform
from support.work import work

TEXT = "fn f(x: f64) -> f64 {\n  let é = sin(x)\n  é * x\n}\n"
SOURCE = Source("dir/file.dfl", TEXT)
SCALAR = Tensor(F64)


def spot(text: str) -> Span:
    start = TEXT.index(text)
    return Span(SOURCE, start, start + len(text))


def program() -> Graph:
    builder = Builder()
    x = builder.param(SCALAR, "x")
    builder.span = spot("sin(x)")
    y = OPS["sin"].one(x)
    builder.span = spot("é * x")
    return builder.finish([y * x], name="f")


def places(text: str) -> set[tuple[str, int, int]]:
    """Every place in the source that a StableHLO text names: operation, line and column."""
    named: dict[str, tuple[int, int]] = {}
    for label, line, column in re.findall(r'^(#loc\d+) = loc\("dir/file\.dfl":(\d+):(\d+)', text, re.MULTILINE):
        named[label] = (int(line), int(column))
    reach: dict[str, tuple[int, int]] = dict(named)
    lines = re.findall(r"^(#loc\d+) = loc\((.*)\)$", text, re.MULTILINE)
    for _ in range(8):
        for label, content in lines:
            for inner in re.findall(r"#loc\d+", content)[:1]:
                if inner in reach:
                    reach.setdefault(label, reach[inner])
    found: set[tuple[str, int, int]] = set()
    for op, label in re.findall(r"stablehlo\.(\w+) .*loc\((#loc\d+)\)", text):
        if label in reach:
            found.add((op, *reach[label]))
    return found


def test_every_operation_stands_at_its_line_and_column() -> None:
    found = places(lower_for_platform(program(), "cpu", debug_info=True))
    assert ("sine", 2, 11) in found, "columns as in Python: from 0, in bytes; é takes two"
    assert ("multiply", 3, 2) in found


def test_no_operation_stands_in_the_compiler() -> None:
    m = difflang.loads("fn f(x: f32[n]) -> f32 = sum([for i in 0..n => sin(x[i])])", name="placed")
    text = jax.jit(lambda x: m.f(x)).lower(np.ones(3, np.float32)).as_text(debug_info=True)
    assert "placed" in text
    assert re.findall(r"[^\"]*difflang/\w+/[^\"]*\.py", text) == []


def test_derivative_equations_stand_where_the_primal_does() -> None:
    builder = Builder()
    x, ct = builder.param(SCALAR), builder.param(SCALAR)
    out = builder.emit(OPS["vjp"], [x, ct], (program(),), wrt=(True,))
    found = places(lower_for_platform(dce(differentiate(builder.finish(out))), "cpu", debug_info=True))
    assert ("cosine", 2, 11) in found
    assert {line for op, line, _ in found if op == "multiply"} == {2, 3}


def test_hlo_of_a_cut_chain_points_at_the_program() -> None:
    builder = Builder()
    y = builder.param(SCALAR)
    builder.span = spot("sin(x)")
    for _ in range(100):
        y = OPS["sin"].one(y)
    executable = compile_graph(builder.finish([y]))
    text = executable.build().as_text()  # pyright: ignore[reportFunctionMemberAccess]
    assert "dir/file.dfl" in text
    assert 'op_name="jit(program)' in text


def failing(message: str) -> Op:
    def lower(jax: object, x: object) -> object:
        raise ValueError(message)

    return Op("failing", lambda same, x: x, lambda x: x, lower, "Fails.", Inactive())


def test_a_traceback_shows_the_line_of_the_program() -> None:
    builder = Builder()
    x = builder.param(SCALAR)
    builder.emit(failing("no way"), [x], span=spot("sin(x)"))
    with pytest.raises(ValueError, match="no way") as caught:
        Lowering(jax).graph(builder.finish([x]), 1.0)
    frames = traceback.extract_tb(caught.tb)
    at = [f for f in frames if f.filename == "dir/file.dfl"]
    assert [(f.lineno, f.end_lineno, f.colno, f.end_colno) for f in at] == [(2, 2, 11, 17)]


def test_spans_of_several_lines_and_wide_columns() -> None:
    source = Source("wide.dfl", "a" * 5000 + "\n" * 300 + "end")
    span = Span(source, 4990, len(source.text))

    def code_of(*_: object) -> list[tuple[int | None, ...]]:
        return list(SourceFrames().at(span).__code__.co_positions())  # pyright: ignore[reportFunctionMemberAccess]

    assert set(code_of()) == {(1, 301, 4990, 3)}


def test_a_frame_is_made_once_a_span_with_little_work() -> None:
    source = Source("many.dfl", "x + y\n" * 2000)
    spans = [Span(source, 6 * i, 6 * i + 5) for i in range(2000)]
    frames = SourceFrames()
    made: list[object] = []
    assert work(lambda: made.extend(frames.at(s) for s in spans)) < 2000 * 60
    assert [frames.at(s) for s in spans] == made
