"""A few lines that would fill the memory, or never end, meet one clean limit each; see docs/limits.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from difflang.base.source import Source
from difflang.base.source_files import MAX_SOURCE_BYTES
from difflang.cli.commands.servers import lsp
from difflang.driver.checked_program import check_program
from difflang.elaborate.calls.lambdas import MAX_LAMBDA_CALLS
from difflang.elaborate.context import MAX_AXES
from difflang.elaborate.derivatives.scalar_derivative import HIGHEST_ORDER
from difflang.elaborate.instance_keys import MAX_CALL_DEPTH
from difflang.host.run_statements import MOST_CALLS
from difflang.host.statement_walk import MAX_NESTING
from difflang.lower.graph_to_jax import MAX_PROGRAM_SIZE
from difflang.ops.loop.history_replay import MAX_SOURCE_LOOPS
from difflang.syntax.lalr_parser import MAX_MISTAKES
from difflang.types.size_expressions import MAX_AXIS_SIZE
from difflang.types.type_errors import MAX_LEAVES

FEW = 40
LIMITS = {
    "tuples of tuples": (
        "let t0 = (1.0, 1.0)\n" + "".join(f"let t{i + 1} = (t{i}, t{i})\n" for i in range(FEW)), "DL1008",
    ),
    "tuples in a function": (
        "fn f(x: f32) -> f32 {\n  let t0 = (x, x)\n"
        + "".join(f"  let t{i + 1} = (t{i}, t{i})\n" for i in range(FEW)) + "  x\n}\n", "DL1008",
    ),
    "records of records": (
        "record R0 { a: f32, b: f32 }\n"
        + "".join(f"record R{i + 1} {{ a: R{i}, b: R{i} }}\n" for i in range(20)) + "fn f(x: R20) -> f32 = 1.0\n",
        "DL1008",
    ),
    "lambdas that call lambdas twice": (
        "fn f(x: f32) -> f32 {\n  let g0 = |x: f32| x + 1.0\n"
        + "".join(f"  let g{i + 1} = |x: f32| g{i}(g{i}(x))\n" for i in range(FEW)) + f"  g{FEW}(x)\n}}\n", "DL1010",
    ),
    "an array of too many axes": (f"let x = {'[' * 40}1.0{']' * 40}\n", "DL1005"),
    "a long number": (f"let x = {'9' * 100_000}\n", "DL0119"),
    "loops in loops": ("for i in 0..2 {\n" * 2_000 + "print(i)\n" + "}\n" * 2_000, "DL1002"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.nightly_cases("(tuples|records) of .*", "lambdas that call lambdas twice")
def test_a_few_lines_meet_one_limit(name: str) -> None:
    text, code = LIMITS[name]
    found = [d.code for d in check_program(Source("few.dfl", text)).errors]
    assert set(found) == {code}, found


def test_each_limit_is_written_down() -> None:
    """The numbers of the page are those of the compiler."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "limits.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.*?) \| ([\d,]+)", page, flags=re.MULTILINE))
    numbers = {name: int(number.replace(",", "")) for name, number in rows.items()}
    server_gibibytes = int(next(p for p in lsp.params if p.name == "limit").default.removesuffix("GiB"))
    assert numbers == {
        "length of an axis": MAX_AXIS_SIZE,
        "size of one file in MiB": MAX_SOURCE_BYTES >> 20,
        "memory of the language server, on Linux (`difflang lsp --memory-limit`)": server_gibibytes,
        "syntax errors reported for one file": MAX_MISTAKES,
        "nesting of loops, branches and lambdas": MAX_NESTING,
        "nesting of calls whose depth is known": MAX_CALL_DEPTH,
        "nesting of calls of host functions": MOST_CALLS,
        "axes of an array": MAX_AXES,
        "parts of a tuple or a record": MAX_LEAVES,
        "calls of lambdas inlined in one function": MAX_LAMBDA_CALLS,
        "equations in one compilation": MAX_PROGRAM_SIZE,
        "order of a derivative by primes, `f'`, and of `jet`": HIGHEST_ORDER,
        "loops of unknown length side by side in reverse mode": MAX_SOURCE_LOOPS,
        "frames of a recursive function": 1 << 20,
    }
