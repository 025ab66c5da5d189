"""Wrong programs and what is said of them, word by word: `DLnnnn/name.dfl` beside `name.txt`.

A program whose first line is `# run` goes wrong only when it runs, one with `# run xla` when it is compiled for that,
and one with `# test` when it is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from difflang.base.diagnostics import Diagnostic, DifflangError, render
from difflang.base.fixes import apply_fixes
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from difflang.ir.op import OPS
from difflang.tools.testing.suite import Suite, SuiteOptions
from difflang.tools.verify_fixes import certain_fixes, verify_fixes
from difflang.tools.verify_rules import verify_rules
from support.golden import accept

PROGRAMS = sorted(Path(__file__).parent.glob("DL*/*.dfl"))


def reports(path: Path) -> tuple[Diagnostic, ...]:
    text = path.read_text(encoding="utf-8")
    source = Source(f"{path.parent.name}/{path.name}", text)
    if text.startswith("# test"):
        return tuple(wrong_in_tests(Suite(source, path, SuiteOptions(Engine("interpret")))))
    if not text.startswith("# run"):
        return verify_fixes(source, again(source, path), partial(again, path=path))
    checked = check_program(source, path=path, examples=True)
    assert not checked.diagnostics
    with pytest.raises(DifflangError) as raised:
        engine = Engine("xla" if text.startswith("# run xla") else "interpret")
        run_program(checked, engine, file_access(path), 0, lambda text: None)
    return raised.value.diagnostics


def again(source: Source, path: Path) -> tuple[Diagnostic, ...]:
    checked = check_program(source, path=path, examples=True)
    verify_rules(checked, path)
    return checked.diagnostics


def said(found: tuple[Diagnostic, ...]) -> Counter[tuple[str, str]]:
    return Counter((d.code, d.message) for d in found)


def wrong_in_tests(suite: Suite) -> Iterator[Diagnostic]:
    assert not suite.checked.diagnostics
    for _, carry_out in suite.found:
        try:
            carry_out([])
        except DifflangError as error:
            yield from error.diagnostics


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_said_of_a_wrong_program(path: Path) -> None:
    found = reports(path)
    assert {d.code for d in found} == {path.parent.name}
    assert all(d.span is not None and d.span.text for d in found), "every report has a place"
    accept(path.with_suffix(".txt"), render(found) + "\n")
    for report in found:
        for fix in certain_fixes([report]):
            (source,) = {edit.span.source for edit in fix.edits}
            left = said(again(Source(source.name, apply_fixes(source, [fix])), path))
            assert left <= said(found) and left[report.code, report.message] < said(found)[report.code, report.message]


REFUSALS = [
    "det(ones(2, 3))", "inv(ones(2, 3))", "eigh(ones(2, 3))", "expm(ones(2, 3))", "solve(ones(2, 2), ones(3))",
    "solve_triangular(ones(2, 3), ones(2), lower = true)", "concat(ones(2, 3), ones(2))",
    "outer(f32(ones(2)), f64(ones(2)))",
    "pad(f32(ones(2)), 1, 1, value = f64(1.0))", "conv1d(ones(1, 3, 2), ones(2, 1, 1))", "popcount(1.5)", "sort([1j])",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSALS)
def test_a_way_out_says_what_to_write(text: str) -> None:
    """And not what the operation says of itself in its page."""
    (found,) = check_program(Source("refused.dfl", f"let y = {text}\n")).diagnostics
    (way,) = found.helps
    assert not any(op.doc.startswith(way.split("\n")[0][:30]) for op in OPS.values())


def test_there_are_many() -> None:
    assert len(PROGRAMS) >= 140
