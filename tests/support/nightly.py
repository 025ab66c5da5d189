"""Which tests run in continuous integration, within minutes, and which at night: `-m "not nightly"` is the default.

What is marked `nightly` runs only at night. `nightly_cases("a", "b-.*")` says so of those cases of a test whose id (the
text between the brackets) one of the patterns matches as a whole; `nightly_except` says so of all the others. What is
no case of its own, as a number of points, is chosen by `by_day`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def mark_cases(items: Iterable[pytest.Item], whole_files: bool = True) -> None:
    """Adds `nightly` to cases by their ids; a pattern that matches no case of whole files is an error."""
    used: dict[tuple[str, str], bool] = {}
    for item in items:
        test, _, case = item.nodeid.partition("[")
        for name, left_out in (("nightly_cases", True), ("nightly_except", False)):
            if (mark := item.get_closest_marker(name)) is not None:
                matching = [p for p in mark.args if re.fullmatch(p, case.removesuffix("]"))]
                used |= {(test, p): used.get((test, p), False) or p in matching for p in mark.args}
                if bool(matching) == left_out:
                    item.add_marker("nightly")
    unused = [f"{test}: no case matches {pattern!r}" for (test, pattern), once in used.items() if not once]
    if unused and whole_files:
        raise pytest.UsageError("\n".join(["nightly cases:", *unused]))


class Run:
    """Whether nightly tests run too, which `conftest` finds out before a test is collected."""

    at_night = False


def begin(config: pytest.Config) -> None:
    """Reads the expression of `-m`."""
    expression = config.option.markexpr
    Run.at_night = "nightly or not nightly" in expression or "not nightly" not in expression


def by_day(few: T, many: T) -> T:
    """What is tested in CI, and what at night."""
    return many if Run.at_night else few
