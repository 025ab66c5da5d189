"""The pytest plugin: collects `test` blocks, examples and rules of `.dfl` files, each as a test item.

Files called `test_*.dfl` or `*_test.dfl` are collected, or those that the ini option `difflang_files` names; a file on
the command line always is. Importing this is cheap, and collection does not import JAX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from difflang.tools.testing.suite import Suite

DEFAULT_PATTERNS = ["test_*.dfl", "*_test.dfl"]
TEST_MARKER = re.compile(r"^[ \t]*(?:test[ \t]*\"|rule\b|##[ \t]?> )", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "globs of .dfl files to collect tests, examples and rules from; with a `/`, relative to the root folder"
    parser.addini("difflang_files", what, type="args", default=DEFAULT_PATTERNS)
    parser.addini("difflang_path", "folders to search for imports of .dfl files", type="paths", default=[])
    parser.addini("difflang_engine", "how to run the functions of .dfl files: xla or interpret", default="xla")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a `.dfl` file that is selected and has tests."""
    if file_path.suffix != ".dfl" or not is_collected(file_path, parent):
        return None
    return DflFile.from_parent(parent, path=file_path) if has_tests(file_path) else None


def is_collected(path: Path, parent: pytest.Collector) -> bool:
    config = parent.config
    if parent.session.isinitpath(path):
        return True
    root = config.rootpath
    inside = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return any(fnmatch(inside if "/" in glob else path.name, glob) for glob in config.getini("difflang_files"))


def has_tests(path: Path) -> bool:
    """Whether a file may contain tests; a file that cannot be read counts, so that it is reported."""
    try:
        return TEST_MARKER.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return True


class DflFile(pytest.File):
    """A `.dfl` file."""

    def collect(self) -> Iterator[pytest.Item]:
        from difflang.base.diagnostics import render
        from difflang.execution.engine import Engine
        from difflang.tools.testing.suite import SuiteOptions, open_suite

        folders = tuple(self.config.getini("difflang_path"))
        options = SuiteOptions(Engine(self.config.getini("difflang_engine")), paths=folders)
        suite = open_suite(str(self.path), options, display_path(self.path, self.config.invocation_params.dir))
        if suite.errors:
            raise self.CollectError(render(suite.errors))
        names: dict[str, int] = {}
        for number, case in enumerate(suite.cases):
            name = case.title
            names[name] = names.get(name, 0) + 1
            unique = name if names[name] == 1 else f"{name} ({names[name]})"
            yield DflTestItem.from_parent(self, name=unique, suite=suite, number=number)


def display_path(path: Path, folder: Path) -> str:
    """The name of a file in reports: its path relative to the folder where pytest was started, if it is below."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


class DflTestFailure(Exception):
    """A failed case of a `.dfl` file, with its report."""


class DflTestItem(pytest.Item):
    """One case of a `.dfl` file."""

    def __init__(self, *, suite: Suite, number: int, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite, self.number = suite, number

    def runtest(self) -> None:
        outcome = self.suite.run(self.number)
        if outcome.output:
            self.add_report_section("call", "stdout", outcome.output)
        if outcome.result == "skipped":
            pytest.skip(outcome.report)
        if outcome.result == "failed":
            raise DflTestFailure(outcome.report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, DflTestFailure) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.suite.cases[self.number].line - 1, self.name
