"""Continuous integration leaves out cases by `tests/durations.tsv` only as `support/durations.py` says."""

from __future__ import annotations

import re

import pytest

from support import durations
from support.documents import ROOT


def test_every_row_names_a_test() -> None:
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in {t.split("::")[0] for t in durations.read()}}
    for test in durations.read():
        path, *_, name = test.split("::")
        assert re.search(rf"^(def {name}\(|{name} = )", sources[path], re.MULTILINE), (
            f"{test}: `just durations` writes the table without it"
        )


def test_at_least_one_case_of_what_is_quick_enough() -> None:
    assert [durations.fitting(seconds) for seconds in (0.1, 0.3, 1.0, 3.9, 4.1)] == [10, 3, 1, 1, 0]


def test_what_is_cheap_has_no_row() -> None:
    assert not durations.needs_row(0.04, 1000)
    assert not durations.needs_row(0.1, 10)
    assert durations.needs_row(0.1, 11)
    assert durations.needs_row(4.5, 1)


class Case:
    """As much of a test item as is asked for."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid, self.marks = nodeid, {*marks}

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, name: str) -> None:
        self.marks.add(name)


def test_the_cases_that_fit_stay_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "RECORDING", False)
    monkeypatch.setattr(durations, "read", lambda: {"a::long": 0.2, "a::slow": 5.0, "a::kept": 5.0})

    def by_day(count: int) -> set[str]:
        cases = [Case(f"a::long[{n}]") for n in range(count)]
        cases += [Case("a::slow"), Case("a::kept", "daily"), Case("a::other[1]")]
        durations.thin(cases)  # pyright: ignore[reportArgumentType]
        return {case.nodeid for case in cases if "nightly" not in case.marks}

    few, more = by_day(40), by_day(41)
    assert len(few) == len(more) == 5 + 2
    assert {"a::kept", "a::other[1]"} < few
    assert len(few & more) >= 6, "a further case takes the place of one at most"


def test_where_times_are_recorded_all_cases_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "RECORDING", True)
    slow = Case("tests/test_packaging.py::test_the_wheel_has_its_own_copy")
    durations.thin([slow])  # pyright: ignore[reportArgumentType]
    assert not slow.marks
