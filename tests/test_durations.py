"""Continuous integration leaves out cases by `tests/durations.tsv` only as `support/durations.py` says."""

from __future__ import annotations

import re

import pytest

from support import durations
from support.documents import ROOT


def test_every_row_names_a_test() -> None:
    tests = {test.partition("[")[0] for test in durations.read()}
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in {t.split("::")[0] for t in tests}}
    for test in tests:
        path, *_, name = test.split("::")
        found = re.search(rf"^(def {name}\(|{name} = )", sources[path], re.MULTILINE)
        assert found, f"{test}: `just durations` writes the table without it"


def test_as_many_cases_as_fit_and_at_least_one() -> None:
    assert [durations.cases_by_day(seconds, 10) for seconds in (0.08, 0.2, 0.4, 0.7)] == [5, 2, 1, 1]
    assert durations.cases_by_day(1.0, 400) == 10


def test_rows() -> None:
    cases = {"a::one": 0.7, "a::slow": 2.0, "b::cheap": 0.01} | {f"a::long[{i}]": 0.1 for i in range(6)}
    cases |= {"a::long[slow]": 9.0} | {f"b::many[{i}]": 0.04 for i in range(1000)}
    assert dict(durations.rows_of(cases)) == pytest.approx({"a::slow": 2.0, "a::long[slow]": 9.0, "a::long": 0.1})


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
    monkeypatch.setattr(durations, "read", lambda: {"a::long": 0.1, "a::long[3]": 2.0, "a::slow": 5.0, "a::kept": 5.0})

    def by_day(count: int) -> set[str]:
        cases = [Case(f"a::long[{n}]") for n in range(count)]
        cases += [Case("a::slow"), Case("a::kept", "daily"), Case("a::other[1]")]
        durations.thin(cases)  # pyright: ignore[reportArgumentType]
        return {case.nodeid for case in cases if "nightly" not in case.marks}

    few, more = by_day(40), by_day(41)
    assert len(few) == len(more) == 4 + 2
    assert {"a::kept", "a::other[1]"} < few
    assert "a::long[3]" not in few | more
    assert len(few & more) >= 5, "a further case takes the place of one at most"


def test_where_times_are_recorded_all_cases_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "RECORDING", True)
    slow = Case("tests/test_packaging.py::test_the_wheel_has_its_own_copy")
    durations.thin([slow])  # pyright: ignore[reportArgumentType]
    assert not slow.marks


def test_no_row_names_a_folder_of_one_machine() -> None:
    assert not [test for test in durations.read() if re.search(r"\[(.* )?/\w+/\w", test)]
