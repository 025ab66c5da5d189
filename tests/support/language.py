"""Running programs of the language in tests: on the interpreter, with the passes on and off, which must not differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from difflang.ad.expand_derivatives import differentiate
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram, check_program
from difflang.driver.run_program import run_program
from difflang.execution.check_failures import with_check_number
from difflang.execution.engine import ArrayProgram, Engine
from difflang.host.data.file_access import FileAccess
from difflang.host.values import HostValue
from difflang.ir.graph import Graph
from difflang.ir.interpreter import TextSink, discard_text, evaluate
from difflang.ir.verify import verify
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity, with_capacity
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.ops.control.print_effect import without_check_messages

HERE = Path(__file__).resolve().parent


class Twice(Engine, frozen=True):
    """Evaluates every graph as it was elaborated and as it would be lowered; answers and what is printed agree."""

    def program(
        self,
        graph: Graph,
        *,
        guard: bool = False,
        capacity: Capacity = INITIAL_CAPACITY,
        on_print: TextSink = discard_text,
    ) -> ArrayProgram:
        plain = differentiate(
            with_capacity(without_check_messages(graph), Capacity(capacity.frames, max(capacity.steps, 1 << 16)))
        )
        ready = finalize_graph(graph, capacity)
        if guard:
            plain, ready = with_check_number(plain), with_check_number(ready)
        verify(plain)
        verify(ready)

        def program(*arrays: Any) -> Sequence[Any]:
            given = [np.asarray(a) for a in arrays]
            texts: tuple[list[str], list[str]] = [], []
            runs = zip((plain, ready), texts, strict=True)
            want, got = [evaluate(g, *given, text_sink=lambda _, text, to=to: to.append(text)) for g, to in runs]
            assert texts[0] == texts[1]
            for text in texts[1]:
                on_print(0, text)
            for a, b in zip(want, got, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                np.testing.assert_allclose(
                    b, a, rtol=1e-5 if a.dtype == np.float32 else 1e-12, atol=1e-6 if a.dtype == np.float32 else 1e-14
                )
            return got

        return program


INTERPRETER = Twice("interpret")


def checked(source: str, path: Path | None = None) -> CheckedProgram:
    """A program that was checked; `path` is its file. Errors: DifflangError with everything that is wrong."""
    found = check_program(Source("test.dfl", source), path=path)
    if found.errors:
        raise DifflangError(*found.errors)
    return found


def warnings(source: str) -> tuple[Diagnostic, ...]:
    """What checking a program of f64 numbers warns of; it has no errors."""
    found = check_program(Source("test.dfl", "float f64\n" + source))
    assert not found.errors, found.errors
    return found.diagnostics


def ran(source: str, engine: Engine = INTERPRETER, seed: int = 0) -> tuple[dict[str, HostValue], list[str]]:
    """A program's top-level values after its last statement, and what it printed."""
    lines: list[str] = []
    runner = run_program(checked(source), engine, FileAccess(HERE), seed, lines.append)
    return runner.values, lines


def answer(expression: str, declarations: str = "", engine: Engine = INTERPRETER, *, seed: int = 0) -> Any:
    """The value of an expression after some declarations: an array, or a tuple of the leaves of a structure."""
    source = f"float f64\n{declarations}\nlet the_answer = {expression}\n"
    values, _ = ran(source, engine, seed)
    leaves = values["the_answer"].leaves or ()
    return np.asarray(leaves[0]) if len(leaves) == 1 else tuple(map(np.asarray, leaves))


def codes(source: str, engine: Engine = INTERPRETER) -> list[tuple[str, int]]:
    """The code and the line of every mistake that a program meets, checked and run."""
    try:
        ran(source, engine)
    except DifflangError as error:
        return [(d.code, d.labels[0].span.position[0] if d.labels else 0) for d in error.diagnostics]
    return []
