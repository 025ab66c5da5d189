"""A few lines that ask for very much end soon: in linear time, or with an error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.ir.builder import Builder
from difflang.ir.tensor_types import F32, Tensor
from difflang.lower.lowering_pipeline import finalize_graph


def ran(folder: Path, program: str) -> list[str]:
    lines: list[str] = []
    run_program(check_program(Source("t.dfl", program)), Engine("interpret"), FileAccess(folder), 0, lines.append)
    return lines


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ('var s = "ab"\nfor i in 0..40 { s = "{s}{s}" }\n', "DL1006"),
        ('var s = "ab"\n' + 's = "{s}{s}"\n' * 40, "DL1006"),
        (
            'fn f(x: f64) -> str {\n  let a = "{x}"\n' + '  let a = "{a}{a}"\n' * 40 + "  a\n}\nprint(f(1.0))\n",
            "DL1008",
        ),
    ],
)
def test_a_text_that_doubles_is_an_error(program: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(DifflangError) as raised:
        ran(tmp_path, program)
    assert code in [d.code for d in raised.value.diagnostics]


def test_an_array_of_the_largest_size_is_lowered() -> None:
    """Its size once stood for "no limit" in the compiler, which then tried again for ever."""
    builder = Builder()
    x = builder.param(Tensor(F32, (2**31 - 1,)))
    doubled = builder.one("add", x, x)
    graph = finalize_graph(builder.finish([builder.one("reduce_sum", doubled, axes=(0,))]))
    assert graph.params[0].type == x.type


def matched(variants: int) -> float:
    names = [f"V{i}" for i in range(variants)]
    cases = ", ".join(f"{name} => {i}.0" for i, name in enumerate(names))
    program = f"enum E {{ {', '.join(names)} }}\nfn f(e: E) -> f64 = match e {{ {cases} }}\n"
    begun = time.process_time()
    assert not check_program(Source("t.dfl", program)).diagnostics
    return time.process_time() - begun


def test_a_match_of_many_variants_takes_linear_time() -> None:
    matched(100)
    assert min(matched(1600) for _ in range(2)) < 8 * min(matched(400) for _ in range(2))
