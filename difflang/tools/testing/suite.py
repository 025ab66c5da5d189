"""The test suite of a file: its `test` blocks, the examples in its doc comments, its rules; and their outcomes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from difflang.base.crash_report import report_crash
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source, Span
from difflang.base.source_files import read_source
from difflang.driver.checked_program import check_program
from difflang.driver.doc_examples import DocExamples, example_mismatch
from difflang.driver.run_program import file_access
from difflang.execution.engine import Engine
from difflang.host.builtins import UNIT_VALUE
from difflang.host.values import format_value
from difflang.syntax import tree
from difflang.tools.testing.derivative_rule_tests import NotComparable, rule_faults
from difflang.tools.testing.isolated_blocks import IsolatedBlocks, run_statement

CaseKind = Literal["test", "example", "rule", "check"]
CaseResult = Literal["passed", "failed", "skipped"]


class SuiteCase(Struct, frozen=True):
    """One case to test. A file with errors is a single case, of kind `check`."""

    file: str
    line: int
    kind: CaseKind
    name: str

    @property
    def position(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def title(self) -> str:
        """`test "name"`, `example name`: on one line whatever the name contains."""
        name = json.dumps(self.name, ensure_ascii=False)
        return f"{self.kind} {name if self.kind == 'test' else name[1:-1]}"


class Outcome(Struct, frozen=True):
    """The outcome of a case: its report, what it printed, and whether an internal error ended it."""

    case: SuiteCase
    result: CaseResult
    seconds: float
    report: str = ""
    output: str = ""
    codes: tuple[str, ...] = ()
    crashed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self.case), **{n: v for n, v in asdict(self).items() if n != "case"}}


class SuiteOptions(Struct, frozen=True):
    """Options for running cases."""

    engine: Engine = field(default_factory=Engine)
    seed: int = 0
    default_float: str | None = None
    allow: tuple[Path, ...] = ()
    paths: tuple[Path, ...] = ()  # search path of imports


def open_suite(file: str, options: SuiteOptions, name: str | None = None) -> Suite:
    """The suite of a file, called `name` in reports. If it cannot be read, its only case reports that."""
    try:
        source = read_source(Path(file), name or file)
    except DifflangError as error:
        return Suite(Source(name or file, ""), None, options, error.diagnostics)
    return Suite(source, Path(file), options)


class Suite:
    """A file and its cases."""

    def __init__(
        self, source: Source, path: Path | None, options: SuiteOptions, unread: tuple[Diagnostic, ...] = ()
    ) -> None:
        self.path, self.options, self.name = path, options, source.name
        mesh = dict(options.engine.mesh)
        self.checked = check_program(source, options.default_float, path, options.paths, examples=True, mesh=mesh)
        self.apart = IsolatedBlocks(self.checked, options.engine, file_access(path, options.allow), options.seed)
        self.errors = unread or self.checked.errors
        entries: list[tuple[SuiteCase, Callable[[list[str]], None]]] = []
        if self.errors:
            line = next((d.span.position[0] for d in self.errors if d.span is not None), 1)
            entries.append((SuiteCase(self.name, line, "check", self.name), self.report_errors))
        else:
            entries += [
                self.test_case(i, item) for i, item in enumerate(self.checked.items) if isinstance(item, tree.Test)
            ]
            entries += [self.example(comment) for comment in self.checked.examples]
            entries += [self.rule_case(rule) for rule in self.checked.module.rules.values() if not rule.unchecked]
        entries.sort(key=lambda each: each[0].line)
        self.found = entries

    @property
    def cases(self) -> list[SuiteCase]:
        return [case for case, _ in self.found]

    def run(self, number: int) -> Outcome:
        """Run one case. The outcome records whatever happens."""
        case, carry_out = self.found[number]
        printed: list[str] = []
        start = time.perf_counter()
        said, result, codes, fault = "", "passed", (), False
        try:
            carry_out(printed)
        except DifflangError as error:
            said, result, codes = error.render(), "failed", tuple(d.code for d in error.diagnostics)
        except NotComparable as reason:
            said, result = str(reason), "skipped"
        except Exception as error:  # noqa: BLE001 - an internal error ends this case only
            said, result, fault = report_crash(error), "failed", True
        return Outcome(case, result, time.perf_counter() - start, said, "\n".join(printed), codes, fault)

    # ---- The kinds of cases

    def report_errors(self, printed: list[str]) -> None:
        raise DifflangError(*self.errors)

    def test_case(self, i: int, item: tree.Test) -> tuple[SuiteCase, Callable[[list[str]], None]]:
        def carry_out(printed: list[str]) -> None:
            with self.apart.open_block(self.checked.items[:i], item.body, printed.append) as runner:
                for stmt in item.body.stmts:
                    run_statement(runner, stmt, last=stmt is item.body.stmts[-1])

        return self.make_case("test", item.name, item.span), carry_out

    def example(self, comment: DocExamples) -> tuple[SuiteCase, Callable[[list[str]], None]]:
        def carry_out(printed: list[str]) -> None:
            wrong: list[Diagnostic] = []
            said: list[str] = []
            with self.apart.open_block(self.checked.items, comment.block, said.append) as runner:
                for line in comment.lines:
                    said.clear()
                    values = [run_statement(runner, stmt, last=True) for stmt in line.stmts]
                    said += [format_value(v) for v in values if v.type != UNIT_VALUE.type]
                    shown = "\n".join(text.rstrip() for part in said for text in part.split("\n"))
                    if not same_output(line.expected, shown):
                        wrong.append(example_mismatch(line, shown))
            if wrong:
                raise DifflangError(*wrong)

        return self.make_case("example", comment.name, comment.span), carry_out

    def rule_case(self, rule: tree.Rule) -> tuple[SuiteCase, Callable[[list[str]], None]]:
        def carry_out(printed: list[str]) -> None:
            found = rule_faults(self.checked, self.path, rule, self.options.seed)
            if found:
                raise DifflangError(*found)

        return self.make_case("rule", rule.name, rule.span), carry_out

    def make_case(self, kind: CaseKind, name: str, span: Span) -> SuiteCase:
        return SuiteCase(self.name, span.position[0], kind, name)


MIN_ROUNDED_DIGITS = 6  # numbers with fewer digits must agree exactly
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w)")


def same_output(expected: str, shown: str) -> bool:
    """Whether two texts agree; long numbers may differ by one unit in the last written digit."""
    if NUMBER.split(expected) != NUMBER.split(shown):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(shown), strict=True)
    return all(same_printed_number(a, b) for a, b in pairs)


def same_printed_number(expected: str, shown: str) -> bool:
    """Whether two printed numbers agree up to rounding."""
    # Elementary functions differ in their last digits between processors; short numbers hide that.
    if expected == shown:
        return True
    digits, _, exponent = expected.partition("e")
    if "." not in digits or "." not in shown or len(digits.lstrip("-0.").replace(".", "")) < MIN_ROUNDED_DIGITS:
        return False
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(expected) - float(shown)) <= 1.001 * unit
